"""NAS-Bench-201 (Dong and Yang, ICLR 2020): one cell of six edges, fifteen times in a network."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, final

import numpy as np

from silicast.core.numerics import F64, I64
from silicast.workload.graphs.graph import Graph
from silicast.workload.spaces.space import ArchitectureSpace, ImageNetwork

EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
"""From which node of a cell to which, in the order of the text."""
CELLS, WIDTHS, SIDE, CLASSES = 5, (16, 32, 64), 32, 10
"""Cells of a stage; channels of the three stages; CIFAR-10's images and classes."""
_EDGE = re.compile(r"([a-z_0-9]+)~(\d+)")


@final
class NasBench201(ArchitectureSpace):
    """Cells of four nodes; each edge is nothing, the identity, a convolution or a mean."""

    name: ClassVar[str] = "nasbench201"
    options: ClassVar[tuple[str, ...]] = (
        "none",
        "skip_connect",
        "nor_conv_1x1",
        "nor_conv_3x3",
        "avg_pool_3x3",
    )
    positions: ClassVar[int] = len(EDGES)
    pairs: ClassVar[bool] = True
    pulls: ClassVar[tuple[float, float]] = (0.1, 0.4)
    kernels: ClassVar[tuple[str, ...]] = (
        "conv3x3",
        "conv1x1",
        "pool3x3",
        "conv3x3 with dead ones",
        "conv1x1 with dead ones",
        "pool3x3 with dead ones",
        "network",
    )
    example: ClassVar[str] = (
        "nasbench201:|nor_conv_3x3~0|+|none~0|skip_connect~1|+|nor_conv_1x1~0|none~1|none~2|"
    )

    def choices(self, text: str) -> tuple[int, ...]:
        edges = _EDGE.findall(text)
        if len(edges) != len(EDGES):
            raise self.error(f"expected {len(EDGES)} edges such as nor_conv_3x3~0", text)
        for (option, source), (start, end) in zip(edges, EDGES, strict=True):
            if option not in self.options:
                raise self.error(f"expected one of {', '.join(self.options)}", option)
            if int(source) != start:
                raise self.error(f"an edge to node {end} starts at node {start}", text)
        indices = tuple(self.options.index(option) for option, _ in edges)
        if self.text(indices) != text.strip():
            raise self.error("expected |op~0|+|op~0|op~1|+|op~0|op~1|op~2|", text)
        return indices

    def text(self, choices: Sequence[int]) -> str:
        words = [
            f"{self.options[choice]}~{start}"
            for choice, (start, _) in zip(choices, EDGES, strict=True)
        ]
        return f"|{words[0]}|+|{words[1]}|{words[2]}|+|{words[3]}|{words[4]}|{words[5]}|"

    def views(self, choices: I64) -> tuple[I64, ...]:
        return choices, choices * alive(choices)

    def kernel_work(self, choices: I64) -> F64:
        live, columns = choices * alive(choices), []
        for view in (live, choices):
            columns += [(view == option).sum(axis=1) for option in (3, 2, 4)]
        return np.stack([*columns, np.ones(len(choices))], axis=1).astype(np.float64)

    def multiplications(self, choices: I64) -> F64:
        live = choices * alive(choices)
        taps = ((live == 2) + 9 * (live == 3)).sum(axis=1)
        of_stages = (width**2 * (SIDE // 2**stage) ** 2 for stage, width in enumerate(WIDTHS))
        total: F64 = taps * float(CELLS * sum(of_stages))
        return total

    def graph(self, choices: Sequence[int], batch: int = 1) -> Graph:
        row = np.array([choices], dtype=np.int64)
        edges = [int(edge) for edge in (row * alive(row))[0]]
        net, size = ImageNetwork(batch), SIDE
        last = net.convolution((), (3, WIDTHS[0]), size, 3)
        for stage, width in enumerate(WIDTHS):
            if stage:
                last = _reduction(net, last, WIDTHS[stage - 1], size)
                size //= 2
            for _ in range(CELLS):
                last = _cell(net, last, edges, width, size)
        pooled = net.pool(last, WIDTHS[-1], size, size)
        net.linear(pooled, WIDTHS[-1], CLASSES)
        return net.graph(f"{self.name}:{self.text(choices)}")


def alive(choices: I64) -> I64:
    """1 for each edge that lies on a way from a cell's input to its output, (n, 6)."""
    there = choices != 0
    forward, backward = [np.ones(len(choices), dtype=bool)], {3: np.ones(len(choices), dtype=bool)}
    for node in (1, 2, 3):
        ways = [there[:, i] & forward[s] for i, (s, e) in enumerate(EDGES) if e == node]
        forward.append(np.logical_or.reduce(ways))
    for node in (2, 1, 0):
        ways = [there[:, i] & backward[e] for i, (s, e) in enumerate(EDGES) if s == node]
        backward[node] = np.logical_or.reduce(ways)
    live = [there[:, i] & forward[s] & backward[e] for i, (s, e) in enumerate(EDGES)]
    return np.stack(live, axis=1).astype(np.int64)


def _reduction(net: ImageNetwork, last: str, width: int, size: int) -> str:
    """A residual block that halves the image and doubles the channels."""
    inner = net.convolution(last, (width, 2 * width), size, 3, stride=2)
    inner = net.convolution(inner, (2 * width, 2 * width), size // 2, 3)
    pooled = net.pool(last, width, size, 2)
    short = net.convolution(pooled, (width, 2 * width), size // 2, 1)
    return net.add((inner, short), 2 * width, size // 2)


def _cell(net: ImageNetwork, last: str, edges: Sequence[int], width: int, size: int) -> str:
    """One cell; of one whose output nothing reaches, its input goes on."""
    results = {0: last}
    for node in (1, 2, 3):
        sums = []
        for option, (start, end) in zip(edges, EDGES, strict=True):
            if end != node or not option:
                continue
            source = results[start]
            if option in (2, 3):
                source = net.convolution(source, (width, width), size, 1 if option == 2 else 3)
            elif option == 4:
                source = net.pool(source, width, size, 3)
            sums.append(source)
        if sums:
            results[node] = net.add(tuple(sums), width, size)
    return results.get(3, last)
