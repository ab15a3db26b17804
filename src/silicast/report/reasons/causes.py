"""Why a part takes longer in one answer than in another, split into causes.

A kernel's time is a product and a sum of a few things (docs/explanation/why.md):

    time = runs x launch  +  runs x work / rate x (limit moved) x clock x inefficiency

The difference of two products is split by the logarithmic mean: with L(a, b) = (b - a) / ln(b / a),
a factor that grows from f to g adds L(a, b) x ln(g / f), and the factors' shares sum to b - a. It
treats both sides alike: the other way round, every share has the other sign. Far from its bound a
kernel's time does not follow its work; there what is left above the bound is its latency, a sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from rich.console import RenderableType

from silicast.composition.step.pipes import CLOCKED
from silicast.core.prediction import Z90
from silicast.report.drawing.numbers import percent
from silicast.report.drawing.tables import listing

Node = Mapping[str, Any]

CAUSES = {
    "runs": "how often it runs",
    "work": "work of one run (bytes, operations)",
    "rate": "the device's rates",
    "bound": "its limit (work or rates)",
    "limit_moved": "another resource limits it",
    "clock": "clock held",
    "efficiency": "efficiency (share of the bound reached)",
    "latency": "launch and latency of short kernels",
    "communication": "links and collectives",
    "pipeline": "the pipeline's bubble",
    "host": "host",
    "other": "not told apart",
    "only_in_a": "runs only in A",
    "only_in_b": "runs only in B",
}
"""Every cause, in words."""

SHORT_CAUSES = {
    "runs": "runs", "work": "work of a run", "rate": "rates", "bound": "limit",
    "limit_moved": "limit moved", "clock": "clock", "efficiency": "efficiency",
    "latency": "latency", "communication": "links", "pipeline": "bubble", "host": "host",
    "other": "", "only_in_a": "only in A", "only_in_b": "only in B",
}  # fmt: skip
"""The same where a line is short."""

OF_WAITS = {"pipeline": "pipeline", "network": "communication"}
"""What a part without kernels waits for -> the cause of its change."""

FAR_FROM_BOUND = 0.2
"""A kernel at less of its bound is too short to use the device."""

SERIAL = ("launch", "latency")
APART = (*SERIAL, "clock", "inefficiency")


@final
@dataclass(frozen=True)
class Side:
    """One part in one answer; times in picoseconds.

    Attributes:
        time: exposed.
        runs: how often it runs in all.
        needs: resource -> time at its limit, exposed or hidden.
        work: resource -> bytes or operations.
        bound: exposed time of the limiting resources.
        serial: launch, hops and barriers.
        clock: what the lower clock costs.
    """

    time: int
    runs: float
    needs: Mapping[str, float]
    work: Mapping[str, float]
    bound: float
    serial: float
    clock: float

    @staticmethod
    def from_node(node: Node, runs: float) -> Side:
        """A leaf of a full tree."""
        pipes = [part for part in node.get("parts", ()) if part.get("kind") == "pipe"]
        exposed = {str(pipe["name"]): picoseconds(pipe) for pipe in pipes}
        needs = {
            str(pipe["name"]): exposed[str(pipe["name"])] + float(pipe.get("hidden_ms", 0.0)) * 1e9
            for pipe in pipes
            if pipe["name"] not in APART
        }
        return Side(
            time=picoseconds(node),
            runs=runs,
            needs=needs,
            work={str(pipe["name"]): float(pipe.get("work", 0.0)) for pipe in pipes},
            bound=float(sum(time for name, time in exposed.items() if name not in APART)),
            serial=float(sum(exposed.get(name, 0) for name in SERIAL)),
            clock=float(exposed.get("clock", 0)),
        )

    @property
    def known(self) -> bool:
        """Whether its pipes are known."""
        return bool(self.needs)

    @property
    def communicates(self) -> bool:
        """Whether links or a collective's hops have a part in it."""
        return "link" in self.needs or "latency" in self.work

    @property
    def limit(self) -> str:
        """The resource that limits it."""
        return max(self.needs, key=lambda name: (self.needs[name], name))

    @property
    def at_clock(self) -> float:
        """What the bound takes at the clock that is held."""
        return self.bound + self.clock

    @property
    def reached(self) -> float:
        """The share of its time that its bound is."""
        return self.bound / self.time if self.time else 1.0


def picoseconds(node: Node) -> int:
    """The exposed time of a part."""
    return round(float(node["exposed_ms"]) * 1e9)


