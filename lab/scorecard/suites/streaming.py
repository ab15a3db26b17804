"""Kernels that stream data: norms, activations, elementwise, softmax, quantisation.

Constants are fitted by lab/fit_streaming.py on the rows that are not held out: PipeWeave and
NeuSight by their own train and test split; the 8-bit quantisation tables by hidden size (every
second of the measured sizes); LLMServingSim's layer profiles by the number of tokens (every second
of the measured values); Vidur's by model (:data:`HELD_MODELS`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lab.scorecard.kernel_suite import KernelScore, LabelOf, Rows, compulsory_bytes, word
from lab.scorecard.rows import (
    Labels,
    Mask,
    MeasuredRows,
    Sizes,
    Words,
    every_second,
    held_out,
    some_of,
)
from lab.scorecard.suite import Score, Suite
from lab.scorecard.tables import AIC, AIC_DEVICES, Ops, Table, groups, ops, read_arrow, read_columns
from lab.scorecard.training import SMALL, Source
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.kernels.implementation import KernelTimes
from silicast.workload.graphs.op import Variant

PIPEWEAVE = "pipeweave/kernel_elementwise_sample.parquet"
NEUSIGHT = "neusight/kernels_nvidia.parquet"
COMPUTE_SCALE = f"{AIC}computescale.parquet"
DENSE_PROFILE = "serving/llmservingsim_profile_dense.parquet"
SEQUENCE_PROFILE = "serving/llmservingsim_profile_per_sequence.parquet"
VIDUR = "serving/vidur_linear_ops.parquet"
PROFILED = Variant(launch="profiler")
HELD_MODELS = frozenset({"internlm/internlm-20b", "Qwen/Qwen-2-7B"})
"""Of Vidur's models, those that are never fitted: no other has their widths."""


def streaming_rows(data: Path) -> list[MeasuredRows]:
    """All rows of all sources, in a fixed order."""
    return [
        *_pipeweave(data),
        *_quantize(data),
        *_vidur(data),
        *_layer_profile(data),
        *_neusight(data),
    ]


def resolution_us(rows: MeasuredRows) -> float:
    """The resolution of the clock that took the times; of eager calls, the host's jitter."""
    source = rows.words["source"].partition("-")[0]
    return {"vidur": 0.5, "neusight": 15.0}.get(source, 0.02)


def _part(
    source: str,
    device: str,
    family: str,
    variant: Variant,
    dims: Mapping[str, Any],
    micros: F64,
    held: Mask,
    **peers: F64,
) -> MeasuredRows:
    ((batch, _, _),) = ops(family, variant, dims, held)
    return MeasuredRows(
        batch,
        find_device(device).name,
        micros * 1e-6,
        held,
        {"source": source},
        peers={name: column * 1e-6 for name, column in peers.items()},
    )


def _pipeweave(data: Path) -> Iterator[MeasuredRows]:
    columns = ("split", "seq", "dim", "latency_us", "pw_pred_us")
    table = read_arrow(data / PIPEWEAVE, ["op", "gpu", *columns])
    for named, c in groups(table, ("op", "gpu"), columns):
        if named["op"] == "rmsnorm":
            family, dims = "rmsnorm", {"tokens": c["seq"], "hidden": c["dim"], "residual": 1}
        else:
            family, dims = "silu_mul", {"tokens": c["seq"], "width": c["dim"]}
        yield _part("pipeweave", named["gpu"], family, PROFILED, dims, c["latency_us"],
                    c["split"] != "train", pipeweave=c["pw_pred_us"])  # fmt: skip


def _static(words: Words, s: Sizes) -> list[Ops]:
    """Quantisation to fp8 with a static scale."""
    version = words["version"]
    variant = Variant("fp8", library=words["backend"], version=version, flags=(("static", True),))
    return ops("quantize", variant, {"tokens": s["m"], "hidden": s["k"]}, ~every_second(s["k"]))


STATIC = Table("scale_matrix", ("quant_dtype",), ("m", "k"), _static)


def _quantize(data: Path) -> Iterator[MeasuredRows]:
    """VLLM static and dynamic per-token, TensorRT-LLM static; both replay one buffer in a graph."""
    keys = ("system", "backend", "version", "m", "k")
    extra = read_columns(data / COMPUTE_SCALE, [*keys, "latency_us"], [("backend", "in", ["vllm"])])
    shapes = zip(*(extra[name].tolist() for name in keys), strict=True)
    scale = dict(zip(shapes, extra["latency_us"].tolist(), strict=True))
    table = read_arrow(data / STATIC.path, [*keys, "latency_us"])
    for named, c in groups(table, keys[:3], ("m", "k", "latency_us")):
        ((batch, held, _),) = _static(named, c)
        device, words = AIC_DEVICES[named["system"]], {"source": "aiconfigurator"}
        micros = c[
            "latency_us"
        ]  # 32 bits as in the table: what shipped corrections were trained on
        yield MeasuredRows(batch, device, micros * 1e-6, held, words)
        shapes = zip(c["m"].tolist(), c["k"].tolist(), strict=True)
        added = np.array([scale.get((*named.values(), m, k), np.nan) for m, k in shapes])
        finite = np.isfinite(added)
        if finite.any():
            dynamic = msgspec.structs.replace(batch, variant=replace(batch.variant, flags=()))
            rows = MeasuredRows(dynamic, device, (micros + added) * 1e-6, held, words)
            yield rows.take(finite)


