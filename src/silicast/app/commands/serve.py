"""`silicast serve`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from silicast.app import status
from silicast.app.arguments import described
from silicast.app.console import show, warn, watched
from silicast.app.flags import Calibrations, Degrees, Json, Strict
from silicast.app.html_file import HtmlFile, write_html
from silicast.app.predict import Tree, predicted, print_reply, screen_of, with_calibrations
from silicast.app.price_flag import PRICED, price_of, with_price_line
from silicast.app.serve_files import OutputFlags, check_outputs, write_outputs
from silicast.app.serve_flags import ServeFlags, serving_scenario

if TYPE_CHECKING:
    from silicast.scenario.answers.serving.served import Served


@described()
def serve(
    serve_flags: ServeFlags,
    degrees: Degrees | None = None,
    outputs: OutputFlags | None = None,
    *,
    sweep: str | None = None,
    plot: Path | None = None,
    html: HtmlFile = None,
    calibration: Calibrations = None,
    strict: Strict = False,
    json: Json = False,
) -> int:
    """Predict latency and throughput of a model under load: TTFT, TPOT, ITL, end to end.

    Args:
        sweep: loads to try in place of one, such as rate=1..20 or concurrency=1,2,4..256; rate or
            concurrency alone tries loads up to what is answered.
        plot: a file (.svg, .png, .pdf) to draw the curve of a sweep to.
    """
    wanted, plan = outputs or OutputFlags(), (degrees or Degrees()).given
    if sweep is not None or plot is not None:
        from silicast.app.sweeping import swept

        return swept(
            serve_flags,
            plan,
            wanted,
            sweep,
            plot,
            html,
            calibration=calibration,
            strict=strict,
            json=json,
        )
    scenario = with_calibrations(serving_scenario(serve_flags, plan), calibration)

    from silicast.scenario.answerer import ProgressWatch

    simulated: list[Served] = []
    try:
        with ExitStack() as drawn:

            def begins(served: Served) -> None:
                check_outputs(wanted, served.deployment.engine.name)
                simulated.append(served)
                bar = watched("requests", len(served.requests), lambda: served.answered)
                drawn.enter_context(bar)

            reply = predicted(scenario, watch=ProgressWatch(simulated=begins))
    except KeyboardInterrupt:
        if not simulated:
            raise
        return _interrupted(scenario, simulated[0], wanted, json=json)
    if reply["ok"]:
        write_outputs(simulated[0], wanted)
    price = price_of(serve_flags.price, serve_flags.price_where, serve_flags.device)
    write_html(scenario, reply, html, () if price is None else [PRICED.format(price.said())])
    return print_reply(
        reply,
        lambda answer: with_price_line(screen_of(scenario)(answer), price),
        json=json,
        strict=strict,
    )


def _interrupted(scenario: Tree, served: Served, wanted: OutputFlags, *, json: bool) -> int:
    """Leaves what was finished when the user ends a simulation.

    Raises:
        KeyboardInterrupt: nothing was.
    """
    count = served.finished
    if not count:
        raise KeyboardInterrupt
    write_outputs(served, wanted)
    if not json:
        from silicast.report.answers import title
        from silicast.report.tasks.serving import partial_report

        show(partial_report(title(scenario), served.metrics_of(served.records)))
    if count == len(served.requests):
        warn("interrupted after the last request: the figures have no intervals")
    else:
        warn(
            f"interrupted: {count:,} of {len(served.requests):,} requests were answered; figures "
            "are of these, without intervals; files hold what happened of the others too"
        )
    return status.INTERRUPTED
