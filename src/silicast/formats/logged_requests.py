"""Requests as other tools logged them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class LoggedRequest:
    """A request as it was logged.

    Attributes:
        start_ns, end_ns: nanoseconds; None = not known.
        session: conversation that it is part of; "" = not known.
        blocks: (name, tokens) of pieces of its prompt, in order; prompts that begin with the same
            names begin with the same tokens. () = not known.
    """

    input_tokens: int
    output_tokens: int
    start_ns: int | None = None
    end_ns: int | None = None
    session: str = ""
    blocks: tuple[tuple[str, int], ...] = ()


@final
@dataclass(frozen=True)
class RequestLog:
    """What a log has of a traffic.

    Attributes:
        kind: of file, in words.
        requests: in the order of their times.
        prefix_share: tokens that a prefix cache hit, of all of prompts; None = not logged.
        remarks: what a reader must know.
        shares_clock: times of different conversations can be compared.
    """

    kind: str
    requests: tuple[LoggedRequest, ...]
    prefix_share: float | None = None
    remarks: tuple[str, ...] = ()
    shares_clock: bool = True

    @property
    def is_timed(self) -> bool:
        """Whether it says when requests came."""
        return self.shares_clock and all(request.start_ns is not None for request in self.requests)

    def tool_s(self) -> list[float]:
        """Seconds from answers to the next requests of their conversations."""
        waits = []
        ended = [
            request for request in self.requests if request.session and request.end_ns is not None
        ]
        for _, group in itertools.groupby(
            sorted(ended, key=lambda request: (request.session, request.start_ns)),
            lambda request: request.session,
        ):
            for before, after in itertools.pairwise(group):
                if after.start_ns is not None and before.end_ns is not None:
                    waits.append(max(after.start_ns - before.end_ns, 0) * 1e-9)
        return waits
