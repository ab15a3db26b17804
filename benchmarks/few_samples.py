"""A new device from a few of its latencies: ranks and errors of architectures not sampled.

    python -m benchmarks.few_samples           writes benchmarks/results/few_samples.json

``edge/help_nasbench201_latency_ms`` and ``edge/help_fbnet_latency_ms``: each scored device is left
out with its relatives (all Xeons, all Snapdragons, all GPUs of one maker), samples are drawn from
the central 80 % of its architectures by latency, as HELP draws them, and every architecture that
was not drawn is scored. The pulls of the fit were chosen on `CHOSEN_ON`, which the scored devices
are not among. The noise floor is the same linear model fitted to the device's own whole table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lab.fit_edge_spaces import group_of, read_table
from lab.scorecard.figures import rank_correlation
from lab.scorecard.suite import data_folder
from silicast.core.files import write_atomically
from silicast.core.numerics import F64
from silicast.learning.few_samples import even_weights, fit_blend
from silicast.learning.known_latencies import known_latencies
from silicast.workload.spaces import space_named

RESULT = Path(__file__).with_name("results") / "few_samples.json"
TARGETS = ("gold_6226", "fpga", "pixel2", "raspi4", "eyeriss")
CHOSEN_ON = (
    "gold_6240",
    "silver_4114",
    "samsung_a50",
    "samsung_s7",
    "essential_ph_1",
    "2080ti_256",
    "titan_rtx_32",
    "pixel3",
)
DRAWS = 20
SAMPLES = (1, 3, 5, 20, 50, 200)
CENTRAL = (0.1, 0.9)


class Target:
    """A device that is left out of a space's known ones with its relatives."""

    def __init__(self, space: str, device: str, choices: Any, latencies: F64) -> None:
        known_without = known_latencies(space).without({group_of(device)})
        self.groups, self.latencies = known_without.groups, latencies
        self.pulls = space_named(space).pulls
        self.devices = known_without.of_devices(space_named(space), choices)
        self.kernels = known_without.of_kernels(space_named(space), choices)
        low, high = np.quantile(latencies, CENTRAL)
        self.central = (latencies >= low) & (latencies <= high)
        own = next(each for each in known_latencies(space).devices if each.name == device)
        self.floor = space_named(space).latencies(choices, np.array(own.weights)) * own.median_ms

    def score(self, predicted: F64, kept: Any, log_sd: float = 0.0) -> dict[str, float]:
        """Figures over the architectures of ``kept``."""
        errors = np.abs(predicted / self.latencies - 1.0)[kept]
        inner = kept & self.central
        figures = {
            "spearman": rank_correlation(predicted[kept], self.latencies[kept]),
            "spearman_central": rank_correlation(predicted[inner], self.latencies[inner]),
            "median_error_pct": 100 * float(np.median(errors)),
            "within_10_pct": 100 * float(np.mean(errors < 0.1)),
        }
        if log_sd:
            logs = np.abs(np.log(self.latencies[kept] / predicted[kept]))
            figures["in_interval_pct"] = 100 * float(np.mean(logs < 1.645 * log_sd))
        return figures

    def draw(self, seed: int, count: int) -> dict[str, float]:
        """One draw of samples."""
        pool = np.flatnonzero(self.central)
        at = np.random.default_rng(seed).choice(pool, count, replace=False)
        even = even_weights(self.groups)
        blend = fit_blend(self.devices[at], self.kernels[at], even, self.latencies[at], self.pulls)
        kept = np.ones(len(self.latencies), dtype=bool)
        kept[at] = False
        return self.score(blend.predict(self.devices, self.kernels), kept, blend.log_sd)

    def draws(self, count: int, draws: int) -> dict[str, float]:
        """Means over draws."""
        return mean([self.draw(seed, count) for seed in range(draws)])

    def unsampled(self) -> dict[str, float]:
        """Ranks without a sample, and those of the noise floor."""
        every = np.ones(len(self.latencies), dtype=bool)
        usual = self.devices @ even_weights(self.groups)
        floor = self.score(self.floor, every)
        return {
            "spearman": rank_correlation(usual, self.latencies),
            "floor_spearman": floor["spearman"],
            "floor_median_error_pct": floor["median_error_pct"],
        }


def mean(figures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each figure."""
    return {name: round(float(np.mean([each[name] for each in figures])), 4) for name in figures[0]}


def scored(space: str) -> dict[str, Any]:
    """All figures of a space."""
    choices, names, latencies = read_table(data_folder(), space_named(space))

    def target(device: str) -> Target:
        return Target(space, device, choices, latencies[:, names.index(device)])

    targets = {device: target(device) for device in TARGETS}
    ten = {device: each.draws(10, DRAWS) for device, each in targets.items()}
    none = {device: each.unsampled() for device, each in targets.items()}
    by_samples = {
        str(count): mean([each.draws(count, 5) for each in targets.values()]) for count in SAMPLES
    }
    others = {
        device: target(device).draws(10, 3) for device in sorted(names) if device not in TARGETS
    }
    chosen_on = [others[device] for device in CHOSEN_ON if device in others]
    return {
        "ten_samples": {"mean": mean(list(ten.values())), "devices": ten},
        "no_sample": {"mean": mean(list(none.values())), "devices": none},
        "mean_by_samples": by_samples,
        "every_other_device": {"mean": mean(list(others.values())), "devices": others},
        "chosen_on": mean(chosen_on),
    }


def main() -> None:
    results = {space: scored(space) for space in ("nasbench201", "fbnet")}
    write_atomically(RESULT, (json.dumps(results, indent=1) + "\n").encode())
    for space, figures in results.items():
        print(space)
        for name in ("ten_samples", "no_sample", "every_other_device"):
            print(f"  {name}: {figures[name]['mean']}")
        for device, row in figures["ten_samples"]["devices"].items():
            print(f"  {device}: {row}")
        for count, row in figures["mean_by_samples"].items():
            print(f"  {count} samples: {row}")


if __name__ == "__main__":
    main()
