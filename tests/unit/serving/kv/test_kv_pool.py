"""Blocks that sequences hold, by hand."""

from __future__ import annotations

import numpy as np

from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.hardware.catalog import find_device
from silicast.serving.kv.kv_pool import KvLayout
from silicast.workload.models.lookup import find_model


def test_blocks_of_a_window_stop_growing() -> None:
    """Half of the layers see 1,024 tokens: half a block of 16 less for each block beyond them."""
    ends = np.array([0, 1024, 4096])
    layout = KvLayout(16, 16, ends, np.array([0, 64_000, 160_000]))
    tokens = np.array([0, 1, 500, 1024, 1040, 1056, 4096])
    assert layout.of_tokens(tokens).tolist() == [0, 1, 32, 64, 65, 65, 160]
    assert [layout.of_one(each) for each in tokens.tolist()] == [0, 1, 32, 64, 65, 65, 160]
    plain = KvLayout.plain(16)
    assert [plain.of_one(each) for each in (0, 1, 16, 17)] == [0, 1, 1, 2]


def test_blocks_of_a_model_whose_layers_take_turns_with_windows() -> None:
    """gpt-oss-20b: 24 layers, eight heads of 64; every second one holds 128 tokens at most."""
    model, device = find_model("gpt-oss-20b"), find_device("h100")
    layout = KvLayout.from_deployment(Deployment.from_model(model, device, find_engine("vllm")))
    assert layout.block_bytes == 16 * 24 * 2 * 8 * 64 * 2
    tokens = (0, 16, 128, 144, 1600, 16_000, 128_000)
    held = [-(-(12 * each + 12 * min(each, 128)) // (24 * 16)) for each in tokens]
    assert [layout.of_one(each) for each in tokens] == held
