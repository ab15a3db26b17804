"""A measuring process that is killed at random instants loses nothing that it said was safe."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from silicast.measurement.records.records import read_measurements

CHILD = Path(__file__).with_name("measuring_child.py")
KERNELS = 100_000


def killed_once(path: Path, chance: random.Random) -> tuple[int, int]:
    """Runs the child and kills it; rows that it found, and rows that it said are safe.

    It is killed while it starts and opens the file, or while it measures.
    """
    child = subprocess.Popen([sys.executable, str(CHILD), str(path), str(KERNELS)],
                             stdout=subprocess.PIPE)  # fmt: skip
    assert child.stdout is not None
    remark = b""
    if chance.random() < 0.75:
        remark = child.stdout.readline()  # the file is open
    time.sleep(chance.uniform(0.0, 0.1))
    child.send_signal(signal.SIGKILL)
    remark += child.stdout.read()
    assert child.wait() == -signal.SIGKILL
    child.stdout.close()
    lines = remark.decode().splitlines()
    known = next((int(line.split()[1]) for line in lines if line.startswith("known")), -1)
    return known, lines.count("row")


def check_kills(path: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    before = 0
    hits = 0
    for _ in range(kills):
        known, safe = killed_once(path, chance)
        if not path.exists():
            continue
        if known >= 0:
            assert known == before, "a row that was there is gone"
        measurements = read_measurements(path) if path.stat().st_size else None
        numbers = [row.kernel["m"] for row in measurements.kernels] if measurements else []
        assert len(numbers) >= before + safe, "a row that was said to be safe is lost"
        assert numbers == list(range(1, len(numbers) + 1)), "rows are lost or come twice"
        for row in measurements.kernels if measurements else ():
            assert row.latency_us == row.kernel["m"]
            assert len(row.flags) == row.kernel["m"] % 40
        hits += len(numbers) > before
        before = len(numbers)
    assert hits >= kills // 3, "kills came before anything was measured"
    assert len(read_measurements(path).sessions) == 1

    done = subprocess.run([sys.executable, str(CHILD), str(path), str(before + 3)],
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout.splitlines()[-1] == "done"
    measurements = read_measurements(path)
    assert [row.kernel["m"] for row in measurements.kernels] == list(range(1, before + 4))
    assert measurements.notes == ()


def test_ten_kills_lose_nothing(tmp_path: Path) -> None:
    check_kills(tmp_path / "measured.jsonl", 10, seed=1)


@pytest.mark.full
def test_a_hundred_kills_lose_nothing(tmp_path: Path) -> None:
    check_kills(tmp_path / "measured.jsonl", 100, seed=2)
