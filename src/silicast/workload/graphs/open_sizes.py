"""Graphs of one program at several sizes, as one graph whose sizes are expressions.

What differs between the graphs must be a number; each such number is written as ``a*M//q + b``
(without a rest), or as a sum of two such terms, where M is a product of powers of *atoms*: the
open sizes themselves, and what the program makes of them (the side of an image behind a
convolution). An expression must give every sample exactly; there are more samples than unknowns, so
that each is checked on sizes that it was not found from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from math import gcd
from typing import Any, final

import numpy as np
from msgspec import Struct

from silicast.core.errors import SilicastError, unsupported
from silicast.workload.graphs.expressions import size_of, symbols_of

FEWEST = 5
"""Samples: one more than the unknowns of the longest expression, and one to check it by."""
MAX_POWER = 4
"""Of one atom alone: scores of attention over all pixels of a square image."""

Sizes = Mapping[str, int]


@final
class SampledGraph(Struct, frozen=True):
    """A program's graph at some sizes, as plain tables."""

    sizes: Sizes
    tree: Any


@final
class Expressions:
    """Finds an expression for numbers that follow open sizes.

    Args:
        points: sizes of each sample.
        atoms: expressions that the program makes of open sizes, the simplest first.
    """

    def __init__(self, points: Sequence[Sizes], atoms: Sequence[str]) -> None:
        if len(points) < FEWEST:
            raise ValueError(f"{len(points)} samples, {FEWEST} are needed")
        self._terms = _monomials(points, atoms)
        self._found: dict[tuple[int, ...], str | None] = {}

    def expression(self, values: Sequence[int]) -> str | None:
        """The simplest expression that has these values at the points; None = there is none.

        >>> points = [{"n": n} for n in (2, 3, 5, 8, 13)]
        >>> Expressions(points, ["n"]).expression([3 * n * n + 7 for n in (2, 3, 5, 8, 13)])
        '3*n**2 + 7'
        >>> Expressions(points, ["n"]).expression([4, 8, 32, 256, 8192])
        """
        key = tuple(values)
        if key not in self._found:
            self._found[key] = next(self._single(key), None) or next(self._double(key), None)
        return self._found[key]

    def _single(self, values: tuple[int, ...]) -> Iterator[str]:
        low, high = min(values), max(values)
        first, last = values.index(low), values.index(high)
        for text, at in self._terms:
            rise, run = high - low, at[last] - at[first]
            if run <= 0:
                continue
            share = gcd(rise, run)
            factor, divisor = rise // share, run // share
            remainder, left = divmod(low * divisor - factor * at[first], divisor)
            if left == 0 and all(
                factor * x == (y - remainder) * divisor for x, y in zip(at, values, strict=True)
            ):
                yield _sum([_term(text, factor, divisor)], remainder)

    def _double(self, values: tuple[int, ...]) -> Iterator[str]:
        """Sums of two products and a number: least squares for all pairs at once, then exactly."""
        pairs = list(combinations(range(len(self._terms)), 2))
        if not pairs:
            return
        at = np.array([power for _, power in self._terms], dtype=float)
        scale = np.abs(at).max(axis=1, keepdims=True)
        left, right = (np.array([pair[i] for pair in pairs]) for i in (0, 1))
        columns = np.stack([(at / scale)[left], (at / scale)[right]], axis=2)
        columns = np.concatenate([columns, np.ones((len(pairs), len(values), 1))], axis=2)
        target = np.array(values, dtype=float)
        size = np.abs(target).max()
        solved = (np.linalg.pinv(columns) @ (target / size)[:, None])[:, :, 0]
        error = np.abs((columns @ solved[:, :, None])[:, :, 0] - target / size).max(axis=1)
        for position in np.flatnonzero(error < 1e-9):
            pair = [self._terms[i] for i in pairs[position]]
            factors = [
                round(solved[position, side] * size / scale[pairs[position][side], 0])
                for side in (0, 1)
            ]
            remainder = values[0] - sum(f * t[1][0] for f, t in zip(factors, pair, strict=True))
            made = [
                sum(f * t[1][i] for f, t in zip(factors, pair, strict=True)) + remainder
                for i in range(len(values))
            ]
            if all(factors) and made == list(values):
                terms = [_term(t[0], f) for f, t in zip(factors, pair, strict=True)]
                yield _sum(terms, remainder)


def merged(samples: Sequence[SampledGraph], atoms: Sequence[str]) -> Any:
    """The tables of all samples as one, with text for every number that differs.

    Raises:
        SilicastError: other operations run at other sizes, or a number follows no expression; names
            the place and the sizes.

    >>> samples = [SampledGraph({"n": n}, {"name": "a", "dims": {"m": 4 * n, "k": 3}})
    ...            for n in (2, 3, 5, 8, 13)]
    >>> merged(samples, ["n"])
    {'name': 'a', 'dims': {'m': '4*n', 'k': 3}}
    """
    return _Merge(samples, atoms).merge([sample.tree for sample in samples], "")


