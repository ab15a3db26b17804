"""Attention where a device leaves numbers out."""

from __future__ import annotations

from dataclasses import replace

from silicast.hardware.catalog import find_device
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op import Op, OpBatch


def test_a_device_without_a_published_cache_bandwidth_is_answered() -> None:
    h100 = find_device("H100")
    unknown = replace(h100.memory["l2"], bandwidth_bytes_per_s=0.0)
    device = replace(h100, memory={**h100.memory, "l2": unknown})
    for family in ("attention_prefill", "attention_decode"):
        model = implementation_for(family, "simt")
        assert model is not None
        op = Op.make(family, q_len=512, kv_len=512, batch=4, num_heads=8, num_kv_heads=8,
                     head_dim=128)  # fmt: skip
        times = model.times(OpBatch.from_ops([op]), device)
        assert 0.0 < times.bound_s[0] <= times.estimate_s[0] < 1e-3
