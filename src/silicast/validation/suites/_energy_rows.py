"""Measured board power of kernels: which rows of which tables, and which of them are held out.

A row's power is the board's mean while one kernel repeats (NVML, ten samples a second); of calls
longer than :data:`LONG_S` that is what it draws for ever, so that power x time is the energy of a
hot, queued kernel. The split is that of the suites of the families' times:
benchmarks/fit_energy.py fits none of the rows that are scored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from silicast.core.dtypes import recipe_for
from silicast.core.numerics import F64, I64
from silicast.validation.gemm_rows import AIC_DEVICES, mixed, weight_held_out
from silicast.validation.suites import _attention_rows as attention
from silicast.validation.suites import _encoder_rows as encoder
from silicast.validation.suites import _linear_attention_rows as recurrent
from silicast.validation.suites import _mla_rows as mla
from silicast.validation.suites import _moe_rows as moe
from silicast.validation.suites import _sparse_rows as sparse
from silicast.workload.op import OpBatch, Variant

LONG_S = {
    "scale_matrix": 1e-4, "context_attention": 3e-4, "encoder_attention": 3e-4,
    "generation_attention": 3e-4, "context_mla": 3e-4, "generation_mla": 3e-4, "moe": 1e-3,
    "gemm": 2e-4, "mla_bmm": 1e-3, "gdn": 2e-3, "mamba2": 1e-3,
}  # fmt: skip
"""Table -> seconds from which a call's power is what the board draws while it repeats for ever.