def kernel_causes(a: Side, b: Side, largest_clock: float = 0.0) -> dict[str, int]:
    """Causes of ``b.time - a.time`` in picoseconds, which sum to it.

    Args:
        largest_clock: logarithm of what the device's largest clock grows by, where it is one device
            under another limit; what its rates change by that is the clock's doing.
    """
    if a.time == b.time and a == b:
        return {}
    if not (a.known and b.known):
        return _rounded({"other": float(b.time - a.time)}, b.time - a.time)
    runs = {"runs": math.log(b.runs / a.runs)}
    if a.communicates or b.communicates:
        return _rounded({"communication": float(b.time - a.time)}, b.time - a.time)
    if not (a.bound > 0.0 and b.bound > 0.0):
        product = _product(a.time, b.time, runs, "latency")
        return _rounded(product, b.time - a.time)
    product = _product(a.serial, b.serial, runs, "latency")
    factors = _bound_factors(a, b, largest_clock)
    rest_a, rest_b = a.time - a.serial - a.at_clock, b.time - b.serial - b.at_clock
    if min(a.reached, b.reached) >= FAR_FROM_BOUND:
        whole = _product(a.time - a.serial, b.time - b.serial, factors, "efficiency")
        return _rounded(_added(product, whole), b.time - a.time)
    near = _product(a.at_clock, b.at_clock, factors, "clock")
    above = _product(rest_a, rest_b, runs, "latency")
    return _rounded(_added(_added(product, near), above), b.time - a.time)


def host_causes(a: Side, b: Side) -> dict[str, int]:
    """The same for what the host does."""
    product = _product(a.time, b.time, {"runs": math.log(b.runs / a.runs)}, "host")
    return _rounded(product, b.time - a.time)


def _bound_factors(a: Side, b: Side, largest_clock: float) -> dict[str, float]:
    """Logarithms of what the bound grows by, by cause; they sum to that of its growth."""
    first, last = a.limit, b.limit
    runs = math.log(b.runs / a.runs)
    bound_factors = {"runs": runs}
    need = _log(a.needs[first], b.needs.get(first, 0.0))
    if need is None:  # the other side does not use it at all
        bound_factors["limit_moved"] = (_log(a.bound, b.bound) or 0.0) - runs
    else:
        work = _log(a.work.get(first, 0.0), b.work.get(first, 0.0))
        if work is None:
            bound_factors["bound"] = need - runs
        else:
            bound_factors |= {**_netted(runs, work - runs), "rate": need - work}
        bound_factors["limit_moved"] = (_log(a.bound, b.bound) or 0.0) - need
    if first == last and abs(bound_factors["limit_moved"]) < 1e-9:
        del bound_factors["limit_moved"]
    bound_factors["clock"] = _log(a.at_clock / a.bound, b.at_clock / b.bound) or 0.0
    rates = next((name for name in ("rate", "bound") if name in bound_factors), "")
    if largest_clock and first in CLOCKED and rates:
        bound_factors[rates] += largest_clock
        bound_factors["clock"] -= largest_clock
    return bound_factors


def _netted(runs: float, once: float) -> dict[str, float]:
    """Runs and the work of one where the same work is cut otherwise: of fewer runs that each do
    more, what is left is the doing of the larger.

    >>> _netted(-2.0, 1.5), _netted(-2.0, 2.0), _netted(1.0, 0.5)
    ({'runs': -0.5, 'work': 0.0}, {'runs': 0.0, 'work': 0.0}, {'runs': 1.0, 'work': 0.5})
    """
    if runs * once >= 0.0:
        return {"runs": runs, "work": once}
    return {"runs": runs + once, "work": 0.0} if abs(runs) >= abs(once) else {
        "runs": 0.0, "work": runs + once,
    }  # fmt: skip


def _product(a: float, b: float, factors: Mapping[str, float], remaining: str) -> dict[str, float]:
    """``b - a`` by the factors whose logarithms are given; what they leave is ``remaining``."""
    if a <= 0.0 or b <= 0.0:
        return {remaining: b - a}
    mean = a if a == b else (b - a) / math.log(b / a)
    product = {name: mean * factor for name, factor in factors.items()}
    left = (b - a) - math.fsum(product.values())
    product[remaining] = product.get(remaining, 0.0) + left
    return product


def _log(a: float, b: float) -> float | None:
    """The logarithm of a growth; None where one side has none of it."""
    ratio = b / a if a > 0.0 else 0.0
    return math.log(ratio) if 0.0 < ratio < math.inf else None


def _added(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in {**one, **other}}


def _rounded(causes: Mapping[str, float], whole: int) -> dict[str, int]:
    """Whole picoseconds that sum to ``whole``; the largest cause takes what rounding leaves."""
    table = {name: round(value) for name, value in causes.items()}
    left = whole - sum(table.values())
    if left:
        largest = max(table, key=lambda name: (abs(table[name]), name), default="other")
        table[largest] = table.get(largest, 0) + left
    return {name: value for name, value in table.items() if value}


OF_KERNELS = {
    "device": "{} kernels on this device, all alike",
    "family": "{} kernels, on every device alike",
    "shapes": "{} kernels, shape by shape",
    "campaign": "{} kernels of this release",
}
"""Errors of one family of kernels, by what goes before its name."""

WORDS = {
    "device": "all kernels on this device",
    "board": "models on this board beyond what their kernels explain",
    "host": "the host's time",
    "network": "links between devices",
    "composition": "what a step takes beside kernels and host",
    "structure": "the model's structure, assumed",
    "training": "what training takes beyond measured kernels",
    "switches": "switches whose time is not known",
    "experts": "how evenly tokens choose experts",
    "release": "the engine's release, which nothing was measured of",
    "power_state": "the board's power state",
    "format": "a number format computed in another one",
    "cache_format": "a cache format that was never measured",
    "specification": "numbers nobody has published of {}",
    "independent": "each kernel for itself",
    "other": "all others",
}
"""Other errors; those with a colon have a name behind it."""

