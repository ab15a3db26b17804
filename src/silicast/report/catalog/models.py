"""Models as tables: one line each, or everything that is known of one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType

from silicast.report.drawing.numbers import rounded
from silicast.report.drawing.tables import FactSheet, listing
from silicast.workload.models.counting import (
    active_parameters,
    kv_bytes_per_token,
    parameters,
    weight_bytes,
)
from silicast.workload.models.model import LayerKind, ModelConfig, MoE
from silicast.workload.transformers.plan import Plan


def model_summary(model: ModelConfig) -> dict[str, Any]:
    """What a model is, in a few fields; bytes in its checkpoint's formats."""
    whole, precision = Plan(), model.default_precision
    return {
        "name": model.name,
        "family": model.family,
        "parameters": parameters(model),
        "active_parameters": active_parameters(model),
        "layers": model.layers,
        "hidden": model.hidden,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "format": precision.label,
        "weights_gb": weight_bytes(model, whole, precision) / 1e9,
        "kv_cache_kb_per_token": kv_bytes_per_token(model, whole, precision) / 1e3,
    }


def model_table(models: Iterable[ModelConfig]) -> RenderableType:
    """One line a model."""
    columns = {
        "model": "left",
        "family": "left",
        "parameters": "right",
        "layers": "right",
        "heads": "right",
        "format": "left",
        "weights\nGB": "right",
        "KV cache\nkB/token": "right",
    }
    rows = []
    for model in models:
        facts = model_summary(model)
        rows.append([
            facts["name"], facts["family"], f"{rounded(facts['parameters'] / 1e9)} B",
            str(facts["layers"]), f"{facts['heads']}/{facts['kv_heads']}",
            facts["format"], rounded(facts["weights_gb"]), rounded(facts["kv_cache_kb_per_token"]),
        ])  # fmt: skip
    return listing(columns, rows)


def model_card(model: ModelConfig) -> RenderableType:
    """Everything known of a model."""
    facts = model_summary(model)
    table = FactSheet(model.name)
    published = model.published_parameters
    agrees = f", {published:,} published" if published else ""
    table.add("architecture", model.family, model.source)
    table.add("parameters", f"{facts['parameters']:,} counted{agrees}")
    table.add("layers", f"{model.layers}{_without(model)}")
    if model.encoder is not None:
        table.add("encoder", f"{model.encoder.layers} layers before them")
    table.add("hidden", f"{model.hidden:,}")
    table.add("heads", _heads(model))
    gate = "gate and up" if model.gated else "up only"
    if model.mlp_layers:
        part = "" if model.moe is None else f" in {model.mlp_layers} of {model.layers} layers"
        table.add("MLP", f"{_widths(model)} wide, {gate}, {model.activation}{part}")
    if model.moe is not None:
        table.add("experts", f"{_experts(model.moe)}, {gate}, {model.activation}")
        table.add("parameters a token", f"{facts['active_parameters']:,}")
    shared = ", shared with the head" if model.tied else ""
    table.add("vocabulary", f"{model.vocab:,}{shared}")
    table.add("structure", ", ".join(_structure(model)))
    if model.max_positions:
        table.add("longest context", f"{model.max_positions:,} tokens")
    windows = sorted({window for window in model.windows if window})
    if windows:
        count = sum(1 for window in model.windows if window)
        table.add("window", f"{', '.join(map(str, windows))} keys in {count} layers")
    precision = model.default_precision
    table.add("formats", f"{precision.label}, KV cache {precision.kv_cache}")
    table.add("weights", f"{rounded(facts['weights_gb'])} GB")
    table.add("KV cache", f"{rounded(facts['kv_cache_kb_per_token'])} kB a token")
    return table.rendered()


def _heads(model: ModelConfig) -> str:
    mla = model.mla
    if mla is None:
        kinds = [kind for kind in model.kinds if kind.heads]
        value = [_of_kind(kind) for kind in kinds] if model.sizes else []
        whole = f"{model.heads} query, {model.kv_heads} key and value, {model.head_dim} wide"
        return "; ".join(dict.fromkeys(value)) or whole
    queries = f" (queries {mla.q_lora_rank:,})" if mla.q_lora_rank else ""
    return (
        f"{model.heads} on a latent of {mla.kv_lora_rank} + {mla.qk_rope_head_dim}{queries}, "
        f"keys {mla.qk_head_dim} and values {mla.v_head_dim} wide"
    )


def _of_kind(kind: LayerKind) -> str:
    """Heads of a kind of layer."""
    values = f" (values {kind.v_head_dim})" if kind.v_head_dim else ""
    return f"{kind.heads} query, {kind.kv_heads} key and value, {kind.head_dim} wide{values}"


def _widths(model: ModelConfig) -> str:
    """Width of the MLP, or the range of its widths."""
    widths = sorted({kind.intermediate for kind in model.kinds if kind.feed == "mlp"})
    return f"{widths[0]:,}" if len(widths) == 1 else f"{widths[0]:,} to {widths[-1]:,}"


def _without(model: ModelConfig) -> str:
    """Layers that lack one of their two parts."""
    alone = sum(1 for layer in range(model.layers) if not model.mixer(layer))
    return f", {alone} of them without attention" if alone else ""


def _experts(moe: MoE) -> str:
    shared = f", {moe.shared_intermediate:,} shared" if moe.shared_intermediate else ""
    return f"{moe.topk} of {moe.experts}, {moe.intermediate:,} wide{shared}"


def model_data(model: ModelConfig) -> dict[str, Any]:
    """All fields of a model and what is counted from them."""
    return {**asdict(model), "counted": model_summary(model)}


def _structure(model: ModelConfig) -> list[str]:
    words = [
        model.norm,
        f"{model.residual.replace('_', ' ')} residual",
        f"{model.position} positions",
    ]
    if not model.causal:
        words.append("every token sees all")
    if model.norm_at != "input":
        words.append(
            {"output": "norms on outputs", "sum": "norms behind the residual"}[model.norm_at]
        )
    if model.qk_norm:
        words.append("norms of queries and keys")
    words += [
        f"{name} bias"
        for name, there in (
            ("qkv", model.qkv_bias),
            ("output", model.o_bias),
            ("MLP", model.mlp_bias),
            ("head", model.head_bias),
        )
        if there
    ]
    return words
