"""Experts that take a limited number of tokens: what is dropped, what is padded.

    capacity = ceil(factor x tokens x topk / experts)        of each expert, on each rank's tokens

What an expert's tokens exceed it by is dropped (GShard, arXiv 2006.16668; Switch, arXiv
2101.03961); where experts are padded each computes, sends and keeps its whole capacity, whatever
tokens chose. Dropped tokens skip their expert; they still count as trained.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.kernels.experts.moe import distribution_of
from silicast.kernels.experts.routing import busiest_loads, histogram_name
from silicast.workload.graphs.graph import Node
from silicast.workload.graphs.op import Op
from silicast.workload.models.model import MoE


@final
@dataclass(frozen=True, slots=True)
class Capacity:
    """What a limit makes of a layer's routed tokens.

    Attributes:
        tokens_each: that an expert takes at most of one rank's pass.
        dropped: share of what tokens chose that is dropped.
        rows: rows that experts process, over what tokens chose: kept ones, or padded capacity.
        routing: how what is processed is spread over experts.

    >>> moe = MoE(experts=8, topk=2, intermediate=64)
    >>> capacity = Capacity.from_routing(moe, "balanced", tokens=1024, ep=4, factor=0.5)
    >>> capacity.tokens_each, capacity.dropped, capacity.rows
    (128, 0.5, 0.5)
    >>> Capacity.from_routing(moe, "balanced", tokens=1024, ep=4, factor=1.25, padded=True).rows
    1.25
    """

    tokens_each: int
    dropped: float
    rows: float
    routing: str

    @staticmethod
    def from_routing(
        moe: MoE, routing: str, tokens: int, ep: int, factor: float, *, padded: bool = False
    ) -> Capacity:
        """Of a layer on each of ``ep`` ranks.

        Args:
            tokens: of one rank's pass, before their experts are chosen.

        Raises:
            SilicastError: a factor of 0 or less, or a routing that does not fit the experts.
        """
        if not 0.0 < factor < math.inf:
            raise SilicastError(
                f"is {factor:g}", field="capacity_factor", hint="above 0, usually 1 to 2"
            )
        count, chosen = moe.held, tokens * moe.topk
        most = math.ceil(factor * chosen / count)
        loads = _of_experts(routing, tokens, count, moe.topk)
        served = np.minimum(loads, most)
        dropped = max(1.0 - float(served.sum()) / float(loads.sum()), 0.0)
        if padded:
            return Capacity(most, dropped, most * count / chosen, "balanced")
        if not (served < loads).any():
            return Capacity(most, 0.0, 1.0, routing)
        if served.max() - served.min() <= 1.0:
            return Capacity(most, dropped, 1.0 - dropped, "balanced")
        if not routing.startswith("histogram:"):
            served = _dealt(served, ep)
        return Capacity(most, dropped, 1.0 - dropped, histogram_name(served.tolist()))

    def tokens(self, count: int) -> int:
        """Tokens with as many rows as ``count`` of them have under the limit."""
        return max(round(count * self.rows), 1)

    def limited(self, nodes: Iterable[Node]) -> Iterator[Node]:
        """The nodes of a layer with its routed experts under the limit."""
        for node in nodes:
            yield replace(node, op=self._of(node.op)) if node.op.family == "moe" else node

    def _of(self, op: Op) -> Op:
        distribution = distribution_of(op.variant)
        flags = tuple(each for each in op.variant.flags if each[0] != distribution)
        flags = tuple(sorted((*flags, (self.routing, True))))
        dims = tuple(
            (n, self.tokens(v) if n == "tokens" and isinstance(v, int) else v) for n, v in op.dims
        )
        return Op(op.family, dims, replace(op.variant, flags=flags))


def _of_experts(routing: str, tokens: int, experts: int, topk: int) -> F64:
    """Tokens of each expert, shape (experts,), the fewest first; of a histogram in its order."""
    one = (np.array([value]) for value in (tokens, experts, topk, 1))
    loads = busiest_loads(routing, *one)
    each, weight = loads.tokens_each[:, 0], loads.weight[:, 0]
    if routing.startswith("histogram:"):
        return _filled(each, tokens, tokens * topk)
    order = np.argsort(each, kind="stable")
    ends = np.concatenate(([0.0], np.cumsum(weight[order])))
    before = np.concatenate(([0.0], np.cumsum(each[order] * weight[order])))
    # a point may stand for parts of experts: each gets what lies between its ends
    diff: F64 = np.diff(np.interp(np.arange(experts + 1) * (ends[-1] / experts), ends, before))
    return _filled(diff, tokens, tokens * topk)


def _filled(loads: F64, most: int, total: int) -> F64:
    """Loads in proportion that add up to ``total``, none above ``most``: a token chooses an expert
    once.
    """
    full = np.zeros(len(loads), dtype=bool)
    result = loads
    for _ in range(len(loads)):
        left, open_ = total - most * int(full.sum()), float(loads[~full].sum())
        if open_ <= 0.0:
            break
        result = np.where(full, float(most), loads * (left / open_))
        over = (result > most) & ~full
        if not over.any():
            break
        full |= over
    return np.minimum(result, float(most))


def _dealt(sizes: F64, ranks: int) -> F64:
    """Experts dealt out over ranks in turns, in the order in which ranks hold them."""
    return np.concatenate([sizes[rank::ranks] for rank in range(ranks)])
