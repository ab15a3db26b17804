"""Attention of heads that share keys and values."""

from __future__ import annotations

from collections.abc import Mapping

from silicast.core.errors import require
from silicast.scenario.kernels.tables._spec import (
    BATCH,
    HEADS,
    LENGTH,
    TOKENS,
    Lowering,
    OpSpec,
    Range,
)


def _layout(case: Lowering) -> None:
    heads = case.whole("num_heads")
    case.dims.setdefault("num_kv_heads", heads)
    groups = case.whole("num_kv_heads")
    # need not be a multiple: ranks of an uneven split hold such counts, and tables have them
    require(
        heads >= groups,
        f"num_heads = {heads} is less than num_kv_heads = {groups}",
        "num_kv_heads",
        "every key-value head serves at least one query head",
    )
    if heads % groups:
        case.warnings.append(
            f"num_heads = {heads} is no multiple of num_kv_heads = {groups}: an uneven split, "
            "modelled as even groups"
        )
    layout = case.words.pop("kv_layout", None)
    if (page := case.dims.pop("page_size", None)) is not None:
        case.words["page_size"] = page
    if layout == "ragged":
        case.flags["ragged"] = True


def _prefill(case: Lowering) -> None:
    _layout(case)
    require_past(case)


def require_past(case: Lowering) -> None:
    """Refuses a sequence with more new tokens than tokens in all.

    Raises:
        SilicastError: names kv_len and the sequence.
    """
    q, kv = case.dims["q_len"], case.dims["kv_len"]
    count = max(len(v) if isinstance(v, tuple) else 1 for v in (q, kv))
    new = q if isinstance(q, tuple) else (q,) * count
    all_ = kv if isinstance(kv, tuple) else (kv,) * count
    for i, (a, b) in enumerate(zip(new, all_, strict=True)):
        assert isinstance(a, int)
        assert isinstance(b, int)
        require(
            b >= a,
            f"kv_len = {b} is less than q_len = {a} (sequence {i})",
            "kv_len",
            "kv_len counts past and new tokens",
        )


_OPTIONAL: dict[str, tuple[Range, int | None]] = {
    "batch": (BATCH, None),
    "num_kv_heads": (HEADS, None),
    "window": (LENGTH, 0),
    "page_size": ((1, 65_536), None),
}
_REQUIRED = {"num_heads": HEADS, "head_dim": (1, 4096), "kv_len": LENGTH}
_LISTS = frozenset({"q_len", "kv_len"})
_WORDS = {"kv_layout": ("paged", "ragged")}

OPS: Mapping[str, OpSpec] = {
    "attention_prefill": OpSpec(
        "q_len new tokens attend to kv_len = past + new tokens; mask_bytes: of a mask or of biases "
        "that are read besides", {**_REQUIRED, "q_len": TOKENS},
        {**_OPTIONAL, "mask_bytes": ((0, 1 << 42), 0)}, lists=_LISTS, flags={"causal": True},
        words=_WORDS, dtypes=("kv_dtype",), lower=_prefill,
    ),
    "attention_decode": OpSpec(
        "one new token attends to kv_len cached ones and itself", _REQUIRED,
        {**_OPTIONAL, "q_len": ((1, 1), 1)}, lists=_LISTS, flags={"causal": True}, words=_WORDS,
        dtypes=("kv_dtype",), lower=_layout,
    ),
}  # fmt: skip
