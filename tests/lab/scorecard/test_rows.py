"""Measured rows: samples, splits by hash, groups of a table, and what is scored of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lab.scorecard.kernel_suite import scored_part
from lab.scorecard.rows import (
    MeasuredRows,
    checksum_one_in,
    held_out,
    joined,
    least_hashed,
    limited,
    newest,
    one_in,
    shares_of,
    version_order,
)
from lab.scorecard.suite import Scored, predicted
from lab.scorecard.tables import (
    Table,
    files_of,
    groups,
    mean_of_repeats,
    median_of_repeats,
    ops,
    read_arrow,
    read_columns,
    read_records,
    read_table,
)
from lab.scorecard.training import ONE_METRIC, metric_of, sources
from silicast.workload.graphs.op import OpBatch, Variant


def rows(device: str, count: int, *, first: int = 16, **words: str) -> MeasuredRows:
    """Products whose held-out rows are every fourth."""
    m = first + np.arange(count, dtype=np.int64)
    batch = OpBatch("gemm", Variant("bf16"), {"m": m, "n": np.full(count, 512), "k": m * 0 + 512})
    seconds = np.arange(count, dtype=np.float64) * 1e-6 + 1e-5
    return MeasuredRows(batch, device, seconds, np.arange(count) % 4 == 0, words)


@pytest.mark.parametrize("held", [True, False])
def test_a_sample_is_of_one_side_of_the_split(held: bool) -> None:
    shares = shares_of([rows("H100", 400), rows("H100", 40)], 44, held=held)
    assert all((part.held_out == held).all() for part in shares)
    assert [len(part.batch) for part in shares] == [40, 4]


@pytest.mark.parametrize("count", [10, 400])
def test_rows_that_are_taken_keep_their_times(count: int) -> None:
    whole = rows("H100", 400)
    for part in (*shares_of([whole], count, held=True), least_hashed(whole, count)):
        for m, seconds in zip(part.batch.dims["m"].tolist(), part.seconds.tolist(), strict=True):
            assert whole.seconds[m - 16] == seconds
    assert len(least_hashed(whole, count)) == count


def test_a_limit_is_shared_by_size_and_cuts_nothing_else() -> None:
    parts = [rows("H100", 300), rows("A100", 2), rows("L40S", 98)]
    result = limited(parts, 40)
    assert sum(len(part) for part in result) == 40
    assert result[0].device == "H100"
    assert len(result[0]) > 20
    assert limited(parts, None) == parts
    assert limited(parts, 400) == parts
    for part in result:
        assert set(part.batch.dims["m"].tolist()) <= set(range(16, 16 + 300))


def test_both_sides_of_a_split_are_all_rows() -> None:
    parts = [rows("H100", 40), rows("A100", 1)]
    held, free = held_out(parts), held_out(parts, False)
    assert sum(len(part) for part in held) == 11
    assert sum(len(part) for part in free) == 30
    assert [part.device for part in free] == ["H100"]


def test_splits_by_hash_never_change() -> None:
    # Moving these would score constants on rows that they were fitted on.
    sizes = np.arange(40)
    assert np.flatnonzero(one_in(5, sizes, sizes + 1, seed=7)).tolist() == HASHED
    assert np.flatnonzero(checksum_one_in(4, "{}/{}", sizes, sizes + 1)).tolist() == SUMMED


def test_the_newest_version_is_told_by_its_numbers() -> None:
    names = ("1.3.0rc9", "1.3.0rc20", "1.2.0")
    parts = [rows("H100", 4, backend="trtllm", version=name) for name in names]
    other = rows("A100", 4, backend="trtllm", version="1.2.0")
    assert [part.words["version"] for part in newest([*parts, other])] == ["1.3.0rc20", "1.2.0"]
    assert version_order("0.5.6.post2") > version_order("0.5.6")


def test_parts_of_one_kernel_are_joined_in_order() -> None:
    (result,) = joined([rows("H100", 3), rows("H100", 2, first=90)])
    assert result.batch.dims["m"].tolist() == [16, 17, 18, 90, 91]
    assert len(result) == 5


def test_repeats_become_their_mean_or_median() -> None:
    sizes = {"m": np.array([2, 1, 2, 2]), "k": np.array([5, 5, 5, 5])}
    micros = np.array([10.0, 4.0, 20.0, 60.0])
    distinct, mean, _ = mean_of_repeats(sizes, micros)
    assert distinct["m"].tolist() == [1, 2]
    assert mean == pytest.approx([4e-6, 30e-6])
    _, median, noise = median_of_repeats(sizes, micros)
    assert median == pytest.approx([4e-6, 20e-6])
    assert np.isnan(noise[0])
    assert noise[1] == pytest.approx((0.5 + 0.0 + 2.0) / 3)


def test_rows_of_a_table_are_grouped_by_words_and_sorted(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = arrow.table({
        "system": ["l40s", "a100_sxm", "b60", "a100_sxm"], "backend": ["vllm"] * 4,
        "version": ["2", "1", "1", "1"], "kernel_source": ["x"] * 4, "dtype": ["fp8", "bf16"] * 2,
        "m": [1, 2, 3, 4], "k": ["8", "16", "8", "32"], "latency_us": [1.0, 2.0, 3.0, 4.0],
    })  # fmt: skip
    (tmp_path / "aiconfigurator").mkdir()
    parquet.write_table(table, tmp_path / "aiconfigurator/toy.parquet")
    toy = Table(
        "toy", ("dtype",), ("m", "k"),
        lambda words, s: ops("gemm", Variant(words["dtype"]), {**s, "n": 7}, s["m"] > 2),
    )  # fmt: skip
    first, second = read_table(tmp_path, toy)
    assert (first.device, second.device) == ("A100-SXM-80GB", "L40S")  # b60 is no known device
    assert first.batch.dims["k"].tolist() == [16, 32]
    assert first.batch.dims["n"].tolist() == [7, 7]
    assert first.held_out.tolist() == [False, True]
    assert first.seconds == pytest.approx([2e-6, 4e-6])
    assert second.words["version"] == "2"
    items = [(words["dtype"], c["m"].tolist()) for words, c in groups(table, ["dtype"], ["m"])]
    assert items == [("bf16", [2, 4]), ("fp8", [1, 3])]


def test_scored_rows_are_microseconds_by_device() -> None:
    parts = [rows("H100", 3), rows("A100", 2)]
    result = Scored.joined(
        "gemm_bf16_us",
        [
            scored_part(
                "gemm_bf16_us", part, predicted(part), lambda _, times: times.bound_s,
                {"architecture": lambda own, _: own.hardware.architecture},
                {"other": part.seconds * 2.0},
            )
            for part in parts
        ],
    )  # fmt: skip
    assert result.measured == pytest.approx([10.0, 11.0, 12.0, 10.0, 11.0])
    assert result.baselines["other"] == pytest.approx(2.0 * result.measured)
    assert result.groups["architecture"].tolist() == ["hopper"] * 3 + ["ampere"] * 2
    assert result.groups["device"].tolist() == ["H100"] * 3 + ["A100"] * 2
    assert result.estimate[:3] == pytest.approx(1e6 * predicted(parts[0]).estimate_s)
    some = result.take(np.array([3, 0]))
    assert some.measured == pytest.approx([10.0, 10.0])
    assert some.groups["device"].tolist() == ["A100", "H100"]


def test_a_peer_that_lacks_a_part_answers_none_of_it() -> None:
    two = np.array([1.0, 2.0])
    known = Scored("x_us", two, two, two, two, peers={"Peer": np.array([3.0, 4.0])})
    result = Scored.joined("x_us", [known, Scored("x_us", two, two, two, two)])
    assert result.peers["Peer"][:2].tolist() == [3.0, 4.0]
    assert np.isnan(result.peers["Peer"][2:]).all()


def test_metrics_tell_formats_apart_but_where_they_are_reported_together() -> None:
    assert metric_of(rows("H100", 1)) == "gemm_bf16_us"
    assert set(sources()) >= ONE_METRIC


HASHED = [0, 3, 5, 11, 14, 24, 30, 38]
SUMMED = [1, 4, 7, 9, 11, 12, 19, 20, 33, 35, 36, 37, 38]


def test_further_rows_of_a_table_are_read_with_it(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for folder, system, m in (("aiconfigurator", "l40s", 1), ("aiconfigurator_2", "b300_sxm", 2)):
        (tmp_path / folder).mkdir()
        column = arrow.array([system]).dictionary_encode()
        parquet.write_table(
            arrow.table({"system": column, "m": [m]}), tmp_path / folder / "toy.parquet"
        )
    table = tmp_path / "aiconfigurator/toy.parquet"
    assert [path.parent.name for path in files_of(table)] == ["aiconfigurator", "aiconfigurator_2"]
    assert [each["system"] for each in read_records(table)] == ["l40s", "b300_sxm"]
    assert read_records(table, system="b300_sxm") == [{"system": "b300_sxm", "m": 2}]
    assert read_columns(table, ["m"])["m"].tolist() == [1, 2]
    items = [
        (words["system"], c["m"].tolist())
        for words, c in groups(read_arrow(table), ["system"], ["m"])
    ]
    assert items == [("b300_sxm", [2]), ("l40s", [1])]
    assert files_of(tmp_path / "pipeweave/toy.parquet") == [tmp_path / "pipeweave/toy.parquet"]
