"""Memory of all plans of a search at once, and what would make a plan fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from silicast.core.errors import SilicastError
from silicast.core.numerics import F64, I64
from silicast.distributed.memory.memory import Rules, plan_memory, rows_memory
from silicast.distributed.memory.memory_rows import PipelineRanks
from silicast.distributed.memory.offload import SHARES
from silicast.distributed.ranks.plan import TrainingPlan
from silicast.distributed.search.candidates import CandidatePlans
from silicast.workload.models.model import ModelConfig

GB = 1e9
MAX_TP, MAX_PP = 8, 64
LEVELS = ("none", "selective", "full")
OFFLOAD = "offload."


def candidates_memory(candidates: CandidatePlans, rules: Rules = Rules()) -> F64:
    """Bytes that the fullest rank of each plan needs, shape (n,)."""
    needed = np.zeros(len(candidates))
    chosen = candidates.column("recompute")
    for number, recompute in enumerate(candidates.space.recomputes):
        indices = np.flatnonzero(chosen == number)
        if len(indices):
            part = candidates.chosen(indices)
            rows, first = _rows(part)
            total = rows_memory(part.space.model, rows, replace(rules, recompute=recompute)).total
            needed[indices] = np.maximum.reduceat(total, first)
    return needed


def _rows(candidates: CandidatePlans) -> tuple[PipelineRanks, I64]:
    """The pipeline ranks of all plans, and the first of each."""
    pp, chunks = candidates.column("pp"), candidates.column("virtual_stages")
    first = np.concatenate([[0], np.cumsum(pp)[:-1]])
    plan = np.repeat(np.arange(len(candidates)), pp)
    rank = np.arange(len(plan)) - first[plan]
    model = candidates.space.model
    layers = np.zeros((len(plan), len(model.kinds)), dtype=np.int64)
    flight = np.zeros(len(plan), dtype=np.int64)
    for stages, parts in sorted(set(zip(pp.tolist(), chunks.tolist(), strict=True))):
        pipeline_ranks, most = _pipeline(model, stages, parts)
        those = np.flatnonzero((pp[plan] == stages) & (chunks[plan] == parts))
        layers[those] = pipeline_ranks[rank[those]]
        flight[those] = np.minimum(most[rank[those]], candidates.micro_batches[plan[those]] * parts)

    def column(name: str) -> I64:
        return candidates.column(name)[plan]

    tp, cp, dp, ep, etp = (column(name) for name in ("tp", "cp", "dp", "ep", "etp"))
    return PipelineRanks(
        tp=tp, cp=cp, ep=ep, etp=etp, zero=column("zero"), sharers=dp * cp,
        copies=tp * cp * dp // (ep * etp),
        sequence_parallel=(tp > 1) & candidates.space.sequence_parallel,
        gathers_keys=np.zeros(len(plan), dtype=np.bool_),
        pp=column("pp"), chunks=column("virtual_stages"),
        seq_len=np.full(len(plan), candidates.space.seq_len, dtype=np.int64),
        micro_batch=column("micro_batch"), layers=layers, in_flight=flight,
        first=rank == 0, last=rank == column("pp") - 1,
    ), first  # fmt: skip


@lru_cache(maxsize=512)
def _pipeline(model: ModelConfig, stages: int, chunks: int) -> tuple[I64, I64]:
    """Layers of each rank by kind, and the passes through its chunks that it keeps at most."""
    rows = PipelineRanks.from_model(model, TrainingPlan(pp=stages, virtual_stages=chunks), 1, 1)
    return rows.layers, rows.in_flight


def remedies(
    model: ModelConfig,
    plan: TrainingPlan,
    seq_len: int,
    micro_batch: int,
    micro_batches: int,
    rules: Rules,
    usable_bytes: float,
) -> tuple[str, ...]:
    """Single changes of a plan, the smallest of each kind, with which it fits in
    ``usable_bytes``: "recompute = full", "zero = 1", "tp = 4", "pp = 16 on 64 devices" where the
    plan has fewer. Empty where it fits as it is, or where no single change is enough.
    """
    dp = plan.dp

    def fits(plan: TrainingPlan, micro: int, rules: Rules) -> bool:
        passes = micro_batches * micro_batch * dp // (micro * plan.dp)
        result = plan_memory(model, plan, seq_len, micro, passes, rules)
        return bool(result.total.max() <= usable_bytes)

    if fits(plan, micro_batch, rules):
        return ()
    texts: list[str] = []
    for changes in _changes(plan, micro_batch, rules):
        for text, other, micro, other_rules in changes:
            try:
                enough = fits(other, micro, other_rules)
            except SilicastError:
                continue
            if enough:
                texts.append(text)
                break
    return tuple(texts)


Change = tuple[str, TrainingPlan, int, Rules]


def _changes(plan: TrainingPlan, micro_batch: int, rules: Rules) -> Iterator[Iterator[Change]]:
    """Kinds of changes, of each the smallest first."""
    name = rules.recompute.partition(":")[0]
    levels = LEVELS[LEVELS.index(name) + 1 :]
    yield (
        (f"recompute = {each}", plan, micro_batch, replace(rules, recompute=each))
        for each in levels
    )
    halves = (micro_batch >> power for power in range(1, micro_batch.bit_length()))
    yield ((f"micro_batch = {each}", plan, each, rules) for each in halves)
    if plan.sharers > 1:
        yield (
            (f"zero = {each}", replace(plan, zero=each), micro_batch, rules)
            for each in range(plan.zero + 1, 4)
        )
    for part in SHARES:
        if getattr(rules.offload, part) < 1.0:
            whole: dict[str, Any] = {part: 1.0}
            away = replace(rules, offload=replace(rules.offload, **whole))
            yield iter(((f"{OFFLOAD}{part} = 1", plan, micro_batch, away),))
    yield from (_wider(plan, axis, most, micro_batch, rules) for axis, most in _DEGREES)


_DEGREES = (("tp", MAX_TP), ("pp", MAX_PP))


def _wider(
    plan: TrainingPlan, axis: str, most: int, micro_batch: int, rules: Rules
) -> Iterator[Change]:
    """More ranks along one axis, taken from the data ranks where there are enough."""
    degree = getattr(plan, axis) * 2
    taken = 2
    while degree <= most:
        changes = {axis: degree}
        if plan.dp % taken == 0:
            changes["dp"] = plan.dp // taken
        try:
            wider = replace(
                plan, **changes, sequence_parallel=plan.sequence_parallel or axis == "tp"
            )
        except SilicastError:
            return
        devices = f" on {wider.gpus} devices" if wider.gpus > plan.gpus else ""
        yield f"{axis} = {degree}{devices}", wider, micro_batch, rules
        degree, taken = degree * 2, taken * 2
