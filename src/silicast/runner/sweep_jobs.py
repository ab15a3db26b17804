"""Sweeps of callers who do not wait for them: begun, looked at, taken answers from, cancelled."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import Literal, final

import msgspec

from silicast.runner.lines import Line
from silicast.runner.pool import AnswerPool, TooSlowError
from silicast.runner.replies import Replied, too_costly
from silicast.runner.space_layout import LaidOutPoint, SpaceLayout
from silicast.runner.worker import SpaceText

TOGETHER = 16
"""Points that a process answers together; one that is late is answered again alone."""
State = Literal["running", "done", "cancelled", "stopped"]


@final
@dataclass(frozen=True, kw_only=True)
class SweepLimits:
    """What sweeps may take.

    Attributes:
        points: of one, legal or not; jobs: that run at the same time, and that are kept after that.
        seconds, answer_bytes: of one, after which it is stopped.
    """

    points: int = 10_000
    jobs: int = 4
    seconds: float = 3600.0
    answer_bytes: int = 64 << 20


@final
class SweepStatus(msgspec.Struct, frozen=True):
    """How far a sweep is.

    Attributes:
        points: legal ones; ruled_out: others, by the constraint that they break.
        answered, refused: points; ``answered + refused`` rows can be taken.
        state: "stopped" = a limit of the server ended it, ``reason`` says which.
    """

    id: str
    state: State
    points: int
    answered: int
    refused: int
    ruled_out: dict[str, int]
    reason: str = ""


@final
class SweepJob:
    """A sweep; its rows grow in the order of points."""

    def __init__(self, layout: SpaceLayout) -> None:
        self.layout, self.name = layout, secrets.token_hex(16)
        self.state: State = "running"
        self.reason, self.rows = "", list[bytes]()
        self.refused = self.size = 0
        self.task: asyncio.Task[None] | None = None

    @property
    def status(self) -> SweepStatus:
        return SweepStatus(
            self.name,
            self.state,
            len(self.layout.points),
            sum((len(self.rows), -self.refused)),
            self.refused,
            self.layout.ruled_out,
            self.reason,
        )

    def add(self, point: LaidOutPoint, replied: Replied) -> None:
        """Takes the answer to a point."""
        row = b'{"fields":%b,"reply":%b}\n' % (bytes(point.fields), replied.line.rstrip(b"\n"))
        self.rows.append(row)
        self.size += len(row)
        self.refused += not replied.ok

    def stop(self, state: State, reason: str = "") -> None:
        """Ends it, once; what it works on is killed."""
        if self.state == "running":
            self.state, self.reason = state, reason
            if self.task is not None:
                self.task.cancel()


class TooManySweepsError(Exception):
    """As many sweeps run as may."""


@final
class SweepJobs:
    """Sweeps of one event loop; a pool answers their points behind all other requests."""

    def __init__(self, pool: AnswerPool, limits: SweepLimits) -> None:
        self._pool, self._limits = pool, limits
        self._jobs: dict[str, SweepJob] = {}

    @property
    def running(self) -> list[SweepJob]:
        return [job for job in self._jobs.values() if job.state == "running"]

    async def begin(self, content: bytes) -> SweepJob | Replied:
        """A sweep of a space that JSON states, or the space's refusal.

        Raises:
            TooManySweepsError, TooBusyError, TooSlowError: it was not begun.
        """
        if len(self.running) >= self._limits.jobs:
            raise TooManySweepsError
        (laid_out,) = await self._pool.answer(SpaceText(content, self._limits.points))
        if not laid_out.ok:
            return laid_out
        if len(self.running) >= self._limits.jobs:  # others began meanwhile
            raise TooManySweepsError
        job = SweepJob(msgspec.json.decode(laid_out.line, type=SpaceLayout))
        ended = [name for name, each in self._jobs.items() if each.state != "running"]
        for name in ended[: -self._limits.jobs + 1 or None]:
            del self._jobs[name]
        self._jobs[job.name] = job
        loop = asyncio.get_running_loop()
        job.task = loop.create_task(self._answer(job))
        reason = f"took longer than {self._limits.seconds:g} s"
        timer = loop.call_later(self._limits.seconds, job.stop, "stopped", reason)
        job.task.add_done_callback(lambda _: timer.cancel())
        return job

    def find(self, name: str) -> SweepJob | None:
        """A sweep that runs, or one of the last that ended."""
        return self._jobs.get(name)

    def end(self) -> None:
        """Cancels all."""
        for job in self.running:
            job.stop("cancelled")

    async def _answer(self, job: SweepJob) -> None:
        points = job.layout.points
        for start in range(0, len(points), TOGETHER):
            batch = points[start : start + TOGETHER]
            lines: list[Line] = [(start + at, bytes(point.case)) for at, point in enumerate(batch)]
            for point, replied in zip(batch, await self._replies(lines), strict=True):
                job.add(point, replied)
            if job.size > self._limits.answer_bytes:
                job.stop("stopped", f"its answers have more than {self._limits.answer_bytes} bytes")
        if job.state == "running":
            job.state = "done"

    async def _replies(self, lines: list[Line]) -> list[Replied]:
        """Answers; a point that is late or kills its process costs itself alone."""
        try:
            replied = await self._pool.answer(lines, is_patient=True)
            if len(lines) == 1 or not any(_is_broken(each) for each in replied):
                return replied
        except TooSlowError:
            if len(lines) == 1:
                return [
                    Replied.from_reply(too_costly("took longer than a request may", lines[0][0]))
                ]
        return [row for line in lines for row in await self._replies([line])]


def _is_broken(replied: Replied) -> bool:
    return not replied.ok and b'"kind":"internal"' in replied.line
