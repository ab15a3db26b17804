"""What providers' prices of one accelerator differ by, from the public ones in the data.

python -m benchmarks.price_spread -o benchmarks/results/price_spread.json
"""

from __future__ import annotations

import argparse
import csv
import statistics
from collections import defaultdict
from pathlib import Path

import msgspec

from lab.scorecard.suite import data_folder
from silicast.core.files import write_atomically

TABLE = "prices/gpu_prices.csv"


def spread(path: Path) -> dict[str, object]:
    """The dearest over the cheapest provider on demand of each accelerator that three sell, and
    spot over on demand, per accelerator hour.
    """
    requested: dict[str, dict[str, float]] = defaultdict(dict)
    spot, providers, rows = [], set(), 0
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            rows += 1
            providers.add(row["provider"])
            price = float(row["usd_per_hour_per_accelerator"] or 0.0)
            cheap = float(row["spot_usd_per_hour_per_accelerator"] or 0.0)
            if price:
                by_provider = requested[row["accelerator"]]
                by_provider[row["provider"]] = min(price, by_provider.get(row["provider"], price))
            if price and cheap:
                spot.append(cheap / price)
    ratios = {
        name: round(max(prices.values()) / min(prices.values()), 2)
        for name, prices in sorted(requested.items())
        if len(prices) >= 3
    }
    deciles = statistics.quantiles(spot, n=10)
    return {
        "rows": rows,
        "providers": len(providers),
        "dearest_over_cheapest": ratios,
        "median_of_them": statistics.median(ratios.values()),
        "spot_over_on_demand": {
            "rows": len(spot), "p10": round(deciles[0], 2),
            "median": round(statistics.median(spot), 2), "p90": round(deciles[-1], 2),
        },
    }  # fmt: skip


def main() -> None:
    """Writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    result = spread(data_folder() / TABLE)
    text = msgspec.json.format(msgspec.json.encode(result), indent=2)
    write_atomically(parser.parse_args().output, text + b"\n")


if __name__ == "__main__":
    main()
