"""All legal plans of a training step on a number of devices, as arrays.

A plan is legal if its degrees multiply to the devices, if they divide what they cut (heads, widths,
layers, experts, the sequence) and if the batch divides into micro-batches for every data rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.errors import SilicastError
from silicast.core.numerics import I64
from silicast.distributed.ranks.plan import ContextExchange, TrainingPlan
from silicast.workload.models.model import ModelConfig
from silicast.workload.training.recomputation import Recompute
from silicast.workload.transformers.plan import Plan, shard_of

RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "full")
"""Tried of every model."""
FIELDS = ("tp", "pp", "cp", "dp", "ep", "etp", "zero", "virtual_stages", "micro_batch", "recompute")
LONGEST_PIECE = 2048
"""Sequences are cut over context ranks into no fewer tokens than these."""
LARGEST_MICRO_BATCH = 16


@final
@dataclass(frozen=True, slots=True)
class PlanSpace:
    """What is searched.

    Attributes:
        gpus: devices; ``domain``: those that a fast link joins, within which tensor ranks stay.
        seq_len, global_batch: of a step.
        pinned: fields of a plan (:data:`FIELDS`) that are given -> their values.
        sequence_parallel: of tensor ranks.
        interleaved: pipeline ranks may hold several chunks.
        context: how context ranks see each other's keys.
        zero_whole_weights: the ZeRO stage of plans whose ranks keep whole weights.
        recomputes: what may run again; field ``recompute`` of a plan counts them.
    """

    model: ModelConfig
    gpus: int
    domain: int
    seq_len: int
    global_batch: int
    pinned: Mapping[str, int]
    sequence_parallel: bool = True
    interleaved: bool = True
    context: ContextExchange = "ring"
    zero_whole_weights: int = 1
    recomputes: tuple[Recompute, ...] = RECOMPUTES


@final
@dataclass(frozen=True, eq=False)
class CandidatePlans:
    """Plans as columns of whole numbers, shape (fields, n)."""

    space: PlanSpace
    table: I64

    def __len__(self) -> int:
        return int(self.table.shape[1])

    def column(self, name: str) -> I64:
        """One field of all plans, shape (n,)."""
        column: I64 = self.table[FIELDS.index(name)]
        return column

    @cached_property
    def micro_batches(self) -> I64:
        """Of a step, on each data rank."""
        whole: I64 = self.space.global_batch // (self.column("dp") * self.column("micro_batch"))
        return whole

    def chosen(self, rows: I64) -> CandidatePlans:
        return CandidatePlans(self.space, self.table[:, rows])

    def key(self, row: int) -> str:
        """All fields of one of them, as words."""
        values = zip(FIELDS, self.table[:, row].tolist(), strict=True)
        return ", ".join(f"{name} {value}" for name, value in values)

    def plan(self, row: int) -> tuple[TrainingPlan, int, Recompute]:
        """One of them, its micro-batch and what it computes again."""
        table = dict(zip(FIELDS, self.table[:, row].tolist(), strict=True))
        micro, again = table.pop("micro_batch"), table.pop("recompute")
        sequence = self.space.sequence_parallel and table["tp"] > 1
        plan = TrainingPlan(**table, sequence_parallel=sequence, context=self.space.context)
        return plan, micro, self.space.recomputes[again]

    def worthwhile(self, fits: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Those of the plans that fit that a search looks at, shape (n,): modules run again only
        where the same plan does not fit without.

        Args:
            fits: shape (n,).
        """
        again = self.column("recompute")
        plain = np.maximum.accumulate(np.where(again == 0, np.arange(len(again)), -1))
        needless = (again >= len(RECOMPUTES)) & (plain >= 0) & fits[plain]
        return fits & ~needless


def candidates(space: PlanSpace) -> CandidatePlans:
    """All legal plans.

    Raises:
        SilicastError: there is none; says which limits leave nothing.
    """
    rows = list(_rows(space))
    if not rows:
        pinned = ", ".join(f"{name} = {value}" for name, value in space.pinned.items()) or "nothing"
        raise SilicastError(
            f"no plan of {space.model.name} on {space.gpus} devices divides {space.global_batch} "
            f"sequences of {space.seq_len} tokens ({pinned} given)",
            field="parallel",
            hint=_nearest(space) or "other numbers of sequences or layers have more divisors",
        )
    return CandidatePlans(space, np.array(rows, dtype=np.int64).T)


