"""Time per output token of a few clients that each send a request when the last one is answered.

With ``c`` clients every step decodes ``c`` sequences, at places of their outputs that are spread
evenly. While a request is decoded, the others' prompts come in: each client's once in a lifetime of
a request. A prompt stretches the steps that it takes part in, or stops decoding where the engine
does not mix:

    tpot = decode + (c - 1) x share x stretch / (output - 1)
    stretch = chunks of the prompt: (step with the chunk - step without), or the prefill itself
    share = decoding / (prefill + decoding), of a request's lifetime as the others stretch it

No more requests a second come in than the server's front, one process, takes one by one: where
fewer clients than there are make as many, these alone are decoded at once, and the others wait.

The clients must not be in step with each other, which varied lengths see to, and few: then prompts
seldom meet. For many clients the queue has to be simulated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from silicast.composition.passes.deployment import Deployment
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import StepModel, StepTimes, step_model
from silicast.composition.timeline.breakdown import Breakdown
from silicast.core.monotone import largest
from silicast.core.numerics import F64, I64
from silicast.core.prediction import Prediction, Quantity


@final
@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """What ``clients`` see in the mean.

    Attributes:
        decode: a step that only decodes.
        stretch_s: what one prompt adds to the steps of the others.
        tpot_s: time per output token after the first.
        first_s: from a request to its first token, where it need not wait for another one.
        tokens_per_s: output tokens of all clients.
        steps: of :attr:`deployment`: one that only decodes, then those that a prompt takes.
        running: clients whose requests are past the front.
    """

    clients: int
    decode: Prediction
    stretch_s: float
    tpot_s: Quantity
    first_s: Quantity
    tokens_per_s: Quantity
    deployment: Deployment
    output: int
    steps: tuple[StepTimes, ...]
    running: int

    @property
    def token_s(self) -> float:
        """Seconds a token that a client sees: of tokens after the first, or of all that it gets
        where it waits for the front.
        """
        if self.running == self.clients:
            return self.tpot_s.estimate
        return self.clients / self.tokens_per_s.estimate


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
    loop = _loop(deployment, clients, prompt, output)
    breakdown = Breakdown(step_model(deployment), loop.times[0], np.ones(1))
    decode = breakdown.prediction(breakdown.part("decode_step"))
    scaled = decode.latency_s.times(1.0 / decode.seconds)
    rate = loop.tokens_per_s
    return ClosedLoop(
        clients=clients,
        decode=decode,
        stretch_s=loop.prompt_s if clients > 1 else 0.0,
        tpot_s=scaled.times(loop.tpot_s),
        first_s=scaled.times(loop.first_s),
        tokens_per_s=Quantity(rate, rate / scaled.p95, rate / scaled.p05),
        deployment=deployment,
        output=output,
        steps=loop.times,
        running=loop.running,
    )


@final
@dataclass(frozen=True)
class LoopCurve:
    """Means of closed loops of more and more clients, without intervals; arrays of one length.

    Attributes:
        clients: ascending.
        step_s: of a step that only decodes; prompt_s: of a prompt, beside what decoding takes.
        first_s, tpot_s: as of :class:`ClosedLoop`; requests_per_s: of all clients.
    """

    clients: I64
    step_s: F64
    prompt_s: F64
    first_s: F64
    tpot_s: F64
    requests_per_s: F64


def loop_curve(
    deployment: Deployment, clients: Sequence[int], prompt: int, output: int
) -> LoopCurve:
    """:func:`closed_loop` at several numbers of clients, for choices among many deployments."""
    loops = [_loop(deployment, each, prompt, output) for each in clients]
    columns = (
        [each.step_s, each.prompt_s, each.first_s, each.tpot_s, each.tokens_per_s / output]
        for each in loops
    )
    return LoopCurve(np.array(clients, dtype=np.int64), *np.array(list(columns)).T)


@final
@dataclass(frozen=True)
class _LoopMeans:
    step_s: float
    prompt_s: float
    first_s: float
    tpot_s: float
    tokens_per_s: float
    times: tuple[StepTimes, ...]
    running: int

    def request_s(self, output: int) -> float:
        """From a request to its last token."""
        return self.first_s + (output - 1) * self.tpot_s


def _loop(deployment: Deployment, clients: int, prompt: int, output: int) -> _LoopMeans:
    loop, front_s = _past_front(deployment, clients, prompt, output), _front_s(deployment, prompt)
    if clients * front_s <= loop.request_s(output):
        return loop

    def comes(running: int) -> bool:
        """Whether the front takes in what so many clients ask."""
        past = _past_front(deployment, running, prompt, output)
        return running * front_s <= past.request_s(output)

    past = _past_front(deployment, max(largest(comes, clients), 1), prompt, output)
    first_s = clients * front_s - (output - 1) * past.tpot_s
    return replace(past, first_s=max(first_s, past.first_s), tokens_per_s=output / front_s)


def _front_s(deployment: Deployment, prompt: int) -> float:
    """What the engine's front takes for a request, before it takes the next one."""
    table = deployment.engine.serving
    if table is None:
        return 0.0
    micro_s = table.front_us + table.front_token_us * prompt
    return micro_s * 1e-6 / deployment.machine.host.factor


