"""The host beside the devices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import final

from silicast.core.compiled import content_of, entries
from silicast.core.decode import Strict
from silicast.core.naming import NameIndex


@final
@dataclass(frozen=True)
class Host:
    """A CPU that feeds devices.

    Attributes:
        cpu: catalog or free name.
        factor: single-thread speed against the reference host (the one on which engine constants
            were measured); host times are divided by it.
        memory_gb: of a node; 0 = not known.
        memory_gb_per_s: peak rate of a node's memory; 0 = not known.
        link_gb_per_s: to each device, per direction; 0 = the device's own link.
    """

    cpu: str = "reference"
    factor: float = 1.0
    memory_gb: float = 0.0
    memory_gb_per_s: float = 0.0
    link_gb_per_s: float = 0.0


@final
class HostEntry(Strict, frozen=True):
    """``[host.<name>]`` of the catalog; ``default_for`` are systems of ``catalog/clusters``;
    ``memory_gb``
    and ``memory_gb_per_s`` are of a node of these.
    """

    factor: float
    memory_gb: float = 0.0
    memory_gb_per_s: float = 0.0
    aliases: list[str] = []
    default_for: list[str] = []
    sources: dict[str, str] = {}


class _HostFile(Strict, frozen=True):
    host: dict[str, HostEntry]


@cache
def hosts() -> NameIndex[HostEntry]:
    """All hosts of the catalog by name and alias.

    Raises:
        SilicastError: a file of the user's own folder is not a host file.
    """
    named: dict[str, tuple[HostEntry, list[str]]] = {}
    for stem in entries("hosts"):
        file = content_of("hosts", stem, _HostFile)
        named.update({name: (entry, entry.aliases) for name, entry in file.host.items()})
    return NameIndex("host", named)


def host_of(cpu: str = "reference", factor: float | None = None) -> Host:
    """A host by name; a free name is allowed, with factor 1 unless another is given.

    >>> host_of("my own server", 1.25)
    Host(cpu='my own server', factor=1.25, memory_gb=0.0, memory_gb_per_s=0.0, link_gb_per_s=0.0)
    """
    index = hosts()
    if cpu in index:
        entry = index.get(cpu)
        host_factor = entry.factor if factor is None else factor
        return Host(index.canonical(cpu), host_factor, entry.memory_gb, entry.memory_gb_per_s)
    return Host(cpu, 1.0 if factor is None else factor)


def host_of_system(system: str) -> Host:
    """The usual host of a system of the catalog; the reference host if none is listed."""
    index = hosts()
    for name in index.names:
        entry = index.get(name)
        if system in entry.default_for:
            return Host(name, entry.factor, entry.memory_gb, entry.memory_gb_per_s)
    return Host()
