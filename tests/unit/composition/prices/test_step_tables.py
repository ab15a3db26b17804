"""A row of a table is the same by itself and in a block of its neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.composition.prices import call_values
from silicast.composition.prices.step_price import StepPrice
from silicast.composition.prices.step_prices import StepPrices
from silicast.composition.step.step import step_model
from silicast.hardware.catalog import find_device
from silicast.workload.models.lookup import find_model

NONE = np.zeros(0, dtype=np.int64)


def test_a_row_does_not_depend_on_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = Deployment.from_model(
        find_model("Llama-3.1-8B"), find_device("H100"), find_engine("vllm")
    )

    def price() -> StepPrice:
        return StepPrices(step_model(deployment)).price([(1100, 1100), (77, 400)], NONE)

    in_block = price()
    monkeypatch.setattr(call_values, "ALONE_FROM", 1)
    assert price() == in_block
