"""Ops of a graph x batch states as rows of kernel batches, and sums over them in a fixed order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from silicast.composition.states import BatchStates
from silicast.core.numerics import F64, I64
from silicast.workload.op import Op, OpBatch, resolve
from silicast.workload.symbols import Phase, phase_of


def over_states(table: F64, weights: F64) -> list[float]:
    """Weighted sums over states, one per node."""
    sums: list[float] = (table * weights).sum(axis=1).tolist()
    return sums


def runs_in(op: Op, *, prefill: bool) -> bool:
    """Whether a node runs in a pure prefill (or decode) pass."""
    return phase_of(op) != ("decode" if prefill else "prefill")


def running(phase: Phase, states: BatchStates) -> I64:
    """Indices of the states in which ops of a phase run."""
    if phase == "prefill":
        return np.flatnonzero(states.prefill_sequences > 0)
    if phase == "decode":
        return np.flatnonzero(states.decode_sequences > 0)
    return np.arange(len(states))


def columns(ops: Sequence[Op], symbols: Mapping[str, I64], count: int) -> dict[str, I64]:
    """Dimension columns of ops x states, the states of the first op first."""
    names = [name for name, _ in ops[0].dims]
    return {
        name: np.concatenate(
            [np.broadcast_to(resolve(op.dim(name), symbols), (count,)) for op in ops]
        ).astype(np.int64)
        for name in names
    }


def ragged(ops: Sequence[Op], offsets: I64, rows: I64, lengths: Mapping[str, I64]) -> OpBatch:
    """Attention ops x states as one ragged batch."""
    counts = np.diff(offsets)[rows]
    repeat = len(ops)
    all_offsets = np.concatenate(([0], np.cumsum(np.tile(counts, repeat))))
    dims: dict[str, I64] = {name: np.tile(values, repeat) for name, values in lengths.items()}
    for name, value in ops[0].dims:
        if name not in lengths and not isinstance(value, str):
            dims[name] = np.repeat(
                np.array([op.dim(name) for op in ops], dtype=np.int64), len(rows)
            )
    return OpBatch(ops[0].family, ops[0].variant, dims, all_offsets, frozenset(lengths))


def weighted_sum(table: F64, weights: Sequence[float]) -> F64:
    """Sum over nodes in their order: the same bits however many states there are."""
    total = np.zeros(table.shape[1])
    for row, weight in zip(table, weights, strict=True):
        total = total + row * weight
    return total
