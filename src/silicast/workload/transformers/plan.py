"""How a model is spread over devices: the degrees of each kind of parallelism."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, final

ExtraLayers = Literal["before_last", "first"]
"""Which pipeline stages hold one layer more where stages do not divide the layers."""


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """Parallel degrees that a user states (all >= 1).

    tp tensor, pp pipeline, dp data, ep expert, cp context, attention_dp data-parallel attention.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    cp: int = 1
    attention_dp: int = 1

    @property
    def gpus(self) -> int:
        """Devices of one inference deployment: tp x pp x attention_dp."""
        return self.tp * self.pp * self.attention_dp


@final
@dataclass(frozen=True, slots=True)
class ParallelPolicy:
    """What an engine decides where a plan leaves it open.

    Attributes:
        gathers_dense: with attention_dp, dense layers are cut over all tp x attention_dp ranks,
            whose groups gather their tokens for them; else each group runs its own copy.
        extra_layers: the pipeline stages that hold one layer more where stages do not divide the
            layers.
        all_to_all: with attention_dp and whole experts on every rank (tp = 1, ep = attention_dp),
            tokens are dispatched to their experts' ranks and combined, instead of gathered and
            scattered by collectives.
        mixes_prefill: a step may hold sequences in prefill and in decode; else prefill goes first.
        captured: numbers of tokens for which graphs were captured, ascending; () = any.
        chunk_tokens: most new tokens of one step; 0 = no limit.
        expert_multiples: whole multiples to which the width of routed experts and the hidden size
            are padded in memory.
        host_layers: first layers whose weights and cache are in the host's memory.
        host_expert_layers: first layers whose routed experts are.
        host_table: so is a table of embeddings of its own.
    """

    gathers_dense: bool = False
    extra_layers: ExtraLayers = "before_last"
    all_to_all: bool = False
    mixes_prefill: bool = True
    captured: tuple[int, ...] = ()
    chunk_tokens: int = 0
    expert_multiples: tuple[int, int] = (1, 1)
    host_layers: int = 0
    host_expert_layers: int = 0
    host_table: bool = False

    @property
    def without_host(self) -> ParallelPolicy:
        """The same with everything on the device."""
        return replace(self, host_layers=0, host_expert_layers=0, host_table=False)

    def on_device(self, first: int, last: int) -> range:
        """Of layers first..last-1, those that are not in the host's memory."""
        return range(min(max(first, self.host_layers), last), last)

    def dispatches(self, plan: Plan) -> bool:
        """Whether each token goes to the ranks of its experts alone."""
        whole = plan.tp == 1 and plan.ep == plan.attention_dp
        return self.all_to_all and whole and plan.ep > 1

    def stages(self, layers: int, plan: Plan) -> tuple[tuple[int, int], ...]:
        """First and one-past-last of ``layers`` layers for each pipeline stage."""
        return stage_bounds(layers, plan.pp, self.extra_layers)


def stage_bounds(
    layers: int, stages: int, extra: ExtraLayers = "before_last"
) -> tuple[tuple[int, int], ...]:
    """First and one-past-last layer of each pipeline stage.

    Every stage gets layers // stages; what is left over goes one each to the stages before the
    last, from its neighbour backwards, because the last also holds the head (vLLM's default rule),
    or to the first stages (SGLang, TensorRT-LLM).

    >>> stage_bounds(10, 4), stage_bounds(10, 4, "first")
    (((0, 2), (2, 5), (5, 8), (8, 10)), ((0, 3), (3, 6), (6, 8), (8, 10)))

    Raises:
        ValueError: more stages than layers.
    """
    if not 1 <= stages <= layers:
        raise ValueError(f"{stages} stages of {layers} layers")
    sizes = [layers // stages] * stages
    for index in range(layers % stages):
        sizes[index if extra == "first" else -2 - index] += 1
    bounds: list[tuple[int, int]] = []
    first = 0
    for size in sizes:
        bounds.append((first, first + size))
        first += size
    return tuple(bounds)
