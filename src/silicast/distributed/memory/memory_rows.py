"""Pipeline ranks of any number of plans as columns: what memory of training is counted of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.errors import SilicastError
from silicast.core.numerics import I64
from silicast.distributed.pipeline.chunk_bounds import model_bounds
from silicast.distributed.ranks.plan import TrainingPlan
from silicast.workload.models.model import ModelConfig

Bools = NDArray[np.bool_]
Bounds = Sequence[tuple[int, int]]


@final
@dataclass(frozen=True, slots=True)
class PipelineRanks:
    """Pipeline ranks of any number of plans; arrays of shape (rows,), but for ``layers``.

    Attributes:
        tp, cp, ep, etp, zero: degrees and stage of ZeRO, as in the plan.
        sharers, copies: ranks that share the states of dense weights, and those of experts.
        sequence_parallel: tensor ranks also share tokens between their products.
        gathers_keys: context ranks gather all keys and values, instead of passing them around.
        pp, chunks: pipeline ranks, and chunks of layers that each of them holds.
        seq_len, micro_batch: of one pass.
        layers: of each kind of the model's layers, shape (rows, kinds).
        in_flight: passes through one of its chunks that a rank keeps at most.
        first, last: whether the rank holds the embedding, the head.
    """

    tp: I64
    cp: I64
    ep: I64
    etp: I64
    zero: I64
    sharers: I64
    copies: I64
    sequence_parallel: Bools
    gathers_keys: Bools
    pp: I64
    chunks: I64
    seq_len: I64
    micro_batch: I64
    layers: I64
    in_flight: I64
    first: Bools
    last: Bools

    @staticmethod
    def from_model(
        model: ModelConfig,
        plan: TrainingPlan,
        seq_len: int,
        micro_batch: int,
        micro_batches: int = 1 << 30,
        *,
        chunks: Sequence[Bounds] = (),
        in_flight: Sequence[int] = (),
    ) -> PipelineRanks:
        """The ranks of one plan.

        Args:
            chunks: first and one-past-last layer of the chunks of each pipeline rank; () = equal
                chunks, dealt out in turns.
            in_flight: of each rank; () = as 1F1B or its interleaved form have it.
        """
        pp = plan.pp
        chunks = chunks or dealt_chunks(model, plan)
        flight = in_flight or [usual_in_flight(plan, rank, micro_batches) for rank in range(pp)]
        if len(chunks) != pp or len(flight) != pp:
            raise SilicastError(
                f"{len(chunks)} ranks' chunks and {len(flight)} in flight on {pp} pipeline ranks",
                field="parallel.pp",
                hint="give one for each pipeline rank",
            )
        counts = [_kind_counts(model, each) for each in chunks]
        every = [bounds for each in chunks for bounds in each]
        begins, ends = min(every), max(every, key=lambda bounds: bounds[::-1])
        firsts = [begins in each for each in chunks]
        lasts = [ends in each for each in chunks]

        shares = max(plan.sharers, plan.group("edp").size) > 1

        def of_plan(value: int) -> I64:
            return np.full(pp, value, dtype=np.int64)

        return PipelineRanks(
            tp=of_plan(plan.tp), cp=of_plan(plan.cp), ep=of_plan(plan.ep), etp=of_plan(plan.etp),
            zero=of_plan(plan.zero if shares else 0), sharers=of_plan(plan.sharers),
            copies=of_plan(plan.group("edp_shard").size),
            sequence_parallel=np.full(pp, plan.sequence_parallel),
            gathers_keys=np.full(pp, plan.context == "all_gather"),
            pp=of_plan(pp), chunks=np.array([len(each) for each in chunks], dtype=np.int64),
            seq_len=of_plan(seq_len), micro_batch=of_plan(micro_batch),
            layers=np.array(counts, dtype=np.int64), in_flight=np.array(flight, dtype=np.int64),
            first=np.array(firsts), last=np.array(lasts),
        )  # fmt: skip

    @staticmethod
    def joined(parts: Sequence[PipelineRanks]) -> PipelineRanks:
        """The rows of several, one after the other."""
        return PipelineRanks(
            *(
                np.concatenate([getattr(part, each.name) for part in parts])
                for each in fields(PipelineRanks)
            )
        )


def usual_in_flight(plan: TrainingPlan, rank: int, micro_batches: int) -> int:
    """Passes through one chunk that a pipeline rank keeps at most, under 1F1B or, with virtual
    stages, its interleaved form (Narayanan et al. 2021, as Megatron-LM warms up).

    >>> [usual_in_flight(TrainingPlan(pp=4), rank, 8) for rank in range(4)]
    [4, 3, 2, 1]
    >>> [usual_in_flight(TrainingPlan(pp=4, virtual_stages=2), rank, 8) for rank in range(4)]
    [11, 9, 7, 5]
    """
    pp, chunks = plan.pp, plan.virtual_stages
    if chunks == 1:
        return min(pp - rank, micro_batches)
    return min(2 * (pp - rank - 1) + (chunks - 1) * pp + 1, micro_batches * chunks)


def dealt_chunks(model: ModelConfig, plan: TrainingPlan) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Equal chunks of the layers, dealt out to the pipeline ranks in turns."""
    bounds = model_bounds(model, plan.chunks)
    return tuple(bounds[rank :: plan.pp] for rank in range(plan.pp))


def _kind_counts(model: ModelConfig, chunks: Bounds) -> list[int]:
    counts = dict.fromkeys(model.kinds, 0)
    for first, last in chunks:
        for kind, count in model.kind_counts(range(first, min(last, model.layers))).items():
            counts[kind] += count
    return list(counts.values())
