"""Options of commands: of launchers, of Slurm's lines in a script, of a program."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

LAUNCHERS = frozenset(("srun", "mpirun", "mpiexec"))
"""Their options hold for the program behind a shell that they start, too."""
_PROGRAM = re.compile(r"(?:.*/)?(?:python[\d.]*|torchrun|deepspeed|bash|sh)|.*\.py")
"""No value of an option before it."""
_SHORT = {"-N": "--nodes", "-n": "--ntasks", "-np": "--ntasks"}
_SLURM = "#SBATCH"
_LONGEST_LINE = 1000
_SHELLS = frozenset(("bash", "sh"))
_REMOTE = frozenset(("ssh", "pdsh", "clush"))


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
    remote = any(each.rpartition("/")[2] in _REMOTE for each in words[:-1])
    return words[-1] if remote and len(words[-1].split()) > 1 else ""
