"""Rotary embeddings as a training library's operators make them, where no kernel fuses them.

Counted in megatron-core 0.16.1, models/common/embeddings/rope_utils.py
(``_apply_rotary_pos_emb_bshd``) and transformer/multi_latent_attention.py: for queries and for keys
cosine and sine are made anew, scaled and cast; then two products, the swapped halves and their
sign, the sum, and the copy beside what does not turn. Latent attention brings pairs together
beforehand, and copies queries, keys and values of all heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from silicast.workload.graphs.graph import Node
from silicast.workload.graphs.op import INTEGERS, Op, Variant
from silicast.workload.models.model import ModelConfig

_ANGLES = ("cos", "cos_scaled", "cos_cast", "sin", "sin_scaled", "sin_cast")
"""Over one number a place of a sequence and of a head, shared by the sequences of a batch; without
gradients."""
_TURNS = (
    ("by_cos", 1.0, 1.0),
    ("minus", 0.5, 0.5),
    ("swapped", 1.0, 1.0),
    ("by_sin", 1.0, 1.0),
    ("sum", 2.0, 1.0),
)
"""Operators over a rotated tensor: name, and what is read and written over its size."""
_BYTES, _WIDE = 2, 4


def unfused_rope(node: Node, model: ModelConfig, batch: int) -> Iterator[Node]:
    """A node of rotary embeddings as operators; the last has its name.

    Args:
        node: with sizes that are numbers.
        model: its latent attention, if it has one.
        batch: sequences among its tokens.
    """
    sizes: dict[str, Any] = dict(node.op.dims)
    tokens, width, mla = sizes["tokens"], sizes["head_dim"], model.mla
    queries, keys = (node.inputs[:1], node.inputs[1:] or node.inputs)
    last: tuple[str, ...] = ()
    angles = tokens // batch * width * _WIDE
    for name, heads, inputs in (
        ("q_rope", sizes["num_heads"], queries),
        (node.name, sizes["num_kv_heads"], keys),
    ):
        read_names = inputs
        whole = tokens * width * heads * _BYTES
        for angle in _ANGLES:
            yield _pass(f"{name}_{angle}", angles, angles, (), True)
        for turn, read, written in (("pairs", 1.0, 1.0), *_TURNS)[mla is None :]:
            yield _pass(f"{name}_{turn}", int(whole * read), int(whole * written), read_names)
            read_names = (f"{name}_{turn}",)
        if mla is None:  # copied beside what does not turn
            last = (*read_names, *last)
            yield _pass(name, whole, whole, last)
            last = (name,)
        else:
            whole = tokens * sizes["num_heads"] * mla.qk_head_dim * _BYTES
            last = (f"{name}_joined",)
            yield _pass(*last, whole, whole, read_names)
    if mla is not None:
        value = tokens * sizes["num_heads"] * mla.v_head_dim * _BYTES
        yield _pass(node.name, value, value, ("q_rope_joined", *last))


def _pass(
    name: str, read: int, written: int, inputs: tuple[str, ...], angles: bool = False
) -> Node:
    """An operator over 16-bit numbers, or over angles in 32 bits."""
    flags = ((INTEGERS, True),) if angles else ()
    variant = Variant(dtype="fp32" if angles else "bf16", flags=flags)
    operations = written // (_WIDE if angles else _BYTES)
    op = Op.make(
        "data_movement", variant, read_bytes=read, written_bytes=written, operations=operations
    )
    return Node(name, op, inputs)
