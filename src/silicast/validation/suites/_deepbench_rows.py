"""Matrix products that DeepBench (2016 to 2019) measured: old GPUs, AMD's Vega, a Xeon Phi.

The benchmark calls the library in a loop on the same operands, so that a call costs no more than
a launch of the queue and operands that fit stay in the caches. Which V100, P100 and M40 were
measured is not said: the catalog's default part of the name is taken.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from silicast.workload.op import Op, Variant

DEVICES: Mapping[str, str] = {
    "NV_M40": "M40", "NV_TitanX": "TITAN X (Maxwell)", "NV_TitanX_Pascal": "TITAN X (Pascal)",
    "NV_TitanXp": "TITAN Xp", "NV_1080Ti": "GTX 1080 Ti", "NV_P100": "P100-PCIE-16GB",
    "NV_V100": "V100-SXM2-16GB", "NV_T4": "T4", "AMD_MI25": "MI25",
    "AMD_VegaFE": "Radeon Vega Frontier Edition", "IA_KNL7250": "Xeon Phi 7250",
}  # fmt: skip
FITTED = frozenset({"MI25", "M40", "Xeon Phi 7250"})
"""Devices of which half of the shapes may be fitted; Vega FE and TITAN X are their sisters."""


def deepbench_rows(data: Path) -> Iterator[tuple[str, str, list[tuple[Op, float]]]]:
    """Catalog device, format and rows (op, seconds) of every table of products.

    Only training shapes: those for inference are int8 with shapes padded by the sheet's rules.
    """
    path = data / "kernels" / "deepbench.csv.gz"
    rows: dict[tuple[str, str], list[tuple[Op, float]]] = defaultdict(list)
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            device = DEVICES.get(row["device"])
            if device is None or row["suite"] != "train":
                continue
            if row["op"] != "Dense Matrix Multiplication" or "Psuedo" in row["sheet"]:
                continue
            dtype = "fp16" if "FP16" in row["sheet"] else "fp32"
            op = _op(json.loads(row["shape_json"]), dtype)
            rows[device, dtype].append((op, float(row["time"]) * 1e-3))
    for (device, dtype), found in rows.items():
        yield device, dtype, found


def _op(shape: Mapping[str, Any], dtype: str) -> Op:
    """BLAS is column-major: what it calls m is the weights' side here."""
    sizes = {"m": int(shape["N"]), "n": int(shape["M"]), "k": int(shape["K"]), "batch": 1}
    return Op.make("gemm", Variant(dtype=dtype, cache="warm"), **sizes)
