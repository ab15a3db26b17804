"""Nodes that data ranks add, and the order in which one communicator runs them."""

from __future__ import annotations

from silicast.composition.step.executions import Executions
from silicast.distributed.ranks.data_ranks import of_shard
from silicast.distributed.ranks.plan import TrainingPlan
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.op import Op, Variant

GATHER, SUM = (
    Op.make(family, Variant(), bytes=8, gpus=8, stride=1)
    for family in ("all_gather", "reduce_scatter")
)
WORK = Op.make("elementwise", Variant(dtype="bf16"), elements=64, inputs=2)


def backward(*streams: int) -> Executions:
    """Two layers of a backward pass: gather, work, sum, on these streams."""
    ahead, summed = streams
    nodes = (
        Node("gather", GATHER, (), ahead, of_weights=True),
        Node("work", WORK),
        Node("sum", SUM, ("work",), summed, of_weights=True),
    )
    block = Block("layer_backward", nodes, (1, 0), direction="backward")
    return Executions.from_graph(Graph("model", (block,)))


def test_a_gather_is_issued_ahead_of_the_sum_of_the_layer_before() -> None:
    """In order of execution 0 gather, 1 work, 2 sum, then 3, 4, 5 of the next layer."""
    assert backward(3, 8).turns == [[0, 3, 2, 5]]


def test_a_gather_that_the_device_waits_for_is_issued_in_its_place() -> None:
    assert backward(0, 8).turns == [[0, 2, 3, 5]]
    assert backward(0, 0).turns == [], "one stream is in order anyway"


def test_ranks_add_their_share_to_earlier_gradients() -> None:
    plan = TrainingPlan(dp=8, zero=3)
    added = Node("down_grad_accumulated", WORK)
    assert of_shard(added, plan).op.dim("elements") == 8
    assert of_shard(Node("down_grad_weight", WORK), plan).op.dim("elements") == 64
