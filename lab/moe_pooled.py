"""Constants of expert kernels for an architecture that was not measured.

All campaigns are fitted at once. The log of a constant is the sum of levels, of which each is drawn
to zero: the make of kernel, its kin, the style, the format, the style in the format; and the
architecture and the style on it, which an unmeasured architecture has not. So a constant rests on
architectures and not on rows, one campaign says little against several, and a style that nobody
measured has what others of its make have. How the share of the matrix rate that a make reaches goes
with that rate (``tensor_growth``), and time around the products with the clock
(``around_growth``), are slopes that are learned beside them. Every campaign may be off by a factor
of its own with a heavy tail: one that nobody tuned moves the others little.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lab.fitting import Constants, F
from lab.moe_groups import Group, log_ratio
from silicast.core.numerics import I64
from silicast.kernels.experts.moe import GROWTHS, growth_bases

MAKES = {
    **dict.fromkeys(
        ("triton", "triton_sglang", "triton_sglang_early", "oai_triton", "oai_triton_trtllm"),
        "portable",
    ),
    **dict.fromkeys(("marlin", "marlin_early", "marlin_int4"), "unpacking"),
    **dict.fromkeys(
        ("cutlass", "cutlass_early", "flashinfer_cutlass", "flashinfer_cutlass_untuned"),
        "templates",
    ),
}
GENERATED = "generated"
"""The make of all other styles."""

LEVELS = {"make": 0.7, "kin": 0.4, "style": 0.6, "format": 0.3, "style in format": 0.2,
          "architecture": 0.7, "style on architecture": 0.5}  # fmt: skip
"""Log sd of what a level adds: by leaving architectures out, on rows that are not scored."""
CAMPAIGN_LOG_SD = 0.1
GROWTH = {"tensor_growth": (-0.4, 0.3, 0.8), "around_growth": (-1.0, 0.3, 0.0)}
"""Where a slope starts, the sd of its mean, and of what a make adds."""
SCALE = 0.2
"""Log ratios from which a row counts less (soft L1)."""
ROWS_LIKE_ONE = 40.0
"""Neighbouring rows err together: so many weigh as one; at most :data:`MOST_ROWS` of a group."""
MOST_ROWS = 200.0
STEP = 1e-3

_Level = tuple[str, ...]


@dataclass(frozen=True)
class Pooled:
    """What was found: of every level of every constant (log), and the slopes."""

    found: Mapping[_Level, float]
    names: tuple[str, ...]
    of_format: frozenset[str]

    def constants(self, style: str, dtype: str, start: Mapping[str, float]) -> Constants:
        """Of a style and format on an architecture that was not measured."""
        table = {
            name: start[name]
            * math.exp(
                math.fsum(
                    self.found.get(level, 0.0)
                    for level in levels(style, dtype, "", name, name in self.of_format)
                )
            )
            for name in self.names
        }
        for name, (mean, _, _) in GROWTH.items():
            table[name] = self.found.get(("slope", name), mean) + self.found.get(
                ("slope of make", make_of(style), name), 0.0
            )
        return table


def make_of(style: str) -> str:
    """The make of a style's kernels."""
    return MAKES.get(style, GENERATED)


def kin_of(style: str) -> str:
    """The kernels that a style is of, whoever calls them."""
    return style.removeprefix("flashinfer_").partition("_")[0]


def levels(
    style: str, dtype: str, architecture: str, name: str, of_format: bool
) -> Iterator[_Level]:
    """The levels that add to a constant; ``architecture``: "" = one that was not measured."""
    yield "make", make_of(style), name
    yield "kin", kin_of(style), name
    yield "style", style, name
    if of_format:
        yield "format", dtype, name
        yield "style in format", style, dtype, name
    if architecture:
        yield "architecture", architecture, name
        yield "style on architecture", architecture, style, name


