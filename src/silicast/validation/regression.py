"""Predictions of now against answers of before: what an engine's own tests run at each change."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final
from xml.etree import ElementTree

import msgspec

from silicast.core.decode import decode_json
from silicast.core.errors import SilicastError
from silicast.core.files import read_bounded, write_atomically
from silicast.core.metrics import metric_of
from silicast.core.plain_data import check_keys, read_scenario_file
from silicast.runner.batch import run_batch
from silicast.runner.lines import opened
from silicast.scenario.answer import Answer, Identity, Refusal, Reply, identity_of, with_id
from silicast.scenario.reading.limits import MAX_BATCH_BYTES
from silicast.scenario.run import reply_to

LINES = (".jsonl", ".ndjson")
GONE = "is in the baseline and in none of the scenarios"
ANEW = "`silicast batch SCENARIOS -o BASELINE` writes it"


class _ReplyKind(msgspec.Struct, frozen=True):
    """What tells an answer from a refusal."""

    ok: bool


@final
@dataclass(frozen=True)
class CaseCheck:
    """One case beside its baseline.

    Attributes:
        worst: metric that became worse by most; "" = none is compared.
        regress: by how much, as a share; below 0 = better.
        failure: why it fails; "" = it does not.
    """

    id: Identity
    worst: str
    regress: float
    failure: str


def check_cases(files: Sequence[Path], baseline: Path, max_regress: float) -> list[CaseCheck]:
    """Predicts all cases and compares them with earlier answers.

    Args:
        files: JSON Lines of scenarios, or single scenarios, whose ids are else their names.
        baseline: answers, as ``silicast batch`` writes them.
        max_regress: share by which a metric may become worse.

    Returns:
        A check for each case, then one for each answered case of the baseline that no file has.

    Raises:
        SilicastError: a file cannot be read, two cases or answers have one id, or there is no case.
    """
    before = _by_id(baseline, _answers_in(baseline))
    checks, seen = list[CaseCheck](), set[Identity]()
    for file in files:
        for reply in _replies(file):
            if reply.id in seen:
                raise SilicastError(f"the id {reply.id!r} stands twice", file=str(file), field="id")
            seen.add(reply.id)
            checks.append(checked_case(reply, before.get(reply.id), max_regress))
    if not checks:
        raise SilicastError(
            "no scenario to check", field="SCENARIOS", hint="give the files that the baseline is of"
        )
    gone = [each for each in before.values() if each.ok and each.id not in seen]
    return [*checks, *(CaseCheck(each.id, "", 0.0, GONE) for each in gone)]


def checked_case(after: Reply, before: Reply | None, max_regress: float) -> CaseCheck:
    """One answer against the one before."""
    if before is None:
        return CaseCheck(after.id, "", 0.0, f"has no answer in the baseline: {ANEW}")
    if isinstance(after, Refusal):
        was_refused = isinstance(before, Refusal)
        error = f"is no longer answered: {after.error.field}: {after.error.message}"
        return CaseCheck(after.id, "", 0.0, "" if was_refused else error)
    if isinstance(before, Refusal):
        return CaseCheck(after.id, "", 0.0, "")
    lost = [name for name in before.metrics if name not in after.metrics]
    if lost:
        return CaseCheck(after.id, lost[0], 0.0, f"{lost[0]} is no longer predicted")
    changes = dict(_changes(before, after))
    worst = max(changes, key=lambda name: changes[name], default="")
    regress = changes.get(worst, 0.0)
    if regress <= max_regress:
        return CaseCheck(after.id, worst, regress, "")
    old, new = before.metrics[worst].estimate, after.metrics[worst].estimate
    share = f"{100.0 * regress:.1f} % " if math.isfinite(regress) else ""
    failure = f"{worst} is {share}worse: {old:.5g} before, {new:.5g} now"
    return CaseCheck(after.id, worst, regress, failure)


def _changes(before: Answer, after: Answer) -> Iterator[tuple[str, float]]:
    """By how much each metric became worse: times and costs by growing, rates by falling."""
    for name, old in before.metrics.items():
        metric = metric_of(name)
        sign = metric.per_time if metric is not None else 0
        new = after.metrics[name].estimate
        if metric is not None and metric.kind == "yield":
            sign = -1
        if metric is not None and metric.kind == "size":
            sign = 1
        if sign:
            less, more = (old.estimate, new) if sign > 0 else (new, old.estimate)
            yield name, _growth(less, more)


def _growth(less: float, more: float) -> float:
    """By what share one is more than another; of nothing, any growth is beyond every share.

    >>> _growth(2.0, 3.0), _growth(0.0, 0.0), _growth(0.0, 1.0)
    (0.5, 0.0, inf)
    """
    if less > 0.0:
        return more / less - 1.0
    return math.inf if more > less else 0.0


def _replies(file: Path) -> Iterator[Reply]:
    """Answers to the cases of a file."""
    if file.suffix.casefold() not in LINES:
        tree = read_scenario_file(file)
        reply = reply_to(tree, folder=file.parent)
        yield with_id(reply, identity_of(tree, file.stem))
        return
    out = io.BytesIO()
    with opened(file) as stream:
        run_batch(stream, out, folder=file.parent)
    yield from _decoded(out.getvalue(), "")


def _answers_in(file: Path) -> Iterator[Reply]:
    yield from _decoded(read_bounded(file, MAX_BATCH_BYTES, "a file of answers", ANEW), str(file))


def _decoded(content: bytes, file: str) -> Iterator[Reply]:
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.strip():
            check_keys(line, f"{file}: line {number}" if file else "")
            is_answer = decode_json(line, _ReplyKind, file=file, hint=ANEW, line=number).ok
            kind: type[Answer] | type[Refusal] = Answer if is_answer else Refusal
            yield decode_json(line, kind, file=file, hint=ANEW, line=number)


def _by_id(file: Path, replies: Iterator[Reply]) -> Mapping[Identity, Reply]:
    table: dict[Identity, Reply] = {}
    for reply in replies:
        if reply.id in table:
            raise SilicastError(f"the id {reply.id!r} stands twice", file=str(file), field="id")
        table[reply.id] = reply
    return table


def write_junit(path: Path, checks: Sequence[CaseCheck]) -> None:
    """Writes the checks as a test report in JUnit's XML.

    Raises:
        SilicastError: it cannot be written.
    """
    failures = sum(bool(check.failure) for check in checks)
    suite = ElementTree.Element(
        "testsuite", name="silicast check", tests=str(len(checks)), failures=str(failures)
    )
    for check in checks:
        case = ElementTree.SubElement(
            suite, "testcase", classname="silicast", name=_printable(str(check.id))
        )
        if check.failure:
            ElementTree.SubElement(case, "failure", message=_printable(check.failure))
    write_atomically(path, ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))


def _printable(text: str) -> str:
    """Text without the characters that XML cannot hold."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
