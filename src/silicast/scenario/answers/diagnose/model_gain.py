"""What a model's decode step gains when one kernel of each of its layers gets faster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from silicast.core.errors import SilicastError, unsupported
from silicast.scenario.decode import decode
from silicast.scenario.resolve import find_any_model
from silicast.scenario.run import run

CONTEXT = 1024
"""Tokens of context that a step is predicted with."""


def gain_in_model(
    model: str | dict[str, Any],
    device: str,
    tokens: int,
    saved_us: float,
    *,
    folder: Path = Path(),
    **fields: Any,
) -> dict[str, float]:
    """Step time and TPOT of a static batch before and after.

    Args:
        model: with experts; tokens: of a step, one a request.
        saved_us: of one layer's kernel; folder: where paths start.
        fields: further fields of the scenario ("engine", "parallel", "precision").

    Raises:
        SilicastError: no experts, or a batch that the device cannot hold.
    """
    config = find_any_model(model, folder)
    layers = sum(config.feed(layer) == "experts" for layer in range(config.layers))
    if not layers:
        raise unsupported(f"{config.name} has no experts", "model")
    try:
        tree = {
            "task": "inference",
            "model": model,
            "device": device,
            "workload": {"batch": tokens, "input_len": CONTEXT, "output_len": 8},
            **fields,
        }
        metrics = run(decode(tree, folder=folder)).metrics
    except SilicastError as error:
        raise error.at("model") from None
    step_us = metrics["decode_step_ms"].estimate * 1e3
    saved = min(saved_us * layers, step_us)
    return {
        "layers": float(layers),
        "saved_us": saved,
        "step_us": step_us,
        "saved_pct": 100.0 * saved / step_us,
        "tpot_ms": step_us / 1e3,
        "tpot_then_ms": (step_us - saved) / 1e3,
    }
