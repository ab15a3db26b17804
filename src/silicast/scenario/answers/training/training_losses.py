"""What a loss needs beside the model that it trains: pairs of sequences, and a frozen model."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from silicast.core.errors import SilicastError
from silicast.distributed.pipeline.chunk import Rank
from silicast.distributed.ranks.adapters import WIDE
from silicast.scenario.decode import Scenario
from silicast.scenario.resolve import find_any_model
from silicast.scenario.workloads import TrainingWorkload
from silicast.workload.models.counting import parameters

PAIRED = ("dpo", "reward")
"""Tasks whose batches are of pairs: a chosen and a rejected sequence each."""
WITH_ADAPTERS = ("lora", "dpo", "reward", "distillation")
"""Tasks that train adapters where ``lora`` states them."""


def in_sequences(work: TrainingWorkload) -> TrainingWorkload:
    """The workload with batches of sequences: a pair is two, which one pass takes together."""
    if work.task not in PAIRED:
        return work
    return msgspec.structs.replace(
        work, micro_batch=2 * work.micro_batch, global_batch=2 * work.global_batch
    )


def reference_of(scenario: Scenario, work: TrainingWorkload, rank: Rank) -> Rank | None:
    """What ranks run of a frozen model before each step; None = there is none.

    Raises:
        SilicastError: a reference where none belongs, or a teacher that is not named.
    """
    stated = work.reference
    if work.task == "distillation":
        if not isinstance(stated, str):
            raise SilicastError(
                "names no teacher", field="workload.reference", hint="the name of a model"
            )
    elif work.task != "dpo":
        if stated not in (None, False):
            raise SilicastError(
                f"task {work.task} has no reference",
                field="workload.reference",
                hint='leave it out, or task "dpo" or "distillation"',
            )
        return None
    if stated is False:
        return None
    if not isinstance(stated, str):
        return rank
    model = find_any_model(stated, scenario.folder, "workload.reference")
    return replace(rank, deployment=replace(rank.deployment, model=model))


def held_bits(rank: Rank, reference: Rank | None) -> float:
    """Bits that ranks hold of the frozen model for each weight of the trained one: none where
    adapters stand beside the same one.
    """
    if reference is None:
        return 0.0
    mine, other = rank.deployment.model, reference.deployment.model
    if mine == other:
        return 0.0 if rank.adapters is not None else WIDE
    return WIDE * parameters(other, mtp=False) / parameters(mine, mtp=False)
