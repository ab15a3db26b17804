"""What each rank of a pipeline runs, in order, and where the pieces of the model lie.

The model is cut into stages 0, 1, ...; a rank holds one or more of them, its chunks. A forward
pass of a micro-batch runs through the stages upwards, its backward pass downwards. The backward
pass of a chunk may be split into the gradient of its input, for which the stage before waits, and
the gradients of its weights, for which nobody waits until the optimizer's step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.errors import SilicastError
from silicast.core.numerics import F64, I64

FORWARD, BACKWARD, INPUT, WEIGHT = 0, 1, 2, 3
"""Kinds of actions: BACKWARD is INPUT and WEIGHT in one."""
JOINED = 4
"""In a list of actions: a forward pass that runs together with the backward pass after it."""
KINDS = ("forward", "backward", "input gradient", "weight gradient")

Action = tuple[int, int, int]
"""(kind, micro-batch, chunk of the rank)."""


@final
@dataclass(frozen=True, eq=False)
class Placement:
    """Which stages a rank holds.

    Attributes:
        stage: of each chunk, shape (ranks, chunks).
        path: of each chunk, shape (chunks,): a micro-batch stays on the chunks of one path, which
            hold each stage once. Only schedules that feed both ends have more paths than one.

    >>> Placement.interleaved(2, 2).stage.tolist()
    [[0, 2], [1, 3]]
    """

    stage: I64
    path: I64

    @staticmethod
    def interleaved(ranks: int, chunks: int = 1) -> Placement:
        """Stage s on rank s modulo ``ranks``."""
        stage = np.arange(ranks)[:, None] + ranks * np.arange(chunks)
        return Placement(stage, np.zeros(chunks, dtype=np.int64))

    @staticmethod
    def v_shaped(ranks: int) -> Placement:
        """Down the ranks and up again: the first rank holds the first and the last stage."""
        down = np.arange(ranks)
        return Placement(np.stack((down, 2 * ranks - 1 - down), axis=1), np.zeros(2, np.int64))

    @staticmethod
    def both_ends(ranks: int) -> Placement:
        """Two copies of the model, one down the ranks and one up."""
        down = np.arange(ranks)
        return Placement(np.stack((down, down[::-1]), axis=1), np.arange(2))

    @property
    def ranks(self) -> int:
        return len(self.stage)

    @property
    def chunks(self) -> int:
        """Stages on each rank."""
        return int(self.stage.shape[1])

    @cached_property
    def stages(self) -> int:
        """Number of stages of the model."""
        return int(self.stage.max()) + 1

    @cached_property
    def holder(self) -> tuple[I64, I64]:
        """(rank, chunk) of each stage on each path, each of shape (paths, stages)."""
        shape = (int(self.path.max()) + 1, self.stages)
        rank, chunk = np.full(shape, -1), np.full(shape, -1)
        ranks, chunks = np.indices(self.stage.shape)
        paths = np.broadcast_to(self.path, self.stage.shape)
        rank[paths, self.stage], chunk[paths, self.stage] = ranks, chunks
        return rank, chunk


@final
@dataclass(frozen=True, eq=False)
class Order:
    """All actions of all ranks; those of rank r are ``first[r]`` to ``first[r + 1] - 1``, in order.

    Attributes:
        placement: of the stages; ``micro_batches``: number of them.
        first: shape (ranks + 1,).
        kind, micro_batch, chunk: of each action, shape (n,).
        together: whether an action, a forward pass, runs together with the one after it, a
            backward pass: both start when both can, and end as one; shape (n,).
    """

    placement: Placement
    micro_batches: int
    first: I64
    kind: I64
    micro_batch: I64
    chunk: I64
    together: NDArray[np.bool_]

    @staticmethod
    def from_actions(
        placement: Placement, micro_batches: int, actions: Sequence[Sequence[Action]]
    ) -> Order:
        """The order in which each rank runs its own list of actions.

        Raises:
            SilicastError: an action is missing, stands twice, or before what it needs on its rank.
        """
        if len(actions) != placement.ranks:
            raise SilicastError(
                f"{len(actions)} lists of actions for {placement.ranks} ranks", field="schedule"
            )
        flat = [each for action in actions for each in action]
        kind, micro_batch, chunk = (
            np.fromiter((each[i] for each in flat), np.int64, len(flat)) for i in range(3)
        )
        first = np.concatenate(([0], np.cumsum([len(action) for action in actions]))).astype(
            np.int64
        )
        together = kind == JOINED
        kind = np.where(together, FORWARD, kind)
        order = Order(placement, micro_batches, first, kind, micro_batch, chunk, together)
        order._check()
        return order

    @cached_property
    def rank(self) -> I64:
        return np.repeat(np.arange(self.placement.ranks), np.diff(self.first))

    @cached_property
    def stage(self) -> I64:
        stage: I64 = self.placement.stage[self.rank, self.chunk]
        return stage

    @cached_property
    def splits_backward(self) -> bool:
        """Whether any weight gradient is an action of its own."""
        return bool((self.kind == WEIGHT).any())

    def peak(self, held: F64 | float = 1.0, until_weight: F64 | float | None = None) -> F64:
        """The most that a rank holds for backward passes to come, shape (ranks,).

        The peak follows from the order alone: a rank's actions do not overlap, but for a joined
        pair, of which the forward pass takes its memory before the backward pass frees its own.

        Args:
            held: by a micro-batch of a chunk from its forward pass on, in bytes or counts; a number
                or shape (ranks, chunks).
            until_weight: the part of it that a weight gradient still needs where that is an action
                of its own; None = everything.
        """
        shape = self.placement.stage.shape
        whole = np.broadcast_to(np.asarray(held), shape)
        until_grad = (
            whole if until_weight is None else np.broadcast_to(np.asarray(until_weight), shape)
        )
        position = (self.rank, self.chunk)
        change = np.select(
            [self.kind == FORWARD, self.kind == BACKWARD, self.kind == INPUT],
            [whole[position], -whole[position], until_grad[position] - whole[position]],
            -until_grad[position],
        )
        level = np.cumsum(change)
        before = np.concatenate(([0.0], level))[self.first[:-1]]
        peak: F64 = np.maximum.reduceat(level, self.first[:-1]) - before
        return peak

    def named(self, index: int) -> str:
        """One action in words.

        >>> Order.from_actions(Placement.interleaved(1), 1, [[(0, 0, 0), (1, 0, 0)]]).named(1)
        'backward of micro-batch 0'
        """
        words = f"{KINDS[self.kind[index]]} of micro-batch {self.micro_batch[index]}"
        return words if self.placement.chunks == 1 else f"{words}, chunk {self.chunk[index]}"

    def _check(self) -> None:
        """Every micro-batch once through every chunk of its path, forward before backward."""
        ranks, chunks = self.placement.stage.shape
        for values, limit, field in (
            (self.kind, len(KINDS), "kind"),
            (self.micro_batch, self.micro_batches, "micro-batch"),
            (self.chunk, chunks, "chunk"),
        ):
            wrong = np.flatnonzero((values < 0) | (values >= limit))
            if len(wrong):
                raise SilicastError(
                    f"an action of rank {self.rank[wrong[0]]} has {field} {values[wrong[0]]}, "
                    f"not one of 0 to {limit - 1}",
                    field="schedule",
                )
        position = np.full((len(KINDS), ranks, chunks, self.micro_batches), -1)
        slot = (self.kind, self.rank, self.chunk, self.micro_batch)
        position[slot] = np.arange(len(self.kind))
        twice = np.flatnonzero(position[slot] != np.arange(len(self.kind)))
        if len(twice):
            self._reject(twice[0], "stands twice")
        forward, whole, part, weight = position
        path = self.placement.path
        travels = np.zeros((int(path.max()) + 1, self.micro_batches), dtype=bool)
        travels[path[self.chunk], self.micro_batch] = True
        lost = np.flatnonzero(travels.sum(axis=0) != 1)
        if len(lost):
            raise SilicastError(
                f"micro-batch {lost[0]} is on {travels[:, lost[0]].sum()} paths, expected on one",
                field="schedule",
            )
        due = np.broadcast_to(travels[path], forward.shape)
        backward = np.maximum(whole, part)
        split = part >= 0
        for wrong_at, field in (
            (due & (forward < 0), "has no forward pass"),
            (due & (backward < 0), "has no backward pass"),
            (due & (split != (weight >= 0)), "has one of two halves of a backward pass"),
            (split & (whole >= 0), "has a whole and a split backward pass"),
            (due & (backward < forward), "runs backward before forward"),
            (due & split & (weight < part), "takes weight gradients before the input's"),
        ):
            if wrong_at.any():
                rank, chunk, micro_batch = (int(each[0]) for each in np.nonzero(wrong_at))
                raise SilicastError(
                    f"rank {rank} {field} of micro-batch {micro_batch}, chunk {chunk}"
                    if "has" in field
                    else f"rank {rank} {field} at micro-batch {micro_batch}, chunk {chunk}",
                    field="schedule",
                )
        last = np.zeros(len(self.kind), dtype=bool)
        last[self.first[1:][np.diff(self.first) > 0] - 1] = True
        after = np.roll(self.kind, -1)
        alone = np.flatnonzero(self.together & (last | (after == FORWARD) | (after == WEIGHT)))
        if len(alone):
            self._reject(alone[0], "is joined with no backward pass")

    def _reject(self, index: np.int64, why: str) -> None:
        raise SilicastError(
            f"rank {self.rank[index]}: {self.named(int(index))} {why}", field="schedule"
        )
