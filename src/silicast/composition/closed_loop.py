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

from silicast.composition.states import BatchStates
from silicast.composition.step import StepModel, StepTimes
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


def closed_loop(model: StepModel, clients: int, prompt: int, output: int) -> ClosedLoop:
    """Predicts the time per output token of ``clients`` clients.

    Args:
        model: the engine's steps.
        clients: at least 1.
        prompt, output: tokens of every request; ``output`` at least 2.

    Raises:
        ValueError: no client, or outputs without a second token.
    """
    if clients < 1 or output < 2 or prompt < 1:
        raise ValueError("at least one client, one token of a prompt and two of an output")
    # groups of attention_dp share the clients evenly, and all wait for the fullest
    own = -(-clients // model.deployment.plan.attention_dp)
    cached = prompt + (2 * np.arange(own, dtype=np.int64) + 1) * output // (2 * own)
    decoding = _state((), cached)
    times = _held(model, decoding)
    once = np.ones(1)
    decode = Prediction(
        part=model.part("decode_step", times, once),
        error=model.error(times, once),
        tier=model.tier(times, once),
        domain=model.domain,
        warnings=model.warnings,
    )
    step_s = float(times.total_s[0])
    others = clients - own
    stretch_s = _stretch_s(model, prompt, cached[1:], others, step_s) if clients > 1 else 0.0
    first_s = stretch_s + step_s
    decoded_s = (output - 1) * step_s
    share = decoded_s / (first_s + decoded_s)
    tpot_s = step_s + (clients - 1) * share * stretch_s / (output - 1)
    return ClosedLoop(clients, decode, stretch_s, decode.latency_s.times(tpot_s / decode.seconds))


def _stretch_s(model: StepModel, prompt: int, others: I64, elsewhere: int, step_s: float) -> float:
    """What one prompt costs the sequences that are decoded meanwhile.

    Args:
        others: cached tokens of the sequences beside it.
        elsewhere: sequences of other groups.
    """
    engine = model.deployment.engine
    if not engine.parallel.mixes_prefill:
        return float(_held(model, _state(((prompt, prompt),), others[:0], 0)).total_s[0])
    chunk = engine.memory.prefill_chunk_tokens or prompt
    room = max(chunk - len(others), 1)  # decoding sequences take their share of a step's tokens
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
    hz = model.held_clock(times, 0)
    return times if hz == times.clock_hz else model.steps(state, hz)
