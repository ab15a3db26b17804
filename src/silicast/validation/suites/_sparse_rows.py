"""Measured kernels and modules of sparse attention as op batches: which rows, which held out.

The suite scores what benchmarks/fit_sparse.py must not fit, so both read the rows here. One in
five shapes (batch, new tokens, past tokens) is held out, on every device and of every campaign.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from silicast.core.dtypes import recipe_for
from silicast.core.numerics import F64, I64
from silicast.validation.gemm_rows import AIC_DEVICES, mixed
from silicast.workload.op import OpBatch, Variant

SIZES = ("batch_size", "isl", "step", "num_heads")
WORDS = (
    "op_name", "system", "backend", "version", "kernel_source", "model", "mla_dtype",
    "kv_cache_dtype", "gemm_type", "score_mode", "compress_ratio", "tp_size",
)  # fmt: skip
HEADS_OF_INDEXER = {"GLM-5": 32, "DeepSeek-V4": 64, "DeepSeek-V3.2": 64}


@final
@dataclass(frozen=True)
class Rows:
    """Rows of one device and variant.

    Attributes:
        table: where they come from.
        device: catalog name.
        batch: the ops.
        sizes: int64 array (4, rows): batch, new tokens, past tokens, heads.
        seconds: measured time of one call.
        labels: words that rows share, for reports.
    """

    table: str
    device: str
    batch: OpBatch
    sizes: I64
    seconds: F64
    labels: Mapping[str, str]

    def __len__(self) -> int:
        return len(self.seconds)


def shape_held_out(sizes: I64) -> NDArray[np.bool_]:
    """One in five shapes is never fitted, on any device, whoever the library."""
    held: NDArray[np.bool_] = mixed(*sizes[:3], seed=11) % np.uint64(5) == 0
    return held


Lower = Callable[[Mapping[str, str], I64], tuple[str, Variant, dict[str, I64]] | None]
"""Words and sizes of a group of rows -> family, variant and dimensions; None = not modelled."""


def table_rows(
    data: Path, table: str, lower: Lower, count: int, *, held_out: bool | None = None
) -> list[Rows]:
    """Up to ``count`` rows of every group of equal words of a table, by hash of their sizes."""
    import pyarrow.parquet as pq

    path = data / f"aiconfigurator/{table}.parquet"
    present = set(pq.read_schema(path).names)
    words = [name for name in WORDS if name in present]
    read = pq.read_table(path, columns=[*dict.fromkeys([*words, *SIZES]), "latency_us"])
    code = np.zeros(len(read), dtype=np.int64)
    labels: list[list[str]] = []
    for name in words:
        values, indices = _coded(read[name])
        labels.append(values)
        code = code * len(values) + indices
    sizes = np.stack([_numbers(read[name]) for name in SIZES])
    micros = read["latency_us"].to_numpy().astype(np.float64)
    order = np.argsort(code, kind="stable")
    groups, starts = np.unique(code[order], return_index=True)
    found = []
    for group, index in zip(groups.tolist(), np.split(order, starts[1:]), strict=True):
        named: dict[str, str] = {"table": table}
        rest = group
        for name, options in zip(reversed(words), reversed(labels), strict=True):
            rest, place = divmod(rest, len(options))
            named[name] = options[place]
        if named["system"] not in AIC_DEVICES:
            continue
        chosen = index[_chosen(sizes[:, index], count, held_out)]
        part = sizes[:, chosen]
        lowered = lower(named, part) if len(chosen) else None
        if lowered is None:
            continue
        family, variant, dims = lowered
        batch = OpBatch(family, variant, {k: np.ascontiguousarray(v) for k, v in dims.items()})
        found.append(
            Rows(table, AIC_DEVICES[named["system"]], batch, part, micros[chosen] * 1e-6, named)
        )
    return found


def _chosen(sizes: I64, count: int, held_out: bool | None) -> I64:
    """Places of up to ``count`` rows, of those that are (or are not) held out."""
    kept = np.arange(sizes.shape[1])
    if held_out is not None:
        kept = kept[shape_held_out(sizes) == held_out]
    if len(kept) <= count:
        return kept
    order = np.argsort(mixed(*sizes[:, kept], seed=3), kind="stable")
    return kept[np.sort(order[:count])]


def _coded(column: Any) -> tuple[list[str], I64]:
    """Distinct words of a column, and which of them each row has."""
    import pyarrow as pa

    column = column.combine_chunks()
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    values = [str(value) for value in column.dictionary.to_pylist()]
    indices = column.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return values, indices


def _numbers(column: Any) -> I64:
    values, indices = _coded(column)
    table = np.array([int(value) for value in values], dtype=np.int64)
    return table[indices]


def index_heads(model: str) -> int:
    """Heads of the indexer of a model that the tables name."""
    return next((heads for name, heads in HEADS_OF_INDEXER.items() if name in model), 64)


def glm_logits(words: Mapping[str, str], s: I64) -> tuple[str, Variant, dict[str, I64]]:
    """DeepGEMM's scores of a prefill."""
    heads = np.full(s.shape[1], index_heads(words["model"]))
    dims = {"batch": s[0], "q_len": s[1], "kv_len": s[1] + s[2], "heads": heads}
    dims["head_dim"] = np.full(s.shape[1], 128)
    return "indexer_logits", Variant(dtype="fp8"), dims


