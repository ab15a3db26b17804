"""Every model on every device: an answer with an interval, or a named gap, never an exception."""

from __future__ import annotations

import pytest

from silicast.hardware.catalog import device_index
from silicast.scenario.api import predict
from silicast.workload.models import model_names

WORK = {"batch": 2, "input_len": 256, "output_len": 16}
NO_BF16 = ("P100", "P4", "T4", "V100")


def _answer(device: str, model: str) -> None:
    scenario = {"task": "inference", "device": device, "model": model, "workload": WORK}
    found = predict(scenario)
    for name, belief in found.metrics.items():
        assert 0.0 < belief.p05 <= belief.estimate <= belief.p95 < 1e15, name


@pytest.mark.parametrize("device", device_index().names)
def test_every_device_runs_a_dense_model(device: str) -> None:
    _answer(device, "Llama-3.1-8B")


@pytest.mark.parametrize("device", device_index().names)
def test_every_device_with_16_bits_runs_an_fp8_checkpoint(device: str) -> None:
    if not device.startswith(NO_BF16):
        _answer(device, "Llama-3.1-8B-FP8")


@pytest.mark.full
@pytest.mark.parametrize("device", device_index().names)
def test_every_model(device: str) -> None:
    from silicast.core.errors import SilicastError

    refused: dict[str, str] = {}
    for model in model_names():
        try:
            _answer(device, model)
        except SilicastError as error:
            refused[model] = error.kind
    assert set(refused.values()) <= {"not_yet", "unsupported"}, refused
    assert len(refused) < 0.4 * len(model_names())
