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


def mixed_step(kept: DistributedStep, again: DistributedStep, share: float) -> DistributedStep:
    """A step of which ``share`` of the layers run again.

    Args:
        kept: nothing runs again; again: all layers do.
    """
    run = again.run
    if run is not None and kept.run is not None:
        each = (1.0 - share) * kept.run.durations.each + share * run.durations.each
        durations = Durations(each.astype(run.durations.each.dtype))
        run = pipeline_times(run.order, durations, run.transfer)
    return replace(
        again, step=_mixed(kept.step, again.step, share), run=run, kept=kept.passes,
        again_share=share,
    )  # fmt: skip


def mixed_memory(kept: RankMemory, again: RankMemory, share: float) -> RankMemory:
    """The same of memory."""
    found = {}
    for each in fields(RankMemory):
        low, high = getattr(again, each.name), getattr(kept, each.name)
        found[each.name] = np.ceil(high + (low - high) * share).astype(np.int64)
    return RankMemory(**found)


def least_share(kept: RankMemory, again: RankMemory, usable_bytes: float, layers: int) -> float:
    """The least share of a stage's layers with which all ranks fit; above 1 = they never do.

    Args:
        layers: of a stage: the share is a multiple of one over these.
    """
    more = kept.total - usable_bytes
    saved = np.maximum((kept.total - again.total).astype(np.float64), 1.0)
    share = float((np.maximum(more, 0.0) / saved).max())
    return float(np.ceil(share * layers - 1e-9)) / layers


def _mixed(kept: Prediction, again: Prediction, share: float) -> Prediction:
    part = _part(kept.part, again.part, share)
    terms = [
        ((1.0 - share) * kept.part.exposed_ps, kept.error),
        (share * again.part.exposed_ps, again.error),
    ]  # fmt: skip
    return replace(
        again, part=part, error=ErrorFactors.of_sum(terms), warnings=said_by(again, kept),
        narrowed=again.narrowed,
    )  # fmt: skip


def _part(kept: Part | None, again: Part | None, share: float) -> Part:
    """Parts of one name in proportion; what only one has counts by its share."""
    shown = again or kept
    assert shown is not None
    children = _children(kept, again, share)
    if children:
        return replace(Part.group(shown.name, children, count=shown.count), bound_by=shown.bound_by)

    def of(name: str) -> int:
        low = getattr(kept, name) if kept is not None else 0
        high = getattr(again, name) if again is not None else 0
        return round((1.0 - share) * low + share * high)

    return replace(
        shown, exposed_ps=of("exposed_ps"), hidden_ps=of("hidden_ps"),
        bound_ps=min(of("bound_ps"), of("exposed_ps")), children=(),
    )  # fmt: skip


def _children(kept: Part | None, again: Part | None, share: float) -> Sequence[Part]:
    """Parts of both, those of one name in their order."""
    own, other = _numbered(kept), _numbered(again)
    if bool(own) != bool(other):  # only one is told apart: the whole in proportion
        return ()
    return [_part(own.get(key), other.get(key), share) for key in {**own, **other}]


def _numbered(part: Part | None) -> dict[tuple[str, int], Part]:
    found: dict[tuple[str, int], Part] = {}
    for each in part.children if part is not None else ():
        number = sum(name == each.name for name, _ in found)
        found[each.name, number] = each
    return found
