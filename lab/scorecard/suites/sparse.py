"""Sparse attention: its kernels, and the modules of DeepSeek-V3.2 and V4, GLM-5 and MiniMax-M3.

One in five shapes (batch, new tokens, past tokens) is held out, on every device and of every
campaign; constants are fitted by lab/fit_sparse.py and fit_sparse_modules.py on the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from lab.scorecard.kernel_suite import KernelScore, LabelOf, Rows, compulsory_bytes, ranges, word
from lab.scorecard.rows import Labels, Mask, MeasuredRows, Sizes, Words, mixed, one_in
from lab.scorecard.suite import Suite
from lab.scorecard.tables import Ops, Table, column_names, ops, read_table
from lab.scorecard.training import DEEP, MANY, Source
from silicast.core.dtypes import recipe_for
from silicast.core.numerics import F64, I64
from silicast.kernels.composite import Composite
from silicast.kernels.implementation import KernelTimes
from silicast.workload.graphs.op import Variant

SIZES = ("batch_size", "isl", "step", "num_heads")
HEADS_OF_INDEXER = {"GLM-5": 32, "DeepSeek-V4": 64, "DeepSeek-V3.2": 64}
GLM_WIDTHS = {
    "hidden": 6144, "q_rank": 2048, "kv_rank": 512, "nope": 192, "rope": 64, "value": 256,
    "index_heads": 32, "index_dim": 128, "selected": 2048,
}  # fmt: skip
"""config.json of zai-org/GLM-5; DeepSeek-V3.2's are the module's own defaults."""
V4_FLASH = {"hidden": 4096, "q_rank": 1024, "selected": 512}
V4_PRO = {"hidden": 7168, "q_rank": 1536, "selected": 1024}
"""config.json of deepseek-ai/DeepSeek-V4-Flash and -Pro."""
GROUPS = {"Fla": 8, "Pro": 16}


def shape_held_out(s: Sizes) -> Mask:
    """One in five shapes is never fitted, on any device, whatever the library."""
    return one_in(5, *(s[name] for name in SIZES[:3]), seed=11)


def _which(model: str) -> str:
    return "GLM" if "GLM" in model else "Fla" if "Flash" in model else "Pro"


def _scores(words: Words, s: Sizes) -> list[Ops]:
    """DeepGEMM's scores of a prefill, or over a paged cache with one key for four tokens."""
    batch, new, past, _ = s.values()
    heads = next((n for name, n in HEADS_OF_INDEXER.items() if name in words["model"]), 64)
    dims = {"batch": batch, "q_len": new, "kv_len": new + past, "heads": heads, "head_dim": 128}
    variant = Variant(dtype="fp8")
    if "paged" in words["table"]:
        dims |= {"kv_len": past, "ratio": int(words["compress_ratio"])}
        variant = Variant(dtype="fp8", flags=(("decode", True),))
    return ops("indexer_logits", variant, dims, shape_held_out(s))


def _selection(words: Words, s: Sizes) -> list[Ops]:
    """Selection of the largest scores; rows of a prefill see more keys one after another.

    Campaigns with equal scores everywhere ("flat") are a worst case that no model's scores meet:
    they are left out, as are the few rows of a second version of the kernel.
    """
    if words["score_mode"] not in ("top_last", "v1_top_last"):
        return []
    batch, new, past, _ = s.values()
    k = {"GLM": 2048, "Fla": 512, "Pro": 1024}[_which(words["model"])]
    ratio = int(words.get("compress_ratio", "1"))
    dims = {"batch": batch, "q_len": new, "kv_len": new + past, "ratio": ratio, "k": k}
    return ops("topk", Variant(dtype="fp32"), dims, shape_held_out(s))


def _selected_attention(_: Words, s: Sizes) -> list[Ops]:
    """FlashMLA over the selected entries of a prefill."""
    batch, new, past, heads = s.values()
    dims = {
        "batch": batch,
        "q_len": new,
        "kv_len": new + past,
        "num_heads": heads,
        "head_dim": 576,
        "value_dim": 512,
        "selected": 2048,
    }
    return ops("sparse_attention", Variant(dtype="bf16"), dims, shape_held_out(s))


