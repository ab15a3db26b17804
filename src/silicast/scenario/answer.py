"""Answers, exactly as DESIGN section 4 writes them, and what makes them uncertain: which
measurement would narrow the interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from silicast.core.errors import ErrorKind, SilicastError
from silicast.core.prediction import (
    PICOSECONDS,
    TIERS,
    Z90,
    Domain,
    Part,
    Prediction,
    Quantity,
    Tier,
)

Identity = str | int | None

MAX_IDENTITY = 256
MAX_CHILDREN = 64
"""Children of one node that ``why`` writes out; the rest is summed up as one."""


class Belief(msgspec.Struct, frozen=True):
    """The three numbers of a metric. It compares, formats and converts as its estimate does; two
    beliefs are equal where all three numbers are.

    >>> belief = Belief(12.34, 10.0, 15.0)
    >>> f"{belief:.1f}", f"{belief}", float(belief), belief < 20, belief == 12.34, round(belief)
    ('12.3', '12.34 [10, 15]', 12.34, True, True, 12)
    """

    estimate: float
    p05: float
    p95: float

    def __float__(self) -> float:
        return self.estimate

    def __round__(self, digits: int | None = None) -> float:
        return round(self.estimate, digits)

    def __str__(self) -> str:
        return f"{self.estimate:.4g} [{self.p05:.4g}, {self.p95:.4g}]"

    def __format__(self, form: str) -> str:
        return format(self.estimate, form) if form else str(self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Belief):
            return (self.estimate, self.p05, self.p95) == (other.estimate, other.p05, other.p95)
        return self.estimate == other if isinstance(other, (int, float)) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.estimate, self.p05, self.p95))

    def __lt__(self, other: Belief | float) -> bool:
        return self.estimate < float(other)

    def __le__(self, other: Belief | float) -> bool:
        return self.estimate <= float(other)

    def __gt__(self, other: Belief | float) -> bool:
        return self.estimate > float(other)

    def __ge__(self, other: Belief | float) -> bool:
        return self.estimate >= float(other)

    @staticmethod
    def from_quantity(quantity: Quantity) -> Belief:
        return Belief(quantity.estimate, quantity.p05, quantity.p95)


class Answer(msgspec.Struct, frozen=True):
    """A case that was answered.

    Attributes:
        metrics: metric, with its unit in the name -> what we believe.
        bound: metric -> its physical limit, where it has one.
        why: where the time goes, see :func:`why_tree`, and what else explains the answer.
    """

    id: Identity
    ok: bool
    metrics: dict[str, Belief]
    bound: dict[str, float]
    tier: Tier
    domain: Domain
    warnings: list[str]
    why: dict[str, Any]


class Problem(msgspec.Struct, frozen=True):
    """Why a case was not answered."""

    kind: ErrorKind
    message: str
    field: str
    hint: str

    def as_error(self) -> SilicastError:
        """The error that it is the record of."""
        return SilicastError(self.message, kind=self.kind, field=self.field, hint=self.hint)


class Refusal(msgspec.Struct, frozen=True):
    """A case that was not answered; never with a number."""

    id: Identity
    ok: bool
    error: Problem


Reply = Answer | Refusal

_ENCODER = msgspec.json.Encoder()


class _Answered(msgspec.Struct, frozen=True):
    ok: bool


_OK = msgspec.json.Decoder(_Answered)


def answer(
    *,
    metrics: Mapping[str, Quantity],
    bound: Mapping[str, float],
    tier: Tier,
    domain: Domain,
    warnings: list[str] | tuple[str, ...] = (),
    why: dict[str, Any] | None = None,
    id: Identity = None,  # noqa: A002 - the contract's name
) -> Answer:
    """A checked answer; where ``why`` has no ``coverage``, all of its time rests on its tier.

    Raises:
        SilicastError: kind "internal": a number is negative or not finite, or an estimate is
            below its bound.
    """
    for name, limit in bound.items():
        belief = metrics.get(name)
        if not math.isfinite(limit) or (belief is not None and belief.p05 < limit):
            raise _internal(f"{name}: bound {limit} against {belief}")
    for name, belief in metrics.items():
        if belief.p05 < 0.0:
            raise _internal(f"{name} is negative: {belief}")
    beliefs = {name: Belief.from_quantity(value) for name, value in metrics.items()}
    reasons = why or {}
    coverage = reasons.setdefault("coverage", {})
    if tier == "bound" or "time_share" not in coverage:
        coverage["time_share"] = {tier: 1.0}
    return Answer(id, True, beliefs, dict(bound), tier, domain, list(warnings), reasons)


def refusal(error: SilicastError, id: Identity = None) -> Refusal:  # noqa: A002
    """The answer to a case that cannot be answered."""
    message = f"{error.file}: {error.message}" if error.file else error.message
    return Refusal(id, False, Problem(error.kind, message, error.field, error.hint))


def with_id(reply: Reply, id: Identity) -> Reply:  # noqa: A002
    """The same reply to another case."""
    return msgspec.structs.replace(reply, id=id)


def identity_of(tree: Mapping[str, Any], default: Identity = None) -> Identity:
    """The id that a scenario gives itself, else ``default``; only text and whole numbers count.

    >>> identity_of({"id": "a"}), identity_of({"id": True}, 7), identity_of({})
    ('a', 7, None)
    """
    value = tree.get("id")
    if isinstance(value, str):
        return value if 0 < len(value) <= MAX_IDENTITY else default
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole else default


def encode(reply: Reply) -> bytes:
    """One line of JSON without its end; the same bytes for the same reply, fields in order."""
    return _ENCODER.encode(reply)


def reply_of(line: str | bytes) -> Reply:
    """The reply that :func:`encode` wrote."""
    kind: type[Answer] | type[Refusal] = Answer if _OK.decode(line).ok else Refusal
    reply: Reply = msgspec.json.decode(line, type=kind)
    return reply


def why_tree(part: Part, total_ps: int | None = None) -> dict[str, Any]:
    """A tree of parts as plain tables.

    Keys: ``name``, ``exposed_ms``, ``share`` of the whole, ``hidden_ms`` where there is any,
    ``count`` above 1, ``bound_by``, ``also_bound_by`` (resource -> the share of the time that it
    adds, 0 = it overlaps) and ``of_bound`` (bound over exposed time: 1 = at the limit),
    ``of_ceiling`` (the same for the quick tenth of measured kernels; above 1 = quicker than they
    are), ``kind`` ("pipe": what a kernel waits for, "host") and ``work`` of a pipe (bytes or
    operations), ``parts``.

    >>> why_tree(Part("launch", 2_000_000, bound_ps=1_000_000))["of_bound"]
    0.5
    """
    exposed, bound = part.exposed_ps, part.bound_ps
    whole = exposed if total_ps is None else total_ps
    node: dict[str, Any] = {
        "name": part.name,
        "exposed_ms": exposed * 1e3 / PICOSECONDS,
        "share": round(exposed / whole, 6) if whole else 0.0,
    }
    if part.hidden_ps:
        node["hidden_ms"] = part.hidden_ps * 1e3 / PICOSECONDS
    if part.count != 1:
        node["count"] = part.count
    if part.bound_by:
        node["bound_by"] = part.bound_by
    if part.also_bound_by:
        node["also_bound_by"] = {name: round(share, 6) for name, share in part.also_bound_by}
    if bound and exposed:
        node["of_bound"] = round(bound / exposed, 6)
    if part.ceiling_ps and exposed:
        node["of_ceiling"] = round(part.ceiling_ps / exposed, 6)
    if part.kind:
        node["kind"] = part.kind
    if part.work:
        node["work"] = part.work
    if part.children:
        shown = part.children if len(part.children) <= MAX_CHILDREN else _shown_children(part)
        node["parts"] = [why_tree(child, whole) for child in shown]
    return node


def _shown_children(part: Part) -> list[Part]:
    """The first of many, and the others as one."""
    children = part.children
    others = Part.group("others", children[MAX_CHILDREN - 1 :])
    return [*children[: MAX_CHILDREN - 1], others.changed(children=())]


def _internal(message: str) -> SilicastError:
    return SilicastError(
        message, kind="internal", hint="this is a defect of Silicast: please report it"
    )


def latency_of(prediction: Prediction, *, bound_only: bool) -> Quantity:
    """The predicted time in seconds, or the limit alone where no higher tier is allowed."""
    if not bound_only:
        return prediction.latency_s
    limit = prediction.bound_seconds
    return Quantity(limit, limit, prediction.latency_s.p95)


def bounds_alone(result: Answer) -> Answer:
    """An answer in which no higher tier than the bounds is allowed: metrics that have none are left
    out, the others are at their limit, and as slow as they were at most.
    """
    metrics = {
        name: Belief(limit, limit, result.metrics[name].p95)
        for name, limit in result.bound.items()
        if name in result.metrics
    }
    why = {**result.why, "coverage": {"time_share": {"bound": 1.0}}}
    return msgspec.structs.replace(result, metrics=metrics, tier="bound", why=why)


CALIBRATION_ROWS = 200
"""Measured rows that a narrower interval is stated for: those of suite ``calibrated``."""
WORTH = 0.02
"""A measurement is named if it takes at least this share off the interval's width, in logs."""


