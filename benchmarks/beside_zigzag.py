"""Layers on ZigZag's own chips: its answer and ours, each by its own accounting.

    pip install zigzag-dse six
    nice python -m benchmarks.beside_zigzag [LAYERS]

Layers of ResNet-50 and of a Llama block, made smaller, with sizes that do not divide the arrays
among them; for least energy and for least time. ZigZag is given no spatial mapping and looks for
one. Writes ``benchmarks/results/beside_zigzag.json``.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from silicast.accelerator.peers.peer import beside
from silicast.core.errors import SilicastError
from silicast.core.files import write_atomically

RESULT = Path(__file__).parent / "results" / "beside_zigzag.json"
CHIPS = ("eyeriss_like", "tpu_like", "edge_tpu_like", "meta_prototype", "tesla_npu_like")
PRODUCTS = ((64, 64, 64), (96, 80, 112), (1, 256, 512), (33, 130, 65), (196, 128, 64))
WINDOWS = ((16, 32, 14, 3), (64, 64, 7, 3), (3, 16, 28, 5), (48, 24, 14, 1), (30, 50, 13, 3))


Layer = tuple[str, tuple[str, ...]]
"""An operation, and its sizes as on the command line."""


def layers() -> list[Layer]:
    """Ten: products of m, n, k, and convolutions of c, m, p = q, r = s."""
    network: list[Layer] = []
    for (m, n, k), (c, filters, p, r) in zip(PRODUCTS, WINDOWS, strict=True):
        network.append(("matmul", (f"m={m}", f"n={n}", f"k={k}")))
        sizes = (f"c={c}", f"m={filters}", f"p={p}", f"q={p}", f"r={r}", f"s={r}")
        network.append(("conv2d", sizes))
    return network


def row(chip: str, folder: Path, layer: Layer, objective: str) -> dict[str, Any]:
    """Both answers; theirs over ours of what was made small."""
    started = time.process_time()
    name = {"chip": chip, "layer": " ".join((layer[0], *layer[1])), "objective": objective}
    try:
        pair = beside("zigzag", folder / f"{chip}.yaml", *layer, objective)
    except SilicastError as error:
        return {**name, "refused": error.message[:200]}
    ours = float(pair.ours.value)
    theirs = pair.theirs.energy_pj if objective == "energy" else pair.theirs.cycles
    return {
        **name, "ours": ours, "theirs": theirs, "theirs_over_ours": theirs / ours,
        "cpu_s": round(time.process_time() - started, 2),
    }  # fmt: skip


def write(rows: list[dict[str, Any]]) -> None:
    answered = [r for r in rows if "ours" in r]
    table: dict[str, Any] = {"layers": len(rows), "answered": len(answered)}
    for objective in ("energy", "latency"):
        ratios = [r["theirs_over_ours"] for r in answered if r["objective"] == objective]
        if ratios:
            table[objective] = {
                "layers": len(ratios), "ours_is_more": sum(ratio < 1 - 1e-9 for ratio in ratios),
                "theirs_over_ours_median": statistics.median(ratios),
                "theirs_over_ours_least": min(ratios),
            }  # fmt: skip
    write_atomically(RESULT, (json.dumps({**table, "rows": rows}, indent=1) + "\n").encode())


def main(most: int) -> None:
    installed = find_spec("zigzag")
    if installed is None or installed.origin is None:
        sys.exit("needs ZigZag: pip install zigzag-dse six")
    folder = Path(installed.origin).parent / "inputs" / "hardware"
    rows: list[dict[str, Any]] = []
    work = [(layer, chip, o) for layer in layers() for chip in CHIPS for o in ("energy", "latency")]
    for layer, chip, objective in work[:most]:
        rows.append(row(chip, folder, layer, objective))
        write(rows)
        print(rows[-1], flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
