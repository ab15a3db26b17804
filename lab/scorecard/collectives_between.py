"""Measured collectives between nodes as arrays: what the suite ``collectives-multinode`` scores.

Traps of the table are handled here (training/README.md): rows of one node and those that are not
the library's are dropped, in place and out of place become their median, and so do PICO's repeats:
requests that it did not support ran its own choice, five times over, or its ring.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from lab.scorecard.collective_points import Points
from lab.scorecard.rows import Labels
from lab.scorecard.tables import read_records
from silicast.communication.features import CollectiveCall
from silicast.communication.topology import Topology
from silicast.core.numerics import I64
from silicast.hardware.catalog import find_device
from silicast.hardware.cluster import cluster_of

TABLE = "training/collectives_multinode.parquet"
_DEVICES = {
    "A100-40GB": "A100-SXM-40GB",
    "A100-80GB": "A100-SXM-80GB",
    "H100-SXM": "H100-SXM-80GB",
    "H200-SXM": "H200-SXM-141GB",
    "B200-SXM": "B200-SXM-180GB",
    "H100-64GB (MareNostrum5 ACC custom)": "H100-96G-HBM2e-500W",
}
"""MareNostrum's board of four has HBM2e as the one of the catalog has; only links count here."""
_NETWORKS = (
    ("EFA 4x100Gbps", "efa-50g"),
    ("EFA", "efa-400g"),
    ("GPUDirect-TCPXO", "tcpxo"),
    ("GPUDirect-TCPX", "tcpx"),
    ("RoCE", "roce-400g"),
    ("InfiniBand NDR200", "infiniband-hdr"),
    ("InfiniBand", "infiniband-ndr"),
)
"""How a network's description begins -> its name in the catalog; the first that fits. A port of
NDR200 has the rate of HDR."""
_FORCED = {"tree": "tree", "ring": "ring"}


@final
@dataclass(frozen=True, kw_only=True)
class MultinodeRows(Points):
    """Distinct measured points, arrays of shape (n,); repeats are in place and out of place.

    Attributes:
        network: name in the catalog; kind: of it.
        forced: the algorithm that the library was told to run, "" = none.
        run: where the row was published.
    """

    provider: Labels
    network: Labels
    forced: Labels
    run: Labels

    @property
    def nodes(self) -> I64:
        """Nodes that take part."""
        return -(-self.gpus // self.per_node)

    def calls(self) -> Iterator[tuple[CollectiveCall, I64]]:
        """See :meth:`Points.calls`."""
        names = ("device", "network", "op", "gpus", "per_node", "forced", "dtype")
        for (name, network, op, gpus, per_node, forced, dtype), rows in self.grouped(*names):
            device = find_device(name)
            link = cluster_of(device, inter_node=network).inter_node.link
            topology = Topology.from_device(device, gpus, gpus_per_node=per_node, inter=link)
            yield CollectiveCall(op, topology, dtype=dtype, forced=forced), rows


def read_multinode(data: Path, *, least: int = 0) -> MultinodeRows:
    """All rows between nodes of messages of at least ``least`` bytes, sorted."""
    points: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in read_records(data / TABLE):
        good = row["multi_node"] and str(row["quality"]).startswith("good")
        if good and row["bytes"] >= least:
            points[_key(row)].append(row["time_us"] * 1e-6)
    names = (
        "provider", "network", "device", "op", "gpus", "per_node", "forced", "dtype", "run", "size",
    )  # fmt: skip
    return MultinodeRows.of_repeats(points, names)


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    network = next(name for start, name in _NETWORKS if row["network"].startswith(start))
    ran = str(row["algo_effective"]).split(" ")[0]
    forced = _FORCED.get(ran, "")
    run = row["log_id"] if row["algo_setting"] == "default" else row["provider"]
    dtype = "int32" if row["dtype"].startswith("int32") else "fp32"
    return (row["provider"], network, _DEVICES[row["gpu"]], row["op"], row["gpus"],
            row["gpus_per_node"], forced, dtype, run, row["bytes"])  # fmt: skip
