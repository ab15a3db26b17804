"""Advice: what it names, in which order, and what it expects."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import msgspec
import pytest

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.learning.dispatch import time_of
from silicast.measurement.calibrating.scoring import trial_folder
from silicast.measurement.calibrating.variance_reduction import MeasuredOp
from silicast.measurement.records.records import KernelRow, Session
from silicast.measurement.sweeps.advice import Advice, _calibrated, advise, interval
from silicast.report.measurements.advice import advice_parts, pasted
from silicast.scenario.kernels.kernel_case import kernel_case

MODEL = """
task = "inference"
device = "L40S"
model = "Llama-3.1-8B"
[workload]
batch = 4
input_len = 512
output_len = 64
"""
SPREAD = """
task = "inference"
device = "B300"
model = "Llama-3.1-70B"
parallel = {tp = 4}
[workload]
batch = 4
input_len = 512
output_len = 64
"""
KERNEL = """
task = "kernel"
device = "B300"
kernel = {op = "gemm", m = 8, n = 4096, k = 4096}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "model.toml"
    path.write_text(MODEL)
    return path


def _sds(advice: Advice) -> list[float]:
    return [advice.log_sd, *(step.log_sd for step in advice.steps)]


def test_each_step_narrows_the_interval(scenario: Path) -> None:
    result = advise(scenario)
    assert result.metric == "total_ms"
    sds = _sds(result)
    assert len(sds) >= 3
    assert all(after < before for before, after in itertools.pairwise(sds))
    assert result.after == sds[-1]
    tables = [step.what for step in result.steps if step.kind == "kernel"]
    assert len({kernel_case(table).op for table in tables}) == len(tables)


def test_the_first_step_is_the_best_of_all(scenario: Path) -> None:
    result = advise(scenario)
    drops = [before**2 - after**2 for before, after in itertools.pairwise(_sds(result))]
    # each is the best that is left; what families share may make a later one worth more
    assert drops[0] >= 0.7 * max(drops)


def test_all_kernels_measured_leave_what_the_answer_says(scenario: Path) -> None:
    from silicast.scenario.run import run_file

    why = run_file(scenario).why["uncertainty"]["total_ms"]
    least = min(each["log_sd"] for each in why["would_narrow"])
    result = advise(scenario, top=50)
    assert least <= result.after < 0.5 * (result.log_sd + least)


def test_fewer_steps_are_the_first_ones_and_a_budget_is_kept(scenario: Path) -> None:
    whole = advise(scenario)
    assert advise(scenario, top=2).steps == whole.steps[:2]
    short = advise(scenario, budget="5s")
    assert 0.0 < short.seconds <= 5.0
    assert short.after < short.log_sd


def test_host_and_links_are_named_where_they_matter(tmp_path: Path) -> None:
    path = tmp_path / "spread.toml"
    path.write_text(SPREAD)
    result = advise(path, top=30)
    kinds = {step.kind for step in result.steps}
    assert "collective" in kinds
    (first, *_) = [step.what for step in result.steps if step.kind == "collective"]
    assert first["gpus"] == 4
    small = tmp_path / "small.toml"
    small.write_text('task = "graph"\ndevice = "A100-SXM-80GB"\nmodel = "gpt2"\n'
                     '[workload]\nmode = "inference"\nbatch = 1\nseq_len = 16\n')  # fmt: skip
    (host,) = [step for step in advise(small).steps if step.kind == "host"]
    assert "dispatch" in host.what["quantity"]


def test_a_kernel_is_best_measured_itself(tmp_path: Path) -> None:
    path = tmp_path / "kernel.toml"
    path.write_text(KERNEL)
    result = advise(path)
    assert [step.what["m"] for step in result.steps] == [8]
    assert result.after < 0.5 * result.log_sd
    assert interval(result.estimate, result.log_sd)[0] < result.estimate


def test_what_was_measured_is_not_asked_for_first(scenario: Path, tmp_path: Path) -> None:
    before = advise(scenario)
    first = next(step.what for step in before.steps if step.kind == "kernel")
    device = find_device("L40S")
    rows = []
    for scale in (1, 2, 3, 4):
        table = dict(first)
        name = next(n for n in ("m", "tokens", "batch") if n in table)
        table[name] *= scale
        seconds = 1.1 * time_of(kernel_case(table).op, device).estimate_s
        rows.append(KernelRow("s", table, seconds * 1e6))
    file = tmp_path / "measured.jsonl"
    records = [Session("s", "2026-01-01T00:00:00Z", device="L40S"), *rows]
    file.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    after = advise(scenario, measured=[file])
    assert after.log_sd < before.log_sd
    assert not after.steps or after.steps[0].what != first


def test_another_device_can_be_asked_about(scenario: Path) -> None:
    result = advise(scenario, device="H20")
    assert result.device.startswith("H20")
    assert result.estimate != advise(scenario).estimate


