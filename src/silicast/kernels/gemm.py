"""Dense and batched matrix products: C[m, n] = A[m, k] x B[k, n], ``batch`` of them.

The library's choice of tile is not known, so the estimate is an expectation over candidates: each
weighs by how close its predicted time is to the best (docs/explanation/gemm.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, final

import numpy as np

from silicast.core.dtypes import BITS, RECIPES, Recipe, modelled_recipe
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.gemm_features import Features, features
from silicast.kernels.gemm_model import ROWS_PER_CHUNK, Machine, Steps, evaluate, stays_in_l2
from silicast.kernels.gemm_tiles import Tiles, tiles_for
from silicast.kernels.implementation import Analysis, Demand, Implementation, register
from silicast.kernels.physics import load_physics
from silicast.kernels.power import Activity, campaign_clock_share
from silicast.workload.op import Op, OpBatch, Variant

PHYSICS = "gemm"

COLUMNS = (
    "time", "blocks", "block_steps", "per_core", "tensor", "l2", "dram", "chain", "dram_bytes",
)  # fmt: skip


@final
@dataclass(frozen=True)
class Setting:
    """All that rows of one batch share: formats, pipe, constants, candidates, machine."""

    recipe: Recipe
    pipe: str
    constants: Mapping[str, float]
    tiles: Tiles
    machine: Machine
    steps: Steps
    quantises: bool
    device: Device
    variant: Variant

    @staticmethod
    def of(
        variant: Variant, device: Device, constants: Mapping[str, float] | None = None
    ) -> Setting:
        """The setting of one variant on one device.

        Raises:
            SilicastError: unknown or not yet modelled format, or one that the device lacks.
        """
        if constants is None:
            return _setting(variant, device)
        return _make_setting(variant, device, constants)


@lru_cache(maxsize=512)
def _setting(variant: Variant, device: Device) -> Setting:
    recipe = modelled_recipe(variant.dtype)
    pipe = device.matrix_pipe(recipe.compute)
    constants = constants_for(device.architecture, recipe, variant.library, pipe)
    return _make_setting(variant, device, constants)


def _make_setting(variant: Variant, device: Device, constants: Mapping[str, float]) -> Setting:
    recipe = modelled_recipe(variant.dtype)
    pipe = device.matrix_pipe(recipe.compute)
    tiles = tiles_for(
        device.architecture,
        pipe,
        constants["smallest_tile_m"],
        constants["smallest_tile_n"],
        compute=recipe.compute,
        narrow_rows=constants.get("narrow_rows", 0.0),
        skinny_rows=constants.get("skinny_rows", 0.0),
    )
    machine = Machine.of(device, recipe, pipe, variant, constants)
    return Setting(
        recipe=recipe,
        pipe=pipe,
        constants=constants,
        tiles=tiles,
        machine=machine,
        steps=Steps.of(tiles, machine, constants),
        quantises=_quantises(variant),
        device=device,
        variant=variant,
    )


def constants_for(
    architecture: str, recipe: Recipe, library: str = "", pipe: str = "tensor"
) -> dict[str, float]:
    """Constants of one architecture; see :func:`selected`.

    On the FMA pipe a format without constants of its own runs in the kernels of fp32, where those
    were measured; fp64 does everywhere, for it has no others.
    """
    physics = load_physics(PHYSICS)
    table = physics.constants(architecture)
    measured = "fp32.tensor_efficiency" in physics.architectures.get(architecture, {})
    if pipe != "fma" or recipe.name == "fp32" or not (measured or recipe.name == "fp64"):
        return selected(table, recipe, library)
    kept = {n: x for n, x in table.items() if n.startswith(f"{recipe.name}.quantise_")}
    found = {**selected(table, RECIPES["fp32"], library), **selected(kept, recipe, library)}
    if recipe.name == "fp64":
        own = "fp64_fma."
        found |= {n.removeprefix(own): x for n, x in table.items() if n.startswith(own)}
    return found


def selected(table: Mapping[str, float], recipe: Recipe, library: str) -> dict[str, float]:
    """The constants that hold for one recipe and library, under their plain names.

    "fp8.tensor_efficiency" holds for the recipe fp8 only, "fp8.quantise_s:vllm" also for vLLM only.

    >>> from silicast.core.dtypes import RECIPES
    >>> selected({"a": 1.0, "fp8.a": 2.0, "fp8.a:vllm": 3.0}, RECIPES["fp8"], "sglang")
    {'a': 2.0}
    """
    family = _constants_of(recipe)
    found: dict[str, float] = {}
    for wanted in ("", f"{family}."):
        for mark in ("", f":{library}"):
            for name, value in table.items():
                head, dot, tail = name.rpartition(".")
                plain, colon, which = tail.partition(":")
                if f"{head}{dot}" == wanted and f"{colon}{which}" == mark:
                    found[plain] = value
    return found


def _fold(values: F64) -> F64:
    """Sum over the first axis in a fixed order, whatever the number of columns."""
    total: F64 = values
    while len(total) > 3 and len(total) % 2 == 0:
        half = len(total) // 2
        total = total[:half] + total[half:]
    first: F64 = total[0]
    for row in total[1:]:
        first = first + row
    return first


def _expected_chunk(
    setting: Setting, m: F64, n: F64, k: F64, batch: F64
) -> tuple[F64, dict[str, F64]]:
    found = evaluate(
        m[None], n[None], k[None], batch[None],
        setting.tiles, setting.steps, setting.machine, setting.constants,
    )  # fmt: skip
    closeness = found.time.min(axis=0) / found.time
    for _ in range(4):
        closeness *= closeness
    time = _fold(closeness * found.time)
    time /= _fold(closeness)
    fastest = found.time.argmin(axis=0)
    place = fastest * len(m) + np.arange(len(m))
    best = {name: getattr(found, name).take(place) for name in COLUMNS}
    best["best"] = fastest.astype(np.float64)
    return time, best


def expected(setting: Setting, m: F64, n: F64, k: F64, batch: F64) -> tuple[F64, dict[str, F64]]:
    """Expected time of every row, and all columns of :class:`Candidates` of its best candidate.

    "best" holds the index of the fastest candidate. Arrays of shape (rows,).
    """
    rows = len(m)
    if rows <= ROWS_PER_CHUNK:
        return _expected_chunk(setting, m, n, k, batch)
    time = np.empty(rows)
    best = {name: np.empty(rows) for name in (*COLUMNS, "best")}
    for start in range(0, rows, ROWS_PER_CHUNK):
        part = slice(start, start + ROWS_PER_CHUNK)
        time[part], found = _expected_chunk(setting, m[part], n[part], k[part], batch[part])
        for name, column in best.items():
            column[part] = found[name]
    return time, best


def estimate(setting: Setting, m: F64, n: F64, k: F64, batch: F64) -> tuple[F64, dict[str, F64]]:
    """Time as the variant's protocol measures it, and the best candidate's columns."""
    c = setting.constants
    time, best = expected(setting, m, n, k, batch)
    if setting.device.power_cap_w is not None:  # a step sets its own clock and lifts the cap
        time = time + _throttled_s(setting, 2.0 * m * n * k * batch, time, best)
    if setting.quantises:
        time = time + _quantise_s(setting, m * batch, k)
    if setting.variant.launch == "stream":
        time = time + c["stream_launch_s"]
    return time, best


def _throttled_s(setting: Setting, ops: F64, time: F64, best: Mapping[str, F64]) -> F64:
    """What the power cap adds in a campaign that repeats the kernel."""
    device = setting.device
    activity = Activity(
        tensor=ops / time / (setting.machine.core_rate * setting.machine.cores),
        dtype=setting.recipe.compute,
        dram=best["dram_bytes"] / time / setting.machine.dram,
    )
    share = campaign_clock_share(device, activity, time)
    return best["tensor"] * (1.0 / share - 1.0)


def measured_format(device: Device, recipe: Recipe) -> bool:
    """Whether products of this recipe were measured and fitted on this very architecture.

    False for formats that borrow another's constants (int8 and tf32 those of bf16, fp64 those of
    bf16 or fp32), and on architectures that another stands in for.

    Raises:
        SilicastError: the device multiplies in the recipe's compute format on no pipe.

    >>> from silicast.core.dtypes import RECIPES
    >>> from silicast.hardware.catalog import find_device
    >>> [measured_format(find_device("H100"), RECIPES[x]) for x in ("bf16", "fp8", "int8", "fp32")]
    [True, True, False, False]
    """
    pipe = device.matrix_pipe(recipe.compute)
    table = load_physics(PHYSICS).architectures.get(device.architecture, {})
    return _fitted_name(pipe, recipe) in table


def _measured_anywhere(recipe: Recipe) -> bool:
    tables = load_physics(PHYSICS).architectures.values()
    return any(
        _fitted_name(pipe, recipe) in table for pipe in ("tensor", "fma") for table in tables
    )


def _fitted_name(pipe: str, recipe: Recipe) -> str:
    """The constant that is there where the recipe was fitted; 16-bit floats share their units."""
    if pipe == "tensor" and recipe.name in ("bf16", "fp16"):
        return "tensor_efficiency"
    return f"{_constants_of(recipe)}.tensor_efficiency"


def _constants_of(recipe: Recipe) -> str:
    """The recipe whose constants hold: static scales change the call, not the product."""
    return "fp8" if recipe.name == "fp8_static" else recipe.name


@register
@final
class Gemm(Implementation):
    """Matrix products of cuBLAS-class libraries on SIMT devices.

    The flag ``includes_quantize`` says that activations arrive in the output format and the call
    quantises them first (SGLang's and vLLM's dynamic fp8 linear layers).
    """

    family: ClassVar[str] = "gemm"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "m": (1, 1 << 24),
        "n": (1, 1 << 24),
        "k": (1, 1 << 24),
        "batch": (1, 1 << 24),
    }

    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        """See :meth:`Implementation.analyse`."""
        setting = Setting.of(batch.variant, device)
        return analyse_rows(setting, *_rows(batch))

    def shared_log_sd(self, batch: OpBatch, device: Device) -> Mapping[str, float]:
        """See :meth:`Implementation.shared_log_sd`."""
        setting = Setting.of(batch.variant, device)
        c = setting.constants
        measured = measured_format(device, setting.recipe)
        found = {
            "device": c["device_log_sd" if measured else "unmeasured_device_log_sd"],
            "family:gemm": c["family_log_sd"],
        }
        if not _measured_anywhere(setting.recipe):
            found["format:gemm"] = c["unmeasured_format_log_sd"]
        return found

    def is_measured(self, variant: Variant, device: Device) -> bool:
        """See :meth:`Implementation.is_measured`: each format has constants of its own."""
        return measured_format(device, modelled_recipe(variant.dtype))

    def flops(self, op: Op) -> int:
        """2 m n k per product."""
        m, n, k, batch = _sizes(op)
        return 2 * m * n * k * batch

    def compulsory_bytes(self, op: Op) -> int:
        """Both operands read once, the result written once, each rounded up to whole bytes."""
        m, n, k, batch = _sizes(op)
        recipe = modelled_recipe(op.variant.dtype)
        activations = recipe.output if _quantises(op.variant) else recipe.activations
        bits = m * k * BITS[activations] + n * k * recipe.weight_bits + m * n * BITS[recipe.output]
        return batch * -int(-bits // 8)


def _sizes(op: Op) -> tuple[int, int, int, int]:
    sizes = dict(op.dims)
    m, n, k, batch = (sizes.get(name, 1) for name in ("m", "n", "k", "batch"))
    if not all(isinstance(size, int) for size in (m, n, k, batch)):
        raise ValueError("a matrix product has plain sizes")
    return int(m), int(n), int(k), int(batch)  # type: ignore[arg-type]


def _rows(batch: OpBatch) -> tuple[F64, F64, F64, F64]:
    m, n, k = (batch.dims[name].astype(np.float64) for name in ("m", "n", "k"))
    count = batch.dims.get("batch")
    return m, n, k, np.ones_like(m) if count is None else count.astype(np.float64)


def _quantises(variant: Variant) -> bool:
    return variant.flag("includes_quantize") and modelled_recipe(variant.dtype).quantizes


def analyse_rows(setting: Setting, m: F64, n: F64, k: F64, batch: F64) -> Analysis:
    """The analysis of rows of one setting."""
    machine = setting.machine
    time, best = estimate(setting, m, n, k, batch)
    device = setting.device
    ops = 2.0 * m * n * k * batch
    operands = (m * k * machine.a_bytes + n * k * machine.b_bytes) * batch
    moved = operands + m * n * batch * machine.c_bytes
    # a cold cache makes operands come from memory; results may stay in the cache all the same
    fetched = operands if setting.variant.cache == "cold" else 0.0
    forced = np.maximum(moved - device.l2.capacity_bytes, fetched)
    arithmetic = ops / device.bound_per_s(setting.pipe, setting.recipe.compute)
    memory = forced / device.dram.bandwidth_bytes_per_s
    demand = _demand(setting, best)
    labels = setting.tiles.labels
    return Analysis(
        time_s=time,
        bound_s=np.maximum(arithmetic, memory),
        resource_s={
            setting.pipe: arithmetic,
            "dram": memory,
            "launch": np.full_like(time, setting.constants["launch_s"]),
        },
        demand=demand,
        features=Features(
            lambda: features(
                machine,
                best,
                demand,
                demand.pipe_work[setting.pipe],
                (m, n, k),
                ops,
                moved,
                setting.constants["launch_s"],
            )
        ),
        independent_log_sd=_independent_log_sd(setting, time),
        choice=tuple(labels[int(index)] for index in best["best"]) if len(m) <= 1000 else (),
    )


def _independent_log_sd(setting: Setting, time: F64) -> F64:
    """Of each row; a call from the host adds the host's own spread, by its share of the time."""
    c = setting.constants
    own = c["independent_log_sd"]
    if setting.variant.launch != "stream":
        return np.full_like(time, own)
    host = c["stream_launch_log_sd"] * (c["stream_launch_s"] / time)
    return np.maximum(np.sqrt(own * own + host * host), own)


