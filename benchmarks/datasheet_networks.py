"""Spaces of architectures on devices of the catalog, by datasheets alone, against times.

    python -m benchmarks.datasheet_networks    writes benchmarks/results/datasheet_networks.json

The devices of ``edge/help_nasbench201_latency_ms`` and ``edge/help_fbnet_latency_ms`` that the
catalog has, batches of one; nothing of a device is fitted on these rows. The interval's upper end
is moved by what the slowest board of **other** families (Xeons; the Pi; GPUs of one maker) took
over its prediction; ``slower`` of ``all`` has the least and the most over all boards, which the
package uses for boards that no table has. CPU seconds are those of the first question about a
device, and architectures a second those of all later ones.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from lab.fit_edge_spaces import read_table
from lab.scorecard.figures import rank_correlation
from lab.scorecard.suite import data_folder
from silicast.core.files import write_atomically
from silicast.core.numerics import F64
from silicast.core.prediction import Z90
from silicast.learning.known_latencies import known_latencies
from silicast.measurement.calibrating.priced_space import priced_space
from silicast.workload.spaces import spaces

RESULT = Path(__file__).with_name("results") / "datasheet_networks.json"
DEVICES: Mapping[str, str] = {
    "gold_6226": "Xeon Gold 6226",
    "gold_6240": "Xeon Gold 6240",
    "silver_4114": "Xeon Silver 4114",
    "raspi4": "Raspberry Pi 4",
    "1080ti_1": "GTX 1080 Ti",
    "2080ti_1": "RTX 2080 Ti",
    "titanxp_1": "TITAN Xp",
}
"""Name in the tables -> device of the catalog."""


def main() -> None:
    results: dict[str, dict[str, float]] = {}
    ratios: dict[str, F64] = {}
    widths: dict[str, float] = {}
    families: dict[str, str] = {}
    for name, space in spaces().items():
        choices, names, latencies = read_table(data_folder(), space)
        groups = {each.name: each.group for each in known_latencies(name).devices}
        for source, device in DEVICES.items():
            if source not in names:
                continue
            begin = time.process_time()
            priced = priced_space(name, device)
            seconds = time.process_time() - begin
            assert priced is not None
            begin = time.process_time()
            predicted = priced.latencies(choices)
            rate = len(choices) / (time.process_time() - begin)
            truth = latencies[:, names.index(source)]
            row = f"{name} {source}"
            ratio = ratios[row] = predicted / truth
            widths[row], families[row] = float(np.exp(Z90 * priced.log_sd)), groups[source]
            results[row] = {
                "spearman": round(rank_correlation(predicted, truth), 3),
                "median_error_pct": round(100 * float(np.median(np.abs(ratio - 1.0))), 1),
                "median_ratio": round(float(np.median(ratio)), 2),
                "sums_pct": round(priced.sums_pct, 2),
                "first_cpu_s": round(seconds, 1),
                "later_per_s": round(rate, -3),
            }
    slower = {row: 1.0 / float(np.median(ratio)) for row, ratio in ratios.items()}
    for row, ratio in ratios.items():
        width = widths[row]
        most = max(slower[other] for other in slower if families[other] != families[row])
        inside = (ratio < width) & (ratio > 1 / (width * most))
        alone = (ratio < width) & (ratio > 1 / width)
        results[row]["in_interval_pct"] = round(100 * float(inside.mean()), 1)
        results[row]["in_kernels_interval_pct"] = round(100 * float(alone.mean()), 1)
        print(row, results[row], flush=True)
    ends = round(min(slower.values()), 1), round(max(slower.values()), 1)
    results["all"] = {"slower_least": ends[0], "slower_most": ends[1]}
    print("all", results["all"])
    write_atomically(RESULT, (json.dumps(results, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
