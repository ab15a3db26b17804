"""Steps that run some layers of each stage again, and keep what the others computed.

Libraries recompute so many layers of a stage as memory asks for (Megatron-LM's
``recompute_method = block``). Time and memory are between those of none and of all layers, in
proportion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from silicast.core.prediction import ErrorFactors, Part, Prediction, said_by
from silicast.distributed.memory.memory import RankMemory
from silicast.distributed.pipeline.pipeline import Durations, pipeline_times
from silicast.distributed.step.step import DistributedStep


def mixed_step(
    distributed_step: DistributedStep, again: DistributedStep, share: float
) -> DistributedStep:
    """A step of which ``share`` of the layers run again.

    Args:
        distributed_step: nothing runs again; again: all layers do.
    """
    run = again.run
    if run is not None and distributed_step.run is not None:
        each = (1.0 - share) * distributed_step.run.durations.each + share * run.durations.each
        durations = Durations(each.astype(run.durations.each.dtype))
        run = pipeline_times(run.order, durations, run.transfer)
    return replace(
        again,
        step=_mixed(distributed_step.step, again.step, share),
        run=run,
        kept=distributed_step.passes,
        again_share=share,
    )


def mixed_memory(rank_memory: RankMemory, again: RankMemory, share: float) -> RankMemory:
    """The same of memory."""
    table = {}
    for each in fields(RankMemory):
        low, high = getattr(again, each.name), getattr(rank_memory, each.name)
        table[each.name] = np.ceil(high + (low - high) * share).astype(np.int64)
    return RankMemory(**table)


def least_share(
    rank_memory: RankMemory, again: RankMemory, usable_bytes: float, layers: int
) -> float:
    """The least share of a stage's layers with which all ranks fit; above 1 = they never do.

    Args:
        layers: of a stage: the share is a multiple of one over these.
    """
    more = rank_memory.total - usable_bytes
    saved = np.maximum((rank_memory.total - again.total).astype(np.float64), 1.0)
    share = float((np.maximum(more, 0.0) / saved).max())
    return float(np.ceil(share * layers - 1e-9)) / layers


def _mixed(prediction: Prediction, again: Prediction, share: float) -> Prediction:
    part = _part(prediction.part, again.part, share)
    terms = [
        ((1.0 - share) * prediction.part.exposed_ps, prediction.error),
        (share * again.part.exposed_ps, again.error),
    ]
    return replace(
        again,
        part=part,
        error=ErrorFactors.of_sum(terms),
        warnings=said_by(again, prediction),
        narrowed=again.narrowed,
    )


def _part(part: Part | None, again: Part | None, share: float) -> Part:
    """Parts of one name in proportion; what only one has counts by its share."""
    shown = again or part
    assert shown is not None
    children = _children(part, again, share)
    if children:
        return Part.group(shown.name, children, count=shown.count).changed(bound_by=shown.bound_by)

    def blended(name: str) -> int:
        low = getattr(part, name) if part is not None else 0
        high = getattr(again, name) if again is not None else 0
        return round((1.0 - share) * low + share * high)

    return shown.changed(
        exposed_ps=blended("exposed_ps"),
        hidden_ps=blended("hidden_ps"),
        bound_ps=min(blended("bound_ps"), blended("exposed_ps")),
        children=(),
    )


def _children(part: Part | None, again: Part | None, share: float) -> Sequence[Part]:
    """Parts of both, those of one name in their order."""
    numbered, other = _numbered(part), _numbered(again)
    if bool(numbered) != bool(other):  # only one is told apart: the whole in proportion
        return ()
    return [_part(numbered.get(key), other.get(key), share) for key in {**numbered, **other}]


def _numbered(part: Part | None) -> dict[tuple[str, int], Part]:
    numbered: dict[tuple[str, int], Part] = {}
    for each in part.children if part is not None else ():
        number = sum(name == each.name for name, _ in numbered)
        numbered[each.name, number] = each
    return numbered