def paged_logits(words: Mapping[str, str], s: I64) -> tuple[str, Variant, dict[str, I64]]:
    """DeepGEMM's scores over a paged cache with one key for four tokens."""
    family, _, dims = glm_logits(words, s)
    ratio = np.full(s.shape[1], int(words["compress_ratio"]))
    variant = Variant(dtype="fp8", flags=(("decode", True),))
    return family, variant, {**dims, "kv_len": s[2], "ratio": ratio}


def selection(words: Mapping[str, str], s: I64) -> tuple[str, Variant, dict[str, I64]] | None:
    """Selection of the largest scores; rows of a prefill see more keys one after another.

    Campaigns with equal scores everywhere ("flat") are a worst case that no model's scores meet:
    they are left out, as are the few rows of a second version of the kernel.
    """
    if words["score_mode"] not in ("top_last", "v1_top_last"):
        return None
    ratio = int(words.get("compress_ratio", "1"))
    k = {"GLM": 2048, "Fla": 512, "Pro": 1024}[_which(words["model"])]
    dims = {
        "batch": s[0],
        "q_len": s[1],
        "kv_len": s[1] + s[2],
        "ratio": np.full(s.shape[1], ratio),
        "k": np.full(s.shape[1], k),
    }
    return "topk", Variant(dtype="fp32"), dims


def glm_attention(words: Mapping[str, str], s: I64) -> tuple[str, Variant, dict[str, I64]]:
    """FlashMLA over the selected entries of a prefill."""
    del words
    full = np.full(s.shape[1], 1)
    dims = {
        "batch": s[0], "q_len": s[1], "kv_len": s[1] + s[2], "num_heads": s[3],
        "head_dim": full * 576, "value_dim": full * 512, "selected": full * 2048,
    }  # fmt: skip
    return "sparse_attention", Variant(dtype="bf16"), dims