class _Problem:
    """Rows, levels and priors of one joint fit; ``starts``: constants of each group."""

    def __init__(
        self,
        groups: Sequence[Group],
        starts: Sequence[Constants],
        names: tuple[str, ...],
        of_format: frozenset[str],
        ceiling: Mapping[str, float],
    ) -> None:
        self.groups, self.starts, self.names, self.ceiling = groups, starts, names, ceiling
        self.place: dict[_Level, int] = {}
        self.sd: list[float] = []
        self.mean: list[float] = []
        self.terms = [self._terms(group, of_format) for group in groups]
        self.weights = [
            1.0 / (SCALE * SCALE * ROWS_LIKE_ONE * max(1.0, len(g.seconds) / MOST_ROWS))
            for g in groups
        ]

    def _term(self, level: _Level, sd: float, mean: float = 0.0) -> int:
        if level not in self.place:
            self.place[level] = len(self.sd)
            self.sd.append(sd)
            self.mean.append(mean)
        return self.place[level]

    def _terms(self, group: Group, of_format: frozenset[str]) -> tuple[I64, F]:
        """Places and a matrix from what stands there to logs of constants; the last row is the
        campaign's factor.
        """
        style, dtype = group.setting.style, group.dtype
        terms: list[tuple[int, int, float]] = []
        bases = growth_bases(group.setting.rates)
        for row, name in enumerate(self.names):
            terms += [
                (row, self._term(level, LEVELS[level[0]]), 1.0)
                for level in levels(style, dtype, group.architecture, name, name in of_format)
            ]
        for name, (mean, sd, of_make) in GROWTH.items():
            row, x = self.names.index(GROWTHS[name]), math.log(bases[name])
            terms.append((row, self._term(("slope", name), sd, mean), x))
            if of_make:
                terms.append((row, self._term(("slope of make", make_of(style), name), of_make), x))
        campaign = ("campaign", group.architecture, style, dtype)
        terms.append((len(self.names), self._term(campaign, CAMPAIGN_LOG_SD), 1.0))
        positions = sorted({position for _, position, _ in terms})
        matrix = np.zeros((len(self.names) + 1, len(positions)))
        for row, position, x in terms:
            matrix[row, positions.index(position)] += x
        return np.array(positions, dtype=np.int64), matrix

    def constants(self, i: int, logs: F) -> Constants:
        """Of a group, from the logs on top of its start."""
        table = dict(self.starts[i])
        for name, log in zip(self.names, logs, strict=False):
            table[name] = min(table[name] * math.exp(log), self.ceiling.get(name, math.inf))
        return table

    def errors(self, p: F) -> list[F]:
        """Log ratios of each group, with its campaign's factor."""
        return [
            self.of_group(i, matrix @ p[positions])
            for i, (positions, matrix) in enumerate(self.terms)
        ]

    def of_group(self, i: int, logs: F) -> F:
        """The same of one group."""
        group: F = log_ratio(self.groups[i], self.constants(i, logs)) + logs[-1]
        return group

    def held(self, p: F) -> F:
        """With slopes of makes that do not rise: no share of a rate grows with the rate."""
        for level, position in self.place.items():
            if level[0] == "slope of make":
                p[position] = min(p[position], -p[self.place["slope", level[2]]])
        return p

    def slopes(self, i: int, p: F, error: F) -> F:
        """Derivatives of a group's errors by the logs of its constants, shape (rows, logs)."""
        positions, matrix = self.terms[i]
        logs = matrix @ p[positions]
        table = self.constants(i, logs)
        slopes = np.ones((len(error), len(logs)))
        for column, name in enumerate(self.names):
            less = {**table, name: table[name] * math.exp(-STEP)}
            slopes[:, column] = (error - log_ratio(self.groups[i], less) - logs[-1]) / STEP
        return slopes


def fit(
    groups: Sequence[Group],
    starts: Sequence[Constants],
    names: tuple[str, ...],
    of_format: frozenset[str],
    ceiling: Mapping[str, float],
    steps: int,
) -> Pooled:
    """Constants of all levels, by damped Gauss-Newton steps.

    Args:
        starts: constants that levels add to, of each group.
        names: of the constants that are fitted; of_format: those that formats have of their own.
        ceiling: what a constant may not pass.
    """
    problem = _Problem(groups, starts, names, of_format, ceiling)
    sd, mean = np.array(problem.sd), np.array(problem.mean)
    heavy = np.array([level[0] == "campaign" for level in problem.place])

    def cost(errors: Sequence[F], p: F) -> float:
        far = ((p - mean) / sd) ** 2
        rows = math.fsum(
            w * SCALE * SCALE * 2.0 * float(np.sum(np.sqrt(1.0 + (e / SCALE) ** 2) - 1.0))
            for e, w in zip(errors, problem.weights, strict=True)
        )
        return rows + float(np.sum(np.where(heavy, np.log1p(far), far)))

    p, damping = mean.copy(), 1e-3
    errors = problem.errors(p)
    now = cost(errors, p)
    for _ in range(steps):
        pull = np.where(heavy, 1.0 / (1.0 + ((p - mean) / sd) ** 2), 1.0) / (sd * sd)
        square, slope = np.diag(pull), (p - mean) * pull
        for i, (error, weight) in enumerate(zip(errors, problem.weights, strict=True)):
            positions, matrix = problem.terms[i]
            rows = problem.slopes(i, p, error)
            heed = rows * (weight / np.sqrt(1.0 + (error / SCALE) ** 2))[:, None]
            square[np.ix_(positions, positions)] += matrix.T @ (heed.T @ rows) @ matrix
            slope[positions] += matrix.T @ (heed.T @ error)
        while damping < 1e4:
            step = np.linalg.solve(square + damping * np.diag(np.diag(square)), -slope)
            there = problem.held(p + np.clip(step, -1.0, 1.0))
            tried = problem.errors(there)
            then = cost(tried, there)
            if then < now:
                p, errors, now, damping = there, tried, then, max(damping / 5.0, 1e-5)
                break
            damping *= 8.0
    table = {level: float(p[position]) for level, position in problem.place.items()}
    return Pooled(table, names, of_format)
