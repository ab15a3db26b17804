"""How many architectures a second are predicted and searched on a device with ten samples.

    python -m benchmarks.speed_networks        writes benchmarks/results/speed_networks.json

The samples are of a known device; times are CPU seconds of one core.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from silicast.core.calibrated import Blended
from silicast.core.files import write_atomically
from silicast.exploration.network_search import search_networks
from silicast.learning.known_latencies import blended_ms, known_latencies
from silicast.measurement.calibrating.calibrate_samples import SampledNetworks, blend_of
from silicast.workload.spaces import ArchitectureSpace, spaces

RESULT = Path(__file__).with_name("results") / "speed_networks.json"
PREDICTED, SEARCHED, SAMPLES, RUNS = 200_000, 100_000, 10, 3


def blended(space: ArchitectureSpace) -> Blended:
    """Of ten networks, as the last known device takes them."""
    known = known_latencies(space.name).devices[-1]
    choices = space.every(20_000, 1)[:: 20_000 // SAMPLES][:SAMPLES]
    latencies = space.latencies(choices, np.array(known.weights)) * known.median_ms
    names = tuple(f"{space.name}:{space.text(each)}" for each in choices.tolist())
    return blend_of(SampledNetworks(space.name, names, choices, latencies))[0]


def rate(count: int, run: Callable[[], object]) -> int:
    """Architectures a second of the quickest of some runs."""
    best = float("inf")
    for _ in range(RUNS):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return round(count / best)


def speeds(space: ArchitectureSpace) -> dict[str, int]:
    """Both rates of a space."""
    blend = blended(space)
    choices = np.resize(space.every(PREDICTED, 0), (PREDICTED, space.positions))
    size = min(SEARCHED, len(space.options) ** space.positions)

    def search() -> object:
        return search_networks(
            space,
            lambda picked: blended_ms(blend, picked),
            space.multiplications,
            budget_ms=blend.most_ms,
            evaluations=SEARCHED,
            count=10,
            seed=0,
        )

    return {
        "predicted_per_s": rate(PREDICTED, lambda: blended_ms(blend, choices)),
        "searched_per_s": rate(size, search),
    }


def main() -> None:
    results = {name: speeds(space) for name, space in spaces().items()}
    write_atomically(RESULT, (json.dumps(results, indent=1) + "\n").encode())
    print(results)


if __name__ == "__main__":
    main()
