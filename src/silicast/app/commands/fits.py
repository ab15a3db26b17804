"""`silicast fits`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from silicast.app.arguments import described
from silicast.app.console import warn
from silicast.app.flags import Count, Json
from silicast.app.predict import predicted, print_reply, screen_of
from silicast.core.errors import SilicastError


@described("fits")
def fits(
    *,
    device: str = "",
    model: str = "",
    context: str = "4k",
    users: int = 1,
    engine: str | None = None,
    most: int = 20,
    least_tokens_per_s: Annotated[float, Parameter(name=["--least-tokens-per-s"])] = 5.0,
    servers: Annotated[bool, Parameter(negative="")] = False,
    train: Annotated[bool, Parameter(negative="")] = False,
    gpus: Count = 1,
    plot: Path | None = None,
    json: Json = False,
) -> int:
    """Find the models that fit a device, in which format and how fast; or the devices of a model.

    As in `silicast fits --device "RTX 4090" --context 32k --users 4`, or
    `silicast fits --model Qwen3-30B-A3B`. With --train: whether full fine-tuning, LoRA or QLoRA
    of the model fit, and with which batch and length, as in
    `silicast fits --train --model Llama-3.1-8B --device "RTX 4090" --context 2k`.

    Args:
        plot: a file (.svg, .png, .pdf) to draw to: what fits, its memory beside that of the
            device, and tokens a second with their intervals.
    """
    from silicast.report.drawing.plot_file import check_plot
    from silicast.scenario.reading.numbers import tokens_of

    if plot is not None:
        if train:
            raise SilicastError("draws models that are run, not trained", field="--plot")
        check_plot(plot)

    scenario = fits_scenario(
        device=device,
        model=model,
        engine=engine,
        context=tokens_of(context, "--context"),
        users=users,
        most=most,
        least_tokens_per_s=least_tokens_per_s,
        servers=servers,
        train=train,
        gpus=gpus,
    )
    reply = predicted(scenario)
    code = print_reply(reply, screen_of(scenario), json=json)
    if plot is None:
        return code
    if not reply["ok"]:
        warn(f"{plot}: not drawn, for want of an answer")
        return code
    from silicast.report.tasks.fits import draw_fits

    draw_fits(reply["why"]["fits"], plot, by_model=bool(device))
    warn(f"{plot}: what fits")
    return code


def fits_scenario(
    *, device: Any, model: Any, engine: str | None, gpus: int = 1, **workload: Any
) -> dict[str, Any]:
    """The scenario that the flags stand for; what is empty is left out."""
    names = {"device": device, "model": model, "engine": engine}
    if gpus > 1:
        names["cluster"] = {"gpus": gpus}
    scenario: dict[str, Any] = {"format": 1, "task": "fits", "workload": workload}
    return scenario | {name: value for name, value in names.items() if value}
