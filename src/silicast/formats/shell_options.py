"""Options of commands: of launchers, of Slurm's lines in a script, of a program."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

LAUNCHERS = frozenset(("srun", "mpirun", "mpiexec"))
"""Their options hold for the program behind a shell that they start, too."""
_PROGRAM = re.compile(r"(?:.*/)?(?:python[\d.]*|torchrun|deepspeed|bash|sh)|.*\.py")
"""No value of an option before it."""
_SHORT = {"-N": "--nodes", "-n": "--ntasks", "-np": "--ntasks"}
_SLURM = "#SBATCH"
_LONGEST_LINE = 1000
_SHELLS = frozenset(("bash", "sh"))
TAKE_SCRIPTS = _SHELLS | {"ssh"}
"""Programs that run a script."""
_REMOTE = {"ssh": "BbcDEeFIiJLlmOopQRSWw", "pdsh": "wxlutfgR", "clush": "wxlutfgoX"}
"""Programs that run a shell on other machines -> letters of their options that take a value."""
_CONTAINERS = frozenset(("docker", "podman", "nerdctl", "kubectl"))
_PREFIXES = {"sudo", "env", "timeout", "nohup", "nice", "setsid", "sshpass"}
_CARRIERS = _CONTAINERS | LAUNCHERS | _PREFIXES
"""Programs whose further words are a command, to which they leave their input."""
_SEVERAL = frozenset(("xargs", "parallel", "pssh", "parallel-ssh"))
"""Programs that run a command as often as they are given words."""
_GIVEN = re.compile(r"(?:-e|--env=)?([A-Za-z_]\w*)=(.*)", re.DOTALL)


def long_names(words: list[str]) -> list[str]:
    """A launcher's options by their long names.

    >>> long_names(["mpirun", "-np", "16", "python", "run.py", "-n", "1"])
    ['mpirun', '--ntasks', '16', 'python', 'run.py', '-n', '1']
    >>> long_names(["srun", "-N2", "run.sh"])
    ['srun', '--nodes', '2', 'run.sh']
    """
    if not words or words[0] not in LAUNCHERS:
        return words
    made: list[str] = []
    for position, word in enumerate(words):
        match = re.fullmatch(r"(-np?|-N)=?(\d*)", word)
        if _PROGRAM.fullmatch(word):
            return [*made, *words[position:]]
        made += [_SHORT[match[1]], *([match[2]] if match[2] else [])] if match else [word]
    return made


def of_slurm(text: str) -> dict[str, str]:
    r"""Variables that Slurm sets by the ``#SBATCH`` lines of a script.

    >>> of_slurm("#SBATCH --nodes=4\n#SBATCH --gres=gpu:8")
    {'SLURM_NNODES': '4', 'SLURM_JOB_NUM_NODES': '4', 'SLURM_GPUS_ON_NODE': '8'}
    """
    options_of_jobs: dict[str, str] = {}
    lines = [line for line in text.splitlines() if line.startswith(_SLURM)]
    for whole in lines[:100]:
        line = whole[len(_SLURM) : _LONGEST_LINE].partition(" #")[0]
        options_of_jobs |= options(re.sub(r"(^|\s)-N[ =]?(?=\d)", r"\1--nodes=", line).split())
        if match := re.search(r"(?:^|\s)-n[ =]?(\d+)", line):
            options_of_jobs["ntasks"] = match[1]
    if match := re.fullmatch(r"gpu(?::[\w-]+)?:(\d+)", options_of_jobs.get("gres", "")):
        options_of_jobs.setdefault("gpus-per-node", match[1])
    names = {
        "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
        "ntasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
        "ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
        "gpus-per-node": ("SLURM_GPUS_ON_NODE",),
    }
    numbers = {
        name: options_of_jobs[name].rpartition(":")[2] for name in names if name in options_of_jobs
    }
    return {
        variable: number
        for name, number in numbers.items()
        for variable in names[name]
        if number.isdigit()
    }


def options(words: Sequence[str]) -> Mapping[str, str]:
    """``--name value`` and ``--name=value`` by name with hyphens; "" for a flag alone.

    A name and its value that a quote holds together are taken apart.

    >>> dict(options(["run.py", "--num_layers", "4", "--bf16", "--lr=1e-4", "-q", "--tp 2"]))
    {'num-layers': '4', 'bf16': '', 'lr': '1e-4', 'tp': '2'}
    >>> dict(options(["run.py", "--pp 2 --method uniform"]))
    {'pp': '2', 'method': 'uniform'}
    """
    values: dict[str, str] = {}
    name = ""
    for word in _apart(words):
        if word.startswith("--") and len(word) > 2:
            match = re.match(r"--([^\s=]*)[\s=]?(.*)", word, re.DOTALL)
            assert match is not None
            name = match[1].replace("_", "-")
            values[name] = match[2].strip()
        elif _PROGRAM.fullmatch(word) or (word.startswith("-") and not re.match(r"-\d", word)):
            name = ""
        elif name:
            values[name] = f"{values[name]} {word}".strip()
    return values


def _apart(words: Sequence[str]) -> Iterator[str]:
    """Words, with several options that a quote holds together taken apart."""
    for word in words:
        if word.startswith("--") and re.search(r"\s--[A-Za-z]", word):
            yield from map(str.strip, re.split(r"\s(?=--[A-Za-z])", word))
        else:
            yield word


def _names(words: Sequence[str], programs: Collection[str]) -> bool:
    return any(word.rpartition("/")[2] in programs for word in words)


def is_apart(words: Sequence[str]) -> bool:
    """Whether words start a shell on another machine or in a container."""
    return _names(words, _REMOTE) or _names(words, _CONTAINERS)


def given_in(words: Sequence[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """Variables that the words before a shell's script give it, as ``env`` and ``docker`` do.

    Args:
        known: variables outside, whose values ``docker run -e NAME`` takes.

    >>> given_in("docker run -e A=1 -e B -e C image bash -c".split(), {"B": "2"})
    {'A': '1', 'B': '2'}
    """
    in_container = _names(words, _CONTAINERS)
    if _names(words, _REMOTE) or not (in_container or _names(words, ("env",))):
        return {}
    named = [name for flag, name in pairwise(words) if in_container and flag in ("-e", "--env")]
    given = {match[1]: match[2] for word in words if (match := _GIVEN.fullmatch(word))}
    return {**given, **{name: known[name] for name in named if name in known}}


def remote_in(words: list[str]) -> list[str]:
    """Words of ``ssh`` and the like, with all that the other machine's shell runs as one.

    >>> remote_in(["ssh", "-p", "22", "n1", "A=1", "run", "x"])
    ['ssh', '-p', '22', 'n1', 'A=1 run x']
    """
    if not _names(words, _REMOTE) or words[-2:-1] == ["-c"]:
        return words
    at = next(at for at, word in enumerate(words) if _names([word], _REMOTE))
    program = words[at].rpartition("/")[2]
    hosts = int(program == "ssh")
    at += 1
    while at < len(words) and (hosts or words[at].startswith("-")):
        if not words[at].startswith("-"):
            hosts -= 1
        elif len(words[at]) == 2 and words[at][1] in _REMOTE[program]:
            at += 1
        at += 1
    return [*words[:at], " ".join(words[at:])] if at < len(words) else words


def host_count(words: Sequence[str]) -> int:
    """Machines on which words start a shell; 0 = not known.

    >>> host_count("pdsh -w n[1-3,7],m1".split()), host_count("ssh -w 0 n1".split())
    (5, 1)
    """
    if not _names(words, ("pdsh", "clush")):
        return int(not _names(words, _SEVERAL))
    value = next((words[at + 1] for at, word in enumerate(words[:-1]) if word == "-w"), "")
    value = value or next((word[2:] for word in words if re.match("-w.", word)), "")
    count = 0
    for name in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", value[:_LONGEST_LINE]):
        inner = re.search(r"\[([^\]]*)\]", name)
        for part in inner[1].split(",") if inner else [""]:
            ends = re.fullmatch(r"(\d{1,9})-(\d{1,9})", part)
            count += int(ends[2]) - int(ends[1]) + 1 if ends else 1
    return 0 if "$" in value or "^" in value else max(count, 0)


def script_in(words: Sequence[str]) -> str:
    """What ``bash -c`` or ``ssh`` is given in one word; "" = nothing."""
    if "sbatch" in words:
        wrapped = [word for word in words if word.startswith("--wrap")]
        if wrapped and "=" in wrapped[0]:
            return wrapped[0].partition("=")[2]
    for position, word in enumerate(words[:-1]):
        if re.fullmatch(r"-\w*c", word) and _SHELLS & {
            each.rpartition("/")[2] for each in words[:position]
        }:
            return words[position + 1]
    return words[-1] if _names(words[:-1], _REMOTE) and len(words[-1].split()) > 1 else ""


def reads_script(words: Sequence[str]) -> bool:
    """Whether words start a shell that takes its commands from its input.

    >>> [reads_script(each.split()) for each in ("bash", "ssh -p 22 n1", "ssh n1 bash -s", "sh -e")]
    [True, True, True, True]
    >>> [reads_script(each.split()) for each in ("bash x.sh", "ssh n1 run --x", "ssh n1 bash x.sh")]
    [False, False, False]
    >>> reads_script("sudo timeout 9 ssh n1".split()), reads_script("grep -c bash".split())
    (True, False)
    >>> reads_script(["bash", "-c", "run"]), reads_script(["ssh", "n1", "cd /x && exec bash -ls 2"])
    (False, True)
    """
    shells = [at for at, word in enumerate(words) if _names([word], TAKE_SCRIPTS)]
    if not shells or not (shells[0] == 0 or _names(words[:1], _CARRIERS)):
        return False
    words = words[shells[0] :]
    if _names(words[:1], _REMOTE):
        remote = remote_in([*words, "bash"])[-1]  # as a shell that nothing is asked of
        last = re.split(r"[;&|]", remote)[-1].split()
        words = last[:-1] or last
        words = words[1:] if words[0] in ("exec", "sudo") else words
    program, *given = [word for word in words if "=" not in word] or [""]
    takes = any(re.fullmatch(r"-\w*s", word) for word in given)
    runs = any(not word.startswith("-") or re.fullmatch(r"-\w*c", word) for word in given)
    return program.rpartition("/")[2] in _SHELLS and (takes or not runs)


def unresolved(value: str) -> bool:
    """Whether a value is left to the shell."""
    return "$" in value or "`" in value
