"""Which layout a compiler chooses for images."""

import pytest

from silicast.hardware.catalog import find_device
from silicast.learning.dispatch import time_of
from silicast.workload.frameworks.compiled import fused_graph
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.image_layout import prefers_channels_last, with_channels_last
from silicast.workload.graphs.op import Op, Variant


def convolution(channels: int = 128, groups: int = 1, kernel: int = 3) -> Op:
    return Op.make(
        "conv2d", Variant("fp16"), batch=8, in_channels=channels, out_channels=channels, height=28,
        width=28, kernel=kernel, stride=1, padding=kernel // 2, groups=groups,
    )  # fmt: skip


def nodes_of(*ops: Op) -> list[Node]:
    return [Node(f"n{number}", op) for number, op in enumerate(ops)]


@pytest.mark.parametrize(
    ("op", "last"), [(convolution(), True), (convolution(groups=128), True),
                     (convolution(groups=4), False)],
)  # fmt: skip
def test_grouped_convolutions_stay_as_they_are(op: Op, last: bool) -> None:
    assert prefers_channels_last(nodes_of(op)) is last


def test_few_convolutions_among_much_else_stay_as_they_are() -> None:
    remainder = [Op.make("softmax", rows=64, cols=64)] * 400
    assert not prefers_channels_last(nodes_of(convolution(), *remainder))
    assert not prefers_channels_last(nodes_of(*remainder))


def test_a_compiled_program_says_so() -> None:
    graph = fused_graph(Graph("toy", (Block("forward", tuple(nodes_of(convolution()))),)))
    assert [node.op.variant.flag("channels_last") for _, node in graph.nodes()] == [True]


@pytest.mark.parametrize("device", ["RTX 4090", "RTX 3090", "A100-SXM-80GB", "V100-SXM2-16GB"])
def test_channels_last_is_never_slower_on_tensor_cores(device: str) -> None:
    board = find_device(device)
    plain, last = (time_of(op, board) for op in (convolution(), with_channels_last(convolution())))
    assert last.estimate_s <= plain.estimate_s
