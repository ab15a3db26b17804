"""`silicast infer`."""

from __future__ import annotations

from silicast.app.arguments import described
from silicast.app.flags import (
    BatchFlags,
    Calibrations,
    Degrees,
    Json,
    Strict,
    inference_scenario,
    table_of,
)
from silicast.app.html_file import HtmlFile, write_html
from silicast.app.predict import predicted, print_reply, screen_of, with_calibrations
from silicast.app.price_flag import price_of, with_price, with_price_line


@described()
def infer(
    batch_flags: BatchFlags,
    degrees: Degrees | None = None,
    *,
    device: str,
    cached_len: int | None = None,
    speculative: str | None = None,
    price: str | None = None,
    price_where: str | None = None,
    html: HtmlFile = None,
    calibration: Calibrations = None,
    strict: Strict = False,
    json: Json = False,
) -> int:
    """Predict one static batch of a model: prefill, each further token, total and memory."""
    scenario = inference_scenario(batch_flags, (degrees or Degrees()).given, device)
    if cached_len is not None:
        scenario["workload"]["cached_len"] = cached_len
    if speculative is not None:
        scenario["speculative"] = table_of("speculative", speculative)
    hourly = price_of(price, price_where, device)
    scenario = with_price(with_calibrations(scenario, calibration), hourly)
    reply = predicted(scenario)
    write_html(scenario, reply, html)
    screen = screen_of(scenario)
    return print_reply(
        reply, lambda answer: with_price_line(screen(answer), hourly), json=json, strict=strict
    )
