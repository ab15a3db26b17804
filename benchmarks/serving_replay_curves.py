"""Requests that run and wait in the replay of suite ``serving-replay``, over the measured ones.

    python -m benchmarks.serving_replay_curves [docs/_static/serving_replay.svg]

Draws each second of the measured run, of our scheduler on measured step times, and of our scheduler
on our own prices.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from lab.scorecard.suite import data_folder
from lab.scorecard.suites.serving_replay import SERVING, replayed, specs
from lab.scorecard.tables import read_records
from silicast.core.numerics import F64
from silicast.serving.statistics.records import Records
from silicast.serving.statistics.step_mix import columns

OUT = Path(__file__).parents[1] / "docs" / "_static" / "serving_replay.svg"
CURVES = ("running", "waiting")
SHOWN = (("scheduler on measured step times", "tab:blue"), ("on our own prices", "tab:orange"))


def at(records: Records, name: str, seconds: F64) -> F64:
    """A column of the log of steps at each second; 0 after the last answer."""
    start, values = columns(records.log.table(), "start_ns", name)
    position = np.searchsorted(start, seconds * 1e9, side="right") - 1
    return np.where(seconds * 1e9 < records.end_ns, values[position], 0).astype(np.float64)


def main(out: Path) -> None:
    """Draw both curves into a file."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    mpl.rcParams.update({"svg.hashsalt": "silicast", "font.size": 9})
    data = data_folder()
    rows = sorted(read_records(data / f"{SERVING}vllm_timeseries.parquet"), key=lambda r: r["t"])
    seconds = np.array([row["t"] for row in rows], dtype=np.float64)
    simulated = [replayed(data, spec) for spec in specs(data)]
    figure, axes = plt.subplots(1, 2, figsize=(9.0, 3.2), layout="constrained")
    for axis, name in zip(axes, CURVES, strict=True):
        axis.plot(seconds, [row[name] for row in rows], color="black", label="measured")
        for (label, colour), records in zip(SHOWN, simulated, strict=True):
            axis.plot(seconds, at(records, name, seconds), color=colour, label=label)
        axis.set(xlabel="seconds", ylabel=f"requests {name}", ylim=(0, None))
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize="small")
    figure.savefig(out, metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else OUT)
