"""What limits kernels, of what each resource needs alone: the first limit, and what else binds.

Resources overlap, so that the one that needs most sets the time. Some add up instead: a launch and
fills that nothing overlaps (:data:`SERIAL`), and units that wait while their array is filled
(:data:`IN_TURN`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from silicast.core.numerics import F64

SERIAL = ("launch", "latency", "ramp")
"""Resources that nothing else overlaps with."""

IN_TURN = ("units", "array_fill")
"""Resources of which one waits for the other: what they need adds up."""

NO_BOUND = frozenset(
    ("launch", "ramp", *IN_TURN, "array_load", "chip_memory", "traffic", "vector", "power")
)
"""Resources that a kernel waits for and that set no bound on how quickly its work can be done:
what a mapping onto a design makes of it, another could do without."""

LEAST = {"tensor": "units", "dram": "traffic"}
"""What useful work alone needs of a resource -> what it needs as the work is mapped."""

MATTERS = 0.05
"""Of a time: what twice as much of a resource must save for it to bind."""

HIDEABLE = ("array_fill",)
"""Of what adds to the time, what a second buffer hides altogether; else twice as much halves it."""

Also = tuple[tuple[str, float], ...]
"""What binds besides the first limit, and its share of the time; 0 = it overlaps with the first."""


def competing(resource_s: Mapping[str, F64]) -> dict[str, F64]:
    """What each resource needs beside the others, shape (n,), without a launch.

    Of those that take turns the largest stands for all, since what shortens it helps most.

    >>> needs = {"dram": np.array([5.0]), "units": np.array([4.0]), "array_fill": np.array([2.0])}
    >>> {name: seconds.tolist() for name, seconds in competing(needs).items()}
    {'dram': [5.0], 'units': [6.0], 'array_fill': [2.0]}
    """
    needs = {name: seconds for name, seconds in resource_s.items() if name != "launch"}
    turns = {name: needs[name] for name in IN_TURN if name in needs}
    if turns:
        table = np.stack([np.asarray(seconds, dtype=np.float64) for seconds in turns.values()])
        largest = np.argmax(table, axis=0)
        for index, name in enumerate(turns):
            needs[name] = np.where(largest == index, table.sum(axis=0), table[index])
    return needs


def _of_rows(resource_s: Mapping[str, F64], rows: int) -> dict[str, F64]:
    """The same with an array of shape (rows,) each."""
    table = np.empty((len(resource_s), rows))
    for row, seconds in zip(table, resource_s.values(), strict=True):
        row[:] = np.ravel(seconds)
    return dict(zip(resource_s, table, strict=True))


def bound_by(resource_s: Mapping[str, F64], rows: int) -> list[str]:
    """The resource that needs most, or "power" where its limit needs more, per row.

    Args:
        resource_s: resource -> seconds, numbers or arrays that spread over the rows.
    """
    needs = competing(resource_s)
    names = list(needs)
    if rows == 1:  # numbers take less time than arrays
        alone = [float(s) if np.ndim(s) == 0 else s.item() for s in needs.values()]
        return [names[alone.index(max(alone))]]
    table = np.array(list(_of_rows(needs, rows).values()))
    return [names[position] for position in table.argmax(axis=0).tolist()]


def also_bound_by(resource_s: Mapping[str, F64], time_s: F64, rows: int) -> list[Also]:
    """What binds each row besides :func:`bound_by`, where needs are counted as work is mapped.

    Args:
        time_s: of the rows, shape (n,).

    Returns:
        of each row, what adds to the time and is worth it, and what is nearly as busy as the first.
    """
    if not any(name in resource_s for name in IN_TURN):
        return [()] * rows
    needs = _of_rows(resource_s, rows)
    most = _of_rows(competing(needs), rows)
    overlapping = [name for name in most if name not in SERIAL]
    largest = np.max([most[name] for name in overlapping], axis=0)
    turns = np.sum([needs[name] for name in IN_TURN if name in needs], axis=0)
    time = np.maximum(np.ravel(time_s), largest)
    first = bound_by(resource_s, rows)
    also: list[dict[str, float]] = [{} for _ in range(rows)]
    leasts = {mapped: least for least, mapped in LEAST.items()}
    for name, seconds in needs.items():
        if name in LEAST:
            continue
        adds = np.where(turns >= largest, 1.0, 0.0) if name in IN_TURN else float(name in SERIAL)
        shares = seconds / time
        near = turns if name in IN_TURN else seconds
        binds = shares >= MATTERS * (1.0 if name in HIDEABLE else 2.0)
        if name not in SERIAL:
            binds &= near >= (1.0 - 2.0 * MATTERS) * largest
        for row in np.flatnonzero(binds).tolist():
            if first[row] not in (name, leasts.get(name)):
                also[row][name] = float((shares * adds)[row])
    return [tuple(sorted(limits.items(), key=lambda item: -item[1])) for limits in also]
