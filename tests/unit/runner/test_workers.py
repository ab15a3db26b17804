"""How the lines of a batch are cut into pieces."""

from __future__ import annotations

import io
import json
import threading

import pytest

from silicast.runner import workers
from silicast.runner.lines import CaseLines
from silicast.runner.workers import LONG_PIECE_S, PIECE_S, PIECES_LEFT, Workers

KERNEL = {"op": "rmsnorm", "tokens": 64, "hidden": 4096, "dtype": "bf16"}
CASE = {"task": "kernel", "device": "h100", "workload": KERNEL}


@pytest.mark.parametrize(
    ("processes", "cases", "seconds"),
    [
        (1, 100, LONG_PIECE_S),  # nobody else waits for a share
        (2, 100, 96 * PIECE_S / 4 / (2 * PIECES_LEFT)),
        (2, 1000, LONG_PIECE_S),
        (2, 8, PIECE_S),
    ],
)
def test_a_piece_is_as_long_as_leaves_several_for_each_process(
    processes: int, cases: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers.CaseCost, "estimate", lambda *_: PIECE_S / 4)
    monkeypatch.setattr(workers, "ALONE_S", 1e9)  # other processes are not started
    lines = CaseLines(io.BytesIO(json.dumps(CASE).encode() + b"\n" + b"{}\n" * (cases - 1)))
    pieces = Workers(lines, None, [], processes).pieces()
    first, _ = next(pieces)
    assert len(first) == 4  # nothing is known of these cases
    second, rows = next(pieces)
    assert len(second) == len(rows) == int(seconds / (PIECE_S / 4))
    pieces.close()  # type: ignore[attr-defined]


def test_a_case_that_outlasts_all_others_leaves_no_process_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While one process answers the long case, another answers as many as may wait for it; after
    it there is room again, although no process is busy then.
    """
    monkeypatch.setattr(workers, "ALONE_S", 0.0)
    monkeypatch.setattr(workers, "MOST_LINES", 1)
    monkeypatch.setattr(workers, "MOST_AHEAD", 1)
    traffic = {"arrival": {"kind": "closed", "concurrency": 64}, "requests": 3000}
    long = {
        "task": "serving",
        "model": "Llama-3.1-8B",
        "device": "h100",
        "workload": {**traffic, "input_len": 64, "output_len": 256},
    }
    rows = [{"id": str(n), **(CASE if n else long)} for n in range(12)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    found: list[str] = []

    def answer() -> None:
        pieces = Workers(CaseLines(io.BytesIO(text.encode())), None, [], 2).pieces()
        found.extend(json.loads(row.line)["id"] for _, answers in pieces for row in answers)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    thread.join(120.0)  # for ever, where nobody is woken
    assert found == [str(n) for n in range(12)]
