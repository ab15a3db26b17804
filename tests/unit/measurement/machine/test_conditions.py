"""State of the machine: Linux's counters, nvidia-smi's lines, and flags made of them."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from silicast.measurement.machine.conditions import (
    ASKED_EVERY_S,
    MachineMonitor,
    busy_s,
    core_mhz,
    temperature_c,
    watch_of,
)
from silicast.measurement.machine.measured_machine import MeasuredMachine
from silicast.measurement.machine.nvidia_smi import (
    FIELDS,
    Sampler,
    SmiLine,
    other_processes,
    query_of,
    reading_of,
)


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def stat(root: Path, user: int, steal: int = 0) -> None:
    write(root, "proc/stat", f"cpu  {user} 0 100 5000 10 0 0 {steal} 0 0\ncpu0 1 1 1 1\n")


@pytest.mark.parametrize(
    ("user", "steal", "own", "load", "flags"),
    [
        (1200, 0, 2.0, 0.0, []),  # all that ran was ours
        (1200, 0, 0.5, 1.5, ["busy"]),
        (1000, 150, 0.0, 1.5, ["busy"]),  # the hypervisor gave it to others
        (1010, 0, 0.0, 0.1, []),
    ],
)
def test_load_is_what_others_compute(
    tmp_path: Path, user: int, steal: int, own: float, load: float, flags: list[str]
) -> None:
    stat(tmp_path, 1000)
    times, owns = iter((10.0, 11.0)), iter((4.0, 4.0 + own))
    watch = MachineMonitor(tmp_path, lambda: next(times), lambda: next(owns))
    with watch:
        stat(tmp_path, user, steal)
    conditions, result = watch.read()
    assert conditions.load == pytest.approx(load)
    assert result == flags


def test_a_span_shorter_than_the_counters_step_says_nothing(tmp_path: Path) -> None:
    stat(tmp_path, 1000)
    times = iter((10.0, 10.01))
    watch = MachineMonitor(tmp_path, lambda: next(times), lambda: 0.0)
    with watch:
        stat(tmp_path, 1010)
    assert watch.read()[0].load is None


def test_without_linux_nothing_is_known(tmp_path: Path) -> None:
    watch = MachineMonitor(tmp_path)
    with watch:
        pass
    conditions, flags = watch.read()
    assert (conditions.load, conditions.clock_mhz, conditions.temperature_c) == (None, None, None)
    assert flags == []
    assert busy_s(tmp_path) is None


def test_clocks_are_the_drivers_or_else_what_cpuinfo_says(tmp_path: Path) -> None:
    write(tmp_path, "proc/cpuinfo", "cpu MHz\t\t: 2000.0\n\ncpu MHz\t\t: 3000.0\n")
    assert core_mhz(tmp_path) == 2500.0
    for cpu, khz in enumerate((3_000_000, 3_400_000)):
        write(tmp_path, f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq", f"{khz}\n")
    assert core_mhz(tmp_path) == 3200.0


def test_the_hottest_zone_counts(tmp_path: Path) -> None:
    write(tmp_path, "sys/class/thermal/thermal_zone0/temp", "41000\n")
    write(tmp_path, "sys/class/thermal/thermal_zone1/temp", "63500\n")
    assert temperature_c(tmp_path) == 63.5


def test_this_machine_is_read_without_an_error() -> None:
    watch = watch_of(MeasuredMachine("cpu", "", None, 1, 1))
    with watch:
        time.sleep(0.06)
    conditions, _ = watch.read()
    assert conditions.load is None or conditions.load >= 0.0
    watch.close()


def test_a_line_with_gaps() -> None:
    assert reading_of("210, 405, [N/A], 31, 0x0000000000000001") == SmiLine(
        210.0, 405.0, None, 31.0, 1
    )
    assert reading_of("Unable to determine the device handle") == SmiLine()


class FakeSmi:
    """nvidia-smi of a driver that knows some fields."""

    def __init__(self, unknown: str = "", apps: str = "") -> None:
        self.unknown, self.apps = unknown, apps

    def __call__(self, arguments: Sequence[str]) -> str:
        if arguments[0].startswith("--query-compute-apps"):
            return self.apps
        known = not self.unknown or self.unknown not in arguments[0]
        return "1980, 3201, 100.0, 40, 0x0\n" if known else ""


def test_older_drivers_call_the_reasons_otherwise() -> None:
    assert "clocks_event_reasons.active" in query_of("0", FakeSmi())[0]
    assert "clocks_throttle_reasons.active" in query_of("0", FakeSmi("clocks_event"))[0]
    assert query_of("0", FakeSmi("reasons"))[0] == f"--query-gpu={','.join(FIELDS)}"
    assert query_of("0", lambda _: "") == ()


@pytest.mark.parametrize(
    ("apps", "others"),
    [
        ("", ()),
        ("77, python\n", ()),
        ("77, python\n99, trainer\n", ("trainer (99)",)),
        ("12345, python\n", ()),  # this process, numbered otherwise in a container
        ("12345, python\n99, trainer\n", ("python (12345)", "trainer (99)")),
    ],
)
def test_other_processes_are_told_from_this_one(apps: str, others: tuple[str, ...]) -> None:
    assert other_processes("0", FakeSmi(apps=apps), process=77) == others


def sampler_of(tmp_path: Path, lines: Sequence[str]) -> Sampler:
    """A sampler that follows a program which writes lines and waits, as nvidia-smi does."""
    program = textwrap.dedent(f"""
        import time
        for line in {list(lines)!r}:
            print(line, flush=True)
        time.sleep(60)
    """)
    path = tmp_path / "smi.py"
    path.write_text(program, encoding="utf-8")
    sampler = Sampler("0", [sys.executable, str(path)])
    for _ in range(1000):
        if sampler.count == len(lines):
            return sampler
        time.sleep(0.01)
    raise AssertionError(f"{sampler.count} lines")


def test_readings_of_a_measurement_become_conditions_and_flags(tmp_path: Path) -> None:
    sampler = sampler_of(
        tmp_path,
        ["1980, 3201, 100.0, 40, 0x1", "1500, 3201, 690.0, 70, 0x4", "1400, 3201, 700.0, 72, 0x24"],
    )
    watch = MachineMonitor(sampler=sampler)
    with watch:
        pass
    conditions, flags = watch.read()  # nothing new meanwhile: the last reading
    assert (conditions.clock_mhz, conditions.power_w) == (1400.0, 700.0)
    assert flags == ["throttled", "power_capped"]
    watch._from = 1
    conditions, flags = watch.read()
    assert (conditions.clock_mhz, conditions.temperature_c) == (1450.0, 71.0)
    watch._from = 0
    assert watch.read()[0].clock_mhz == 1500.0
    watch.close()
    watch.close()


@pytest.mark.parametrize(
    ("lines", "flags"),
    [
        (["1200, 3201, 300.0, 40, 0x0"] * 3, ["clock_locked"]),
        (["1980, 3201, 300.0, 40, 0x0"] * 3, []),
        (["1200, 3201, 300.0, 40, 0x0", "1215, 3201, 300.0, 40, 0x0"], []),
        (["1200, 3201, 100.0, 40, 0x1"] * 3, []),
    ],
)
def test_a_clock_that_stands_still_is_locked(
    tmp_path: Path, lines: list[str], flags: list[str]
) -> None:
    watch = MachineMonitor(sampler=sampler_of(tmp_path, lines), max_mhz=1980.0)
    with watch:
        pass
    watch._from = 0
    assert watch.read()[1] == flags
    watch.close()


def test_another_process_on_the_gpu_is_asked_for_now_and_then(tmp_path: Path) -> None:
    sampler = sampler_of(tmp_path, ["1980, 3201, 100.0, 40, 0x0"])
    requested: list[int] = []
    now = [0.0]

    def others() -> tuple[str, ...]:
        requested.append(1)
        return ("trainer (99)",) if len(requested) == 2 else ()

    watch = MachineMonitor(clock=lambda: now[0], sampler=sampler, others=others)
    for seconds, flags in ((0.0, []), (1.0, []), (ASKED_EVERY_S + 1.0, ["busy"])):
        now[0] = seconds
        with watch:
            pass
        assert watch.read()[1] == flags
    assert len(requested) == 2
    watch.close()


def test_without_nvidia_smi_nothing_is_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    watch = watch_of(MeasuredMachine("cuda", "", None, 1, 1))
    with watch:
        pass
    conditions, flags = watch.read()
    assert (conditions.clock_mhz, conditions.power_w, flags) == (None, None, [])
    watch.close()