def _compressed_attention(words: Words, s: Sizes) -> list[Ops]:
    """Attention over all compressed entries and a window."""
    batch, new, past, heads = s.values()
    dims = {
        "batch": batch,
        "q_len": new,
        "kv_len": past,
        "num_heads": np.maximum(heads // int(words["tp_size"]), 1),
        "head_dim": 512,
        "value_dim": 512,
        "selected": 0,
        "ratio": int(words["compress_ratio"]),
        "window": 128,
    }
    variant = Variant(dtype="bf16", kv_dtype="fp8", flags=(("decode", True),))
    return ops("sparse_attention", variant, dims, shape_held_out(s))


def _dsa_module(words: Words, s: Sizes) -> list[Ops]:
    """A layer's sparse attention with its projections."""
    dims = {**s, **(GLM_WIDTHS if "GLM" in words["model"] else {})}
    return ops("dsa_module", module_variant(words), dims, shape_held_out(s))


def _compressed_module(words: Words, s: Sizes) -> list[Ops]:
    """A layer's compressed attention with its projections."""
    which = _which(words["model"])
    dims = {
        **s,
        **(V4_FLASH if which == "Fla" else V4_PRO),
        "out_groups": max(GROUPS[which] // int(words["tp_size"]), 1),
        "compress_ratio": int(words["compress_ratio"]),
    }
    family = ("csa" if "csa" in words["op_name"] else "hca") + "_module"
    return ops(family, module_variant(words), dims, shape_held_out(s))


def _block_module(words: Words, s: Sizes) -> list[Ops]:
    """A layer's block-sparse attention with its projections.

    Two campaigns of TensorRT-LLM are left out: off Blackwell its rows hold times of a reference
    path, up to a minute; and on B200 prefills that differ by 128 cached tokens alone differ by a
    factor of two (log sd 0.75; 0.12 on GB200), some by forty: the machine did other work.
    """
    if words["backend"] == "trtllm":
        blackwell = "200" in words["system"].replace("h200", "")
        if not blackwell or (words["system"] == "b200_sxm" and "context" in words["table"]):
            return []
    return ops("msa_module", module_variant(words), s, shape_held_out(s))


def module_variant(words: Words) -> Variant:
    """Formats, library and phase of a module's rows."""
    flags = {f"gemm_{recipe_for(words['gemm_type']).name}": True}
    if "generation" in words["table"]:
        flags["generation"] = True
    if words.get("op_name", "").endswith("skip_indexer"):
        flags["skip_indexer"] = True
    return Variant(
        "bf16",
        recipe_for(words["kv_cache_dtype"]).name,
        words["backend"],
        words["version"],
        words["kernel_source"],
        flags=tuple(sorted(flags.items())),
    )


_LOWERINGS = {
    "glm5_mqa_logits_module": _scores, "dsv4_paged_mqa_logits_module": _scores,
    "glm5_topk_module": _selection, "dsv4_csa_topk_calib": _selection,
    "glm5_dsa_attn_module": _selected_attention, "dsv4_hca_attn_module": _compressed_attention,
    "dsa_context_module": _dsa_module, "dsa_generation_module": _dsa_module,
    "dsv4_csa_context_module": _compressed_module, "dsv4_csa_generation_module": _compressed_module,
    "dsv4_hca_context_module": _compressed_module, "dsv4_hca_generation_module": _compressed_module,
    "msa_context_module": _block_module, "msa_generation_module": _block_module,
}  # fmt: skip
_WORDS = (
    "op_name", "system", "backend", "version", "kernel_source", "model", "mla_dtype",
    "kv_cache_dtype", "gemm_type", "score_mode", "compress_ratio", "tp_size",
)  # fmt: skip
TABLES = {name: Table(name, (), SIZES, lower) for name, lower in _LOWERINGS.items()}
KERNELS, MODULES = tuple(TABLES)[:6], tuple(TABLES)[6:]


def sparse_rows(
    data: Path, names: Iterable[str], count: int, *, held_out: bool | None = None
) -> Iterator[MeasuredRows]:
    """Up to ``count`` rows of every group of equal words of some tables, by hash of their sizes.

    Args:
        held_out: only rows that are (or are not) held out.
    """

    def chosen(s: Sizes) -> I64:
        indices = np.arange(len(s["isl"]))
        if held_out is not None:
            indices = indices[shape_held_out(s) == held_out]
        if len(indices) <= count:
            return indices
        order = np.argsort(mixed(*(s[name][indices] for name in SIZES), seed=3), kind="stable")
        return indices[np.sort(order[:count])]

    for name in names:
        present = column_names(data / TABLES[name].path)
        words = [word for word in _WORDS if word in present]
        yield from read_table(data, TABLES[name], choose=chosen, words=words)


_OF_FAMILY: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "indexer_logits": (MANY, KERNELS[:2]),
    "topk": (MANY, KERNELS[2:4]),
    "sparse_attention": (MANY, KERNELS[4:]),
    "dsa_module": (300, MODULES[:2]),
    "csa_module": (400, MODULES[2:4]),
    "hca_module": (250, MODULES[4:6]),
    "msa_module": (1200, MODULES[6:]),
}
"""Family -> rows that corrections learn from of each group of equal words, and tables: more rows
where there are few groups, or where errors are large."""

SOURCES = tuple(
    Source(
        family,
        tuple(TABLES[name].path for name in names),
        "one shape in five, by hash",
        partial(sparse_rows, names=names, count=count),
        DEEP,
    )
    for family, (count, names) in _OF_FAMILY.items()
)


def roofline_s(rows: MeasuredRows, times: KernelTimes) -> F64:
    """The larger of two times: products at their peak rate, and compulsory bytes at the datasheet
    bandwidth, whatever the cache may hold.
    """
    model = rows.model
    if isinstance(model, Composite):
        work = model.work(rows.batch, None)
        moved = (work.read_bytes + work.written_bytes).astype(np.float64)
    else:
        moved = compulsory_bytes(rows)
    products = times.analysis.resource_s.get("tensor", np.zeros(len(rows)))
    return np.maximum(products, moved / rows.hardware.dram.bandwidth_bytes_per_s)


def _regime(rows: MeasuredRows, _: KernelTimes) -> Labels:
    """Phase and size of the call."""
    d, variant = rows.batch.dims, rows.batch.variant
    tokens = d["batch_size"] * d["isl"] if "isl" in d else d["batch"] * d["q_len"]
    decode = variant.flag("generation") or variant.flag("decode")
    phase = "generation" if decode else "context"
    names = [f"{phase}, {size}" for size in ("<= 64 tokens", "65-4096", "> 4096")]
    return ranges(tokens, (64, 4096), names)


LABELS: Mapping[str, LabelOf] = {
    "engine": word("backend"),
    "table": word("table"),
    "format": word("gemm_type"),
    "regime": _regime,
}
ROWS_PER_GROUP = 40
"""Rows of each device, engine version, format and model."""


def _scored_rows(data: Path, limit: int | None) -> Rows:
    count = ROWS_PER_GROUP if limit is None else max(2, limit // 400)
    modules = list(sparse_rows(data, MODULES, count, held_out=True))
    return {
        "kernels_us": list(sparse_rows(data, KERNELS, 4 * count, held_out=True)),
        **{
            f"{kind}_us": [part for part in modules if part.batch.family == f"{kind}_module"]
            for kind in ("dsa", "csa", "hca", "msa")
        },
    }


SUITES = (
    Suite(
        "sparse_modules",
        tuple(table.path for table in TABLES.values()),
        KernelScore(_scored_rows, roofline_s, LABELS),
    ),
)
