"""Kernels whose formulas run as tapes have the bits of the formulas themselves.

With a core its loops are tested, on many rows; without one the file that it is made from, on few.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec import structs

from benchmarks.speed_kernels import batch_of, case_of
from silicast.core import compiled_core
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels import taped
from silicast.kernels.implementation import Implementation
from silicast.kernels.in_blocks import field_names
from silicast.kernels.physics.constants import load_physics, replaced
from silicast.kernels.registry import implementation_for
from silicast.learning import tiers
from silicast.learning.tiers import Evidence, kernel_times
from silicast.workload.graphs.op import Op, OpBatch, Variant
from tests.unit.kernels.tape_cases import ALONE, COMPILED, ORDINARY, ROWS, SETTINGS, TRACED

EVIDENCE = Evidence(ceilings=True)


pytestmark = pytest.mark.usefixtures("traced_at_once")


def answered_by_tapes() -> bool:
    known = taped._settings.values()
    return bool(known) and all(item._record is not None for item in known)


def ordinary(
    model: Implementation, batch: OpBatch, device: Device, monkeypatch: pytest.MonkeyPatch
) -> Any:
    with monkeypatch.context() as patched:
        patched.setattr(taped, "run", lambda *_, **__: None)
        return kernel_times(model, batch, device, EVIDENCE)


def different(one: Any, other: Any, name: str = "") -> list[str]:
    """Names of values of two records whose bits differ."""
    if names := field_names(one):
        if name == "choice":
            return [] if one() == other() else [name]
        parts = [(getattr(one, item), getattr(other, item), item) for item in names]
    elif hasattr(one, "items"):
        if set(one) != set(other):
            return [name]
        parts = [(one[item], other[item], f"{name}:{item}") for item in one]
    elif isinstance(one, (float, int, np.ndarray)):
        return [] if np.array_equal(np.asarray(one), np.asarray(other), equal_nan=True) else [name]
    elif callable(one):
        return [] if list(one()) == list(other()) else [name]
    else:
        return [] if one == other else [name]
    return [result for part in parts for result in different(*part)]


def check(
    model: Implementation, batch: OpBatch, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = kernel_times(model, batch, device, EVIDENCE)
    assert answered_by_tapes()
    assert different(ordinary(model, batch, device, monkeypatch), times) == []
    for row in range(min(len(batch), ALONE)):
        sizes: Any = {name: int(values[row]) for name, values in batch.dims.items()}
        one = OpBatch(batch.family, batch.variant, sizes, numbers=True)
        try:
            expected = ordinary(model, one, device, monkeypatch)
        except ArithmeticError:
            continue  # an infinity, which arrays hold
        assert different(expected, kernel_times(model, one, device, EVIDENCE)) == []


@pytest.mark.parametrize("family", TRACED)
def test_rows_of_a_family_have_the_same_bits(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = implementation_for(family, "simt")
    assert model is not None
    device = find_device(case_of(family)[0])
    check(model, batch_of(family, ROWS), device, monkeypatch)


@pytest.mark.parametrize(("family", "device", "dtype", "more"), SETTINGS)
def test_rows_of_a_setting_have_the_same_bits(
    family: str, device: str, dtype: str, more: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = implementation_for(family, "simt")
    assert model is not None
    rows = batch_of(family, ROWS)
    batch = OpBatch(family, Variant(dtype, **more), rows.dims)
    for state in ("cool", "hot", "boost"):
        taped.forget()
        check(model, batch, find_device(device).in_state(state), monkeypatch)


@pytest.mark.parametrize("family", sorted(ORDINARY))
def test_what_cannot_be_traced_is_answered_by_its_formulas(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = implementation_for(family, "simt")
    assert model is not None
    batch, device = batch_of(family, 5), find_device(case_of(family)[0])
    times = kernel_times(model, batch, device, EVIDENCE)
    assert not answered_by_tapes()
    assert different(ordinary(model, batch, device, monkeypatch), times) == []


def test_sequences_of_their_own_lengths_are_answered_by_formulas() -> None:
    sizes: Any = {"kv_len": (100, 200), "num_heads": 8, "num_kv_heads": 8, "head_dim": 128}
    batch = OpBatch.single(Op.make("attention_decode", **sizes))
    model = implementation_for("attention_decode", "simt")
    assert model is not None
    kernel_times(model, batch, find_device("H100"), EVIDENCE)
    assert not taped._settings.values()


def test_a_tape_is_made_after_a_setting_was_asked_for_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(taped, "REQUESTS", 3)
    model, device = implementation_for("rmsnorm", "simt"), find_device("H100").in_state("boost")
    assert model is not None
    sizes: Any = {"tokens": 16, "hidden": 4096}
    one = OpBatch("rmsnorm", Variant(), sizes, numbers=True)
    made = []
    for _ in range(4):
        kernel_times(model, one, device)
        made.append(answered_by_tapes())
    assert made == [False, False, True, True]


@pytest.mark.skipif(COMPILED, reason="blocks of rows are tested with the core")
def test_blocks_of_rows_have_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taped, "FEW", 1)
    model = implementation_for("rmsnorm", "simt")
    assert model is not None
    check(model, batch_of("rmsnorm", 3), find_device("H100"), monkeypatch)


def test_nothing_is_traced_without_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_core, "runs", lambda: False)
    model = implementation_for("gemm", "simt")
    assert model is not None
    tiers.kernel_times(model, batch_of("gemm", 3), find_device("H100"))
    assert not taped._settings.values()


def test_other_constants_make_other_tapes() -> None:
    """As held-out scores ask for them; neither those before nor those after are of the others."""
    device, evidence = find_device("H100"), Evidence(learned=False)
    op = Op.make("rmsnorm", Variant(), tokens=4096, hidden=4096)
    known, model = load_physics("streaming"), implementation_for("rmsnorm", "simt")
    assert model is not None
    tables = {
        name: {constant: 3.0 * value for constant, value in table.items()}
        for name, table in known.architectures.items()
    }

    def seconds() -> float:
        return float(kernel_times(model, OpBatch.single(op), device, evidence).estimate_s)

    shipped = seconds()
    assert answered_by_tapes()
    with replaced({"streaming": structs.replace(known, architectures=tables)}):
        other = seconds()
        assert other != shipped
        assert answered_by_tapes()
    assert seconds() == shipped
