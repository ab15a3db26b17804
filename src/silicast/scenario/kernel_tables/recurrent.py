"""Recurrent token mixers: linear attention and state spaces, with the columns of their tables."""

from __future__ import annotations

from collections.abc import Mapping

from silicast.scenario.kernel_tables._spec import BATCH, TOKENS, OpSpec, Range

PHASES = ("context", "generation", "prefill", "decode", "verify")


def _mixer(meaning: str, dims: tuple[str, ...]) -> OpSpec:
    optional: dict[str, tuple[Range, int | None]] = {
        "batch_size": (BATCH, None), "seq_len": (TOKENS, None), "num_tokens": (TOKENS, None),
    }  # fmt: skip
    return OpSpec(
        meaning,
        dict.fromkeys(dims, (1, 1 << 20)),
        optional,
        words={"phase": PHASES, "model_name": ()},
    )


_DELTA = ("d_model", "d_conv", "head_k_dim", "head_v_dim", "num_k_heads", "num_v_heads")

OPS: Mapping[str, OpSpec] = {
    "gdn": _mixer("gated delta network", _DELTA),
    "kda": _mixer("Kimi delta attention", _DELTA),
    "mamba2": _mixer(
        "Mamba 2 mixer",
        ("d_model", "d_conv", "d_state", "head_dim", "n_groups", "chunk_size", "nheads"),
    ),
}
