"""Jobs on a network, from event to event: a message starts, is sent, or arrives.

Between events all messages under way have max-min fair rates, so that the number of events depends
on the number of messages, never on their bytes. Where all jobs repeat the same round in the same
way, whole periods are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.communication.flows._state import State
from silicast.communication.flows.folding import Classes, classes_of
from silicast.communication.flows.job import Job, check_jobs
from silicast.communication.flows.product import Fabric


@final
@dataclass(frozen=True)
class JobTime:
    """When a job ran, seconds from the start of all."""

    start_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


@final
@dataclass(frozen=True)
class JobOutcomes:
    """What became of all jobs.

    Attributes:
        jobs: by name.
        events: at which rates were found anew.
        messages: of one run of every round; classes: as which they were simulated.
        busiest: name of the link that carries the most for its capacity.
        busy_share: how much of the whole time that link would need at full rate, 0..1.
    """

    jobs: Mapping[str, JobTime]
    events: int
    messages: int
    classes: int
    busiest: str
    busy_share: float

    @property
    def end_s(self) -> float:
        """When the last job ended."""
        return max(job.end_s for job in self.jobs.values())


def simulate(fabric: Fabric, jobs: Sequence[Job], *, fold: bool = True) -> JobOutcomes:
    """Runs all jobs at once.

    A message takes the latency of its links, and its bytes at the fair share of the narrowest.

    Args:
        fold: simulate alike ranks, messages and links as one; the same times either way.

    Raises:
        SilicastError: as :func:`~silicast.communication.flows.job.check_jobs`, or a target that
            cannot be reached.

    >>> from silicast.communication.flows.groups import rounds_of
    >>> from silicast.communication.flows.product import rail_cluster
    >>> cluster = rail_cluster(128, 8, node_bytes_per_s=450e9, network_bytes_per_s=50e9)
    >>> job = Job("a", tuple(range(1024)), rounds_of("all_reduce", "ring", 1024, 2.0**30))
    >>> done = simulate(cluster, [job])
    >>> round(done.end_s * 1e3, 3), done.messages, done.classes
    (42.908, 1024, 8)
    """
    check_jobs(fabric, jobs)
    classes = classes_of(fabric, jobs, fold=fold)
    state = State(classes, jobs)
    times = state.run()
    table = {job.name: JobTime(start, end) for job, (start, end) in zip(jobs, times, strict=True)}
    name, share = _busiest(fabric, classes, jobs, max(end for _, end in times))
    return JobOutcomes(table, state.events, classes.messages, len(classes.size), name, share)


def slowdowns(fabric: Fabric, jobs: Sequence[Job]) -> dict[str, float]:
    """How many times longer each job takes beside the others than alone; 1 for one without work.

    >>> from silicast.communication.flows.groups import rounds_of
    >>> from silicast.communication.flows.product import rail_cluster
    >>> cluster = rail_cluster(4, 1, node_bytes_per_s=1e12, network_bytes_per_s=50e9,
    ...                        nodes_per_pod=2, oversubscription=2.0)
    >>> ring = rounds_of("all_reduce", "ring", 2, 1e9)
    >>> jobs = [Job("a", (0, 2), ring), Job("b", (1, 3), ring)]
    >>> slowdowns(cluster, jobs)
    {'a': 2.0, 'b': 2.0}
    """
    together = simulate(fabric, jobs)
    slowdowns = {}
    for job in jobs:
        alone = simulate(fabric, [Job(job.name, job.ranks, job.rounds)]).jobs[job.name].duration_s
        beside = together.jobs[job.name].duration_s
        slowdowns[job.name] = beside / alone if alone > 0.0 else 1.0
    return slowdowns


def _busiest(
    fabric: Fabric, classes: Classes, jobs: Sequence[Job], end_s: float
) -> tuple[str, float]:
    """The link with the most to carry for its capacity, and the share of the time it needs."""
    if not len(classes.link):
        return "", 0.0
    repeats = np.array([round_.repeat for job in jobs for round_ in job.rounds], dtype=np.float64)
    sent = classes.size * repeats[classes.round_of]
    carried = np.bincount(
        classes.link, classes.count * sent[classes.message], len(classes.capacity)
    )
    seconds = carried / classes.capacity
    index = int(np.argmax(seconds))
    share = float(seconds[index]) / end_s if end_s > 0.0 else 0.0
    return fabric.link_name(int(classes.one_link[index])), min(share, 1.0)
