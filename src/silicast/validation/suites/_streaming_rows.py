"""Measured rows of streaming kernels, from every source that has them, with the split of each.

Split (``fitted`` marks what benchmarks/fit_streaming.py may use; suites score the rest):
PipeWeave and NeuSight by their own train and test split; the 8-bit quantisation tables by hidden
size (every second of the measured sizes); LLMServingSim's layer profiles by the number of tokens
(every second of the measured values); Vidur's by model (:data:`HELD_MODELS`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from silicast.core.numerics import F64, I64
from silicast.workload.op import OpBatch, Variant


@final
@dataclass(frozen=True)
class Rows:
    """Rows of one source, device, family and variant.

    Attributes:
        batch: the ops.
        device: catalog name or alias.
        measured_us: shape (n,).
        fitted: whether the row may be fitted, shape (n,).
        resolution_us: of the clock that took the times.
        peer_us: PipeWeave's stored prediction, or None.
    """

    source: str
    batch: OpBatch
    device: str
    measured_us: F64
    fitted: NDArray[np.bool_]
    resolution_us: float = 0.02
    peer_us: F64 | None = None

    def at(self, mask: NDArray[Any]) -> Rows:
        """The rows that ``mask`` (booleans or indices) selects."""
        dims = {name: values[mask] for name, values in self.batch.dims.items()}
        return Rows(
            self.source,
            OpBatch(self.batch.family, self.batch.variant, dims),
            self.device,
            self.measured_us[mask],
            self.fitted[mask],
            self.resolution_us,
            None if self.peer_us is None else self.peer_us[mask],
        )


PROFILED = Variant(launch="profiler")


def load_rows(data: Path) -> list[Rows]:
    """All rows of all sources, in a fixed order."""
    return [
        *_pipeweave(data / "pipeweave/kernel_elementwise_sample.parquet"),
        *_quantize(data / "aiconfigurator"),
        *_vidur(data / "serving/vidur_linear_ops.parquet"),
        *_layer_profile(data / "serving"),
        *_neusight(data / "neusight/kernels_nvidia.parquet"),
    ]


def _columns(path: Path, names: list[str], where: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Columns of a table as arrays, restricted to rows whose columns have one of the values."""
    import pyarrow.parquet as pq

    filters = [(name, "in", values) for name, values in where.items()] or None
    table = pq.read_table(path, columns=names, filters=filters)
    return {name: np.asarray(table.column(name).to_numpy(zero_copy_only=False)) for name in names}


