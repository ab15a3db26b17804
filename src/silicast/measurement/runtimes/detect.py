"""Detection of a runtime's rules: pairs in turns until all are decided or the rounds are spent.

A pair decides which of two operators A and B a runtime runs as one, from times under noise.
Tensors are tiny, so that an operator of its own costs about what starting one costs; one that runs
in the kernel before it costs its few operations at most. Of what starts an operator

    share = (t(A + B) - t(A)) / (t(N + R) - t(N))

is left, where N is an operator that nothing is joined with and R one that hardly computes: B is
joined if the share is clearly below a half, apart if it is clearly above, else undecided, and no
rule is made of it. Nor is one made where B behind N costs nothing: it was optimised away.

Times of a busy machine are at least those of a quiet one: the mean of the lowest of runs that take
turns is compared, and its error is that of resampled rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, final

import numpy as np

from silicast.core.errors import SilicastError, unknown_name
from silicast.core.numerics import F64
from silicast.core.toml_text import toml_lines
from silicast.measurement.runtimes.minimal_pairs import NEUTRAL, STARTED, Pair, pairs

LIMIT = 0.5
ERRORS = 3.0
LOWEST, LEAST_LOWEST = 0.05, 3
"""Share of a chain's runs that count, and how many of them at least."""
RESAMPLES = 60
LEAST_ROUNDS = 8
Decision = Literal["joined", "apart", "undecided"]


@final
@dataclass(frozen=True, slots=True)
class PairTimes:
    """Times of rounds, shape (rounds, 5): A + B, A, N + B, N and N + R; seconds a repeat."""

    seconds: F64


@final
@dataclass(frozen=True, slots=True)
class Finding:
    """What times say of a pair.

    Attributes:
        share: of the start of an operator that B costs behind A; ``error``: its standard error.
        alone: the same of B behind an operator that nothing is joined with.
    """

    decision: Decision
    share: float
    error: float
    alone: float
    rounds: int


def finding(times: PairTimes) -> Finding:
    """The decision on a pair from the rounds so far.

    >>> quiet = np.tile([5.0, 5.0, 3.0, 2.0, 3.0], (20, 1))
    >>> finding(PairTimes(quiet)).decision
    'joined'
    """
    rounds = len(times.seconds)
    share, alone = _shares(times.seconds)
    draws = np.random.default_rng(0).integers(0, rounds, (RESAMPLES, rounds))
    resampled = np.array([_shares(times.seconds[draw]) for draw in draws])
    # percentiles, for a resampled divisor near zero has no variance
    low, high = np.quantile(resampled, [0.16, 0.84], axis=0)
    error, alone_error = ((high - low) / 2.0).tolist()
    decision: Decision = "undecided"
    if rounds >= LEAST_ROUNDS and alone - ERRORS * alone_error > LIMIT:
        if share + ERRORS * error < LIMIT:
            decision = "joined"
        elif share - ERRORS * error > LIMIT:
            decision = "apart"
    return Finding(decision, share, error, alone, rounds)


def start_s(seconds: F64) -> float:
    """What starting an operator takes, from rounds of any pairs, (rounds, 5).

    >>> round(start_s(np.tile([5.0, 5.0, 3.0, 2.0, 3.5], (20, 1))), 6)
    1.5
    """
    _, _, _, neutral, start = _lowest(seconds).tolist()
    return float(max(start - neutral, 0.0))


def _lowest(seconds: F64) -> F64:
    count = max(LEAST_LOWEST, round(LOWEST * len(seconds)))
    lowest: F64 = np.sort(seconds, axis=0)[:count].mean(axis=0)
    return lowest


def _shares(seconds: F64) -> tuple[float, float]:
    both, first, control, neutral, start = _lowest(seconds).tolist()
    op_s = max(start - neutral, 1e-30)
    return (both - first) / op_s, (control - neutral) / op_s


BATCH = 15
"""Rounds of a pair between two decisions."""


RUNTIMES = ("onnxruntime", "litert")
"""Runtimes that run test models here."""


