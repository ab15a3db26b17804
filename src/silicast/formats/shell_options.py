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
_SHELLS = frozenset(("bash", "sh", "dash", "ksh", "zsh"))
_SHELL = re.compile(rf"(?:/[\w/]*bin/)?(?:{'|'.join(sorted(_SHELLS))})")
_REMOTE = {"ssh": "BbcDEeFIiJLlmOopQRSWw", "pdsh": "wxlutfgR", "clush": "wxlutfgoX"}
"""Programs that run a shell on other machines -> letters of their options that take a value."""
_CONTAINERS = frozenset(("docker", "podman", "nerdctl", "kubectl"))
_OF_CONTAINERS = "BHacefhlmnpuvwW"
"""Letters of their options that take a value; long ones do, but for these."""
_FLAGS = (
    "build|cleanenv|contain|containall|detach|fakeroot|help|init|interactive|no-deps|no-home|nv|"
    "no-healthcheck|oom-kill-disable|privileged|publish-all|quiet|read-only|rm|rocm|"
    "service-ports|stdin|tty|writable|writable-tmpfs"
)
_PREFIXES: Mapping[str, tuple[str, int]] = {
    "chroot": ("", 1),
    "chrt": ("DPT", 1),
    "command": ("", 0),
    "env": ("CSu", 0),
    "exec": ("a", 0),
    "ionice": ("cn", 0),
    "nice": ("n", 0),
    "nohup": ("", 0),
    "numactl": ("CNPimp", 0),
    "setsid": ("", 0),
    "sshpass": ("Pdfp", 0),
    "stdbuf": ("eio", 0),
    "sudo": ("CDRTUghprtu", 0),
    "taskset": ("", 1),
    "time": ("fo", 0),
    "timeout": ("ks", 1),
}
"""Programs whose further words are a command, to which they leave their input -> letters of their
options that take a value, words between the options and the command."""
_VALUED = (
    "adjustment|chdir|chroot|class|classdata|cpunodebind|group|host|interleave|kill-after|membind|"
    "physcpubind|preferred|prompt|signal|unset|user"
)
"""Their long options that take a value."""
TAKE_SCRIPTS = _SHELLS | {"ssh"}
"""Programs that run a script."""
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
    assignments = {match[1]: match[2] for word in words if (match := _GIVEN.fullmatch(word))}
    return {**assignments, **{name: known[name] for name in named if name in known}}


def remote_in(words: list[str]) -> list[str]:
    """Words of ``ssh`` and the like, with all that the other machine's shell runs as one.

    >>> remote_in(["ssh", "-p", "22", "n1", "A=1", "run", "x"])
    ['ssh', '-p', '22', 'n1', 'A=1 run x']
    """
    if not _names(words, _REMOTE) or words[-2:-1] == ["-c"]:
        return words
    at = next(at for at, word in enumerate(words) if _names([word], _REMOTE))
    at += _remote_at(words[at:])
    return [*words[:at], " ".join(words[at:])] if at < len(words) else words


def _operand_at(words: Sequence[str], letters: str, long: str = "", *, valued: bool = True) -> int:
    """The position of the first word behind a program and its options.

    Args:
        letters: of options that take a value; long: pattern of long ones that do, or, where
            not ``valued``, of those that do not.
    """
    at = 1
    while at < len(words) and re.match(r"[-+].", word := words[at]):
        at += 1
        if word == "--":
            break
        if word.startswith("--"):
            at += "=" not in word and bool(re.fullmatch(long, word[2:])) == valued
        else:
            first = next((n for n, letter in enumerate(word) if n and letter in letters), 0)
            at += first == len(word) - 1
    return min(at, len(words))


def _remote_at(words: Sequence[str]) -> int:
    """The position of what ``ssh`` or the like runs on the other machine."""
    program = words[0].rpartition("/")[2]
    at = _operand_at(words, _REMOTE[program])
    return at + _operand_at(words[at:], _REMOTE[program]) if program == "ssh" else at


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
            word.rpartition("/")[2] for word in words[:position]
        }:
            return words[position + 1]
    return words[-1] if _names(words[:-1], _REMOTE) and len(words[-1].split()) > 1 else ""


