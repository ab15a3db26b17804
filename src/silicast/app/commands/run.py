"""`silicast run`."""

from __future__ import annotations

from pathlib import Path

from silicast.app.flags import Calibrations, Json, Strict
from silicast.app.predict import predicted, print_reply, read_scenario, with_calibrations


def run(
    scenario: Path,
    /,
    *,
    calibration: Calibrations = None,
    strict: Strict = False,
    json: Json = False,
) -> int:
    """Predict one scenario file.

    Args:
        scenario: a TOML or JSON file; its fields are in the documentation.
        calibration: a file that `silicast calibrate` wrote; give it once for each of several.
        strict: refuse what lies outside measured ground instead of widening the interval.
        json: print the answer as JSON instead of a table.
    """
    tree = with_calibrations(read_scenario(scenario), calibration)
    reply = predicted(tree, scenario)

    from silicast.report.answers import answer_report

    return print_reply(
        reply, lambda answer: answer_report(tree, answer), json=json, strict=strict, file=scenario
    )
