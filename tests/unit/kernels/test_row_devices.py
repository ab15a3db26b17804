"""Rows with a clock each are the same bits as rows analysed alone at their clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from silicast.hardware.catalog import find_device
from silicast.kernels.implementation import Analysis
from silicast.kernels.in_blocks import field_names
from silicast.kernels.physics.energy import above_static_at, above_static_j
from silicast.kernels.physics.power import top_hz
from silicast.kernels.registry import implementation_for
from silicast.kernels.row_devices import ROWS_OF_CLOCKS, RowDevices
from silicast.workload.graphs.op import Op, OpBatch, Variant

H100 = find_device("H100")
SHARES = (0.93, 0.61, 0.37, 0.82)
ROW = np.array([2, 0, 3, 1, 0, 2])
HEADS: dict[str, Any] = {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128}
OPS: dict[str, list[Op]] = {
    "gemm": [Op.make("gemm", m=m, n=4096, k=k) for m, k in ((1, 64), (64, 4096), (900, 512))],
    "gemm fp8": [Op.make("gemm", Variant("fp8"), m=m, n=4096, k=4096) for m in (3, 700)],
    "rmsnorm": [Op.make("rmsnorm", tokens=n, hidden=4096) for n in (1, 100, 9000)],
    "silu_mul": [Op.make("silu_mul", tokens=n, width=8192) for n in (1, 5000)],
    "attention_prefill": [
        Op.make("attention_prefill", q_lens=n, kv_lens=n, **HEADS)
        for n in ((512, 9, 77), (3000,), (64, 64))
    ],
    "attention_decode": [
        Op.make("attention_decode", kv_lens=n, **HEADS) for n in ((5, 600, 77), (9000,))
    ],
    "moe": [
        Op.make("moe", tokens=n, experts=64, topk=8, hidden=2048, intermediate=768)
        for n in (1, 30, 4000)
    ],
}


def clocks(rows: np.ndarray) -> RowDevices:
    return RowDevices(tuple(H100.at_clock(H100.clocks.boost_hz * x) for x in SHARES), rows)


def batch_of(name: str) -> OpBatch:
    ops = OPS[name]
    return OpBatch.from_ops([ops[number % len(ops)] for number in range(len(ROW))])


def numbers(value: Any, row: int) -> Any:
    """The numbers of one row of a record; labels aside."""
    if isinstance(value, np.ndarray):
        return value[row]
    if isinstance(value, Mapping):
        return {name: numbers(each, row) for name, each in value.items()}
    if names := field_names(value):
        return {n: numbers(getattr(value, n), row) for n in names if n != "choice"}
    return value


@pytest.mark.parametrize("name", OPS)
def test_rows_with_clocks_of_their_own_are_those_of_each_clock_alone(name: str) -> None:
    batch, current = batch_of(name), clocks(ROW)
    model = implementation_for(batch.family, "simt")
    assert model is not None
    together = model.analysed_at(batch, current)
    for row, number in enumerate(ROW.tolist()):
        alone = model.analysed(batch.rows(np.array([row])), current.devices[number])
        assert numbers(together, row) == numbers(alone, 0)
    slow, quick = numbers(together, 0)["time_s"], numbers(together, 1)["time_s"]
    assert slow != quick


@pytest.mark.parametrize("name", ["gemm", "rmsnorm"])
def test_rows_above_the_boost_clock_are_those_of_each_clock_alone(name: str) -> None:
    card, batch = find_device("RTX 4090"), batch_of(name)
    held = tuple(card.at_clock(top_hz(card) * x) for x in (1.0, 0.97, 0.9, 0.8))
    model = implementation_for(batch.family, "simt")
    assert model is not None
    together = model.analysed_at(batch, RowDevices(held, ROW))
    for row, number in enumerate(ROW.tolist()):
        alone = model.analysed(batch.rows(np.array([row])), held[number])
        assert numbers(together, row) == numbers(alone, 0)


def test_rows_of_one_table_of_clocks_keep_the_format_of_each_batch() -> None:
    card = find_device("A100-SXM-80GB")
    held = tuple(card.at_clock(card.clocks.boost_hz * x) for x in SHARES)
    current, model = RowDevices(held, ROW), implementation_for("gemm", "simt")
    assert model is not None
    for name in ("gemm", "gemm fp8", "gemm"):  # an A100 computes fp8 in a wider format
        batch = batch_of(name)
        together = model.analysed_at(batch, current.rows(np.arange(len(ROW))))
        alone = model.analysed(batch.rows(np.array([0])), held[ROW[0]])
        assert numbers(together, 0) == numbers(alone, 0)


def test_many_rows_are_cut_and_stay_the_same() -> None:
    count = ROWS_OF_CLOCKS + 7
    batch = OpBatch.from_ops([Op.make("gemm", m=1 + n % 90, n=512, k=512) for n in range(count)])
    rows = np.arange(count) % len(SHARES)
    model = implementation_for("gemm", "simt")
    assert model is not None
    together: Analysis = model.analysed_at(batch, clocks(rows))
    for row in (0, ROWS_OF_CLOCKS - 1, ROWS_OF_CLOCKS, count - 1):
        device = clocks(rows).devices[rows[row]]
        alone = model.analysed(batch.rows(np.array([row])), device)
        assert together.time_s[row] == alone.time_s[0]


@pytest.mark.parametrize("name", ["gemm", "rmsnorm", "attention_prefill"])
def test_energy_of_rows_is_that_of_each_clock_alone(name: str) -> None:
    batch, current = batch_of(name), clocks(ROW)
    model = implementation_for(batch.family, "simt")
    assert model is not None
    times = model.times(batch, H100.in_state("boost"))
    together = above_static_at(times, batch, current)
    assert together is not None
    for row, number in enumerate(ROW.tolist()):
        alone = above_static_j(times, batch, current.devices[number])
        assert alone is not None
        assert together[row] == alone[row]


def test_records_side_by_side() -> None:
    current = clocks(np.array([1, 1, 0, 3]))
    hz = [device.clocks.boost_hz for device in current.devices]
    columns = {hz[0]: np.array([[1.0], [2.0]]), hz[1]: np.array([[3.0], [4.0]])}
    shared = np.array([7.0, 8.0])

    def record(device: Any) -> dict[str, Any]:
        other = columns.get(device.clocks.boost_hz, np.array([[5.0], [6.0]]))
        return {"clock": device.clocks.boost_hz, "cores": device.cores, "k": other, "same": shared}

    result = current.beside(record)
    assert result["clock"].tolist() == [hz[1], hz[1], hz[0], hz[3]]
    assert result["cores"] == H100.cores
    assert result["k"].tolist() == [[3.0, 3.0, 1.0, 5.0], [4.0, 4.0, 2.0, 6.0]]
    assert result["same"] is shared


def test_what_has_no_columns_is_refused() -> None:
    with pytest.raises(TypeError, match="str differs by the clock"):
        clocks(ROW).beside(lambda device: str(device.clocks.boost_hz))
