"""Many scenarios, one JSON object a line, to as many answers in the same order.

Kernel cases of a window of lines are evaluated together, one vectorised call per device, family
and variant; the answers are those of single runs, bit for bit.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, final

from silicast.core.calibration import load_calibration
from silicast.core.errors import SilicastError, over_limit
from silicast.core.files import writing
from silicast.scenario.answer import (
    Answer,
    Identity,
    Problem,
    Refusal,
    Reply,
    identity_of,
    refusal,
    with_id,
)
from silicast.scenario.answer import encode as encode_reply
from silicast.scenario.answerer import answerer_for
from silicast.scenario.decode import Scenario, decode, with_calibrations
from silicast.scenario.limits import MAX_BATCH_BYTES, MAX_JSON_BYTES
from silicast.scenario.reading import parse_json
from silicast.scenario.switches import remarked

WINDOW = 4096
"""Lines whose answers are held at once."""
WINDOW_BYTES = 16 << 20
MOST_SHARED = 5
"""Ids of several cases that are named."""
ALL_ANSWERED = 0
NOT_READABLE = 2
SOME_FAILED = 3

_ID = re.compile(rb'"id"\s*:\s*(?:"([^"\\\\]{0,200})"|(\d{1,18})\s*[,}])')
_ID_WITHIN = 4096
_HEAD = 4096
"""Bytes of a file by which it is text."""

Progress = Callable[[int], None]


@final
@dataclass(frozen=True, slots=True)
class BatchResult:
    """What became of a batch.

    Attributes:
        shared_ids: ids of several cases each; the first few.
    """

    answered: int
    failed: int
    shared_ids: tuple[Identity, ...] = ()

    @property
    def cases(self) -> int:
        """All cases."""
        return self.answered + self.failed

    @property
    def exit_status(self) -> int:
        """0 if every case was answered, 3 if some failed."""
        return SOME_FAILED if self.failed else ALL_ANSWERED


def run_batch_file(
    source: Path,
    target: Path,
    progress: Progress | None = None,
    *,
    calibrations: Sequence[Path] = (),
) -> BatchResult:
    """Answers every case of a JSON Lines file into another file, which appears when all are done.

    A target that is no regular file, such as a pipe, is written as cases are answered.

    Relative paths in a case start at the folder of ``source``.

    Args:
        progress: called with the number of cases done so far, from time to time.
        calibrations: files that every case rests on, before its own.

    Raises:
        SilicastError: ``source`` cannot be read, is too large or no text, a file of
            ``calibrations`` is none, or ``target`` cannot be written or is ``source`` (exit
            status 2). A bad case raises nothing.
    """
    for path in calibrations:
        load_calibration(path)
    with _opened(source) as stream, writing(target, source=os.fstat(stream.fileno())) as out:
        return run_batch(
            stream, out, folder=source.parent, progress=progress, calibrations=calibrations
        )


def run_batch(
    lines: BinaryIO,
    out: BinaryIO,
    *,
    folder: Path | None = None,
    progress: Progress | None = None,
    calibrations: Sequence[Path] = (),
) -> BatchResult:
    """Answers every case of a stream of lines, in order; blank lines are no cases.

    A case without an id gets the number of its line, from 1. Where another one states that number
    as its id, or two state the same, the result says so.
    """
    answered = failed = 0
    seen, shared = set[Identity](), dict[Identity, None]()
    for window in _windows(_numbered(lines)):
        for reply in _replies(window, folder, calibrations):
            out.write(encode_reply(reply))
            out.write(b"\n")
            if reply.id in seen and len(shared) < MOST_SHARED:
                shared[reply.id] = None
            seen.add(reply.id)
            answered += reply.ok
            failed += not reply.ok
        if progress is not None:
            progress(answered + failed)
    return BatchResult(answered, failed, tuple(shared))


Line = tuple[int, bytes | SilicastError]


def _replies(window: list[Line], folder: Path | None, calibrations: Sequence[Path]) -> list[Reply]:
    replies: dict[int, Reply] = {}
    by_task: dict[str, list[tuple[int, Identity, Scenario]]] = {}
    for position, (number, raw) in enumerate(window):
        identity: Identity = number
        try:
            if isinstance(raw, SilicastError):
                raise raw
            identity = _stated_id(raw, number)
            tree = parse_json(raw)
            identity = identity_of(tree, number)
            tree = with_calibrations(tree, calibrations)
            scenario = decode(tree, folder=folder, checked=True)
        except SilicastError as error:
            replies[position] = refusal(error, identity)
        except (RecursionError, MemoryError, ArithmeticError, ValueError, TypeError) as error:
            replies[position] = _defect(error, identity)
        else:
            by_task.setdefault(scenario.raw.task, []).append((position, identity, scenario))
    for task, rows in by_task.items():
        found = _answers(task, [scenario for _, _, scenario in rows])
        for (position, identity, _), reply in zip(rows, found, strict=True):
            replies[position] = with_id(reply, identity)
    return [replies[position] for position in range(len(window))]


def _stated_id(raw: bytes, number: int) -> Identity:
    """The id that stands in a line, also in one that is no valid case: answers must be findable."""
    found = _ID.search(raw[:_ID_WITHIN])
    if found is None:
        return number
    quoted, digits = found.groups()
    return quoted.decode("utf-8", "replace") if quoted is not None else int(digits)


def _answers(task: str, scenarios: list[Scenario]) -> list[Reply]:
    """Replies without ids; a defect in one case costs that case only."""
    answerer = answerer_for(task)
    try:
        found = answerer.answer_many(scenarios)
        return [_reply(row) for row in remarked(answerer, scenarios, found)]
    except Exception as error:
        if len(scenarios) == 1:
            return [_defect(error, None)]
    return [_answers(task, [scenario])[0] for scenario in scenarios]


def _reply(found: Answer | SilicastError) -> Reply:
    return refusal(found) if isinstance(found, SilicastError) else found


def _defect(error: BaseException, identity: Identity) -> Refusal:
    text = " ".join(str(error).split())[:200]
    return Refusal(
        identity,
        False,
        Problem(
            "internal", f"{type(error).__name__}: {text}", "",
            "this is a defect of Silicast: please report it with the case",
        ),
    )  # fmt: skip


def _windows(lines: Iterable[Line]) -> Iterator[list[Line]]:
    window: list[Line] = []
    size = 0
    for line in lines:
        window.append(line)
        size += len(line[1]) if isinstance(line[1], bytes) else 0
        if len(window) == WINDOW or size >= WINDOW_BYTES:
            yield window
            window, size = [], 0
    if window:
        yield window


def _numbered(stream: BinaryIO) -> Iterator[Line]:
    """Lines with their numbers; of one that is too long only the number is kept."""
    number = 0
    while raw := stream.readline(MAX_JSON_BYTES + 1):
        number += 1
        if len(raw) > MAX_JSON_BYTES and not raw.endswith(b"\n"):
            while raw and not raw.endswith(b"\n"):
                raw = stream.readline(MAX_JSON_BYTES)
            yield (
                number,
                over_limit(
                    f"a line of more than {MAX_JSON_BYTES} bytes",
                    hint="long lists go into a trace file",
                ),
            )
        elif number == 1 and not raw.removeprefix(b"\xef\xbb\xbf").strip():
            continue
        elif raw.strip():
            yield number, raw.rstrip(b"\r\n") if number > 1 else raw.removeprefix(b"\xef\xbb\xbf")


def _opened(path: Path) -> BinaryIO:
    """The stream of a batch file.

    Raises:
        SilicastError: missing, a folder, no regular file, too large, or binary.
    """
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise SilicastError("is a folder, not a file", kind="io", file=str(path))
        if status.st_size > MAX_BATCH_BYTES:
            raise over_limit(
                f"holds {status.st_size} bytes; a batch has at most {MAX_BATCH_BYTES}",
                hint="split it into several files",
                file=str(path),
            )
        stream = path.open("rb")
    except OSError as error:
        raise SilicastError(
            f"cannot read: {error.strerror or error}", kind="io", file=str(path)
        ) from None
    except ValueError as error:
        raise SilicastError(f"not a file name: {error}", kind="io", file=repr(path)) from None
    head = stream.peek(_HEAD)[:_HEAD]
    cut = len(head) == _HEAD or not stat.S_ISREG(status.st_mode)
    if b"\0" in head or not _is_text(head, cut=cut):
        stream.close()
        raise SilicastError(
            "is not text", kind="io", file=str(path), hint="expected JSON Lines in UTF-8"
        )
    return stream


def _is_text(head: bytes, *, cut: bool) -> bool:
    """Whether the start of a file is UTF-8; ``cut``: its last character may be cut off."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=not cut)
    except UnicodeDecodeError:
        return False
    return True
