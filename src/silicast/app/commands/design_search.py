"""`silicast design search`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from silicast.app import status
from silicast.app.arguments import described
from silicast.app.console import progress, show, warn, write_json
from silicast.app.flags import Json

Resume = Annotated[bool, Parameter(name="--resume", negative="", show_default=False)]


@described()
def search(
    space: Path,
    /,
    *,
    output: Annotated[Path | None, Parameter(name=("--output", "-o"))] = None,
    method: str = "evolutionary",
    evaluations: int = 1000,
    seed: int = 0,
    resume: Resume = False,
    plot: Path | None = None,
    json: Json = False,
) -> int:
    """Search designs over a parameter file, and show the front of the best.

    Args:
        space: parameter file, see docs/how-to/search-designs.md.
        output: file that takes every design tried; written now and then, and when interrupted.
        method: exhaustive, random, evolutionary or bayesian.
        evaluations: designs to try, with those of a file that is resumed.
        seed: of the random numbers; equal seeds try equal designs.
        resume: go on from the output file, if it is there.
        plot: draw the front into this file (.svg, .png or .pdf).
    """
    from silicast.exploration.search import search as run
    from silicast.exploration.space_file import read_space
    from silicast.exploration.state import state_data
    from silicast.report.designs.design_search import search_card
    from silicast.scenario.designs.design_models import design_problem

    if plot is not None:
        from silicast.report.drawing.plot_file import check_plot

        check_plot(plot)
    problem = design_problem(read_space(space))
    with progress("designs", evaluations) as advance:
        state = run(
            problem, method, evaluations, seed=seed, file=output, resume=resume, advance=advance
        )
    if plot is not None:
        from silicast.report.designs.plots import draw_front

        draw_front(state, plot)
    if json:
        write_json(state_data(state))
    else:
        show(search_card(state))
    if state.interrupted:
        where = f"; {output} keeps what was tried" if output else ""
        warn(f"interrupted{where}")
        return status.INTERRUPTED
    return status.ANSWERED
