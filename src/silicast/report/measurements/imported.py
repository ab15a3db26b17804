"""Summary of imported files of other tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from silicast.measurement.importers.files import Imported
from silicast.measurement.records.records import (
    CollectiveRow,
    HostRow,
    KernelRow,
    Record,
    RunRow,
    UnreadRow,
)

SHOWN = 10
"""Kernels that were not understood that are listed."""
WIDTH = 60
"""Characters of a kernel's name that are shown."""


def imported_lines(imported: Iterable[Imported]) -> Iterator[str]:
    """For each file: tool and device, rows by family, share understood, and what was not."""
    for each in imported:
        session = each.reading.session
        device = session.device or session.device_reported or "no device named"
        yield f"{each.path}: {session.source} ({each.format}), {device}"
        yield from _families(each.reading.records)
        if each.reading.total_us > 0:
            share = each.reading.understood_us / each.reading.total_us
            total = _time(each.reading.total_us)
            yield f"  understood {100 * share:.1f} % of {total}"
        yield from _unread(each.reading.rejected)
        yield from (f"  note: {note}" for note in (*session.notes, *each.reading.notes))


def is_understood(imported: Iterable[Imported]) -> bool:
    """Whether any row can be predicted."""
    kinds = (KernelRow, HostRow, CollectiveRow, RunRow)
    return any(isinstance(record, kinds) for each in imported for record in each.reading.records)


def _families(records: Iterable[Record]) -> Iterator[str]:
    counts: dict[str, list[int]] = {}
    for record in records:
        family, repeats = _family(record)
        if family:
            count = counts.setdefault(family, [0, 0])
            count[0] += 1
            count[1] += repeats
    for family, (rows, repeats) in sorted(counts.items()):
        measured = f", measured {repeats} times" if repeats > rows else ""
        yield f"  {family}: {rows} row{'' if rows == 1 else 's'}{measured}"


def _family(record: Record) -> tuple[str, int]:
    """Family of a row, and the number of its repeats."""
    match record:
        case KernelRow():
            repeats = record.spread.repeats if record.spread else 1
            return f"{record.kernel['op']} {record.kernel.get('dtype', 'bf16')}", repeats
        case CollectiveRow():
            repeats = record.spread.repeats if record.spread else 1
            return f"{record.collective['op']} of {record.collective['gpus']}", repeats
        case HostRow():
            return "host times", record.spread.repeats if record.spread else 1
        case RunRow():
            return f"{record.scenario['task']} runs", 1
        case _:
            return "", 0


def _unread(rows: tuple[UnreadRow, ...]) -> Iterator[str]:
    if not rows:
        return
    shown = f", the longest {SHOWN}" if len(rows) > SHOWN else ""
    yield f"  not understood: {len(rows)} name{'' if len(rows) == 1 else 's'}{shown}"
    for row in rows[:SHOWN]:
        name = row.name if len(row.name) <= WIDTH else f"{row.name[: WIDTH - 3]}..."
        yield f"    {_time(row.total_us)}, {row.count} x {name}: {row.reason}"


def _time(us: float) -> str:
    """A time in a suitable unit.

    >>> _time(12_345.0)
    '12.3 ms'
    """
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{us / size:.3g} {unit}"
    return f"{us:.3g} us"
