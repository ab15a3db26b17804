"""Sparse attention modules, with the columns of their tables."""

from __future__ import annotations

from collections.abc import Mapping

from silicast.scenario.kernel_tables._spec import BATCH, DEGREE, HEADS, LENGTH, OpSpec, Range

PHASES = ("context", "generation")


def _module(meaning: str, *, compressed: bool = False) -> OpSpec:
    """A latent or sparse attention module."""
    optional: dict[str, tuple[Range, int | None]] = {
        "step": (LENGTH, None), "isl": (LENGTH, None), "tp_size": (DEGREE, 1),
    }  # fmt: skip
    if compressed:
        optional |= {"compress_ratio": ((0, 65_536), None), "local_num_heads": ((0, 65_536), None)}
    return OpSpec(
        meaning,
        {"batch_size": BATCH, "num_heads": HEADS},
        optional,
        words={"phase": PHASES, "model": (), "architecture": (), "op_name": ()},
        dtypes=("mla_dtype", "kv_cache_dtype", "gemm_type"),
        main_dtype="mla_dtype",
    )


OPS: Mapping[str, OpSpec] = {
    "dsa_module": _module("sparse latent attention with its indexer", compressed=True),
    "csa_module": _module("compressed sparse attention module", compressed=True),
    "hca_module": _module("heavily compressed attention module", compressed=True),
    "msa_module": _module("block-sparse attention module", compressed=True),
}
