"""Recurrent layers (LSTM, GRU, plain RNN): one call of a library, forward or one gradient.

A call of T steps on N sequences is

    t = call + inputs + T x (step + gates + smooth_max(weights, products, chain))

The products of all inputs are one matrix product (family ``gemm``), and so are the gradients of the
weights. A step multiplies the state by its weights: it reads them again, for N columns are few;
``chain`` is what one block needs to walk along its sum, however short the other two are.

Flags: ``backward_data`` (gradients of states and inputs) or ``backward_weights``; neither =
forward. ``persistent``: one kernel for all steps keeps the weights in registers where they fit
(Diamos et al., Persistent RNNs, 2016); a step then waits for a barrier of all cores. ``input`` = 0
leaves out the products of the inputs; ``projection`` is the width of an LSTM's projected state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, final

import numpy as np

from silicast.core.dtypes import BITS, RECIPES, recipe_for
from silicast.core.errors import unsupported
from silicast.core.numerics import F64, smooth_max
from silicast.hardware.device import Device
from silicast.kernels.implementation import Analysis, Demand, Implementation
from silicast.kernels.physics.constants import load_physics, shared_errors
from silicast.kernels.physics.device_rates import cache_rate, known_limits
from silicast.kernels.physics.roofline import on_chip
from silicast.kernels.registry import register
from silicast.kernels.timed_parts import PartBatch, TimedPart, timed
from silicast.workload.graphs.op import Op, OpBatch, Variant

PHYSICS = "recurrent_layers"
FORWARD, DATA, WEIGHTS = "forward", "data", "weights"
PERSISTENT = "persistent"
FORMATS = ("fp32", "fp16", "bf16", "tf32", "fp64")
"""Of layers; the last two are those of programs that ask for them."""
NARROW = (16.0, 32.0)
"""Sequences (more than, at most) whose products libraries for Pascal run with tiles of 32 columns;
``narrow_sum_cycles`` is 0 where no such tiles were measured.
"""
REGISTER_BYTES = 4
RAMP_STEPS = 100.0
"""Steps until the queue of a call runs evenly."""


def pass_of(variant: Variant) -> str:
    """What a call computes.

    >>> pass_of(Variant(flags=(("backward_data", True),)))
    'data'
    """
    if variant.flag("backward_weights"):
        return WEIGHTS
    return DATA if variant.flag("backward_data") else FORWARD


@final
@dataclass(frozen=True, slots=True)
class LayerShape:
    """Sizes of layers: whole numbers of one op, or arrays of shape (n,).

    Attributes:
        rows: of all gates, gates times units; state: width of what a step hands on.
        projection: width of the projected state, 0 = the state is the units.
    """

    batch: Any
    steps: Any
    units: Any
    rows: Any
    state: Any
    inputs: Any
    projection: Any

    @property
    def step_weights(self) -> Any:
        """Of the state, with those of the projection."""
        return self.rows * self.state + self.units * self.projection

    @property
    def weights(self) -> Any:
        """All of the layer, biases aside."""
        return self.step_weights + self.rows * self.inputs

    @property
    def products(self) -> Any:
        """Multiplications of one pass: each weight once a sequence and step."""
        return self.batch * self.steps * self.weights

    def values(self, direction: str) -> Any:
        """Numbers besides the weights that a pass reads or writes at least once: inputs and states
        (gates, where the inputs' products are not part of the call), backward their gradients too.
        """
        per_step = self.state + self.inputs + self.rows * (self.inputs == 0)
        if direction != FORWARD:
            per_step = 2 * per_step
        return self.batch * self.steps * per_step


@final
@dataclass(frozen=True, slots=True)
class LayerRates:
    """What a device reaches for one variant; SI units."""

    c: Mapping[str, float]
    pipe: str
    compute: str
    element: float
    peak_per_s: float
    dram_per_s: float
    clock_hz: float
    l2_bytes: float
    exchange_per_s: float
    register_bytes: float


@lru_cache(maxsize=1024)
def layer_rates(variant: Variant, device: Device) -> LayerRates:
    """The rates of a variant on a device.

    Raises:
        SilicastError: unknown format, one that layers do not take, or that the device does not
            multiply.
    """
    recipe = recipe_for(variant.dtype, field="dtype")
    if recipe.name not in FORMATS:
        raise unsupported(
            f"recurrent layers run in {', '.join(FORMATS)}, found {recipe.name}",
            "dtype",
            "name one of these",
        )
    pipe = device.matrix_pipe(recipe.compute)
    limits = known_limits().get(device.architecture)
    if device.execution_model == "simt":
        chip_bytes, chip_per_s = device.l2.capacity_bytes, cache_rate(device)
    else:
        chip_bytes, chip_per_s, _ = on_chip(device)
    return LayerRates(
        c=load_physics(PHYSICS).constants(device.architecture),
        pipe=pipe,
        compute=recipe.compute,
        element=BITS[recipe.output] / 8.0,
        peak_per_s=device.peak_per_s(pipe, recipe.compute),
        dram_per_s=device.dram.bandwidth_bytes_per_s,
        clock_hz=device.clocks.boost_hz,
        l2_bytes=chip_bytes,
        exchange_per_s=chip_per_s / device.cores,
        register_bytes=float(limits.registers * REGISTER_BYTES * device.cores) if limits else 0.0,
    )


def step_s(shape: LayerShape, direction: str, rates: LayerRates, c: Mapping[str, float]) -> F64:
    """One step with its kernels of gates, shape (n,): forward, or of the gradient of the data."""
    forward = direction == FORWARD
    depth = shape.state if forward else shape.rows
    weight_bytes = shape.step_weights * rates.element
    few = shape.batch <= NARROW[0] / 2
    narrow = (shape.batch > NARROW[0]) & (shape.batch <= NARROW[1])
    usual = c[f"{direction}.sum_cycles"]
    cycles = np.where(narrow, max(usual, c["narrow_sum_cycles"]), usual)
    from_cache = np.where(weight_bytes < rates.l2_bytes * c["l2_share"], c["l2_time"], 1.0)
    columns = np.maximum(shape.batch, NARROW[0] / 2) + c["added_columns"]
    read_s = weight_bytes * from_cache / (rates.dram_per_s * c[f"{direction}.dram_efficiency"])
    operations = 2.0 * shape.step_weights * columns
    products_s = operations / (rates.peak_per_s * c[f"{direction}.efficiency"])
    chain_s = np.where(few, 0.0, depth * cycles / rates.clock_hz)
    busy = smooth_max((read_s, products_s, chain_s))
    states = 1.0 if forward else 4.0
    values = shape.batch * (2.0 * shape.rows + states * shape.units) * rates.element
    gates = values / (rates.dram_per_s * c["gates_efficiency"])
    step: F64 = busy + gates + c[f"{direction}.step_s"]
    return step


def persistent_step_s(shape: LayerShape, rates: LayerRates, c: Mapping[str, float]) -> F64:
    """One step of a kernel that holds the weights: a barrier, then every core reads all states."""
    products = 2.0 * shape.step_weights * shape.batch
    exchanged = shape.batch * shape.state * rates.element
    step: F64 = (
        c["barrier_s"]
        + exchanged / rates.exchange_per_s
        + products / (rates.peak_per_s * c["persistent_efficiency"])
    )
    return step


def layer_time(
    shape: LayerShape, variant: Variant, rates: LayerRates, c: Mapping[str, float], once_s: F64
) -> F64:
    """Time of calls, shape (n,); ``once_s``: the products that run once for all steps."""
    direction = pass_of(variant)
    call = c["call_s"] * np.minimum(shape.steps / RAMP_STEPS, 1.0)
    if direction == WEIGHTS:
        weights: F64 = once_s * c["weights.efficiency"] + shape.steps * c["weights.step_s"]
        return weights + c["launch_s"]
    one_step_s = step_s(shape, direction, rates, c)
    if variant.flag(PERSISTENT):
        room = rates.register_bytes * c["register_share"]
        fits = shape.step_weights * rates.element <= room
        one_step_s = np.where(
            fits, np.minimum(persistent_step_s(shape, rates, c), one_step_s), one_step_s
        )
    time: F64 = c["launch_s"] + call + once_s + shape.steps * one_step_s
    return time


class RecurrentLayer(Implementation):
    """A layer of one direction; subclasses state how many rows of weights a unit has."""

    group: ClassVar[str] = PHYSICS
    in_parts: ClassVar[bool] = True
    runs_above_boost: ClassVar[bool] = True
    gates: ClassVar[int]
    dtypes: ClassVar[tuple[str, ...]] = FORMATS[:3]
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "batch": (1, 1 << 16),
        "steps": (1, 1 << 20),
        "hidden": (1, 1 << 16),
        "input": (0, 1 << 16),
    }

    @final
    def shape(self, dims: Mapping[str, Any]) -> LayerShape:
        """Sizes of an op, or of a batch of ops."""
        units, projection = dims["hidden"], dims.get("projection", 0)
        inputs = dims.get("input", 0 * units)
        state = units if isinstance(projection, int) and not projection else projection
        rows = self.gates * units
        return LayerShape(
            dims["batch"], dims["steps"], units, rows, state, inputs, projection + 0 * units
        )

    @final
    def once(self, batch: OpBatch) -> list[PartBatch]:
        """Products that run once for all steps: of the inputs, or gradients of the weights."""
        shape, direction = self.shape(batch.dims), pass_of(batch.variant)
        rows, columns = shape.batch * shape.steps, np.maximum(shape.inputs, 1)
        count = (shape.inputs > 0).astype(np.int64)
        if direction == FORWARD:
            return [_product(batch, "inputs", rows, shape.rows, columns, count)]
        if direction == DATA:
            return [_product(batch, "inputs", rows, columns, shape.rows, count)]
        projected = (shape.projection > 0).astype(np.int64)
        width = np.maximum(shape.projection, 1)
        return [
            _product(batch, "states", shape.rows, shape.state, rows, 1),
            _product(batch, "inputs", shape.rows, columns, rows, count),
            _product(batch, "projection", width, shape.units, rows, projected),
        ]

    @final
    def stepwise(self, batch: OpBatch) -> list[PartBatch]:
        """Kernels of the steps where no library has one of its own: a product and the gates'."""
        shape, direction = self.shape(batch.dims), pass_of(batch.variant)
        if direction == WEIGHTS:
            return []
        width, depth = shape.rows, shape.state
        if direction == DATA:
            width, depth = depth, width
        kind = Variant(dtype=batch.variant.dtype, cache="warm", flags=(("sigmoid", True),))
        gates = {"elements": shape.batch * shape.rows, "inputs": shape.rows * 0 + 2}
        columns, projected = np.maximum(shape.projection, 1), shape.projection > 0
        return [
            _product(batch, "step", shape.batch, width, depth, shape.steps),
            _product(
                batch, "projection", shape.batch, columns, shape.units, shape.steps * projected
            ),
            PartBatch("gates", batch.beside("elementwise", kind, gates), shape.steps),
        ]

    @final
    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        """On GPUs by the law above; elsewhere each step is a product and a kernel of gates."""
        shape, variant = self._floats(batch), batch.variant
        gpu = device.execution_model == "simt"
        if variant.flag(PERSISTENT) and not gpu:
            raise unsupported(
                f"{device.name} has no kernel that holds the weights of all steps",
                PERSISTENT,
                "leave it out",
            )
        parts = self.once(batch) + ([] if gpu else self.stepwise(batch))
        rates, once = layer_rates(variant, device), timed(parts, device)
        once_s: F64 = np.zeros(len(batch))
        for part in once:
            once_s = once_s + part.total_s
        time = layer_time(shape, variant, rates, rates.c, once_s) if gpu else once_s
        least_bytes = rates.element * (shape.weights + shape.values(pass_of(variant)))
        cold = variant.cache == "cold"
        forced = least_bytes if cold else np.maximum(least_bytes - rates.l2_bytes, 0.0)
        operations = 2.0 * shape.products
        products_s = operations / device.bound_per_s(rates.pipe, rates.compute)
        dram_s = forced / device.dram.bandwidth_bytes_per_s
        return Analysis(
            time_s=time,
            bound_s=np.maximum(products_s, dram_s),
            resource_s={
                rates.pipe: products_s,
                "dram": dram_s,
                "launch": np.full_like(time, rates.c["launch_s"]),
            },
            demand=_demand(shape, pass_of(variant), rates, device, operations),
            features={"once_share": once_s / time, "bound_share": products_s / time},
            independent_log_sd=np.full_like(time, rates.c["independent_log_sd"]),
            warnings=_remarks(shape, variant, rates, once),
        )

    def _floats(self, batch: OpBatch) -> LayerShape:
        return self.shape({name: values.astype(np.float64) for name, values in batch.dims.items()})

    @final
    def shared_log_sd(self, variant: Variant, device: Device) -> Mapping[str, float]:
        return shared_errors(self.family, layer_rates(variant, device).c)

    @final
    def is_measured(self, variant: Variant, device: Device) -> bool:
        """See :meth:`Implementation.is_measured`: no kernel that holds its weights was measured."""
        measured = load_physics(PHYSICS).is_measured(device.architecture)
        return measured and not variant.flag(PERSISTENT)

    @final
    def flops(self, op: Op) -> int:
        """2 per weight, sequence and step, in each of the passes."""
        return 2 * int(self.shape(dict(op.dims)).products)

    @final
    def compulsory_bytes(self, op: Op) -> int:
        """Weights once, with the inputs, states and gradients of the pass."""
        shape, recipe = self.shape(dict(op.dims)), RECIPES[op.variant.dtype]
        numbers = int(shape.weights + shape.values(pass_of(op.variant)))
        return -(-numbers * int(BITS[recipe.output]) // 8)


def _product(batch: OpBatch, name: str, m: Any, n: Any, k: Any, count: Any) -> PartBatch:
    kind = Variant(dtype=batch.variant.dtype, library=batch.variant.library)
    dims = {"m": m, "n": n, "k": k, "batch": m * 0 + 1}
    return PartBatch(name, batch.beside("gemm", kind, dims), count)


def _demand(
    shape: LayerShape, direction: str, rates: LayerRates, device: Device, operations: F64
) -> Demand:
    """Steps read the weights from memory each time, unless the cache keeps them."""
    weight_bytes = shape.step_weights * rates.element
    reads = np.where(weight_bytes > rates.l2_bytes, shape.steps, 1.0)
    if direction == WEIGHTS:
        reads = np.ones_like(reads)
    values = shape.values(direction) * rates.element
    moved = values + weight_bytes * shape.steps
    tasks = np.ceil(shape.rows / 128.0)
    return Demand(
        tasks=tasks,
        waves=tasks / device.cores,
        occupancy=np.minimum(tasks / device.cores, 1.0),
        pipe_work={rates.pipe: operations},
        level_bytes={"dram": values + weight_bytes * reads, "l2": moved},
    )


def _remarks(
    shape: LayerShape, variant: Variant, rates: LayerRates, parts: list[TimedPart]
) -> tuple[str, ...]:
    warnings = [warning for part in parts for warning in part.warnings]
    if variant.flag(PERSISTENT):
        room = rates.register_bytes * rates.c["register_share"]
        if np.any(shape.step_weights * rates.element > room):
            warnings.append("the weights do not fit into registers: each step reads them again")
        else:
            warnings.append("kernels that hold their weights were not measured")
    return tuple(dict.fromkeys(warnings))


@register
@final
class Lstm(RecurrentLayer):
    """Dimensions: batch, steps, hidden, input (0 = without its products), projection (optional)."""

    family: ClassVar[str] = "lstm"
    gates: ClassVar[int] = 4


@register
@final
class Gru(RecurrentLayer):
    """Dimensions: batch, steps, hidden, input (0 = without its products)."""

    family: ClassVar[str] = "gru"
    gates: ClassVar[int] = 3


@register
@final
class Rnn(RecurrentLayer):
    """Dimensions: batch, steps, hidden, input (0 = without its products)."""

    family: ClassVar[str] = "rnn"
    gates: ClassVar[int] = 1