def uncertainty_of(predictions: Mapping[str, Prediction]) -> dict[str, Any]:
    """Of each metric, the shares of its error's variance and what would narrow its interval.

    Keys of each: ``log_sd``, ``factors`` (``name``, ``share`` of the variance, ``log_sd``; largest
    first) and ``would_narrow`` (``measure``: a family of kernels, "kernels" = of every family,
    "host" or "network"; ``rows`` of a family; ``log_sd``, ``p05`` and ``p95`` as factors on the
    estimate afterwards).

    >>> from silicast.core.prediction import ErrorFactors, Part
    >>> error = ErrorFactors({"device:gemm": 0.04, "host": 0.03})
    >>> one = Prediction(Part("step", 1000), error, narrowed={"host": ErrorFactors({"x": 0.04})})
    >>> uncertainty = uncertainty_of({"total_ms": one})["total_ms"]
    >>> uncertainty["factors"][0], uncertainty["would_narrow"][0]["measure"]
    ({'name': 'device:gemm', 'share': 0.64, 'log_sd': 0.04}, 'host')
    """
    return {name: _one(prediction) for name, prediction in predictions.items()}


def _one(prediction: Prediction) -> dict[str, Any]:
    error, log_sd = prediction.error, prediction.error.log_sd
    least = (1.0 - WORTH) * log_sd
    return {
        "log_sd": round(log_sd, 6),
        "factors": [
            {"name": name, "share": round(share, 4), "log_sd": round(math.sqrt(share) * log_sd, 6)}
            for name, share in error.shares().items()
        ],
        "would_narrow": [
            _after(measure, left.log_sd)
            for measure, left in prediction.narrowed.items()
            if left.log_sd < least
        ],
    }