The sources say that every kernel repeats for a second. The tables say otherwise: of one kernel,
called for longer and longer, power rises from that of an idle board until the call takes about so
long, whatever the use of the device; blocks of layers repeat even fewer times."""

BLOCK_S = 3e-2
"""The same for tables of whole blocks."""

Words = Mapping[str, str]
Sizes = Mapping[str, I64]
Held = NDArray[np.bool_]


@final
@dataclass(frozen=True)
class PowerRows:
    """Rows of one device, campaign and variant.

    Attributes:
        table: where they come from.
        device: catalog name.
        batch: the ops.
        seconds: measured time of one call.
        watts: mean board power while it repeats.
        cap_w: the board's limit while it was measured.
        held_out: rows that no constant may be fitted on.
        sizes: a hash of each row's sizes, for deterministic samples.
    """

    table: str
    device: str
    batch: OpBatch
    seconds: F64
    watts: F64
    cap_w: F64
    held_out: Held
    sizes: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def joules(self) -> F64:
        """Energy of one call."""
        return self.seconds * self.watts

    def take(self, index: Held | I64) -> PowerRows:
        """Some of the rows."""
        dims = {name: np.ascontiguousarray(x[index]) for name, x in self.batch.dims.items()}
        return replace(
            self,
            batch=OpBatch(self.batch.family, self.batch.variant, dims),
            seconds=self.seconds[index],
            watts=self.watts[index],
            cap_w=self.cap_w[index],
            held_out=self.held_out[index],
            sizes=self.sizes[index],
        )


def sample(rows: PowerRows, count: int) -> PowerRows:
    """A deterministic subsample of at most so many rows, by hash of the sizes."""
    if len(rows) <= count:
        return rows
    return rows.take(np.sort(np.argsort(rows.sizes, kind="stable")[:count]))


def power_rows(
    data: Path, table: str, count: int, *, held_out: bool | None = None, long: bool = True
) -> list[PowerRows]:
    """Up to ``count`` rows of every campaign and variant of a table that has power.

    Args:
        data: the data folder.
        table: a key of :data:`TABLES`.
        count: rows of each group.
        held_out: only rows that are (or are not) held out.
        long: only rows that take long enough for their power to be trusted; False = only others.
    """
    import pyarrow.parquet as pq

    lowered, names, columns = TABLES[table]
    words = ("system", "backend", "version", "kernel_source", *names)
    wanted = [*words, *columns, "latency_us", "power_w", "power_limit_w"]
    read = pq.read_table(
        data / f"aiconfigurator/{table}.parquet", columns=wanted, filters=[("power_w", ">", 0.0)]
    )
    code = np.zeros(len(read), dtype=np.int64)
    labels = []
    for word in words:
        values, indices = _coded(read[word])
        labels.append(values)
        code = code * len(values) + indices
    sizes = {name: _numbers(read[name]) for name in columns}
    rest = [read[name].to_numpy().astype(np.float64) for name in wanted[-3:]]
    order = np.argsort(code, kind="stable")
    groups, starts = np.unique(code[order], return_index=True)
    found = []
    for group, index in zip(groups.tolist(), np.split(order, starts[1:]), strict=True):
        named = {"table": table, **_words(group, words, labels)}
        if named["system"] not in AIC_DEVICES:
            continue
        part = {name: values[index] for name, values in sizes.items()}
        for batch, held, kept in lowered(named, part):
            chosen = index[kept]
            micros, watts, cap = (x[chosen] for x in rest)
            key = mixed(*(x[kept] for x in part.values()), seed=5)
            rows = PowerRows(
                table, AIC_DEVICES[named["system"]], batch, micros * 1e-6, watts, cap, held, key
            )
            kept_rows = (rows.seconds >= LONG_S.get(table, BLOCK_S)) == long
            if held_out is not None:
                kept_rows &= rows.held_out == held_out
            if kept_rows.any():
                found.append(sample(rows.take(kept_rows), count))
    return found


def _words(group: int, words: Sequence[str], labels: Sequence[Sequence[str]]) -> dict[str, str]:
    named = {}
    for word, options in zip(reversed(words), reversed(labels), strict=True):
        group, place = divmod(group, len(options))
        named[word] = options[place]
    return named


def _numbers(column: Any) -> I64:
    """A column of integers, some of which are kept as text."""
    values, indices = _coded(column.cast("string"))
    return np.array([int(value) for value in values], dtype=np.int64)[indices]


def _coded(column: Any) -> tuple[list[str], I64]:
    """Distinct words of a column, sorted, and which of them each row has."""
    encoded = column.cast("string").combine_chunks().dictionary_encode()
    values, indices = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    order = sorted(range(len(values)), key=values.__getitem__)
    rank = np.empty(len(values), dtype=np.int64)
    rank[order] = np.arange(len(values))
    return [values[i] for i in order], rank[indices]


Parts = list[tuple[OpBatch, Held, I64]]
"""Ops of a group of rows by variant, whether each is held out, and which rows of the group."""


def _all(family: str, variant: Variant, dims: Sizes, held: Held) -> Parts:
    batch = OpBatch(family, variant, {n: np.ascontiguousarray(v) for n, v in dims.items()})
    return [(batch, held, np.arange(len(held)))]


def _named(words: Words, dtype: str, kv_dtype: str = "", **flags: bool) -> Variant:
    return Variant(
        dtype, kv_dtype, words["backend"], words["version"], words["kernel_source"], "graph", "",
        tuple(sorted(flags.items())),
    )  # fmt: skip


def _format(name: str) -> str:
    return recipe_for({"bfloat16": "bf16"}.get(name, name)).name


def _gemm(words: Words, s: Sizes) -> Parts:
    """Products; vLLM's fp8_block rows hold host time that the device idles through."""
    dtype = _format(words["gemm_dtype"])
    if (dtype, words["backend"]) == ("fp8_block", "vllm"):
        return []
    flags = (("includes_quantize", True),) if recipe_for(dtype).quantizes else ()
    variant = Variant(dtype, library=words["backend"], version=words["version"], flags=flags)
    dims = {name: s[name] for name in "mnk"} | {"batch": np.ones_like(s["m"])}
    return _all("gemm", variant, dims, weight_held_out(s["n"], s["k"]))


def _bmm(words: Words, s: Sizes) -> Parts:
    n, k = (512, 128) if words["op_name"] == "mla_gen_pre" else (128, 512)
    heads, full = s["num_heads"], np.ones_like(s["num_heads"])
    variant = Variant(
        _format(words["bmm_dtype"]), library=words["backend"], version=words["version"],
        kernel="bmm", flags=(("includes_quantize", True),),
    )  # fmt: skip
    dims = {"m": s["num_tokens"], "n": full * n, "k": full * k, "batch": heads}
    return _all("gemm", variant, dims, mixed(heads, full * n, seed=3) % np.uint64(5) == 0)


