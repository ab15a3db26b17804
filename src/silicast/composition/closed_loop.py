"""Time per output token of a few clients that each send a request when the last one is answered.

With ``c`` clients every step decodes ``c`` sequences, at places of their outputs that are spread
evenly. While a request is decoded, the others' prompts come in: each client's once in a lifetime of
a request. A prompt stretches the steps that it takes part in, or stops decoding where the engine
does not mix:

    tpot = decode + (c - 1) x share x stretch / (output - 1)
    stretch = chunks of the prompt: (step with the chunk - step without), or the prefill itself
    share = decoding / (prefill + decoding), of a request's lifetime

The clients must not be in step with each other, which varied lengths see to, and few: then prompts
seldom meet. For many clients the queue has to be simulated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.composition.breakdown import Breakdown
from silicast.composition.deployment import Deployment
from silicast.composition.states import BatchStates
from silicast.composition.step import StepModel, StepTimes, step_model
from silicast.core.numerics import I64
from silicast.core.prediction import Prediction, Quantity


@final
@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """What ``clients`` see in the mean.

    Attributes:
        decode: a step that only decodes.
        stretch_s: what one prompt adds to the steps of the others.
        tpot_s: time per output token after the first.
    """

    clients: int
    decode: Prediction
    stretch_s: float
    tpot_s: Quantity


def closed_loop(deployment: Deployment, clients: int, prompt: int, output: int) -> ClosedLoop:
    """Predicts the time per output token of ``clients`` clients.

    Args:
        clients: at least 1.
        prompt, output: tokens of every request; ``output`` at least 2.

    Raises:
        ValueError: no client, or outputs without a second token.
    """
    if clients < 1 or output < 2 or prompt < 1:
        raise ValueError("at least one client, one token of a prompt and two of an output")
    model = step_model(deployment)
    # groups of attention_dp share the clients evenly, and all wait for the fullest
    own = -(-clients // deployment.plan.attention_dp)
    cached = prompt + (2 * np.arange(own, dtype=np.int64) + 1) * output // (2 * own)
    times = _held(model, _state((), cached))
    found = Breakdown(model, times, np.ones(1))
    decode = found.prediction(found.part("decode_step"))
    step_s = float(times.total_s[0])
    stretch_s = 0.0
    if clients > 1:
        stretch_s = _stretch_s(deployment, prompt, cached[1:], clients - own, step_s)
    first_s = stretch_s + step_s
    decoded_s = (output - 1) * step_s
    share = decoded_s / (first_s + decoded_s)
    tpot_s = step_s + (clients - 1) * share * stretch_s / (output - 1)
    return ClosedLoop(clients, decode, stretch_s, decode.latency_s.times(tpot_s / decode.seconds))


def _stretch_s(
    deployment: Deployment, prompt: int, others: I64, elsewhere: int, step_s: float
) -> float:
    """What one prompt costs the sequences that are decoded meanwhile.

    Args:
        others: cached tokens of the sequences beside it.
        elsewhere: sequences of other groups.
    """
    model, policy = step_model(deployment), deployment.policy
    if not policy.mixes_prefill:
        return float(_held(model, _state(((prompt, prompt),), others[:0], 0)).total_s[0])
    # decoding sequences take their share of a step's tokens
    room = max((policy.chunk_tokens or prompt) - len(others), 1)
    total = 0.0
    for start in range(0, prompt, room):
        new = min(room, prompt - start)
        mixed = _held(model, _state(((new, start + new),), others, elsewhere))
        total += max(float(mixed.total_s[0]) - step_s, 0.0)
    return total


def _state(prefill: tuple[tuple[int, int], ...], cached: I64, elsewhere: int = -1) -> BatchStates:
    new, total = (np.array([pair[i] for pair in prefill], dtype=np.int64) for i in (0, 1))
    first, second = (np.array([0, len(each)]) for each in (prefill, cached))
    return BatchStates(new, total, first, cached, second, np.array([elsewhere]))


def _held(model: StepModel, state: BatchStates) -> StepTimes:
    """One state at the clock that it holds."""
    times = model.steps(state)
    return model.at_clock(times, state, model.held_clock(times, 0), np.zeros(1, dtype=np.int64))
