"""Which tile AMD's libraries run a matrix product with: their tuning tables as a model.

Tensile tunes rocBLAS and hipBLASLt by timing kernels on thousands of problems and keeping the
winner of each. A softmax over candidate tiles stands for those tables. It sees ratios of a
candidate to the problem and to the device (waves, fill, padding, depth, the analytic time over the
best one's) and which tiles the kernels of a format come in, on an architecture where that was
seen. Weights: catalog/physics/gemm_choice.json, fitted by lab/fit_gemm_choice.py.

It names what is expected to run. Times do not rest on it: docs/explanation/gemm.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

import numpy as np

from silicast.core.numerics import F64, exp_fixed, folded, log_fixed
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.products.candidates import amd_sides, amd_tiles
from silicast.kernels.products.gemm_model import GemmRates, GemmSteps, evaluate

PHYSICS = "gemm_choice"

FORMATS = ("fp64", "fp32", "fp16", "bf16", "int8")
"""Formats of arithmetic that the tables hold."""

SLOPES = ("own", "work", "depth", "aspect", "work2")
"""What a tile's own weights are multiplied with: one, and logarithms of the problem's ratios."""

TERMS = (
    "wave", "wave_-4", "wave_-2", "wave_-1", "wave_0", "wave_1", "wave_2", "wave_4",
    "fill", "fill_few", "pad_m", "pad_n", "pad_m_1", "pad_n_1", "pad_m_work", "pad_n_work",
    "slow", "slow_0.2", "slow_1", "slow_work", "slow_depth", "wave_depth", "wave2",
    "m_rows", "m_rows2", "n_columns", "n_columns2",
)  # fmt: skip
"""Ratios of a candidate that all tiles share weights of."""

NAMED = 3
"""Candidates that people are told of."""

_WAVE_BENDS = (-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0)
_DEPTH = 16.0
_LEAST_NEAR = 1.0 / 1024.0
_LOG2 = 1.0 / 0.6931471805599453
_LEAST = -40.0


@cache
def _sides() -> tuple[F64, F64, F64, F64]:
    """Rows and columns of the candidates and their logarithms, each of shape (candidates, 1)."""
    sides = np.array(amd_sides(), dtype=np.float64)
    m, n = sides[:, 0:1].copy(), sides[:, 1:2].copy()
    return m, n, log_fixed(m) * _LOG2, log_fixed(n) * _LOG2


@lru_cache(maxsize=256)
def is_tuned(architecture: str, compute: str) -> bool:
    """Whether the tables hold products of a format on an architecture, or on its stand-in.

    >>> is_tuned("cdna3", "bf16"), is_tuned("cdna4", "bf16"), is_tuned("hopper", "bf16")
    (True, True, False)
    """
    physics = load_physics(PHYSICS)
    tuned_as = physics.fallback.get(architecture, architecture)
    return weight_name(compute, amd_sides()[0], SLOPES[0]) in physics.architectures.get(
        tuned_as, {}
    )


def likeliest(
    sizes: Sequence[F64],
    k_bytes: float,
    rates: GemmRates,
    constants: Mapping[str, float],
    architecture: str,
    compute: str,
) -> dict[str, float]:
    """The three likeliest tiles of one product and their chances.

    Args:
        sizes: m, n, k and batch, each of shape (1, 1).
        k_bytes: depth of a main-loop step.
        rates, constants: as the analytic model takes them.
        architecture, compute: as of :func:`tile_probabilities`.
    """
    tiles = amd_tiles(k_bytes)
    m, n, k, batch = sizes
    steps = GemmSteps.from_rates(tiles, rates, constants)
    time = evaluate(m, n, k, batch, tiles, steps, rates, constants).time
    flat = m[0], n[0], k[0], batch[0]
    near = time.min(axis=0) / time
    chances = tile_probabilities(flat, rates.cores, near, architecture, compute)[:, 0]
    order = np.argsort(-chances, kind="stable")[:NAMED].tolist()
    return {tiles.labels[index]: round(float(chances[index]), 4) for index in order}


def tile_probabilities(
    sizes: tuple[F64, F64, F64, F64], cores: float, near: F64, architecture: str, compute: str
) -> F64:
    """How likely a library runs each candidate, shape (candidates, rows); columns add up to 1.

    Args:
        sizes: m, n, k and batch of the products, shape (rows,).
        cores: of the device.
        near: analytic time of the fastest candidate over each's, shape (candidates, rows).
        architecture: of the device; of one without tables, what the others have in common holds.
        compute: format of the arithmetic, one of :data:`FORMATS`.

    >>> few, many = (np.array([x]) for x in (16.0, 8192.0))
    >>> near = np.ones((len(amd_sides()), 1))
    >>> rows = []
    >>> for m in (few, many):
    ...     found = tile_probabilities((m, many, many, few), 304.0, near, "cdna3", "bf16")
    ...     rows.append(amd_sides()[int(found.argmax())][0])
    >>> rows[0] < rows[1]
    True
    """
    shared, tile_weights = _weights(architecture, compute)
    across = np.full_like(sizes[0], cores)
    logits = folded(shared * terms_of(*sizes, across, near))
    logits = logits + folded(tile_weights * slopes_of(*sizes, across)[:, None, :])
    raised = exp_fixed(np.maximum(logits - logits.max(axis=0), _LEAST))
    tile_probabilities: F64 = raised / folded(raised)
    return tile_probabilities


def slopes_of(m: F64, n: F64, k: F64, batch: F64, cores: F64) -> F64:
    """What each tile's own weights are multiplied with, shape (slopes, rows)."""
    sizes = np.stack((m * n * batch / (cores * 4096.0), k / _DEPTH, m / n))
    work, deep, aspect = log_fixed(sizes) * (_LOG2 * 0.125)
    return np.stack((np.ones_like(work), work, deep, aspect, work * work))


