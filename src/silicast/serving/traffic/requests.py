"""Requests as arrays: when they come, how long they are, and which prompts begin alike."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import final

import numpy as np

from silicast.core.numerics import I64

SECOND_NS = 1_000_000_000


@final
@dataclass(frozen=True)
class Content:
    """What prompts and outputs consist of, as far as others share it.

    A prompt is a chain of segments, each the first so many tokens of the text that its identity
    names. Two prompts begin alike as far as their chains name the same segments. Of the first
    segment that differs they share nothing, or, where both name one text and take different
    lengths of it, the shorter length.

    Attributes:
        segments: identities, of all prompts one after the other; int64.
        tokens: of each segment, at least 1.
        offsets: shape (n + 1,); request i owns segments offsets[i]..offsets[i + 1]. Prompt tokens
            beyond its segments are its own alone.
        outputs: identity of each request's output, by which later prompts may name it; -1 = none.
    """

    segments: I64
    tokens: I64
    offsets: I64
    outputs: I64

    def prompt(self, request: int) -> list[tuple[int, int]]:
        """(identity, tokens) of a prompt's segments."""
        first, last = int(self.offsets[request]), int(self.offsets[request + 1])
        names, sizes = self.segments[first:last], self.tokens[first:last]
        return list(zip(names.tolist(), sizes.tolist(), strict=True))


@final
@dataclass(frozen=True)
class Requests:
    """n requests in the order in which clients send them; arrays of shape (n,), int64.

    Attributes:
        arrival_ns: the earliest time at which each is sent.
        input_tokens, output_tokens: at least 1 each. No scheduler may read the latter.
        after: the request whose answer each waits for (an earlier turn); -1 = none.
        pause_ns: from that answer to this request.
        concurrency: requests in flight at most, of all; 0 = no limit.
        content: what prompts share; None = nothing.
        lora: adapter of each request; None = none has one.
        steady: statistics are of the steady state (:mod:`silicast.serving.statistics.steady`), not
            of the run from its first request to its last token.
        warm_up: the first so many are a run before: the others are sent when all of them are
            answered, and statistics are of the others.

    Raises:
        ValueError: arrays of different lengths, or numbers out of range.

    >>> requests = Requests.closed(2, [100] * 4, [10] * 4)
    >>> len(requests), requests.concurrency
    (4, 2)
    """

    arrival_ns: I64
    input_tokens: I64
    output_tokens: I64
    after: I64
    pause_ns: I64
    concurrency: int = 0
    content: Content | None = None
    lora: I64 | None = field(default=None)
    steady: bool = False
    warm_up: int = 0

    def __post_init__(self) -> None:
        """Checks what the event loop relies on."""
        count = len(self.arrival_ns)
        arrays = (self.input_tokens, self.output_tokens, self.after, self.pause_ns)
        if not count or any(len(each) != count for each in arrays):
            raise ValueError("no requests, or arrays of different lengths")
        if self.input_tokens.min() < 1 or self.output_tokens.min() < 1:
            raise ValueError("a prompt or an output without tokens")
        if self.arrival_ns.min() < 0 or self.pause_ns.min() < 0 or self.concurrency < 0:
            raise ValueError("a time or a limit below zero")
        if (self.after >= np.arange(count)).any() or self.after.min() < -1:
            raise ValueError("a request waits for one that comes later")
        if not 0 <= self.warm_up < count:
            raise ValueError("no request is left to measure")

    @property
    def longest_tokens(self) -> int:
        """Prompt and output of the longest request.

        >>> Requests.closed(2, [100, 30], [10, 90]).longest_tokens
        120
        """
        return int((self.input_tokens + self.output_tokens).max())

    def __len__(self) -> int:
        return len(self.arrival_ns)

    def first(self, count: int) -> Requests:
        """The first of them; all, where there are fewer."""
        if count >= len(self):
            return self
        content = self.content
        if content is not None:
            end = int(content.offsets[count])
            content = replace(
                content,
                segments=content.segments[:end],
                tokens=content.tokens[:end],
                offsets=content.offsets[: count + 1],
                outputs=content.outputs[:count],
            )
        return replace(
            self,
            arrival_ns=self.arrival_ns[:count],
            input_tokens=self.input_tokens[:count],
            output_tokens=self.output_tokens[:count],
            after=self.after[:count],
            pause_ns=self.pause_ns[:count],
            content=content,
            lora=None if self.lora is None else self.lora[:count],
        )

    def has_lengths_of(self, other: Requests) -> bool:
        """Whether prompts and outputs are as long as those of another traffic, one by one."""
        return np.array_equal(self.input_tokens, other.input_tokens) and np.array_equal(
            self.output_tokens, other.output_tokens
        )

    def from_clients(self, clients: int) -> Requests:
        """The same from so many clients, each of whom waits for its answers."""
        nothing = np.zeros(len(self), dtype=np.int64)
        return replace(self, concurrency=clients, arrival_ns=nothing, steady=False)

    @staticmethod
    def from_arrays(
        arrival_ns: I64,
        input_tokens: I64,
        output_tokens: I64,
        concurrency: int = 0,
        content: Content | None = None,
    ) -> Requests:
        """Requests that do not wait for one another."""
        count = len(arrival_ns)
        nothing = np.zeros(count, dtype=np.int64)
        return Requests(
            arrival_ns, input_tokens, output_tokens, nothing - 1, nothing, concurrency, content
        )

    @staticmethod
    def closed(concurrency: int, input_tokens: list[int], output_tokens: list[int]) -> Requests:
        """Clients that each send a request when the last one is answered, from time 0 on."""
        first, second = (np.array(each, dtype=np.int64) for each in (input_tokens, output_tokens))
        return Requests.from_arrays(
            np.zeros(len(first), dtype=np.int64), first, second, concurrency
        )
