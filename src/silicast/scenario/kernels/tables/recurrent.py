"""Recurrent token mixers: linear attention and state spaces, with the columns of their tables."""

from __future__ import annotations

from collections.abc import Mapping

from silicast.core.errors import require
from silicast.scenario.kernels.tables._spec import BATCH, TOKENS, Lowering, OpSpec, Range

PHASES: Mapping[str, str] = {
    "context": "context",
    "prefill": "context",
    "generation": "generation",
    "decode": "generation",
    "verify": "verify",
}
"""Phase -> the phase of the kernel models."""

_OF_STEPS = ("update", "recurrent", "decode")
"""Words in names of kernels that take one or a few tokens of each sequence."""


def _lower(case: Lowering) -> None:
    """Batch, length and tokens from those that are stated; the phase becomes a flag.

    The tables' width of the model belongs to the projections around the mixer.
    """
    case.dims.pop("d_model", None)
    case.words.pop("model_name", None)
    batch, length, tokens = (_stated(case, n) for n in ("batch_size", "seq_len", "num_tokens"))
    count = 1 if batch is None else batch
    if length is None:
        tokens = count if tokens is None else tokens
        require(
            tokens >= count,
            f"num_tokens = {tokens} of {count} sequences",
            "num_tokens",
            "each sequence has at least one",
        )
        length = -(-tokens // count)
    if tokens is not None:
        require(
            count + length - 1 <= tokens <= count * length,
            f"num_tokens = {tokens}, but {count} sequences have up to {length} tokens each",
            "num_tokens",
            "leave it out where all sequences are equally long",
        )
        if tokens != count * length:
            case.dims["num_tokens"] = tokens
    case.dims["batch_size"], case.dims["seq_len"] = count, length
    phase = _phase(case, length)
    if phase != "context":
        case.flags[phase] = True


def _stated(case: Lowering, name: str) -> int | None:
    if name not in case.dims:
        return None
    value = case.whole(name)
    del case.dims[name]
    return value


def _phase(case: Lowering, length: int) -> str:
    """As stated, else by the kernel's name; a single token without either is a decode step."""
    stated = case.words.pop("phase", None)
    if stated is not None:
        return PHASES[str(stated)]
    kernel = str(case.table.get("variant", ""))
    if kernel:
        return "generation" if any(word in kernel for word in _OF_STEPS) else "context"
    return "generation" if length == 1 else "context"


def _mixer(meaning: str, dims: tuple[str, ...]) -> OpSpec:
    optional: dict[str, tuple[Range, int | None]] = {
        "batch_size": (BATCH, None),
        "seq_len": (TOKENS, None),
        "num_tokens": (TOKENS, None),
        "d_model": ((1, 1 << 20), None),
    }
    return OpSpec(
        meaning,
        dict.fromkeys(dims, (1, 1 << 20)),
        optional,
        words={"phase": tuple(PHASES), "model_name": ()},
        lower=_lower,
    )


_DELTA = ("d_conv", "head_k_dim", "head_v_dim", "num_k_heads", "num_v_heads")

OPS: Mapping[str, OpSpec] = {
    "gdn": _mixer("gated delta network", _DELTA),
    "kda": _mixer("Kimi delta attention", _DELTA),
    "mamba2": _mixer(
        "Mamba 2 mixer", ("d_conv", "d_state", "head_dim", "n_groups", "chunk_size", "nheads")
    ),
}