def _past_front(deployment: Deployment, clients: int, prompt: int, output: int) -> _LoopMeans:
    """Of clients whose requests need not wait for the front."""
    model = step_model(deployment)
    # groups of attention_dp share the clients evenly, and all wait for the fullest
    rank_clients = -(-clients // deployment.plan.attention_dp)
    cached = prompt + (2 * np.arange(rank_clients, dtype=np.int64) + 1) * output // (
        2 * rank_clients
    )
    times = _held(model, _state((), cached))
    step_s = float(times.total_s[0])
    mixed = _with_prompts(deployment, prompt, cached[1:], clients - rank_clients)
    beside_s = step_s if deployment.policy.mixes_prefill else 0.0

    def prompt_s_of(together: int) -> float:
        """What each of so many prompts of one step adds to it."""
        steps = _with_prompts(
            deployment, prompt, cached[together:], clients - rank_clients, together
        )
        return sum(max(float(each.total_s[0]) - beside_s, 0.0) for each in steps) / together

    # beside a prompt, those that come in the same step: at random times, one of each other client
    # in the steps of a lifetime
    most = max(min(_room(deployment, prompt, rank_clients - 1) // prompt, rank_clients), 1)
    together = min(1.0 + (rank_clients - 1) / output, float(most))
    few, many = math.floor(together), math.ceil(together)
    shared_s = [prompt_s_of(each) for each in dict.fromkeys((few, many))]
    prompt_s = shared_s[0] + (together - few) * (shared_s[-1] - shared_s[0])
    stretch_s = prompt_s if clients > 1 else 0.0
    first_s = prompt_s + step_s
    # T = first + decoded, decoded = (output - 1) steps + others' prompts x decoded / T
    decoded_s, others_s = (output - 1) * step_s, (clients - 1) * stretch_s
    half_s = 0.5 * (first_s + decoded_s + others_s)
    lifetime_s = half_s + math.sqrt(max(half_s * half_s - first_s * others_s, 0.0))
    tpot_s = (lifetime_s - first_s) / (output - 1)
    tokens_per_s = clients * output / lifetime_s
    steps = (times, *mixed)
    return _LoopMeans(step_s, prompt_s, first_s, tpot_s, tokens_per_s, steps, clients)


def _room(deployment: Deployment, prompt: int, others: int) -> int:
    """Prompt tokens of one step: sequences that are decoded take their share."""
    return max((deployment.policy.chunk_tokens or prompt) - others, 1)


def _with_prompts(
    deployment: Deployment, prompt: int, others: I64, elsewhere: int, together: int = 1
) -> list[StepTimes]:
    """The steps that prompts which come together take: beside the sequences that are decoded, or
    alone where the engine does not mix.

    Args:
        others: cached tokens of the sequences beside them.
        elsewhere: sequences of other groups.
        together: prompts; more than one fit a step whole.
    """
    model, policy = step_model(deployment), deployment.policy
    if not policy.mixes_prefill:
        return [_held(model, _state(((prompt, prompt),) * together, others[:0], 0))]
    room = prompt if together > 1 else _room(deployment, prompt, len(others))
    step_times = []
    for start in range(0, prompt, room):
        chunk = (min(room, prompt - start), min(start + room, prompt))
        step_times.append(_held(model, _state((chunk,) * together, others, elsewhere)))
    return step_times


def _state(prefill: tuple[tuple[int, int], ...], cached: I64, elsewhere: int = -1) -> BatchStates:
    new, total = (np.array([pair[i] for pair in prefill], dtype=np.int64) for i in (0, 1))
    first, second = (np.array([0, len(each)]) for each in (prefill, cached))
    return BatchStates(new, total, first, cached, second, np.array([elsewhere]))


def _held(model: StepModel, state: BatchStates) -> StepTimes:
    """One state at the clock that it holds."""
    times = model.steps(state)
    return model.at_clock(
        times, state, model.held_clock(times, state, 0), np.zeros(1, dtype=np.int64)
    )