class TimedRuntime(Protocol):
    """A runtime that runs test models."""

    name: str
    target: str
    version: str

    @property
    def operators(self) -> Collection[str]:
        """Those of the pairs that it has."""

    def seconds(self, chain: Sequence[str]) -> float:
        """Seconds of a repeat of a chain of operators."""


@final
@dataclass(frozen=True)
class Detected:
    """What was found of one runtime; ``operator_us`` is what starting an operator takes."""

    runtime: str
    version: str
    target: str
    findings: Mapping[Pair, Finding]
    operator_us: float

    def rules(self) -> dict[str, list[str]]:
        """First operator -> operators that are joined to it."""
        table: dict[str, list[str]] = {}
        for (first, second), each in self.findings.items():
            if each.decision == "joined":
                table.setdefault(first, []).append(second)
        return table

    def undecided(self) -> list[Pair]:
        """Pairs of which the rounds told nothing."""
        return [pair for pair, each in self.findings.items() if each.decision == "undecided"]

    def text(self) -> str:
        """The rules as a file of catalog/runtimes states them."""
        fusion = [{"first": [one], "then": then} for one, then in self.rules().items()]
        undecided = [list(pair) for pair in self.undecided()]
        target = {
            "operator_us": round(self.operator_us, 3),
            "fusion": fusion,
            **({"undecided": undecided} if undecided else {}),
        }
        table = {"name": self.runtime, "version": self.version, self.target: target}
        return "\n".join(toml_lines(table, _has_heading)) + "\n"


def _has_heading(_key: str, value: object, _path: str) -> bool:
    tables = isinstance(value, list) and bool(value) and isinstance(value[0], dict)
    return isinstance(value, dict) or tables


def runtime_named(name: str) -> TimedRuntime:
    """A runtime that is installed here.

    Raises:
        SilicastError: an unknown runtime, or one that is not installed.
    """
    if name not in RUNTIMES:
        raise unknown_name(f"unknown runtime {name!r:.40}", "runtime", " or ".join(RUNTIMES))
    if name == "litert":
        from silicast.measurement.runtimes.litert import LiteRt

        return LiteRt()
    from silicast.measurement.runtimes.onnx_runtime import OnnxRuntime

    return OnnxRuntime()


def detect(
    runtime: TimedRuntime,
    operators: Sequence[str] = (),
    *,
    most_rounds: int = 300,
    watch: Callable[[int, int], None] = lambda _done, _all: None,
) -> Detected:
    """Times every pair until it is decided.

    Args:
        operators: first operators that are tested; () = all.
        most_rounds: of one pair.
        watch: called with the number of decided pairs, and of all.

    Raises:
        SilicastError: an unknown operator; fewer rounds than one decision takes.
    """
    if most_rounds < BATCH:
        raise SilicastError(
            f"expected {BATCH} or more, found {most_rounds}",
            field="--rounds",
            hint="a decision needs the spread of its rounds",
        )
    every = [pair for pair in pairs(operators) if {*pair} <= {*runtime.operators}]
    rows: dict[Pair, list[list[float]]] = {pair: [] for pair in every}
    findings: dict[Pair, Finding] = {}
    remaining = every
    for _ in range(most_rounds // BATCH):
        for pair in remaining:
            rows[pair] += [_round(runtime, pair) for _ in range(BATCH)]
            findings[pair] = finding(PairTimes(np.array(rows[pair])))
        remaining = [pair for pair in remaining if findings[pair].decision == "undecided"]
        watch(len(every) - len(remaining), len(every))
        if not remaining:
            break
    rounds = np.array([times for pair_rows in rows.values() for times in pair_rows])
    return Detected(runtime.name, runtime.version, runtime.target, findings, 1e6 * start_s(rounds))


def _round(runtime: TimedRuntime, pair: Pair) -> list[float]:
    """All five one right after the other: what slows the machine slows all of them."""
    first, second = pair
    pair_chains = [(first, second), (first,)]
    chains = [*pair_chains, (NEUTRAL, second), (NEUTRAL,), (NEUTRAL, STARTED)]
    return [runtime.seconds(chain) for chain in chains]
