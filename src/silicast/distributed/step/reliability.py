"""How much of a long run is useful: failures, restarts, checkpoints, and the time to N tokens.

Failures of n devices come at random, one in every ``mtbf / n`` in the mean, whatever happened
before (a Poisson process). After a failure the run restarts and repeats what it did since its last
checkpoint; a failure while it writes a checkpoint, or while it restarts, costs that too. Of this
the expectation is known exactly (Daly 2006); its distribution is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import final

import numpy as np

from silicast.core.catalog import CATALOG
from silicast.core.decode import Strict, read_table
from silicast.core.errors import SilicastError, over_limit, unknown_name
from silicast.core.numerics import F64, log_fixed
from silicast.distributed.ranks.dispersion import Dispersion

HOUR_S, DAY_S = 3600.0, 86400.0
_NEWTON_STEPS = 60
_MOST_FAILURES = 100_000
"""Of one run, where they are drawn."""


@final
class Published(Strict, frozen=True):
    """Interruptions of a run, or of a cluster, that were published."""

    gpus: int
    days: float
    interruptions: float

    @property
    def mtbf_gpu_s(self) -> float:
        """Time of one GPU between interruptions."""
        return self.gpus * self.days * DAY_S / self.interruptions


@final
class Defaults(Strict, frozen=True):
    """What is taken where nothing is stated."""

    run: str
    gpu_log_sd: float
    straggler_share: float
    straggler_slowdown: float
    restart_s: float


@final
class Experience(Strict, frozen=True):
    """``catalog/reliability/published.toml``."""

    defaults: Defaults
    run: dict[str, Published]
    sources: dict[str, str]

    @property
    def gpus(self) -> Dispersion:
        """How unlike GPUs of one kind are."""
        known = self.defaults
        return Dispersion(known.gpu_log_sd, known.straggler_share, known.straggler_slowdown)


@cache
def experience() -> Experience:
    """What was published of failures and of unlike boards."""
    path = CATALOG / "reliability" / "published.toml"
    return read_table(path, Experience, "docs/explanation/reliability.md")


def published(name: str = "") -> Published:
    """Interruptions of the run called ``name``; "" = the one that is taken by default.

    Raises:
        SilicastError: there is none of that name.

    >>> round(published().mtbf_gpu_s / HOUR_S), round(published().mtbf_gpu_s / HOUR_S / 16384, 2)
    (50677, 3.09)
    """
    runs: Mapping[str, Published] = experience().run
    published = runs.get(name or experience().defaults.run)
    if published is None:
        raise unknown_name(f"unknown run {name!r}", "run", f"one of {', '.join(sorted(runs))}")
    return published


@final
@dataclass(frozen=True)
class Failures:
    """Failures of a run and what it does against them.

    Attributes:
        mtbf_s: mean time between failures of all devices together; inf = none.
        write_s: for which writing a checkpoint holds up the run.
        restart_s: from a failure until the run goes on from its last checkpoint.
        interval_s: of work between two checkpoints; inf = none is written.
        repair_s: for which one of ``replicas`` is missing behind a failure, while the others go on.

    >>> run = Failures.of_gpus(16384, published().mtbf_gpu_s, write_s=30.0, restart_s=900.0)
    >>> round(run.interval_s), round(run.goodput, 3)
    (798, 0.856)
    """

    mtbf_s: float
    write_s: float
    restart_s: float
    interval_s: float
    repair_s: float = 0.0
    replicas: int = 1

    def __post_init__(self) -> None:
        """Refuses times that are none."""
        for field, positive in (
            ("mtbf_s", True),
            ("write_s", False),
            ("restart_s", False),
            ("interval_s", True),
            ("repair_s", False),
        ):
            value = getattr(self, field)
            if not value >= 0.0 or (positive and value == 0.0):
                range_text = "above 0" if positive else "of 0 or more"
                raise SilicastError(f"is {value:g}, expected a time {range_text}", field=field)
        if math.isinf(self.interval_s) and not math.isinf(self.mtbf_s):
            raise SilicastError(
                "is infinite: a run that fails and writes no checkpoint may never end",
                field="interval_s",
            )

    @staticmethod
    def of_gpus(
        gpus: int,
        mtbf_gpu_s: float,
        write_s: float,
        restart_s: float,
        interval_s: float | None = None,
    ) -> Failures:
        """Of so many GPUs, each of which fails once in ``mtbf_gpu_s``.

        Args:
            interval_s: None = the one of the largest goodput.

        Raises:
            SilicastError: there are no GPUs, or a time is none.
        """
        if gpus < 1:
            raise SilicastError(f"is {gpus}, expected at least 1", field="gpus")
        mtbf_s = mtbf_gpu_s / gpus
        best = best_interval_s(write_s, mtbf_s) if interval_s is None else interval_s
        return Failures(mtbf_s, write_s, restart_s, best)

    @property
    def full_speed(self) -> float:
        """Share of its speed that a run keeps in the mean while failed replicas are away: repair /
        M of them are, as servers of a queue without waiting (Poisson failures, any repair times).
        """
        away = 0.0 if math.isinf(self.mtbf_s) else self.repair_s / self.mtbf_s
        return max(1.0 - away / self.replicas, 0.0)

    @property
    def goodput(self) -> float:
        """Useful time over total time: of all replicas exactly (see :meth:`of_all`), times the
        speed that is left while some are away.
        """
        return self.of_all * self.full_speed

    @property
    def of_all(self) -> float:
        """Useful time over total time, exactly, of a run of many intervals with all its replicas.

        Between two checkpoints a run needs M exp(R / M)(exp((tau + delta) / M) - 1) in the mean,
        with M the time between failures, R a restart, tau an interval, delta a checkpoint
        (Daly, A higher order estimate of the optimum checkpoint interval, FGCS 22, 2006).
        """
        if math.isinf(self.interval_s):
            return 1.0
        if math.isinf(self.mtbf_s):
            return self.interval_s / (self.interval_s + self.write_s)
        once = (self.interval_s + self.write_s) / self.mtbf_s
        if once + self.restart_s / self.mtbf_s > 700.0:  # no such number: it never gets there
            return 0.0
        needed = self.mtbf_s * math.exp(self.restart_s / self.mtbf_s) * math.expm1(once)
        return self.interval_s / needed

    @property
    def losses(self) -> dict[str, float]:
        """Shares of the total time, in the mean: useful, checkpoints, restarts, repeated.

        They add up to 1. What is repeated is work, and checkpoints, that a failure undid; with
        ``repair_s`` also what is missing of the speed.
        """
        useful = self.of_all
        if self.repair_s:
            missing = useful - self.goodput
            whole = replace(self, repair_s=0.0).losses
            return {**whole, "useful": self.goodput, "missing_replicas": missing}
        if math.isinf(self.interval_s) or not useful:
            return {"useful": useful, "checkpoints": 0.0, "restarts": 0.0, "repeated": 1.0 - useful}
        writes = useful * self.write_s / self.interval_s
        restarts = 0.0
        if not math.isinf(self.mtbf_s):
            # what happens while a restart is under way is a restart too: the share of time in it
            restarts = -math.expm1(-self.restart_s / self.mtbf_s)
        left = max(1.0 - useful - writes - restarts, 0.0)
        return {"useful": useful, "checkpoints": writes, "restarts": restarts, "repeated": left}

    def wall_s(self, useful_s: float) -> float:
        """Expected time of a run that takes ``useful_s`` without failures and checkpoints."""
        goodput = self.goodput
        return useful_s / goodput if goodput else math.inf

    def drawn_wall_s(self, useful_s: float, trials: int = 1000, seed: int = 0) -> F64:
        """Times of as many runs, shape (trials,), in the order drawn; the last writes as all do.

        Raises:
            SilicastError: the run would break off too often to draw it.
        """
        if math.isinf(self.mtbf_s) or math.isinf(self.interval_s):
            return np.full(trials, self.wall_s(useful_s))
        if not self.full_speed:
            return np.full(trials, math.inf)
        each = self.interval_s + self.write_s
        needed = math.ceil(useful_s / self.interval_s * (1.0 - 1e-12))
        wall_s = self.wall_s(needed * self.interval_s)
        if not wall_s / self.mtbf_s < _MOST_FAILURES:
            raise over_limit(
                f"{wall_s / self.mtbf_s:.3g} failures are expected, at most {_MOST_FAILURES:,} "
                "are drawn",
                "mtbf_s",
                "shorten the interval, or ask for the mean",
            )
        random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
        wall, left = np.zeros(trials), np.full(trials, needed)
        begun = np.zeros(trials)  # of work in this attempt: after its restart
        going = np.arange(trials)
        while len(going):
            gap = -self.mtbf_s * log_fixed(1.0 - random.random(len(going)))
            work = left[going] * each
            done = begun[going] + work <= gap
            wall[going] += np.where(done, begun[going] + work, gap)
            reached = np.floor(np.maximum(gap - begun[going], 0.0) / each).astype(np.int64)
            left[going] -= np.where(done, left[going], np.minimum(reached, left[going]))
            begun[going] = self.restart_s
            going = going[~done]
        wall = wall / self.full_speed
        return wall * (useful_s / (needed * self.interval_s)) if needed else wall

    def with_interval(self, interval_s: float) -> Failures:
        return replace(self, interval_s=interval_s)


def young_interval_s(write_s: float, mtbf_s: float) -> float:
    """The best interval where checkpoints are short: sqrt(2 delta M) (Young, CACM 17, 1974)."""
    return math.sqrt(2.0 * write_s * mtbf_s)


def best_interval_s(write_s: float, mtbf_s: float) -> float:
    """The interval of the largest goodput: exp((tau + delta) / M)(1 - tau / M) = 1.

    By Newton's method on x - 1 + exp(-x - d) = 0 with x = tau / M, d = delta / M, from above.

    Raises:
        SilicastError: a time is not above 0; checkpoints that take no time would never end.

    >>> best = best_interval_s(30.0, 11136.0)
    >>> round(best), round(young_interval_s(30.0, 11136.0))
    (798, 817)
    """
    if not (mtbf_s > 0.0 and 0.0 < write_s < math.inf):
        field, value = ("write_s", write_s) if mtbf_s > 0.0 else ("mtbf_s", mtbf_s)
        raise SilicastError(f"is {value:g}: there is no best interval", field=field)
    if math.isinf(mtbf_s):
        return math.inf
    share, x = write_s / mtbf_s, 1.0
    for _ in range(_NEWTON_STEPS):
        fallen = math.exp(-x - share)
        x -= (x - 1.0 + fallen) / (1.0 - fallen)
    return x * mtbf_s