_VIDUR_LAYERS = {
    "add": "add",
    "attn_rope": "rope",
    "emb": "embedding",
    "input_layernorm": "norm",
    "post_attention_layernorm": "norm",
    "mlp_act": "activation",
}
_VIDUR_DEVICES = ("A100", "H100", "A40", "A30")


def _vidur(data: Path) -> Iterator[MeasuredRows]:
    """Layers of a small model; norms, SiLU, RoPE and embedding are the scalar kernels of 2023.

    A30's rows are another laboratory's, whose every kernel takes twice the floor of the others.
    """
    import pyarrow as pa

    names = (
        "model",
        "n_embd",
        "n_head",
        "n_kv_head",
        "n_expanded_embd",
        "num_tokens",
        "num_tensor_parallel_workers",
        "mean_ms",
    )
    filters = [("op", "in", [*_VIDUR_LAYERS]), ("gpu", "in", [*_VIDUR_DEVICES])]
    read = read_columns(data / VIDUR, ["gpu", "op", "use_gated_mlp", *names], filters)
    read["of"] = np.array([_VIDUR_LAYERS[op] for op in read.pop("op").tolist()])
    gated = read.pop("use_gated_mlp").astype(bool)
    read["mlp"] = np.where(gated, "gated", "plain")  # phi-2's is plain: LayerNorm and GELU
    table = pa.table({name: list(column) for name, column in read.items()})
    for named, c in groups(table, ("gpu", "of", "mlp"), names):
        gpu, of, eager = named["gpu"], named["of"], named["mlp"] == "plain"
        if of == "add" and eager:
            continue  # phi-2 adds both branches to the residual: two kernels under one name
        held = np.isin(c["model"], list(HELD_MODELS))
        source = "vidur-fork" if gpu == "A30" else "vidur-phi" if eager else "vidur"
        rows = _part(source, gpu, *_vidur_layer(of, c, eager=eager), c["mean_ms"] * 1e3, held)
        # no shape of a held-out model is fitted for another
        shapes = np.stack(list(rows.batch.dims.values()), axis=1)
        taken = {tuple(row) for row in shapes[held].tolist()}
        was_taken = np.array([tuple(row) in taken for row in shapes.tolist()])
        yield rows.take(held | ~was_taken)


