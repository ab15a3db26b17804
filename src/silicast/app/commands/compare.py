"""`silicast compare`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from silicast.app import status
from silicast.app.console import progress, show, write_json
from silicast.app.flags import (
    BatchFlags,
    Calibrations,
    Degrees,
    Json,
    inference_scenario,
    plan_degrees,
)
from silicast.app.predict import predicted, refused, with_calibrations
from silicast.core.errors import SilicastError


def compare(
    asked: BatchFlags,
    degrees: Degrees | None = None,
    *,
    plan: Annotated[list[str] | None, Parameter(negative="")] = None,
    calibration: Calibrations = None,
    json: Json = False,
) -> int:
    """Predict one workload on many devices or under many plans, fastest first.

    --device takes several, separated by commas: a100,h100,l40s.

    Args:
        plan: parallel degrees, such as tp=2 or tp=2,pp=2; give it once for each plan.
        calibration: a file that `silicast calibrate` wrote; give it once for each of several.
        json: print the answers as JSON instead of a table.
    """
    devices = [name.strip() for name in asked.device.split(",") if name.strip()]
    if not devices:
        raise SilicastError("names no device", field="--device", hint="for example a100,h100")
    plans = _plans(plan, (degrees or Degrees()).given)
    cases = [(name, degrees_of) for name in devices for degrees_of in plans]
    replies = []
    with progress("predicting", len(cases)) as advance:
        for done, (name, parallel) in enumerate(cases):
            advance(done)
            scenario = inference_scenario(asked, parallel, name)
            scenario = with_calibrations(scenario, calibration)
            replies.append((_label(name, parallel, plan is not None), predicted(scenario)))
    answered = [reply for _, reply in replies if reply["ok"]]
    if json:
        write_json([{"case": name, **reply} for name, reply in replies])
    elif answered:
        from silicast.report.answers import comparison_table, title

        show(title(inference_scenario(asked, {}, " / ".join(devices))), "")
        show(comparison_table(replies, "total_ms"))
    else:
        raise refused(replies[0][1])
    return status.ANSWERED if len(answered) == len(replies) else status.NOT_ANSWERED


def _plans(texts: list[str] | None, given: dict[str, int]) -> list[dict[str, int]]:
    """The plans, with the degrees that were given once for all of them."""
    plans = [plan_degrees(text) for text in texts or []] or [{}]
    for plan in plans:
        for name, degree in given.items():
            if plan.get(name, degree) != degree:
                raise SilicastError(
                    f"{name}={plan[name]} contradicts --{name} {degree}",
                    field="--plan",
                    hint="keep one of them",
                )
    return [{**plan, **given} for plan in plans]


def _label(device: str, parallel: dict[str, int], many_plans: bool) -> str:
    plan = " ".join(f"{key}={value}" for key, value in parallel.items())
    return f"{device} {plan}" if plan and many_plans else device
