"""A program at many values of an open size: a table, and the largest value that fits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.core.errors import SilicastError
from silicast.report.drawing.numbers import Shown, rounded
from silicast.report.drawing.tables import listing

if TYPE_CHECKING:
    from silicast.scenario.answer import Answer
    from silicast.scenario.answers.graph.size_curve import SizeCurve

BATCH: Final = "batch"
"""The size whose curve has a rate: so many are done a second."""
USED: Final = ("weights", "gradients", "optimizer", "activations", "fragmentation", "framework")


def size_curve_report(head: str, curve: SizeCurve) -> RenderableType:
    """Table and what it tells."""
    columns = {curve.name: "right", "e2e": "right", "90 % interval": "right", "bound": "right"}
    if curve.name == BATCH:
        columns["per second"] = "right"
    columns |= {"memory": "right", "": "left"}
    rows = [_row(curve, value, answer) for value, answer in curve.answered]
    parts: list[RenderableType] = [Text(head, "bold"), Text(""), listing(columns, rows), Text("")]
    parts += [Text(line) for line in size_curve_lines(curve)]
    warnings = dict.fromkeys(
        line
        for _, answer in curve.answered
        for line in answer.warnings
        if "does not fit" not in line
    )
    return Group(*parts, *(Text(f"warning: {line}", "yellow") for line in warnings))


def memory_gb(answer: Answer) -> float:
    """All that a pass takes of the device's memory."""
    held = answer.why["memory_gb"]
    return sum(float(held.get(name, 0.0)) for name in USED)


def _row(curve: SizeCurve, value: int, answer: Answer) -> list[str]:
    belief = answer.metrics["e2e_ms"]
    shown = Shown("e2e_ms", belief)
    bound = answer.bound["e2e_ms"]
    row = [f"{value:,}", shown.value, shown.interval, Shown("e2e_ms", bound).value]
    if curve.name == BATCH:
        row.append(rounded(value / belief.estimate * 1e3))
    fits = not answer.why["memory_gb"]["excess"]
    return [*row, f"{rounded(memory_gb(answer))} GB", "" if fits else "does not fit"]


def size_curve_lines(curve: SizeCurve) -> Iterator[str]:
    """The largest value that fits, and what could not be answered."""
    if curve.largest is not None:
        value, answer = curve.largest
        usable = answer.why["memory_gb"]["usable"]
        yield (
            f"largest {curve.name} that fits into {rounded(usable)} GB: {value:,} "
            f"({rounded(memory_gb(answer))} GB)"
            + (", where the program's own range ends" if curve.unlimited else "")
        )
        if curve.refused is not None:
            yield f"not memory ends there; the next one is refused: {curve.refused}"
    elif curve.answered:
        usable = curve.answered[0][1].why["memory_gb"]["usable"]
        yield f"no {curve.name} fits into {rounded(usable)} GB"
    for value, item in curve.points:
        if isinstance(item, SilicastError):
            yield f"{curve.name} = {value:,}: {item}"
