"""Measured kernels as a user's table would hold them: one device, family, format and library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import final

import msgspec
import numpy as np
from numpy.typing import NDArray

from silicast.core.catalog import CATALOG
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.check import take
from silicast.kernels.knowledge import PHYSICS as KNOWLEDGE
from silicast.kernels.physics import load_physics, replaced
from silicast.learning.training import MeasuredKernels
from silicast.validation.gemm_rows import bf16_rows, quantised_rows
from silicast.validation.held_out import held_out, unmeasured
from silicast.validation.suites import _attention_rows, _mla_rows, _moe_rows
from silicast.workload.op import OpBatch

DEVICES = ("A100-SXM-80GB", "L40S", "H100-SXM-80GB", "B200-SXM-180GB")
"""One of each architecture, to be calibrated as if it were unknown."""
FORMATS = ("fp8", "fp8_block", "nvfp4")
PRODUCTS = 6000
LAYERS = 400
KERNELS = 24_000
"""Rows read of a device (layers: of each of its campaigns), at most."""
AT_LEAST = 450
"""Rows of a table, at least: enough to be calibrated with 200 and scored on others."""


@final
@dataclass(frozen=True)
class Table:
    """What one user would have measured.

    Attributes:
        family, dtype, library: of all rows; device: a catalog name.
        parts: the rows by variant, with those marked that no constant may be fitted on.
    """

    family: str
    dtype: str
    library: str
    device: str
    parts: tuple[MeasuredKernels, ...]

    def __len__(self) -> int:
        return sum(len(part.batch) for part in self.parts)

    @property
    def held_out(self) -> NDArray[np.bool_]:
        """Rows that may be scored, shape (n,)."""
        return np.concatenate([part.held_out for part in self.parts])

    @property
    def seconds(self) -> F64:
        """Measured times, shape (n,)."""
        return np.concatenate([part.seconds for part in self.parts])

    @property
    def hardware(self) -> Device:
        """The device itself."""
        return find_device(self.device)

    def drawn(self) -> NDArray[np.int64]:
        """All rows in a random order, the same each time: a user's first N are its first N."""
        return np.random.default_rng(0).permutation(len(self))

    def take(self, index: NDArray[np.int64]) -> Table:
        """Some rows, by sorted index."""
        parts, start = [], 0
        for part in self.parts:
            count = len(part.batch)
            own = index[(index >= start) & (index < start + count)] - start
            start += count
            if len(own):
                parts.append(
                    MeasuredKernels(
                        take(part.batch, own), part.device, part.seconds[own], part.held_out[own]
                    )
                )
        return Table(self.family, self.dtype, self.library, self.device, tuple(parts))


@lru_cache(maxsize=4)
def tables(data: Path, devices: tuple[str, ...]) -> tuple[Table, ...]:
    """Tables of some devices: of products every library, else the library with the most rows."""
    wanted = {find_device(name).name for name in devices}
    found: dict[tuple[str, str, str], dict[str, list[MeasuredKernels]]] = {}
    for part in _all(data):
        if find_device(part.device).name in wanted:
            key = (part.batch.family, part.batch.variant.dtype, find_device(part.device).name)
            by_library = found.setdefault(key, {})
            by_library.setdefault(part.batch.variant.library, []).append(part)
    chosen = []
    for (family, dtype, device), by_library in sorted(found.items()):
        # of equals the first by name
        ranked = sorted(by_library, key=lambda name: (-_count(by_library[name]), name))
        for library in ranked if family == "gemm" else ranked[:1]:
            table = Table(family, dtype, library, device, tuple(by_library[library]))
            if len(table) >= AT_LEAST and table.held_out.any():
                chosen.append(table)
    return tuple(chosen)


@contextmanager
def unknown_architecture(architecture: str) -> Iterator[None]:
    """Inside, nobody has measured the architecture.

    Where no constants were fitted without it, its own are taken out and what stands in for
    architectures that were never measured serves.
    """
    bare = {}
    for path in sorted((CATALOG / "physics").glob("*.json")):
        group, own = path.stem, load_physics(path.stem)
        if group != KNOWLEDGE and architecture not in held_out(group):
            others = {a: c for a, c in own.architectures.items() if a != architecture}
            bare[group] = msgspec.structs.replace(own, architectures=others)
    with unmeasured(architecture), replaced(bare):
        yield


def _count(parts: Sequence[MeasuredKernels]) -> int:
    return sum(len(part.batch) for part in parts)


def _all(data: Path) -> Iterator[MeasuredKernels]:
    products = [*bf16_rows(data, PRODUCTS), *quantised_rows(data, FORMATS, PRODUCTS)]
    for rows in products:
        batch = OpBatch("gemm", rows.variant, rows.dims)
        yield MeasuredKernels(batch, rows.device, rows.seconds, rows.held_out)
    for table in ("context", "generation"):
        for campaign in _attention_rows.read_campaigns(data, table, KERNELS):
            if campaign.newest:
                yield _of(campaign)
    for table in ("context_mla", "generation_mla"):
        for latent in _mla_rows.read_mla(data, table):
            if latent.newest:
                yield _of(latent)
    layers = _moe_rows.aic_rows(data, LAYERS)
    newest: dict[tuple[str, str], str] = {}
    for layer in sorted(layers, key=lambda rows: _release(rows.variant.version)):
        newest[layer.device, layer.variant.library] = layer.variant.version
    for layer in layers:
        if layer.variant.version == newest[layer.device, layer.variant.library]:
            batch = OpBatch("moe", layer.variant, layer.dims)
            yield MeasuredKernels(batch, layer.device, layer.seconds, layer.held_out)


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.replace("rc", ".").split(".") if part.isdigit())


def _of(campaign: _attention_rows.Campaign | _mla_rows.MlaCampaign) -> MeasuredKernels:
    seconds = campaign.latency_us * 1e-6
    return MeasuredKernels(campaign.batch, campaign.device.name, seconds, campaign.held)
