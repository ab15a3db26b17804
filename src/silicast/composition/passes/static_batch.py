"""A static batch: all prompts prefilled at once, then decode steps of constant batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, final

import numpy as np
from msgspec import Struct

from silicast.composition.errors.uncertainty import narrowed_sum
from silicast.composition.memory.memory import MemoryUse, static_batch_memory
from silicast.composition.passes.deployment import Deployment, busiest_group
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import MOST_CLOCKS, StepModel, StepTimes, step_model
from silicast.composition.timeline.breakdown import Breakdown
from silicast.core.numerics import F64, I64
from silicast.core.prediction import (
    ErrorFactors,
    Later,
    Part,
    Prediction,
    Quantity,
    Tier,
    said_by,
    worst_domain,
)

if TYPE_CHECKING:
    from silicast.workload.frameworks.eager import Framework

_Key = tuple[int, bool]
"""A sum of a phase's steps: the state whose clock is held, whether others count too."""

MAX_EVALUATED_STEPS = 33
"""Decode steps are evaluated in full up to so many; beyond, at evenly spaced ones."""


@final
class StaticBatch(Struct, frozen=True):
    """What a static batch takes.

    Attributes:
        decode_step: the median step; None where nothing is decoded.
        clock_hz: the clock held in prefill and in decode.
        steps: the evaluated steps of prefill and decode.
        weights: how many decode steps each evaluated one stands for; empty = nothing is decoded.
        beside: passes of another model on the same devices, and how often each is run.
    """

    prefill: Prediction
    decode_step: Prediction | None
    total: Prediction
    memory: MemoryUse
    clock_hz: tuple[float, float]
    steps: tuple[BatchSteps, BatchSteps]
    weights: F64
    beside: tuple[tuple[BatchSteps, F64], ...] = ()

    def kernels_j(self) -> float:
        """What the kernels of one device of every stage take beyond what it draws while it waits,
        joules.
        """
        first, decode = self.steps
        kernels_j = float(first.kernels_j(first.rows, first.rows[0]).sum())
        if len(self.weights):
            step_j = decode.kernels_j(decode.rows, decode.rows[len(self.weights) // 2])
            kernels_j += float(step_j @ self.weights)
        for steps, counts in self.beside:
            kernels_j += float(steps.kernels_j(steps.rows, steps.rows[0]) @ counts)
        return kernels_j

    def tier_seconds(self) -> tuple[dict[Tier, float], dict[Tier, float]]:
        """Exposed time of the kernels of prefill and of all decode steps by tier, s."""
        first, decode = self.steps
        prefill = first.tier_seconds(int(first.rows[0]), first.all_rows)
        if not len(self.weights):
            return prefill, {}
        middle = int(decode.rows[len(self.weights) // 2])
        return prefill, decode.tier_seconds(middle, self.weights)

    @property
    def memory_gb(self) -> Quantity:
        """Bytes per device, 10^9."""
        return gigabytes(self.memory)


def predict_static_batch(
    deployment: Deployment,
    input_lens: Sequence[int],
    output_len: int,
    framework: Framework | None = None,
    steps: tuple[BatchSteps, BatchSteps] | None = None,
    cached: int = 0,
) -> StaticBatch:
    """Predicts prefill, median decode step, total and memory of a static batch.

    Args:
        deployment: model, device, plan, engine.
        input_lens: prompt tokens of each sequence, >= 1; with attention_dp the groups take turns.
        output_len: tokens generated per sequence, >= 1; the first comes out of the prefill.
        framework: how a framework runs the model's code; prompts are then padded to the longest.
            None = the engine has layers of its own.
        steps: as :func:`batch_steps` finds them, if they are known.
        cached: tokens of each sequence before its prompt, whose keys and values are known.

    Raises:
        SilicastError: a part of the model has no kernel model on the device.
    """
    prefill_steps, decode_steps = steps or batch_steps(
        deployment, input_lens, output_len, framework, cached
    )
    memory = batch_memory(deployment, input_lens, output_len, framework, cached)
    warnings = []
    if memory.excess:
        from silicast.composition.memory.memory_advice import advice

        warnings.append(advice(deployment, input_lens, output_len, memory, framework, cached))
    first, prefill_hz = prefill_steps.whole("prefill", warnings)
    if output_len == 1:
        alone = replace(first, part=Part.group("total", (first.part,)))
        clocks, evaluated = (prefill_hz, prefill_hz), (prefill_steps, decode_steps)
        return StaticBatch(first, None, alone, memory, clocks, evaluated, np.zeros(0))
    _, weights = decode_knots(output_len - 1)
    middle = decode_steps.rows[len(weights) // 2]
    step, _ = decode_steps.at("decode_step", middle, warnings)
    decode, decode_hz = decode_steps.at("decode", middle, warnings, weights)
    decode = replace(decode, part=decode.part.changed(count=output_len - 1))
    total = summed("total", (first, decode))
    evaluated = (prefill_steps, decode_steps)
    clocks = (prefill_hz, decode_hz)
    return StaticBatch(first, step, total, memory, clocks, evaluated, weights)


def summed(name: str, phases: Sequence[Prediction]) -> Prediction:
    """Phases one after another; tier and clock are those of the longest."""
    longest = max(phases, key=lambda phase: phase.part.exposed_ps)
    terms = [(phase.part.exposed_ps, phase.error, phase.narrowed) for phase in phases]
    return replace(
        longest,
        part=Part.group(name, tuple(phase.part for phase in phases)),
        error=ErrorFactors.of_sum([(time, item) for time, item, _ in terms]),
        narrowed=Later(lambda: narrowed_sum(terms)),
        domain=worst_domain(tuple(phase.domain for phase in phases)),
        warnings=said_by(longest, *phases),
    )


def batch_memory(
    deployment: Deployment,
    input_lens: Sequence[int],
    output_len: int,
    framework: Framework | None = None,
    cached: int = 0,
) -> MemoryUse:
    """Memory of a static batch; arguments as of :func:`predict_static_batch`."""
    if framework is None:
        return static_batch_memory(deployment, input_lens, output_len, cached)
    from silicast.composition.passes.framework_pass import framework_memory

    prompts = busiest_group(input_lens, deployment.plan.attention_dp)
    return framework_memory(deployment, len(prompts), max(prompts), output_len, framework)


def gigabytes(memory: MemoryUse) -> Quantity:
    """Bytes per device, 10^9; activations and framework are known to about a third."""
    known, rough = memory.weights + memory.kv_cache, memory.activations + memory.framework
    return Quantity((known + rough) / 1e9, (known + 0.7 * rough) / 1e9, (known + 1.5 * rough) / 1e9)


@final
@dataclass(frozen=True)
class BatchSteps:
    """Steps of one phase of a static batch.

    Attributes:
        model, states: the steps; ``rows`` of the states are those of the phase.
        at_boost: all states at the boost clock.
    """

    model: StepModel
    states: BatchStates
    rows: I64
    at_boost: StepTimes
    _held: dict[float, StepTimes] = field(default_factory=dict, compare=False)
    _clocks: dict[int, float] = field(default_factory=dict, compare=False)
    _sums: dict[_Key, Breakdown] = field(default_factory=dict, compare=False)
    _predictions: dict[tuple[str, _Key], Prediction] = field(default_factory=dict, compare=False)

    def hold(self, typical: int, clock_hz: float) -> None:
        """Takes note of the clock that is held over the mix of work of a state."""
        self._clocks[typical] = clock_hz

    def keep(self, clock_hz: float, times: StepTimes) -> None:
        """Takes note of the steps at a clock, as :meth:`times` would find them."""
        self._held[clock_hz] = times

    def times(self, typical: int) -> StepTimes:
        """The steps at the clock that is held over the mix of work of the state ``typical``."""
        if typical not in self._clocks:
            self._clocks[typical] = self.model.held_clock(self.at_boost, self.states, typical)
        hz = self._clocks[typical]
        if hz not in self._held:
            self._held[hz] = self.model.at_clock(self.at_boost, self.states, hz, self.rows)
        return self._held[hz]

    def kernels_j(self, rows: I64, typical: int) -> F64:
        return self.model.kernels_j(self.times(int(typical)))[rows]

    def tier_seconds(self, typical: int, weights: F64 | None) -> dict[Tier, float]:
        """Exposed time of the kernels by tier, s; ``weights`` as of :meth:`at`."""
        return self._breakdown(int(typical), weights).tier_seconds()

    def at(
        self, name: str, typical: int, warnings: Sequence[str], weights: F64 | None = None
    ) -> tuple[Prediction, float]:
        """A weighted sum of the phase's states, and the clock that is held.

        Args:
            weights: of each of ``rows``; None = the state ``typical`` alone.
        """
        key = name, (int(typical), weights is not None)
        if key not in self._predictions:
            breakdown = self._breakdown(int(typical), weights)
            self._predictions[key] = breakdown.prediction(breakdown.part(name))
        prediction = self._predictions[key]
        if warnings:
            prediction = replace(prediction, warnings=(*prediction.warnings, *warnings))
        return prediction, self.times(int(typical)).clock_hz

    def whole(self, name: str, warnings: Sequence[str]) -> tuple[Prediction, float]:
        """The sum of all steps of the phase, whose clock is that of the first."""
        return self.at(name, int(self.rows[0]), warnings, self.all_rows)

    @property
    def all_rows(self) -> F64 | None:
        """Weights of the sum of all steps; None = there is one."""
        return np.ones(len(self.rows)) if len(self.rows) > 1 else None

    def _breakdown(self, typical: int, weights: F64 | None) -> Breakdown:
        key = typical, weights is not None
        if key not in self._sums:
            self._sums[key] = Breakdown(self.model, *self.weighted(typical, weights))
        return self._sums[key]

    def weighted(self, typical: int, weights: F64 | None) -> tuple[StepTimes, F64]:
        """Steps and their weights, by those of :meth:`at`."""
        if weights is None:
            return self.times(typical).of_states(np.array([typical])), np.ones(1)
        whole = np.zeros(len(self.states))
        whole[self.rows] = weights
        return self.times(typical), whole

    @staticmethod
    def predict(wanted: Sequence[WantedSum]) -> None:
        """Finds sums of one model's steps together, which :meth:`at` then looks up."""
        sums = list({sum_.key: sum_ for sum_ in wanted}.values())
        breakdowns = _sums_of(sums)
        predictions = Breakdown.predictions(breakdowns, [sum_.name for sum_ in sums])
        for sum_, breakdown, prediction in zip(sums, breakdowns, predictions, strict=True):
            key = sum_.typical, sum_.weights is not None
            sum_.steps._sums[key] = breakdown  # noqa: SLF001 - its own class
            sum_.steps._predictions[sum_.name, key] = prediction  # noqa: SLF001


@final
class WantedSum(Struct, frozen=True):
    """A sum of steps that somebody will ask for; the others as of :meth:`BatchSteps.at`."""

    steps: BatchSteps
    name: str
    typical: int
    weights: F64 | None = None

    @property
    def key(self) -> tuple[int, str, int]:
        """The same for what need be summed once."""
        return id(self.steps), self.name, self.typical


def _sums_of(wanted: Sequence[WantedSum]) -> list[Breakdown]:
    """Sums of one model's steps, evaluated together."""
    if not wanted:
        return []
    weighted = [sum_.steps.weighted(sum_.typical, sum_.weights) for sum_ in wanted]
    return Breakdown.several(wanted[0].steps.model, weighted)


def batch_steps(
    deployment: Deployment,
    input_lens: Sequence[int],
    output_len: int,
    framework: Framework | None = None,
    cached: int = 0,
) -> tuple[BatchSteps, BatchSteps]:
    """The prefill and the evaluated decode steps of a static batch.

    Args:
        deployment, input_lens, output_len, framework, cached: as of :func:`predict_static_batch`.
    """
    if framework is None:
        (alone,) = steps_together(deployment, ((input_lens, output_len),), (cached,))
        return alone
    prompts = busiest_group(input_lens, deployment.plan.attention_dp)
    prompts = [max(prompts)] * len(prompts)
    states = _states(deployment, prompts, -1, output_len)
    rows = np.arange(len(states))
    phases = []
    from silicast.composition.passes.framework_pass import decode_model, prefill_model

    makers = (prefill_model, decode_model) if len(rows) > 1 else (prefill_model,)
    for make, part in zip(makers, (rows[:1], rows[1:]), strict=False):
        model = make(deployment, len(prompts), prompts[0], framework)
        part_states = states.chosen(part)
        phases.append(
            BatchSteps(model, part_states, np.arange(len(part)), model.steps(part_states))
        )
    return phases[0], phases[-1]


def steps_together(
    deployment: Deployment, batches: Sequence[tuple[Sequence[int], int]], cached: Sequence[int] = ()
) -> list[tuple[BatchSteps, BatchSteps]]:
    """:func:`batch_steps` of many batches of an engine with layers of its own, evaluated at once;
    those of a batch are the same in any company. Batches of the same prompts share their prefill.

    Args:
        batches: prompt tokens of each sequence, and tokens generated per sequence.
        cached: of each batch, tokens of each sequence before its prompt; () = none.
    """
    steps = _held_together(deployment, batches, cached)
    BatchSteps.predict(
        [sum_ for pair in zip(steps, batches, strict=True) for sum_ in _wanted(*pair)]
    )
    return steps


@final
class BatchTimes(Struct, frozen=True):
    """Seconds of a static batch without their reasons.

    Attributes:
        decode_step: the median step; None where nothing is decoded.
    """

    prefill: Quantity
    decode_step: Quantity | None
    total: Quantity


def batch_times(
    deployment: Deployment, batches: Sequence[tuple[Sequence[int], int]], cached: Sequence[int] = ()
) -> list[BatchTimes]:
    """The times of :func:`predict_static_batch` of many batches, evaluated at once, without reasons
    and memory; arguments as of :func:`steps_together`.
    """
    steps = _held_together(deployment, batches, cached)
    wanted = [_wanted(*pair) for pair in zip(steps, batches, strict=True)]
    distinct = {sum_.key: sum_ for sums in wanted for sum_ in sums}
    sums = dict(
        zip(distinct, Breakdown.times_alone(_sums_of(list(distinct.values()))), strict=True)
    )
    times = []
    for batch_sums in wanted:
        prefill, *decode = (sums[sum_.key] for sum_ in batch_sums)
        step, decode_sum = decode or (None, None)
        total = prefill if decode_sum is None else prefill.then(decode_sum)
        median = None if step is None else step.quantity
        times.append(BatchTimes(prefill.quantity, median, total.quantity))
    return times


def _wanted(
    steps: tuple[BatchSteps, BatchSteps], batch: tuple[Sequence[int], int]
) -> list[WantedSum]:
    """What is asked of a batch: its prefill; where it decodes, the median step and all of them."""
    (first, decode), (_, output_len) = steps, batch
    wanted = [WantedSum(first, "prefill", int(first.rows[0]), first.all_rows)]
    if output_len > 1:
        _, weights = decode_knots(output_len - 1)
        middle = int(decode.rows[len(weights) // 2])
        wanted.append(WantedSum(decode, "decode_step", middle))
        wanted.append(WantedSum(decode, "decode", middle, weights))
    return wanted


def _held_together(
    deployment: Deployment, batches: Sequence[tuple[Sequence[int], int]], cached: Sequence[int]
) -> list[tuple[BatchSteps, BatchSteps]]:
    """The steps of batches at the clocks that they hold."""
    model, batch_states, prompts = step_model(deployment), [], []
    for (input_lens, output_len), past in zip(batches, cached or [0] * len(batches), strict=True):
        prompts_of_group = busiest_group(input_lens, deployment.plan.attention_dp)
        elsewhere = sum(input_lens) - sum(prompts_of_group)
        prompts.append((tuple(prompts_of_group), elsewhere, past))
        batch_states.append(
            _states(deployment, prompts_of_group, elsewhere, output_len).after(past)
        )
    joined = BatchStates.joined(batch_states)
    times = model.steps(joined)
    starts = np.cumsum([0, *map(len, batch_states)])
    prefills: dict[tuple[tuple[int, ...], int, int], BatchSteps] = {}
    steps_together, typical = [], list[tuple[int, BatchSteps, int]]()
    for states, key, start in zip(batch_states, prompts, starts.tolist(), strict=False):
        rows = np.arange(len(states))
        batch_times = times if len(batch_states) == 1 else times.of_states(start + rows)
        prompt = rows[: max(int((states.prefill_sequences > 0).sum()), 1)]
        parts = (prompt, rows[len(prompt) :])
        if deployment.model.encoder is not None:
            parts = rows[:1], rows[1:]
        first, decode = (BatchSteps(model, states, part, batch_times) for part in parts)
        if key not in prefills:
            prefills[key] = first
            typical.append((start, first, 0))
        if len(decode.rows):
            middle = int(decode.rows[len(decode.rows) // 2])
            typical.append((start + middle, decode, middle))
        steps_together.append((prefills[key], decode))
    clocks = model.held_clocks(times, joined, np.array([row for row, _, _ in typical]))
    limited = []
    for (at, steps, row), hz in zip(typical, clocks.tolist(), strict=True):
        steps.hold(row, hz)
        if hz != times.clock_hz:
            limited.append((at - row, steps, hz))
    if len(limited) > 1 and model.takes_clocks:
        for begin in range(0, len(limited), MOST_CLOCKS):
            _hold_together(times, joined, limited[begin : begin + MOST_CLOCKS])
    return steps_together


def _hold_together(
    times: StepTimes, joined: BatchStates, limited: Sequence[tuple[int, BatchSteps, float]]
) -> None:
    """Evaluates steps that a power limit slows, all at once, each at the clock that it holds.

    Args:
        times, joined: all states at the boost clock.
        limited: where the states of a batch begin, its steps, their clock.
    """
    model = limited[0][1].model
    rows = np.concatenate([start + steps.rows for start, steps, _ in limited])
    clocks_hz = np.repeat([hz for _, _, hz in limited], [len(x.rows) for _, x, _ in limited])
    slow = model.at_clocks(times, joined, rows, clocks_hz)
    clocks, first = slow.nodes.clocks, 0
    assert clocks is not None
    for _, steps, hz in limited:
        # states of other phases, whose times nobody asks for, stand in as copies of the first
        states = np.full(len(steps.states), first)
        states[steps.rows] = first + np.arange(len(steps.rows))
        steps.keep(hz, slow.of_states(states, clocks.devices[clocks.row[first]]))
        first += len(steps.rows)


def _states(
    deployment: Deployment, prompts: Sequence[int], elsewhere: int, output_len: int
) -> BatchStates:
    """The prefill and the decode steps that are evaluated of a batch.

    Args:
        prompts: of the busiest group; ``elsewhere``: tokens of the others, -1 = as many
        each.
    """
    knots, _ = decode_knots(output_len - 1)
    if deployment.model.encoder is not None:
        return BatchStates.encoded(prompts, knots)
    memory = deployment.engine.memory
    states = BatchStates.prefill(prompts, elsewhere)
    if memory.cuts_static_batches and 0 < memory.prefill_chunk_tokens < sum(prompts):
        states = BatchStates.chunked(prompts, memory.prefill_chunk_tokens)
    return states.then(BatchStates.decode(prompts, knots)) if deployment.model.causal else states


@lru_cache(maxsize=1024)
def decode_knots(steps: int) -> tuple[I64, F64]:
    """Steps to evaluate (from 1; at least one) and how many steps each stands for.

    Between evaluated steps time is taken as a straight line (trapezoidal weights). The arrays are
    shared, and not to be written to.
    """
    if steps == 0:
        return np.array([1], dtype=np.int64), np.zeros(1)
    if steps <= MAX_EVALUATED_STEPS:
        return np.arange(1, steps + 1, dtype=np.int64), np.ones(steps)
    position = np.arange(MAX_EVALUATED_STEPS, dtype=np.int64)
    knots = 1 + position * (steps - 1) // (MAX_EVALUATED_STEPS - 1)
    weights = np.zeros(MAX_EVALUATED_STEPS)
    for left in range(MAX_EVALUATED_STEPS - 1):
        gap = int(knots[left + 1] - knots[left])
        # steps left..right-1 of a straight line between the two knots
        weights[left] += (gap + 1) / 2
        weights[left + 1] += (gap - 1) / 2
    weights[-1] += 1.0
    weights.setflags(write=False)
    return knots, weights
