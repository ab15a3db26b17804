"""Builds the graphs of architectures node by node, as inference runtimes fuse them."""

from __future__ import annotations

from typing import final

from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.op import Op
from silicast.workload.operators.convolutions import Window, convolution
from silicast.workload.operators.products import product
from silicast.workload.operators.table import movement

WORD = 4
"""Bytes of a number; weights and activations are fp32."""


@final
class ImageNetwork:
    """Nodes of a network of square images; each method adds one and returns its name.

    Args:
        batch: images.
    """

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.nodes: list[Node] = []
        self._weights = 0

    def convolution(
        self,
        inputs: str | tuple[str, ...],
        channels: tuple[int, int],
        size: int,
        kernel: int,
        stride: int = 1,
        groups: int = 1,
    ) -> str:
        """With its norm and activation folded in; ``size`` is the image's side, padding half."""
        before, after = channels
        image = (self.batch, before, size, size)
        out = -(-size // stride)
        taps = (after, before // groups, kernel, kernel)
        window = Window((stride, stride), (kernel // 2, kernel // 2), (1, 1), groups)
        results = (self.batch, after, out, out)
        op = convolution(image, taps, results, window, "fp32")
        return self._add(f"conv{kernel}x{kernel}", op, inputs, after * out * out, taps)

    def pool(self, inputs: str | tuple[str, ...], channels: int, size: int, window: int) -> str:
        """An average over ``window`` x ``window`` places; the whole image if it is as large."""
        out = 1 if window == size else size
        count = channels * out * out
        moved = movement(
            WORD * self.batch * channels * size * size,
            WORD * self.batch * count,
            self.batch * count * window * window,
        )
        return self._add("pool", moved, inputs, count, ())

    def add(self, inputs: tuple[str, ...], channels: int, size: int) -> str:
        """The sum of results; of one, that result itself."""
        if len(inputs) == 1:
            return inputs[0]
        count = channels * size * size
        moved = WORD * self.batch * count
        op = movement(moved * len(inputs), moved, self.batch * count * (len(inputs) - 1))
        return self._add("add", op, inputs, count, ())

    def linear(self, inputs: str, before: int, after: int) -> str:
        """The classifier."""
        op = product(self.batch, after, before, 1, "fp32")
        return self._add("linear", op, inputs, after, (after, before))

    def graph(self, name: str) -> Graph:
        """All of it as one block."""
        blocks = (Block("forward", tuple(self.nodes)),)
        return Graph(name, blocks, "inference", parameter_bytes=self._weights)

    def _add(
        self,
        kind: str,
        op: Op,
        inputs: str | tuple[str, ...],
        results: int,
        weights: tuple[int, ...],
    ) -> str:
        name = f"{kind}_{len(self.nodes)}"
        size = WORD if weights else 0
        for each in weights:
            size *= each
        self._weights += size
        sources = (inputs,) if isinstance(inputs, str) else inputs
        self.nodes.append(
            Node(
                name,
                op,
                tuple(each for each in sources if each),
                output_bytes=WORD * self.batch * results,
                parameter_bytes=size,
            )
        )
        return name