def _attention(words: Words, s: Sizes) -> Parts:
    heads, kv_heads, width = s["num_heads"], s["num_key_value_heads"], s["head_dim"]
    kv_heads = np.where(kv_heads > 0, kv_heads, heads)
    prefill = words["table"] == "context_attention"
    dims = {
        "batch": s["batch_size"], "q_len": s["isl"],
        "kv_len": s["step"] + s["isl"] if prefill else s["step"],
        "num_heads": heads, "num_kv_heads": kv_heads, "head_dim": width,
        "window": s["window_size"],
    }  # fmt: skip
    variant = _named(
        words, _format(words["attn_dtype"]), _format(words["kv_cache_dtype"]), causal=True
    )
    geometry = zip(heads.tolist(), kv_heads.tolist(), width.tolist(), strict=True)
    held = np.array([attention.held_out(*each) for each in geometry])
    return _all("attention_prefill" if prefill else "attention_decode", variant, dims, held)


def _encoder(words: Words, s: Sizes) -> Parts:
    heads, width = s["num_heads"], s["head_dim"]
    dims = {
        "batch": s["batch_size"], "q_len": s["isl"], "kv_len": s["isl"], "num_heads": heads,
        "num_kv_heads": heads, "head_dim": width, "window": np.zeros_like(heads),
    }  # fmt: skip
    pairs = zip(heads.tolist(), width.tolist(), strict=True)
    held = np.array([encoder.held_out(h, w) for h, w in pairs])
    return _all("attention_prefill", _named(words, "bf16", "bf16", causal=False), dims, held)


def _latent_dims(words: Words, s: Sizes, widths: Mapping[str, int]) -> dict[str, I64]:
    decode, isl, full = "generation" in words["table"], s["isl"], np.ones_like(s["isl"])
    return {
        "batch": s["batch_size"], "q_len": full if decode else isl,
        "kv_len": isl - 1 + s["step"] if decode else isl + s["step"],
        "num_heads": s["num_heads"], **{name: full * width for name, width in widths.items()},
    }  # fmt: skip


def _latent_held(s: Sizes) -> Held:
    pairs = zip(s["num_heads"].tolist(), s["batch_size"].tolist(), strict=True)
    return np.array([mla.held_out(heads, batch) for heads, batch in pairs])


def _latent(words: Words, s: Sizes) -> Parts:
    variant = _named(
        words, mla.DTYPES[words["mla_dtype"]], mla.DTYPES[words["kv_cache_dtype"]], causal=True
    )
    family = "mla_decode" if "generation" in words["table"] else "mla_prefill"
    held = _latent_held(s)
    return _all(family, variant, _latent_dims(words, s, mla.WIDTHS), held)


def _latent_module(words: Words, s: Sizes) -> Parts:
    dtype = mla.DTYPES[words["mla_dtype"]]
    flags = {f"gemm_{mla.DTYPES[words['gemm_type'] or 'fp8_block']}": True}
    if "generation" in words["table"]:
        flags["generation"] = True
    variant = _named(
        words, "bf16" if dtype == "fp8_block" else dtype, mla.DTYPES[words["kv_cache_dtype"]],
        **flags,
    )  # fmt: skip
    held = _latent_held(s)
    return _all("mla_module", variant, _latent_dims(words, s, mla.WIDTHS | mla.BLOCK), held)


def _sparse_module(words: Words, s: Sizes) -> Parts:
    sizes = np.stack([s[name] for name in sparse.SIZES])
    lowered = sparse.MODULE_TABLES[words["table"]](words, sizes)
    if lowered is None:
        return []
    family, variant, dims = lowered
    return _all(family, variant, dims, sparse.shape_held_out(sizes))


