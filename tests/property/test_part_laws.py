"""A part of a device is no quicker than the device, and not below its own bound."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.composition.prices.step_prices import StepPrices
from silicast.composition.prices.stepper import SlowerPrices, StepPricing
from silicast.composition.step.step import step_model
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.hardware.partitions import fewer_cores, isolated, profiles_of
from silicast.workload.models.lookup import find_model

NONE = np.zeros(0, dtype=np.int64)


def prices(model: str, device: Device) -> StepPricing:
    return StepPrices(
        step_model(Deployment.from_model(find_model(model), device, find_engine("vllm")))
    )


def passes(result: StepPricing) -> np.ndarray:
    prompts = [result.price([(n, n)], NONE).pass_s for n in (16, 1000)]
    return np.array([*prompts, *result.run(np.array([100] * 8), 5).pass_s])


@pytest.mark.parametrize("name", ["A100", "H100", "B200"])
@pytest.mark.parametrize("model", ["Llama-3.1-8B", "Qwen3-30B-A3B"])
def test_fewer_cores_are_no_quicker(name: str, model: str) -> None:
    device = find_device(name)
    whole = prices(model, device)
    parts = [fewer_cores(device, round(device.cores * f), f"{f}") for f in (0.3, 0.75, 0.9)]
    if name == "A100":
        parts.append(isolated(device, profiles_of(device)[-2]))
    for part in parts:
        current = prices(model, part)
        held = passes(SlowerPrices(current, whole))
        assert (held >= passes(whole)).all()
        assert (held >= passes(current)).all()
        assert (passes(current) >= 0.9 * passes(whole)).all(), "or it is no part"


def test_a_tenth_of_the_cores_takes_much_longer() -> None:
    device = find_device("H100")
    part = fewer_cores(device, 13, "13 SMs")
    ratio = passes(prices("Llama-3.1-8B", part)) / passes(prices("Llama-3.1-8B", device))
    assert ratio[1] > 5.0, "prefill is bound by the cores"
    assert ratio[1] < 13.0