def _groups(columns: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    """(values of ``names``..., mask) for each combination that occurs, sorted."""
    for key in sorted(set(zip(*(columns[name].tolist() for name in names), strict=True))):
        mask = np.ones(len(columns[names[0]]), dtype=bool)
        for name, value in zip(names, key, strict=True):
            mask &= columns[name] == value
        yield (*key, mask)


def _every_second(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Marks rows whose value is an even-numbered one among the distinct values."""
    return np.asarray(np.searchsorted(np.unique(values), values) % 2 == 0)


def _batch(family: str, variant: Variant, **dims: NDArray[Any] | int) -> OpBatch:
    count = max(len(v) for v in dims.values() if not isinstance(v, int))
    sizes: dict[str, I64] = {
        name: np.full(count, v, dtype=np.int64) if isinstance(v, int) else v.astype(np.int64)
        for name, v in dims.items()
    }
    return OpBatch(family, variant, sizes)


def _pipeweave(path: Path) -> Iterator[Rows]:
    columns = _columns(path, ["op", "gpu", "split", "seq", "dim", "latency_us", "pw_pred_us"], {})
    for op, gpu, mask in _groups(columns, ("op", "gpu")):
        c = {name: values[mask] for name, values in columns.items()}
        if op == "rmsnorm":
            batch = _batch("rmsnorm", PROFILED, tokens=c["seq"], hidden=c["dim"], residual=1)
        else:
            batch = _batch("silu_mul", PROFILED, tokens=c["seq"], width=c["dim"])
        yield Rows(
            "pipeweave",
            batch,
            gpu,
            c["latency_us"],
            c["split"] == "train",
            peer_us=c["pw_pred_us"],
        )


_SYSTEMS = {
    "h100_sxm": "H100-SXM",
    "h200_sxm": "H200-SXM",
    "b200_sxm": "B200-SXM",
    "gb200": "GB200",
    "l40s": "L40S",
}


def _quantize(folder: Path) -> Iterator[Rows]:
    """VLLM static and dynamic per-token, TensorRT-LLM static; both replay one buffer in a graph."""
    keys = ["system", "backend", "version", "m", "k", "latency_us"]
    static = _columns(folder / "scale_matrix.parquet", keys, {})
    extra = _columns(folder / "computescale.parquet", keys, {"backend": ["vllm"]})
    scale = {
        key: value
        for *key_parts, value in zip(*(extra[name].tolist() for name in keys), strict=True)
        for key in [tuple(key_parts)]
    }
    for system, backend, version, mask in _groups(static, ("system", "backend", "version")):
        c = {name: values[mask] for name, values in static.items()}
        flags = (("static", True),)
        variant = Variant("fp8", library=backend, version=version, flags=flags)
        fitted = _every_second(c["k"])
        batch = _batch("quantize", variant, tokens=c["m"], hidden=c["k"])
        yield Rows("aiconfigurator", batch, _SYSTEMS[system], c["latency_us"], fitted)
        added = [scale.get(key) for key in zip(*(c[n].tolist() for n in keys[:-1]), strict=True)]
        known = np.array([value is not None for value in added])
        if not known.any():
            continue
        dynamic = c["latency_us"] + np.array([value or 0.0 for value in added])
        batch = _batch("quantize", replace(variant, flags=()), tokens=c["m"], hidden=c["k"])
        yield Rows("aiconfigurator", batch, _SYSTEMS[system], dynamic, fitted).at(known)


HELD_MODELS = frozenset({"internlm/internlm-20b", "Qwen/Qwen-2-7B"})
"""Of Vidur's models, those that are never fitted: no other has their widths."""
_VIDUR = {"A100": "A100", "H100": "H100", "A40": "A40", "A30": "A30"}


def _vidur(path: Path) -> Iterator[Rows]:
    """Layers of a small model; norms, SiLU, RoPE and embedding are the scalar kernels of 2023.

    A30's rows are another laboratory's, whose every kernel takes twice the floor of the others.
    """
    names = [
        "gpu", "model", "op", "n_embd", "n_head", "n_kv_head", "n_expanded_embd", "vocab_size",
        "use_gated_mlp", "num_tokens", "num_tensor_parallel_workers", "mean_ms",
    ]  # fmt: skip
    where = {"op": [*_LAYERS], "gpu": [*_VIDUR]}
    columns = _columns(path, names, where)
    columns["num_tensor_parallel_workers"] = columns["num_tensor_parallel_workers"].astype(int)
    columns["eager"] = ~columns["use_gated_mlp"].astype(bool)  # phi-2: LayerNorm and GELU
    columns["of"] = np.array([_LAYERS[op] for op in columns["op"].tolist()])
    for gpu, of, eager, mask in _groups(columns, ("gpu", "of", "eager")):
        if of == "add" and eager:
            continue  # phi-2 adds both branches to the residual: two kernels under one name
        c = {name: values[mask] for name, values in columns.items()}
        held = np.isin(c["model"], list(HELD_MODELS))
        batch = _layer(of, c, eager=bool(eager))
        # no shape of a held-out model is fitted for another
        shapes = np.stack(list(batch.dims.values()), axis=1)
        taken = {tuple(row) for row in shapes[held].tolist()}
        known = np.array([tuple(row) in taken for row in shapes.tolist()])
        source = "vidur-fork" if gpu == "A30" else "vidur-phi" if eager else "vidur"
        rows = Rows(source, batch, _VIDUR[gpu], c["mean_ms"] * 1e3, ~held, resolution_us=0.5)
        yield rows.at(held | ~known)


_LAYERS = {
    "add": "add", "attn_rope": "rope", "emb": "embedding", "input_layernorm": "norm",
    "post_attention_layernorm": "norm", "mlp_act": "activation",
}  # fmt: skip


def _layer(of: str, c: Mapping[str, Any], *, eager: bool) -> OpBatch:
    """The ops of one kind of layer."""
    tokens, wide = c["num_tokens"], c["n_embd"]
    tp = c["num_tensor_parallel_workers"]
    own = Variant("fp16", library="sarathi", launch="profiler", cache="between")
    if of == "add":
        variant = replace(own, library="", flags=(("add", True),))
        return _batch("elementwise", variant, elements=tokens * wide, inputs=2)
    if of == "embedding":
        return _batch("embedding", own, tokens=tokens, hidden=wide)
    if of == "rope":
        return _batch(
            "rope", own, tokens=tokens, num_heads=c["n_head"] // tp,
            num_kv_heads=np.maximum(c["n_kv_head"] // tp, 1), head_dim=wide // c["n_head"],
        )  # fmt: skip
    if of == "norm":
        variant = replace(own, library="torch") if eager else own
        family = "layernorm" if eager else "rmsnorm"
        return _batch(family, variant, tokens=tokens, hidden=wide, residual=0)
    width = c["n_expanded_embd"] // tp
    if eager:
        variant = replace(own, library="torch", flags=(("gelu", True),))
        return _batch("elementwise", variant, elements=tokens * width, inputs=1)
    return _batch("silu_mul", own, tokens=tokens, width=2 * width)


def _layer_profile(folder: Path) -> Iterator[Rows]:
    """VLLM 0.19 layers of Llama-3.1-8B on an RTX 4090."""
    dense = _columns(
        folder / "llmservingsim_profile_dense.parquet", ["layer", "tokens", "time_us"], {}
    )
    rows = _columns(
        folder / "llmservingsim_profile_per_sequence.parquet",
        ["layer", "sequences", "time_us"],
        {"layer": ["sampler"]},
    )
    vllm = Variant(library="vllm", launch="profiler", cache="between")
    shapes: dict[str, tuple[str, dict[str, int]]] = {
        "act_fn": ("silu_mul", {"width": 28672}),
        "embedding": ("embedding", {"hidden": 4096}),
        "layernorm": ("rmsnorm", {"hidden": 4096, "residual": 1}),
        "rotary_emb": ("rope", {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128}),
    }
    for layer, (family, sizes) in shapes.items():
        mask = dense["layer"] == layer
        tokens = dense["tokens"][mask]
        batch = _batch(family, vllm, tokens=tokens, **sizes)
        yield Rows("vllm-profile", batch, "RTX 4090", dense["time_us"][mask], _every_second(tokens))
    batch = _batch("sampling", vllm, rows=rows["sequences"], vocab=128256)
    fitted = _every_second(rows["sequences"])
    yield Rows("vllm-profile", batch, "RTX 4090", rows["time_us"], fitted)


HOST_JITTER_US = 15.0  # eager calls on an idle device: short ones time the host, not the kernel
_KINDS = {"addu": "add", "mulu": "mul", "divu": "div", "powu": "pow"}
_TENSOR_TENSOR = {"add", "mul", "div", "pow"}


def _neusight(path: Path) -> Iterator[Rows]:
    """Eager fp32 kernels, launched one by one on an idle device."""
    kinds = ["add", "mul", "div", "pow", "relu", "gelu", "tanh", *_KINDS]
    names = ["op", "gpu", "split", "B", "H", "latency_ms"]
    columns = _columns(path, names, {"op": ["ln", "softmax", *kinds]})
    for op, gpu, mask in _groups(columns, ("op", "gpu")):
        c = {name: values[mask] for name, values in columns.items()}
        eager = Variant("fp32", library="torch", launch="stream")
        if op == "ln":
            batch = _batch("layernorm", eager, tokens=c["B"], hidden=c["H"], residual=0)
        elif op == "softmax":
            batch = _batch("softmax", eager, rows=c["B"], cols=c["H"])
        else:
            kind = Variant(
                "fp32", library="torch", launch="stream", flags=((_KINDS.get(op, op), True),)
            )
            elements = c["B"].astype(np.int64) * c["H"].astype(np.int64)
            inputs = 2 if op in _TENSOR_TENSOR else 1
            batch = _batch("elementwise", kind, elements=elements, inputs=inputs)
        fitted = c["split"] == "train"
        yield Rows(
            "neusight", batch, gpu, c["latency_ms"] * 1e3, fitted, resolution_us=HOST_JITTER_US
        )
