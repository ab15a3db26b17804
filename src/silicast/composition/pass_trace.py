"""The timeline of a framework's pass, forward and backward, and of a training step."""

from __future__ import annotations

from silicast.composition.forward import ForwardPass
from silicast.composition.machine import Machine
from silicast.composition.step_trace import StepDrawing
from silicast.composition.trace_events import (
    COMMUNICATION,
    ENGINE,
    HOST,
    LAYERS,
    Drawn,
    Slice,
    Trace,
    Track,
    device_process,
)
from silicast.composition.training_step import TrainingStep
from silicast.core.prediction import Part

MOST_PASSES = 4
"""Passes of a training step that are drawn; the others are like them."""


def trace_pass(found: ForwardPass) -> Trace:
    """One pass of a model over a batch."""
    drawn = _pass(found, 0)
    return Trace(
        f"{_machine(found).device.name}: {'training' if found.backward else 'forward'} pass",
        tuple(drawn.slices),
        tuple(drawn.arrows),
        tuple(drawn.samples),
        drawn.end_ps,
    )


def trace_training_step(found: TrainingStep, passes: int) -> Trace:
    """The first micro-batches of a step, and the update.

    Args:
        passes: of the step.
    """
    whole = Drawn([], [], [], 0)
    count = min(passes, MOST_PASSES)
    for _ in range(count):
        whole = whole.then(_pass(found.micro, whole.end_ps))
    end = whole.end_ps + found.update.part.exposed_ps
    process = device_process(_machine(found.micro))
    update = Slice(Track(process, LAYERS), "optimizer", whole.end_ps, end)
    about = {"step_time_s": found.step.part.exposed_ps / 1e12}
    if count < passes:
        about |= {"micro_batches": passes, "micro_batches_shown": count}
    return Trace(
        f"{_machine(found.micro).device.name}: training step",
        (*whole.slices, update),
        tuple(whole.arrows),
        tuple(whole.samples),
        end,
        about,
    )


def _machine(found: ForwardPass) -> Machine:
    return found.halves[0].model.deployment.machine


def _pass(found: ForwardPass, start_ps: int) -> Drawn:
    """Forward, backward, what is summed behind it, and the host's way to the next pass."""
    whole = Drawn([], [], [], start_ps)
    for half, prediction in zip(found.halves, (found.forward, found.backward), strict=False):
        assert prediction is not None
        summed = [part for part in prediction.part.children if part.bound_by == "link"]
        summed = [part for part in summed if not part.children]
        after = sum(part.exposed_ps for part in summed)
        drawing = StepDrawing(half.model, half.states, half.times)
        total = prediction.part.exposed_ps - after
        whole = whole.then(drawing.step(0, half.direction, whole.end_ps, total, 0))
        whole = whole.then(_summed(summed, half.direction, _machine(found), whole.end_ps))
    end = start_ps + found.total.part.exposed_ps
    slices = whole.slices
    if end > whole.end_ps:
        between = Slice(Track(HOST, ENGINE), "between two passes", whole.end_ps, end)
        slices = [*slices, between]
    return Drawn(slices, whole.arrows, whole.samples, max(end, whole.end_ps))


def _summed(parts: list[Part], direction: str, machine: Machine, start_ps: int) -> Drawn:
    """What ranks exchange behind a pass, as far as the pass does not hide it."""
    process = device_process(machine)
    slices, reached = [], start_ps
    for part in parts:
        end = reached + part.exposed_ps
        args = {"hidden_us": part.hidden_ps / 1e6, "under": direction}
        slices.append(Slice(Track(process, COMMUNICATION), part.name, reached, end, args))
        reached = end
    return Drawn(slices, [], [], reached)
