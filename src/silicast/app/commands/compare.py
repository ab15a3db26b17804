"""`silicast compare`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from silicast.app import status
from silicast.app.arguments import described
from silicast.app.comparing import candidates, demand_of
from silicast.app.console import progress, show, warn, write_json
from silicast.app.flags import (
    BatchFlags,
    Calibrations,
    Degrees,
    Json,
    inference_scenario,
    plan_degrees,
)
from silicast.app.html_file import HtmlFile
from silicast.app.predict import with_calibrations
from silicast.core.errors import SilicastError

if TYPE_CHECKING:
    from silicast.scenario.answers.inference.comparison import Candidate

Many = Annotated[list[str] | None, Parameter(negative="")]


@described()
def compare(
    batch_flags: BatchFlags,
    degrees: Degrees | None = None,
    *,
    device: Annotated[list[str], Parameter(negative="")],
    plan: Many = None,
    gpus: str | None = None,
    users: int | None = None,
    tokens_per_user: float | None = None,
    price: Many = None,
    price_where: str | None = None,
    sort: str | None = None,
    csv: Path | None = None,
    plot: Path | None = None,
    html: HtmlFile = None,
    calibration: Calibrations = None,
    json: Json = False,
) -> int:
    """Predict one workload on many devices or under many plans: what fits first, the best on top.

    Without degrees each device gets the smallest plan that fits. With --users it is the fewest
    devices that give so many users their speed, --input-len and --output-len being those of every
    request.

    Args:
        device: catalog names, with commas between them or given one by one: a100,h100,l40s.
        plan: parallel degrees, such as tp=2 or tp=2,pp=2; give it once for each plan.
        gpus: of each: a number, node (one node each) or best (of plans within a node the one
            with the most throughput a device); left out, the fewest that fit.
        users: who each wait for their answers and ask again, in place of one batch.
        tokens_per_user: tokens a second that each of them sees on average; left out, 20.
        price: of a device for an hour: 2.5, h100=2.5,h200=3.1, or a CSV file of prices.
        sort: cost, gpus, time, ttft, tpot, throughput, throughput-per-gpu, memory, power, energy.
        csv: a file for every metric of every candidate with its interval.
        plot: a file (.svg, .png, .pdf): time a token over throughput of a device.
        html: a file for the comparison as one page, to read without a network or to print.
    """
    named = [name.strip() for text in device for name in text.split(",") if name.strip()]
    devices = list(dict.fromkeys(named))
    if not devices:
        raise SilicastError("names no device", field="--device", hint="for example a100,h100")
    plans = _plans(plan, (degrees or Degrees()).given)
    scenario = with_calibrations(inference_scenario(batch_flags, {}, devices[0]), calibration)
    if plot is not None:
        from silicast.report.drawing.plot_file import check_plot

        check_plot(plot)
    demand = demand_of(users, tokens_per_user, batch_flags.batch)
    compared: list[Candidate] = []
    count, whole = sum(len(plans) for _ in devices), True
    try:
        with progress("predicting", count) as advance:
            for each in candidates(scenario, devices, plans, demand, price, price_where, gpus):
                compared.append(each)
                advance(len(compared))
    except KeyboardInterrupt:
        if not compared:
            raise
        whole = False
    _print(scenario, devices, compared, sort, csv, plot, html, json=json, users=users)
    if not whole:
        warn(f"interrupted: {len(compared)} of {count} were predicted")
        return status.INTERRUPTED
    answered = sum(each.reply.ok for each in compared)
    return status.ANSWERED if answered == len(compared) else status.NOT_ANSWERED


def _print(
    scenario: dict[str, Any],
    devices: list[str],
    compared: list[Candidate],
    sort: str | None,
    csv: Path | None,
    plot: Path | None,
    html: Path | None,
    *,
    json: bool,
    users: int | None,
) -> None:
    from silicast.report.answers import title
    from silicast.report.tasks.comparison import (
        comparison_report,
        in_order,
        plain,
        sort_word,
        write_csv,
        write_plot,
    )

    if not json and not any(each.reply.ok for each in compared):
        raise _refused(compared[0])
    word = sort_word(sort, compared)
    ordered = in_order(compared, word)
    head = title({**scenario, "device": " / ".join(devices)})
    after = []
    if users is not None:
        from silicast.scenario.answers.inference.comparison import CAVEAT

        head = head.replace("batch 1", f"{users:,} users", 1)
        after = [CAVEAT]
    if csv is not None:
        write_csv(csv, ordered)
        warn(f"{csv}: the table")
    if plot is not None:
        write_plot(plot, ordered, head)
        warn(f"{plot}: the drawing")
    today = datetime.now(tz=UTC).date()
    shown = comparison_report(head, ordered, word, today, after)
    if html is not None:
        from silicast.report.drawing.page import comparison_page, write_page

        write_page(html, comparison_page(head, ordered, word, after, today))
        warn(f"{html}: the report")
    if json:
        write_json(plain(compared))
    else:
        show(shown)


def _refused(candidate: Candidate) -> SilicastError:
    from silicast.scenario.answer import Refusal

    assert isinstance(candidate.reply, Refusal)
    error = candidate.reply.error
    return SilicastError(error.message, kind=error.kind, field=error.field, hint=error.hint)


def _plans(texts: list[str] | None, degrees: dict[str, int]) -> list[dict[str, int]]:
    """The plans, with the degrees that were given once for all of them."""
    plans = [plan_degrees(text) for text in texts or []] or [{}]
    for plan in plans:
        for name, degree in degrees.items():
            if plan.get(name, degree) != degree:
                raise SilicastError(
                    f"{name}={plan[name]} contradicts --{name} {degree}",
                    field="--plan",
                    hint="keep one of them",
                )
    return [{**plan, **degrees} for plan in plans]
