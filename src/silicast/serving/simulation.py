"""Requests meet replicas: the event loop.

Events are of five kinds: a client has its answer, a client may send a request, the request reaches
an engine, an idle engine starts, a step ends. They are taken in order of time; at the same time in that order, then by number.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.composition.paced import Prices
from silicast.composition.stepper import Stepper
from silicast.core.errors import SilicastError
from silicast.serving.kv_pool import KvLayout
from silicast.serving.records import Records
from silicast.serving.replica import Replica
from silicast.serving.requests import Requests
from silicast.serving.scheduler import Group, Limits, Scheduler, Sequences

_DONE, _SEND, _ARRIVE, _WAKE, _END = range(5)
Router = Callable[[int, Sequence[Replica]], int]
"""Request and replicas -> which one serves it."""


@final
@dataclass(frozen=True)
class ReplicaSpec:
    """What a replica is made of.

    Attributes:
        prices: of its steps; ``policy``: class of the schedulers.
        limits: of each group; ``groups``: of attention_dp.
        front_ns: from sending a request until the engine can schedule it; ``front_token_ns``: on
            top, per token of the prompt.
        back_ns: from the end of a step until the client has its token.
    """

    prices: Prices
    policy: type[Scheduler]
    limits: Limits
    layout: KvLayout
    groups: int = 1
    front_ns: int = 0
    front_token_ns: int = 0
    back_ns: int = 0


@final
class Simulation:
    """Requests on replicas of one kind.

    Args:
        specs: one a replica.
        router: chooses; None = in turn.

    Raises:
        SilicastError: a request can never run.
    """

    def __init__(
        self, requests: Requests, specs: Sequence[ReplicaSpec], router: Router | None = None
    ) -> None:
        self.requests = requests
        self.sequences = Sequences(requests.input_tokens, requests.output_tokens)
        self.records = Records(requests, self.sequences)
        self._router = router or _in_turn()
        self._specs = list(specs)
        self.replicas = [self._replica(number, spec) for number, spec in enumerate(specs)]
        self._events: list[tuple[int, int, int]] = []
        self._order = np.argsort(requests.arrival_ns, kind="stable").tolist()
        self._next = 0
        self._in_flight = 0
        self._ready: list[int] = []
        self._later: dict[int, list[int]] = {}
        for request, before in enumerate(requests.after.tolist()):
            if before >= 0:
                self._later.setdefault(before, []).append(request)
        self._check()

    def run(self) -> Records:
        """Runs until every request is answered."""
        events, requests = self._events, self.requests
        while True:
            self._open_until(events[0][0] if events else -1)
            if not events:
                break
            now, kind, number = heapq.heappop(events)
            if kind == _DONE:
                self._answered(number, now)
            elif kind == _SEND:
                self._ready_to_send(number, now)
            elif kind == _ARRIVE:
                replica = self.replicas[self._router(number, self.replicas)]
                replica.arrive(number, now)
                if replica.ready:
                    heapq.heappush(events, (now, _WAKE, replica.number))
                self._push(replica)
            elif kind == _WAKE:
                replica = self.replicas[number]
                replica.wake(now, self._next_arrival_ns())
                self._push(replica)
            else:
                replica = self.replicas[number]
                if replica.next_ns != now:
                    continue  # the stretch was cut
                replica.end(now, self._next_arrival_ns())
                self._push(replica)
        unanswered = int((self.records.done_ns < 0).sum())
        if unanswered:
            raise SilicastError(
                f"{unanswered} of {len(requests)} requests can never run", kind="internal"
            )
        self.records.end_ns = int(self.records.done_ns.max())
        return self.records

    def _open_until(self, time_ns: int) -> None:
        """Adds sends up to a time, so that the heap stays small."""
        arrival = self.requests.arrival_ns
        while self._next < len(self._order):
            request = self._order[self._next]
            if self.requests.after[request] >= 0:
                self._next += 1
                continue
            if self._events and int(arrival[request]) > self._events[0][0]:
                return
            heapq.heappush(self._events, (int(arrival[request]), _SEND, request))
            self._next += 1

    def _next_arrival_ns(self) -> int:
        """The next request that is known to come; -1 = none."""
        found = -1
        for time_ns, kind, _ in self._events[:3]:
            if kind != _END and (found < 0 or time_ns < found):
                found = time_ns
        if self._next < len(self._order) and not self.requests.concurrency:
            time_ns = int(self.requests.arrival_ns[self._order[self._next]])
            if found < 0 or time_ns < found:
                found = time_ns
        return found

    def _push(self, replica: Replica) -> None:
        if replica.next_ns >= 0:
            heapq.heappush(self._events, (replica.next_ns, _END, replica.number))

    def _ready_to_send(self, request: int, now_ns: int) -> None:
        limit = self.requests.concurrency
        if limit and self._in_flight >= limit:
            heapq.heappush(self._ready, request)
            return
        self._send(request, now_ns)

    def _send(self, request: int, now_ns: int) -> None:
        self._in_flight += 1
        self.records.sent_ns[request] = now_ns
        spec = self._specs[0]
        front = spec.front_ns + spec.front_token_ns * int(self.requests.input_tokens[request])
        heapq.heappush(self._events, (now_ns + front, _ARRIVE, request))

    def _finished(self, request: int, time_ns: int) -> None:
        heapq.heappush(self._events, (time_ns, _DONE, request))

    def _answered(self, request: int, now_ns: int) -> None:
        self._in_flight -= 1
        for later in self._later.get(request, ()):
            time_ns = now_ns + int(self.requests.pause_ns[later])
            time_ns = max(time_ns, int(self.requests.arrival_ns[later]))
            heapq.heappush(self._events, (time_ns, _SEND, later))
        if self._ready:
            heapq.heappush(self._events, (now_ns, _SEND, heapq.heappop(self._ready)))

    def _replica(self, number: int, spec: ReplicaSpec) -> Replica:
        groups = [Group(self.sequences, spec.layout, spec.limits) for _ in range(spec.groups)]
        return Replica(
            number,
            Stepper(spec.prices),
            [spec.policy(group) for group in groups],
            self.requests.output_tokens,
            self.records,
            spec.back_ns,
            self._finished,
        )

    def _check(self) -> None:
        """Refuses what can never run."""
        limits, layout = self._specs[0].limits, self._specs[0].layout
        longest = int((self.requests.input_tokens + self.requests.output_tokens).max())
        if layout.of_one(longest) > limits.blocks:
            raise SilicastError(
                f"the longest request has {longest} tokens and needs {layout.of_one(longest)} "
                f"blocks of the KV cache, which has {limits.blocks}",
                field="workload",
                hint="shorter requests, more or larger devices, or a smaller KV format",
            )


def _in_turn() -> Router:
    turn = iter(range(1 << 62))

    def chosen(request: int, replicas: Sequence[Replica]) -> int:  # noqa: ARG001
        return next(turn) % len(replicas)

    return chosen
