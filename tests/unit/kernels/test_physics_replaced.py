"""Other constants for a while, for scores on what they were not fitted on."""

from __future__ import annotations

import msgspec

from silicast.hardware.catalog import find_device
from silicast.kernels.physics.constants import load_physics, replaced
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op import Op, OpBatch


def test_kernels_take_other_constants_inside_and_their_own_after() -> None:
    model, device = implementation_for("gemm", "simt"), find_device("H100")
    assert model is not None
    batch = OpBatch.from_ops([Op.make("gemm", m=512, n=4096, k=4096)])
    before = model.times(batch, device)
    physics = load_physics("gemm")
    others = {a: table for a, table in physics.architectures.items() if a != "hopper"}
    with replaced({"gemm": msgspec.structs.replace(physics, architectures=others)}):
        inside = model.times(batch, device)
        assert not load_physics("gemm").is_measured("hopper")
    after = model.times(batch, device)
    assert inside.estimate_s[0] != before.estimate_s[0]
    assert not inside.measured
    assert after.estimate_s[0] == before.estimate_s[0]
    assert load_physics("gemm").is_measured("hopper")