def reads_script(words: Sequence[str]) -> bool:
    """Whether words start a shell that takes its commands from its input.

    Where a variable without a value leaves it open, they do.

    >>> [reads_script(each.split()) for each in ("bash", "ssh -p 22 n1", "ssh n1 bash -s", "sh -e")]
    [True, True, True, True]
    >>> [reads_script(each.split()) for each in ("bash x.sh", "ssh n1 run --x", "ssh n1 bash x.sh")]
    [False, False, False]
    >>> reads_script("sudo timeout 9 ssh n1".split()), reads_script("sudo tee /opt/bash".split())
    (True, False)
    >>> reads_script(["bash", "-c", "run"]), reads_script(["ssh", "n1", "cd /x && exec bash -ls 2"])
    (False, True)
    """
    words = _carried(words)
    program = words[0].rpartition("/")[2] if words else ""
    if program != "ssh":
        return program in _SHELLS and _takes_input(words)
    if _reads_remotely(words[_remote_at(words) :]):
        return True
    plain_words = [word for word in words if not word.startswith("$")]  # were they options of ssh
    host, *behind = plain_words[_operand_at(plain_words, _REMOTE["ssh"]) :] or [""]
    is_plain = not re.search(r"\s", host) and not (behind and behind[0].startswith("-"))
    return bool(host) and len(plain_words) < len(words) and is_plain and _reads_remotely(behind)


def _takes_input(shell: Sequence[str]) -> bool:
    """Whether a shell is given neither a file nor a text to run."""
    at = file_at(shell)
    if any(re.fullmatch(r"-\w*c\w*", word) for word in shell[1:at]):
        return False
    takes = any(re.fullmatch(r"-\w*s\w*", word) for word in shell[1:at])
    return takes or at == len(shell) or shell[at] == "/dev/stdin" or unresolved(shell[at])


def file_at(shell: Sequence[str]) -> int:
    """The position of the file that a shell is given to run; the number of words = none.

    >>> file_at("bash -euo pipefail x.sh 2".split()), file_at("bash -x".split())
    (3, 2)
    """
    ordered = [re.sub(r"^(-\w*)([oO])(\w+)$", r"\1\3\2", word) for word in shell]
    at = _operand_at(ordered, "oO", "rcfile|init-file")
    return at + (shell[at : at + 1] == ["-"])


def _reads_remotely(words: Sequence[str]) -> bool:
    """Whether a command of another machine's shell, or that shell itself, takes its commands from
    its input.
    """
    text = re.sub(r"\d*[<>]+&?\s*[^\s;&|]+", " ", " ".join(words))
    parts = [part.split() for part in re.split(r"[;&|\n]", text) if part.strip()]
    return not parts or any(map(_may_read, parts))


def _may_read(words: Sequence[str]) -> bool:
    """Whether words read commands, or start a program that may leave its input to a shell."""
    carried = _carried(words)
    if not carried:
        return words[0] == "sudo"
    if carried[0] == "su" or unresolved(carried[0]):
        return "-c" not in carried
    if carried[0].rpartition("/")[2] in TAKE_SCRIPTS:
        return reads_script(carried)
    shell = _shell_in(carried)
    return bool(shell) and _takes_input(shell)


def _shell_in(words: Sequence[str]) -> Sequence[str]:
    at = next((at for at, word in enumerate(words) if _SHELL.fullmatch(word)), len(words))
    return words[at:]


def _carried(words: Sequence[str]) -> Sequence[str]:
    """The command behind variables, ``sudo``, launchers, ``docker exec`` and the like.

    >>> _carried("A=1 sudo -Eu me env B=2 timeout -k 5 9 bash -s".split())
    ['bash', '-s']
    >>> _carried("docker exec -e A=1 -i ssh cat".split())
    ['cat']
    >>> _carried("kubectl -n x exec -i pod -c one -- bash".split())
    ['bash']
    """
    while words:
        program = words[0].rpartition("/")[2]
        if re.match(r"[A-Za-z_]\w*=", words[0]):
            words = words[1:]
        elif program in _PREFIXES:
            letters, between = _PREFIXES[program]
            words = words[_operand_at(words, letters, _VALUED) + between :]
        elif program in _CONTAINERS or program in ("apptainer", "singularity"):
            words = _in_container(words)
        elif program in LAUNCHERS:
            starts = (
                at
                for at, word in enumerate(words)
                if at and (word in _PREFIXES or word == "ssh" or _PROGRAM.fullmatch(word))
            )
            words = words[next(starts, len(words)) :]
        else:
            break
    return words


def _in_container(words: Sequence[str]) -> Sequence[str]:
    """What ``docker run``, ``kubectl exec`` and the like run."""
    if words[0].endswith("kubectl") and "--" in words:
        return words[words.index("--") + 1 :]
    at, more = 0, 2  # the subcommand and the container
    while more and at < len(words):
        at += _operand_at(words[at:], _OF_CONTAINERS, _FLAGS, valued=False)
        more -= words[at : at + 1] not in (["compose"], ["container"])
    return words[at + 1 :] or _shell_in(words[2:])


def unresolved(value: str) -> bool:
    """Whether a value is left to the shell."""
    return "$" in value or "`" in value
