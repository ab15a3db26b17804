"""What runs on a network: jobs, whose ranks send messages in rounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.communication.flows.product import Fabric
from silicast.core.errors import SilicastError, unknown_name
from silicast.core.numerics import F64, I64


@final
@dataclass(frozen=True, eq=False)
class Round:
    """Messages that all ranks of a job may send at once, and how often in succession.

    A rank sends its messages of a round once it has sent and received all of the round before;
    it waits for no other rank.

    Attributes:
        source, target: ranks of the job, counted from 0, int64 of shape (messages,).
        size: bytes of each message, shape (messages,).
        repeat: how often the round is run, each run after the other.
        delay_s: seconds of a rank's own before each run, such as for adding what it received.
    """

    source: I64
    target: I64
    size: F64
    repeat: int = 1
    delay_s: float = 0.0

    @staticmethod
    def from_messages(
        source: Sequence[int] | I64,
        target: Sequence[int] | I64,
        size: float | Sequence[float] | F64,
        repeat: int = 1,
        delay_s: float = 0.0,
    ) -> Round:
        """A round from lists; one size stands for all messages."""
        start = np.asarray(source, dtype=np.int64)
        sizes = np.asarray(size, dtype=np.float64)
        if sizes.ndim == 0:
            sizes = np.full(len(start), float(sizes))
        return Round(start, np.asarray(target, dtype=np.int64), sizes, repeat, delay_s)


@final
@dataclass(frozen=True, eq=False)
class Job:
    """Rounds of messages between some ranks of a network, such as one collective.

    Attributes:
        name: by which others wait for it.
        ranks: where the job's ranks are on the network.
        rounds: in order.
        delay_s: when it starts, counted from the end of the last job of ``after``.
        after: jobs that end before.
    """

    name: str
    ranks: tuple[int, ...]
    rounds: tuple[Round, ...]
    delay_s: float = 0.0
    after: tuple[str, ...] = ()


def check_jobs(fabric: Fabric, jobs: Sequence[Job]) -> None:
    """Refuses what cannot run, and says what and where.

    Raises:
        SilicastError: no jobs or two of one name, ranks that the network has not, messages without
            both ends or between no ranks of the job, a job that waits for itself or for none.
    """
    if not jobs:
        raise SilicastError("no job to run", field="jobs")
    names = [job.name for job in jobs]
    for name in names:
        if names.count(name) > 1:
            raise SilicastError(f"two jobs are called {name!r}", field="jobs")
    for job in jobs:
        _check_ranks(fabric, job)
        for number, round_ in enumerate(job.rounds):
            _check_round(job, round_, f"jobs.{job.name}.rounds.{number}")
        if not (job.delay_s >= 0.0 and math.isfinite(job.delay_s)):
            raise SilicastError(f"starts at {job.delay_s:g} s", field=f"jobs.{job.name}.delay_s")
        for needed in job.after:
            if needed not in names:
                raise unknown_name(
                    f"waits for {needed!r}, and no job is called so",
                    f"jobs.{job.name}.after",
                    f"jobs are {', '.join(names[:8])}",
                )
    _check_order(jobs)


def _check_ranks(fabric: Fabric, job: Job) -> None:
    field = f"jobs.{job.name}.ranks"
    if not job.ranks:
        raise SilicastError("a job without ranks", field=field)
    for rank in job.ranks:
        if not 0 <= rank < fabric.ranks:
            raise SilicastError(
                f"rank {rank} of a network of {fabric.ranks}",
                field=field,
                hint=f"0 to {fabric.ranks - 1}",
            )
    if len(set(job.ranks)) != len(job.ranks):
        twice = next(rank for rank in job.ranks if job.ranks.count(rank) > 1)
        raise SilicastError(f"rank {twice} stands twice", field=field, hint="each rank once")


def _check_round(job: Job, round_: Round, field: str) -> None:
    lengths = {len(round_.source), len(round_.target), len(round_.size)}
    if len(lengths) != 1:
        raise SilicastError(
            f"{len(round_.source)} senders, {len(round_.target)} receivers, "
            f"{len(round_.size)} sizes",
            field=field,
            hint="every message has one of each",
        )
    if round_.repeat < 1:
        raise SilicastError(
            f"runs {round_.repeat} times", field=f"{field}.repeat", hint="1 or more"
        )
    if not (round_.delay_s >= 0.0 and math.isfinite(round_.delay_s)):
        raise SilicastError(f"{round_.delay_s:g} s", field=f"{field}.delay_s", hint="0 or more")
    for end, ends in (("source", round_.source), ("target", round_.target)):
        wrong = ends[(ends < 0) | (ends >= len(job.ranks))]
        if len(wrong):
            raise SilicastError(
                f"rank {int(wrong[0])} of a job of {len(job.ranks)}",
                field=f"{field}.{end}",
                hint=f"0 to {len(job.ranks) - 1}: the other end of its message waits for ever",
            )
    alone = round_.source[round_.source == round_.target]
    if len(alone):
        raise SilicastError(f"rank {int(alone[0])} sends to itself", field=field)
    bad = ~(np.isfinite(round_.size) & (round_.size >= 0.0))
    if bad.any():
        raise SilicastError(f"a message of {round_.size[bad][0]:g} bytes", field=f"{field}.size")


def _check_order(jobs: Sequence[Job]) -> None:
    """Refuses jobs that wait in a circle, with the circle.

    Raises:
        SilicastError: there is one.
    """
    after = {job.name: job.after for job in jobs}
    done: set[str] = set()
    for job in jobs:
        if circle := _circle(after, job.name, done):
            raise SilicastError(
                f"jobs wait in a circle: {' -> '.join(circle)}",
                field=f"jobs.{circle[0]}.after",
                hint="each waits for the next; leave one of them out",
            )


def _circle(after: dict[str, tuple[str, ...]], start: str, done: set[str]) -> list[str]:
    """The names of a circle that ``start`` leads into; none if there is none."""
    path: list[str] = [start]
    waiting: list[Iterable[str]] = [iter(after[start])]
    while path:
        following = next(iter(waiting[-1]), None)
        if following is None:
            done.add(path.pop())
            waiting.pop()
        elif following in path:
            return [*path[path.index(following) :], following]
        elif following not in done:
            path.append(following)
            waiting.append(iter(after[following]))
    return []
