"""Kills `silicast measure` at random instants and looks at what is left of its file.

    python benchmarks/measurement_kills.py [--kills N]

The real command measures small kernels on the processor. After each kill the file must begin with
every byte that was in it before, parse line by line once the cut-off line is moved aside, and hold
no row twice; the next process goes on with it. Needs PyTorch; some ten minutes of a processor for a
hundred kills. Writes benchmarks/results/measurement_kills.json.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec

from silicast.core.files import write_atomically
from silicast.measurement.records.records import complete_lines, read_measurements

TARGET = Path(__file__).parent / "results" / "measurement_kills.json"
COMMAND = (sys.executable, "-m", "silicast", "measure", "--device", "cpu", "--budget", "30m",
           "--families", "softmax,rmsnorm,silu_mul,elementwise")  # fmt: skip
STARTS_S = 60.0
"""What a process takes at most until its first row."""
LONGEST_S = 2.0
"""After the first row, or from the start on for one kill in five, it is killed within so long."""
EARLY = 0.2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = killed(Path(folder) / "measured.jsonl", arguments.kills, arguments.seed)
    print(json.dumps(result, indent=1))
    write_atomically(TARGET, msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")


def killed(path: Path, kills: int, seed: int) -> dict[str, int | float]:
    """What became of a file whose writers were killed one after the other."""
    chance = random.Random(seed)
    counts: Counter[str] = Counter()
    seen_whole = b""
    start = time.monotonic()
    for number in range(kills):
        seen = killed_once(path, chance)
        content = path.read_bytes() if path.exists() else b""
        counts["rows_lost"] += _lost(seen_whole, content) + _lost(seen, content)
        whole, tail = complete_lines(content)
        counts["kills_within_a_line"] += bool(tail)
        counts["kills_after_new_rows"] += len(whole) > len(seen_whole)
        counts["rows_malformed"] += _malformed(whole)
        seen_whole = whole
        print(f"{number + 1} of {kills}: {len(whole.splitlines())} lines", file=sys.stderr)
    last = subprocess.run([*COMMAND[:-4], "--budget", "10s", *COMMAND[-2:], "-o", str(path)],
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert "goes on with" in last.stderr
    measurements = read_measurements(path)
    rows = [msgspec.json.encode((row.session, row.kernel, row.at)) for row in measurements.kernels]
    counts["rows_duplicated"] += len(rows) - len(set(rows))
    counts["rows_lost"] += _lost(seen_whole, path.read_bytes())
    return {
        "kills": kills,
        **{name: counts[name] for name in ("rows_lost", "rows_duplicated", "rows_malformed",
                                           "kills_after_new_rows", "kills_within_a_line")},
        "rows": len(rows),
        "sessions": len(measurements.sessions),
        "minutes": round((time.monotonic() - start) / 60.0, 1),
    }  # fmt: skip


def killed_once(path: Path, chance: random.Random) -> bytes:
    """Starts the command and kills it; the whole lines that were there just before."""
    before = path.stat().st_size if path.exists() else 0
    child = subprocess.Popen([*COMMAND, "-o", str(path)], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)  # fmt: skip
    end = time.monotonic() + STARTS_S
    if chance.random() >= EARLY:
        while time.monotonic() < end and child.poll() is None:
            if path.exists() and path.stat().st_size > before:
                break
            time.sleep(0.01)
    assert child.poll() is None, "it ended by itself"
    time.sleep(chance.uniform(0.0, LONGEST_S))
    seen = complete_lines(path.read_bytes())[0] if path.exists() else b""
    child.send_signal(signal.SIGKILL)
    child.wait()
    return seen


def _lost(before: bytes, after: bytes) -> int:
    """Lines of one state of a file that are not where they were in a later one."""
    if after.startswith(before):
        return 0
    pairs = zip(before.splitlines(), after.splitlines(), strict=False)
    same = sum(line_before == line_after for line_before, line_after in pairs)
    return before.count(b"\n") - same


def _malformed(whole: bytes) -> int:
    bad = 0
    for line in whole.splitlines():
        try:
            msgspec.json.decode(line)
        except msgspec.DecodeError:
            bad += 1
    return bad


if __name__ == "__main__":
    main()
