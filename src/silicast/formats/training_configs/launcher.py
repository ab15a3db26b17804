"""The run that a shell script starts: its arguments, and how many devices its launcher gives it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from silicast.core.errors import SilicastError
from silicast.formats.effects import Effects, effects_of
from silicast.formats.fields import Fields
from silicast.formats.shell_branches import doubts_of
from silicast.formats.shell_options import options, unresolved
from silicast.formats.shell_script import Script
from silicast.formats.training_configs.megatron_switches import of_environment
from silicast.formats.training_configs.reader import Stated

OF_NODES = ("nnodes", "num-nodes", "num-machines", "nodes")
LEAST_KNOWN = 3
"""Arguments that make a command a run of a tool."""


def arguments_of(
    text: str, file: str, stated: Stated, known: Collection[str], tool: str
) -> tuple[dict[str, str], list[str]]:
    """Arguments of the run that a script starts with the variables that libraries read, and
    remarks.

    Args:
        known: arguments that only the tool has; tool: of ``catalog/launch_fields.toml``.

    Raises:
        SilicastError: it starts several unlike runs, and none of them is chosen.
    """
    script = Script.parse(text, stated.variables)
    remarks = doubts_of(script.branched, script.missing, script.sourced)
    remarks += [
        f"{name}: a loop gives it {', '.join(values[:6])} (--env {name}={values[0]})"
        for name, values in list(script.looped.items())[:6]
        if values
    ]
    words = _chosen(script, file, stated, known, effects_of(tool))
    started = next((run for run in script.commands if run.words == words), None)
    variables = {**started.variables, **started.assigned} if started else script.variables
    arguments = dict(options(words))
    return of_environment(variables) | _of_slurm(script.variables) | arguments, remarks


def closed(
    arguments: Mapping[str, Any], file: str, remarks: list[str], tool: str
) -> dict[str, Any]:
    """Arguments whose values are known; remarks about the others are added to ``remarks``.

    Raises:
        SilicastError: one that changes the run is left to the shell.
    """
    resolved = {name: value for name, value in arguments.items() if not unresolved(str(value))}
    for name, value in arguments.items():
        if name in resolved:
            continue
        shown = str(value)[:40]
        if effects_of(tool).changes(name):
            variable = re.search(r"\$\{?([A-Za-z_]\w*)", shown)
            raise SilicastError(
                f"its value {shown!r} is left to the shell",
                file=file,
                field=f"--{name}",
                hint=(
                    f"state it: --env {variable[1]}=value"
                    if variable
                    else f"write the value of --{name} into the script"
                ),
            )
        remarks.append(f"--{name}: its value {shown!r} is left to the shell")
    return resolved


def _of_slurm(variables: Mapping[str, str | list[str]]) -> dict[str, str]:
    """What ``#SBATCH`` lines ask for, as arguments of srun."""
    names = {
        "SLURM_NNODES": "nodes",
        "SLURM_NTASKS": "ntasks",
        "SLURM_NTASKS_PER_NODE": "ntasks-per-node",
        "SLURM_GPUS_ON_NODE": "gpus-per-node",
    }
    return {to: str(variables[name]) for name, to in names.items() if name in variables}


def _chosen(
    script: Script, file: str, stated: Stated, known: Collection[str], effects: Effects
) -> Sequence[str]:
    """The command of the run."""
    runs: dict[tuple[tuple[str, str], ...], Sequence[str]] = {}
    for words in script.runs:
        arguments = options(words)
        if len(known & arguments.keys()) >= LEAST_KNOWN:
            effective = {n: v for n, v in arguments.items() if effects.changes(n)}
            runs[tuple(sorted(effective.items()))] = words
    if len(runs) < 2:
        return script.command()
    shared = set.intersection(*(set(arguments_of_run) for arguments_of_run in runs))
    names = {}
    for number, arguments_of_run in enumerate(runs, 1):
        differing = [
            f"--{name} {value}".strip()
            for name, value in arguments_of_run
            if (name, value) not in shared
        ]
        names[str(number)] = ", ".join(differing[:3])[:80] or "no more arguments"
    chosen = stated.chosen(names, file)
    return list(runs.values())[int(chosen) - 1]


def ranks_of(fields: Fields, devices: int) -> tuple[int, int] | None:
    """Devices, and those of a node (0 = not stated), of launchers' arguments: as the user states
    them, else those of torchrun, deepspeed, accelerate or srun, else the world's size.
    """
    processes = _number(fields, "num-processes")
    in_node = _number(fields, "nproc-per-node", "num-gpus", "gpus-per-node", "ntasks-per-node")
    nodes = _number(fields, *OF_NODES)
    for name in OF_NODES:
        word = str(fields.get(name) or "")
        if not (devices or nodes or processes) and word:
            raise fields.error(
                f"expected a number of nodes from 1, found {word[:40]!r}",
                name,
                "change it, or state all devices: --set cluster.gpus=8",
            )
    ranks = processes or in_node * max(nodes, 1) or _number(fields, "ntasks", "world-size", "gpus")
    total = devices or ranks
    if not total:
        return None
    if processes and nodes and not in_node:
        in_node = processes // nodes
    return total, min(in_node, total)


def _number(fields: Fields, *names: str) -> int:
    """The first that is a whole number; 0 = none is. The upper end of a range of nodes counts."""
    number = 0
    for name in names:
        word = str(fields.get(name) or "").rpartition(":")[2]
        if not number and word.isdigit():
            number = (
                fields.count(name, default=0, least=0) if word == fields.get(name) else int(word)
            )
    return number
