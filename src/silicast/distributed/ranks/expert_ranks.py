"""Routed experts on the ranks that share them: tokens go there and their results come back.

A library sorts tokens by expert and exchanges them by a collective, or calls a kernel that sends a
token once to each rank or node. Tensor ranks of an expert gather the tokens that they share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal

from silicast.composition.engines.engine import ExpertTable
from silicast.distributed.ranks.expert_capacity import Capacity
from silicast.distributed.ranks.plan import ELEMENT, EXPERTS, TrainingPlan, collective
from silicast.workload.graphs.graph import OTHER_PASS, Node
from silicast.workload.graphs.op import HOST_WAITS, INTEGERS, Dim, Op, Variant
from silicast.workload.models.model import ModelConfig
from silicast.workload.transformers.encoder_nodes import DISPATCHED

ROUTED = "experts_routed"
EXCHANGED = "experts"
"""Start of the names of what brings tokens to their experts and back."""
_SHARED, _JOINED = "shared_", ("shared_add", "shared_gate", "shared_scale")
"""Start of the names of shared experts; what joins their result with that of the routed ones."""
Beside = Literal["", "shared", "batches"]
"""What runs while tokens are exchanged: nothing, shared experts, or another micro-batch."""
_FP32 = 4


def with_experts(
    nodes: Iterable[Node],
    model: ModelConfig,
    plan: TrainingPlan,
    tokens: int,
    capacity: Capacity | None = None,
    routing: ExpertTable = ExpertTable(),
    beside: Beside = "",
    *,
    sorts: bool = True,
) -> Iterator[Node]:
    """The nodes of a layer with its routed experts on the ranks that share them.

    Beside another micro-batch an exchange is waited for by nothing of its own pass: the forward
    pass of one and the backward pass of the other fill each other's exchanges (DualPipe,
    Megatron-LM's ``--overlap-moe-expert-parallel-comm``), so that a pass takes as long as its
    work or its exchanges, whichever takes longer, forward and backward together. Shared experts
    run while tokens go out.

    Args:
        tokens: of a pass on each rank, before tensor ranks share them.
        capacity: that experts have; None = they take all tokens.
        routing: what the engine launches around the experts.
        beside: what runs while tokens are exchanged.
        sorts: tokens that a kernel brings are put in the order of their experts by another.
    """
    if capacity is not None:
        nodes = capacity.limited(nodes)
    moe = model.moe
    spread = plan.ep > 1 or plan.etp != plan.tp or plan.sequence_parallel
    nodes = list(nodes)
    shared = [node for node in nodes if _is_shared(node) and beside == "shared"]
    moved: list[Node] = []
    for node in nodes:
        if node.op.family != "moe" or moe is None or not spread:
            if node not in moved:
                yield node
            continue
        rank_tokens = own_tokens(plan, tokens)
        chosen = _chosen(routing, plan, rank_tokens * moe.held)
        if capacity is not None:
            rank_tokens = capacity.tokens(rank_tokens)
        last = node.inputs
        steps = [*chosen, *_exchanged(node, model, plan, rank_tokens, sorts=sorts)]
        if beside == "batches":  # those of another micro-batch
            for step in [step for step in steps if step.stream == EXPERTS]:
                steps.remove(step)
                yield replace(step, inputs=last, stream=OTHER_PASS)
        for index, step in enumerate(steps):
            name = node.name if index == len(steps) - 1 else step.name
            yield replace(step, name=name, inputs=last, stream=step.stream if beside else 0)
            last = (name,)
            if step.stream == EXPERTS:
                yield from shared
                moved, shared = moved + shared, []


def _is_shared(node: Node) -> bool:
    return node.name.startswith(_SHARED) and node.name not in _JOINED


def own_tokens(plan: TrainingPlan, tokens: int) -> int:
    """Tokens of a pass that a rank sends to experts."""
    return -(-tokens // (plan.tp if plan.sequence_parallel else 1))


def _chosen(routing: ExpertTable, plan: TrainingPlan, numbers: int) -> Iterator[Node]:
    """The small kernels that choose experts and count their tokens; the host waits for the last
    ones, and the first ones have a gradient.
    """
    size = numbers * _FP32
    count = routing.routing + routing.exchange.get(plan.dispatch, 0)
    for number in range(count):
        waits = number >= count - routing.waits
        back = number < routing.routing_back
        flags = ((HOST_WAITS, True),) if waits else () if back else ((INTEGERS, True),)
        variant = Variant(dtype="fp32", flags=flags)
        op = Op.make(
            "data_movement", variant, read_bytes=size, written_bytes=size, operations=numbers
        )
        yield Node(f"experts_choice_{number}", op)


def _exchanged(
    node: Node, model: ModelConfig, plan: TrainingPlan, tokens: int, *, sorts: bool
) -> list[Node]:
    """Experts between what brings ``tokens`` tokens of each rank there and back."""
    moe = model.moe
    assert moe is not None
    width = moe.latent or model.hidden
    sent = tokens * width * ELEMENT * (moe.topk if plan.ep > 1 else 1)
    dims: dict[str, Dim] = dict(node.op.dims)
    dims |= {"tokens": tokens * plan.ep * plan.etp, "ep": plan.ep, "tp": plan.etp}
    kernel = DISPATCHED if plan.ep > 1 else node.op.variant.kernel
    variant = replace(node.op.variant, kernel=kernel)
    op = replace(node.op, dims=tuple(sorted(dims.items())), variant=variant)
    nodes = [replace(node, name=ROUTED, op=op)]
    if plan.etp > 1:
        size = sent * plan.etp
        nodes.insert(
            0, Node("experts_gather", collective(plan, "all_gather", "etp", size), (), EXPERTS)
        )
        nodes.append(
            Node("experts_scatter", collective(plan, "reduce_scatter", "etp", size), (), EXPERTS)
        )
    if plan.ep == 1:
        return nodes
    one = tokens * width * ELEMENT
    moves = {
        "experts_permute": (one, sent),
        "experts_sort": (sent, sent),
        "experts_sort_back": (sent, sent),
        "experts_unpermute": (sent, one),
    }
    before, by_expert, back, after = (
        Node(name, Op.make("data_movement", Variant(), read_bytes=read, written_bytes=written,
                           operations=written // ELEMENT))
        for name, (read, written) in moves.items()
    )  # fmt: skip
    if plan.dispatch == "kernel":
        if sorts:  # a token came once, and goes to each of its experts here
            nodes = [before, *nodes, after]
        sizes = {"hidden": width, "topk": moe.topk, "experts": moe.held, "ep": plan.ep}
        ends = [
            Node(f"experts_{name}", Op.make(name, Variant(), tokens=tokens, **sizes), (), EXPERTS)
            for name in ("dispatch", "combine")
        ]
        return [ends[0], *nodes, ends[1]]
    ends = [
        Node(name, collective(plan, "all_to_all", "ep", sent), (), EXPERTS)
        for name in ("experts_dispatch", "experts_combine")
    ]
    return [before, ends[0], by_expert, *nodes, back, ends[1], after]
