"""FBNet (Wu and others, CVPR 2019) on CIFAR's images: 22 blocks, each one of nine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import ClassVar, final

import numpy as np

from silicast.core.numerics import F64, I64
from silicast.workload.graphs.graph import Graph
from silicast.workload.spaces.space import ArchitectureSpace, ImageNetwork

BLOCKS = ((3, 1, 1), (3, 1, 2), (3, 3, 1), (3, 6, 1), (5, 1, 1), (5, 1, 2), (5, 3, 1), (5, 6, 1))
"""Kernel, expansion and groups of the pointwise convolutions of each block but the last, "skip"."""
STAGES = ((16, 1, 1), (24, 4, 1), (32, 4, 2), (64, 4, 2), (112, 4, 1), (184, 4, 2), (352, 1, 1))
"""Channels, blocks and first stride of each stage, of the space for images of 32 x 32."""
STEM, HEAD, SIDE, CLASSES = 16, 1504, 32, 100


@final
class FBNet(ArchitectureSpace):
    """Inverted bottlenecks in a row: a pointwise, a depthwise and a pointwise convolution each."""

    name: ClassVar[str] = "fbnet"
    options: ClassVar[tuple[str, ...]] = (
        "skip",
        *(f"k{k}_e{e}" + (f"_g{g}" if g > 1 else "") for k, e, g in BLOCKS),
    )
    positions: ClassVar[int] = sum(count for _, count, _ in STAGES)
    pairs: ClassVar[bool] = False
    kernels: ClassVar[tuple[str, ...]] = (
        "pointwise",
        "depthwise",
        "values",
        "weights",
        "sums",
        "blocks",
        "network",
    )
    pulls: ClassVar[tuple[float, float]] = (0.3, 0.3)
    example: ClassVar[str] = "fbnet:" + " ".join(["3"] * 22)

    def choices(self, text: str) -> tuple[int, ...]:
        """Published numbers 0 to 8, 8 the skip, or names of blocks, separated by spaces."""
        words = re.split(r"[\s,]+", text.strip())
        if len(words) != self.positions:
            raise self.error(f"expected {self.positions} blocks, not {len(words)}", text)
        return tuple(self._block(word, text) for word in words)

    def _block(self, word: str, text: str) -> int:
        if word in self.options:
            return self.options.index(word)
        if not word.isdecimal() or int(word) > len(BLOCKS):
            names = ", ".join(self.options)
            raise self.error(f"expected 0 to {len(BLOCKS)}, or one of {names}", text)
        return (int(word) + 1) % len(self.options)

    def text(self, choices: Sequence[int]) -> str:
        return " ".join(str((choice - 1) % len(self.options)) for choice in choices)

    def views(self, choices: I64) -> tuple[I64, ...]:
        return (choices,)

    def kernel_work(self, choices: I64) -> F64:
        tables = self._work
        work = tables[np.arange(self.positions)[None, :], choices].sum(axis=1)
        return np.concatenate([work, np.ones((len(choices), 1))], axis=1)

    def multiplications(self, choices: I64) -> F64:
        work: F64 = self.kernel_work(choices)[:, :2].sum(axis=1)
        return work

    @cached_property
    def _work(self) -> F64:
        """Multiplications of both kinds, numbers that convolutions read and write, weights, sums
        of a block and its input, and blocks that are no skip, (22, 9, 6).
        """
        table = np.zeros((self.positions, len(self.options), 6))
        for at, (before, after, size, stride) in enumerate(_block_sizes()):
            out = size // stride
            ends = before * size**2 + after * out**2
            same = stride == 1 and before == after
            for option, (kernel, expansion, groups) in enumerate(BLOCKS, 1):
                inner = before * expansion
                pointwise = ends * inner / groups
                values = ends + 2 * inner * (size**2 + out**2)
                weights = inner * ((before + after) / groups + kernel**2)
                depthwise = inner * kernel**2 * out**2
                table[at, option] = (pointwise, depthwise, values, weights, same, 1)
            if not same:
                table[at, 0] = (before * after * out**2, 0, ends, before * after, 0, 1)
        return table

    def graph(self, choices: Sequence[int], batch: int = 1) -> Graph:
        net = ImageNetwork(batch)
        last, size = net.convolution((), (3, STEM), SIDE, 3), SIDE
        for choice, (before, after, size, stride) in zip(choices, _block_sizes(), strict=True):
            same = stride == 1 and before == after
            if choice == 0:
                if not same:
                    last = net.convolution(last, (before, after), size, 1, stride)
                continue
            kernel, expansion, groups = BLOCKS[choice - 1]
            inner = before * expansion
            wide = net.convolution(last, (before, inner), size, 1, groups=groups)
            deep = net.convolution(wide, (inner, inner), size, kernel, stride, groups=inner)
            narrow = net.convolution(deep, (inner, after), size // stride, 1, groups=groups)
            last = net.add((narrow, last), after, size) if same else narrow
        head = net.convolution(last, (STAGES[-1][0], HEAD), size, 1)
        net.linear(net.pool(head, HEAD, size, size), HEAD, CLASSES)
        return net.graph(f"{self.name}:{self.text(choices)}")


def _block_sizes() -> Iterator[tuple[int, int, int, int]]:
    """Channels before and after, image and stride of each block."""
    before, size = STEM, SIDE
    for after, count, first in STAGES:
        for index in range(count):
            stride = first if index == 0 else 1
            yield before, after, size, stride
            before, size = after, size // stride
