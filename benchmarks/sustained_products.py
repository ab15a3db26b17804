"""Whether products take longer in campaigns that run them long enough to measure power.

    python benchmarks/sustained_products.py OUT.json

The tables hold the same bf16 products from campaigns that time a few calls and from campaigns that
repeat each for so long that its power is known (column ``power_w``). Of a sample of sizes, by
device and by the time of a call: medians of long over short campaigns, and of the predicted time
over both. Nothing of it is used by a prediction.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lab.fitting import write
from lab.scorecard.suite import data_folder
from silicast.scenario.decode import decode
from silicast.scenario.run import run

DEVICES = {"h200_sxm": "H200", "b200_sxm": "B200", "gb200": "GB200"}
BANDS_US = {"below 0.1 ms": 100.0, "to 0.3 ms": 300.0, "to 1 ms": 1000.0, "longer": np.inf}
LEAST = {"m": 1024, "n": 2048, "k": 2048}
SAMPLE = 120
Sizes = tuple[int, int, int]


def campaigns(system: str) -> dict[Sizes, tuple[list[float], list[float]]]:
    """Sizes that both kinds of campaigns have -> microseconds of the long ones, of the short."""
    columns = ["system", "gemm_dtype", *LEAST, "latency_us", "power_w"]
    table = pq.read_table(data_folder() / "aiconfigurator" / "gemm.parquet", columns=columns)
    table = table.filter(pc.equal(table.column("system"), system))
    table = table.filter(pc.equal(table.column("gemm_dtype"), "bfloat16"))
    for name, least in LEAST.items():
        table = table.filter(pc.greater_equal(table.column(name), least))
    times: dict[Sizes, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for row in table.to_pylist():
        kind = 0 if row["power_w"] else 1
        times[row["m"], row["n"], row["k"]][kind].append(row["latency_us"])
    return {sizes: both for sizes, both in sorted(times.items()) if all(both)}


def predicted_us(device: str, sizes: Sizes) -> float:
    work = {"op": "gemm", "dtype": "bf16", **dict(zip(LEAST, sizes, strict=True))}
    answer = run(decode({"task": "kernel", "device": device, "workload": work}))
    return answer.metrics["latency_us"].estimate


def main() -> None:
    """Writes the medians."""
    result = {}
    for system, device in DEVICES.items():
        every = list(campaigns(system).items())
        chosen = every[:: max(len(every) // SAMPLE, 1)]
        bands: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
        for sizes, (long, short) in chosen:
            ours, slow, quick = predicted_us(device, sizes), np.median(long), np.median(short)
            band = next(name for name, most in BANDS_US.items() if quick < most)
            bands[band].append((slow / quick, ours / slow, ours / quick))
        result[device] = {
            band: {
                "sizes": len(bands[band]),
                **dict(
                    zip(
                        ("long_over_short", "predicted_over_long", "predicted_over_short"),
                        np.median(bands[band], axis=0).round(3).tolist(),
                        strict=True,
                    )
                ),
            }
            for band in BANDS_US
            if bands[band]
        }
    write(Path(sys.argv[1]), result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
