"""Batch states: which sequences take part in an engine step, as arrays over many steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np

from silicast.core.numerics import I64


def segment_sums(values: I64, offsets: I64) -> I64:
    """Sums of ``values[offsets[i]:offsets[i + 1]]``, shape (len(offsets) - 1,); exact."""
    running = np.concatenate(([0], np.cumsum(values)))
    sums: I64 = running[offsets[1:]] - running[offsets[:-1]]
    return sums


@final
@dataclass(frozen=True)
class BatchStates:
    """n states of a batch, int64 arrays.

    Attributes:
        prefill_q: new tokens of each sequence in prefill, all states one after the other.
        prefill_kv: past plus new tokens of the same sequences.
        prefill_offsets: shape (n + 1,); state i owns sequences offsets[i]..offsets[i + 1].
        decode_kv: cached tokens (without the new one) of each decoding sequence.
        decode_offsets: shape (n + 1,).
        elsewhere: new tokens of the other groups of attention_dp, shape (n,); -1, or none at all,
            where each holds as many as this one.
        cross_kv: behind an encoder, what each decoding sequence sees of it.
    """

    prefill_q: I64
    prefill_kv: I64
    prefill_offsets: I64
    decode_kv: I64
    decode_offsets: I64
    elsewhere: I64 | None = None
    cross_kv: I64 | None = None

    def __len__(self) -> int:
        return len(self.prefill_offsets) - 1

    @cached_property
    def prefill_sequences(self) -> I64:
        """Sequences in prefill, shape (n,)."""
        counts: I64 = np.diff(self.prefill_offsets)
        return counts

    @cached_property
    def decode_sequences(self) -> I64:
        """Sequences in decode, shape (n,)."""
        counts: I64 = np.diff(self.decode_offsets)
        return counts

    @cached_property
    def tokens(self) -> I64:
        """New tokens of the step, shape (n,)."""
        return segment_sums(self.prefill_q, self.prefill_offsets) + self.decode_sequences

    @cached_property
    def prefill_tokens(self) -> I64:
        """New tokens of the sequences in prefill, shape (n,)."""
        return segment_sums(self.prefill_q, self.prefill_offsets)

    @cached_property
    def prefill_longest(self) -> I64:
        """New tokens of the longest sequence in prefill, shape (n,); 0 where there is none."""
        return _longest(self.prefill_q, self.prefill_offsets)

    @cached_property
    def prefill_longest_kv(self) -> I64:
        """Past and new tokens of the sequence in prefill that has most, shape (n,); likewise."""
        return _longest(self.prefill_kv, self.prefill_offsets)

    @cached_property
    def decode_longest(self) -> I64:
        """Cached and new tokens of the longest decoding sequence, shape (n,); 0 = there is none."""
        return _longest(self.decode_kv + 1, self.decode_offsets)

    @cached_property
    def prefill_kv_tokens(self) -> I64:
        """Past and new tokens of the sequences in prefill, shape (n,)."""
        return segment_sums(self.prefill_kv, self.prefill_offsets)

    @cached_property
    def logit_rows(self) -> I64:
        """Rows that go through the head: one a sequence, shape (n,)."""
        return self.prefill_sequences + self.decode_sequences

    @staticmethod
    def prefill(lengths: Sequence[int], elsewhere: int = -1) -> BatchStates:
        """One state: all of ``lengths`` prefilled at once from nothing."""
        q = np.array(lengths, dtype=np.int64)
        none = np.zeros(0, dtype=np.int64)
        return BatchStates(
            q, q, np.array([0, len(q)]), none, np.zeros(2, dtype=np.int64), np.array([elsewhere])
        )

    @staticmethod
    def chunked(lengths: Sequence[int], chunk: int) -> BatchStates:
        """States of at most ``chunk`` new tokens that prefill ``lengths`` in turn from nothing.

        >>> states = BatchStates.chunked([700, 300], 512)
        >>> states.tokens.tolist(), states.prefill_kv.tolist()
        ([512, 488], [512, 700, 300])
        """
        new: list[int] = []
        total: list[int] = []
        ends, room = [0], chunk
        for length in lengths:
            seen = 0
            while seen < length:
                piece = min(room, length - seen)
                seen += piece
                new.append(piece)
                total.append(seen)
                room -= piece
                if room == 0:
                    ends.append(len(new))
                    room = chunk
        if ends[-1] < len(new):
            ends.append(len(new))
        none = np.zeros(0, dtype=np.int64)
        q, kv, offsets = (np.array(each, dtype=np.int64) for each in (new, total, ends))
        return BatchStates(q, kv, offsets, none, np.zeros(len(offsets), dtype=np.int64))

    @staticmethod
    def decode(lengths: Sequence[int], steps: I64) -> BatchStates:
        """One state a decode step: sequences of ``lengths`` prompt tokens, ``steps[i]`` (from 1)
        tokens after the prefill's own.
        """
        prompt = np.array(lengths, dtype=np.int64)
        cached = (prompt[None, :] + (steps[:, None] - 1)).reshape(-1)
        none = np.zeros(0, dtype=np.int64)
        count = len(steps)
        return BatchStates(
            none,
            none,
            np.zeros(count + 1, dtype=np.int64),
            cached,
            np.arange(count + 1, dtype=np.int64) * len(prompt),
        )

    @staticmethod
    def encoded(lengths: Sequence[int], steps: I64) -> BatchStates:
        """Of a model with an encoder: one state that encodes all prompts and decodes the first
        token, then one a decode step, ``steps[i]`` (from 1) tokens later.
        """
        prompt = np.array(lengths, dtype=np.int64)
        cached = np.concatenate(([0], steps)).astype(np.int64)
        count = len(cached)
        return BatchStates(
            prompt,
            prompt,
            np.array([0] + [len(prompt)] * count, dtype=np.int64),
            np.repeat(cached, len(prompt)),
            np.arange(count + 1, dtype=np.int64) * len(prompt),
            None,
            np.tile(prompt, count),
        )

    def after(self, cached: int) -> BatchStates:
        """The states of sequences that each have ``cached`` tokens before those of these states.

        >>> BatchStates.prefill([512, 100]).after(4096).prefill_kv.tolist()
        [4608, 4196]
        """
        return replace(self, prefill_kv=self.prefill_kv + cached, decode_kv=self.decode_kv + cached)

    def first(self) -> BatchStates:
        """The first state alone."""
        prefill, decode = int(self.prefill_offsets[1]), int(self.decode_offsets[1])
        return BatchStates(
            self.prefill_q[:prefill],
            self.prefill_kv[:prefill],
            self.prefill_offsets[:2],
            self.decode_kv[:decode],
            self.decode_offsets[:2],
            None if self.elsewhere is None else self.elsewhere[:1],
            None if self.cross_kv is None else self.cross_kv[:decode],
        )

    def chosen(self, rows: I64) -> BatchStates:
        """The states ``rows``, in that order."""
        q = _taken(self.prefill_offsets, rows)
        kv = _taken(self.decode_offsets, rows)
        return BatchStates(
            self.prefill_q[q[0]],
            self.prefill_kv[q[0]],
            q[1],
            self.decode_kv[kv[0]],
            kv[1],
            None if self.elsewhere is None else self.elsewhere[rows],
            None if self.cross_kv is None else self.cross_kv[kv[0]],
        )

    def then(self, others: BatchStates) -> BatchStates:
        """These states followed by ``others``."""
        return BatchStates(
            np.concatenate((self.prefill_q, others.prefill_q)),
            np.concatenate((self.prefill_kv, others.prefill_kv)),
            _joined(self.prefill_offsets, others.prefill_offsets),
            np.concatenate((self.decode_kv, others.decode_kv)),
            _joined(self.decode_offsets, others.decode_offsets),
            np.concatenate((self._elsewhere(), others._elsewhere())),
        )

    @staticmethod
    def joined(parts: Sequence[BatchStates]) -> BatchStates:
        """States of several one after the other; all with an encoder, or all without."""
        if len(parts) == 1:
            return parts[0]
        cross = [part.cross_kv for part in parts if part.cross_kv is not None]
        return BatchStates(
            np.concatenate([part.prefill_q for part in parts]),
            np.concatenate([part.prefill_kv for part in parts]),
            _ends([part.prefill_offsets for part in parts]),
            np.concatenate([part.decode_kv for part in parts]),
            _ends([part.decode_offsets for part in parts]),
            np.concatenate([BatchStates._elsewhere(part) for part in parts]),
            np.concatenate(cross) if cross else None,
        )

    def all_tokens(self, groups: int, tokens: I64) -> I64:
        """New tokens of all groups, shape (n,), of which this one runs ``tokens``."""
        others = self._elsewhere()
        result: I64 = np.where(others < 0, groups * tokens, tokens + others)
        return result

    def _elsewhere(self) -> I64:
        return np.full(len(self), -1) if self.elsewhere is None else self.elsewhere


def _longest(lengths: I64, offsets: I64) -> I64:
    """The largest of each state's ``lengths``, shape (n,); 0 where it has none."""
    longest = np.zeros(len(offsets) - 1, dtype=np.int64)
    filled = np.diff(offsets) > 0
    if filled.any():
        longest[filled] = np.maximum.reduceat(lengths, offsets[:-1][filled])
    return longest


def _taken(offsets: I64, rows: I64) -> tuple[I64, I64]:
    """Places of the sequences of ``rows``, and the offsets of those rows among them."""
    counts = np.diff(offsets)[rows]
    new = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    within = np.arange(new[-1]) - np.repeat(new[:-1], counts)
    return np.repeat(offsets[:-1][rows], counts) + within, new


def _joined(first: I64, second: I64) -> I64:
    return np.concatenate((first, second[1:] + first[-1]))


def _ends(offsets: Sequence[I64]) -> I64:
    """Offsets of several one after the other."""
    counts = np.concatenate([np.diff(each) for each in offsets])
    return np.concatenate(([0], np.cumsum(counts)))
