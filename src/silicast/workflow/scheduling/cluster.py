"""A cluster of unequal devices as a station: jobs run on what its policy gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from silicast.core.errors import over_limit
from silicast.workflow.run import Station
from silicast.workflow.scheduling.policy import (
    Allocation,
    ClusterJob,
    ClusterView,
    SchedulingPolicy,
)

NANO = 1e-9
MOST_ROUNDS = 100_000
"""Of one run; a month of jobs has 43,200 rounds of a minute."""


@final
class _Progress:
    """A job that has come.

    Attributes:
        left: share of its work; since_ns: the moment that ``left`` is of, later than now while the
            job starts; end_ns: when it ends on its devices.
    """

    def __init__(self, spec: ClusterJob, came_ns: int) -> None:
        self.spec, self.came_ns = spec, came_ns
        self.left, self.since_ns, self.end_ns = 1.0, 0, -1
        self.given: Allocation | None = None
        self.restarts, self.ran = 0, False

    def move_on(self, now_ns: int) -> None:
        """Takes note of what was done until now."""
        if self.given is not None and now_ns > self.since_ns:
            done = (now_ns - self.since_ns) * NANO * self.spec.rates[self.given] / self.spec.work
            self.left, self.since_ns = max(self.left - done, 0.0), now_ns


@final
class ClusterStation(Station):
    """Jobs on groups of devices.

    Args:
        jobs: by their number.
        devices: of each group.
        round_s: between two decisions of a policy that is periodic.
        restart_s: what a job loses that goes on elsewhere, or again.
    """

    def __init__(
        self,
        jobs: Mapping[int, ClusterJob],
        devices: Sequence[int],
        policy: SchedulingPolicy,
        round_s: float = 60.0,
        restart_s: float = 0.0,
    ) -> None:
        super().__init__()
        self._jobs, self._devices, self._policy = jobs, tuple(devices), policy
        self._round_ns, self._restart_s = round(round_s / NANO), restart_s
        self._current: dict[int, _Progress] = {}
        self._begun: dict[int, int] = {}
        self._next_round_ns = -1
        self._rounds = 0
        self.spans: list[tuple[int, int, int, int, int]] = []
        """Job, group, devices, and from when to when it had them, ns."""
        self._held_since: dict[int, int] = {}
        self.restarts: dict[int, int] = {}

    def submit(self, job: int, now_ns: int) -> None:
        self._current[job] = _Progress(self._jobs[job], now_ns)
        if self._policy.periodic and self._next_round_ns < 0:
            self._next_round_ns = now_ns + self._round_ns
        self._decide(now_ns, tick=False)

    @property
    def next_ns(self) -> int:
        ends = [
            progress.end_ns for progress in self._current.values() if progress.given is not None
        ]
        if self._next_round_ns >= 0:
            ends.append(self._next_round_ns)
        return min(ends, default=-1)

    def advance(self) -> None:
        now_ns = self.next_ns
        ended = [
            job
            for job, progress in self._current.items()
            if progress.given is not None and progress.end_ns <= now_ns
        ]
        for job in ended:
            self._release(job, now_ns)
            self.restarts[job] = self._current.pop(job).restarts
        tick = now_ns == self._next_round_ns
        if tick:
            self._count_round()
            self._next_round_ns = now_ns + self._round_ns if self._current else -1
        elif not self._current:
            self._next_round_ns = -1
        if self._current:
            self._decide(now_ns, tick=tick)
        for job in ended:
            self.ended(job, now_ns)

    def _count_round(self) -> None:
        """Ends what would not: rounds far shorter than jobs, or restarts as long as rounds."""
        self._rounds += 1
        if self._rounds > MOST_ROUNDS:
            raise over_limit(
                f"after {MOST_ROUNDS:,} rounds of {self._round_ns * NANO:g} s the jobs are not "
                f"done (restart_s is {self._restart_s:g})",
                "workload.scheduler.round_s",
                "state longer rounds, and restart_s below them",
            )

    def begun_ns(self, job: int) -> int:
        return self._begun[job]

    def busy_ns(self, first_ns: int, last_ns: int) -> int:
        return sum(self.busy_of(group, first_ns, last_ns) for group in range(len(self._devices)))

    def busy_of(self, group: int, first_ns: int, last_ns: int) -> int:
        """Time of the devices of one group in which a job has them."""
        return sum(
            count * max(min(end, last_ns) - max(begun, first_ns), 0)
            for _, its_group, count, begun, end in self.spans
            if its_group == group
        )

    def _decide(self, now_ns: int, *, tick: bool) -> None:
        for progress in self._current.values():
            progress.move_on(now_ns)
        allocations = self._policy.allocate(self._view(now_ns), tick=tick)
        used = [0] * len(self._devices)
        for job, (group, count) in allocations.items():
            used[group] += count
            if (group, count) not in self._jobs[job].rates or used[group] > self._devices[group]:
                raise ValueError(f"{self._policy.name} gives job {job} {count} of group {group}")
        for job, progress in self._current.items():
            if allocations.get(job) != progress.given:
                self._change(job, progress, allocations.get(job), now_ns)

    def _change(
        self, job: int, progress: _Progress, allocation: Allocation | None, now_ns: int
    ) -> None:
        """Gives a job other devices, or none."""
        if progress.given is not None:
            self._release(job, now_ns)
        progress.given, progress.end_ns = allocation, -1
        if allocation is None:
            return
        starts_ns = now_ns
        if progress.ran:
            progress.restarts += 1
            starts_ns += round(self._restart_s / NANO)
        progress.since_ns = starts_ns
        self._begun.setdefault(job, now_ns)
        self._held_since[job] = now_ns
        took = round(progress.left * progress.spec.work / progress.spec.rates[allocation] / NANO)
        progress.end_ns = starts_ns + took

    def _release(self, job: int, now_ns: int) -> None:
        progress, begun_ns = self._current[job], self._held_since.pop(job)
        assert progress.given is not None
        if now_ns > begun_ns:  # else it was given and taken in one moment
            self.spans.append((job, *progress.given, begun_ns, now_ns))
            progress.ran = True
        progress.given = None

    def _view(self, now_ns: int) -> ClusterView:
        current = self._current
        return ClusterView(
            self._devices,
            {job: progress.spec for job, progress in current.items()},
            {
                job: progress.given
                for job, progress in current.items()
                if progress.given is not None
            },
            {job: progress.left for job, progress in current.items()},
            {job: (now_ns - progress.came_ns) * NANO for job, progress in current.items()},
            {job: progress.restarts for job, progress in current.items()},
            self._restart_s,
        )
