"""`silicast graph --set batch=1,2,4`: one answer for each value of an open size."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silicast.app import status
from silicast.app.console import progress, show, write_json
from silicast.app.predict import Tree, require_measured
from silicast.scenario.set_fields import with_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from silicast.core.errors import SilicastError
    from silicast.scenario.answer import Answer
    from silicast.scenario.answers.graph.size_curve import SizeCurve


def curve_shown(
    scenario: Tree, name: str, values: tuple[int, ...], *, json: bool, strict: bool
) -> int:
    """Answers every value and shows the curve with the largest value that fits.

    Raises:
        SilicastError: no value can be answered, or ``strict`` and one lies outside measured ground.
    """
    import msgspec

    from silicast.report.answers import title
    from silicast.report.tasks.size_curve import size_curve_report
    from silicast.scenario.answer import Answer
    from silicast.scenario.answers.graph.size_curve import curve_of, points_of

    points: list[tuple[int, Answer | SilicastError]] = []
    with _traced_once(scenario, name) as requested:
        with progress("sizes", len(values)) as advance:
            for point in points_of(requested, name, values):
                points.append(point)
                advance(len(points))
                if strict and isinstance(point[1], Answer):
                    require_measured(msgspec.to_builtins(point[1]))
        curve = curve_of(requested, name, points)
    if json:
        write_json(_plain(curve))
    else:
        show(size_curve_report(title(scenario), curve))
    return status.ANSWERED if len(curve.answered) == len(curve.points) else status.NOT_ANSWERED


@contextmanager
def _traced_once(scenario: Tree, name: str) -> Iterator[Tree]:
    """The scenario; a package's model is traced once with its size open, to a file for a while."""
    from silicast.workload.front_ends.packages import is_packaged, packaged_open_graph
    from silicast.workload.graphs.op_graph import write_graph_file

    work = scenario["workload"]
    program = str(work.get("graph", ""))
    if not is_packaged(program):
        yield scenario
        return
    usual = {each: work[each] for each in ("batch", "seq_len") if each in work}
    file, _ = packaged_open_graph(
        program,
        [name],
        {**usual, **work.get("sizes", {})},
        training=work.get("mode") == "training",
        dtype=scenario.get("precision", {}).get("recipe"),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder).joinpath("open.json")
        write_graph_file(file, path)
        retained = {key: each for key, each in work.items() if key not in (*usual, "sizes")}
        remaining = {key: each for key, each in scenario.items() if key != "precision"}
        yield with_fields({**remaining, "workload": retained}, {"workload.graph": str(path)})


def _plain(curve: SizeCurve) -> dict[str, Any]:
    """The curve for programs: each value with its answer or refusal."""
    import msgspec

    from silicast.scenario.answer import Answer, refusal

    points = [
        {
            curve.name: value,
            **msgspec.to_builtins(each if isinstance(each, Answer) else refusal(each, None)),
        }
        for value, each in curve.points
    ]
    largest = None if curve.largest is None else curve.largest[0]
    return {"size": curve.name, "largest_that_fits": largest, "points": points}
