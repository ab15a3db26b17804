"""GGUF files without weights, for tests."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

Q4_K, Q6_K, F32 = 12, 14, 0


def _text(text: str) -> bytes:
    content = text.encode()
    return struct.pack("<Q", len(content)) + content


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if value and isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
    return struct.pack("<IIQ", 9, 4, len(value)) + struct.pack(f"<{len(value)}I", *value)


def gguf_bytes(
    facts: Mapping[str, Any], tensors: Mapping[str, tuple[tuple[int, ...], int]], version: int = 3
) -> bytes:
    """The head of a file.

    Args:
        tensors: name -> (shape, ggml's type).
    """
    content = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(facts))
    for key, value in facts.items():
        content += _text(key) + _value(value)
    for name, (shape, kind) in tensors.items():
        content += _text(name) + struct.pack("<I", len(shape))
        content += struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", kind, 0)
    return content


LAYERS, HIDDEN, KV, INNER, VOCAB = 2, 512, 128, 1024, 1000
FACTS: dict[str, Any] = {
    "general.architecture": "qwen3",
    "general.name": "Tiny",
    "qwen3.block_count": LAYERS,
    "qwen3.embedding_length": HIDDEN,
    "qwen3.feed_forward_length": INNER,
    "qwen3.attention.head_count": 8,
    "qwen3.attention.head_count_kv": 2,
    "qwen3.attention.key_length": 64,
    "qwen3.context_length": 4096,
    "qwen3.rope.freq_base": 1e6,
    "tokenizer.ggml.tokens": ["a", "b", "c"],
}
SHAPES: Mapping[str, tuple[int, ...]] = {
    "attn_q": (HIDDEN, 512),
    "attn_k": (HIDDEN, KV),
    "attn_v": (HIDDEN, KV),
    "attn_output": (512, HIDDEN),
    "ffn_gate": (HIDDEN, INNER),
    "ffn_up": (HIDDEN, INNER),
    "ffn_down": (INNER, HIDDEN),
}


def tiny_tensors() -> dict[str, tuple[tuple[int, ...], int]]:
    """Those of :data:`FACTS`: 4 bits, but the last layer's values and the table in 6; tied."""
    tensors: dict[str, tuple[tuple[int, ...], int]] = {
        "token_embd.weight": ((HIDDEN, VOCAB), Q6_K),
        "output_norm.weight": ((HIDDEN,), F32),
    }
    for layer in range(LAYERS):
        for name, shape in SHAPES.items():
            six = layer == LAYERS - 1 and name == "attn_v"
            tensors[f"blk.{layer}.{name}.weight"] = shape, Q6_K if six else Q4_K
        for norm, size in (("attn_norm", HIDDEN), ("ffn_norm", HIDDEN)):
            tensors[f"blk.{layer}.{norm}.weight"] = (size,), F32
        for norm in ("attn_q_norm", "attn_k_norm"):
            tensors[f"blk.{layer}.{norm}.weight"] = (64,), F32
    return tensors
