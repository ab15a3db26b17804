"""`silicast run`."""

from __future__ import annotations

from pathlib import Path

from silicast.app.arguments import described
from silicast.app.flags import Calibrations, Json, Strict
from silicast.app.html_file import TraceFile, write_trace
from silicast.app.predict import predicted, print_reply, read_scenario, screen_of, with_calibrations


@described()
def run(
    scenario: Path,
    /,
    *,
    calibration: Calibrations = None,
    trace: TraceFile = None,
    strict: Strict = False,
    json: Json = False,
) -> int:
    """Predict one scenario file.

    Args:
        scenario: a TOML or JSON file; its fields are in the documentation.
        trace: a file to write the predicted timeline to, for ui.perfetto.dev.
    """
    tree = with_calibrations(read_scenario(scenario), calibration)
    reply = predicted(tree, scenario)
    if reply["ok"]:
        write_trace(tree, trace, scenario)

    return print_reply(reply, screen_of(tree), json=json, strict=strict, file=scenario)
