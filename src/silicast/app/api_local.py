"""From Python: what ``silicast fits`` does."""

from __future__ import annotations

from typing import Any

from silicast.app.api import Predicted, predict
from silicast.app.arguments import described
from silicast.app.commands.fits import fits_scenario


@described("fits")
def fits(
    *,
    device: str | dict[str, Any] = "",
    model: str | dict[str, Any] = "",
    context: int = 4096,
    users: int = 1,
    engine: str | None = None,
    most: int = 20,
    least_tokens_per_s: float = 5.0,
    servers: bool = False,
    train: bool = False,
    gpus: int = 1,
) -> Predicted:
    """Models that fit a device, in which format and how fast; or the devices of a model.

    Returns:
        The answer; ``why["fits"]`` lists the pairs, best first. With ``train``, ``why["trains"]``
        lists full fine-tuning, LoRA and QLoRA: whether each fits, with which batch and length.

    Raises:
        SilicastError: neither a device nor a model, an unknown one, or nothing fits.

    >>> import silicast
    >>> best = silicast.fits(device="RTX 4090", context=8192).why["fits"][0]
    >>> best["memory_gb"] <= best["usable_gb"], best["tokens_per_s"]["estimate"] > 5.0
    (True, True)
    """
    return predict(
        fits_scenario(
            device=device,
            model=model,
            engine=engine,
            context=context,
            users=users,
            most=most,
            least_tokens_per_s=least_tokens_per_s,
            servers=servers,
            train=train,
            gpus=gpus,
        )
    )
