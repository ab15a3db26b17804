"""Work of the NPU's networks, counted again from the packages that define them.

    python -m benchmarks.count_networks [MODEL ...]   writes benchmarks/results/count_networks.json

``catalog/edge/networks.csv`` states multiplications, weights, written values and operators of each
network. Those whose source is torchvision or timm are defined in these packages: their modules are
traced here without weights and counted by the code that counts a user's file
(:func:`silicast.learning.board_networks.counted`). ``count_networks.toml`` says which model of a
package each is. The packages are no part of the repository: PyTorch, torchvision and timm must be
installed. What does not agree within 2 % is printed; nothing is written into the catalog.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from silicast.core.decode import read_toml
from silicast.core.errors import SilicastError
from silicast.core.files import write_atomically
from silicast.learning.board_networks import NpuNetwork, counted, networks
from silicast.workload.front_ends.packages import packaged_graph

TABLE = Path(__file__).with_suffix(".toml")
RESULT = Path(__file__).with_name("results") / "count_networks.json"
FIELDS = ("gmacs", "mparams", "mvalues", "operators")


def differences(catalog: NpuNetwork, graph: NpuNetwork) -> dict[str, float]:
    """What the catalog states beyond what was counted, in percent, by field."""
    return {
        field: round(100.0 * (getattr(catalog, field) / getattr(graph, field) - 1.0), 2)
        for field in FIELDS
    }


def main(chosen: list[str]) -> int:
    table: dict[str, dict[str, Any]] = read_toml(TABLE)["models"]
    by_model = {each.model: each for some in networks().values() for each in some}
    rows: dict[str, Any] = {}
    for model in chosen or table:
        entry = table[model]
        sizes = {"batch": 1} | ({"image": entry["image"]} if "image" in entry else {})
        try:
            here = counted(packaged_graph(entry["name"], sizes)[0])
        except SilicastError as error:
            rows[model] = {"package": entry["name"], "failed": str(error)[:200]}
            print(model, rows[model], flush=True)
            continue
        off = differences(by_model[model], here)
        rows[model] = {
            "package": entry["name"],
            **{field: float(f"{getattr(here, field):.4g}") for field in FIELDS},
            "kind": here.kind,
            "catalog_off_pct": off,
            "same_kind": here.kind == by_model[model].kind,
        }
        print(model, off, here.kind, flush=True)
    counts = [row for row in rows.values() if "failed" not in row]
    agreeing = {
        field: sum(abs(row["catalog_off_pct"][field]) <= 2.0 for row in counts) for field in FIELDS
    }
    medians = {
        field: round(float(np.median([abs(r["catalog_off_pct"][field]) for r in counts])), 2)
        for field in FIELDS
    } if counts else {}  # fmt: skip
    summary = {"networks": len(counts), "within_2_pct": agreeing, "median_off_pct": medians}
    print(summary)
    if not chosen:
        write_atomically(
            RESULT, (json.dumps({**summary, "models": rows}, indent=1) + "\n").encode()
        )
    return int(len(counts) < len(rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
