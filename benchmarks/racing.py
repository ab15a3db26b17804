"""Searches over spaces of queues: how often they find what an exhaustive search finds, at what
cost.

A point is a queue with one server: its rate, its time of a request, how much that varies, and a
surcharge for its price. What is wanted is a small 99th percentile of time in the system. Points of
a space see the same arrivals and the same draws of work (common random numbers). The exhaustive
search simulates every point with as many seeds as the winner of the race had.

A search that prunes by bounds simulates points with :data:`PRUNED_SEEDS` seeds, in the order of a
bound that no time in the system is below: the work of the same requests, without any wait. It must
find the exhaustive optimum of the same seeds in every space.

    python benchmarks/racing.py [--spaces 50]
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from silicast.core.numerics import F64
from silicast.exploration.racing import prune, race

OUT = Path(__file__).parent / "results" / "racing.json"
REQUESTS = 100
TAIL = 2
"""The 99th percentile of so many requests is about their second largest time."""
AT_ONCE = 64
"""Seeds that are simulated together."""
MOST = 2000
PRUNED_SEEDS = 16


class QueueSpace:
    """Queues of one space."""

    def __init__(self, number: int) -> None:
        random = np.random.default_rng([20261129, number])
        self.count = round(math.exp(random.uniform(math.log(50), math.log(MOST))))
        self.number = number
        self.busy = random.uniform(0.2, 0.85, self.count)
        self.work = random.uniform(0.5, 2.0, self.count)
        self.spread = random.uniform(0.1, 1.0, self.count)

    def bounds(self, seeds: Sequence[int]) -> F64:
        """What no point is below: the times of requests that never wait."""
        drawn = [np.random.default_rng([self.number, s]) for s in seeds]
        for each in drawn:
            each.exponential(size=REQUESTS)  # the gaps, which come first
        normals = np.array([each.normal(size=REQUESTS) for each in drawn])[None]
        work, spread = self.work[:, None, None], self.spread[:, None, None]
        times = np.sort(work * np.exp(spread * normals - spread * spread / 2.0), axis=2)
        bounds: F64 = times[:, :, -TAIL].mean(axis=1)
        return bounds

    def simulate(self, points: Sequence[int], seeds: Sequence[int]) -> F64:
        at = np.asarray(points)
        work, spread, busy = (each[at][:, None] for each in (self.work, self.spread, self.busy))
        columns = []
        for first in range(0, len(seeds), AT_ONCE):
            drawn = [
                np.random.default_rng([self.number, s]) for s in seeds[first : first + AT_ONCE]
            ]
            gaps = np.array([each.exponential(size=REQUESTS) for each in drawn]).T
            normals = np.array([each.normal(size=REQUESTS) for each in drawn]).T
            wait, times = np.zeros((len(at), len(drawn))), []
            for gap, normal in zip(gaps, normals, strict=True):
                # Lindley: what was there, less the gap, but not below zero
                times.append(wait + work * np.exp(spread * normal - spread * spread / 2.0))
                wait = np.maximum(times[-1] - gap * work / busy, 0.0)
            columns.append(np.sort(times, axis=0)[-TAIL])
        return np.hstack(columns)


def pruned(space: QueueSpace) -> tuple[bool, float]:
    """Whether pruning finds what the exhaustive search does, and the share that it simulates."""
    seeds = range(PRUNED_SEEDS)

    def evaluate(candidates: Sequence[int]) -> list[float]:
        values: list[float] = space.simulate(candidates, seeds).mean(axis=1).tolist()
        return values

    result = prune(space.bounds(seeds).tolist(), evaluate, together=8)
    every = evaluate(range(space.count))
    return result.order[0] == int(np.argmin(every)), len(result.values) / space.count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spaces", type=int, default=50)
    spaces = parser.parse_args().spaces
    optima, lost, shares, regret, points = 0, [], [], [], 0
    pruning = list[tuple[bool, float]]()
    for number in range(spaces):
        space = QueueSpace(number)
        pruning.append(pruned(space))
        result = race(space.count, space.simulate)
        # of the exhaustive search only points that may win are simulated in full: those whose
        # first seeds are within a factor of two of the best
        few = space.simulate(range(space.count), range(8)).mean(axis=1)
        near = np.flatnonzero(few <= 2.0 * few.min())
        seeds = range(result.exhaustive // space.count)
        means = space.simulate(near.tolist(), seeds).mean(axis=1)
        best = int(near[int(np.argmin(means))])
        winner = result.order[0]
        mine = float(means[near.tolist().index(winner)]) if winner in near.tolist() else math.inf
        optima += winner == best
        regret.append(100.0 * (mine / float(means.min()) - 1.0))
        lost.append(result.lost)
        shares.append(result.simulations / result.exhaustive)
        points += space.count
    sd = math.sqrt(sum(p * (1.0 - p) for p in lost))
    figures: dict[str, Any] = {
        "spaces": spaces,
        "points": points,
        "found_exhaustive_optimum": optima,
        "stated": round(spaces - sum(lost), 1),
        "band_95": [round(min(spaces - sum(lost) + z * sd, spaces), 1) for z in (-1.96, 1.96)],
        "share_of_simulations_mean": round(float(np.mean(shares)), 4),
        "share_of_simulations_most": round(max(shares), 4),
        "regret_pct_worst": round(max(regret), 3),
        "pruned_found_exhaustive_optimum": sum(each for each, _ in pruning),
        "pruned_share_simulated_mean": round(float(np.mean([share for _, share in pruning])), 4),
    }
    print(json.dumps(figures, indent=1))
    OUT.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
