"""Kernels asked for one at a time have the bits of their formulas."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.speed_kernels import batch_of, case_of
from silicast.core import compiled_core
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels import taped
from silicast.kernels.check import op_at
from silicast.kernels.physics.constants import load_physics, replaced
from silicast.learning import dispatch, lone_kernels
from silicast.learning.kernel_time import KernelTime
from silicast.learning.tiers import ALL_SHIPPED, Evidence
from silicast.workload.graphs.op import Op, OpBatch, Variant
from tests.unit.kernels.tape_cases import ALONE, ORDINARY, SETTINGS, TRACED

EVIDENCE = (ALL_SHIPPED, Evidence(ceilings=True), Evidence(learned=False))
PRODUCT = Op.make("gemm", m=64, n=4096, k=4096)


pytestmark = pytest.mark.usefixtures("traced_at_once")


def ordinary(op: Op, device: Device, evidence: Evidence) -> KernelTime:
    """By the formulas alone."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compiled_core, "runs", lambda: False)
        (kernel_time,) = dispatch._evaluated([op], device, evidence)
    return kernel_time


def check(batch: OpBatch, device: Device, evidence: Evidence) -> list[KernelTime]:
    """Some rows of a batch."""
    answers = []
    for row in range(min(len(batch), ALONE)):
        op = op_at(batch.rows(np.array([row])), 0)
        kernel_time = lone_kernels.time_of(op, device, evidence)
        if kernel_time is not None and np.isfinite(kernel_time.estimate_s):
            assert kernel_time == ordinary(op, device, evidence)
            answers.append(kernel_time)
    return answers


@pytest.mark.parametrize("family", TRACED)
def test_a_kernel_of_a_family_has_the_same_bits(family: str) -> None:
    device = find_device(case_of(family)[0])
    for evidence in EVIDENCE:
        assert check(batch_of(family, ALONE), device, evidence)


@pytest.mark.parametrize(("family", "device", "dtype", "more"), SETTINGS)
def test_a_kernel_of_a_setting_has_the_same_bits(
    family: str, device: str, dtype: str, more: Any
) -> None:
    batch = OpBatch(family, Variant(dtype, **more), batch_of(family, ALONE).dims)
    for state in ("cool", "hot", "boost"):
        assert check(batch, find_device(device).in_state(state), EVIDENCE[1])


def test_experts_of_any_ranks_have_the_same_bits() -> None:
    """What tables are drawn by is held by a tape: others get tapes of their own."""
    device = find_device("H100")
    flags = (("gated", True), ("power_law_1.2", True))
    for ep in (1, 8, 8, 16):
        for tokens in (1, 100, 4000):
            sizes = {"tokens": tokens, "topk": 8, "hidden": 4096, "intermediate": 1536}
            op = Op.make("moe", Variant(flags=flags), experts=128, ep=ep, tp=2, **sizes)
            kernel_time = lone_kernels.time_of(op, device, ALL_SHIPPED)
            assert kernel_time == ordinary(op, device, ALL_SHIPPED)
    assert len(lone_kernels._settings.values()) == 3


def test_a_power_limit_that_binds_is_held() -> None:
    """Small products and large ones: of the same setting, at their own clocks."""
    device = find_device("H100").in_state("hot")
    sizes = ((16, 4096, 4096), (8192, 8192, 8192), (16384, 16384, 16384))
    ops = [Op.make("gemm", m=m, n=n, k=k) for m, n, k in sizes]
    shares = []
    for op in ops:
        kernel_time = lone_kernels.time_of(op, device, ALL_SHIPPED)
        assert kernel_time == ordinary(op, device, ALL_SHIPPED)
        assert kernel_time is not None
        shares.append(kernel_time.clock_share)
    assert shares[0] == 1.0
    assert max(shares[1:]) < 1.0


@pytest.mark.parametrize("family", sorted(ORDINARY))
def test_what_cannot_be_traced_is_asked_for_otherwise(family: str) -> None:
    op = op_at(batch_of(family, 1), 0)
    device = find_device(case_of(family)[0])
    assert lone_kernels.time_of(op, device, ALL_SHIPPED) is None
    assert dispatch.time_of(op, device) == ordinary(op, device, ALL_SHIPPED)


def test_a_board_under_another_limit_than_its_own_is_asked_for_otherwise() -> None:
    """Its clock rests on what all its actions draw."""
    device = find_device("H100")
    assert device.power_cap_w is not None
    limited = replace(device, power_cap_w=0.6 * device.power_cap_w)
    assert lone_kernels.time_of(PRODUCT, limited, ALL_SHIPPED) is None


def test_numbers_that_tapes_do_not_hold_are_pythons() -> None:
    """A size beyond 64 bits, and lengths of sequences."""
    device = find_device("H100")
    assert lone_kernels.time_of(PRODUCT, device, ALL_SHIPPED) is not None
    large = Op.make("gemm", m=1 << 70, n=64, k=64)
    assert lone_kernels.time_of(large, device, ALL_SHIPPED) is None
    lengths = Op.make("gemm", m=(3, 4), n=64, k=64)
    assert lone_kernels.time_of(lengths, device, ALL_SHIPPED) is None


def test_nothing_is_kept_without_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_core, "runs", lambda: False)
    assert lone_kernels.time_of(PRODUCT, find_device("H100"), ALL_SHIPPED) is None
    assert not lone_kernels._settings.values()


def test_a_setting_is_traced_once_it_was_asked_for_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taped, "REQUESTS", 3)
    device = find_device("H100").in_state("boost")
    op = Op.make("rmsnorm", tokens=16, hidden=4096)
    answers = [lone_kernels.time_of(op, device, ALL_SHIPPED) for _ in range(4)]
    assert [answer is not None for answer in answers] == [False, False, True, True]


def test_other_constants_make_other_times() -> None:
    """As held-out scores ask for them; neither those before nor those after are of the others."""
    from msgspec import structs

    device, evidence = find_device("H100"), Evidence(learned=False)
    op, known = Op.make("rmsnorm", tokens=4096, hidden=4096), load_physics("streaming")
    tables = {
        name: {constant: 3.0 * value for constant, value in table.items()}
        for name, table in known.architectures.items()
    }

    def answered() -> KernelTime:
        kernel_time = lone_kernels.time_of(op, device, evidence)
        assert kernel_time is not None
        return kernel_time

    shipped = answered()
    with replaced({"streaming": structs.replace(known, architectures=tables)}):
        assert answered() != shipped
    assert answered() == shipped
