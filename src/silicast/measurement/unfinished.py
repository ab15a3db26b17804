"""What of a session is still missing from a file: what a kill cut off of an import."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from silicast.measurement.records import Record, Session
from silicast.measurement.stored import Measurements


def missing(before: Measurements, session: Session, rows: Sequence[Record]) -> list[Record] | None:
    """What to append so that a file holds a session and all of its rows.

    A session that stands there with none or only the first of these rows is one whose writing was
    killed; the rest of its rows is missing.

    Args:
        before: what the file holds; rows: all of the session, as reading them back gives them.

    Returns:
        None if the file holds the session with all of its rows, or with other ones.
    """
    known = [other for other in before.sessions if other.id == session.id]
    if not known:
        return [session, *rows]
    if known != [session] or before.rows_of(session.id) >= len(rows):
        return None
    held = _rows(before, session.id)
    counts: Counter[type] = Counter()
    rest: list[Record] = []
    for row in rows:
        kind, at = type(row), counts[type(row)]
        counts[kind] += 1
        there = held.get(kind, [])
        if at >= len(there):
            rest.append(row)
        elif rest or there[at] != row:
            return None
    return rest


def _rows(before: Measurements, name: str) -> dict[type, list[Record]]:
    found: dict[type, list[Record]] = {}
    for kind in (
        before.kernels, before.hosts, before.collectives, before.runs, before.failed, before.unread,
    ):  # fmt: skip
        for row in kind:
            if row.session == name:
                found.setdefault(type(row), []).append(row)
    return found
