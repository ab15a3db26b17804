"""What a prediction is: a point, an interval made of named error factors, a bound and the parts
whose exposed times add up to it exactly (DESIGN section 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, final

import msgspec

Tier = Literal["bound", "analytic", "cross-device", "scaled", "calibrated"]
Domain = Literal["in", "near", "out"]

TIERS: tuple[Tier, ...] = ("bound", "analytic", "cross-device", "scaled", "calibrated")
DOMAINS: tuple[Domain, ...] = ("in", "near", "out")

Z90 = 1.6448536269514722
"""Standard deviations within which a normal error lies with 90 %, or below which with 95 %."""
PICOSECONDS = 1_000_000_000_000


def to_picoseconds(seconds: float) -> int:
    """Seconds as whole picoseconds, the unit in which parts add up exactly."""
    return round(seconds * PICOSECONDS)


@final
class Part(msgspec.Struct, frozen=True):
    """One node of the tree that says where time goes.

    Attributes:
        name: what runs ("decoder_layer", "gate_up", "launch").
        exposed_ps: time this part adds to its parent, picoseconds; children's add up to it.
        hidden_ps: time it also runs, but under something else.
        bound_ps: the physical lower limit of the exposed time.
        bound_by: what sets the bound ("tensor", "dram", "l2", "link", "host", ...), or "power"
            where its limit slows the part further.
        count: how many times it runs within the parent; times are for all of them.
        ceiling_ps: the time of the quick kernels of such problems; 0 = not known.
        children: parts of this part; empty for a leaf.
        kind: "pipe" = what a kernel waits for, "host" = the host's own work, "" = work of the
            device.
        work: of a pipe: bytes or operations that it moves or computes; 0 = not known.
        also_bound_by: what binds it besides ``bound_by``, with the share of its time that this
            adds; 0 = it overlaps with the first, and is nearly as busy.
    """

    name: str
    exposed_ps: int
    hidden_ps: int = 0
    bound_ps: int = 0
    bound_by: str = ""
    count: int = 1
    children: tuple[Part, ...] = ()
    ceiling_ps: int = 0
    kind: str = ""
    work: float = 0.0
    also_bound_by: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        if self.children and sum([part.exposed_ps for part in self.children]) != self.exposed_ps:
            raise ValueError(f"the parts of {self.name!r} do not add up to its exposed time")

    @staticmethod
    def group(name: str, children: Sequence[Part], *, count: int = 1, bound_by: str = "") -> Part:
        """A part made of ``children``: times and bounds are their sums."""
        exposed, hidden, bound, longest = 0, 0, 0, -1
        dominant = ""
        for child in children:
            exposed += child.exposed_ps
            hidden += child.hidden_ps
            bound += child.bound_ps
            if child.exposed_ps > longest:
                longest, dominant = child.exposed_ps, child.bound_by
        return Part(
            name=name,
            exposed_ps=exposed,
            hidden_ps=hidden,
            bound_ps=bound,
            bound_by=bound_by or dominant,
            count=count,
            children=tuple(children),
        )

    def changed(self, **fields: Any) -> Part:
        """The same with other values of some fields."""
        return msgspec.structs.replace(self, **fields)


@final
@dataclass(frozen=True)
class ErrorFactors:
    """Log-scale standard deviations of a prediction's error, by cause.

    A loading on a shared factor ("device", "family:gemm", "campaign", "host", "network") is an
    error that all predictions with that factor make together; ``independent`` is the rest.

    Attributes:
        causes: what ``independent`` is made of, where that is known; in quadrature not more.

    >>> e = ErrorFactors({"device": 0.06, "family:gemm": 0.08}, independent=0.0)
    >>> round(e.log_sd, 3)
    0.1
    """

    loadings: Mapping[str, float] = field(default_factory=dict)
    independent: float = 0.0
    causes: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def variance(self) -> float:
        """Variance of log(measured / estimate)."""
        shared = math.fsum([value * value for value in self.loadings.values()])
        return shared + self.independent * self.independent

    @cached_property
    def log_sd(self) -> float:
        """Standard deviation of log(measured / estimate)."""
        return math.sqrt(self.variance)

    def shares(self) -> dict[str, float]:
        """Factor or cause -> its share of the variance, the largest first; they add up to 1.

        >>> list(ErrorFactors({"device": 0.3}, 0.4, {"shapes:gemm": 0.4}).shares())
        ['shapes:gemm', 'device']
        """
        whole = self.variance
        if whole <= 0.0:
            return {}
        parts = {**self.loadings, **self.causes}
        table = {name: value * value / whole for name, value in parts.items() if value > 0.0}
        remainder = 1.0 - math.fsum(table.values())
        if remainder > 1e-9:
            table["independent"] = remainder
        ordered = sorted([(-share, name) for name, share in table.items()])
        return {name: table[name] for _, name in ordered}

    def scaled(self, factor: float) -> ErrorFactors:
        """All loadings times ``factor`` (wider outside the domain)."""
        return ErrorFactors(
            {name: value * factor for name, value in self.loadings.items()},
            self.independent * factor,
            {name: value * factor for name, value in self.causes.items()},
        )

    @staticmethod
    def of_sum(terms: Sequence[tuple[float, ErrorFactors]], *, causes: bool = True) -> ErrorFactors:
        """The error of a sum of ``(time, factors)`` terms, to first order.

        Shared factors add linearly with the terms' shares, independent parts in quadrature.

        Args:
            causes: whether what the independent part is made of is asked for.

        >>> a = ErrorFactors({"device": 0.1}, independent=0.2)
        >>> total = ErrorFactors.of_sum([(1.0, a), (1.0, a)])
        >>> total.loadings["device"], round(total.independent, 4)
        (0.1, 0.1414)
        """
        total = math.fsum([time for time, _ in terms])
        if total <= 0.0:
            return ErrorFactors()
        shared = _sums([(time, factors.loadings) for time, factors in terms], 1)
        independent = math.fsum([(time * factors.independent) ** 2 for time, factors in terms])
        made_of: dict[str, float] = {}
        if causes:
            squares = _sums([(time, factors.causes) for time, factors in terms], 2)
            made_of = {name: math.sqrt(squares[name]) / total for name in sorted(squares)}
        ordered = sorted(shared) if causes else shared
        return ErrorFactors(
            {name: shared[name] / total for name in ordered},
            math.sqrt(independent) / total,
            made_of,
        )


def _sums(terms: Sequence[tuple[float, Mapping[str, float]]], power: int) -> dict[str, float]:
    """Sums by name of ``(time x value) ** power``, rounded once."""
    if power == 1 and len(terms) == 2:  # so that one addition is all
        (time, values), (other_time, others) = terms
        table = {name: time * value for name, value in values.items()}
        for name, value in others.items():
            table[name] = table.get(name, 0.0) + other_time * value
        return table
    lists: dict[str, list[float]] = {}
    for time, values in terms:
        for name, value in values.items():
            lists.setdefault(name, []).append((time * value) ** power)
    return {name: math.fsum(values) for name, values in lists.items()}


def spread_of_ratio(
    ours: Mapping[str, float], theirs: Mapping[str, float], correlation: Callable[[str], float]
) -> tuple[float, float]:
    """Log standard deviation of a ratio of two estimates, and the share of variance that cancels.

    With log errors e[f] x sd[f], each e of unit variance, the ratio's log error has the variance
    sum over f of sd_a^2 + sd_b^2 - 2 c sd_a sd_b.

    Args:
        ours, theirs: factor -> log standard deviation.
        correlation: c of a factor's two errors, 0 to 1.

    >>> spread_of_ratio({"family:gemm": 0.1}, {"family:gemm": 0.1, "host": 0.2}, lambda _: 1.0)
    (0.2, 0.3333333333333333)
    """
    apart, common = 0.0, 0.0
    for factor in sorted({**ours, **theirs}):
        own_sd, their_sd = ours.get(factor, 0.0), theirs.get(factor, 0.0)
        apart += own_sd * own_sd + their_sd * their_sd
        common += 2.0 * correlation(factor) * own_sd * their_sd
    shared = common / apart if apart > 0.0 else 0.0
    return math.sqrt(max(apart - common, 0.0)), shared


@final
@dataclass(frozen=True, slots=True)
class Quantity:
    """One reported statistic: three numbers of our belief about its value.

    Raises:
        ValueError: p05 <= estimate <= p95 does not hold, or a number is not finite.
    """

    estimate: float
    p05: float
    p95: float

    def __post_init__(self) -> None:
        if not -math.inf < self.p05 <= self.estimate <= self.p95 < math.inf:
            raise ValueError(f"not an interval: {self.p05} <= {self.estimate} <= {self.p95}")

    @staticmethod
    def exact(value: float) -> Quantity:
        """A value that is known, not estimated."""
        return Quantity(value, value, value)

    @staticmethod
    def around(estimate: float, log_sd: float, *, bound: float = 0.0) -> Quantity:
        """A 90 % interval in log scale that never reaches below ``bound``."""
        estimate = max(estimate, bound)
        spread = math.exp(Z90 * log_sd)
        return Quantity(estimate, max(estimate / spread, min(bound, estimate)), estimate * spread)

    def times(self, factor: float) -> Quantity:
        return Quantity(self.estimate * factor, self.p05 * factor, self.p95 * factor)


@final
class Later(Mapping[str, ErrorFactors]):
    """Errors by name, computed when they are first read.

    >>> sorted(Later(lambda: {"host": ErrorFactors()}))
    ['host']
    """

    def __init__(self, make: Callable[[], Mapping[str, ErrorFactors]]) -> None:
        self._make: Callable[[], Mapping[str, ErrorFactors]] | None = make
        self._found: Mapping[str, ErrorFactors] = {}

    def _known(self) -> Mapping[str, ErrorFactors]:
        if self._make is not None:
            self._found, self._make = self._make(), None
        return self._found

    def __getitem__(self, name: str) -> ErrorFactors:
        return self._known()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known())

    def __len__(self) -> int:
        return len(self._known())


@final
@dataclass(frozen=True, slots=True)
class Prediction:
    """A predicted duration with its reasons.

    Attributes:
        part: the tree of parts; ``part.exposed_ps`` is the estimate.
        error: error factors of the model.
        spread: run-to-run log standard deviation of the thing itself, kept apart from ``error``.
        tier: what kind of knowledge it rests on; domain: how far from measured ground.
        warnings: named fallbacks and other things a reader must know.
        sources: where the numbers come from.
        hash: content hash of the inputs, version and artefacts.
        narrowed: measurement (a family of kernels, "kernels" = some of every family, "host",
            "network") -> the error it would leave, the least first.
    """

    part: Part
    error: ErrorFactors
    spread: float = 0.0
    tier: Tier = "analytic"
    domain: Domain = "in"
    warnings: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    hash: str = ""
    narrowed: Mapping[str, ErrorFactors] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return self.part.exposed_ps / PICOSECONDS

    @property
    def bound_seconds(self) -> float:
        """The physical lower limit."""
        return self.part.bound_ps / PICOSECONDS

    @property
    def latency_s(self) -> Quantity:
        """Estimate with its 90 % interval, never below the bound."""
        return Quantity.around(self.seconds, self.error.log_sd, bound=self.bound_seconds)


def weakest_tier(tiers: Iterable[Tier]) -> Tier:
    """The tier of a whole is that of its weakest part."""
    return min(tiers, key=TIERS.index, default="analytic")


def worst_domain(domains: Iterable[Domain]) -> Domain:
    """The domain of a whole is that of its farthest part."""
    return max(domains, key=DOMAINS.index, default="in")


def said_by(*predictions: Prediction) -> tuple[str, ...]:
    """All warnings of the parts of a whole, each once, in order."""
    return tuple(dict.fromkeys(text for prediction in predictions for text in prediction.warnings))