def at_sizes(tree: Any, sizes: Sizes, like: Any) -> Any:
    """Merged tables at some sizes, text that ``like`` has as a number evaluated."""
    if isinstance(tree, dict):
        value = like if isinstance(like, dict) else {}
        return {key: at_sizes(item, sizes, value.get(key)) for key, item in tree.items()}
    if isinstance(tree, list):
        others = like if isinstance(like, list) else []
        others = others + [None] * (len(tree) - len(others))
        return [at_sizes(item, sizes, other) for item, other in zip(tree, others, strict=False)]
    return size_of(tree, sizes) if isinstance(tree, str) and isinstance(like, int) else tree


@final
class _Merge:
    def __init__(self, samples: Sequence[SampledGraph], atoms: Sequence[str]) -> None:
        self.samples = samples
        self.expressions = Expressions([sample.sizes for sample in samples], atoms)

    def merge(self, trees: Sequence[Any], where: str) -> Any:
        first = trees[0]
        if all(tree == first for tree in trees):
            return first
        if all(isinstance(tree, dict) for tree in trees):
            where = str(first.get("name") or where)
            keys = list(dict.fromkeys(key for tree in trees for key in tree))
            # a number that is 0 is left out of a file
            return {
                key: self.merge([t.get(key, 0) for t in trees], f"{where}: {key}") for key in keys
            }
        if all(isinstance(tree, list) and len(tree) == len(first) for tree in trees):
            return [self.merge(items, where) for items in zip(*trees, strict=True)]
        if all(type(tree) is int for tree in trees):
            result = self.expressions.expression(trees)
            if result is not None:
                return result
            values = ", ".join(
                f"{t} at {_said(s.sizes)}" for t, s in zip(trees, self.samples, strict=True)
            )
            raise unsupported(f"{where} follows no expression of the sizes: {values[:300]}")
        position = next(i for i, tree in enumerate(trees) if tree != first)
        raise unsupported(
            f"its operations differ between {_said(self.samples[0].sizes)} and "
            f"{_said(self.samples[position].sizes)}, at {where or 'the top'}",
            hint="trace it at each size: --shape instead of --dynamic",
        )


def _said(sizes: Sizes) -> str:
    return ", ".join(f"{name} = {value}" for name, value in sizes.items())


def _monomials(points: Sequence[Sizes], atoms: Sequence[str]) -> list[tuple[str, tuple[int, ...]]]:
    """Products of powers of atoms and their values at the points, simple ones first; of those with
    equal values the first alone.
    """
    by_symbols: dict[frozenset[str], list[str]] = {}
    for atom in atoms:
        by_symbols.setdefault(symbols_of(atom), []).append(atom)
    choices: list[list[tuple[int, str]]] = []
    for group in by_symbols.values():
        powers = [
            (power, _power(atom, power)) for power in range(1, MAX_POWER + 1) for atom in group
        ]
        for one, two in combinations(group, 2):
            powers += [
                (i + j, f"{_power(one, i)}*{_power(two, j)}") for i, j in product((1, 2), repeat=2)
            ]
        choices.append([(0, ""), *powers])
    combined = sorted(
        (
            (sum(degree for degree, _ in chosen), "*".join(text for _, text in chosen if text))
            for chosen in product(*choices)
        ),
        key=lambda term: (term[0], term[1].count("//")),
    )
    seen: dict[tuple[int, ...], str] = {}
    for _, text in combined:
        if text:
            seen.setdefault(tuple(size_of(text, sizes) for sizes in points), text)
    return [(text, values) for values, text in seen.items() if len(set(values)) > 1]


def _power(atom: str, power: int) -> str:
    atom = atom if atom.isidentifier() else f"({atom})"
    return atom if power == 1 else f"{atom}**{power}"


def _term(text: str, factor: int, divisor: int = 1) -> str:
    head = f"{factor}*" if factor != 1 else ""
    return f"{head}{text}" + (f"//{divisor}" if divisor != 1 else "")


def _sum(terms: Sequence[str], constant: int) -> str:
    text = " + ".join(terms).replace("+ -", "- ")
    return text + (f" {'+' if constant > 0 else '-'} {abs(constant)}" if constant else "")


def require_open(name: str, value: int, least: int, most: int | None, step: int) -> None:
    """Refuses a value that an open size does not take.

    Raises:
        SilicastError: names it, its range, and the value.
    """
    field = f"symbols.{name}"
    if value < least or (most is not None and value > most):
        upper = f"to {most:,}" if most is not None else "upwards"
        raise SilicastError(
            f"{name} = {value:,} is outside the program's range, {least:,} {upper}", field=field
        )
    if (value - least) % step:
        below = value - (value - least) % step
        raise SilicastError(
            f"{name} = {value:,}: the program takes {least:,}, {least + step:,}, "
            f"{least + 2 * step:,}, ... (steps of {step:,})",
            field=field,
            hint=f"{below:,} or {below + step:,}",
        )