def _nearest(space: PlanSpace) -> str:
    """The numbers of devices next to this one that have a plan, in words; "" = none is near."""

    def first(numbers: Iterable[int]) -> int:
        return next((n for n in numbers if any(_rows(replace(space, gpus=n)))), 0)

    sizes = sorted(_sizes(space))
    near = (
        first(n for n in reversed(sizes) if space.gpus // 2 < n < space.gpus),
        first(n for n in sizes if space.gpus < n <= 2 * space.gpus),
    )
    return " or ".join(f"{number:,} devices" for number in near if number)


def _sizes(space: PlanSpace) -> set[int]:
    """Products of degrees that the model, its sequences and their number allow: numbers of devices
    that may have a plan; no other has one.
    """
    return {
        tp * pp * cp * dp
        for tp in _of(space, "tp", list(range(1, space.domain + 1)))
        if _cuts(space.model, tp)
        for cp in _of(space, "cp", _context(space, tp, max(space.seq_len // 2, 1)))
        for pp in _of(space, "pp", list(range(1, space.model.layers + 1)))
        for dp in _of(space, "dp", divisors(space.global_batch))
    }


def _rows(space: PlanSpace) -> Iterator[tuple[int, ...]]:
    model, gpus = space.model, space.gpus
    for tp in _of(space, "tp", [d for d in divisors(gpus) if d <= space.domain]):
        if not _cuts(model, tp):
            continue
        for pp in _of(space, "pp", divisors(gpus // tp) if gpus % tp == 0 else []):
            stages = _chunks(model.layers, pp) if space.interleaved else [1]
            for cp in _of(space, "cp", _context(space, tp, gpus // (tp * pp))):
                dp, left = divmod(gpus, tp * pp * cp)
                if left or not dp or dp not in _of(space, "dp", [dp]):
                    continue
                yield from _spread(space, tp, pp, cp, dp, stages)


def _spread(
    space: PlanSpace, tp: int, pp: int, cp: int, dp: int, stages: list[int]
) -> Iterator[tuple[int, ...]]:
    """Plans of some degrees that differ in how they hold weights and batches."""
    share, left = divmod(space.global_batch, dp)
    if left:
        return
    whole = space.zero_whole_weights
    zeros = [0] if dp * cp == 1 else [whole, 3] if pp == 1 else [whole]
    micros = [m for m in divisors(share) if m <= LARGEST_MICRO_BATCH and _is_power(m)]
    for micro in _of(space, "micro_batch", micros):
        count, left = divmod(share, micro)
        if left:
            continue
        for virtual in _of(space, "virtual_stages", stages):
            if not _staged(space.model.layers, pp, virtual, count):
                continue
            for ep, etp in _experts(space, tp, cp, dp):
                for zero in _of(space, "zero", zeros):
                    for again in _of(space, "recompute", list(range(len(space.recomputes)))):
                        yield tp, pp, cp, dp, ep, etp, zero, virtual, micro, again


def _staged(layers: int, pp: int, virtual: int, micro_batches: int) -> bool:
    """Whether a pipeline can be cut and scheduled so; stages need not be alike."""
    if pp * virtual > layers:
        return False
    return virtual == 1 or (pp > 1 and micro_batches % pp == 0)


def _chunks(layers: int, pp: int) -> list[int]:
    """Chunks of each pipeline rank to try: one, those that hold alike many layers each, embedding
    and head counted as one each where the layers alone do not divide, or two where none do.

    >>> _chunks(80, 4), _chunks(61, 16), _chunks(61, 1)
    ([1, 2, 4, 5, 10, 20], [1, 2], [1])
    """
    if pp == 1:
        return [1]
    alike = [
        each
        for each in range(2, (layers + 2) // pp + 1)
        if not layers % (pp * each) or not (layers + 2) % (pp * each)
    ]
    return [1, *(alike or [2])]


def _experts(space: PlanSpace, tp: int, cp: int, dp: int) -> list[tuple[int, int]]:
    moe = space.model.moe
    if moe is None:
        return [(ep, 1) for ep in _of(space, "ep", [1])]
    return [
        (ep, etp)
        for ep in _of(space, "ep", [d for d in divisors(moe.held) if (tp * cp * dp) % d == 0])
        for etp in _of(space, "etp", sorted({1, tp} if ep == 1 else {1}))
        if (tp * cp * dp) % (ep * etp) == 0 and moe.intermediate % etp == 0
    ]


def _context(space: PlanSpace, tp: int, ranks: int) -> list[int]:
    """Numbers of context ranks: each has two pieces of a sequence, or a share of the heads."""
    most = max(space.seq_len // LONGEST_PIECE, 1)
    heads = space.model.heads // tp if space.context == "all_to_all" else 0
    return [
        d
        for d in divisors(ranks)
        if d == 1 or (d <= most and space.seq_len % (2 * d) == 0 and heads % d == 0)
    ]


def _of(space: PlanSpace, name: str, values: list[int]) -> list[int]:
    """The values of a field: the given one alone, where one is given."""
    pinned = space.pinned.get(name)
    return values if pinned is None else [pinned]


def _cuts(model: ModelConfig, tp: int) -> bool:
    try:
        shard_of(model, Plan(tp=tp))
    except SilicastError:
        return False
    return True


def _is_power(value: int) -> bool:
    return value & (value - 1) == 0


def divisors(value: int) -> list[int]:
    """Of a whole number, ascending.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [d for d in range(1, int(value**0.5) + 1) if value % d == 0]
    return small + [value // d for d in reversed(small) if d * d != value]
