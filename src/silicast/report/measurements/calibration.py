"""A calibration and its accuracy as text and tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.core.calibrated import Blended, CollectiveCurve, Figures, HostConstant, InModels
from silicast.core.calibration import Calibration
from silicast.core.prediction import Z90
from silicast.measurement.calibrating.scoring import CHOSEN
from silicast.report.drawing.numbers import bytes_text, duration
from silicast.report.drawing.tables import figure, listing

SHOWN = 4
"""Physical quantities that a line lists."""


def calibration_lines(
    calibration: Calibration, before: Mapping[tuple[str, str], float]
) -> Iterator[str]:
    """A line for each family and format, host constant, collective and engine: rows, error before,
    correction, interval after.

    Args:
        before: (family, dtype) -> mean |log| error of the predictions before, where known.
    """
    for offset in calibration.offsets:
        error = before.get((offset.family, offset.dtype))
        off = "" if error is None else f"{_percent(error):.1f} % off before; "
        shift = _percent(offset.log_offset)
        width = _percent(Z90 * offset.log_sd)
        how = " and a correction by op" if offset.interpolation is not None else ""
        rows = f"{offset.rows} row{'' if offset.rows == 1 else 's'}"
        yield (
            f"{offset.family} {offset.dtype}: {rows}, {off}"
            f"offset {shift:+.1f} %{how}, 90 % interval now ±{width:.1f} %"
        )
        if offset.interpolation is not None:
            trend = sorted(offset.interpolation.trend.items(), key=lambda each: -abs(each[1]))
            words = [f"{_named(name)} {_percent(value):+.1f} %" for name, value in trend[:SHOWN]]
            yield f"  physical quantities, slower than predicted by: {', '.join(words)}"

    for constant in calibration.constants:
        yield _host_line(constant)
    for curve in calibration.collectives:
        yield _curve_line(curve)
    for model in calibration.models:
        yield _model_line(model)
    for blend in calibration.blends:
        yield _blend_line(blend)


def _blend_line(blend: Blended) -> str:
    total = sum(blend.devices.values()) + sum(blend.kernels.values())
    parts = sorted({**blend.devices, **blend.kernels}.items(), key=lambda each: -each[1])
    words = [f"{name} {100 * weight / total:.0f} %" for name, weight in parts[:SHOWN]]
    return (
        f"{blend.space}: {blend.rows} samples, {figure(blend.least_ms)} to "
        f"{figure(blend.most_ms)} ms; most like {', '.join(words)}; 90 % interval "
        f"±{_percent(Z90 * blend.log_sd):.0f} %"
    )


def _host_line(constant: HostConstant) -> str:
    whose = " ".join(part for part in (constant.engine, constant.version) if part) or "any engine"
    origin = "runs of whole models" if constant.from_runs else "measured by itself"
    name = constant.constant.removesuffix("_us").replace("_", " ")
    return (
        f"host, {whose}: {name} {figure(constant.value_us)} us "
        f"(±{_percent(Z90 * constant.log_sd):.0f} %), {_rows(constant.rows)}, {origin}"
    )


def _curve_line(curve: CollectiveCurve) -> str:
    low, high = (_percent(value) for value in (min(curve.log_ratios), max(curve.log_ratios)))
    nodes = "" if curve.nodes == 1 else f" on {curve.nodes} nodes"
    return (
        f"{curve.op} {curve.implementation} ({curve.launch}), {curve.gpus} devices{nodes}: "
        f"{_rows(curve.rows)}, {len(curve.sizes)} sizes from {bytes_text(curve.sizes[0])} to "
        f"{bytes_text(curve.sizes[-1])}; {low:+.1f} to {high:+.1f} %, 90 % interval now "
        f"±{_percent(Z90 * curve.log_sd):.1f} %"
    )


def _model_line(model: InModels) -> str:
    whose = " ".join(part for part in (model.engine, model.version) if part)
    tasks = " and ".join(model.tasks)
    changes = (
        f"kernels {_percent(model.log_ratio):+.1f} % in whole models"
        if model.log_ratio
        else "no factor on kernels improves cross-validated errors"
    )
    shortest, longest = (duration(seconds) for seconds in model.seconds)
    return (
        f"whole models, {whose}: {model.rows} times of {tasks} from {shortest} to {longest}; "
        f"{changes}, composition leaves ±{_percent(Z90 * model.log_sd):.1f} %"
    )


def accuracy_table(calibration: Calibration) -> RenderableType:
    """Errors of predictions on rows that were not fitted, before and after."""
    columns = {
        "rows not fitted": "left",
        "rows": "right",
        "mean\nAPE %": "right",
        "median\nAPE %": "right",
        "p90\nAPE %": "right",
        "bias\n%": "right",
        "inside\n90 %": "right",
        "repeats\n%": "right",
    }
    rows = []
    for part in calibration.left_out:
        rows.append([part.name, str(part.rows), *_cells(part.before), ""])
        noise = "" if part.noise is None else figure(part.noise)
        rows.append(["  calibrated", "", *_cells(part.after), noise])
    how = {part.how for part in calibration.left_out}
    plain = how - {CHOSEN}
    notes = [HOW.format(" and ".join(sorted(plain)))] if plain else []
    if CHOSEN in how:
        notes.append(OF_MODELS.format(CHOSEN))
    return Group(listing(columns, rows), *(Text(line, "dim") for line in (*notes, REPEATS)))


def not_scored(unscored: Mapping[str, int]) -> Iterator[str]:
    """Rows that the accuracy figures leave out.

    >>> list(not_scored({"that cannot be right": 2}))
    ['not scored: 2 rows that cannot be right']
    """
    for why, count in unscored.items():
        yield f"not scored: {_rows(count)} {why}"


HOW = "Rows {}: no scored row was fitted."
OF_MODELS = "Whole models, after: {}, slightly optimistic; only --holdout scores independently."
REPEATS = "Repeats: typical distance of a repeat from the median of its row."


def _cells(figures: Figures) -> list[str]:
    return [
        figure(figures.mean),
        figure(figures.median),
        figure(figures.p90),
        figure(figures.bias),
        figure(figures.coverage),
    ]


def calibration_page(calibration: Calibration) -> RenderableType:
    """A calibration file: its scope, corrections and accuracy."""
    scope = calibration.scope
    stack = ", ".join(f"{name} {version}" for name, version in sorted(scope.stack.items()))
    made = f"made {calibration.created} by version {calibration.version}"
    signed = calibration.checksum or "none: written by hand"
    head = [
        f"measured on {scope.device}" + (f", host {scope.host}" if scope.host else ""),
        f"stack: {stack}" if stack else "",
        f"from {calibration.source}" if calibration.source else "",
        f"{made}, layout {calibration.format}, checksum {signed}",
    ]
    parts: list[RenderableType] = [Text(line) for line in head if line]
    parts += [Text(""), *map(Text, calibration_lines(calibration, {}))]
    if calibration.left_out:
        parts += [Text(""), accuracy_table(calibration)]
    return Group(*parts)


def _rows(count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'}"


def _named(term: str) -> str:
    """Name of a term of the trend."""
    return {"constant": "everything", "wave": "kernels of one wave"}.get(
        term, term.partition(":")[2]
    )


def _percent(log: float) -> float:
    return 100.0 * math.expm1(log)
