"""Measured kernels as a user's table would hold them: one device, family, format and library."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import final

import numpy as np

from lab.scorecard.rows import Mask, MeasuredRows, newest, version_order
from lab.scorecard.suites.attention import DECODE, PREFILL, decoder_rows
from lab.scorecard.suites.gemm import bf16_rows, quantised_rows
from lab.scorecard.suites.mla import DECODE as MLA_DECODE
from lab.scorecard.suites.mla import PREFILL as MLA_PREFILL
from lab.scorecard.suites.mla import mla_rows
from lab.scorecard.suites.moe import layer_rows, thinned
from silicast.core.numerics import F64, I64
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.implementation import Implementation

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
class UserTable:
    """What one user would have measured.

    Attributes:
        family, dtype, library: of all rows; device: a catalog name.
        parts: the rows by variant.
    """

    family: str
    dtype: str
    library: str
    device: str
    parts: tuple[MeasuredRows, ...]

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    @property
    def held_out(self) -> Mask:
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

    @property
    def model(self) -> Implementation:
        """The kernel model of the family."""
        return self.parts[0].model

    def drawn(self) -> I64:
        """All rows in a random order, the same each time: a user's first N are its first N."""
        return np.random.default_rng(0).permutation(len(self))

    def take(self, index: I64) -> UserTable:
        """Some rows, by sorted index."""
        parts, start = [], 0
        for part in self.parts:
            local_index = index[(index >= start) & (index < start + len(part))] - start
            start += len(part)
            if len(local_index):
                parts.append(part.take(local_index))
        return replace(self, parts=tuple(parts))


@lru_cache(maxsize=4)
def user_tables(data: Path, devices: tuple[str, ...]) -> tuple[UserTable, ...]:
    """Tables of some devices: of products every library, else the library with the most rows."""
    wanted = {find_device(name).name for name in devices}
    entries: dict[tuple[str, str, str], dict[str, list[MeasuredRows]]] = {}
    for part in _all(data):
        variant = part.batch.variant
        if part.device in wanted:
            by_library = entries.setdefault((part.batch.family, variant.dtype, part.device), {})
            by_library.setdefault(variant.library, []).append(part)
    chosen = []
    for (family, dtype, device), by_library in sorted(entries.items()):
        # of equals the first by name
        rows = {name: sum(map(len, parts)) for name, parts in by_library.items()}
        ranked = sorted(by_library, key=lambda name: (-rows[name], name))
        for library in ranked if family == "gemm" else ranked[:1]:
            table = UserTable(family, dtype, library, device, tuple(by_library[library]))
            if len(table) >= AT_LEAST and table.held_out.any():
                chosen.append(table)
    return tuple(chosen)


def _all(data: Path) -> Iterator[MeasuredRows]:
    yield from bf16_rows(data, PRODUCTS)
    yield from quantised_rows(data, FORMATS, PRODUCTS)
    for table in (PREFILL, DECODE):
        yield from newest(decoder_rows(data, table, KERNELS))
    for table in (MLA_PREFILL, MLA_DECODE):
        yield from newest(mla_rows(data, table))
    layers = thinned(layer_rows(data), LAYERS)
    last: dict[tuple[str, str], str] = {}
    for layer in sorted(layers, key=lambda rows: version_order(rows.words["version"])):
        last[layer.device, layer.words["backend"]] = layer.words["version"]
    for layer in layers:
        if layer.words["version"] == last[layer.device, layer.words["backend"]]:
            yield layer
