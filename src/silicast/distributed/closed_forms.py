"""How long pipelines take without scheduling them: bounds for a search over many plans.

Of the order of 1F1B a few chains of actions are known in closed form. Each is a chain that really
runs, so the longest of them is a lower bound, whatever the stages take:

- at rank r: the first micro-batch comes through the ranks before; the rank does all its work; it
  is idle while the first micro-batch is on its way through the ranks behind and back, for as long
  as it has no other to pass on, and so for the last one; the gradients go back to the first rank;
- with transfers: a micro-batch goes down n ranks to the last and back, whereupon the nth after it
  can start.

For equal stages without transfers the first is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from silicast.core.numerics import F64
from silicast.distributed.schedules.schedule import PipelineSchedule

Times = NDArray[Any]


def least_makespan(
    ranks: int, micro_batches: int, forward: Times, backward: Times, transfer: Times | float = 0.0
) -> F64:
    """A lower bound of the makespan of 1F1B, or interleaved 1F1B, shape (n,) for n plans.

    Args:
        forward, backward: of each stage for a micro-batch, shape (stages, n); stage s is on rank s
            modulo ``ranks``.
        transfer: between two ranks: a number, or shape (n,).

    Returns:
        Exact for equal stages where transfers take no time: with f and b of a stage, p ranks and
        v chunks a rank, (m v + p - 1)(f + b) (Narayanan et al. SC 2021, arXiv 2104.04473).

    >>> one = np.ones((8, 1))
    >>> least_makespan(8, 32, one, 2 * one), least_makespan(4, 8, one, 2 * one)
    (array([117.]), array([57.]))
    """
    both, t = forward + backward, np.asarray(transfer, dtype=float) * (ranks > 1)
    stages = len(both)
    chunks = stages // ranks
    found = _through_a_rank(ranks, micro_batches, forward, backward, t)
    if chunks > 1:
        return found
    whole = both.sum(axis=0) + 2 * t * (stages - 1)
    tail = np.cumsum(both[::-1], axis=0)  # of the last 1, 2, ... ranks
    rounds = tail + 2 * t * np.arange(stages)[:, None]
    rounds = np.concatenate((np.zeros((1, rounds.shape[1])), rounds))
    more = micro_batches - 1
    for n in range(1, stages + 1):
        rest = rounds[more % n]
        found = np.maximum(found, whole + more // n * rounds[n] + rest)
    return found


def _through_a_rank(
    ranks: int, micro_batches: int, forward: Times, backward: Times, t: Times
) -> F64:
    """The longest chain that stays on one rank but for the first and the last micro-batch."""
    stages, chunks = len(forward), len(forward) // ranks
    both = forward + backward
    total = np.cumsum(both, axis=0)
    found = np.zeros(both.shape[1])
    for rank in range(ranks):
        own = slice(rank, None, ranks)
        behind, work = ranks - 1 - rank, micro_batches * both[own].sum(axis=0)
        before = total[rank] - both[rank] + 2 * t * rank
        last = stages - ranks + rank  # the rank's last stage
        away = total[-1] - total[last] + 2 * t * behind
        ahead = min(2 * behind + (chunks - 1) * ranks if chunks > 1 else behind,
                    micro_batches * chunks - 1)  # fmt: skip
        idle = []
        for part in (forward, backward):
            between = part[rank : last + 1].sum(axis=0) + t * (last - rank)
            done = _first_passes(part[own], ahead + 1, ranks, micro_batches)
            idle.append(np.maximum(away + between - done, 0.0))
        apart = micro_batches * chunks - 1 > ahead  # the last comes when the first is back
        waits = idle[0] + idle[1] if apart else np.maximum(idle[0], idle[1])
        found = np.maximum(found, before + work + waits)
    return found


def _first_passes(own: Times, count: int, ranks: int, micro_batches: int) -> F64:
    """Time of the first ``count`` passes of a rank over its chunks, shape (n,)."""
    group = min(ranks, micro_batches)
    chunks = len(own)
    rounds, rest = divmod(count, group * chunks)
    found: F64 = rounds * group * own.sum(axis=0)
    for chunk in range(chunks):
        found = found + min(max(rest - chunk * group, 0), group) * own[chunk]
    return found


def most_makespan(
    micro_batches: int, forward: Times, backward: Times, transfer: Times | float = 0.0
) -> F64:
    """What 1F1B takes at most, shape (n,); arguments as of :func:`least_makespan`.

    The first micro-batch, and for each more the slowest of all runs of neighbouring ranks: what a
    micro-batch takes down and up n of them, divided by n. No proof; no counterexample was found
    (tests/property/test_pipeline_laws.py).
    """
    both, t = forward + backward, np.asarray(transfer, dtype=float)
    stages = len(both)
    sums = np.concatenate((np.zeros((1, both.shape[1])), np.cumsum(both, axis=0)))
    period = np.zeros(both.shape[1])
    for n in range(1, stages + 1):
        runs = (sums[n:] - sums[:-n]).max(axis=0) + 2 * t * (n - 1)
        period = np.maximum(period, runs / n)
    whole: F64 = sums[-1] + 2 * t * (stages - 1) + (micro_batches - 1) * period
    return whole


def estimated_makespan(
    schedule: PipelineSchedule,
    ranks: int,
    micro_batches: int,
    stage_times: tuple[Times, Times, Times],
    transfer: Times | float = 0.0,
) -> F64:
    """The makespan of any schedule for many plans, shape (n,): an estimate for a search.

    Args:
        stage_times: forward, input gradient and weight gradient of each stage, each (stages, n).
        transfer: between two ranks: a number, or shape (n,).

    Returns:
        The work of the busiest rank, the closed form of the bubble at the mean times of stages,
        and one way through the stages and back for transfers; no bound. Where each of many
        micro-batches waits for its transfers, :func:`least_makespan` is nearer.
    """
    forward, input_gradient, weight_gradient = stage_times
    place = schedule.placement(ranks, len(forward) // ranks if schedule.chunks is None else
                               schedule.chunks)  # fmt: skip
    whole = forward + input_gradient + weight_gradient
    work = whole[place.stage].sum(axis=1) * micro_batches / (int(place.path.max()) + 1)
    means = (each.mean(axis=0) for each in stage_times)
    bubble = schedule.bubble(ranks, place.chunks, *means)
    found: F64 = (
        work.max(axis=0) + bubble + 2 * np.asarray(transfer) * (place.stages - 1) * (ranks > 1)
    )
    return found
