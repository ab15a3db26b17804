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
