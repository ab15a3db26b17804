"""What kernels of recurrent token mixers compute and move: exact counts in closed form.

Formulas serve Python integers (one op, exact) and float64 arrays (a batch). A mixer is two
kernels: a causal convolution over its channels, and the recurrence itself, over chunks of new
tokens (scan) or a few tokens of each sequence (step).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from msgspec import Struct

from silicast.workload.models.model_parts import STATE_BYTES

Sizes = Mapping[str, Any]


@final
class MixerShape(Struct, frozen=True):
    """A mixer in the terms that all of them share; whole numbers or float64 arrays.

    Attributes:
        sequences, longest, tokens: sequences, new tokens of the longest and of all of them.
        lanes: heads of the state.
        state: elements of the state of a head.
        products: useful operations a token and head: what the recurrence itself multiplies.
        row_bytes: inputs and outputs of the recurrence, a token.
        middle_bytes: a token's intermediate results where several kernels share the work.
        channels, key_channels: of the convolution; taps: its width.
        chunk: tokens of one chunk where the op states it, else 0.
    """

    sequences: Any
    longest: Any
    tokens: Any
    lanes: Any
    state: Any
    products: Any
    row_bytes: Any
    middle_bytes: Any
    channels: Any
    key_channels: Any
    taps: Any
    chunk: Any


def delta_shape(sizes: Sizes, element: int, *, gate_per_channel: bool) -> MixerShape:
    """The delta rule: a state of key x value channels a value head.

    Products: key times state, the rank-one update and query times state, 2 operations each.
    """
    keys, values = sizes["num_k_heads"], sizes["num_v_heads"]
    dk, dv = sizes["head_k_dim"], sizes["head_v_dim"]
    gate = dk + 1 if gate_per_channel else 2
    return MixerShape(
        sequences=sizes["batch_size"],
        longest=sizes["seq_len"],
        tokens=sizes.get("num_tokens", sizes["batch_size"] * sizes["seq_len"]),
        lanes=values,
        state=dk * dv,
        products=6 * dk * dv,
        row_bytes=(2 * keys * dk + 2 * values * dv + values * gate) * element,
        middle_bytes=values * (dk + dv) * element,
        channels=2 * keys * dk + values * dv,
        key_channels=keys * dk,
        taps=sizes["d_conv"],
        chunk=0,
    )


def ssm_shape(sizes: Sizes, element: int) -> MixerShape:
    """Mamba 2: a state of head_dim x d_state a head, input and output projections by group.

    Products: the rank-one update and the readout, 2 operations each.
    """
    heads, width, state = sizes["nheads"], sizes["head_dim"], sizes["d_state"]
    groups = sizes["n_groups"]
    inner = heads * width
    return MixerShape(
        sequences=sizes["batch_size"],
        longest=sizes["seq_len"],
        tokens=sizes.get("num_tokens", sizes["batch_size"] * sizes["seq_len"]),
        lanes=heads,
        state=width * state,
        products=4 * width * state,
        row_bytes=(2 * inner + 2 * groups * state + 2 * heads) * element,
        middle_bytes=inner * element,
        channels=inner + 2 * groups * state,
        key_channels=inner + 2 * groups * state,
        taps=sizes["d_conv"],
        chunk=sizes["chunk_size"],
    )


@final
class RecurrentWork(Struct, frozen=True):
    """One kernel: whole numbers or float64 arrays of shape (n,).

    Attributes:
        flops: useful operations.
        least_bytes: what must move once: the least that any kernel of this kind does.
        unique_bytes: different bytes among them: states are updated in place.
        row_bytes: inputs and results of tokens.
        state_bytes: states read and written.
        middle_bytes: intermediate results of tokens, once; how often they pass is a constant.
        chunk_bytes: of the states between chunks, for each chunk, once; likewise.
        lanes: heads, or channels of a convolution: what runs in parallel beside sequences.
    """

    flops: Any
    least_bytes: Any
    unique_bytes: Any
    row_bytes: Any
    state_bytes: Any
    middle_bytes: Any
    chunk_bytes: Any
    lanes: Any


def conv_work(
    shape: MixerShape, element: int, *, keys_only: bool, every_state: bool
) -> RecurrentWork:
    """A causal convolution: each channel of a token in and out, and taps - 1 tokens of state.

    Args:
        shape: the mixer.
        element: bytes of an activation.
        keys_only: older campaigns timed the keys' channels alone.
        every_state: the state after every token is kept, for drafts that may be refused.
    """
    channels = shape.key_channels if keys_only else shape.channels
    rows = shape.tokens * channels * (2 * element)
    held = shape.sequences * channels * ((shape.taps - 1) * element)
    written = shape.tokens * channels * ((shape.taps - 1) * element) if every_state else held
    return RecurrentWork(
        flops=shape.tokens * channels * (2 * shape.taps),
        least_bytes=rows + channels * (shape.taps * element),
        # queries, keys and values may go through the same buffers one after another
        unique_bytes=rows // 3,
        row_bytes=rows,
        state_bytes=held + written,
        middle_bytes=0 * rows,
        chunk_bytes=0 * rows,
        lanes=channels,
    )


def recurrence_work(shape: MixerShape, element: int, *, states: str) -> RecurrentWork:
    """The recurrence of all heads.

    Args:
        shape: the mixer.
        element: bytes of an activation.
        states: "scan" (the final state is written; an initial one is read), "step" (read and
            written), "every" (written after every token), "once" (moved once: half the bytes).
    """
    held = shape.sequences * shape.lanes * shape.state * STATE_BYTES
    rows = shape.tokens * shape.row_bytes
    moved = {
        "scan": 2 * held,
        "step": 2 * held,
        "every": held + shape.tokens * shape.lanes * shape.state * STATE_BYTES,
        "once": held,
    }[states]
    return RecurrentWork(
        flops=shape.tokens * shape.lanes * shape.products,
        least_bytes=rows + (held if states in ("scan", "once") else 2 * held),
        unique_bytes=rows + held,
        row_bytes=rows,
        state_bytes=moved,
        middle_bytes=shape.tokens * shape.middle_bytes,
        chunk_bytes=shape.lanes * shape.state * element,
        lanes=shape.lanes,
    )
