"""Ops of a graph x batch states as rows of kernel batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from silicast.composition.step.states import BatchStates
from silicast.core.numerics import F64, I64
from silicast.workload.graphs.op import Op, OpBatch, resolve
from silicast.workload.graphs.symbols import Phase


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
    if repeat == 1 and len(rows) == 1:
        sizes = {n: v for n, v in ops[0].dims if n not in lengths and not isinstance(v, str)}
        if counts[0] == 1:  # one sequence is a number, which is quicker and has the same bits
            alone: dict[str, Any] = {"batch": 1, **sizes}
            for name, values in lengths.items():
                alone[name] = int(values[offsets[rows[0]]])
            return OpBatch(ops[0].family, ops[0].variant, alone, numbers=True)
        ends = np.array([0, counts[0]])
        one: dict[str, Any] = {**lengths, **sizes}
        return OpBatch(ops[0].family, ops[0].variant, one, ends, frozenset(lengths), numbers=True)
    all_offsets = np.concatenate(([0], np.cumsum(np.tile(counts, repeat))))
    dims: dict[str, I64] = {name: np.tile(values, repeat) for name, values in lengths.items()}
    for name, value in ops[0].dims:
        if name not in lengths and not isinstance(value, str):
            dims[name] = np.repeat(
                np.array([op.dim(name) for op in ops], dtype=np.int64), len(rows)
            )
    return OpBatch(ops[0].family, ops[0].variant, dims, all_offsets, frozenset(lengths))


def in_chunks(new: I64, total: I64, offsets: I64, chunk: int) -> tuple[I64, I64, I64]:
    """Sequences cut at multiples of ``chunk`` tokens: each piece sees only its own chunk.

    Args:
        new, total: new tokens, and past plus new tokens, of each sequence.
        offsets: which sequences belong to which state.
        chunk: tokens of one chunk.

    Returns:
        The same three for the pieces.

    >>> q, kv, offsets = in_chunks(np.array([6]), np.array([10]), np.array([0, 1]), 8)
    >>> q.tolist(), kv.tolist(), offsets.tolist()
    ([4, 2], [8, 2], [0, 2])
    """
    first = (total - new) // chunk
    pieces = -(-total // chunk) - first
    sequence = np.repeat(np.arange(len(total)), pieces)
    running = np.concatenate(([0], np.cumsum(pieces)))
    number = first[sequence] + np.arange(running[-1]) - running[sequence]
    start = np.maximum((total - new)[sequence], number * chunk)
    end = np.minimum(total[sequence], (number + 1) * chunk)
    return end - start, end - number * chunk, running[offsets]


def rows_summed(table: F64) -> F64:
    """Sum over rows in their order, shape (n,): the same bits however many columns there are."""
    if not len(table):
        return np.zeros(table.shape[1])
    rows_summed: F64 = np.cumsum(table, axis=0)[-1]
    return rows_summed
