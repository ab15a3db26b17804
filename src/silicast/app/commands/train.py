"""`silicast train`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from silicast.app.arguments import described
from silicast.app.comparing import answered_for, devices_of, refuse_with_several
from silicast.app.console import progress
from silicast.app.flags import Calibrations, Json, Strict
from silicast.app.html_file import HtmlFile, TraceFile, write_html, write_trace
from silicast.app.predict import Tree, predicted, print_reply, with_calibrations
from silicast.app.price_flag import price_of, prices_of, warn_of_doubt
from silicast.app.train_flags import (
    TrainDegrees,
    TrainFlags,
    TrainHost,
    TrainLosses,
    training_scenario,
)
from silicast.core.errors import SilicastError


@described()
def train(
    train_flags: TrainFlags,
    degrees: TrainDegrees | None = None,
    losses: TrainLosses | None = None,
    host: TrainHost | None = None,
    *,
    tokens: str | None = None,
    price: str | None = None,
    price_where: str | None = None,
    trace: TraceFile = None,
    resume: Path | None = None,
    html: HtmlFile = None,
    calibration: Calibrations = None,
    strict: Strict = False,
    json: Json = False,
) -> int:
    """Predict a training step: time, throughput, MFU and memory; without degrees, the best plan.

    --device takes several with commas between them: they are shown side by side, the best first.

    Args:
        tokens: to train on in all (15T, 300B): says how many days, and what it costs.
        price: of a device for an hour, for --tokens: 2.5, h100=2.3EUR, or a CSV file of prices.
        trace: file for the step's timeline, for ui.perfetto.dev; needs degrees.
        resume: file in which a search keeps each plan that it predicted; the same search goes on
            from there.
    """
    from silicast.report.tasks.training import (
        WholeRun,
        check_run,
        run_lines,
        tokens_of,
        training_report,
    )

    plan = degrees or TrainDegrees()
    if len(devices := devices_of(train_flags.device)) > 1:
        files = {"trace": trace, "resume": resume, "html": html}
        refuse_with_several({f"--{name}": value for name, value in files.items()})
        prices = prices_of(price, price_where, devices)
        check_run(tokens, next(iter(prices.values()), None))

        def of_device(name: str) -> Tree:
            flags = replace(train_flags, device=name)
            return with_calibrations(training_scenario(flags, plan, losses, host), calibration)

        def run_of(name: str, reply: Tree) -> WholeRun:
            return WholeRun.of_answer(reply, tokens_of(tokens or ""), prices.get(name))

        for each in dict.fromkeys(prices.values()):
            warn_of_doubt(each)
        runs = run_of if tokens is not None else None
        return answered_for(devices, of_device, "training", json=json, strict=strict, run_of=runs)
    train_flags = replace(train_flags, device=devices[0])
    paid = price_of(price, price_where, train_flags.device)
    check_run(tokens, paid)
    scenario = with_calibrations(training_scenario(train_flags, plan, losses, host), calibration)

    searches = scenario["task"] == "plan"
    if resume is not None and not searches:
        raise SilicastError(
            "one plan is predicted; a file keeps those of a search",
            field="--resume",
            hint="leave the degrees out, or --resume",
        )
    reply = _searched(scenario, resume) if searches else predicted(scenario)

    write_trace(scenario, trace)
    asked_too = () if tokens is None or not reply["ok"] else run_lines(reply, tokens, paid)
    write_html(scenario, reply, html, asked_too)

    def report(answer: dict[str, Any]) -> Any:
        warn_of_doubt(paid)
        return training_report(scenario, answer, tokens, paid)

    return print_reply(reply, report, json=json, strict=strict)


def _searched(scenario: Tree, resume: Path | None) -> Tree:
    """The answer of a search, with a bar where it takes long."""
    from silicast.scenario.answerer import ProgressWatch

    with progress("plans") as advance:
        watch = ProgressWatch(searched=lambda done, _: advance(done), resume=resume)
        return predicted(scenario, watch=watch)
