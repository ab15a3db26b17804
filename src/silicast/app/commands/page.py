"""`silicast page`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from silicast.app import status
from silicast.app.arguments import described
from silicast.app.console import progress, warn
from silicast.core.errors import SilicastError

MOST = 5


@described("serve")
def page(
    *,
    model: Annotated[list[str], Parameter(negative="")],
    device: Annotated[list[str], Parameter(negative="")],
    output: Annotated[Path, Parameter(alias="-o")],
    engine: str = "vllm",
    dtype: str = "",
    tp: int = 1,
    pp: int = 1,
    price: float | None = None,
    input_len: int = 1024,
    output_len: int = 128,
) -> int:
    """Write a page for a browser: does it fit, how fast is it, how many users does it carry.

    One file with its answers in it, to send or to put on any web server; `silicast server` has the
    same page with a form that asks.

    Args:
        model: catalog names, one for each --device, or one for all.
        device: catalog names, with commas between them or given one by one; up to five.
        output: the file to write, .html.
        price: USD for an hour of a device.
        dtype: format of the matrix products (bf16, fp8, ...); left out, the checkpoint's.
        input_len: prompt tokens of each request.
        output_len: tokens generated for each request.
    """
    from silicast.app.server.setups import REQUESTS, PageSetup
    from silicast.app.server.static_page import page_entries, static_page
    from silicast.core.decode import decode
    from silicast.core.files import write_atomically

    devices = [name.strip() for text in device for name in text.split(",") if name.strip()]
    models = model if len(model) > 1 else [*model] and [model[0] for _ in devices]
    if not 0 < len(devices) <= MOST or len(models) != len(devices):
        raise SilicastError(
            f"{len(models)} models and {len(devices)} devices",
            field="--device",
            hint=f"give one to {MOST} devices, and one model or as many",
        )
    common = {
        "engine": engine,
        "dtype": dtype,
        "tp": tp,
        "pp": pp,
        "price": price,
        "input_len": input_len,
        "output_len": output_len,
    }
    setups = [
        decode({"model": model_name, "device": other, **common}, PageSetup)
        for model_name, other in zip(models, devices, strict=True)
    ]
    count = sum(len(REQUESTS) + 1 for _ in setups)
    with progress("predicting", count) as advance:
        entries = page_entries(setups, advance)
    write_atomically(output, static_page(entries))
    warn(f"{output}: the page")
    refused = [(entry.setup, entry.refused) for entry in entries if entry.refused]
    for setup, reply in refused:
        error = reply.error.as_error()
        warn(f"{setup.model} on {setup.device} is not answered: {error}")
    return status.NOT_ANSWERED if refused else status.ANSWERED
