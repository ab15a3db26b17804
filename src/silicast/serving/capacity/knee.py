"""The knee of a curve of latency against load: where more load buys less than the wait it costs.

Kleinrock's power is throughput over mean latency; the knee is the load at which it is largest
(L. Kleinrock, "Power and deterministic rules of thumb for probabilistic problems in computer
communications", ICC 1979).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.serving.simulation.event_loop import ReplicaSpec
from silicast.serving.statistics.records import NANO
from silicast.serving.traffic.requests import Requests


@final
@dataclass(frozen=True, slots=True)
class Knee:
    """Where a deployment's curve bends, and where it ends; requests a second and in flight.

    Attributes:
        rate_per_s, concurrency: at the knee.
        most_per_s, most_concurrency: at saturation.
        by_front: saturation is that of the replicas' fronts, not of their steps.
    """

    rate_per_s: float
    concurrency: float
    most_per_s: float
    most_concurrency: float
    by_front: bool = False


def knee_of(throughput: Sequence[float], latency: Sequence[float]) -> int:
    """The place of the knee among points in order of load.

    >>> knee_of([1.0, 2.0, 2.8, 3.0], [1.0, 1.2, 1.9, 4.0])
    1
    """
    power = [rate / wait for rate, wait in zip(throughput, latency, strict=True)]
    return max(range(len(power)), key=lambda i: (power[i], -i))


def estimated_knee(
    spec: ReplicaSpec, requests: Requests, replicas: int = 1, *, cached: float = 0.0
) -> Knee:
    """The knee of a deployment under requests like these, from prices of single steps.

    With B sequences in flight, each of them takes its prefill and, of every decode step, one
    B-th: X(B) = 1 / (prefill + steps x step(B) / B) requests a second, B / X(B) seconds each
    (Little), but no more than the front of a replica takes in, one request after the other. Bursts
    are left out: a simulated curve bends a little earlier.

    Args:
        replicas: over which requests spread.
        cached: share of the prompts' tokens that a prefix cache holds: they are not computed.
    """
    prompt = max(round(float(requests.input_tokens.mean())), 1)
    more = max(float(requests.output_tokens.mean()) - 1.0, 0.0)
    steps = more / spec.tokens_a_step
    middle = prompt + round(more / 2.0)
    limits = spec.limits
    held = max(spec.layout.of_one(middle), 1)
    most = max(min(limits.sequences, limits.blocks // held), 1)
    prefill_s = prompt_s(spec, prompt, min(round(cached * prompt), prompt - 1))
    priced = sorted({min(1 << power, most) for power in range(most.bit_length() + 1)})
    steps_s = [_step_s(spec, flight, middle) for flight in priced]
    front_s = spec.front_of(prompt) * NANO * spec.groups
    loads = []
    for flight in _flights(most):  # straight between doublings
        step_s = float(np.interp(flight, priced, steps_s))
        rate = 1.0 / max(prefill_s + steps * step_s / flight, front_s)
        loads.append((rate * rate / flight, rate, flight))
    scale = spec.groups * replicas
    _, rate, flight = max(loads)
    top, full = max((rate, -flight) for _, rate, flight in loads)
    by_front = top * front_s >= 1.0 - 1e-9
    return Knee(rate * scale, flight * scale, top * scale, -full * scale, by_front)


def _step_s(spec: ReplicaSpec, flight: int, cached: int) -> float:
    """From one decode step to the next of so many sequences of so many cached tokens."""
    prices = spec.prices
    step = prices.price((), np.full(flight, cached, dtype=np.int64))
    if prices.asynchronous:
        return prices.gap_s + max(step.pass_s, step.work_s)
    return prices.gap_s + step.pass_s + step.work_s


def prompt_s(spec: ReplicaSpec, prompt: int, cached: int = 0) -> float:
    """What one prompt, of which so many tokens are cached, takes beside the decode steps that run
    anyway, in chunks of a step.
    """
    limits, prices = spec.limits, spec.prices
    none, remaining = np.zeros(0, dtype=np.int64), prompt - cached
    if remaining <= limits.step_tokens:
        together = max(min(limits.step_tokens // remaining, 8), 1)
        step = prices.price([(remaining, prompt)] * together, none)
        return step.pass_s / together
    seconds, past = 0.0, cached
    while past < prompt:
        new = min(limits.step_tokens, prompt - past)
        past += new
        seconds += prices.price([(new, past)], none).pass_s
    return seconds


def _flights(most: int) -> list[int]:
    """Batches from 1 to ``most``, each a quarter octave above the last.

    >>> _flights(8)
    [1, 2, 3, 4, 5, 6, 7, 8]
    """
    return sorted(
        {round(2.0 ** (i / 4.0)) for i in range(4 * most.bit_length())} & {*range(most)} | {most}
    )
