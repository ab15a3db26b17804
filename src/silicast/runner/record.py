"""What a file of answers was made of, so that a batch that was interrupted can go on.

Beside a file of answers that is not complete stands its record, ``FILE.resume``: a line of what
made the answers (version, code, numbers, calibrations), then, before each piece's answers, how many
cases it has and the hash of their lines. It is removed when the last answer is written. Where it is
missing, the answers themselves are looked at: each has the id of its case, and some are made anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, final

import msgspec

import silicast
from silicast.core.decode import Strict, decode_json
from silicast.core.errors import SilicastError
from silicast.core.files import read_bounded
from silicast.core.growing import GrowingFile
from silicast.core.hashing import files_hash
from silicast.runner.lines import CaseLines, Line
from silicast.runner.replies import replies, stated_id
from silicast.scenario.answer import Identity
from silicast.scenario.reading.limits import MAX_BATCH_BYTES
from silicast.scenario.run import package_hash

SUFFIX = ".resume"
KIND, FORMAT = "silicast batch", 1
MADE_ANEW = 8
"""Answers that are compared where there is no record."""
PAGE = "docs/how-to/run-a-batch.md"
ANEW = "name another file with -o, or remove this one to answer all cases anew"


@final
class Maker(Strict, frozen=True):
    """What made the answers.

    Attributes:
        package: hash of code and shipped numbers; calibrations: of the files for every case.
    """

    kind: str
    format: int
    version: str
    package: str
    calibrations: str

    @staticmethod
    def now(calibrations: Sequence[Path]) -> Maker:
        """What would make answers here and now."""
        return Maker(KIND, FORMAT, silicast.__version__, package_hash(), files_hash(calibrations))


@final
class AnsweredGroup(Strict, frozen=True):
    """Cases that were answered together.

    Attributes:
        first: cases before them; a later piece goes before all from there on.
    """

    first: int
    cases: int
    hash: str

    @staticmethod
    def from_lines(first: int, lines: Iterable[Line]) -> AnsweredGroup:
        """Of the cases as they stand in the file."""
        digest, count = hashlib.blake2b(digest_size=16), 0
        for number, raw in lines:
            digest.update(b"%d\0" % number)
            digest.update(b"\0" if raw is None else raw)
            digest.update(b"\n")
            count += 1
        return AnsweredGroup(first, count, digest.hexdigest())


@final
class RecordedAnswer(msgspec.Struct, frozen=True):
    """What of an answer a batch looks at again."""

    id: Identity
    ok: bool


def record_of(target: Path) -> Path:
    """Where the record of a file of answers stands."""
    return target.with_name(target.name + SUFFIX)


def started(record: GrowingFile, calibrations: Sequence[Path]) -> None:
    """Begins a record."""
    record.cut(0)
    record.add(_line(Maker.now(calibrations)))


def noted(record: GrowingFile, first: int, lines: Sequence[Line]) -> None:
    """Notes a piece, before its answers are written; ``first``: cases before it."""
    record.add(_line(AnsweredGroup.from_lines(first, lines)))


def kept_answers(stream: BinaryIO, target: Path) -> Iterator[RecordedAnswer]:
    """The whole lines of a file of answers.

    Raises:
        SilicastError: a line is no answer.
    """
    for number, line in enumerate(stream, 1):
        if not line.endswith(b"\n"):
            return
        try:
            yield decode_json(line, RecordedAnswer)
        except SilicastError:
            raise _refused(target, f"line {number} is no answer of `silicast batch`") from None


def skip_answered(
    lines: CaseLines,
    retained: Sequence[RecordedAnswer],
    target: Path,
    record: GrowingFile,
    calibrations: Sequence[Path],
) -> bool:
    """Takes the cases off that a file has answers to, once they are known to be the same.

    Returns:
        Whether there is a record.

    Raises:
        SilicastError: the record is of another version, of other calibrations or of other cases.
    """
    maker, pieces = _read(record_of(target))
    if maker is None:
        return False
    _check_maker(maker, Maker.now(calibrations), target)
    answered = 0
    for piece in pieces:
        if answered == len(retained):
            return True
        cases = _taken(lines, piece.cases)
        if piece.first != answered or AnsweredGroup.from_lines(piece.first, cases) != piece:
            where = f"within lines {cases[0][0]} to {cases[-1][0]}" if cases else "at the end"
            raise _refused(target, f"answers other cases than these: they differ {where}")
        remaining = cases[len(retained) - answered :]
        if remaining:  # killed within a piece
            case = cases[: -len(remaining)]
            noted(record, answered, case)
            lines.waiting.extendleft(reversed(remaining))
            return True
        answered += len(cases)
    if answered < len(retained):
        raise _refused(
            target, f"holds {len(retained)} answers, of which its record knows {answered}"
        )
    return True


def _check_maker(there: Maker, here: Maker, target: Path) -> None:
    for name, field in (
        ("format", "format of the record"),
        ("version", "version of Silicast"),
        ("package", "code or numbers of Silicast"),
        ("calibrations", "calibrations"),
    ):
        was, now = getattr(there, name), getattr(here, name)
        if was != now:
            raise _refused(target, f"was begun with another {field}: {was} there, {now} now")


def skip_unrecorded(
    lines: CaseLines,
    answers: Sequence[RecordedAnswer],
    stream: BinaryIO,
    target: Path,
    folder: Path | None,
    calibrations: Sequence[Path],
) -> list[Line]:
    """The same without a record: by ids, and by making some of the answers anew.

    Returns:
        The cases that were answered.

    Raises:
        SilicastError: there are fewer cases than answers, an id differs, or an answer does.
    """
    cases = _taken(lines, len(answers))
    if len(cases) < len(answers):
        raise _refused(target, f"holds {len(answers)} answers, but there are {len(cases)} cases")
    for index, (case, answer) in enumerate(zip(cases, answers, strict=True), 1):
        if answer.id not in (stated_id(case), case[0]):
            raise _refused(
                target, f"line {index} answers {answer.id!r}, but that case is {stated_id(case)!r}"
            )
    step = max(1, len(answers) // MADE_ANEW)
    for index, line in enumerate(stream):
        if index >= len(answers):
            break
        if index % step == 0 or index == len(answers) - 1:
            (anew,) = replies([cases[index]], folder, calibrations).rows
            if anew.line != line:
                raise _refused(
                    target,
                    f"line {index + 1} is not what this version ({silicast.__version__}) answers",
                )
    return cases


def _taken(lines: CaseLines, count: int) -> list[Line]:
    """The next cases, fewer where there are no more."""
    taken: list[Line] = []
    while len(taken) < count:
        if lines.waiting:
            taken.append(lines.waiting.popleft())
        elif lines.ended:
            break
        else:
            lines.read()
    return taken


def _read(path: Path) -> tuple[Maker | None, list[AnsweredGroup]]:
    """A record; None where there is none. A last line that was cut off is none.

    Raises:
        SilicastError: it is no record.
    """
    if not path.exists():
        return None, []
    content = read_bounded(path, MAX_BATCH_BYTES, "a record of a batch")
    first, *others = content.split(b"\n")[:-1] or [b""]
    if not first:
        return None, []
    try:
        maker = decode_json(first, Maker, page=PAGE, hint=ANEW, line=1)
        pieces = [
            decode_json(line, AnsweredGroup, page=PAGE, hint=ANEW, line=number)
            for number, line in enumerate(others, 2)
        ]
    except SilicastError as error:
        message = f"is no record of a batch: {error.message}"
        raise SilicastError(
            message, kind="io", field=error.field, hint=error.hint, file=str(path)
        ) from None
    if maker.kind != KIND:
        raise _refused(path, f"is of {maker.kind[:40]!r}, no record of a batch")
    return maker, _latest(pieces)


def _latest(noted_pieces: Iterable[AnsweredGroup]) -> list[AnsweredGroup]:
    """Pieces without those that a later one replaces."""
    pieces: list[AnsweredGroup] = []
    for piece in noted_pieces:
        while pieces and pieces[-1].first >= piece.first:
            pieces.pop()
        pieces.append(piece)
    return pieces


def _line(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def _refused(path: Path, message: str) -> SilicastError:
    return SilicastError(message, kind="io", file=str(path), hint=ANEW)
