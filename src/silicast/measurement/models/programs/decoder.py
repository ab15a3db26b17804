"""Decoder transformers to measure: dense ones, and ones with experts.

A decoder transformer of Llama's form: RMSNorm, rotations, grouped queries, gated MLP.

Prefill writes the cache of keys and values and attends within the prompt; decode writes one place
of it and attends over the cache. The cache is allocated once, as serving code and
``transformers.StaticCache`` do.

A mixture-of-experts block: a router takes the top k, then a loop over the experts.

The loop is what frameworks run without kernels of their own: tokens are sorted by expert, each
expert computes its own, and the results are added. The number of tokens of an expert is read from
the device; a trace gives each the same share.
"""

from __future__ import annotations

from typing import Any, final

import torch
from torch import nn
from torch.nn import functional

from silicast.measurement.models.model_case import ModelCall, Place, Sizes, measured

SMALL_MODEL = {
    "hidden": 768,
    "layers": 12,
    "heads": 12,
    "kv_heads": 4,
    "intermediate": 2048,
    "vocab": 32000,
}
"""125 million parameters."""
LLAMA_8B = {
    "hidden": 4096,
    "layers": 32,
    "heads": 32,
    "kv_heads": 8,
    "intermediate": 14336,
    "vocab": 128256,
}
"""Llama-3.1-8B (its config.json)."""


def rotated(x: Any, cos: Any, sin: Any) -> Any:
    """Rotary positions as Llama's code applies them: halves of a head swap."""
    half = x.shape[-1] // 2
    swapped = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + swapped * sin


@final
class Attention(nn.Module):
    """Grouped-query attention over a cache of fixed size."""

    def __init__(self, sizes: Sizes, dtype: Any) -> None:
        super().__init__()
        hidden, self.heads, self.kv_heads = sizes["hidden"], sizes["heads"], sizes["kv_heads"]
        self.width = hidden // self.heads
        rows = self.kv_heads * self.width
        self.q_proj = nn.Linear(hidden, hidden, bias=False, dtype=dtype)
        self.k_proj = nn.Linear(hidden, rows, bias=False, dtype=dtype)
        self.v_proj = nn.Linear(hidden, rows, bias=False, dtype=dtype)
        self.o_proj = nn.Linear(hidden, hidden, bias=False, dtype=dtype)

    def forward(self, x: Any, cos: Any, sin: Any, cache: Any, past: int) -> Any:
        """Attends from the new tokens; ``cache`` is (2, batch, kv_heads, places, width)."""
        batch, new, hidden = x.shape
        q = self.q_proj(x).view(batch, new, self.heads, self.width).transpose(1, 2)
        k = self.k_proj(x).view(batch, new, self.kv_heads, self.width).transpose(1, 2)
        v = self.v_proj(x).view(batch, new, self.kv_heads, self.width).transpose(1, 2)
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        keys, values = cache[0], cache[1]
        keys[:, :, past : past + new].copy_(k)
        values[:, :, past : past + new].copy_(v)
        if past:
            k, v = keys[:, :, : past + new], values[:, :, : past + new]
        y = functional.scaled_dot_product_attention(
            q, k, v, is_causal=new > 1, enable_gqa=self.heads != self.kv_heads
        )
        return self.o_proj(y.transpose(1, 2).reshape(batch, new, hidden))


@final
class GatedMlp(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, hidden: int, intermediate: int, dtype: Any) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, intermediate, bias=False, dtype=dtype)
        self.up_proj = nn.Linear(hidden, intermediate, bias=False, dtype=dtype)
        self.down_proj = nn.Linear(intermediate, hidden, bias=False, dtype=dtype)

    def forward(self, x: Any) -> Any:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


@final
class DecoderLayer(nn.Module):
    """Attention and MLP with pre-norm and residual."""

    def __init__(self, sizes: Sizes, dtype: Any) -> None:
        super().__init__()
        self.input_norm = nn.RMSNorm(sizes["hidden"], eps=1e-5, dtype=dtype)
        self.post_norm = nn.RMSNorm(sizes["hidden"], eps=1e-5, dtype=dtype)
        self.self_attn = Attention(sizes, dtype)
        self.mlp = GatedMlp(sizes["hidden"], sizes["intermediate"], dtype)

    def forward(self, x: Any, cos: Any, sin: Any, cache: Any, past: int) -> Any:
        x = x + self.self_attn(self.input_norm(x), cos, sin, cache, past)
        return x + self.mlp(self.post_norm(x))


@final
class DecoderProgram(nn.Module):
    """Tokens to the logits of each sequence's last one."""

    def __init__(self, sizes: Sizes, dtype: Any, past: int) -> None:
        super().__init__()
        self.past = past
        self.width = sizes["hidden"] // sizes["heads"]
        self.embed = nn.Embedding(sizes["vocab"], sizes["hidden"], dtype=dtype)
        self.layers = nn.ModuleList([DecoderLayer(sizes, dtype) for _ in range(sizes["layers"])])
        self.norm = nn.RMSNorm(sizes["hidden"], eps=1e-5, dtype=dtype)
        self.head = nn.Linear(sizes["hidden"], sizes["vocab"], bias=False, dtype=dtype)

    def forward(self, tokens: Any, cos: Any, sin: Any, caches: Any) -> Any:
        """Logits (batch, 1, vocab); ``caches`` is (layers, 2, batch, kv_heads, places, width)."""
        x = self.embed(tokens)
        for number, layer in enumerate(self.layers):
            x = layer(x, cos, sin, caches[number], self.past)
        return self.head(self.norm(x[:, -1:]))


