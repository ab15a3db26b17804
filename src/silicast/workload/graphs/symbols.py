"""Sizes of a step that a graph leaves open, and in which steps an op runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from silicast.workload.graphs.op import Affine, Dim, Op

TOKENS = "tokens"
ALL_TOKENS = "all_tokens"
"""New tokens of all groups that attend to sequences of their own."""
LOGIT_ROWS = "logit_rows"
PREFILL_Q = "prefill_q"
PREFILL_KV = "prefill_kv"
PREFILL_KV_TOKENS = "prefill_kv_tokens"
PREFILL_TOKENS = "prefill_tokens"
PREFILL_SEQUENCES = "prefill_sequences"
PREFILL_LONGEST = "prefill_longest"
"""New tokens of the longest sequence in prefill."""
DECODE_KV = "decode_kv"
DECODE_TOKENS = "decode_tokens"
DECODE_LONGEST = "decode_longest"
"""Cached and new tokens of the longest decoding sequence, to which a framework pads all others."""
CROSS_KV = "cross_kv"
"""Per decoding sequence, what it sees of the encoder."""

Phase = Literal["", "prefill", "decode"]

_PHASES: dict[str, Phase] = {
    PREFILL_Q: "prefill", PREFILL_KV: "prefill", PREFILL_KV_TOKENS: "prefill",
    PREFILL_TOKENS: "prefill", PREFILL_SEQUENCES: "prefill", PREFILL_LONGEST: "prefill",
    DECODE_KV: "decode", DECODE_TOKENS: "decode", DECODE_LONGEST: "decode", CROSS_KV: "decode",
}  # fmt: skip


def step_symbols(
    prefill: Sequence[tuple[int, int]] = (),
    decode: Sequence[int] = (),
    groups: int = 1,
    cross: Sequence[int] = (),
) -> dict[str, Dim]:
    """Values of all symbols for one step.

    Args:
        prefill: (new tokens, past plus new tokens) of each sequence in prefill.
        decode: cached tokens, without the new one, of each decoding sequence.
        groups: groups with sequences of their own (attention_dp), each with as many tokens.
        cross: behind an encoder, tokens of the prompt of each decoding sequence.

    >>> step_symbols([(5, 5), (3, 10)], [7])["tokens"]
    9
    """
    tokens = sum(new for new, _ in prefill) + len(decode)
    return {
        TOKENS: tokens,
        ALL_TOKENS: groups * tokens,
        LOGIT_ROWS: len(prefill) + len(decode),
        PREFILL_Q: tuple(new for new, _ in prefill),
        PREFILL_KV: tuple(total for _, total in prefill),
        PREFILL_KV_TOKENS: sum(total for _, total in prefill),
        PREFILL_TOKENS: sum(new for new, _ in prefill),
        PREFILL_SEQUENCES: len(prefill),
        PREFILL_LONGEST: max((new for new, _ in prefill), default=0),
        DECODE_KV: tuple(decode),
        DECODE_TOKENS: len(decode),
        DECODE_LONGEST: max(decode, default=-1) + 1,
        CROSS_KV: tuple(length - 1 for length in cross),  # as attention counts: without one
    }


def phase_of(op: Op) -> Phase:
    """The kind of sequences without which an op does not run; "" = it runs in every step.

    >>> phase_of(Op.make("gemm", m="decode_tokens", n=512, k=128, batch=16))
    'decode'
    """
    for _, dim in op.dims:
        symbol = dim.symbol if isinstance(dim, Affine) else dim
        if isinstance(symbol, str) and symbol in _PHASES:
            return _PHASES[symbol]
    return ""
