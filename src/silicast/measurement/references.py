"""Times of a session's reference kernel: one row, however often it ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from silicast.measurement.records import KernelRow
from silicast.measurement.session import REFERENCE

if TYPE_CHECKING:
    from silicast.measurement.given import Numbered


def one_a_session(
    rows: Sequence[Numbered[KernelRow]],
) -> tuple[list[Numbered[KernelRow]], int]:
    """Rows with one of each session's reference kernel, its first with the median of their times;
    and how many were merged into others.

    A session times it every few seconds, so that its other kernels are each said once.
    """
    times: dict[str, list[float]] = {}
    for each in rows:
        if each.row.name == REFERENCE:
            times.setdefault(each.row.session, []).append(each.row.latency_us)
    kept: list[Numbered[KernelRow]] = []
    done: set[str] = set()
    for each in rows:
        session = each.row.session
        if each.row.name != REFERENCE:
            kept.append(each)
        elif session not in done:
            done.add(session)
            row = msgspec.structs.replace(each.row, latency_us=median(times[session]))
            kept.append(replace(each, row=row))
    return kept, len(rows) - len(kept)
