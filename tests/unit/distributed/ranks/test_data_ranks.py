"""Nodes that data ranks add, and the order in which one communicator runs them."""

from __future__ import annotations

from silicast.composition.step.executions import Executions
from silicast.distributed.ranks.data_ranks import DataRanks, Exchanges, block_parameters, of_shard
from silicast.distributed.ranks.plan import TrainingPlan
from silicast.workload.frameworks.eager import Framework, PassShape, framework_graph
from silicast.workload.graphs.graph import OTHER_PASS, Block, Graph, Node
from silicast.workload.graphs.op import Op, Variant
from silicast.workload.models.lookup import find_model
from silicast.workload.training.backward import Training
from silicast.workload.transformers.decoder import build_graph

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


LLAMA = find_model("Llama-3.1-8B")


def at_once(bucket: int) -> tuple[list[int], int]:
    """Dense parameters that are summed at once, in the order of the backward pass, and all."""
    framework = Framework(compiled=True, attention="fused", fused_layers=True, training=Training())
    graph = framework_graph(build_graph(LLAMA), LLAMA, PassShape(1, 64), framework)
    ranks = DataRanks(LLAMA, TrainingPlan(dp=64, zero=1), Exchanges(sums=True, bucket=bucket))
    whole = [dense for dense, _ in ranks.at_once(graph).values()]
    counts = [
        block.count * block_parameters(block, LLAMA)[0]
        for block in graph.blocks
        if block.direction == "forward"
    ]
    return whole, sum(counts)


def test_buckets_hold_all_gradients_and_only_the_last_is_not_full() -> None:
    whole, count = at_once(10**9)
    full = [size for size in whole if size]
    assert sum(whole) == count == 8_030_261_248
    assert len(whole) == 34, "head, 32 layers, embedding"
    assert all(size >= 10**9 for size in full[:-1])
    assert 6 <= len(full) <= 8
    assert whole[-1] > 0, "what is left is summed when the pass ends"


def test_a_layer_that_fills_a_bucket_is_summed_alone() -> None:
    small, count = at_once(40_000_000)
    assert (small, count) == at_once(0)
    assert all(small)


def test_no_direction_waits_for_a_transfer_of_another_pass() -> None:
    """Its own stream does not wait for the work of the pass before, either."""

    def first_of_backward(stream: int) -> list[int]:
        sent = Node("sent", GATHER, (), stream)
        forward = Block("layer", (sent, Node("work", WORK)), (0,))
        backward = Block("layer_backward", (Node("back", WORK),), (0,), direction="backward")
        return Executions.from_graph(Graph("model", (forward, backward))).waits[2]

    assert 0 in first_of_backward(2)
    assert 0 not in first_of_backward(OTHER_PASS)
