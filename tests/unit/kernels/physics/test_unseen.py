"""Errors of kernels on boards that nobody measured."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.scorecard.held_out import unmeasured
from silicast.hardware.catalog import find_device
from silicast.kernels.implementation import shared_of
from silicast.kernels.physics.constants import NO_CONSTANTS, load_physics, replaced
from silicast.kernels.physics.unseen import (
    SEEN,
    SPREADS,
    Unseen,
    octaves_to_measured,
    seen_of,
    unseen_errors,
)
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op import Op, OpBatch, Variant

H100, H20, H200 = (find_device(name) for name in ("H100", "H20", "H200"))
shares = st.floats(0.0, 1.0)


def test_what_was_measured_of_a_board() -> None:
    assert seen_of("gemm", "bf16", H100, measured=True) == "board"
    assert seen_of("gemm", "bf16", H20, measured=True) == "sister"
    assert seen_of("gemm", "fp8", H20, measured=True) == "board"
    assert seen_of("gemm", "bf16", H100, measured=False) == "format"
    assert seen_of("gemm", "a format of tomorrow", H100, measured=False) == "nothing"
    assert seen_of("rmsnorm", "any format", H100, measured=True) == "board"  # told apart by none
    assert seen_of("a family without rows", "bf16", H100, measured=False) == "format"


def test_a_family_that_nobody_measured_is_not_in_measured_ground() -> None:
    """Whatever else was measured on the architecture, and whose rates it shares."""
    for family, device, measured in (
        ("rmsnorm", H100, True), ("rmsnorm", find_device("B200"), False), ("kv_copy", H100, False),
        ("optimizer", H100, False), ("softmax", find_device("T4"), True),
    ):  # fmt: skip
        model = implementation_for(family, "simt")
        assert model is not None
        assert model.is_measured(Variant("fp32"), device) == measured
    chain = implementation_for("rmsnorm", "simt")
    assert chain is not None
    for device, measured in ((H100, True), (find_device("RTX 3090"), False)):
        assert chain.is_measured(Variant("bf16", library="torch"), device) == measured


def test_a_measured_board_errs_as_its_family_says() -> None:
    assert unseen_errors("gemm", "bf16", H100, measured=True) == SEEN
    table = {"device:H100": 0.03, "family:gemm": 0.02, "format:gemm": 0.1}
    assert SEEN.shared(table, "gemm") == table
    current = np.array([0.1, 0.2])
    assert SEEN.independent_log_sd(current, current, current) is current


def test_a_sister_errs_more_the_farther_it_is() -> None:
    assert (
        octaves_to_measured("gemm", "bf16", H20) > 1.0 > octaves_to_measured("gemm", "bf16", H200)
    )
    errors = unseen_errors("gemm", "bf16", H20, measured=True)
    known = load_physics(SPREADS).default
    at_home = known["sister.device_log_sd"]
    assert errors.device_log_sd > 1.5 * at_home
    assert errors.widening > np.exp(known["sister.log_widening"])
    assert errors.shared({"device": 0.9}, "gemm")["device"] == 0.9  # never less than its own


def test_a_format_that_nobody_measured_adds_an_error_of_its_own() -> None:
    known = unseen_errors("gemm", "bf16", H100, measured=False)
    new = unseen_errors("gemm", "a format of tomorrow", H100, measured=False)
    assert known.format_log_sd == 0.0 < new.format_log_sd
    assert new.shared({"device": 0.01}, "gemm")["format:gemm"] == new.format_log_sd


@given(shares, shares, st.floats(0.05, 1.0), st.floats(0.1, 0.9))
def test_what_the_bound_explains_errs_less(a: float, b: float, sd: float, floor: float) -> None:
    errors = Unseen(device_log_sd=0.5 * floor * sd, log_sd=sd, floor=floor)
    near, far = max(a, b), min(a, b)
    one = np.ones(1)
    closer, farther = (errors.independent_log_sd(one, x * one, one) for x in (near, far))
    assert closer <= farther + 1e-12
    whole = np.sqrt(farther**2 + errors.device_log_sd**2)
    assert floor * sd * (1.0 - 1e-9) <= whole <= sd * (1.0 + 1e-9)


@given(st.floats(1e-9, 1.0), shares)
def test_a_number_and_an_array_give_the_same_bits(estimate_s: float, near: float) -> None:
    errors = Unseen(device_log_sd=0.07, log_sd=0.33, floor=0.5)
    many = errors.independent_log_sd(*(np.array([x]) for x in (0.1, near * estimate_s, estimate_s)))
    assert errors.independent_log_sd(0.1, near * estimate_s, estimate_s) == many[0]  # type: ignore[arg-type]


def test_nothing_rests_on_widths_that_are_not_there() -> None:
    with replaced({SPREADS: NO_CONSTANTS}):
        assert unseen_errors("gemm", "bf16", H20, measured=False) == SEEN


@pytest.mark.parametrize("family", ["gemm", "rmsnorm", "moe", "attention_decode"])
def test_intervals_widen_where_the_architecture_is_left_out(family: str) -> None:
    model = implementation_for(family, "simt")
    assert model is not None
    sizes = {
        "gemm": {"m": 64, "n": 4096, "k": 4096},
        "rmsnorm": {"tokens": 512, "hidden": 4096},
        "moe": {"tokens": 64, "experts": 8, "topk": 2, "hidden": 4096, "intermediate": 14336,
                "ep": 1, "tp": 1},
        "attention_decode": {"batch": 8, "kv_len": 4096, "num_heads": 32, "num_kv_heads": 8,
                             "head_dim": 128, "q_len": 1, "window": 0},
    }  # fmt: skip
    batch = OpBatch.from_ops([Op.make(family, Variant(), **sizes[family])])
    known = model.times(batch, H100)
    with unmeasured("hopper"):
        unknown = model.times(batch, H100)
        assert shared_of(model, batch.variant, H100).unseen.log_sd > 0.0
    # a decode is near its bound, which leaves as little to err about on any board
    least = 0.99 if family == "attention_decode" else 1.0
    assert unknown.p95_s / unknown.estimate_s > least * known.p95_s / known.estimate_s
