"""The KV cache of one group of ranks as its engine counts it: blocks, held and free."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np

from silicast.composition.passes.deployment import Deployment
from silicast.core.numerics import I64
from silicast.workload.models.counting import kv_bytes_per_token, kv_cache_bytes

LONGEST = 1 << 24
"""Tokens of the longest sequence that a layout describes."""


@final
@dataclass(frozen=True)
class KvLayout:
    """Blocks that a sequence takes as it grows.

    Where every layer keeps every token this is tokens over block size, rounded up. A block is what
    so many tokens take in all layers; windows and recurrent states count in the same unit.

    Attributes:
        block_tokens: tokens of a block.
        block_bytes: of one block on the fullest rank.
        lengths, blocks: knots of a function that is straight between them; the latter are
            thousandths of a block.
    """

    block_tokens: int
    block_bytes: int
    lengths: I64
    blocks: I64

    @staticmethod
    @lru_cache(maxsize=256)
    def from_deployment(deployment: Deployment) -> KvLayout:
        """The layout of a deployment's cache."""
        model, plan, policy = deployment.model, deployment.plan, deployment.policy
        size = max(1, deployment.engine.memory.page_tokens)
        token = kv_bytes_per_token(model, plan, deployment.precision, policy=policy)

        def bytes_of(length: int) -> int:
            return kv_cache_bytes(model, plan, deployment.precision, [length], policy=policy)

        state = bytes_of(size)
        unit = token * size if token else state
        knots = {length: bytes_of(length) for length in (0, size, LONGEST)}
        open_spans = [(size, LONGEST)]
        while open_spans:  # halved until the middle of a span lies on its line
            first, last = open_spans.pop()
            middle = (first + last) // 2
            result = bytes_of(middle)
            line = knots[first] + (knots[last] - knots[first]) * (middle - first) // (last - first)
            if abs(result - line) > max(unit // 100, 1) and last - first > size:
                knots[middle] = result
                open_spans += [(first, middle), (middle, last)]
        if not unit:  # nothing is kept: of a model that generates nothing
            return KvLayout(size, 1, np.array([0, size, LONGEST]), np.zeros(3, dtype=np.int64))
        lengths = sorted(knots)
        if all(knots[each] == token * each for each in lengths):
            lengths = [0, LONGEST]
        blocks = [knots[each] * 1000 // unit for each in lengths]
        return KvLayout(size, unit, np.array(lengths), np.array(blocks))

    @staticmethod
    def plain(block_tokens: int = 16) -> KvLayout:
        """Every token is kept, in blocks of so many."""
        ends = np.array([0, LONGEST])
        return KvLayout(block_tokens, block_tokens, ends, ends * 1000 // block_tokens)

    def of_tokens(self, tokens: I64) -> I64:
        """Blocks of sequences of so many cached tokens, shape (n,).

        >>> KvLayout.plain(16).of_tokens(np.array([0, 1, 16, 17])).tolist()
        [0, 1, 1, 2]
        """
        whole = -(-tokens // self.block_tokens)
        if len(self.lengths) == 2:
            return whole
        result = np.interp(whole * self.block_tokens, self.lengths, self.blocks)
        blocks: I64 = -(-np.rint(result).astype(np.int64) // 1000)
        return blocks

    def most_of(self, more: int) -> float:
        """Blocks that a sequence takes at most for so many more tokens, beyond those that hold what
        it has.

        >>> KvLayout.plain(16).most_of(17)
        2
        """
        if len(self.lengths) == 2:
            return -(-more // self.block_tokens)
        return math.inf

    def of_one(self, tokens: int) -> int:
        """Blocks of one sequence."""
        if len(self.lengths) == 2:
            return -(-tokens // self.block_tokens)
        return int(self.of_tokens(np.array([tokens]))[0])
