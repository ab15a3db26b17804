"""What holds up a step beside its work: batches that are not there yet, and checkpoints.

A loader that works beside the step holds it up by what it takes longer; else by all of it. A
checkpoint holds a run up until it is written or, where it is written beside the steps, until the
devices have copied their states to their hosts, and while the one before is still being written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import final

from silicast.core.errors import SilicastError
from silicast.core.prediction import Part, Prediction, to_picoseconds


@final
@dataclass(frozen=True, slots=True)
class Loading:
    """The batches of a step.

    Attributes:
        seconds: that a step's batches take to load; overlaps: while the step before runs.
    """

    seconds: float
    overlaps: bool = True

    def __post_init__(self) -> None:
        if not 0.0 <= self.seconds < math.inf:
            raise SilicastError(f"is {self.seconds:g}, expected a time", field="data_loading")

    def total_s(self, step_s: float) -> float:
        """A step with what it waits for its batches.

        >>> Loading(3.0).total_s(2.0), Loading(3.0, overlaps=False).total_s(2.0)
        (3.0, 5.0)
        """
        return max(step_s, self.seconds) if self.overlaps else step_s + self.seconds

    def beside(self, step: Prediction) -> Prediction:
        """:meth:`total_s` as a part of the step, whose errors stay the relative ones."""
        load, exposed_ps = to_picoseconds(self.seconds), step.part.exposed_ps
        waits = max(load - exposed_ps, 0) if self.overlaps else load
        part = Part("data_loading", waits, load - waits, bound_by="host")
        return replace(step, part=Part.group(step.part.name, (*_children(step.part), part)))


def _children(part: Part) -> tuple[Part, ...]:
    return part.children or (part,)


@final
@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint of all states.

    Attributes:
        size: bytes of all ranks together.
        write_s: until it is written.
        copy_s: until each device has copied its part to its host.
        beside: it is written while the run goes on.

    >>> Checkpoint(10**12, 100.0, 2.0, beside=True).stall_s(600.0)
    2.0
    >>> Checkpoint(10**12, 100.0, 2.0, beside=True).stall_s(60.0)
    40.0
    """

    size: int
    write_s: float
    copy_s: float = 0.0
    beside: bool = False

    @staticmethod
    def from_sizes(
        size: int, ranks: int, storage_bytes_per_s: float, link_bytes_per_s: float | None = None
    ) -> Checkpoint:
        """Of so many bytes, of which each rank writes as much.

        Args:
            storage_bytes_per_s: of all ranks together.
            link_bytes_per_s: of each to its host, where it is written beside the steps; else None.

        Raises:
            SilicastError: a rate is none.
        """
        for field, rate in (
            ("storage_gb_per_s", storage_bytes_per_s),
            ("link_gb_per_s", link_bytes_per_s),
        ):
            if rate is not None and not rate > 0.0:
                raise SilicastError(f"is {rate:g}, expected above 0", field=field)
        write_s = size / storage_bytes_per_s
        if link_bytes_per_s is None:
            return Checkpoint(size, write_s)
        return Checkpoint(size, write_s, size / ranks / link_bytes_per_s, beside=True)

    def stall_s(self, interval_s: float) -> float:
        """For which one holds up the run, of which ``interval_s`` lie between two."""
        if not self.beside:
            return self.write_s
        return max(self.copy_s, self.write_s - interval_s)

    @property
    def least_interval_s(self) -> float:
        """The shortest interval in which it holds the run up for its own copy alone."""
        return max(self.write_s - self.copy_s, 0.0) if self.beside else 0.0

    @property
    def lag_s(self) -> float:
        """Work behind a checkpoint that is lost with it where the run fails: it is not yet written
        when the run goes on.
        """
        return self.write_s if self.beside else 0.0
