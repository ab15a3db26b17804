"""One program at many values of an open size: the curve, and the largest value that fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from silicast.core.errors import SilicastError
from silicast.core.monotone import largest
from silicast.scenario.answer import Answer
from silicast.scenario.reading.limits import MAX_SIZE
from silicast.scenario.reading.numbers import series
from silicast.scenario.set_fields import with_fields
from silicast.workload.graphs.op_graph import OpenSize, read_graph_file

FIELD: Final = "--set"
EXAMPLE: Final = "for example batch=64, or batch=1,2,4..256"
MOST: Final = 64
"""Values of a curve."""


@final
@dataclass(frozen=True)
class SizeCurve:
    """A program at values of one open size.

    Attributes:
        name: of the size.
        points: (value, answer or the reason why there is none) in ascending order.
        largest: the largest value that fits into the device's memory, with its answer; None where
            none does, or nothing of the curve could be answered.
        unlimited: the largest value is the program's own limit, or that of a search, not memory's.
        refused: why the next value has no answer, where that and not memory ends the range.
    """

    name: str
    points: tuple[tuple[int, Answer | SilicastError], ...]
    largest: tuple[int, Answer] | None
    unlimited: bool
    refused: SilicastError | None = None

    @property
    def answered(self) -> list[tuple[int, Answer]]:
        """Values with an answer."""
        return [(value, item) for value, item in self.points if isinstance(item, Answer)]


def sizes_of(words: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Sizes as a user sets them, each with its values in ascending order.

    Raises:
        SilicastError: not of that form, several values of more than one size, or too many.

    >>> sizes_of(["batch=1,2,4..32", "image=288"])
    {'batch': (1, 2, 4, 8, 16, 32), 'image': (288,)}
    """
    sizes: dict[str, tuple[int, ...]] = {}
    for word in words:
        name, equals, text = (part.strip() for part in word.partition("="))
        if not equals or not name.isidentifier():
            raise _wrong(f"expected name=value, found {word[:60]!r}")
        if name in sizes:
            raise _wrong(f"{name!r} is given twice")
        values = [int(value) for value in series(text, _size, MOST, _wrong)]
        if values != sorted(set(values)):
            raise _wrong(f"{text[:60]!r}: values must grow", "from the smallest to the largest")
        if len(values) > MOST:
            raise _wrong(f"{len(values)} values, and at most {MOST} are answered", "state a ratio")
        sizes[name] = tuple(values)
    several = [name for name, values in sizes.items() if len(values) > 1]
    if len(several) > 1:
        raise _wrong(
            f"several values of {' and of '.join(several)}",
            "one size makes a curve, others one value",
        )
    return sizes


def fits(answer: Answer) -> bool:
    """Whether a program fits into the device's memory."""
    return not answer.why["memory_gb"]["excess"]


def points_of(
    scenario: Mapping[str, Any], name: str, values: Sequence[int]
) -> Iterator[tuple[int, Answer | SilicastError]]:
    """Answers one by one; an error at one value ends none of the others, but of all values all.

    Raises:
        SilicastError: no value can be answered.
    """
    errors = 0
    for value in values:
        try:
            yield value, _answer(scenario, name, value)
        except SilicastError as error:
            errors += 1
            if errors == len(values):
                raise
            yield value, error


def curve_of(
    scenario: Mapping[str, Any], name: str, points: Sequence[tuple[int, Answer | SilicastError]]
) -> SizeCurve:
    """The curve with the largest value that fits, which is looked for between and beyond points.

    Memory grows with a size; where it does not, the value found is one that fits below one that
    does not.
    """
    answered = [(value, item) for value, item in points if isinstance(item, Answer)]
    rule = _rule(scenario, name)
    answers = dict(answered)
    refused: dict[int, SilicastError] = {}

    def at(value: int) -> bool:
        if value not in answers:
            try:
                answers[value] = _answer(scenario, name, value)
            except SilicastError as error:
                refused[value] = error
                return False
        return fits(answers[value])

    if not answered:
        return SizeCurve(name, tuple(points), None, unlimited=False)
    best = _largest(at, [value for value, _ in answered], rule)
    largest = None if best is None else (best, answers[best])
    top = rule.most if rule.most is not None else MAX_SIZE
    unlimited = best is not None and best + rule.step > top
    beyond = None if best is None else refused.get(best + rule.step)
    return SizeCurve(name, tuple(points), largest, unlimited=unlimited, refused=beyond)


def _largest(at: Callable[[int], bool], values: Sequence[int], rule: OpenSize) -> int | None:
    """The largest value that fits: doubling from the last that does, then halving the distance."""
    top = rule.most if rule.most is not None else MAX_SIZE
    good = max((value for value in values if at(value)), default=None)
    if good is None:
        if rule.least >= values[0] or not at(rule.least):
            return None
        good = rule.least
    bad = next((value for value in values if value > good and not at(value)), None)
    good_steps, most = _steps(good, rule), _steps(top if bad is None else bad - 1, rule)
    steps = largest(
        lambda n: at(rule.least + (n - 1) * rule.step),
        most,
        known=good_steps,
        guess=2 * good_steps if bad is None else None,
    )
    return rule.least + (steps - 1) * rule.step


def _steps(value: int, rule: OpenSize) -> int:
    """How many sizes up to a value the program takes."""
    return (value - rule.least) // rule.step + 1


def _rule(scenario: Mapping[str, Any], name: str) -> OpenSize:
    """What an op-graph file states of a size; of other programs, any size from 1."""
    path = Path(str(scenario["workload"].get("graph", "")))
    if path.suffix.casefold() != ".json":
        return OpenSize()
    return read_graph_file(path).open_sizes.get(name, OpenSize())


def _answer(scenario: Mapping[str, Any], name: str, value: int) -> Answer:
    from silicast.scenario.decode import decode
    from silicast.scenario.run import run

    position = "workload.sizes" if "graph" in scenario["workload"] else "workload"
    return run(decode(with_fields(scenario, {f"{position}.{name}": value})))


def _size(text: str) -> float:
    try:
        value = int(text)
    except ValueError:
        raise _wrong(f"{text[:40]!r} is not a whole number") from None
    if value < 1:
        raise _wrong(f"{value} is below 1")
    return value


def _wrong(message: str, hint: str = EXAMPLE) -> SilicastError:
    return SilicastError(message, field=FIELD, hint=hint)
