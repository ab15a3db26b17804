"""ASTRA-sim's network file (YAML) and system file (JSON), read strictly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, final

import msgspec

from silicast.core.decode import decode_json
from silicast.core.errors import SilicastError, over_limit, unsupported
from silicast.core.files import read_text
from silicast.formats.fields import Fields
from silicast.formats.yaml_file import parse_yaml

Topology = Literal["Switch", "Ring", "FullyConnected"]
TOPOLOGIES: tuple[Topology, ...] = ("Switch", "Ring", "FullyConnected")
NETWORK_KEYS = ("topology", "npus_count", "bandwidth", "latency")
MOST_NPUS = 4096
LARGEST = 1 << 20
"""Bytes of a file."""
RING = ("ring",)
IN_ORDER = ("ascending", "baseline")
"""Names of the schedule in which every chunk takes the dimensions as the file lists them."""


@final
@dataclass(frozen=True)
class NetworkDimension:
    """One dimension of ASTRA-sim's analytical network.

    Attributes:
        topology: how NPUs are joined.
        npus: number of NPUs along it.
        bandwidth_gib_per_s: of each link; ASTRA-sim's GB/s are 2**30 bytes a second.
        latency_ns: of each link.
    """

    topology: Topology
    npus: int
    bandwidth_gib_per_s: float
    latency_ns: float

    @property
    def bytes_per_ns(self) -> float:
        """The bandwidth as the simulation counts it."""
        return self.bandwidth_gib_per_s * float(1 << 30) / 1e9

    @property
    def hops(self) -> int:
        """Links between neighbours of a ring: to the switch and from it, else one."""
        return 2 if self.topology == "Switch" else 1


@final
@dataclass(frozen=True)
class AstraNetwork:
    """ASTRA-sim's analytical network: NPUs on a grid, those of a line joined by its dimension."""

    dimensions: tuple[NetworkDimension, ...]

    @property
    def npus(self) -> int:
        return math.prod(dimension.npus for dimension in self.dimensions)


_Count = Annotated[int, msgspec.Meta(ge=1, le=65536)]
_Names = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


@final
class AstraSystem(msgspec.Struct, frozen=True, rename="kebab"):
    """What of a system file the network's times depend on; other keys do not change them."""

    all_reduce_implementation: _Names
    all_gather_implementation: _Names
    reduce_scatter_implementation: _Names
    all_to_all_implementation: _Names
    endpoint_delay: Annotated[int, msgspec.Meta(ge=0)]
    preferred_dataset_splits: _Count
    active_chunks_per_dimension: _Count
    local_mem_bw: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    collective_optimization: Literal["baseline", "localBWAware"] = "baseline"
    inter_dimension_scheduling: str = IN_ORDER[0]

    def implementation(self, op: str) -> tuple[str, ...]:
        """The algorithms of an operation, one a dimension."""
        table: Mapping[str, tuple[str, ...]] = {
            "all_reduce": self.all_reduce_implementation,
            "all_gather": self.all_gather_implementation,
            "reduce_scatter": self.reduce_scatter_implementation,
            "all_to_all": self.all_to_all_implementation,
        }
        return table[op]


def read_network(path: Path) -> AstraNetwork:
    """The network that a file describes.

    Raises:
        SilicastError: unreadable, or not of the form of ASTRA-sim.
    """
    return network_of(_text(path), str(path))


def network_of(text: str, file: str = "") -> AstraNetwork:
    r"""The network that the text of a file describes.

    >>> network_of("topology: [ Ring ]\nnpus_count: [ 4 ]  # one node\n"
    ...            "bandwidth: [ 50.0 ]\nlatency: [ 500 ]").dimensions
    (NetworkDimension(topology='Ring', npus=4, bandwidth_gib_per_s=50.0, latency_ns=500.0),)
    """
    content = parse_yaml(text, file)
    if not isinstance(content, dict):
        raise SilicastError("holds no table", file=file, hint="as in topology: [ Ring ]")
    fields = Fields(content, file=file)
    lists = {key: fields.rows(key) for key in NETWORK_KEYS}
    for key in NETWORK_KEYS:
        if not lists[key]:
            raise fields.error("is missing", key, f"as in {key}: [ ... ]")
        if len(lists[key]) != len(lists["topology"]):
            raise fields.error(
                f"has {len(lists[key])} entries, and topology {len(lists['topology'])}",
                key,
                "one a dimension",
            )
    astra_network = AstraNetwork(
        tuple(_dimension(lists, index, file) for index in range(len(lists["topology"])))
    )
    if astra_network.npus > MOST_NPUS:
        raise over_limit(
            f"{astra_network.npus:,} NPUs", "npus_count", f"up to {MOST_NPUS:,}", file=file
        )
    return astra_network


def _dimension(lists: Mapping[str, list[Any]], index: int, file: str) -> NetworkDimension:
    """One entry of every list."""
    name = lists["topology"][index]
    topology = next((kind for kind in TOPOLOGIES if kind == name), None)
    if topology is None:
        raise unsupported(f"{name!r}", "topology", f"one of {', '.join(TOPOLOGIES)}", file=file)
    npus, bandwidth, latency = (
        _number(lists[key][index], key, file) for key in ("npus_count", "bandwidth", "latency")
    )
    if npus != int(npus) or not 2 <= npus <= MOST_NPUS:
        raise SilicastError(
            f"{npus:g} NPUs", field="npus_count", file=file, hint=f"2 to {MOST_NPUS:,}"
        )
    if not bandwidth > 0.0:
        raise SilicastError(
            f"{bandwidth:g} GB/s: nothing would ever arrive",
            field="bandwidth",
            file=file,
            hint="above 0",
        )
    if latency < 0.0:
        raise SilicastError(f"{latency:g} ns", field="latency", file=file, hint="0 or more")
    return NetworkDimension(topology, int(npus), bandwidth, latency)


def read_system(path: Path) -> AstraSystem:
    """The system that a file describes.

    Raises:
        SilicastError: unreadable, not JSON, or a key is missing or wrong.
    """
    return decode_json(
        _text(path),
        AstraSystem,
        file=str(path),
        page="docs/explanation/network-simulation.md",
        hint="the JSON of ASTRA-sim's system layer",
    )


def _text(path: Path) -> str:
    return read_text(path, LARGEST, "a file of ASTRA-sim")


def _number(value: Any, key: str, file: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SilicastError(f"{value!r:.40} is not a number", field=key, file=file)
    return float(value)
