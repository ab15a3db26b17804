"""What a user names: a design and a problem, by words or by files of Timeloop."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from silicast.accelerator.architecture import Architecture
from silicast.accelerator.architecture_file import find_design
from silicast.accelerator.constraints import Constraints
from silicast.accelerator.cost import Cost, Objective, cost
from silicast.accelerator.einsum import Einsum, conv2d, matmul
from silicast.accelerator.mapper import EFFORT, Mapped, best_mapping
from silicast.accelerator.mapping import LoopNest, MappingBatch
from silicast.accelerator.timeloop.files import read_description, read_mapping
from silicast.core.errors import SilicastError, unknown_name

OPERATIONS: dict[str, Callable[..., Einsum]] = {"conv2d": conv2d, "matmul": matmul}
OBJECTIVES: tuple[Objective, ...] = ("energy", "latency", "edp")
TIMELOOP = "parsed-processed-input.yaml"


@final
@dataclass(frozen=True)
class Task:
    """An einsum to be mapped onto a design under its rules."""

    einsum: Einsum
    architecture: Architecture
    constraints: Constraints


def task_of(design: str, op: str = "", sizes: Sequence[str] = ()) -> Task:
    """A task as the command line gives it.

    Args:
        design: name in the catalog, an architecture file, or a folder of Timeloop's files.
        op: conv2d or matmul; "" = the problem of Timeloop's files.
        sizes: words like ``c=64``.

    Raises:
        SilicastError: unknown names, sizes that are missing, or files that cannot be read.
    """
    folder = Path(design)
    if folder.is_dir() or folder.name.endswith(".yaml"):
        found = _described(folder)
        einsum = einsum_of(op, sizes) if op else found.einsum
        return Task(einsum, found.architecture, found.constraints)
    if not op:
        raise SilicastError(
            "an architecture file has no problem in it", field="op",
            hint="give one, as in `conv2d c=3 m=64 p=112 q=112 r=7 s=7 stride=2`",
        )  # fmt: skip
    chosen = find_design(design)
    return Task(einsum_of(op, sizes), chosen.architecture, chosen.constraints)


def einsum_of(op: str, sizes: Sequence[str]) -> Einsum:
    """An einsum by name and words.

    Raises:
        SilicastError: an unknown operation or size, or one that is missing or no whole number.

    >>> einsum_of("matmul", ["m=2", "n=3", "k=4"]).points
    24
    """
    given: dict[str, int] = {}
    for text in sizes:
        name, _, value = text.partition("=")
        if not value.isdigit():
            raise SilicastError(
                f"expected a size like {next(iter(_sizes_of(op)))}=64, found {text!r}",
                field="sizes", hint=f"{op} has {', '.join(_sizes_of(op))}",
            )  # fmt: skip
        given[name] = int(value)
    return sized(op, given)


def sized(op: str, sizes: Mapping[str, Any]) -> Einsum:
    """An einsum by name and sizes.

    Raises:
        SilicastError: an unknown operation or size, or one that is missing or no whole number.

    >>> sized("matmul", {"m": 2, "n": 3, "k": 4}).points
    24
    """
    known = _sizes_of(op)
    for name, value in sizes.items():
        if name not in known:
            raise SilicastError(
                f"expected a size like {next(iter(known))}=64, found {name}={value}",
                field="sizes", hint=f"{op} has {', '.join(known)}",
            )  # fmt: skip
        if not isinstance(value, int):
            raise SilicastError(f"{name} is {value!r}, no whole number", field="sizes")
    missing = [
        name for name, parameter in known.items()
        if parameter.default is inspect.Parameter.empty and name not in sizes
    ]  # fmt: skip
    if missing:
        raise SilicastError(f"{op} needs {', '.join(missing)}", field="sizes")
    return OPERATIONS[op](**sizes)


def _sizes_of(op: str) -> Mapping[str, inspect.Parameter]:
    if op not in OPERATIONS:
        raise unknown_name(
            f"unknown operation {op!r}", "op", f"there are {', '.join(OPERATIONS)}"
        )  # fmt: skip
    return inspect.signature(OPERATIONS[op]).parameters


def mapped(task: Task, objective: str = "energy", effort: int = EFFORT) -> Mapped:
    """The best mapping of a task.

    Raises:
        SilicastError: an unknown objective, or no mapping fits.
    """
    for known in OBJECTIVES:
        if objective == known:
            return best_mapping(
                task.einsum, task.architecture, task.constraints, objective=known, effort=effort
            )
    raise unknown_name(
        f"unknown objective {objective!r}", "objective", f"one of {', '.join(OBJECTIVES)}"
    )


def given_mapping(folder: str) -> tuple[LoopNest, Cost]:
    """The mapping that Timeloop's files hold, and what it costs by our own counts.

    Raises:
        SilicastError: a file cannot be read, or the mapping does not belong to it.
    """
    path = Path(folder)
    if path.name.endswith(".yaml"):
        path = path.parent
    found = _described(path)
    nest = read_mapping(path / "map.yaml", found)
    batch = MappingBatch.of(nest, found.einsum, found.architecture)
    result = cost(found.einsum, found.architecture, batch)
    if not result.fits[0]:
        raise overflow(result)
    return batch.nest(0, found.einsum, found.architecture), result


def overflow(found: Cost) -> SilicastError:
    """The memory that a given mapping overflows, and by how much."""
    for level, memory in enumerate(found.architecture.memories):
        needed = float(found.traffic.tiles[level, :, 0].sum())
        if needed > memory.usable_words:
            largest = int(found.traffic.tiles[level, :, 0].argmax())
            return SilicastError(
                f"its tiles need {needed:g} words, {memory.usable_words:g} are there",
                kind="unsupported", field=memory.name,
                hint=f"move a loop over {found.einsum.names[largest]}, the largest tile with "
                f"{found.traffic.tiles[level, largest, 0]:g} words, further out",
            )  # fmt: skip
    return SilicastError("it fits", kind="internal")


def _described(path: Path) -> Any:
    folder = path if path.is_dir() else path.parent
    tables = [folder / name for name in ("ERT.yaml", "ART.yaml")]
    ert, art = (table if table.is_file() else None for table in tables)
    return read_description(path / TIMELOOP if path.is_dir() else path, ert, art)
