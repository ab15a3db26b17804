"""Blocks that sequences hold, by hand."""

from __future__ import annotations

import numpy as np

from silicast.serving.kv.kv_pool import KvLayout


def test_blocks_of_a_window_stop_growing() -> None:
    """Half of the layers see 1,024 tokens: half a block of 16 less for each block beyond them."""
    ends = np.array([0, 1024, 4096])
    layout = KvLayout(16, 16, ends, np.array([0, 64_000, 160_000]))
    tokens = np.array([0, 1, 500, 1024, 1040, 1056, 4096])
    assert layout.of_tokens(tokens).tolist() == [0, 1, 32, 64, 65, 65, 160]
    assert [layout.of_one(each) for each in tokens.tolist()] == [0, 1, 32, 64, 65, 65, 160]
    plain = KvLayout.plain(16)
    assert [plain.of_one(each) for each in (0, 1, 16, 17)] == [0, 1, 1, 2]
