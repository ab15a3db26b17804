"""Rows of sparse attention: its kernels, and the modules made of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from silicast.learning.training import MeasuredKernels
from silicast.validation.source import AIC, DEEP, MANY, Read, Source
from silicast.validation.suites import _sparse_rows

PER_GROUP = {"dsa": 300, "csa": 400, "hca": 250, "msa": 1200}
"""Module -> rows read of each group of equal words in its tables, at most: more where there are few
groups, or where errors are large."""


LOWERED = {**_sparse_rows.KERNEL_TABLES, **_sparse_rows.MODULE_TABLES}


def _sparse(name: str, *tables: str) -> Read:
    def read(data: Path) -> Iterator[MeasuredKernels]:
        for table in tables:
            count = PER_GROUP.get(name, MANY)
            for part in _sparse_rows.table_rows(data, table, LOWERED[table], count):
                held = _sparse_rows.shape_held_out(part.sizes)
                yield MeasuredKernels(part.batch, part.device, part.seconds, held)

    return read


_MODULES = {
    "dsa": ("dsa_context_module", "dsa_generation_module"),
    "csa": ("dsv4_csa_context_module", "dsv4_csa_generation_module"),
    "hca": ("dsv4_hca_context_module", "dsv4_hca_generation_module"),
    "msa": ("msa_context_module", "msa_generation_module"),
}

_KERNELS = {
    "indexer_logits": ("glm5_mqa_logits_module", "dsv4_paged_mqa_logits_module"),
    "topk": ("glm5_topk_module", "dsv4_csa_topk_calib"),
    "sparse_attention": ("glm5_dsa_attn_module", "dsv4_hca_attn_module"),
}
_FAMILIES = {**_KERNELS, **{f"{name}_module": tables for name, tables in _MODULES.items()}}

SOURCES = tuple(
    Source(family, tuple(f"{AIC}{table}.parquet" for table in tables),
           "one shape in five, by hash", _sparse(family.removesuffix("_module"), *tables), DEEP)
    for family, tables in _FAMILIES.items()
)  # fmt: skip
