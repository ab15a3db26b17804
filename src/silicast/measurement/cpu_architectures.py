"""What processors of one architecture have in common: catalog/architectures/cpus.toml."""

from __future__ import annotations

import tomllib
from functools import cache
from typing import final

import msgspec

from silicast.core.catalog import catalog_files
from silicast.core.errors import SilicastError
from silicast.measurement.cpu_facts import CpuFacts

UNKNOWN = "unknown"
_VENDORS = {"AuthenticAMD": "AMD", "GenuineIntel": "Intel", "Ampere": "ARM"}


@final
class CpuArchitecture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[architecture.<name>]``; the comments of the file say what the numbers are."""

    vendor: str
    models: list[tuple[int, int, int]]
    fma_bits: int
    boost_mhz: float
    max_mhz: float
    channels: int
    mt_per_s: float
    technology: str
    core_gb_per_s: float
    source: str
    cache_link_gb_per_s: float = 0.0

    @property
    def memory_gb_per_s(self) -> float:
        """Bandwidth of the usual memory of one socket; a channel moves 8 bytes at a time."""
        return self.channels * self.mt_per_s * 8e-3


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    architecture: dict[str, CpuArchitecture]


@cache
def cpu_architectures() -> dict[str, CpuArchitecture]:
    """All of them by name; the one called "unknown" stands for any other.

    Raises:
        SilicastError: a file of the user's own folder is none of architectures.
    """
    found: dict[str, CpuArchitecture] = {}
    for path in catalog_files("architectures", ".toml"):
        try:
            file = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _File)
        except (ValueError, msgspec.ValidationError) as error:
            raise SilicastError(str(error), file=str(path)) from None
        found |= file.architecture
    return found


def architecture_of(facts: CpuFacts) -> tuple[str, CpuArchitecture]:
    """Name and description of a processor's architecture, by its family and model."""
    known = cpu_architectures()
    vendor = _VENDORS.get(facts.vendor, facts.vendor)
    for name, architecture in known.items():
        if architecture.vendor == vendor and any(
            facts.family == family and low <= facts.model <= high
            for family, low, high in architecture.models
        ):
            return name, architecture
    return UNKNOWN, known[UNKNOWN]


def vendor_of(facts: CpuFacts) -> str:
    """The vendor's usual name."""
    return _VENDORS.get(facts.vendor, facts.vendor) or "unknown"
