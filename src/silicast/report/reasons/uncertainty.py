"""What makes an answer uncertain, as a line and as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from silicast.report.drawing.numbers import percent
from silicast.report.drawing.tables import listing

Z90 = 1.6448536269514722
"""Half the width of a 90 % interval in standard deviations."""

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
    kind, _, of = factor.partition(":")
    if of and kind in OF_KERNELS:
        return OF_KERNELS[kind].format(family_words(of))
    return WORDS.get(kind, factor.replace("_", " ")).format(of)


def family_words(family: str) -> str:
    """A family of kernels in words: its name."""
    return family.replace("_", " ")


def uncertainty_line(why: Mapping[str, Any], metric: str = "") -> str:
    """What contributes most to a metric's interval, and what would narrow it most; "" where nothing
    is known.

    Args:
        metric: which one; the last that the answer has.

    >>> uncertainty_line({"uncertainty": {"total_ms": {"log_sd": 0.06, "factors": [
    ...     {"name": "shapes:gemm", "share": 0.6, "log_sd": 0.046},
    ...     {"name": "device:gemm", "share": 0.1, "log_sd": 0.019},
    ...     {"name": "host", "share": 0.3, "log_sd": 0.033}],
    ...     "would_narrow": [{"measure": "host", "log_sd": 0.05, "p05": 0.92, "p95": 1.09}]}}})
    'interval mostly from gemm kernels (70 %), then the host (30 %); with the host measured: ±8.6 %'
    """
    result = _metric(why, metric)
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
        kind, _, of = str(factor["name"]).partition(":")
        if of and kind in OF_KERNELS:
            name = f"{family_words(of)} kernels"
        else:
            name = SHORT.get(kind, words_of(str(factor["name"])))
        sums[name] = sums.get(name, 0.0) + float(factor["share"])
    return sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))


def uncertainty_table(why: Mapping[str, Any], metric: str = "") -> RenderableType | None:
    """Every factor of a metric's error with its share, and what measurements would leave; None
    where nothing is known.
    """
    result = _metric(why, metric)
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


def _metric(why: Mapping[str, Any], metric: str) -> Mapping[str, Any] | None:
    table = why.get("uncertainty")
    if not isinstance(table, Mapping) or not table:
        return None
    result = table.get(metric or list(table)[-1])
    return result if isinstance(result, Mapping) else None