def _demand(setting: Setting, best: Mapping[str, F64]) -> Demand:
    tile = best["best"].astype(np.int64)
    steps, cores = setting.steps, setting.machine.cores
    blocks, per_core = best["blocks"], best["per_core"]
    slots = steps.slots.take(tile)
    waves = blocks / slots
    work = best["block_steps"] * steps.operations.take(tile)
    fetched = best["block_steps"] * steps.bytes.take(tile)
    return Demand(
        tasks=blocks,
        waves=waves,
        occupancy=np.minimum(blocks, slots) / cores,
        pipe_work={setting.pipe: blocks * work},
        level_bytes={"l2": blocks * fetched, "dram": best["dram_bytes"]},
        core_pipe_work={setting.pipe: per_core * work},
        core_level_bytes={"l2": per_core * fetched},
    )


def _quantise_s(setting: Setting, rows: F64, k: F64) -> F64:
    """The kernels before the product that find scales and convert activations."""
    c, machine = setting.constants, setting.machine
    size = rows * k * (machine.c_bytes + machine.a_bytes)
    copies = machine.activation_copies
    stays = stays_in_l2(machine.l2_bytes * c["resident_share"], size * copies) if copies else 0.0
    slow = machine.dram * c["dram_efficiency"]
    rate = slow + stays * (machine.l2 * c["quantise_l2_share"] - slow)
    return c["quantise_s"] + rows * c["quantise_row_s"] + rows * k * c["quantise_bytes"] / rate
