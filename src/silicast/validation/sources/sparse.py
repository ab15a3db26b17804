"""Rows of sparse attention blocks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from silicast.learning.training import MeasuredKernels
from silicast.validation.source import AIC, DEEP, Read, Source
from silicast.validation.suites import _sparse_rows

PER_GROUP = {"dsa": 300, "csa": 400, "hca": 250, "msa": 1200}
"""Module -> rows read of each group of equal words in its tables, at most: more where there are few
groups, or where errors are large."""


def _sparse(name: str, *tables: str) -> Read:
    def read(data: Path) -> Iterator[MeasuredKernels]:
        for table in tables:
            lower = _sparse_rows.MODULE_TABLES[table]
            for part in _sparse_rows.table_rows(data, table, lower, PER_GROUP[name]):
                held = _sparse_rows.shape_held_out(part.sizes)
                yield MeasuredKernels(part.batch, part.device, part.seconds, held)

    return read


_MODULES = {
    "dsa": ("dsa_context_module", "dsa_generation_module"),
    "csa": ("dsv4_csa_context_module", "dsv4_csa_generation_module"),
    "hca": ("dsv4_hca_context_module", "dsv4_hca_generation_module"),
    "msa": ("msa_context_module", "msa_generation_module"),
}

SOURCES = tuple(
    Source(f"{name}_module", tuple(f"{AIC}{table}.parquet" for table in tables),
           "one shape in five, by hash", _sparse(name, *tables), DEEP)
    for name, tables in _MODULES.items()
)  # fmt: skip
