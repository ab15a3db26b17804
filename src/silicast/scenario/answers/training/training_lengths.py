"""A workload whose sequences have a distribution of lengths, as passes that are priced."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, final

import msgspec

from silicast.core.errors import SilicastError
from silicast.distributed.pipeline.chunk import Rank
from silicast.distributed.ranks.adapters import WIDE
from silicast.distributed.ranks.plan import TrainingPlan
from silicast.distributed.step.unequal_lengths import Rows, UnequalLengths, packed, padded
from silicast.scenario.answers.serving.serving_checks import check_length
from silicast.scenario.decode import Scenario
from silicast.scenario.resolve import find_any_model
from silicast.scenario.workloads import TrainingWorkload
from silicast.serving.traffic.lengths import INPUTS, lengths, stream
from silicast.workload.models.counting import (
    attention_flops,
    forward_flops,
    head_flops_per_row,
    parameters,
)
from silicast.workload.models.model import ModelConfig

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
    reference = work.reference
    if work.task == "distillation":
        if not isinstance(reference, str):
            raise SilicastError(
                "names no teacher", field="workload.reference", hint="the name of a model"
            )
    elif work.task != "dpo":
        if reference not in (None, False):
            raise SilicastError(
                f"task {work.task} has no reference",
                field="workload.reference",
                hint='leave it out, or task "dpo" or "distillation"',
            )
        return None
    if reference is False:
        return None
    if not isinstance(reference, str):
        model = replace(rank.deployment.model, predicts=0)
        return replace(rank, deployment=replace(rank.deployment, model=model))
    model = find_any_model(reference, scenario.folder, "workload.reference")
    return replace(rank, deployment=replace(rank.deployment, model=model))


def held_bits(rank: Rank, reference: Rank | None) -> float:
    """Bits that ranks hold of the frozen model for each weight of the trained one: none where
    adapters stand beside the same one.
    """
    if reference is None:
        return 0.0
    mine, other = rank.deployment.model, reference.deployment.model
    if replace(mine, predicts=0) == other:
        return 0.0 if rank.adapters is not None else WIDE
    return WIDE * parameters(other, mtp=False) / parameters(mine, mtp=False)


DRAWN = 4096
"""Documents that are drawn."""


@final
@dataclass(frozen=True)
class LengthsOfRun:
    """Rows that a workload's documents make.

    Attributes:
        documents: that a pass has for each row of the workload, all of ``seq_len`` tokens.
        row: tokens of a row at most, which memory has to hold.
        micro_batch: rows of a pass.
    """

    rows: Rows
    seq_len: int
    documents: int
    row: int
    micro_batch: int

    def unequal(self, model: ModelConfig, plan: TrainingPlan, accumulation: int) -> UnequalLengths:
        """What they make of a step: ranks wait for each other at each layer's weights where those
        are shared (ZeRO 3), else once a step.
        """
        pairs = [(self.seq_len, self.seq_len)]
        mixing = attention_flops(model.encoder or model, pairs)
        whole = forward_flops(model, pairs) + (self.seq_len - 1) * head_flops_per_row(model)
        waits_after = self.micro_batch * (1 if plan.zero == 3 else accumulation)
        return UnequalLengths.from_rows(
            self.rows, self.seq_len, self.documents, mixing / whole, plan.dp, waits_after
        )


def with_lengths(
    work: TrainingWorkload, seed: int, multiple: int
) -> tuple[TrainingWorkload, LengthsOfRun | None]:
    """The workload with documents of one length, and what its own are; None = they are alike.

    Args:
        multiple: of a length: context ranks hold two pieces of each.

    Raises:
        SilicastError: a distribution that is wrong, or packing without one.
    """
    if work.lengths is None:
        if work.packing is not None:
            raise SilicastError(
                "means nothing without workload.lengths",
                field="workload.packing",
                hint="state lengths, or leave it out: all sequences have seq_len tokens",
            )
        return work, None
    check_length(work.lengths, "workload.lengths")
    drawn = _drawn(work.lengths, seed)
    row, micro = work.seq_len, work.micro_batch
    if work.packing == "padded":
        rows, documents = padded(drawn, row, micro), 1
        length = math.ceil(float(rows.computed.mean()))
    else:
        rows = packed(drawn, row)
        documents = max(math.ceil(row / rows.document - 1e-9), 1)
        length = row // documents
    length = max(length // multiple * multiple, multiple)
    changed = msgspec.structs.replace(
        work,
        seq_len=length,
        micro_batch=micro * documents,
        global_batch=work.global_batch * documents,
    )
    return changed, LengthsOfRun(rows, length, documents, row, micro)


def _drawn(length: Any, seed: int) -> Any:
    random = stream(seed, INPUTS)
    if isinstance(length, int):
        return lengths("fixed", DRAWN, {"value": length}, random)
    numbers = {
        name: value
        for name in length.__struct_fields__
        if name != "kind" and (value := getattr(length, name)) is not None
    }
    return lengths(length.kind, DRAWN, numbers, random)