def _after(measure: str, log_sd: float) -> dict[str, Any]:
    spread = math.exp(Z90 * log_sd)
    after: dict[str, Any] = {"measure": measure}
    if measure not in ("host", "network"):
        after["rows"] = CALIBRATION_ROWS
    after["log_sd"] = round(log_sd, 6)
    after["p05"], after["p95"] = round(1.0 / spread, 4), round(spread, 4)
    return after


GIVEN = "given"
"""In place of a tier: a time that the user states."""
UNMODELLED = "unmodelled"
"""In place of a tier: operations without a model, of which bytes and a launch are counted."""
ORDER = (*reversed(TIERS), GIVEN, UNMODELLED)


def coverage_of(*parts: tuple[Mapping[Any, float], float]) -> dict[str, Any]:
    """``coverage`` for ``why``: shares of the time by tier, best first.

    Args:
        parts: time by tier in any one unit, and how often it counts.

    >>> coverage_of(({"analytic": 1.0}, 2.0), ({"calibrated": 6.0}, 1.0))
    {'coverage': {'time_share': {'calibrated': 0.75, 'analytic': 0.25}}}
    """
    seconds: dict[str, float] = {}
    for by_tier, often in parts:
        for tier, value in by_tier.items():
            seconds[tier] = seconds.get(tier, 0.0) + often * value
    whole = sum(seconds.values())
    shares = {tier: round(seconds[tier] / whole, 6) for tier in ORDER if seconds.get(tier)}
    return {"coverage": {"time_share": shares}}


def largest_of(names: Mapping[str, float], kind: str) -> dict[str, Any]:
    """``largest_unmodelled`` for a coverage: the part with the largest share; {} = there is none.

    >>> largest_of({"tool": 0.25, "search": 0.5}, "stage")
    {'largest_unmodelled': {'stage': 'search', 'time_share': 0.5}}
    """
    if not names:
        return {}
    name = max(names, key=lambda each: names[each])
    return {"largest_unmodelled": {kind: name, "time_share": round(names[name], 6)}}
