"""Elementwise numerics whose bits do not depend on batch size, order or CPU.

NumPy's vectorised ``exp`` and ``log`` and BLAS products give other bits for other array lengths
(docs/explanation/how-a-prediction-is-made.md). The functions here use only IEEE add, multiply,
divide and ``sqrt``, each correctly rounded, and reduce in a fixed order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from silicast.core import xp

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


_INVERSE_FACTORIALS = (1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0)


def exp_fixed(x: F64) -> F64:
    """e**x for |x| <= 20, relative error < 1e-10, the same bits alone or in any batch.

    Method: Taylor series of degree 7 at x/256, then eight squarings.

    >>> bool(abs(exp_fixed(np.array([1.0]))[0] / 2.718281828459045 - 1) < 1e-13)
    True
    """
    if isinstance(x, float):  # one row, see core.xp
        return _exp_of_one(x)
    if not isinstance(x, np.ndarray):
        return xp.of_symbols("exp", x)
    if x.shape == (1,):
        return np.array([_exp_of_one(float(x[0]))])
    r = np.minimum(np.maximum(x, -20.0), 20.0) * 0.00390625
    total = np.full_like(r, _INVERSE_FACTORIALS[0])
    for coefficient in _INVERSE_FACTORIALS[1:]:
        total *= r
        total += coefficient
    for _ in range(8):
        total *= total
    return total


def _exp_of_one(x: float) -> float:
    r = min(max(x, -20.0), 20.0) * 0.00390625
    total = _INVERSE_FACTORIALS[0]
    for coefficient in _INVERSE_FACTORIALS[1:]:
        total = total * r + coefficient
    for _ in range(8):
        total *= total
    return total


def ceil_div(a: I64, b: I64 | int) -> I64:
    """Integer ceiling of a / b for a >= 0, b > 0."""
    return -(-a // b)


def smooth_max(terms: Iterable[F64]) -> F64:
    """A smooth maximum: (sum of t**4)**(1/4), in the order given.

    Overlapping resources never overlap perfectly: with two equal terms the result is 1.19 times
    either, with one dominant term it is that term.
    """
    total: F64 | None = None
    for term in terms:
        square = term * term
        fourth = square * square
        total = fourth if total is None else total + fourth
    if total is None:
        raise ValueError("smooth_max needs at least one term")
    smooth_max: F64 = xp.sqrt(xp.sqrt(total))
    return smooth_max


FEW = 4
"""Up to so many logarithms, Python's numbers are quicker than arrays."""
_LN2 = 0.6931471805599453
_ODD_INVERSES = tuple(1.0 / odd for odd in (15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0))


def folded(values: F64) -> F64:
    """Sum over the first axis in a fixed pairwise order, whatever the number of columns."""
    if len(values) == 2:
        both: F64 = values[0] + values[1]
        return both
    total = values
    while len(total) > 1:
        half = len(total) // 2
        paired = total[:half] + total[half : 2 * half]
        total = np.concatenate((paired, total[2 * half :])) if len(total) % 2 else paired
    first: F64 = total[0]
    return first


def log_fixed(x: F64) -> F64:
    """Natural logarithm of positive numbers, the same bits alone or in any batch; error < 1e-12.

    >>> bool(abs(log_fixed(np.array([10.0]))[0] - 2.302585092994046) < 1e-13)
    True
    """
    if not isinstance(x, np.ndarray):
        return xp.of_symbols("log", x)
    if x.size <= FEW:
        return np.array([_log_of_one(value) for value in x.ravel().tolist()]).reshape(x.shape)
    mantissa, exponent = np.frexp(x)
    low = mantissa < 0.7071067811865476
    mantissa = np.where(low, mantissa * 2.0, mantissa)
    exponent = np.where(low, exponent - 1, exponent)
    z = (mantissa - 1.0) / (mantissa + 1.0)
    square = z * z
    total = np.full_like(z, 1.0 / 17.0)
    for coefficient in _ODD_INVERSES:
        total *= square
        total += coefficient
    log_fixed: F64 = exponent * _LN2 + 2.0 * z * total
    return log_fixed


def _log_of_one(x: float) -> float:
    mantissa, exponent = math.frexp(x)
    if mantissa < 0.7071067811865476:
        mantissa, exponent = mantissa * 2.0, exponent - 1
    z = (mantissa - 1.0) / (mantissa + 1.0)
    square = z * z
    total = 1.0 / 17.0
    for coefficient in _ODD_INVERSES:
        total = total * square + coefficient
    return exponent * _LN2 + 2.0 * z * total


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIXES = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))


def mixed_bits(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Integers whose bits look independent of each other and of those of ``state`` (SplitMix64,
    Steele, Lea and Flood 2014).
    """
    value = state + _GOLDEN
    for shift, factor in zip(_SHIFTS, _MIXES, strict=False):
        value = (value ^ (value >> shift)) * factor
    mixed: NDArray[np.uint64] = value ^ (value >> _SHIFTS[2])
    return mixed


def uniform_of(state: NDArray[np.uint64]) -> F64:
    """Numbers from 0 to below 1 by such bits."""
    uniform: F64 = (state >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return uniform


def positive(values: F64 | I64) -> F64:
    """At least the smallest positive normal number: a safe divisor."""
    return np.maximum(values, np.finfo(np.float64).tiny).astype(np.float64)
