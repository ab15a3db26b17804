"""The state of a simulation and what changes it; :mod:`.simulation` says what it is for."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import final

import numpy as np

from silicast.communication.flows.fair_share import sharings
from silicast.communication.flows.folding import Classes
from silicast.communication.flows.job import Job

SAME_TIME = 1e-14
"""Events nearer to each other than this share of the time are at once."""
DIGITS = 10
"""Digits of a state by which it is recognised; a period is repeated at most so inexactly."""

REMEMBERED = 256
"""States among which a period is looked for."""

_START, _ARRIVE, _BEGIN, _SENT = 0, 1, 2, 3

Key = tuple[object, ...]


@final
class State:
    """Where every class of ranks and messages stands.

    Rounds are numbered over all jobs. ``done[m]`` counts the runs of its round that message class
    ``m`` has arrived in; rank class ``r`` is in run ``run[r]`` of round ``at[r]``.
    """

    def __init__(self, classes: Classes, jobs: Sequence[Job]) -> None:
        self._classes, self._jobs = classes, jobs
        rounds = [(j, round_) for j, job in enumerate(jobs) for round_ in job.rounds]
        self._repeat = [round_.repeat for _, round_ in rounds]
        self._delay = [round_.delay_s for _, round_ in rounds]
        self._last = [0] * len(jobs)
        self._first = [0] * len(jobs)
        number = 0
        for j, job in enumerate(jobs):
            self._first[j], self._last[j] = number, number + len(job.rounds)
            number += len(job.rounds)
        self._sender, self._receiver = classes.sender.tolist(), classes.receiver.tolist()
        self._size: list[float] = classes.size.tolist()
        self._latency: list[float] = classes.latency_s.tolist()
        self._job_of: list[int] = classes.job_of.tolist()
        self._sends: dict[tuple[int, int], list[int]] = {}
        self._takes_part: dict[tuple[int, int], list[int]] = {}
        for m, r in enumerate(classes.round_of.tolist()):
            self._sends.setdefault((r, self._sender[m]), []).append(m)
            for end in {self._sender[m], self._receiver[m]}:
                self._takes_part.setdefault((r, end), []).append(m)
        self._messages_of: list[list[int]] = [[] for _ in rounds]
        for m, r in enumerate(classes.round_of.tolist()):
            self._messages_of[r].append(m)
        self._ranks_of = [
            [r for r, owner in enumerate(self._job_of) if owner == j] for j in range(len(jobs))
        ]
        ranks = len(self._job_of)
        self._at = [self._first[owner] for owner in self._job_of]
        self._run = [0] * ranks
        self._done = [0] * len(self._size)
        self._open = [len(group) for group in self._ranks_of]
        self._started = [-1.0] * len(jobs)
        self._ended = [-1.0] * len(jobs)
        self._waits = [set(job.after) for job in jobs]
        self._sharing, self._shared_by = sharings(classes)
        self._changed: dict[int, None] = {}
        self._queue: list[tuple[float, int, int, int]] = []
        self._now = 0.0
        self._seen: dict[Key, tuple[float, list[int]]] = {}
        self._laps, self._lapped = -1, False
        self._unit = self._time_unit()
        self.events = 0

    def _time_unit(self) -> float:
        """The shortest that a message can take, for comparing states."""
        narrow = np.full(len(self._size), np.inf)
        classes = self._classes
        np.minimum.at(narrow, classes.message, classes.capacity[classes.link])
        alone = classes.latency_s + classes.size / narrow
        positive = alone[alone > 0.0]
        return float(positive.min()) if len(positive) else 1.0

    def run(self) -> list[tuple[float, float]]:
        """Start and end of every job, seconds."""
        for j, job in enumerate(self._jobs):
            if not self._waits[j]:
                self._later(job.delay_s, _BEGIN, j)
        while self._queue:
            self._next_event()
            self.events += 1
            if self._lapped:
                self._lapped = False
                self._skip_periods()
        return list(zip(self._started, self._ended, strict=True))

    def _next_event(self) -> None:
        """All that happens at the next time at which anything does."""
        self._now = self._queue[0][0]
        until = self._now * (1.0 + SAME_TIME)
        while self._queue and self._queue[0][0] <= until:
            _, event, which, stamp = heapq.heappop(self._queue)
            if event == _START:
                self._start(which)
            elif event == _ARRIVE:
                self._arrive(which)
            elif event == _BEGIN:
                self._begin(which)
            elif stamp == self._sharing[which].stamp:
                self._sent(which)
        for which in self._changed:
            sharing = self._sharing[which]
            if (span := sharing.priced()) is not None:
                self._later(span, _SENT, which, sharing.stamp)
        self._changed.clear()

    def _sent(self, sharing: int) -> None:
        for message in self._sharing[sharing].ended():
            self._later(self._latency[message], _ARRIVE, message)
        self._changed[sharing] = None

    def _later(self, seconds: float, event: int, which: int, stamp: int = 0) -> None:
        heapq.heappush(self._queue, (self._now + seconds, event, which, stamp))

    def _start(self, message: int) -> None:
        if self._size[message] == 0.0:
            self._later(self._latency[message], _ARRIVE, message)
            return
        which = self._shared_by[message]
        self._sharing[which].start(message, self._size[message], self._now)
        self._changed[which] = None

    def _begin(self, job: int) -> None:
        self._started[job] = self._now
        self._lapped = True
        self._seen.clear()  # a period that another job's start lies in does not repeat
        if self._first[job] == self._last[job]:
            self._open[job] = 0
            self._end(job)
            return
        for rank in self._ranks_of[job]:
            self._send(rank)
        for rank in self._ranks_of[job]:
            self._go_on(rank)

    def _end(self, job: int) -> None:
        self._ended[job] = self._now
        name = self._jobs[job].name
        for other, waits in enumerate(self._waits):
            if name in waits:
                waits.remove(name)
                if not waits:
                    self._later(self._jobs[other].delay_s, _BEGIN, other)

    def _send(self, rank: int) -> None:
        """The messages of the rank's own round."""
        at = self._at[rank]
        delay = self._delay[at]
        for message in self._sends.get((at, rank), ()):
            if delay > 0.0:
                self._later(delay, _START, message)
            else:
                self._start(message)

    def _arrive(self, message: int) -> None:
        self._done[message] += 1
        ends = (self._sender[message], self._receiver[message])
        for rank in dict.fromkeys(ends):
            self._go_on(rank)

    def _go_on(self, rank: int) -> None:
        """To the next round, as often as all that the rank takes part in is done."""
        job = self._job_of[rank]
        while self._at[rank] < self._last[job]:
            at, run = self._at[rank], self._run[rank]
            mine = self._takes_part.get((at, rank), ())
            if any(self._done[m] <= run for m in mine):
                return
            self._lapped |= run <= self._laps
            if mine and run + 1 < self._repeat[at]:
                self._run[rank] += 1
            else:
                self._at[rank], self._run[rank] = at + 1, 0
                self._lapped = True
                if at + 1 == self._last[job]:
                    self._open[job] -= 1
                    if not self._open[job]:
                        self._end(job)
                    return
            self._send(rank)

    def _skip_periods(self) -> None:
        """Repeats what went on between two equal states as often as no round ends meanwhile."""
        going = [j for j, n in enumerate(self._open) if n and self._started[j] >= 0.0]
        if not going:
            return
        groups = [self._ranks_of[j] for j in going]
        at = [self._at[group[0]] for group in groups]
        if any(self._at[rank] != a for a, group in zip(at, groups, strict=True) for rank in group):
            self._seen.clear()
            return
        least = [min(self._run[rank] for rank in group) for group in groups]
        if least[0] == self._laps:
            return
        self._laps = least[0]
        if len(self._seen) >= REMEMBERED:
            self._seen.clear()
        key = self._key(going, at, least)
        before = self._seen.get(key)
        self._seen[key] = (self._now, least)
        if before is not None:
            self._repeat_since(before, groups, at, least)

    def _key(self, going: list[int], at: list[int], least: list[int]) -> Key:
        """The state but for the time and how often rounds were run."""
        unit = self._unit
        runs, done = [], []
        for j, a, low in zip(going, at, least, strict=True):
            runs += [self._run[rank] - low for rank in self._ranks_of[j]]
            done += [self._done[m] - low for m in self._messages_of[a]]
        left = [
            (m, round(bytes_ / self._size[m], DIGITS))
            for sharing in self._sharing
            for m, bytes_ in sharing.left(self._now)
        ]
        queue = sorted(
            (event, which, round((when - self._now) / unit, DIGITS))
            for when, event, which, _ in self._queue
            if event in (_START, _ARRIVE)
        )
        return (tuple(going), tuple(at), tuple(runs), tuple(done), tuple(left), tuple(queue))

    def _repeat_since(
        self,
        before: tuple[float, list[int]],
        groups: list[list[int]],
        at: list[int],
        least: list[int],
    ) -> None:
        period = self._now - before[0]
        steps = [now - then for now, then in zip(least, before[1], strict=True)]
        most = []
        for group, a, step in zip(groups, at, steps, strict=True):
            if step > 0:
                ahead = max(self._run[rank] for rank in group)
                most.append((self._repeat[a] - 2 - ahead) // step)
        starts = [when for when, event, *_ in self._queue if event == _BEGIN]
        if starts and period > 0.0:
            most.append(int((min(starts) - self._now) / period) - 1)
        times = min(most, default=0)
        if times < 1:
            return
        for group, a, step in zip(groups, at, steps, strict=True):
            for rank in group:
                self._run[rank] += times * step
            for m in self._messages_of[a]:
                self._done[m] += times * step
        self._laps += times * steps[0]
        later = times * period
        self._now += later
        for sharing in self._sharing:
            sharing.since += later
        self._queue = [
            (when if event == _BEGIN else when + later, event, which, stamp)
            for when, event, which, stamp in self._queue
        ]
        heapq.heapify(self._queue)
        self._seen.clear()
