"""Attention over context ranks: what each rank sends and attends to, counted by hand."""

from __future__ import annotations

import pytest

from silicast.core.errors import SilicastError
from silicast.distributed.ranks.plan import TrainingPlan
from silicast.distributed.ranks.spread import context_nodes
from silicast.workload.graphs.graph import Node
from silicast.workload.graphs.op import Op, Variant

BATCH, SEQ, CP = 2, 4096, 4
OWN = SEQ // CP
HEADS, KV_HEADS, HEAD = 32, 8, 128
KEYS = BATCH * OWN * 2 * KV_HEADS * HEAD * 2
"""Bytes of a rank's keys and values in 16 bits."""
RESULT = BATCH * OWN * HEADS * HEAD
"""Elements of a rank's result."""


def attention(window: int = 0, *, causal: bool = True) -> Node:
    op = Op.make(
        "attention_prefill", Variant(flags=(("causal", causal),)), q_len=(SEQ,) * BATCH,
        kv_len=(SEQ,) * BATCH, num_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=HEAD, window=window,
    )  # fmt: skip
    return Node("attention", op, ("qkv",), output_bytes=7)


def spread(node: Node, **plan: object) -> dict[str, Node]:
    training = TrainingPlan(cp=CP, **plan)  # type: ignore[arg-type]
    return {each.name: each for each in context_nodes([node], training, BATCH, SEQ, 2)}


def lengths(node: Node) -> tuple[object, object]:
    return dict(node.op.dims)["q_len"], dict(node.op.dims)["kv_len"]


def test_a_ring_sends_keys_and_adds_up_what_each_piece_gave() -> None:
    nodes = spread(attention(), context="ring", tp=2)
    sent = [node for name, node in nodes.items() if "_keys_" in name]
    assert [node.op.dims for node in sent] == [
        Op.make("send_recv", bytes=KEYS, gpus=2, stride=2).dims
    ] * (CP - 1)
    assert lengths(nodes["attention_0"]) == ((OWN,) * BATCH, (OWN,) * BATCH)
    for number in range(1, CP):  # half of the pairs with every other rank's keys
        part = nodes[f"attention_{number}"]
        assert lengths(part) == ((OWN // 2,) * BATCH, (OWN,) * BATCH)
        assert dict(part.op.variant.flags)["causal"] is False
        assert part.inputs == ("qkv", f"attention_keys_{number}")
    merged = nodes["attention"]
    assert merged.inputs == tuple(f"attention_{n}" for n in range(CP))
    assert merged.op == Op.make(
        "elementwise", Variant(flags=(("add", True),)), elements=RESULT, inputs=CP
    )
    assert merged.output_bytes == 7


def test_a_ring_without_a_mask_sees_all_pairs_and_with_a_window_near_ones() -> None:
    nodes = spread(attention(causal=False), context="ring")
    assert lengths(nodes["attention_1"]) == ((OWN,) * BATCH, (OWN,) * BATCH)
    # a rank's two pieces are of half its tokens: a window of one piece ends in the neighbour's
    near = spread(attention(window=OWN // 2), context="ring")
    assert [name for name in near if "_keys_" in name] == ["attention_keys_1"]
    assert near["attention"].inputs == ("attention_0", "attention_1")
    two = spread(attention(window=OWN // 2 + 1), context="ring")
    assert [name for name in two if "_keys_" in name] == ["attention_keys_1", "attention_keys_2"]


def test_gathered_keys_meet_a_piece_from_each_end() -> None:
    nodes = spread(attention(), context="all_gather")
    assert nodes["attention_exchange"].op == Op.make(
        "all_gather", bytes=KEYS * CP, gpus=CP, stride=1
    )
    piece = OWN // 2
    # the third rank of four: pieces 3 and 6 of eight, with all keys up to their ends
    assert lengths(nodes["attention"]) == (
        (piece,) * (2 * BATCH), (3 * piece, 6 * piece) * BATCH
    )  # fmt: skip
    whole = spread(attention(causal=False), context="all_gather")
    assert lengths(whole["attention"])[1] == (SEQ, SEQ) * BATCH


def test_exchanged_heads_attend_to_whole_sequences() -> None:
    nodes = spread(attention(), context="all_to_all")
    there, back = nodes["attention_exchange"], nodes["attention_exchange_back"]
    assert there.op == Op.make("all_to_all", bytes=KEYS + 2 * RESULT, gpus=CP, stride=1)
    assert back.op == Op.make("all_to_all", bytes=2 * RESULT, gpus=CP, stride=1)
    heads = dict(nodes["attention_heads"].op.dims)
    assert (heads["num_heads"], heads["num_kv_heads"]) == (HEADS // CP, KV_HEADS // CP)
    assert lengths(nodes["attention_heads"]) == ((SEQ,) * BATCH, (SEQ,) * BATCH)
    assert nodes["attention"].op == Op.make(
        "elementwise", Variant(flags=(("copy", True),)), elements=RESULT, inputs=1
    )


def test_latent_attention_sends_each_heads_keys_and_values() -> None:
    op = Op.make(
        "mla_prefill", q_len=(SEQ,) * BATCH, kv_len=(SEQ,) * BATCH, num_heads=16,
        qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=96,
    )  # fmt: skip
    nodes = spread(Node("attention", op, ("q",)), context="ring")
    sent = dict(nodes["attention_keys_1"].op.dims)["bytes"]
    assert sent == BATCH * OWN * 16 * (128 + 64 + 96) * 2
    assert dict(nodes["attention"].op.dims)["elements"] == BATCH * OWN * 16 * 96


def test_other_layers_pass_and_recurrent_ones_are_refused() -> None:
    other = Node("norm", Op.make("rmsnorm", tokens=8, hidden=8), ())
    assert list(context_nodes([other], TrainingPlan(cp=CP), BATCH, SEQ, 2)) == [other]
    recurrent = Node("mixer", Op.make("mamba2", tokens=8), ())
    with pytest.raises(SilicastError, match="mamba2 over context ranks"):
        list(context_nodes([recurrent], TrainingPlan(cp=CP), BATCH, SEQ, 2))
    odd = Node("attention", attention().op, ())
    with pytest.raises(SilicastError, match="cannot share 32 heads"):
        list(context_nodes([odd], TrainingPlan(cp=3, context="all_to_all"), BATCH, SEQ, 2))
