"""The kernel ops of the contract: which dimensions, flags and words each takes.

Sizes are rank-local unless the op says otherwise. A dimension in ``lists`` may be a list with one
size a sequence. Ranges are what a scenario may hold; a kernel model may narrow them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

Range = tuple[int, int]

_SIZE: Range = (1, 1 << 31)
_TOKENS: Range = (1, 100_000_000)
_BATCH: Range = (1, 1_000_000)
_HEADS: Range = (1, 65_536)
_WIDTH: Range = (1, 1 << 24)
_DEGREE: Range = (1, 65_536)
_ELEMENTS: Range = (1, 1 << 40)

ACTIVATIONS = ("silu", "gelu", "relu", "swiglu", "geglu", "relu2", "swiglu_oai")
KINDS: Mapping[str, tuple[str, int]] = {
    "copy": ("copy", 1), "cast": ("cast", 1), "relu": ("relu", 1), "gelu": ("gelu", 1),
    "silu": ("silu", 1), "sigmoid": ("sigmoid", 1), "tanh": ("tanh", 1), "exp": ("exp", 1),
    "sqrt": ("sqrt", 1), "add": ("add", 2), "sub": ("add", 2), "mul": ("mul", 2),
    "div": ("div", 2), "pow": ("pow", 2), "addu": ("add", 1), "subu": ("add", 1),
    "mulu": ("mul", 1), "divu": ("div", 1), "powu": ("pow", 1), "neg": ("add", 1),
}  # fmt: skip
"""Elementwise kind -> the modelled kind, tensors read by default. "u": with a scalar."""
PHASES = ("context", "generation")
MIXER_PHASES = ("context", "generation", "prefill", "decode", "verify")


@final
@dataclass(frozen=True)
class OpSpec:
    """What one op takes.

    Attributes:
        required: dimension -> range of sizes.
        optional: dimension -> (range, default); a default of None = left out.
        lists: dimensions that may be lists, one size a sequence.
        flags: yes/no properties and their defaults.
        words: textual properties -> allowed values; () = free text.
        dtypes: textual properties that name a number format.
        meaning: one line for the reference.
    """

    meaning: str
    required: Mapping[str, Range] = field(default_factory=dict)
    optional: Mapping[str, tuple[Range, int | None]] = field(default_factory=dict)
    lists: frozenset[str] = frozenset()
    flags: Mapping[str, bool] = field(default_factory=dict)
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ()

    def names(self) -> list[str]:
        """All fields of the op besides the common ones."""
        return [*self.required, *self.optional, *self.flags, *self.words, *self.dtypes]

    def range_of(self, name: str) -> Range:
        """The range of a dimension."""
        return self.required[name] if name in self.required else self.optional[name][0]


_ATTENTION_OPTIONAL: dict[str, tuple[Range, int | None]] = {
    "batch": (_BATCH, None),
    "num_kv_heads": (_HEADS, None),
    "window": ((0, 100_000_000), 0),
    "page_size": ((1, 65_536), None),
}
_ATTENTION_WORDS = {"kv_layout": ("paged", "ragged")}


def _attention(meaning: str, q_len: tuple[Range, int | None] | None) -> OpSpec:
    required = {"num_heads": _HEADS, "head_dim": (1, 4096), "kv_len": (0, 100_000_000)}
    optional = dict(_ATTENTION_OPTIONAL)
    if q_len is None:
        required["q_len"] = _TOKENS
    else:
        optional["q_len"] = q_len
    return OpSpec(
        meaning,
        required,
        optional,
        lists=frozenset({"q_len", "kv_len"}),
        flags={"causal": True},
        words=_ATTENTION_WORDS,
        dtypes=("kv_dtype",),
    )


def _table_module(meaning: str, *, compressed: bool = False) -> OpSpec:
    """A latent or sparse attention module, with the columns of its table."""
    optional: dict[str, tuple[Range, int | None]] = {
        "step": ((0, 100_000_000), None),
        "isl": ((0, 100_000_000), None),
        "tp_size": (_DEGREE, 1),
    }
    if compressed:
        optional |= {"compress_ratio": ((0, 65_536), None), "local_num_heads": ((0, 65_536), None)}
    return OpSpec(
        meaning,
        {"batch_size": _BATCH, "num_heads": _HEADS},
        optional,
        words={"phase": PHASES, "model": (), "architecture": (), "op_name": ()},
        dtypes=("mla_dtype", "kv_cache_dtype", "gemm_type"),
    )


def _mixer(meaning: str, dims: tuple[str, ...]) -> OpSpec:
    """A recurrent mixer, with the columns of its table."""
    optional: dict[str, tuple[Range, int | None]] = {
        "batch_size": (_BATCH, None), "seq_len": (_TOKENS, None), "num_tokens": (_TOKENS, None),
    }  # fmt: skip
    return OpSpec(
        meaning,
        dict.fromkeys(dims, (1, 1 << 20)),
        optional,
        words={"phase": MIXER_PHASES, "model_name": ()},
    )


_DELTA = ("d_model", "d_conv", "head_k_dim", "head_v_dim", "num_k_heads", "num_v_heads")
_NORM = OpSpec(
    "normalisation of rows; residual = fused add",
    {"tokens": _TOKENS, "hidden": _WIDTH},
    flags={"residual": False},
)
_EXCHANGE = OpSpec(
    "expert-parallel exchange of the tokens of a group",
    {"tokens": _TOKENS, "hidden": _WIDTH, "topk": (1, 4096), "experts": (1, 65_536), "ep": _DEGREE},
    {"nodes": (_DEGREE, None), "sms": ((1, 1024), None)},
)

OPS: Mapping[str, OpSpec] = {
    "gemm": OpSpec(
        "m x k times k x n, batch times; includes_quantize: activations are quantised by the call",
        {"m": _SIZE, "n": _SIZE, "k": _SIZE},
        {"batch": (_SIZE, 1)},
        flags={"includes_quantize": False},
    ),
    "attention_prefill": _attention("q_len new tokens attend to kv_len = past + new tokens", None),
    "attention_decode": _attention(
        "one new token attends to kv_len cached ones and itself", ((1, 1), 1)
    ),
    "mla_prefill": _table_module("latent attention of a prefill"),
    "mla_decode": _table_module("latent attention of a decode step, absorbed"),
    "mla_module": _table_module("latent attention with its projections"),
    "dsa_module": _table_module("sparse latent attention with its indexer", compressed=True),
    "csa_module": _table_module("compressed sparse attention module", compressed=True),
    "hca_module": _table_module("heavily compressed attention module", compressed=True),
    "msa_module": _table_module("block-sparse attention module", compressed=True),
    "gdn": _mixer("gated delta network", _DELTA),
    "kda": _mixer("Kimi delta attention", _DELTA),
    "mamba2": _mixer(
        "Mamba 2 mixer",
        ("d_model", "d_conv", "d_state", "head_dim", "n_groups", "chunk_size", "nheads"),
    ),
    "moe": OpSpec(
        "experts of a layer over its group; whole-model sizes; the busiest rank's time",
        {
            "tokens": _TOKENS, "experts": (1, 65_536), "topk": (1, 4096), "hidden": _WIDTH,
            "intermediate": _WIDTH,
        },
        {"ep": (_DEGREE, 1), "tp": (_DEGREE, 1)},
        flags={"gated": True},
        words={"part": ("full", "w13", "w2"), "activation": ACTIVATIONS, "distribution": ()},
    ),
    "dispatch": _EXCHANGE,
    "combine": _EXCHANGE,
    "rmsnorm": _NORM,
    "layernorm": _NORM,
    "softmax": OpSpec("softmax of rows", {"rows": _TOKENS, "cols": _SIZE}),
    "elementwise": OpSpec(
        "one result an element from `inputs` tensors",
        {"elements": _ELEMENTS},
        {"inputs": ((0, 16), None)},
        words={"kind": tuple(KINDS)},
    ),
    "silu_mul": OpSpec(
        "silu(gate) * up; width is the input's: gate and up together",
        {"tokens": _TOKENS, "width": _WIDTH},
    ),
    "embedding": OpSpec(
        "rows of a table gathered", {"tokens": _TOKENS, "hidden": _WIDTH}, {"vocab": (_SIZE, None)}
    ),
    "rope": OpSpec(
        "rotary embedding of queries and keys",
        {"tokens": _TOKENS, "num_heads": _HEADS, "head_dim": (2, 4096)},
        {"num_kv_heads": (_HEADS, None)},
    ),
    "sampling": OpSpec("next tokens from logits", {"rows": _TOKENS, "vocab": _SIZE}),
    "quantize": OpSpec(
        "activations to `dtype`, with scales",
        {"tokens": _TOKENS, "hidden": _WIDTH},
        {"group_size": ((1, 65_536), None)},
    ),
    "kv_copy": OpSpec(
        "new keys and values into the cache",
        {"tokens": _TOKENS, "num_kv_heads": _HEADS, "head_dim": (1, 4096)},
        dtypes=("kv_dtype",),
    ),
    "optimizer": OpSpec(
        "one update of `elements` parameters",
        {"elements": _ELEMENTS},
        words={"kind": ("adam", "adamw", "sgd", "sgd_momentum", "lion", "muon", "adafactor")},
    ),
    "cross_entropy": OpSpec(
        "loss of rows of logits", {"rows": _TOKENS, "vocab": _SIZE}, flags={"backward": False}
    ),
    "conv2d": OpSpec(
        "convolution of a batch of images",
        {
            "batch": _BATCH, "in_channels": _WIDTH, "out_channels": _WIDTH, "height": _WIDTH,
            "width": _WIDTH, "kernel": (1, 4096),
        },
        {"stride": ((1, 4096), 1), "padding": ((0, 4096), 0), "groups": (_WIDTH, 1)},
    ),
}  # fmt: skip

COMMON = ("op", "dtype", "library", "library_version", "variant", "launch", "cache")
LIBRARIES = (
    "cublas", "cutlass", "deepgemm", "flashinfer", "fa2", "fa3", "fa4", "flashmla", "trtllm",
    "vllm", "sglang", "triton", "torch", "cudnn", "marlin", "deepep", "nccl", "rocblas",
    "hipblaslt", "aiter", "xla", "oneccl", "onednn",
)  # fmt: skip
LAUNCHES = ("graph", "stream")
CACHES = ("cold", "warm")
DISTRIBUTIONS = r"balanced|uniform|power_law_\d+(\.\d+)?(_eplb)?|power_law_sampled_\d+(\.\d+)?"
