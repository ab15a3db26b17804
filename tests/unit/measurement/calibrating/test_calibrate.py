"""Tables of measured kernels into calibrations: what is learned, and what is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from silicast.app.api import predict
from silicast.core.calibration import save_calibration
from silicast.core.errors import SilicastError
from silicast.measurement.calibrating.calibrate import calibrate

SHAPES = [
    {"op": "gemm", "m": m, "n": n, "k": k}
    for m in (16, 128, 512, 2048)
    for n in (1024, 4096, 8192)
    for k in (1024, 4096, 16384)
]


def predicted(kernel: dict[str, Any], **more: Any) -> Any:
    return predict({"task": "kernel", "device": "H100", "workload": {"kernel": kernel}, **more})


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows(factor: float = 1.4) -> list[dict[str, Any]]:
    """What a device would give on which every product takes ``factor`` times as long."""
    return [
        {**shape, "latency_us": factor * predicted(shape).metrics["latency_us"].estimate}
        for shape in SHAPES
    ]


def test_it_comes_to_what_was_measured(tmp_path: Path) -> None:
    result = calibrate(written(tmp_path / "rows.jsonl", rows()), "H100")
    (offset,) = result.calibration.offsets
    assert (offset.family, offset.dtype, offset.rows) == ("gemm", "bf16", len(SHAPES))
    path = tmp_path / "h100.json"
    save_calibration(result.calibration, path)
    other = {"op": "gemm", "m": 256, "n": 2048, "k": 2048}  # not measured itself
    before, after = predicted(other), predicted(other, calibration=str(path))
    assert after.tier == "calibrated"
    ratio = after.metrics["latency_us"].estimate / before.metrics["latency_us"].estimate
    assert ratio == pytest.approx(1.4, rel=0.06)
    width = after.metrics["latency_us"].p95 / after.metrics["latency_us"].p05
    assert width < before.metrics["latency_us"].p95 / before.metrics["latency_us"].p05
    again = predicted(SHAPES[5], calibration=str(path)).metrics["latency_us"].estimate
    assert again == pytest.approx(rows()[5]["latency_us"], rel=0.02)


def test_a_lower_tier_leaves_it_out(tmp_path: Path) -> None:
    path = tmp_path / "h100.json"
    table = written(tmp_path / "rows.jsonl", rows())
    save_calibration(calibrate(table, "H100").calibration, path)
    kernel = SHAPES[0]
    analytic = predicted(kernel, calibration=str(path), tier="analytic")
    assert analytic.tier == "analytic"
    assert analytic.metrics == predicted(kernel, tier="analytic").metrics


def test_far_from_what_was_measured_it_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "h100.json"
    few = [row for row in rows() if row["m"] >= 512]
    save_calibration(calibrate(written(tmp_path / "r.jsonl", few), "H100").calibration, path)
    far = {"op": "gemm", "m": 1, "n": 64, "k": 64}
    before, after = predicted(far), predicted(far, calibration=str(path))
    assert after.tier == before.tier
    assert after.metrics == before.metrics


def test_whole_models_take_it(tmp_path: Path) -> None:
    path = tmp_path / "h100.json"
    every = [
        {"op": "gemm", "m": m, "n": n, "k": k}
        for m in (1, 8, 64, 512, 4096)
        for n in (512, 4096, 28672)
        for k in (1024, 4096, 14336)
    ]
    table = [
        {**shape, "latency_us": 2.0 * predicted(shape).metrics["latency_us"].estimate}
        for shape in every
    ]
    save_calibration(calibrate(written(tmp_path / "r.jsonl", table), "H100").calibration, path)
    requested: dict[str, Any] = {
        "task": "inference", "device": "H100", "model": "Llama-3.1-8B",
        "workload": {"batch": 8, "input_len": 256, "output_len": 8},
    }  # fmt: skip
    plain, current = predict(requested), predict({**requested, "calibration": str(path)})
    assert current.tier == "calibrated"
    ratio = current.metrics["prefill_ms"].estimate / plain.metrics["prefill_ms"].estimate
    assert 1.6 < ratio < 2.1


def test_csv_in_other_units(tmp_path: Path) -> None:
    lines = ["op,m,n,k,latency_ms"]
    lines += [f"gemm,{r['m']},{r['n']},{r['k']},{r['latency_us'] / 1e3!r}" for r in rows()]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines) + "\n")
    (offset,) = calibrate(path, "H100").calibration.offsets
    assert offset.log_offset == pytest.approx(0.3365, abs=0.05)


BAD = {
    "contradicts the others": lambda r: {**r, "latency_us": r["latency_us"] * 50.0},
    "another unit": lambda r: {**r, "latency_us": r["latency_us"] * 1000.0},
    "faster than the device": lambda r: {**r, "latency_us": r["latency_us"] / 30.0},
    "no time above 0": lambda r: {**r, "latency_us": -1.0},
    "no latency_us": lambda r: {k: v for k, v in r.items() if k != "latency_us"},
    "several times": lambda r: {**r, "latency_ms": 1.0},
    "another device": lambda r: {**r, "device": "A100"},
    "not understood: kernel.op": lambda r: {**r, "op": "gem"},
    "not understood: kernel.m": lambda r: {**r, "m": 0},
}


@pytest.mark.parametrize("reason", BAD)
def test_a_row_that_cannot_be_right_is_named(tmp_path: Path, reason: str) -> None:
    good = rows()
    bad = [*good[:30], BAD[reason](good[30]), *good[31:]]
    path = written(tmp_path / "rows.jsonl", bad)
    with pytest.raises(SilicastError) as caught:
        calibrate(path, "H100")
    text = str(caught.value)
    assert reason in text
    assert "1 row " in text
    assert "row 31" in text
    assert str(path) in text
    result = calibrate(path, "H100", skip_bad=True)
    assert result.rejected.count == 1
    assert sum(offset.rows for offset in result.calibration.offsets) == len(good) - 1


def test_copies_are_named_and_counted_once(tmp_path: Path) -> None:
    good = rows()
    path = written(tmp_path / "rows.jsonl", [*good, *good[:7]])
    with pytest.raises(SilicastError, match=r"7 rows are copies of other rows.*rows 37-43"):
        calibrate(path, "H100")
    (offset,) = calibrate(path, "H100", skip_bad=True).calibration.offsets
    assert offset.rows == len(good)


def test_numbered_repeats_are_no_copies(tmp_path: Path) -> None:
    twice = [{**row, "run": run} for row in rows() for run in (1, 2)]
    (offset,) = calibrate(written(tmp_path / "r.jsonl", twice), "H100").calibration.offsets
    assert offset.rows == len(twice)
    assert {repeat.rows for repeat in offset.repeats} == {2}


def test_a_bad_row_does_not_blame_its_good_twin(tmp_path: Path) -> None:
    good = rows()
    wild = {**good[3], "latency_us": good[3]["latency_us"] * 1000.0}
    with pytest.raises(SilicastError) as caught:
        calibrate(written(tmp_path / "rows.jsonl", [*good, wild]), "H100")
    assert "1 row is 300 times off" in str(caught.value)
    assert "repeat" not in str(caught.value)


def test_every_row_in_another_unit_is_refused(tmp_path: Path) -> None:
    for factor in (1e-3, 1e3):
        table = [{**row, "latency_us": row["latency_us"] * factor} for row in rows()]
        with pytest.raises(SilicastError, match=f"{len(table)} rows are 300 times off"):
            calibrate(written(tmp_path / "rows.jsonl", table), "H100")


def test_contradictions_are_named(tmp_path: Path) -> None:
    good = rows()
    other = {**good[3], "latency_us": good[3]["latency_us"] * 2.5}
    path = written(tmp_path / "rows.jsonl", [*good, other])
    with pytest.raises(SilicastError, match="2 rows repeat an op"):
        calibrate(path, "H100")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.txt", "m\n1\n", "unknown kind"),
        ("x.csv", "", "no rows"),
        ("x.csv", "a,b\n1,2,3\n", "more cells"),
        ("x.csv", "op;m;n\ngemm;1;2\n", "not separated by commas"),
        ("x.csv", "op,m,M\ngemm,1,2\n", "'m' twice"),
        ("x.jsonl", "{\n", "no JSON"),
        ("x.jsonl", "[1]\n", "is no JSON object"),
        ("x.jsonl", '{"a": 1}\n[1]\n', "row 2: expected an object"),
        ("x.parquet", "PAR", "Parquet"),
    ],
)
def test_a_table_that_cannot_be_read(tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(SilicastError, match=said) as caught:
        calibrate(tmp_path / name, "H100")
    assert name in str(caught.value)


def test_no_such_table(tmp_path: Path) -> None:
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        with pytest.raises(SilicastError, match="cannot read"):
            calibrate(tmp_path / name, "H100")


def test_capitals_in_a_header_do_not_count(tmp_path: Path) -> None:
    lines = ["OP,M,N,K,Latency_us"]
    lines += [f"gemm,{r['m']},{r['n']},{r['k']},{r['latency_us']!r}" for r in rows()]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines) + "\n")
    (offset,) = calibrate(path, "H100").calibration.offsets
    assert offset.rows == len(SHAPES)


def test_few_rows_move_physical_quantities_many_learn_the_rest(tmp_path: Path) -> None:
    """Memory a third slower: kernels that wait for it get slower, others stay."""
    few: list[dict[str, Any]] = [
        {"op": "gemm", "m": m, "n": n, "k": k}
        for m in (1, 4, 2048, 8192)
        for n in (2048, 8192)
        for k in (4096, 8192)
    ]
    table = [
        {**shape, "latency_us": (1.33 if shape["m"] <= 4 else 1.0)
         * predicted(shape).metrics["latency_us"].estimate}
        for shape in few
    ]  # fmt: skip
    path = tmp_path / "c.json"
    calibration = calibrate(written(tmp_path / "r.jsonl", table), "H100").calibration
    (offset,) = calibration.offsets
    assert offset.correction is None
    assert offset.interpolation is not None
    assert offset.interpolation.trend["share:dram"] > offset.interpolation.trend["share:tensor"]
    save_calibration(calibration, path)

    def moved(kernel: dict[str, Any]) -> float:
        after = predicted(kernel, calibration=str(path)).metrics["latency_us"].estimate
        return float(after / predicted(kernel).metrics["latency_us"].estimate)

    assert moved({"op": "gemm", "m": 2, "n": 4096, "k": 4096}) > 1.15
    assert 0.9 < moved({"op": "gemm", "m": 4096, "n": 4096, "k": 4096}) < 1.12


def test_rows_without_a_library_and_with_one_speak_for_each_other(tmp_path: Path) -> None:
    """Engines leave libraries out when they ask for a model's kernels."""
    named = [{**row, "library": "vllm"} for row in rows()]
    path = tmp_path / "c.json"
    table = written(tmp_path / "r.jsonl", named)
    save_calibration(calibrate(table, "H100").calibration, path)
    plain = {"op": "gemm", "m": 256, "n": 2048, "k": 2048}
    assert predicted(plain, calibration=str(path)).tier == "calibrated"
    other = {**plain, "library": "trtllm"}
    assert predicted(other, calibration=str(path)).tier != "calibrated"


def test_groups_of_rows_and_batches_of_products_are_two_ops(tmp_path: Path) -> None:
    """A measured group says nothing of one batch of the same sizes by its own time."""
    batch = {"op": "gemm", "m": 64, "n": 1024, "k": 1024, "batch": 8}
    group = {**batch, "variant": "grouped_mm"}
    table = [
        {**kernel, "latency_us": factor * predicted(kernel).metrics["latency_us"].estimate}
        for kernel, factor in ((batch, 1.0), (group, 1.8))
    ]
    path = tmp_path / "c.json"
    calibration = calibrate(written(tmp_path / "r.jsonl", [*rows(1.0), *table]), "H100").calibration
    (offset,) = calibration.offsets
    assert len(offset.repeats) == len(SHAPES) + 2
    save_calibration(calibration, path)
    moved = [
        predicted(kernel, calibration=str(path)).metrics["latency_us"].estimate
        / predicted(kernel).metrics["latency_us"].estimate
        for kernel in (batch, group)
    ]
    assert moved[0] == pytest.approx(1.0, abs=0.05)
    assert moved[1] > 1.2
