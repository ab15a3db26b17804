"""Attention where the ranks of a context group hold a share of each sequence.

The shares are two pieces of a sequence, one from each end, so that all ranks see as many pairs of
causal attention (the load balancing of Megatron-LM and of Llama 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from silicast.core.errors import unsupported
from silicast.distributed.ranks.plan import TrainingPlan
from silicast.distributed.ranks.rank_collectives import CONTEXT
from silicast.workload.graphs.graph import Node
from silicast.workload.graphs.op import Dim, Op, Variant

_MIXERS = frozenset(("attention_prefill", "mla_prefill"))
_OTHERS = frozenset(
    ("gdn", "kda", "mamba2", "dsa_module", "csa_module", "hca_module", "msa_module")
)


def context_nodes(
    nodes: Iterable[Node], plan: TrainingPlan, batch: int, seq_len: int, element: int
) -> Iterator[Node]:
    """The nodes of a layer with its attention spread over ``plan.cp`` ranks.

    Args:
        batch, seq_len: sequences of a pass, and their whole length.
        element: bytes of an element of keys and values.

    Raises:
        SilicastError: the layer mixes tokens otherwise than by attention.
    """
    for node in nodes:
        if node.op.family in _OTHERS:
            raise unsupported(
                f"{node.op.family} over context ranks is not modelled",
                "parallel.cp",
                "leave cp at 1",
            )
        if node.op.family not in _MIXERS:
            yield node
        elif plan.context == "ring":
            yield from _ring(node, plan, batch, seq_len, element)
        else:
            yield from _whole(node, plan, batch, seq_len, element)


def _ring(node: Node, plan: TrainingPlan, batch: int, seq_len: int, element: int) -> Iterator[Node]:
    """Keys and values go around while each rank attends to those that it has.

    A rank sees its own piece causally, and half of the pairs of every other rank's: all keys of it
    by half of its queries, or half of the keys by all; all of them where attention is not causal.
    """
    current = seq_len // plan.cp
    size = batch * current * _width(node.op, keys=True) * element
    own_op = _sized(node.op, batch, current, current, causal=True)
    parts = [f"{node.name}_{number}" for number in range(plan.cp)]
    yield replace(node, name=parts[0], op=own_op)
    held = node.inputs
    seen = _window(node.op)
    for number in range(1, plan.cp):
        if 0 < seen <= (number - 1) * (current // 2):
            parts = parts[:number]
            break
        sent = f"{node.name}_keys_{number}"
        op = Op.make("send_recv", Variant(), bytes=size, gpus=2, stride=plan.tp)
        yield Node(sent, op, held, CONTEXT)
        seen_by = max(current // 2, 1) if _causal(node.op) else current
        far = _sized(node.op, batch, seen_by, current, causal=False)
        yield replace(node, name=parts[number], op=far, inputs=(*node.inputs, sent))
        held = (sent,)
    merged = Op.make(
        "elementwise",
        Variant(dtype=node.op.variant.dtype, flags=(("add", True),)),
        elements=batch * current * _width(node.op, keys=False),
        inputs=len(parts),
    )
    yield Node(node.name, merged, tuple(parts), output_bytes=node.output_bytes)


def _whole(
    node: Node, plan: TrainingPlan, batch: int, seq_len: int, element: int
) -> Iterator[Node]:
    """Each rank attends for a share of the heads, or for its tokens to gathered keys."""
    current, group = seq_len // plan.cp, plan.group("cp")
    links = {"gpus": group.size, "stride": group.stride}
    keys = batch * current * _width(node.op, keys=True) * element
    out = batch * current * _width(node.op, keys=False) * element
    first, last = f"{node.name}_exchange", f"{node.name}_exchange_back"
    if plan.context == "all_gather":
        yield Node(
            first,
            Op.make("all_gather", Variant(), bytes=keys * plan.cp, **links),
            node.inputs,
            CONTEXT,
        )
        piece = max(current // 2, 1)
        middle = plan.cp // 2
        ends = [(middle + 1) * piece, (2 * plan.cp - middle) * piece]
        if not _causal(node.op):
            ends = [seq_len, seq_len]
        dims = dict(node.op.dims)
        dims |= {"q_len": (piece,) * (2 * batch), "kv_len": tuple(ends * batch)}
        op = replace(node.op, dims=tuple(sorted(dims.items())))
        yield replace(node, op=op, inputs=(*node.inputs, first))
        return
    heads, kv_heads = _number(node.op, "num_heads"), dict(node.op.dims).get("num_kv_heads")
    if heads % plan.cp:
        raise unsupported(
            f"cp = {plan.cp} ranks cannot share {heads} heads", "parallel.cp", "a divisor of them"
        )
    exchanged = Op.make("all_to_all", Variant(), bytes=keys + out, **links)
    yield Node(first, exchanged, node.inputs, CONTEXT)
    op = _sized(node.op, batch, seq_len, seq_len, causal=True)
    shared: dict[str, Dim] = dict(op.dims)
    shared["num_heads"] = heads // plan.cp
    if isinstance(kv_heads, int):
        shared["num_kv_heads"] = max(kv_heads // plan.cp, 1)
    op = replace(op, dims=tuple(sorted(shared.items())))
    yield replace(node, name=f"{node.name}_heads", op=op, inputs=(first,))
    back = Op.make("all_to_all", Variant(), bytes=out, **links)
    yield Node(last, back, (f"{node.name}_heads",), CONTEXT)
    yield replace(node, op=Op.make("elementwise", Variant(dtype=node.op.variant.dtype,
                  flags=(("copy", True),)), elements=out // element, inputs=1),
                  inputs=(last,))  # fmt: skip


def _sized(op: Op, batch: int, new: int, keys: int, *, causal: bool) -> Op:
    dims: dict[str, Dim] = dict(op.dims)
    dims |= {"q_len": (new,) * batch, "kv_len": (keys,) * batch}
    flags = dict(op.variant.flags)
    if not causal:
        flags["causal"] = False
    variant = replace(op.variant, flags=tuple(sorted(flags.items())))
    return replace(op, dims=tuple(sorted(dims.items())), variant=variant)


def _width(op: Op, *, keys: bool) -> int:
    """Elements of a token's keys and values, or of its result."""
    sizes = {name: size for name, size in op.dims if isinstance(size, int)}
    if op.family == "mla_prefill":
        value = sizes["v_head_dim"]
        whole = sizes["qk_nope_head_dim"] + sizes["qk_rope_head_dim"] + value
        return sizes["num_heads"] * (whole if keys else value)
    count = 2 * sizes["num_kv_heads"] if keys else sizes["num_heads"]
    return count * sizes["head_dim"]


def _window(op: Op) -> int:
    size = dict(op.dims).get("window", 0)
    return size if isinstance(size, int) else 0


def _causal(op: Op) -> bool:
    return bool(dict(op.variant.flags).get("causal", True))


def _number(op: Op, name: str) -> int:
    size = op.dim(name)
    assert isinstance(size, int), name
    return size