def test_what_cannot_be_answered_is_said(scenario: Path, tmp_path: Path) -> None:
    for problem, remarks in (
        ({"top": 0}, "1 or more"), ({"budget": "soon"}, "a duration"), ({"metric": "x"}, "'x'"),
    ):  # fmt: skip
        with pytest.raises(SilicastError, match=remarks):
            advise(scenario, **problem)
    with pytest.raises(SilicastError, match="cannot read"):
        advise(tmp_path / "none.toml")
    other = tmp_path / "collective.toml"
    other.write_text('task = "collective"\ndevice = "H100"\n'
                     '[workload]\nop = "all_reduce"\nbytes = 1024\ngpus = 2\n')  # fmt: skip
    with pytest.raises(SilicastError, match="task collective"):
        advise(other)


def test_it_is_told_in_lines_that_can_be_pasted(scenario: Path) -> None:
    import tomllib

    result = advise(scenario, top=6)
    first, *_ = advice_parts(result)
    assert str(first).startswith("total_ms on L40S: ")
    for step, line in zip(result.steps, pasted(result), strict=True):
        if step.kind == "kernel":
            assert tomllib.loads(line)["kernel"] == step.what
    assert math.isfinite(result.seconds)


def test_what_is_expected_of_some_kernels_is_what_their_calibration_leaves(
    scenario: Path, tmp_path: Path
) -> None:
    requested = advise(scenario, top=2)
    device = find_device("L40S")
    rows = []
    for step in requested.steps:
        assert step.kind == "kernel"
        seconds = 1.03 * time_of(kernel_case(step.what).op, device).estimate_s
        rows.append(KernelRow("s", step.what, seconds * 1e6))
    file = tmp_path / "measured.jsonl"
    records = [Session("s", "2026-01-01T00:00:00Z", device="L40S"), *rows]
    file.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    left = advise(scenario, measured=[file]).log_sd
    assert 0.85 * requested.after < left < 1.05 * requested.after


def test_tables_count_as_measured_and_bad_rows_do_not(scenario: Path, tmp_path: Path) -> None:
    requested = [step.what for step in advise(scenario, top=6).steps if step.kind == "kernel"]
    device = find_device("L40S")
    names = sorted({name for table in requested for name in table})
    lines = [",".join([*names, "latency_us"])]
    for table in requested:
        us = 1.05e6 * time_of(kernel_case(table).op, device).estimate_s
        lines.append(",".join([*(str(table.get(name, "")) for name in names), repr(us)]))
    file = tmp_path / "measured.csv"
    file.write_text("\n".join(lines) + "\n")
    after = advise(scenario, measured=[file])
    assert after.log_sd < advise(scenario).log_sd
    assert {op for op, _ in _known(file)} == {kernel_case(table).op for table in requested}
    flagged = tmp_path / "flagged.jsonl"
    requested += [{"op": "gemm", "m": m, "n": 4096, "k": 4096} for m in (8, 64, 512)]
    first, second = requested[:2]
    each_us = [1e6 * time_of(kernel_case(table).op, device).estimate_s for table in requested]
    records = [
        Session("s", "2026-01-01T00:00:00Z", device="L40S"),
        KernelRow("s", first, each_us[0], flags=["throttled"]),
        *(
            KernelRow("s", table, time)
            for table, time in zip(requested[2:], each_us[2:], strict=True)
        ),
        KernelRow("s", second, 1e3 * each_us[1]),
    ]
    flagged.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    assert {op for op, _ in _known(flagged)} == {kernel_case(table).op for table in requested[2:]}


def _known(file: Path) -> list[MeasuredOp]:
    with trial_folder() as folder:
        return _calibrated([file], find_device("L40S"), folder)[1]


@pytest.mark.parametrize(
    ("task", "engine", "device", "wanted"),
    [
        ("inference", "vllm", "A100-SXM-80GB", {"step", "request"}),
        ("inference", "", "A100-SXM-80GB", {"step", "request"}),
        ("graph", "torch-eager", "A100-SXM-80GB", {"dispatch", "graph_launch", "round_trip"}),
        ("graph", "torch-eager", "AMD-EPYC-9654", {"between"}),
    ],
)
def test_an_engine_is_asked_for_what_it_has(
    tmp_path: Path, task: str, engine: str, device: str, wanted: set[str]
) -> None:
    work = (
        'mode = "inference"\nbatch = 1\nseq_len = 16\n' if task == "graph"
        else "batch = 1\ninput_len = 16\noutput_len = 4\n"
    )  # fmt: skip
    named = f'engine = "{engine}"\n' if engine else ""
    path = tmp_path / "s.toml"
    path.write_text(
        f'task = "{task}"\ndevice = "{device}"\nmodel = "gpt2"\n{named}[workload]\n{work}'
    )
    steps = advise(path, top=40).steps
    for step in steps:
        if step.kind == "host":
            assert set(step.what["quantity"]) == wanted
    assert any(step.kind == "host" for step in steps)
