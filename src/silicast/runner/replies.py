"""Some lines of a batch to their answers: what every process of a batch does.

Cases of one task are evaluated together; their answers are those of single runs, bit for bit,
however lines are divided.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from silicast.core.errors import SilicastError
from silicast.core.plain_data import parse_json
from silicast.runner.lines import Line, too_long
from silicast.scenario.answer import (
    Answer,
    Identity,
    Problem,
    Refusal,
    Reply,
    encode,
    identity_of,
    refusal,
    with_id,
)
from silicast.scenario.decode import Scenario, decode, with_calibrations
from silicast.scenario.reading.inline_only import refuse_paths
from silicast.scenario.road import refuse_coming
from silicast.scenario.run import run_many

_ID = re.compile(rb'"id"\s*:\s*(?:"([^"\\\\]{0,200})"|(\d{1,18})\s*[,}])')
_ID_WITHIN = 4096
NO_MEMORY = "needs more memory than the process that answers may have"


@final
@dataclass(frozen=True, slots=True)
class Replied:
    """An answer as it goes into a file.

    Attributes:
        line: JSON with its end.
        is_lost: no answer was got: a refusal that another machine or limit may not give.
    """

    id: Identity
    ok: bool
    line: bytes
    is_lost: bool = False

    @staticmethod
    def from_reply(reply: Reply, *, is_lost: bool = False) -> Replied:
        """An answer or refusal; one for want of memory is lost."""
        is_lost |= isinstance(reply, Refusal) and reply.error.message == NO_MEMORY
        return Replied(reply.id, reply.ok, encode(reply) + b"\n", is_lost)


@final
@dataclass(frozen=True, slots=True)
class Seconds:
    """How long cases of one task took."""

    cases: int
    seconds: float


@final
@dataclass(frozen=True, slots=True)
class Replies:
    """Answers in the order of their lines, and how long each task took."""

    rows: list[Replied]
    spent: dict[str, Seconds] = field(default_factory=dict)


def replies(
    lines: Sequence[Line],
    folder: Path | None = None,
    calibrations: Sequence[Path] = (),
    *,
    inline_only: bool = False,
) -> Replies:
    """Answers some lines.

    Args:
        folder: where relative paths in a case start.
        calibrations: files that every case rests on, before its own.
        inline_only: a case in which something names a file is refused.
    """
    table: dict[int, Replied] = {}
    spent: dict[str, Seconds] = {}
    by_task: dict[str, list[tuple[int, Identity, Scenario]]] = {}
    for position, line in enumerate(lines):
        identity, scenario = _decoded(line, folder, calibrations, inline_only=inline_only)
        if isinstance(scenario, Scenario):
            by_task.setdefault(scenario.raw.task, []).append((position, identity, scenario))
        else:
            table[position] = Replied.from_reply(scenario)
    for task, rows in by_task.items():
        start = time.perf_counter()
        answers = _answers(task, [scenario for _, _, scenario in rows])
        for (position, identity, _), reply in zip(rows, answers, strict=True):
            table[position] = Replied.from_reply(with_id(reply, identity))
        spent[task] = Seconds(len(rows), time.perf_counter() - start)
    return Replies([table[position] for position in range(len(lines))], spent)


def defect(error: BaseException, identity: Identity) -> Refusal:
    """The refusal of a case in which something of Silicast broke."""
    if isinstance(error, MemoryError):
        return too_costly(NO_MEMORY, identity)
    return broken(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}", identity)


def broken(what: str, identity: Identity) -> Refusal:
    """The same, of what broke in words."""
    hint = "this is a defect of Silicast: please report it with the case"
    return Refusal(identity, False, Problem("internal", what, "", hint))


def too_costly(what: str, identity: Identity) -> Refusal:
    """The refusal of a case that needs more than it may."""
    hint = "allow a point more time or memory, or leave it out of the space"
    return Refusal(identity, False, Problem("limit", what, "", hint))


def stated_id(line: Line) -> Identity:
    """The id that stands in a line, also in one that is no valid case: answers must be findable.

    >>> stated_id((7, b'{"id": "a", "task": nonsense')), stated_id((7, b"{"))
    ('a', 7)
    """
    number, raw = line
    value = _ID.search(raw[:_ID_WITHIN]) if raw is not None else None
    if value is None:
        return number
    quoted, digits = value.groups()
    return quoted.decode("utf-8", "replace") if quoted is not None else int(digits)


def _decoded(
    line: Line, folder: Path | None, calibrations: Sequence[Path], *, inline_only: bool
) -> tuple[Identity, Scenario | Refusal]:
    number, raw = line
    identity = stated_id(line)
    try:
        if raw is None:
            raise too_long()
        tree = _parsed(raw)
        identity = identity_of(tree, number)
        if inline_only:
            refuse_paths(tree)
        refuse_coming(tree)
        tree = with_calibrations(tree, calibrations)
        return identity, decode(tree, folder=folder, checked=True)
    except SilicastError as error:
        return identity, refusal(error, identity)
    except (RecursionError, MemoryError, ArithmeticError, ValueError, TypeError) as error:
        return identity, defect(error, identity)


def _parsed(raw: bytes) -> Any:
    """The object of a line."""
    try:
        return parse_json(raw)
    except SilicastError as error:
        hint = error.hint or "one scenario a line, as a JSON object; `silicast run` reads TOML"
        raise SilicastError(error.message, kind=error.kind, field=error.field, hint=hint) from None


def _answers(task: str, scenarios: list[Scenario]) -> list[Reply]:
    """Replies without ids; a defect in one case costs that case only."""
    try:
        return [_reply(row) for row in run_many(task, scenarios)]
    except Exception as error:
        if len(scenarios) == 1:
            return [defect(error, None)]
    return [_answers(task, [scenario])[0] for scenario in scenarios]


def _reply(answer: Answer | SilicastError) -> Reply:
    return refusal(answer) if isinstance(answer, SilicastError) else answer