def _vidur_layer(
    of: str, c: Mapping[str, NDArray[Any]], *, eager: bool
) -> tuple[str, Variant, dict[str, Any]]:
    """Family, variant and dimensions of one kind of layer."""
    tokens, wide = c["num_tokens"], c["n_embd"]
    tp = c["num_tensor_parallel_workers"].astype(np.int64)
    variant = Variant("fp16", library="sarathi", launch="profiler", cache="between")
    if of == "add":
        added = replace(variant, library="", flags=(("add", True),))
        return "elementwise", added, {"elements": tokens * wide, "inputs": 2}
    if of == "embedding":
        return "embedding", variant, {"tokens": tokens, "hidden": wide}
    if of == "rope":
        kv_heads = np.maximum(c["n_kv_head"] // tp, 1)
        heads = {"num_heads": c["n_head"] // tp, "num_kv_heads": kv_heads}
        return "rope", variant, {"tokens": tokens, **heads, "head_dim": wide // c["n_head"]}
    plain = replace(variant, library="torch")
    if of == "norm":
        dims = {"tokens": tokens, "hidden": wide, "residual": 0}
        return ("layernorm", plain, dims) if eager else ("rmsnorm", variant, dims)
    width = c["n_expanded_embd"] // tp
    if eager:
        gelu = replace(plain, flags=(("gelu", True),))
        return "elementwise", gelu, {"elements": tokens * width, "inputs": 1}
    return "silu_mul", variant, {"tokens": tokens, "width": 2 * width}


def _layer_profile(data: Path) -> Iterator[MeasuredRows]:
    """VLLM 0.19 layers of Llama-3.1-8B on an RTX 4090."""
    dense = read_columns(data / DENSE_PROFILE, ["layer", "tokens", "time_us"])
    rows = read_columns(
        data / SEQUENCE_PROFILE, ["layer", "sequences", "time_us"], [("layer", "in", ["sampler"])]
    )
    vllm = Variant(library="vllm", launch="profiler", cache="between")
    shapes: dict[str, tuple[str, dict[str, int]]] = {
        "act_fn": ("silu_mul", {"width": 28672}),
        "embedding": ("embedding", {"hidden": 4096}),
        "layernorm": ("rmsnorm", {"hidden": 4096, "residual": 1}),
        "rotary_emb": ("rope", {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128}),
    }
    for layer, (family, sizes) in shapes.items():
        here = dense["layer"] == layer
        tokens = dense["tokens"][here]
        yield _part("vllm-profile", "RTX 4090", family, vllm, {"tokens": tokens, **sizes},
                    dense["time_us"][here], ~every_second(tokens))  # fmt: skip
    sequences = rows["sequences"]
    yield _part("vllm-profile", "RTX 4090", "sampling", vllm, {"rows": sequences, "vocab": 128256},
                rows["time_us"], ~every_second(sequences))  # fmt: skip


_KINDS = {"addu": "add", "mulu": "mul", "divu": "div", "powu": "pow"}
_TENSOR_TENSOR = ("add", "mul", "div", "pow")


def _neusight(data: Path) -> Iterator[MeasuredRows]:
    """Eager fp32 kernels, launched one by one on an idle device."""
    kinds = [*_TENSOR_TENSOR, "relu", "gelu", "tanh", *_KINDS]
    columns = ("split", "B", "H", "latency_ms")
    filters = [("op", "in", ["ln", "softmax", *kinds])]
    table = read_arrow(data / NEUSIGHT, ["op", "gpu", *columns], filters)
    eager = Variant("fp32", library="torch", launch="stream")
    for named, c in groups(table, ("op", "gpu"), columns):
        op, rows, width = named["op"], c["B"].astype(np.int64), c["H"].astype(np.int64)
        variant, dims = eager, {"tokens": rows, "hidden": width, "residual": 0}
        family = {"ln": "layernorm", "softmax": "softmax"}.get(op, "elementwise")
        if family == "softmax":
            dims = {"rows": rows, "cols": width}
        elif family == "elementwise":
            variant = replace(eager, flags=((_KINDS.get(op, op), True),))
            dims = {"elements": rows * width, "inputs": 2 if op in _TENSOR_TENSOR else 1}
        yield _part("neusight", named["gpu"], family, variant, dims, c["latency_ms"] * 1e3,
                    c["split"] != "train")  # fmt: skip


def _of_family(data: Path, family: str) -> list[MeasuredRows]:
    return [part for part in streaming_rows(data) if part.batch.family == family]


SOURCES = tuple(
    Source(
        name,
        (PIPEWEAVE, NEUSIGHT, COMPUTE_SCALE, STATIC.path, DENSE_PROFILE, VIDUR),
        "every second size, the sources' own test split, or models that are never fitted",
        partial(_of_family, family=name),
        SMALL,
    )
    for name in ("rmsnorm", "layernorm", "softmax", "elementwise", "silu_mul", "quantize", "rope",
                 "embedding")
)  # fmt: skip

LONG_US = 20.0
"""From here on Vidur's clock, which ticks in microseconds, is no floor of the error."""


def roofline_s(rows: MeasuredRows, _: KernelTimes) -> F64:
    """Compulsory bytes over the memory's bandwidth: the plain roofline knows of nothing else."""
    return compulsory_bytes(rows) / rows.hardware.dram.bandwidth_bytes_per_s


def _regime(_: MeasuredRows, times: KernelTimes) -> Labels:
    busy = np.asarray(times.analysis.features["busy_share"])
    labels: Labels = np.where(busy > 0.5, "busy", "waiting")
    return labels


LABELS: Mapping[str, LabelOf] = {
    "regime": _regime,
    "source": word("source"),
    "family": lambda rows, _: rows.batch.family,
}


def _score(*families: str) -> Score:
    """Held-out rows of some families; Vidur's rows are in another suite."""

    def read(data: Path, _: int | None) -> Rows:
        return {
            "latency_us": [
                part
                for part in held_out(streaming_rows(data))
                if part.batch.family in families and not part.words["source"].startswith("vidur")
            ]
        }

    return KernelScore(read, roofline_s, LABELS)


def _vidur_rows(data: Path, _: int | None) -> Rows:
    result = held_out(_vidur(data))
    least = LONG_US * 1e-6
    return {
        "latency_us": some_of(result, lambda part: part.seconds >= least),
        "short_latency_us": some_of(result, lambda part: part.seconds < least),
    }


SUITES = (
    Suite("norms", (PIPEWEAVE, NEUSIGHT, DENSE_PROFILE), _score("rmsnorm", "layernorm")),
    Suite("silu_mul", (PIPEWEAVE, DENSE_PROFILE), _score("silu_mul")),
    Suite("elementwise", (NEUSIGHT, DENSE_PROFILE), _score("elementwise", "rope", "embedding")),
    Suite("softmax", (NEUSIGHT, SEQUENCE_PROFILE), _score("softmax", "sampling")),
    Suite("quantize", (STATIC.path, COMPUTE_SCALE), _score("quantize")),
    Suite("vidur_operators", (VIDUR,), KernelScore(_vidur_rows, roofline_s, LABELS)),
)
