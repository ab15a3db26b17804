"""Requests meet replicas: the event loop.

Events are of six kinds: a client has its answer, a client may send a request, a cache has moved
from a replica that prefills to one that decodes, a request reaches an engine, an idle engine
starts, a step ends. They are taken in order of time, at the same time in this order, then by
number.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from silicast.composition.prices.stepper import Stepper, StepPricing
from silicast.core.errors import SilicastError
from silicast.serving.kv.kv_pool import KvLayout
from silicast.serving.simulation.replica import Replica, Role
from silicast.serving.simulation.routers import LeastLoaded, RoundRobin, Router
from silicast.serving.simulation.scheduler import Limits, QueueGroup, Scheduler, SimulatedRequests
from silicast.serving.simulation.speculation import Acceptance
from silicast.serving.statistics.records import Records
from silicast.serving.statistics.steady import keeps_up, saturated_window, steady_window
from silicast.serving.traffic.requests import Requests

_DONE, _SEND, _MOVED, _ARRIVE, _WAKE, _END = range(6)
ASKED_EVERY = 64
"""Steps between two questions whether to stop."""


@final
@dataclass(frozen=True)
class ReplicaSpec:
    """What a replica is made of.

    Attributes:
        prices: of its steps; ``policy``: class of the schedulers.
        limits: of each group; ``groups``: of attention_dp.
        front_ns: what an engine's one front process takes for a request, before it can be
            scheduled; ``front_token_ns``: on top, per token of the prompt.
        back_ns: from the end of a step until the client has its token.
        accepted: drafted tokens that a step adds; None = none are drafted.
    """

    prices: StepPricing
    policy: type[Scheduler]
    limits: Limits
    layout: KvLayout
    groups: int = 1
    front_ns: int = 0
    front_token_ns: int = 0
    back_ns: int = 0
    role: Role = ""
    accepted: Acceptance | None = None

    def front_of(self, prompts: Any) -> Any:
        """Nanoseconds that the front takes for a prompt of so many tokens, or for several."""
        return self.front_ns + self.front_token_ns * prompts

    @property
    def tokens_a_step(self) -> float:
        """Tokens that a decoding sequence gains in a step, on average."""
        return 1.0 if self.accepted is None else self.accepted.mean


@final
@dataclass(frozen=True)
class KvLink:
    """What caches move over between replicas, of each rank.

    A replica sends one cache at a time, and takes in one at a time; they wait in order.

    Attributes:
        block_bytes: of a rank's block of the cache.
    """

    bytes_per_s: float
    latency_ns: int
    block_bytes: int

    def time_ns(self, blocks: int) -> int:
        return self.latency_ns + round(blocks * self.block_bytes / self.bytes_per_s * 1e9)


@final
class Simulation:
    """Requests on replicas.

    Args:
        specs: one a replica; where some only decode, the others' caches move to them.
        router: class of what chooses a replica; ``seed``: of its choices.
        link: between replicas of different roles.
        held: whether each request is sent only once :meth:`release` says so; None = none is.

    Attributes:
        done: called with a request and the time in ns when its client has its last token.

    Raises:
        SilicastError: a request can never run.
    """

    def __init__(
        self,
        requests: Requests,
        specs: Sequence[ReplicaSpec],
        router: type[Router] = RoundRobin,
        seed: int = 0,
        link: KvLink | None = None,
        held: NDArray[np.bool_] | None = None,
    ) -> None:
        self.requests = requests
        self.done: Callable[[int, int], None] | None = None
        self.sequences = SimulatedRequests(
            requests.input_tokens, requests.output_tokens, requests.content
        )
        self.records = Records(requests, self.sequences)
        self._specs, self._link = list(specs), link
        self._router = router(requests, seed)
        self._decode_router = LeastLoaded(requests)
        self.replicas = [self._replica(number, spec) for number, spec in enumerate(specs)]
        self._entries = [each for each in self.replicas if each.role != "decode"]
        self._decoders = [each for each in self.replicas if each.role == "decode"]
        self._sends_ns, self._takes_ns = [0] * len(specs), [0] * len(specs)
        self._moving: dict[int, tuple[Replica, Replica]] = {}
        self._events: list[tuple[int, int, int]] = []
        self._warming, self._measured_ns = requests.warm_up, 0
        if self._warming:
            later = np.arange(len(requests)) >= self._warming
            held = later if held is None else held | later
        order = np.argsort(requests.arrival_ns, kind="stable")
        self._order = (order if held is None else order[~held[order]]).tolist()
        # single numbers of these are read quicker than of arrays
        self._arrival, self._after = (
            np.ascontiguousarray(each).data for each in (requests.arrival_ns, requests.after)
        )
        self._next = 0
        self._ended = (-1, -1)
        self._in_flight = 0
        self._ready: list[int] = []
        self._fronts = [0] * max(len(self._entries), 1)
        self._later: dict[int, list[int]] = {}
        for request, before in enumerate(requests.after.tolist()):
            if before >= 0:
                self._later.setdefault(before, []).append(request)
        self._check()

    def run(self, stop: Callable[[int], bool] | None = None) -> Records:
        """Runs until every request is answered.

        Args:
            stop: asked now and then with the time in ns; True = leave the rest undone.
        """
        events, ends = self._events, 0
        while True:
            self._open()
            if not events:
                break
            now, kind, number = heapq.heappop(events)
            if self._take(now, kind, number):
                ends += 1
                if stop is not None and ends % ASKED_EVERY == 0 and stop(now):
                    self.records.end_ns = now
                    return self.records
        return self.close()

    @property
    def next_ns(self) -> int:
        """Time of the next event; -1 = there is none."""
        self._open()
        return self._events[0][0] if self._events else -1

    def release(self, request: int, now_ns: int) -> None:
        """A request that was held is sent now."""
        heapq.heappush(self._events, (now_ns, _SEND, request))

    def advance(self) -> None:
        """Takes the next event."""
        now, kind, number = heapq.heappop(self._events)
        self._take(now, kind, number)

    def reschedule(self, replica: Replica) -> None:
        """The step under way of a replica ends at another time than before."""
        self._push(replica)

    def _take(self, now: int, kind: int, number: int) -> bool:
        """What an event changes; True = a step ended."""
        if kind == _DONE:
            self._answered(number, now)
        elif kind == _SEND:
            self._ready_to_send(number, now)
        elif kind == _ARRIVE:
            self.records.arrived_ns[number] = now
            self._arrive(self._router.choose(number, self._entries), number, now)
        elif kind == _MOVED:
            source, target = self._moving.pop(number)
            source.moved(number)
            self._arrive(target, number, now)
            self._wake(source, now)  # it has room again
        elif kind == _WAKE:
            replica = self.replicas[number]
            replica.wake(now, self._next_arrival_ns())
            self._push(replica)
        else:
            replica = self.replicas[number]
            if replica.next_ns != now:
                return False  # the stretch was cut
            self._ended = (now, number)
            replica.end(now, self._next_arrival_ns())
            self._push(replica)
            return True
        return False

    def close(self) -> Records:
        """What was observed, when there are no more events.

        Raises:
            SilicastError: a request was not answered.
        """
        requests = self.requests
        unanswered = int((self.records.done_ns < 0).sum())
        if unanswered:
            raise SilicastError(
                f"{unanswered} of {len(requests)} requests can never run", kind="internal"
            )
        self.records.end_ns = int(self.records.done_ns.max())
        if requests.steady:
            self.records.window_ns = steady_window(self.records)
            if self.records.window_ns is not None and not keeps_up(self.records):
                self.records.worked_ns = saturated_window(self.records)
        elif requests.warm_up:
            self.records.window_ns = self._measured_ns, self.records.end_ns + 1
        return self.records

    def _measure(self, now_ns: int) -> None:
        """The last request of the warm-up is answered: the others come from now on."""
        self._measured_ns = now_ns
        self.records.forget_warm_up()
        first = self.requests.warm_up
        begin_ns = int(self.requests.arrival_ns[first:].min())
        for request in range(first, len(self.requests)):
            time_ns = now_ns + self._arrival[request] - begin_ns
            heapq.heappush(self._events, (time_ns, _SEND, request))

    def _arrive(self, replica: Replica, request: int, now_ns: int) -> None:
        time_ns, number = self._ended  # ends at one time are taken by number
        replica.arrive(request, now_ns, passed=time_ns == now_ns and replica.number < number)
        self._wake(replica, now_ns)

    def _wake(self, replica: Replica, now_ns: int) -> None:
        if replica.ready:
            heapq.heappush(self._events, (now_ns, _WAKE, replica.number))
        self._push(replica)

    def _hand_over(self, request: int, source: Replica, now_ns: int) -> None:
        """A prompt is complete where nothing is decoded: its cache moves."""
        assert self._link is not None
        target = self._decode_router.choose(request, self._decoders)
        target.outstanding += 1
        start = max(now_ns, self._sends_ns[source.number], self._takes_ns[target.number])
        blocks = source.groups[0].layout.of_one(self.sequences.at_cached[request])
        end = start + self._link.time_ns(blocks)
        self._sends_ns[source.number] = self._takes_ns[target.number] = end
        self.records.first_ns[request] = end + self._specs[target.number].back_ns
        self.records.moving_ns[request] = end - now_ns
        self._moving[request] = (source, target)
        heapq.heappush(self._events, (end, _MOVED, request))

    def _open(self) -> None:
        """Adds sends up to the next event, so that the heap stays small."""
        while self._next < len(self._order):
            request = self._order[self._next]
            if self._after[request] >= 0:
                self._next += 1
                continue
            arrival_ns = self._arrival[request]
            if self._events and arrival_ns > self._events[0][0]:
                return
            heapq.heappush(self._events, (arrival_ns, _SEND, request))
            self._next += 1

    def _next_arrival_ns(self) -> int:
        """The next request that is known to come; -1 = none."""
        next_arrival_ns = -1
        for time_ns, kind, _ in self._events[:3]:
            if kind != _END and (next_arrival_ns < 0 or time_ns < next_arrival_ns):
                next_arrival_ns = time_ns
        if self._next < len(self._order) and not self.requests.concurrency:
            time_ns = self._arrival[self._order[self._next]]
            if next_arrival_ns < 0 or time_ns < next_arrival_ns:
                next_arrival_ns = time_ns
        return next_arrival_ns

    def _push(self, replica: Replica) -> None:
        if replica.next_ns >= 0:
            heapq.heappush(self._events, (replica.next_ns, _END, replica.number))
        elif replica.ask_ns >= 0:
            heapq.heappush(self._events, (replica.ask_ns, _WAKE, replica.number))

    def _ready_to_send(self, request: int, now_ns: int) -> None:
        limit = self.requests.concurrency
        if limit and self._in_flight >= limit:
            heapq.heappush(self._ready, request)
            return
        self._send(request, now_ns)

    def _send(self, request: int, now_ns: int) -> None:
        self._in_flight += 1
        self.records.sent_ns[request] = now_ns
        spec = self._specs[self._entries[0].number]
        front = spec.front_of(int(self.requests.input_tokens[request]))
        through = max(self._fronts[0], now_ns) + front  # one request after the other
        heapq.heapreplace(self._fronts, through)
        heapq.heappush(self._events, (through, _ARRIVE, request))

    def _finished(self, request: int, time_ns: int) -> None:
        heapq.heappush(self._events, (time_ns, _DONE, request))

    def _answered(self, request: int, now_ns: int) -> None:
        self._in_flight -= 1
        if self.done is not None:
            self.done(request, now_ns)
        if request < self.requests.warm_up:
            self._warming -= 1
            if not self._warming:
                self._measure(now_ns)
        for later in self._later.get(request, ()):
            time_ns = now_ns + int(self.requests.pause_ns[later])
            time_ns = max(time_ns, int(self.requests.arrival_ns[later]))
            heapq.heappush(self._events, (time_ns, _SEND, later))
        if self._ready:
            heapq.heappush(self._events, (now_ns, _SEND, heapq.heappop(self._ready)))

    def _replica(self, number: int, spec: ReplicaSpec) -> Replica:
        groups = [QueueGroup(self.sequences, spec.layout, spec.limits) for _ in range(spec.groups)]
        return Replica(
            number,
            Stepper(spec.prices),
            [spec.policy(group) for group in groups],
            self.requests.output_tokens,
            self.records,
            spec.back_ns,
            self._finished,
            spec.role,
            self._hand_over,
            spec.accepted,
        )

    def _check(self) -> None:
        """Refuses what can never run."""
        decodes = {spec.role for spec in self._specs}
        if ("prefill" in decodes) != ("decode" in decodes) or not self._entries:
            raise SilicastError(
                "pools that only prefill need pools that decode, and the reverse", field="pools"
            )
        if self._decoders and self._link is None:
            raise SilicastError("nothing joins prefill and decode", field="links")
        for spec in self._specs:
            prompts, outputs = self.requests.input_tokens, self.requests.output_tokens
            longest = int((prompts if spec.role == "prefill" else prompts + outputs).max())
            if longest > spec.limits.model_tokens:
                raise SilicastError(
                    f"the longest request has {longest} tokens, and the engine takes at most "
                    f"{spec.limits.model_tokens} (max_model_len)",
                    field="workload",
                    hint="shorter requests or a larger max_model_len",
                )
            longest += spec.limits.drafted
            blocks = spec.layout.of_one(longest)
            if blocks > spec.limits.blocks:
                raise SilicastError(
                    f"the longest request has {longest} tokens and needs {blocks} blocks of the KV "
                    f"cache, which has {spec.limits.blocks}",
                    field="workload",
                    hint="shorter requests, more or larger devices, or a smaller KV format",
                )
