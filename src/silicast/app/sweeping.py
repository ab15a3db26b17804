"""`silicast serve --sweep`: one answer for each load."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from silicast.app import status
from silicast.app.console import progress, show, warn, write_json
from silicast.app.predict import Tree, with_calibrations
from silicast.app.serve_files import OutputFlags
from silicast.app.serve_flags import ServeFlags, serving_scenario
from silicast.core.errors import SilicastError, unsupported

if TYPE_CHECKING:
    from silicast.scenario.answer import Answer
    from silicast.scenario.answers.serving.load_sweep import LoadCurve, SweptLoads


def swept(
    serve_flags: ServeFlags,
    degrees: dict[str, int],
    outputs: OutputFlags,
    sweep: str | None,
    plot: Path | None,
    html: Path | None = None,
    *,
    calibration: list[Path] | None,
    strict: bool,
    json: bool,
) -> int:
    """Answers every load and shows the curve; an interruption leaves what was finished.

    Raises:
        SilicastError: a flag that does not go with a sweep, or no load can be answered.
    """
    from silicast.report.drawing.plot_file import check_plot
    from silicast.report.tasks.load_curve import curve_report, write_plot
    from silicast.scenario.answers.serving.load_sweep import EXAMPLE, SweptLoads, spanning

    if sweep is None:
        raise SilicastError("draws the curve of --sweep", field="--plot", hint=EXAMPLE)
    if outputs.asked:
        raise SilicastError(
            "files of requests, steps, traces and metrics are of one load",
            field="--sweep",
            hint="leave --sweep out, or the files",
        )
    if plot is not None:
        check_plot(plot)
    parsed = SweptLoads.parse(sweep)
    first = parsed.values[0] if parsed.values else 1.0
    scenario = serving_scenario(serve_flags, degrees, parsed.arrival(first))
    scenario = with_calibrations(scenario, calibration)
    loads = spanning(scenario, parsed)
    curve, whole = _curve(scenario, loads, strict=strict)
    head = _title(scenario)
    if plot is not None:
        write_plot(plot, curve, head)
        warn(f"{plot}: the curve")
    if html is not None:
        from silicast.report.drawing.page import curve_page, write_page

        write_page(html, curve_page(head, curve))
        warn(f"{html}: the report")
    if json:
        write_json(_plain(curve))
    else:
        show(curve_report(head, curve))
    if not whole:
        warn(f"interrupted: {len(curve.points)} of {len(loads.values)} loads were answered")
        return status.INTERRUPTED
    return status.ANSWERED if len(curve.answered) == len(curve.points) else status.NOT_ANSWERED


def _curve(scenario: Tree, loads: SweptLoads, *, strict: bool) -> tuple[LoadCurve, bool]:
    """The answers, and whether all loads were tried.

    Raises:
        KeyboardInterrupt: it was interrupted before the first answer.
    """
    from silicast.scenario.answer import Answer
    from silicast.scenario.answers.serving.load_sweep import LoadCurve, points_of

    points: list[tuple[float, Answer | SilicastError]] = []
    try:
        with progress("loads", len(loads.values)) as advance:
            for point in points_of(scenario, loads):
                points.append(point)
                advance(len(points))
                if strict and isinstance(point[1], Answer):
                    _require_measured(point[1])
    except KeyboardInterrupt:
        if not points:
            raise
        return LoadCurve(loads.what, tuple(points)), False
    return LoadCurve(loads.what, tuple(points)), True


def _require_measured(answer: Answer) -> None:
    if answer.domain != "in":
        reasons = "; ".join(answer.warnings) or "no measurements near it"
        raise unsupported(
            f"outside measured ground: {reasons}",
            "device",
            "without --strict it is answered with wider intervals",
        )


def _title(scenario: Tree) -> str:
    """What was asked, without a load."""
    from silicast.report.answers import title

    workload = {n: v for n, v in scenario["workload"].items() if n != "arrival"}
    return title({**scenario, "workload": workload})


def _plain(curve: LoadCurve) -> dict[str, Any]:
    """The curve for programs: each load with its answer or refusal."""
    import msgspec

    from silicast.scenario.answer import refusal

    points = [
        {
            curve.what: load,
            "answer": msgspec.to_builtins(refusal(e) if isinstance(e, SilicastError) else e),
        }
        for load, e in curve.points
    ]
    at = {"knee": curve.knee, "saturated": curve.saturated}
    loads = [load for load, _ in curve.answered]
    positions = {name: None if i is None else loads[i] for name, i in at.items()}
    return {"ok": True, "sweep": curve.what, **positions, "points": points}