def _moe(words: Words, s: Sizes) -> Parts:
    sizes = np.stack([s[name] for name in moe.COLUMNS])
    if words["distribution"] == "power_law_0":
        return []
    plain = np.full(sizes.shape[1], "nongated" in words["kernel_source"])
    for topk, hidden in moe.UNGATED:
        plain |= (sizes[2] == topk) & (sizes[3] == hidden)
    found: Parts = []
    for gated, kept in ((True, np.flatnonzero(~plain)), (False, np.flatnonzero(plain))):
        if not len(kept):
            continue
        variant = Variant(
            recipe_for(words["moe_dtype"]).name, library=words["backend"],
            version=words["version"], kernel=words["kernel_source"],
            flags=tuple(sorted([("gated", gated), (words["distribution"], True)])),
        )  # fmt: skip
        part = np.ascontiguousarray(sizes[:, kept])
        batch = OpBatch("moe", variant, dict(zip(moe.DIMS, part, strict=True)))
        found.append((batch, moe.layer_held_out(part), kept))
    return found


def _recurrent(words: Words, s: Sizes) -> Parts:
    family, phase = words["table"], words["phase"]
    names = {"batch_size": "batch_size", "seq_len": "seq_len", **recurrent.COLUMNS[family]}
    dims = {name: s[column] for name, column in names.items()}
    flags = () if phase == "context" else ((phase, True),)
    variant = Variant(
        "bf16", library=words["backend"], version=words["version"], kernel=words["kernel_source"],
        flags=flags,
    )  # fmt: skip
    unique = np.stack(list(dims.values()))
    heads = unique[2:6] if family == "mamba2" else unique[2:4]
    held = mixed(unique[0], *heads, seed=7) % np.uint64(4) == 0
    return _all(family, variant, dims, held)


def _quantize(words: Words, s: Sizes) -> Parts:
    variant = Variant("fp8", library=words["backend"], flags=(("static", True),))
    held = np.searchsorted(np.unique(s["k"]), s["k"]) % 2 == 1
    return _all("quantize", variant, {"tokens": s["m"], "hidden": s["k"]}, held)


_HEADS = ("batch_size", "isl", "step", "num_heads")
_MODULE = ("model", "mla_dtype", "kv_cache_dtype", "gemm_type")
_DELTA = ("batch_size", "seq_len", *recurrent.COLUMNS["gdn"].values())
_MAMBA = ("batch_size", "seq_len", *recurrent.COLUMNS["mamba2"].values())
_KV = (*_HEADS, "num_key_value_heads", "head_dim", "window_size")
_FORMATS = ("attn_dtype", "kv_cache_dtype")
TABLES: Mapping[
    str, tuple[Callable[[Words, Sizes], Parts], tuple[str, ...], tuple[str, ...]]
] = {
    "gemm": (_gemm, ("gemm_dtype",), ("m", "n", "k")),
    "mla_bmm": (_bmm, ("bmm_dtype", "op_name"), ("num_heads", "num_tokens")),
    "context_attention": (_attention, _FORMATS, _KV),
    "generation_attention": (_attention, _FORMATS, _KV),
    "encoder_attention": (
        _encoder, ("attn_dtype",), ("batch_size", "isl", "num_heads", "head_dim")
    ),
    "context_mla": (_latent, ("mla_dtype", "kv_cache_dtype"), _HEADS),
    "generation_mla": (_latent, ("mla_dtype", "kv_cache_dtype"), _HEADS),
    "mla_context_module": (_latent_module, _MODULE, _HEADS),
    "mla_generation_module": (_latent_module, _MODULE, _HEADS),
    "dsa_context_module": (_sparse_module, ("op_name", *_MODULE, "tp_size"), _HEADS),
    "dsa_generation_module": (_sparse_module, ("op_name", *_MODULE, "tp_size"), _HEADS),
    "moe": (_moe, ("moe_dtype", "distribution"), moe.COLUMNS),
    "gdn": (_recurrent, ("phase",), _DELTA),
    "mamba2": (_recurrent, ("phase",), _MAMBA),
    "scale_matrix": (_quantize, ("quant_dtype",), ("m", "k")),
}  # fmt: skip
"""Table -> how its rows become ops, its words beside device and campaign, its sizes."""
