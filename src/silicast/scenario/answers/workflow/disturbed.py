"""Slow devices and failures of a cluster, drawn for what a workflow runs on.

A device is slow with the stated chance, for the whole run; what runs on several takes the time of
the slowest. Failures of n devices come at random, one in ``mtbf / n`` in the mean; what runs begins
again at its last checkpoint (without one at its beginning) after ``restart_s``. In the mean a job
of T seconds in pieces of c takes T / c (exp(c / m) - 1) (m + restart), m the time between failures
(Daly, 2006, without failures of restarts).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import msgspec
import numpy as np

from silicast.core.numerics import F64, log_fixed
from silicast.scenario.decode import Scenario
from silicast.scenario.resolving.failure_rates import gpu_mtbf_s
from silicast.scenario.schema import FailureTable, SlowTable

_SLOW = 103
"""Purpose of the random numbers of slow devices."""
MOST_FAILURES = 1_000_000
"""Of all jobs of a stage, where they are drawn."""


@final
@dataclass(frozen=True)
class Disturbances:
    """What a scenario's cluster states."""

    slow: SlowTable | None
    failures: FailureTable | None
    seed: int

    def paces(self, number: int, replicas: int, gpus: int) -> list[float]:
        """How many times as long each replica of a pool takes; ``number``: of the pool, ``gpus``:
        of a replica.
        """
        if self.slow is None:
            return [1.0] * replicas
        sequence = np.random.SeedSequence((self.seed, _SLOW, number))
        random = np.random.Generator(np.random.PCG64(sequence))
        slow = (random.random((replicas, gpus)) < self.slow.fraction).any(axis=1)
        return np.where(slow, self.slow.slowdown, 1.0).tolist()  # type: ignore[no-any-return]

    def with_failures(self, seconds: F64, gpus: int, random: np.random.Generator) -> F64:
        """What jobs of so many seconds on so many devices take with failures, shape (jobs,)."""
        failing = self.failures
        if failing is None or not len(seconds):
            return seconds
        rate = gpus / gpu_mtbf_s(failing)
        saved = failing.checkpoint_interval_s
        pieces = np.ones(len(seconds), dtype=np.int64)
        if saved is not None:
            pieces = np.maximum(np.ceil(seconds / saved).astype(np.int64), 1)
        writes = failing.checkpoint_s if saved is not None else 0.0
        piece_s = seconds / pieces + writes
        chance = -np.expm1(-rate * piece_s)
        failures = random.negative_binomial(pieces, np.maximum(1.0 - chance, 1e-300))
        failures = np.minimum(failures, MOST_FAILURES // len(seconds))
        job = np.repeat(np.arange(len(seconds)), failures)
        # when a piece fails, given that it does: exponential, cut at its end
        lost = -log_fixed(1.0 - random.random(len(job)) * chance[job]) / rate + failing.restart_s
        whole: F64 = pieces * piece_s + np.bincount(job, lost, len(seconds))
        return whole


def taken_from(scenario: Scenario) -> tuple[Scenario, Disturbances]:
    """A scenario without its disturbances, which its parts would answer by themselves, and them."""
    cluster, seed = scenario.raw.cluster, scenario.raw.seed or 0
    if cluster is None:
        return scenario, Disturbances(None, None, seed)
    without = msgspec.structs.replace(cluster, slow_gpus=None, failures=None)
    raw = msgspec.structs.replace(scenario.raw, cluster=without)
    disturbances = Disturbances(cluster.slow_gpus, cluster.failures, seed)
    return msgspec.structs.replace(scenario, raw=raw), disturbances