MOST = 8
"""Factors that have a line of their own."""
WORTH_SAYING = 0.9
"""A measurement is named in the line if it leaves at most so much of the interval, in logs."""

SHORT = {"network": "links between devices", "host": "the host"}
"""What is measured, where it is not a family of kernels."""


def words_of(factor: str) -> str:
    """A factor in words; an unknown one as it is called.

    >>> words_of("shapes:gemm"), words_of("host")
    ('gemm kernels, shape by shape', "the host's time")
    """
    kind, _, subject = factor.partition(":")
    if subject and kind in OF_KERNELS:
        return OF_KERNELS[kind].format(family_words(subject))
    return WORDS.get(kind, factor.replace("_", " ")).format(subject)


def family_words(family: str) -> str:
    """A family of kernels in words: its name."""
    return family.replace("_", " ")


def uncertainty_line(why: Mapping[str, Any]) -> str:
    """What contributes most to the interval of an answer's last metric, and what would narrow it
    most; "" where nothing is known.

    >>> uncertainty_line({"uncertainty": {"total_ms": {"log_sd": 0.06, "factors": [
    ...     {"name": "shapes:gemm", "share": 0.6, "log_sd": 0.046},
    ...     {"name": "device:gemm", "share": 0.1, "log_sd": 0.019},
    ...     {"name": "host", "share": 0.3, "log_sd": 0.033}],
    ...     "would_narrow": [{"measure": "host", "log_sd": 0.05, "p05": 0.92, "p95": 1.09}]}}})
    'interval mostly from gemm kernels (70 %), then the host (30 %); with the host measured: ±8.6 %'
    """
    result = _last_metric(why)
    if result is None or not result["factors"]:
        return ""
    ranked = [f"{name} ({percent(share)})" for name, share in by_measurement(result["factors"])[:2]]
    message = f"interval mostly from {', then '.join(ranked)}"
    best = next(iter(result["would_narrow"]), None)
    if best is None or float(best["log_sd"]) > WORTH_SAYING * float(result["log_sd"]):
        return message
    return f"{message}; with {measurement(best)} measured: {half_width(float(best['log_sd']))}"


def by_measurement(factors: Sequence[Mapping[str, Any]]) -> list[tuple[str, float]]:
    """Shares of the variance by what they are about, largest first: errors of one family of kernels
    count together.
    """
    sums: dict[str, float] = {}
    for factor in factors:
        kind, _, subject = str(factor["name"]).partition(":")
        if subject and kind in OF_KERNELS:
            name = f"{family_words(subject)} kernels"
        else:
            name = SHORT.get(kind, words_of(str(factor["name"])))
        sums[name] = sums.get(name, 0.0) + float(factor["share"])
    return sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))


def uncertainty_table(why: Mapping[str, Any]) -> RenderableType | None:
    """Every factor of the last metric's error with its share, and what measurements would leave;
    None where nothing is known.
    """
    result = _last_metric(why)
    if result is None:
        return None
    columns = {"uncertain": "left", "of the variance": "right", "90 %": "right"}
    rows = [_row(each) for each in result["factors"][:MOST]]
    remaining = math.fsum(float(each["share"]) for each in result["factors"][MOST:])
    if remaining > 0.0:
        sd = math.sqrt(remaining) * float(result["log_sd"])
        rows.append(_row({"name": "other", "share": remaining, "log_sd": sd}))
    rows.append(["all together", "", half_width(float(result["log_sd"]))])
    rows += [
        [f"with {measurement(each)} measured", "", half_width(float(each["log_sd"]))]
        for each in result["would_narrow"]
    ]
    return listing(columns, rows)


def _row(factor: Mapping[str, Any]) -> list[str]:
    share, sd = float(factor["share"]), float(factor["log_sd"])
    return [words_of(str(factor["name"])), percent(share), half_width(sd)]


def measurement(entry: Mapping[str, Any]) -> str:
    """What would be measured.

    >>> measurement({"measure": "gemm", "rows": 200})
    '200 gemm kernels'
    """
    name = str(entry["measure"])
    if name == "kernels":
        return f"{int(entry['rows'])} kernels of every family"
    if "rows" in entry:
        return f"{int(entry['rows'])} {family_words(name)} kernels"
    return SHORT.get(name, name)


def half_width(log_sd: float) -> str:
    """Half of a 90 % interval as a percentage.

    >>> half_width(0.05)
    '±8.6 %'
    """
    return f"±{percent(math.expm1(Z90 * log_sd))}"


def _last_metric(why: Mapping[str, Any]) -> Mapping[str, Any] | None:
    table = why.get("uncertainty")
    if not isinstance(table, Mapping) or not table:
        return None
    result = table[list(table)[-1]]
    return result if isinstance(result, Mapping) else None
