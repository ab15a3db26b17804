"""Points whose process dies, hangs or is stopped: tried again alone, then a named failure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from silicast.exploration.scenario_space import read_scenario_space
from silicast.runner import sweep as sweeps
from silicast.runner import workers
from silicast.runner.results import stored_rows
from silicast.runner.store import AnswerStore
from silicast.runner.sweep import Sweep, SweepTally
from silicast.runner.workers import PointLimits

pytest.importorskip("pyarrow")

SPACE = """
[scenario]
task = "kernel"
device = "h100"
kernel = { op = "gemm", m = 8, n = 4096, k = 4096, dtype = "bf16" }
[[axis]]
field = "kernel.m"
range = [1, 32]
factor = 2
"""
FAULTY = """
import os, signal, time
from pathlib import Path
from silicast.runner import replies
parsed = replies._parsed

def faulty(raw):
    if b'"m":4,' in raw:
        with Path(os.environ["TRIES"]).open("a") as file:
            file.write("x")
        {fault}
    return parsed(raw)

replies._parsed = faulty
"""


@pytest.fixture
def swept(tmp_path: Path) -> Sweep:
    path = tmp_path / "space.toml"
    path.write_text(SPACE, encoding="utf-8")
    return Sweep(read_scenario_space(path), tmp_path)


@pytest.mark.parametrize(
    ("fault", "reason", "times"),
    [  # who dies may have died of the points before it: once more in a new process
        ("os.kill(os.getpid(), signal.SIGKILL)", "ended with signal 9", 3),
        ("time.sleep(60.0)", "not answered within 0.3 s, twice", 2),
        ("raise MemoryError", "needs more memory", 1),
    ],
)
def test_a_point_that_costs_its_process_is_lost_after_its_tries_and_no_other(
    fault: str,
    reason: str,
    times: int,
    swept: Sweep,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "sitecustomize.py").write_text(FAULTY.format(fault=fault), encoding="utf-8")
    tries = tmp_path / "tries"
    monkeypatch.setenv("TRIES", str(tries))
    monkeypatch.setattr(workers, "LONG_PIECE_S", 0.2)
    store = AnswerStore.begun(tmp_path / "store")
    with monkeypatch.context() as faulty:
        faulty.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        tally = swept.run(store, workers=1, limits=PointLimits(0.3, 64 << 30))
    assert (tally.answered, len(tally.lost)) == (5, 1)
    assert reason in next(iter(tally.lost.values()))
    assert tries.read_text() == "x" * times
    assert len(stored_rows(store).rows) == 5  # not stored: it may be answered elsewhere
    assert swept.run(store).answered == 1


def test_the_first_signal_finishes_what_runs(
    swept: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[str] = []
    monkeypatch.setattr(workers, "PIECE_S", 0.001)
    monkeypatch.setattr(workers, "LONG_PIECE_S", 0.0)  # a piece is a point
    monkeypatch.setattr(sweeps, "AHEAD", 2)
    store = AnswerStore.begun(tmp_path / "store")
    tally = SweepTally(lambda: "".join(received))

    def interrupted(done: int) -> None:
        received.append(f"SIGINT after {done}")

    swept.run(store, tally=tally, progress=interrupted)
    assert received == [f"SIGINT after {tally.answered}"]  # nothing was begun after it
    assert 0 < tally.answered == len(stored_rows(store).rows) < 6
    assert swept.run(store).answered == 6 - tally.answered


@pytest.mark.parametrize("metric", ["latency_us", "tflops"])
def test_the_best_so_far_is_that_of_the_rows(swept: Sweep, tmp_path: Path, metric: str) -> None:
    store, tally = AnswerStore.begun(tmp_path / "store"), SweepTally(watched=metric)
    swept.run(store, tally=tally)
    rows = [row[metric] for row in stored_rows(store).rows if row.get(metric) is not None]
    assert tally.best == ((min if metric == "latency_us" else max)(rows) if rows else None)