def hca_attention(words: Mapping[str, str], s: I64) -> tuple[str, Variant, dict[str, I64]]:
    """Attention over all compressed entries and a window."""
    full = np.full(s.shape[1], 1)
    dims = {
        "batch": s[0], "q_len": s[1], "kv_len": s[2],
        "num_heads": np.maximum(s[3] // int(words["tp_size"]), 1),
        "head_dim": full * 512, "value_dim": full * 512, "selected": full * 0,
        "ratio": full * int(words["compress_ratio"]), "window": full * 128,
    }  # fmt: skip
    variant = Variant(dtype="bf16", kv_dtype="fp8", flags=(("decode", True),))
    return "sparse_attention", variant, dims


def _which(model: str) -> str:
    return "GLM" if "GLM" in model else "Fla" if "Flash" in model else "Pro"


GLM_WIDTHS = {
    "hidden": 6144, "q_rank": 2048, "kv_rank": 512, "nope": 192, "rope": 64, "value": 256,
    "index_heads": 32, "index_dim": 128, "selected": 2048,
}  # fmt: skip
"""config.json of zai-org/GLM-5; DeepSeek-V3.2's are the module's own defaults."""


def dsa_module(words: Mapping[str, str], s: I64) -> tuple[str, Variant, dict[str, I64]]:
    """A layer's sparse attention with its projections."""
    dims = {"batch_size": s[0], "isl": s[1], "step": s[2], "num_heads": s[3]}
    if "GLM" in words["model"]:
        dims |= {name: np.full(s.shape[1], width) for name, width in GLM_WIDTHS.items()}
    return "dsa_module", module_variant(words), dims


V4_FLASH = {"hidden": 4096, "q_rank": 1024, "selected": 512}
V4_PRO = {"hidden": 7168, "q_rank": 1536, "selected": 1024}
"""config.json of deepseek-ai/DeepSeek-V4-Flash and -Pro."""
GROUPS = {"Fla": 8, "Pro": 16}


def compressed_module(words: Mapping[str, str], s: I64) -> tuple[str, Variant, dict[str, I64]]:
    """A layer's compressed attention with its projections."""
    dims = {"batch_size": s[0], "isl": s[1], "step": s[2], "num_heads": s[3]}
    which = _which(words["model"])
    widths = {**(V4_FLASH if which == "Fla" else V4_PRO)}
    widths["out_groups"] = max(GROUPS[which] // int(words["tp_size"]), 1)
    widths["compress_ratio"] = int(words["compress_ratio"])
    dims |= {name: np.full(s.shape[1], width) for name, width in widths.items()}
    return ("csa" if "csa" in words["op_name"] else "hca") + "_module", module_variant(words), dims


def block_module(words: Mapping[str, str], s: I64) -> tuple[str, Variant, dict[str, I64]] | None:
    """A layer's block-sparse attention with its projections.

    Two campaigns of TensorRT-LLM are left out: off Blackwell its rows hold times of a reference
    path, up to a minute; and on B200 prefills that differ by 128 cached tokens alone differ by a
    factor of two (log sd 0.75; 0.12 on GB200), some by forty: the machine did other work.
    """
    if words["backend"] == "trtllm":
        blackwell = "200" in words["system"].replace("h200", "")
        if not blackwell or (words["system"] == "b200_sxm" and "context" in words["table"]):
            return None
    dims = {"batch_size": s[0], "isl": s[1], "step": s[2], "num_heads": s[3]}
    return "msa_module", module_variant(words), dims


def module_variant(words: Mapping[str, str]) -> Variant:
    """Formats, library and phase of a module's rows."""
    flags = {f"gemm_{recipe_for(words['gemm_type']).name}": True}
    if "generation" in words["table"]:
        flags["generation"] = True
    if words.get("op_name", "").endswith("skip_indexer"):
        flags["skip_indexer"] = True
    return Variant(
        dtype="bf16",
        kv_dtype=recipe_for(words["kv_cache_dtype"]).name,
        library=words["backend"],
        version=words["version"],
        kernel=words["kernel_source"],
        flags=tuple(sorted(flags.items())),
    )


MODULE_TABLES: Mapping[str, Lower] = {
    "dsa_context_module": dsa_module,
    "dsa_generation_module": dsa_module,
    "dsv4_csa_context_module": compressed_module,
    "dsv4_csa_generation_module": compressed_module,
    "dsv4_hca_context_module": compressed_module,
    "dsv4_hca_generation_module": compressed_module,
    "msa_context_module": block_module,
    "msa_generation_module": block_module,
}

KERNEL_TABLES: Mapping[str, Lower] = {
    "glm5_mqa_logits_module": glm_logits,
    "dsv4_paged_mqa_logits_module": paged_logits,
    "glm5_topk_module": selection,
    "dsv4_csa_topk_calib": selection,
    "glm5_dsa_attn_module": glm_attention,
    "dsv4_hca_attn_module": hca_attention,
}