def _decoder(position: Place, sizes: Sizes) -> ModelCall:
    dtype, batch, new, past = position.torch_dtype(), sizes["batch"], sizes["new"], sizes["past"]
    width = sizes["hidden"] // sizes["heads"]
    model = DecoderProgram(sizes, dtype, past)
    tokens = torch.zeros((batch, new), dtype=torch.int64)
    angles = torch.outer(
        torch.arange(past, past + new, dtype=torch.float32),
        10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float32) / width),
    )
    angles = torch.cat((angles, angles), dim=-1)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    shape = (sizes["layers"], 2, batch, sizes["kv_heads"], past + new, width)
    return ModelCall(model, (tokens, cos, sin, torch.randn(shape, dtype=dtype)))


def _batch(model: Sizes, batch: int, new: int, past: int) -> Sizes:
    return {**model, "batch": batch, "new": new, "past": past}


measured(
    "decoder",
    {
        "prefill-b1": _batch(SMALL_MODEL, 1, 128, 0),
        "prefill-b4": _batch(SMALL_MODEL, 4, 32, 0),
        "decode-b1": _batch(SMALL_MODEL, 1, 1, 512),
        "decode-b8": _batch(SMALL_MODEL, 8, 1, 512),
    },
    {
        "8b-prefill-b1": _batch(LLAMA_8B, 1, 2048, 0),
        "8b-prefill-b4": _batch(LLAMA_8B, 4, 1024, 0),
        "8b-decode-b1": _batch(LLAMA_8B, 1, 1, 2048),
        "8b-decode-b16": _batch(LLAMA_8B, 16, 1, 2048),
        "8b-decode-b64": _batch(LLAMA_8B, 64, 1, 1024),
    },
)(_decoder)


VALUES = "the number of tokens of an expert depends on values: the graph breaks at each expert"


@final
class Mixture(nn.Module):
    """Router and experts.

    Args:
        even: every expert gets the same share of the tokens, independent of the router.
    """

    def __init__(self, sizes: Sizes, dtype: Any, *, even: bool) -> None:
        super().__init__()
        self.topk, self.even = sizes["topk"], even
        self.norm = nn.RMSNorm(sizes["hidden"], eps=1e-5, dtype=dtype)
        self.router = nn.Linear(sizes["hidden"], sizes["experts"], bias=False, dtype=dtype)
        self.experts = nn.ModuleList(
            [
                GatedMlp(sizes["hidden"], sizes["intermediate"], dtype)
                for _ in range(sizes["experts"])
            ]
        )

    def forward(self, x: Any) -> Any:
        y = self.norm(x)
        weights, chosen = torch.topk(functional.softmax(self.router(y), dim=-1), self.topk, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        flat = chosen.flatten()
        order = torch.argsort(flat)
        out = torch.zeros_like(y)
        start = 0
        for expert, count in zip(self.experts, self._counts(flat), strict=True):
            if count:
                positions = order[start : start + count]
                rows = positions // self.topk
                made = expert(y[rows]) * weights.flatten()[positions].unsqueeze(-1)
                out.index_add_(0, rows, made)
            start += count
        return x + out

    def _counts(self, flat: Any) -> list[int]:
        """Tokens of each expert."""
        experts = len(self.experts)
        if self.even:
            share, more = divmod(flat.shape[0], experts)
            return [share + (number < more) for number in range(experts)]
        counts: list[int] = torch.bincount(flat, minlength=experts).tolist()
        return counts


SMALL_MOE = {"hidden": 768, "intermediate": 1024, "experts": 8, "topk": 2}
MIXTRAL = {"hidden": 4096, "intermediate": 14336, "experts": 8, "topk": 2}


@measured(
    "mixture",
    {"t256": {**SMALL_MOE, "tokens": 256}, "t16": {**SMALL_MOE, "tokens": 16}},
    {"8x7b-t2048": {**MIXTRAL, "tokens": 2048}, "8x7b-t16": {**MIXTRAL, "tokens": 16}},
)
def mixture(position: Place, sizes: Sizes) -> ModelCall:
    """One block; large: of Mixtral-8x7B (its config.json)."""
    dtype = position.torch_dtype()
    model = Mixture(sizes, dtype, even=False)
    with torch.device("meta"):
        traced = Mixture(sizes, dtype, even=True)
    tokens = torch.randn(sizes["tokens"], sizes["hidden"], dtype=dtype)
    return ModelCall(model, (tokens,), traced, not_compiled=VALUES, not_captured=VALUES)
