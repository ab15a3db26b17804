"""`silicast measure` as a whole, with PyTorch on the processor."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from silicast.app.cli import main
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import load_device_file
from silicast.measurement.design.candidates import (
    CANDIDATES,
    MOST_CANDIDATES,
    KernelSelection,
    candidates_of,
)
from silicast.measurement.design.design import MeasurementDesign
from silicast.measurement.machine.cpu_facts import CpuFacts
from silicast.measurement.machine.identify import cpu_machine
from silicast.measurement.records.records import (
    FailedRow,
    HostRow,
    KernelRow,
    MachineConditions,
    RepeatSpread,
    RunRow,
    Session,
    read_measurements,
)
from silicast.measurement.records.store import MeasurementFile
from silicast.measurement.sweeps.budget import seconds_of
from silicast.measurement.sweeps.measure import with_device
from silicast.measurement.sweeps.summary import summary_of

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs PyTorch: pip install 'silicast[torch]'"
)
SILICAST = (sys.executable, "-m", "silicast", "measure", "--device", "cpu")
ZEN3 = cpu_machine(
    CpuFacts("AMD EPYC", "AuthenticAMD", 25, 1, flags=frozenset({"avx2", "fma"}), cores=2,
             memory_bytes=1 << 34)
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "seconds"), [("2m", 120.0), ("1h30m", 5400.0), ("90", 90.0), (" 10M ", 600.0)]
)
def test_durations(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "soon", "2 minutes", "1m30", "-5m", "3s", "99d", "1e9", "nan"]
)
def test_no_durations(text: str) -> None:
    with pytest.raises(SilicastError) as raised:
        seconds_of(text)
    assert raised.value.field == "--budget"


def test_candidates_are_of_what_is_wanted() -> None:
    candidates = candidates_of(ZEN3.machine, KernelSelection(("gemm", "softmax"), ("fp32",)))
    assert {kernel["op"] for kernel in candidates} == {"gemm", "softmax"}
    assert {kernel["dtype"] for kernel in candidates} == {"fp32"}
    assert {kernel["cache"] for kernel in candidates} == {"cold", "warm"}
    assert 2 * CANDIDATES >= len(candidates) > CANDIDATES
    assert candidates == candidates_of(
        ZEN3.machine, KernelSelection(("gemm", "softmax"), ("fp32",))
    )


def test_a_longer_sweep_chooses_from_more() -> None:
    wanted = KernelSelection(("gemm", "softmax"), ("fp32",))
    short, long = (candidates_of(ZEN3.machine, wanted, seconds) for seconds in (60.0, 300.0))
    assert len(short) < len(long) <= 2 * MOST_CANDIDATES
    shares = [[kernel["op"] for kernel in items].count("gemm") for items in (short, long)]
    assert 3 * shares[0] < shares[1]


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (KernelSelection(families=("gem",)), "--families"),
        (KernelSelection(dtypes=("fp3",)), "--dtypes"),
        (KernelSelection(kernels=({"op": "csa_module"},)), "--scenario"),
    ],
)
def test_what_is_not_measured_is_refused(wanted: KernelSelection, field: str) -> None:
    with pytest.raises(SilicastError) as raised:
        candidates_of(ZEN3.machine, wanted)
    assert raised.value.field == field
    assert raised.value.hint


def test_a_chooser_asks_for_what_fits() -> None:
    candidates = candidates_of(ZEN3.machine, KernelSelection(("gemm",)))
    chooser = MeasurementDesign(ZEN3.device, candidates)
    first = chooser.next(60.0)
    assert first in candidates
    assert chooser.next(1e-6) is None or chooser.next(1e-6) == first
    assert first is not None
    chooser.tell(first, 100.0)
    assert chooser.next(1e-6) is None
    second = chooser.next(60.0)
    assert second is not None
    assert second != first
    chooser.failed(second, "out_of_memory")
    assert chooser.next(60.0) not in (first, second)


@needs_torch
def test_a_draft_is_written_once(tmp_path: Path) -> None:
    remarks: list[str] = []
    output = tmp_path / "own.jsonl"
    machine = with_device(ZEN3, output, remarks.append)
    path = tmp_path / "own.device.toml"
    assert machine.named == path.name
    assert machine.device == load_device_file(path)
    assert str(path) in remarks[0]
    before = path.stat().st_mtime_ns
    assert with_device(ZEN3, output, remarks.append).device == machine.device
    assert path.stat().st_mtime_ns == before
    assert len(remarks) == 1
    path.write_text(path.read_text().replace("count = 2", "count = 4"))
    with pytest.raises(SilicastError, match="4 cores"):
        with_device(ZEN3, output, remarks.append)


def test_a_summary_counts_noise_errors_and_doubts(tmp_path: Path) -> None:
    path = tmp_path / "measured.jsonl"
    gemm = {"op": "gemm", "m": 4096, "n": 4096, "k": 4096, "dtype": "bf16"}
    with MeasurementFile.open(path, Session("one", "2026-01-01", device="H100")) as file:
        file.append(
            KernelRow("one", gemm, 1e4, "t1", RepeatSpread(9e3, 1.2e4, 9), flags=["busy"]),
            KernelRow("one", {**gemm, "m": 2048}, 1.0, "t2"),  # faster than light
            KernelRow("one", gemm, 100.0, "t3", name="reference"),
            KernelRow("one", gemm, 110.0, "t4", name="reference"),
            FailedRow("one", {"op": "softmax", "dtype": "fp8"}, "unsupported"),
            FailedRow("one", {"task": "graph"}, "out_of_memory"),
            HostRow("one", "sync", 5.0),
            RunRow("one", {"task": "graph"}, {"e2e_ms": 3.0}, name="vit"),
        )
    summary = summary_of(read_measurements(path), "one", "H100")
    gemms, softmax = summary.families
    assert (gemms.name, gemms.rows, gemms.failed, gemms.faster) == ("gemm bf16", 2, 0, 1)
    assert gemms.noise == pytest.approx(0.15)
    assert gemms.flags == {"busy": 1}
    assert gemms.error is not None
    assert (softmax.rows, softmax.failed, softmax.error) == (0, 1, None)
    assert summary.reasons == {"unsupported": 1, "out_of_memory": 1}
    assert summary.noise == pytest.approx(0.0476, abs=1e-3)
    assert (len(summary.hosts), len(summary.runs), summary.faster) == (1, 1, 1)


@pytest.mark.parametrize(
    ("clocks", "flags", "held"),
    [
        ([1200.0] * 12, [], 1200.0),
        ([1200.0] * 12, ["power_capped"], None),
        ([1200.0] * 3, [], None),
        ([1965.0] * 12, [], None),
        ([1200.0, 1500.0] * 6, [], None),
    ],
)
def test_a_clock_that_stands_still_is_said(
    clocks: list[float], flags: list[str], held: float | None, tmp_path: Path
) -> None:
    path = tmp_path / "measured.jsonl"
    session = Session("one", "2026-01-01", device="H200", machine={"max_clock_mhz": 1980.0})
    with MeasurementFile.open(path, session) as file:
        for number, clock in enumerate(clocks, 1):
            kernel = {"op": "gemm", "m": number, "n": 8, "k": 8, "dtype": "bf16"}
            file.append(
                KernelRow(
                    "one", kernel, 10.0, conditions=MachineConditions(clock_mhz=clock), flags=flags
                )
            )
    assert summary_of(read_measurements(path), "one", "H200").locked_mhz == held


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--budget", "2s", "-o", "{}/a.jsonl"], "too short"),
        (["--families", "gem", "-o", "{}/a.jsonl"], "gemm"),
        (["--families", ",", "-o", "{}/a.jsonl"], "--families"),
        (["--device", "h1000", "-o", "{}/a.jsonl"], "h1000"),
        (["--device", "cuda:7", "-o", "{}/a.jsonl"], "GPU"),
        (["-o", "{}/none/a.jsonl"], "does not exist"),
        (["-o", "{}/a.toml"], "JSON Lines"),
        ([], "--output"),
    ],
)
@needs_torch
def test_bad_input_is_named(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = [argument.replace("{}", str(tmp_path)) for argument in arguments]
    device = [] if "--device" in told else ["--device", "cpu"]
    assert main(["measure", *told, *device]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == []


def test_a_plan_needs_nothing_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["measure", "--plan", "--device", "cpu", "--budget", "10s", "--models"]
    assert main([*arguments, "--families", "softmax"]) == 0
    out = capsys.readouterr().out
    assert "softmax fp32" in out
    assert "whole models" in out
    assert list(tmp_path.iterdir()) == []


def measured_until(path: Path, lines: int) -> tuple[str, str]:
    """Runs the command until the file has so many lines more, and ends it by a signal."""
    wanted = lines + (path.read_bytes().count(b"\n") if path.exists() else 0)
    command = [*SILICAST, "-o", str(path), "--budget", "10m", "--families", "softmax"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 240.0
    while time.monotonic() < deadline and child.poll() is None:
        if path.exists() and path.read_bytes().count(b"\n") >= wanted:
            break
        time.sleep(0.05)
    os.kill(child.pid, signal.SIGTERM)
    out, error = child.communicate(timeout=240.0)
    assert child.returncode == 130, error
    return out, error


@needs_torch
def test_a_signal_ends_it_cleanly_and_it_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    out, _ = measured_until(path, 6)
    assert "SIGTERM" in out
    assert "softmax fp32" in out
    measurements = read_measurements(path)
    assert measurements.notes == ()
    assert {row.kernel["op"] for row in measurements.kernels} == {"softmax", "gemm"}
    assert measurements.hosts
    (session,) = measurements.sessions
    assert session.protocol is not None
    assert "torch" in session.stack
    if session.device.endswith(".toml"):
        load_device_file(tmp_path / session.device)

    _, error = measured_until(path, 2)
    assert "continues after" in error
    again = read_measurements(path)
    assert again.sessions == (session,)
    assert again.hosts == measurements.hosts
    assert again.kernels[: len(measurements.kernels)] == measurements.kernels
    assert len(again.kernels) >= len(measurements.kernels) + 2
