"""The catalog of usual systems and networks: ``catalog/clusters``."""

from __future__ import annotations

from functools import cache
from typing import TypeVar, final

from silicast.core.catalog import catalog_files
from silicast.core.decode import Strict, read_table
from silicast.core.naming import NameIndex


@final
class NetworkEntry(Strict, frozen=True):
    """``[network.<name>]``: one device's share, per direction; ``kind`` ("infiniband", "roce",
    "efa", "tcp") is what its latency and share of the wire depend on.
    """

    bandwidth_gb_per_s: float
    latency_us: float = 0.0
    kind: str = ""
    aliases: list[str] = []
    sources: dict[str, str] = {}


@final
class SystemEntry(Strict, frozen=True):
    """``[system.<name>]``: a node, what joins its devices, and what joins nodes.

    ``device`` is what the system is sold with ("" = any); ``domain`` devices share the link
    ``intra_node`` where it reaches beyond a node; ``default_for`` are the devices whose usual
    system it is. ``pod`` devices share a level of the network, ``inter_pod`` joins pods, and
    ``oversubscription`` is of its links.
    """

    gpus_per_node: int
    intra_node: str
    inter_node: str
    device: str = ""
    domain: int = 0
    pod: int = 0
    inter_pod: str = ""
    oversubscription: float = 1.0
    default_for: list[str] = []
    aliases: list[str] = []
    sources: dict[str, str] = {}


class _SystemFile(Strict, frozen=True):
    network: dict[str, NetworkEntry] = {}
    system: dict[str, SystemEntry] = {}


T = TypeVar("T", NetworkEntry, SystemEntry)


@cache
def networks() -> NameIndex[NetworkEntry]:
    """All networks by name and alias."""
    return _index("network", [(n, e) for file in _files() for n, e in file.network.items()])


@cache
def systems() -> NameIndex[SystemEntry]:
    """All systems by name and alias."""
    return _index("cluster", [(n, e) for file in _files() for n, e in file.system.items()])


def usual_system(device: str) -> tuple[str, SystemEntry] | None:
    """Name and entry of the system that lists ``device`` as its own, or None."""
    index = systems()
    for name in index.names:
        entry = index.get(name)
        if device in entry.default_for:
            return name, entry
    return None


def _index(kind: str, entries: list[tuple[str, T]]) -> NameIndex[T]:
    return NameIndex(kind, {name: (entry, entry.aliases) for name, entry in entries})


@cache
def _files() -> tuple[_SystemFile, ...]:
    page = "docs/reference/devices.md"
    return tuple(read_table(path, _SystemFile, page) for path in catalog_files("clusters", ".toml"))
