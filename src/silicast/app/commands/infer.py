"""`silicast infer`."""

from __future__ import annotations

from silicast.app.flags import BatchFlags, Calibrations, Degrees, Json, Strict, inference_scenario
from silicast.app.html_file import HtmlFile, write_html
from silicast.app.predict import predicted, print_reply, screen_of, with_calibrations


def infer(
    batch_flags: BatchFlags,
    degrees: Degrees | None = None,
    *,
    device: str,
    html: HtmlFile = None,
    calibration: Calibrations = None,
    strict: Strict = False,
    json: Json = False,
) -> int:
    """Predict one static batch of a model: prefill, each further token, total and memory.

    Args:
        device: catalog name, or path to a device file.
        html: a file for the answer as one page, to read without a network or to print.
        calibration: a file that `silicast calibrate` wrote; give it once for each of several.
        strict: refuse what lies outside measured ground instead of widening the interval.
        json: print the answer as JSON instead of a table.
    """
    scenario = inference_scenario(batch_flags, (degrees or Degrees()).given, device)
    scenario = with_calibrations(scenario, calibration)
    reply = predicted(scenario)
    write_html(scenario, reply, html)

    return print_reply(reply, screen_of(scenario), json=json, strict=strict)
