"""`silicast sensitivity`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from silicast.app import status
from silicast.app.arguments import described
from silicast.app.console import show, warn, write_json
from silicast.app.flags import Calibrations, Json
from silicast.app.predict import read_scenario, with_calibrations


@described()
def sensitivity(
    scenario: Path,
    /,
    *,
    set_: Annotated[list[str], Parameter(name="--set", negative="")],
    metric: str | None = None,
    plot: Path | None = None,
    calibration: Calibrations = None,
    json: Json = False,
) -> int:
    """Say how much an answer moves with single numbers of the scenario or of its device.

    Args:
        scenario: a TOML or JSON file.
        set_: a number and its change: limits.power_w=-10%, memory.dram.bandwidth_gb_per_s=20%
            (without a sign, both ways); give it once for each.
        metric: that is looked at; left out, the first of the answer.
        plot: a file for the drawing of the effects (tornado): .svg, .png, .pdf or .html.
    """
    from silicast.report.tasks.sensitivity import (
        chosen_metric,
        sensitivity_data,
        sensitivity_report,
    )
    from silicast.scenario.sensitivity import NumberChange, sensitivities

    if plot is not None:
        from silicast.report.drawing.plot_file import check_plot

        check_plot(plot)
    changes = [NumberChange.parse(text) for text in set_]
    tree = with_calibrations(read_scenario(scenario), calibration)
    reply, rows = sensitivities(tree, changes, scenario.parent)
    name = chosen_metric(reply, metric)
    data = sensitivity_data(reply, rows, name)
    if plot is not None:
        from silicast.report.drawing.sweep_plots import draw_tornado

        draw_tornado(data, name, plot)
        warn(f"{plot}: the effects")
    if json:
        write_json(data)
    else:
        show(sensitivity_report(reply, data, name))
    return status.ANSWERED