def terms_of(m: F64, n: F64, k: F64, batch: F64, cores: F64, near: F64) -> F64:
    """What all tiles' logits are linear in, shape (terms, candidates, rows).

    Args:
        m, n, k, batch: sizes of products; cores: of the device. Shape (rows,).
        near: as of :func:`tile_probabilities`.
    """
    tile_m, tile_n, log_m, log_n = _sides()
    grid_m, grid_n = np.ceil(m / tile_m), np.ceil(n / tile_n)
    waves = grid_m * grid_n * batch / cores
    fill = waves / np.ceil(waves)
    ratios = (waves, grid_m * tile_m / m, grid_n * tile_n / n, np.maximum(near, _LEAST_NEAR))
    wave, pad_m, pad_n, nearness = log_fixed(np.stack(ratios)) * _LOG2
    slow = -nearness
    work, deep = slopes_of(m, n, k, batch, cores)[1:3]
    rows, columns = log_fixed(np.stack((m, n)) / 64.0) * (_LOG2 * 0.125)
    terms = (
        wave * 0.25, *(np.maximum(wave - bend, 0.0) * 0.25 for bend in _WAVE_BENDS), fill,
        fill * np.maximum(2.0 - wave, 0.0) * 0.5, pad_m, pad_n, np.maximum(pad_m - 1.0, 0.0),
        np.maximum(pad_n - 1.0, 0.0), pad_m * work, pad_n * work, slow, np.minimum(slow, 0.2),
        np.minimum(slow, 1.0), slow * work, slow * deep, wave * deep, wave * wave * 0.0625,
        log_m * rows * 0.25, log_m * log_m * rows * 0.0625, log_n * columns * 0.25,
        log_n * log_n * columns * 0.0625,
    )  # fmt: skip
    return np.stack(terms)


def weight_name(compute: str, side: tuple[int, int], slope: str) -> str:
    """The name of one of a tile's own weights in the constants file.

    >>> weight_name("fp16", (64, 128), "work")
    'fp16.64x128.work'
    """
    return f"{compute}.{side[0]}x{side[1]}.{slope}"


@lru_cache(maxsize=64)
def _weights(architecture: str, compute: str) -> tuple[F64, F64]:
    """The shared weights, shape (terms, 1, 1), and the tiles' own, (slopes, candidates, 1)."""
    table: Mapping[str, float] = load_physics(PHYSICS).constants(architecture)
    shared = np.array([table[name] for name in TERMS])
    tile_weights = [
        [table[weight_name(compute, side, slope)] for side in amd_sides()] for slope in SLOPES
    ]
    return shared[:, None, None], np.array(tile_weights)[:, :, None]
