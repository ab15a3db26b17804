"""Ops that mostly move data: norms, activations, lookups, copies."""

from __future__ import annotations

from collections.abc import Mapping

from silicast.core.errors import require
from silicast.scenario.kernels.tables._spec import (
    DIRECTION,
    ELEMENTS,
    HEADS,
    PASSES,
    SIZE,
    TOKENS,
    WIDTH,
    Lowering,
    OpSpec,
)

KINDS: Mapping[str, tuple[str, int]] = {
    "copy": ("copy", 1), "cast": ("cast", 1), "relu": ("relu", 1), "gelu": ("gelu", 1),
    "silu": ("silu", 1), "sigmoid": ("sigmoid", 1), "tanh": ("tanh", 1), "exp": ("exp", 1),
    "sqrt": ("sqrt", 1), "add": ("add", 2), "sub": ("add", 2), "mul": ("mul", 2),
    "div": ("div", 2), "pow": ("pow", 2), "addu": ("add", 1), "subu": ("add", 1),
    "mulu": ("mul", 1), "divu": ("div", 1), "powu": ("pow", 1), "neg": ("add", 1),
}  # fmt: skip
"""Elementwise kind -> the modelled kind, tensors read by default. "u": with a scalar."""


def _norm(case: Lowering) -> None:
    case.dims["residual"] = int(case.flags.pop("residual"))


def _elementwise(case: Lowering) -> None:
    kind, inputs = KINDS[str(case.words.pop("kind", "copy"))]
    case.flags[kind] = True
    case.dims.setdefault("inputs", inputs)


def _even_width(case: Lowering) -> None:
    width = case.whole("width")
    require(width % 2 == 0, f"width = {width} is odd", "width", "it counts gate and up together")


def _rope(case: Lowering) -> None:
    case.dims.setdefault("num_kv_heads", case.dims["num_heads"])


_NORM = OpSpec(
    "normalisation of rows; residual = fused add",
    {"tokens": TOKENS, "hidden": WIDTH},
    flags={"residual": False},
    words={DIRECTION: PASSES},
    lower=_norm,
)

OPS: Mapping[str, OpSpec] = {
    "rmsnorm": _NORM,
    "layernorm": _NORM,
    "softmax": OpSpec("softmax of rows", {"rows": TOKENS, "cols": SIZE}, words={DIRECTION: PASSES}),
    "elementwise": OpSpec(
        "one result an element from `inputs` tensors",
        {"elements": ELEMENTS},
        {"inputs": ((0, 16), None)},
        words={"kind": tuple(KINDS)},
        lower=_elementwise,
    ),
    "silu_mul": OpSpec(
        "silu(gate) * up; width is the input's: gate and up together",
        {"tokens": TOKENS, "width": WIDTH},
        words={DIRECTION: PASSES},
        lower=_even_width,
    ),
    "embedding": OpSpec(
        "rows of a table gathered",
        {"tokens": TOKENS, "hidden": WIDTH},
        {"vocab": (SIZE, None)},
        words={DIRECTION: PASSES},
    ),
    "rope": OpSpec(
        "rotary embedding of queries and keys",
        {"tokens": TOKENS, "num_heads": HEADS, "head_dim": (2, 4096)},
        {"num_kv_heads": (HEADS, None)},
        words={DIRECTION: PASSES},
        lower=_rope,
    ),
    "sampling": OpSpec("next tokens from logits", {"rows": TOKENS, "vocab": SIZE}),
    "quantize": OpSpec(
        "activations to `dtype`, with scales; static: they are given in advance",
        {"tokens": TOKENS, "hidden": WIDTH},
        {"group_size": ((1, 65_536), None)},
        flags={"static": False},
        default_dtype="fp8",
    ),
    "kv_copy": OpSpec(
        "new keys and values into the cache",
        {"tokens": TOKENS, "num_kv_heads": HEADS, "head_dim": (1, 4096)},
        dtypes=("kv_dtype",),
    ),
}
