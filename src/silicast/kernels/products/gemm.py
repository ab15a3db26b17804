"""Dense and batched matrix products: C[m, n] = A[m, k] x B[k, n], ``batch`` of them.

The library's choice of tile is not known, so the estimate is an expectation over candidates: each
weighs by how close its predicted time is to the best (docs/explanation/gemm.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, final

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from silicast.core import xp
from silicast.core.dtypes import BITS, Recipe, recipe_for
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.attention.attention_memory import L2_BYTES_PER_CLOCK_AND_CORE
from silicast.kernels.implementation import Analysis, CandidateLabels, Demand, Implementation
from silicast.kernels.in_blocks import Lazy
from silicast.kernels.physics.formats import with_format
from silicast.kernels.physics.power import HEADROOM
from silicast.kernels.products.candidates import CandidateTiles, product_tiles
from silicast.kernels.products.gemm_choice import is_tuned, likeliest
from silicast.kernels.products.gemm_constants import (
    constants_for,
    maker_of,
    measured_anywhere,
    measured_format,
    queued,
    rule_of,
    run_as,
)
from silicast.kernels.products.gemm_model import (
    ROWS_PER_CHUNK,
    GemmRates,
    GemmSteps,
    evaluate,
    stays_in_l2,
)
from silicast.kernels.products.gemm_shapes import GEMM_DIMS, gemm_sizes
from silicast.kernels.products.sparsity import (
    UNMEASURED_LOG_SD,
    is_sparse,
    sparse_rate,
    sparse_rates,
    stored_bits,
)
from silicast.kernels.registry import register
from silicast.kernels.row_devices import RowDevices
from silicast.workload.graphs.op import Op, OpBatch, Variant

COLUMNS = (
    "time", "blocks", "block_steps", "per_core", "tensor", "l2", "dram", "chain", "dram_bytes",
)  # fmt: skip


@final
@dataclass(frozen=True)
class GemmSetting:
    """All that rows of one batch share: formats, pipe, constants, candidates, rates.

    Attributes:
        built: the setting of the board without the limit of its clock, where that binds: libraries
            choose tiles and splits of k without regard to it; None = none binds.
    """

    recipe: Recipe
    pipe: str
    constants: Mapping[str, float]
    tiles: CandidateTiles
    rates: GemmRates
    steps: GemmSteps
    quantises: bool
    device: Device
    variant: Variant
    measured: bool
    shared_log_sd: Mapping[str, float]
    sparse_rate: float = 1.0
    built: GemmSetting | None = None

    @staticmethod
    def from_variant(
        variant: Variant, device: Device, constants: Mapping[str, float] | None = None
    ) -> GemmSetting:
        """The setting of one variant on one device.

        Raises:
            SilicastError: unknown format, or one that the device lacks.
        """
        if constants is None:
            return _setting(variant, device)
        return _make_setting(variant, device, constants)

    @property
    def clocked(self) -> GemmClocked:
        """What of it differs by the clock."""
        return GemmClocked(self.tiles, self.constants, self.rates, self.steps, self.built)


@final
class GemmClocked(Struct, frozen=True):
    """Parts of a :class:`GemmSetting` that differ by the clock of its device; candidates, and those
    of the board as built, may differ too: :meth:`Gemm.analyse_at` then goes clock by clock.

    Attributes:
        tiles, constants, rates, steps, built: see there; seconds and rates per second of the model.
    """

    tiles: CandidateTiles
    constants: Mapping[str, float]
    rates: GemmRates
    steps: GemmSteps
    built: GemmSetting | None


@lru_cache(maxsize=512)
def _setting(variant: Variant, device: Device) -> GemmSetting:
    recipe = run_as(recipe_for(variant.dtype), device, variant.kernel)
    pipe = device.matrix_pipe(recipe.compute)
    maker = maker_of(variant, device.architecture)
    constants = constants_for(device, recipe, maker, pipe, variant.kernel)
    if pipe == "fma" and variant.launch != "stream":
        constants = queued(constants, device.architecture)
    setting, built = _make_setting(variant, device, constants), device.at_built_clock()
    free_hz = built.clocks.with_headroom_hz(constants.get(HEADROOM, 0.0))
    if built is device or device.clocks.max_hz >= free_hz:
        return setting
    return replace(setting, built=_setting(variant, built))


def _make_setting(variant: Variant, device: Device, constants: Mapping[str, float]) -> GemmSetting:
    recipe = run_as(recipe_for(variant.dtype), device, variant.kernel)
    pipe = device.matrix_pipe(recipe.compute)
    tiles = product_tiles(
        device.architecture,
        pipe,
        constants["smallest_tile_m"],
        constants["smallest_tile_n"],
        compute=recipe.compute,
        narrow_rows=constants.get("narrow_rows", 0.0),
        skinny_rows=constants.get("skinny_rows", 0.0),
        small_tile_rows=rule_of(variant, device.architecture).small_tile_rows,
    )
    rates = GemmRates.from_device(device, recipe, pipe, variant, constants)
    faster = sparse_rate(variant, recipe, device)
    if faster > 1.0:
        rates = sparse_rates(rates, recipe, faster)
    return GemmSetting(
        recipe=recipe, pipe=pipe, constants=constants, tiles=tiles, rates=rates,
        steps=GemmSteps.from_rates(tiles, rates, constants), quantises=_quantises(variant, recipe),
        device=device, variant=variant, measured=measured_format(device, recipe),
        shared_log_sd=_shared_log_sd(recipe, constants), sparse_rate=faster,
    )  # fmt: skip


def _shared_log_sd(recipe: Recipe, c: Mapping[str, float]) -> Mapping[str, float]:
    shared_log_sd = {
        "device": c.get("device_log_sd", 0.0),
        "family:gemm": c.get("family_log_sd", 0.0),
    }
    borrowed = c.get("borrowed_log_sd", 0.0)
    if not measured_anywhere(recipe):
        borrowed = c.get("unmeasured_format_log_sd", 0.0)
    if borrowed > 0.0:
        shared_log_sd["format:gemm"] = borrowed
    return shared_log_sd


def _fold(rows: list[Any]) -> F64:
    """Sum of rows (or of numbers) in a fixed order, whatever their length."""
    while len(rows) > 3 and len(rows) % 2 == 0:
        half = len(rows) // 2
        rows = [one + other for one, other in zip(rows[:half], rows[half:], strict=True)]
    total: F64 = sum(rows[1:], rows[0])
    return total


def _expected_chunk(
    setting: GemmSetting, m: F64, n: F64, k: F64, batch: F64
) -> tuple[F64, dict[str, F64]]:
    chooser = setting.built or setting
    c, every = chooser.constants, (chooser.tiles, chooser.steps, chooser.rates)
    chosen = result = evaluate(m, n, k, batch, *every, c)
    if setting.built is not None:
        built_inputs = setting.tiles, setting.steps, setting.rates, setting.constants
        result = evaluate(m, n, k, batch, *built_inputs, chosen)
    time, near = _expectation(result.time, chosen.time)
    alone_from, alone_to = c.get("alone_from_k", 0.0), c.get("alone_to_k", 0.0)
    if alone_to > alone_from and xp.any_of((batch > 1.0) & (k > alone_from)):
        alone = evaluate(m, n, k, batch / batch, *every, c).time
        share = xp.minimum(xp.maximum((k - alone_from) / (alone_to - alone_from), 0.0), 1.0)
        share = share[0] if isinstance(share, np.ndarray) else share
        time = time + share * (_expectation(result.time, alone)[0] - time)
    if not isinstance(m, np.ndarray):
        only = xp.int64(chosen.time.argmin())
        numbers: dict[str, Any] = {name: xp.picked(getattr(result, name), only) for name in COLUMNS}
        numbers |= {"best": only, "near": near[:, 0].tolist()}
        return time.item(), numbers
    fastest = chosen.time.argmin(axis=0)
    position = fastest * len(fastest) + np.arange(len(fastest))
    best = {name: getattr(result, name).take(position) for name in COLUMNS}
    best["best"] = fastest.astype(np.float64)
    best["near"] = near
    return time, best


def _expectation(times: F64, deciding: F64) -> tuple[F64, F64]:
    """Expected time of each row, shape (rows,), and how near each candidate is to the best.

    Args:
        times: of every candidate, shape (candidates, rows).
        deciding: the times that the library chooses by. Those of the products themselves; but
            tables of tuned kernels hold few batches, so that a deep one gets the kernel of a
            single product of its size.
    """
    near = deciding.min(axis=0) / deciding
    closeness = near * near
    for _ in range(3):
        closeness *= closeness
    time: F64 = _fold(list(closeness * times)) / _fold(list(closeness))
    return time, near


def expected(
    setting: GemmSetting, m: F64, n: F64, k: F64, batch: F64
) -> tuple[F64, dict[str, F64]]:
    """Expected time of every row, and all columns of :class:`Candidates` of its best candidate.

    "best" holds the index of the fastest candidate. Arrays of shape (rows,), but for "near", of
    shape (candidates, rows): the time of the fastest over that of each. Numbers for a row of
    numbers.
    """
    if not isinstance(m, np.ndarray):
        return _expected_chunk(setting, m, n, k, batch)
    rows = len(m)
    if rows <= ROWS_PER_CHUNK:
        return _expected_chunk(setting, m[None], n[None], k[None], batch[None])
    time = np.empty(rows)
    best = {name: np.empty(rows) for name in (*COLUMNS, "best")}
    best["near"] = np.empty((len(setting.tiles.labels), rows))
    for start in range(0, rows, ROWS_PER_CHUNK):
        part = slice(start, start + ROWS_PER_CHUNK)
        sizes = (size[None, part] for size in (m, n, k, batch))
        time[part], result = _expected_chunk(setting, *sizes)
        for name, column in best.items():
            column[..., part] = result[name]
    return time, best


def estimate(
    setting: GemmSetting, m: F64, n: F64, k: F64, batch: F64
) -> tuple[F64, dict[str, F64]]:
    """Time as the variant's protocol measures it, and the best candidate's columns."""
    c = setting.constants
    time, best = expected(setting, m, n, k, batch)
    if setting.quantises:
        best["quantise"] = _quantise_s(setting, m * batch, k)
        time = time + best["quantise"]
    if setting.variant.launch == "stream":
        time = time + c["stream_launch_s"]
    return time, best


@register
@final
class Gemm(Implementation):
    """Matrix products of cuBLAS-class libraries on SIMT devices.

    The flag ``includes_quantize`` says that activations arrive in the output format and the call
    quantises them first (SGLang's and vLLM's dynamic fp8 linear layers); ``sparse_2_4``, that two
    weights in four are zero and left out (:mod:`silicast.kernels.products.sparsity`).
    """

    family: ClassVar[str] = "gemm"
    takes_numbers: ClassVar[bool] = True
    has_candidates: ClassVar[bool] = True
    runs_above_boost: ClassVar[bool] = True
    dims: ClassVar[Mapping[str, tuple[int, int]]] = GEMM_DIMS

    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        setting = GemmSetting.from_variant(batch.variant, device)
        return analyse_rows(setting, *_rows(batch))

    def analyse_at(self, batch: OpBatch, devices: RowDevices) -> Analysis:
        """All rows at once, with a column of rates: candidates are the same at every clock."""
        settings = {x: GemmSetting.from_variant(batch.variant, x) for x in devices.devices}
        first = settings[devices.devices[0]]
        alike = (x.tiles is first.tiles and x.built is first.built for x in settings.values())
        if not all(alike):
            return super().analyse_at(batch, devices)
        record = devices.beside(lambda device: settings[device].clocked)
        return self.analyse_clocked(batch, devices.devices[0], record)

    def clocked(self, variant: Variant, device: Device) -> GemmClocked:
        return GemmSetting.from_variant(variant, device).clocked

    def analyse_clocked(self, batch: OpBatch, device: Device, record: GemmClocked) -> Analysis:
        setting = GemmSetting.from_variant(batch.variant, device)
        of_clock = {name: getattr(record, name) for name in record.__struct_fields__}
        analysis = analyse_rows(replace(setting, **of_clock), *_rows(batch))
        return structs.replace(analysis, choice=tuple)

    def shared_log_sd(self, variant: Variant, device: Device) -> Mapping[str, float]:
        return GemmSetting.from_variant(variant, device).shared_log_sd

    def is_measured(self, variant: Variant, device: Device) -> bool:
        """See :meth:`Implementation.is_measured`: each format has constants of its own."""
        return GemmSetting.from_variant(variant, device).measured

    def configurations(self, op: Op, device: Device) -> Mapping[str, float]:
        """Tiles that AMD's libraries would take; see :meth:`Implementation.configurations`."""
        device, _ = with_format(device, op.variant.dtype)
        setting = GemmSetting.from_variant(op.variant, device)
        compute = setting.recipe.compute
        if not is_tuned(device.architecture, compute):
            return {}
        sizes = [np.array([[float(size)]]) for size in gemm_sizes(op)]
        depth = float(np.min(setting.tiles.k_bytes))
        return likeliest(
            sizes, depth, setting.rates, setting.constants, device.architecture, compute
        )

    def flops(self, op: Op) -> int:
        """2 m n k per product."""
        m, n, k, batch = gemm_sizes(op)
        return 2 * m * n * k * batch

    def compulsory_bytes(self, op: Op) -> int:
        """Both operands read once, the result written once, each rounded up to whole bytes."""
        m, n, k, batch = gemm_sizes(op)
        recipe = recipe_for(op.variant.dtype)
        activations = recipe.output if _quantises(op.variant, recipe) else recipe.activations
        stored = stored_bits(recipe) if is_sparse(op.variant) else recipe.weight_bits
        bits = m * k * BITS[activations] + n * k * stored + m * n * BITS[recipe.output]
        return batch * -int(-bits // 8)


def _rows(batch: OpBatch) -> tuple[F64, F64, F64, F64]:
    m, n, k = (xp.float64(batch.dims[name]) for name in ("m", "n", "k"))
    count = batch.dims.get("batch")
    return m, n, k, batch.filled(1.0) if count is None else xp.float64(count)


def _quantises(variant: Variant, recipe: Recipe) -> bool:
    return variant.flag("includes_quantize") and recipe.quantizes


def analyse_rows(setting: GemmSetting, m: F64, n: F64, k: F64, batch: F64) -> Analysis:
    """The analysis of rows of one setting."""
    rates = setting.rates
    time, best = estimate(setting, m, n, k, batch)
    device = setting.device
    ops = 2.0 * m * n * k * batch
    operands = (m * k * rates.a_bytes + n * k * rates.b_bytes) * batch
    moved = operands + m * n * batch * rates.c_bytes
    # a cold cache makes operands come from memory; results may stay in the cache all the same
    fetched = operands if setting.variant.cache == "cold" else 0.0
    forced = xp.maximum(moved - device.l2.capacity_bytes, fetched)
    peak = device.bound_per_s(setting.pipe, setting.recipe.compute)
    arithmetic = ops / (peak * setting.sparse_rate)
    memory = forced / device.dram.bandwidth_bytes_per_s
    inner = device.cores * device.clocks.max_hz * L2_BYTES_PER_CLOCK_AND_CORE
    demand = _demand(setting, best)
    return Analysis(
        time_s=time,
        bound_s=xp.maximum(xp.maximum(arithmetic, memory), moved / inner),
        resource_s={
            setting.pipe: arithmetic,
            "dram": memory,
            "l2": moved / inner,
            "launch": xp.full_like(time, setting.constants["launch_s"]),
        },
        demand=demand,
        features=Lazy(
            lambda: _features(setting, best, demand, {"m": m, "n": n, "k": k}, ops, moved)
        ),
        independent_log_sd=_independent_log_sd(setting, time, batch),
        choice=CandidateLabels(setting.tiles.labels, best["best"]),
    )


def _features(
    setting: GemmSetting,
    best: Mapping[str, F64],
    demand: Demand,
    sizes: Mapping[str, F64],
    ops: F64,
    moved: F64,
) -> dict[str, F64]:
    """What learned corrections read: ratios of the columns of each row's best candidate.

    Ratios, not logarithms: they are the same bits in every batch; learners take logs.
    """
    rates, time = setting.rates, best["time"]
    ridge = rates.core_rate * rates.cores / rates.dram
    features = {f"{name}_share": best[name] / time for name in ("tensor", "l2", "dram", "chain")}
    features["launch_share"] = setting.constants["launch_s"] / time
    features["padding"] = demand.pipe_work[setting.pipe] / ops
    features["waves"] = demand.waves
    features["fill"] = demand.waves / xp.ceil(demand.waves)
    features["working_set_over_l2"] = moved / rates.l2_bytes
    features["rereads"] = best["dram_bytes"] / moved
    features["intensity_over_ridge"] = ops / (moved * ridge)
    for name, size in sizes.items():
        eighths = size * 0.125
        features[f"{name}_odd"] = eighths - xp.floor(eighths)
    features["steps"] = best["block_steps"]
    if "quantise" in best:
        features["quantise_share"] = best["quantise"] / time
    features.update(zip(setting.tiles.near_names, best["near"], strict=True))
    return features


def _independent_log_sd(setting: GemmSetting, time: F64, batch: F64) -> F64:
    """Log sd of each row's own error, shape (rows,); batches may be less certain, and a call from
    the host adds the host's own spread, by its share of the time.
    """
    c = setting.constants
    log_sd: F64 = xp.full_like(time, c["independent_log_sd"])
    if is_sparse(setting.variant):
        log_sd = xp.maximum(log_sd, UNMEASURED_LOG_SD)
    if (batched := c.get("batched_log_sd", 0.0)) > 0.0:
        log_sd = xp.where(batch > 1.0, xp.maximum(log_sd, batched), log_sd)
    if setting.variant.launch != "stream":
        return log_sd
    host = c["stream_launch_log_sd"] * (c["stream_launch_s"] / time)
    independent_log_sd: F64 = xp.maximum(xp.sqrt(log_sd * log_sd + host * host), log_sd)
    return independent_log_sd


def _demand(setting: GemmSetting, best: Mapping[str, F64]) -> Demand:
    tile = xp.int64(best["best"])
    steps, cores = setting.steps, setting.rates.cores
    blocks, per_core = best["blocks"], best["per_core"]
    slots = _of_tile(steps.slots, tile)
    waves = blocks / slots
    work = best["block_steps"] * _of_tile(steps.operations, tile)
    fetched = best["block_steps"] * _of_tile(steps.bytes, tile)
    return Demand(
        tasks=blocks,
        waves=waves,
        occupancy=xp.minimum(blocks, slots) / cores,
        pipe_work={setting.pipe: blocks * work},
        level_bytes={"l2": blocks * fetched, "dram": best["dram_bytes"]},
        core_pipe_work={setting.pipe: per_core * work},
        core_level_bytes={"l2": per_core * fetched},
    )


def _of_tile(column: F64, tile: NDArray[Any]) -> F64:
    """A column of the candidates for the tile of each row."""
    of_tile: F64 = xp.picked(column, tile)
    return of_tile


def _quantise_s(setting: GemmSetting, rows: F64, k: F64) -> F64:
    """The kernels before the product that find scales and convert activations."""
    c, rates = setting.constants, setting.rates
    size = rows * k * (rates.c_bytes + rates.a_bytes)
    copies = rates.activation_copies
    stays = stays_in_l2(rates.l2_bytes * c["resident_share"], size * copies) if copies else 0.0
    slow = rates.dram * c["dram_efficiency"]
    rate = slow + stays * (rates.l2 * c["quantise_l2_share"] - slow)
    return c["quantise_s"] + rows * c["quantise_row_s"] + rows * k * c["quantise_bytes"] / rate
