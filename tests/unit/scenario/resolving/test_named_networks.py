"""Networks of the catalog by name: every device answers, in a format that it multiplies."""

from __future__ import annotations

import pytest

import silicast
from silicast.hardware.catalog import device_index

NETWORK = {"graph": "resnet50"}


@pytest.mark.parametrize("name", device_index().names[:: max(len(device_index().names) // 60, 1)])
def test_every_device_answers(name: str) -> None:
    reply = silicast.predict(task="graph", device=name, workload=NETWORK)
    assert reply["e2e_ms"].estimate >= reply.bound["e2e_ms"] > 0.0


@pytest.mark.parametrize("device", ["hexagon-v81", "h100", "Snapdragon 888"])
@pytest.mark.parametrize("recipe", ["w8a8", "w8a16"])
def test_other_names_of_formats_are_taken(device: str, recipe: str) -> None:
    """The weights have 8 bits: 25.5 million parameters take a quarter of their bytes in fp32."""
    narrow, wide = (
        silicast.predict(task="graph", device=device, workload=NETWORK, precision={"recipe": each})
        for each in (recipe, "fp32")
    )
    weights, usual = (each.why["memory_gb"]["weights"] for each in (narrow, wide))
    assert weights == pytest.approx(0.0255, rel=0.01)
    assert weights < 0.6 * usual


def test_an_npu_multiplies_w8a16_in_integers() -> None:
    reply = silicast.predict(
        task="graph", device="hexagon-v81", workload=NETWORK, precision={"recipe": "w8a16"}
    )
    assert "hexagon-v81 widens int8 weights: computed in int16" in reply.warnings
