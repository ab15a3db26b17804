"""Answers of the tasks ``training`` and ``plan`` as text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.core.errors import SilicastError
from silicast.exploration.prices import Price
from silicast.report.answers import metrics_table, notes, setup_lines, title
from silicast.report.drawing.numbers import percent, rounded
from silicast.report.drawing.tables import listing

_SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_TOKENS = re.compile(r"(\d+(?:\.\d+)?)([KMBT]?)", re.IGNORECASE)
UPDATE = "update"
"""What of a step comes after all passes."""
_DAY, _HOUR = 86_400.0, 3_600.0


def training_report(
    scenario: Mapping[str, Any],
    answer: Mapping[str, Any],
    tokens: str | None = None,
    price: Price | None = None,
) -> RenderableType:
    """Everything a person needs of one training step.

    Args:
        tokens: to train on in all ("15T"); price: of a device for an hour.
    """
    why, metrics = answer["why"], answer["metrics"]
    parts: list[RenderableType] = [Text(title(scenario), "bold")]
    parts += [Text(line, "dim") for line in setup_lines(why)]
    parts += [Text(line, "dim") for line in plan_lines(why)]
    parts += [Text(""), metrics_table(answer), Text("")]
    peaks = peak_lines(why, metrics["mfu"]["estimate"] if "mfu" in metrics else None)
    parts += [Text(line) for line in (*peaks, *shares(why))]
    parts += [Text(line) for line in notes(answer)]
    if tokens is not None:
        parts += [Text(line) for line in run_lines(answer, tokens, price)]
    if rivals := why.get("candidates"):
        parts += [Text(""), candidates_table(why["search"], rivals)]
    parts += [Text(f"warning: {line}", "yellow") for line in answer["warnings"]]
    return Group(*parts)


def plan_lines(why: Mapping[str, Any]) -> Iterator[str]:
    """How the step is spread.

    >>> list(plan_lines({"plan": {"tp": 2, "pp": 1, "zero": 1}, "recompute": "full"}))
    ['tp 2, zero 1, recompute full']
    >>> list(plan_lines({"plan": {"tp": 2}, "recompute": "full", "recompute_share": 11 / 32}))
    ['tp 2, recompute full of 34% of the layers']
    """
    plan = why.get("plan")
    if not isinstance(plan, Mapping):
        return
    words = [
        name.replace("_", " ") if value is True else f"{name.replace('_', ' ')} {value}"
        for name, value in plan.items()
        if value not in (0, 1, False) or (name == "zero" and value) or value is True
    ]
    if why.get("schedule"):
        words.append(str(why["schedule"]))
    if why.get("recompute") not in (None, "none"):
        share = why.get("recompute_share", 1.0)
        of = f" of {share:.0%} of the layers" if share < 1.0 else ""
        words.append(f"recompute {why['recompute']}{of}")
    yield ", ".join(words)


def peak_lines(why: Mapping[str, Any], mfu: float | None) -> Iterator[str]:
    """Which peak MFU is a part of, and what it is of the peak in 16 bits that people quote.

    >>> list(peak_lines({"peak_tflops": {"fp8": 1978.9, "bf16": 989.4}}, 0.385))
    ['MFU is of 1,979 TFLOP/s a device, its peak in fp8; of 989 in bf16 it is 0.770']
    """
    peaks = list((why.get("peak_tflops") or {}).items())
    if peaks and mfu is not None:
        (name, most), *others = peaks
        more = "".join(
            f"; of {rounded(peak)} in {other} it is {rounded(mfu * most / peak)}"
            for other, peak in others
        )
        yield f"MFU is of {rounded(most)} TFLOP/s a device, its peak in {name}{more}"


def shares(why: Mapping[str, Any]) -> Iterator[str]:
    """Where the time goes, the largest first.

    >>> parts = [{"name": "forward_and_backward", "share": 0.9},
    ...          {"name": "pipeline_bubble", "share": 0.1}]
    >>> list(shares({"parts": parts}))
    ['forward and backward 90 %, pipeline bubble 10 %']
    """
    parts: Sequence[Mapping[str, Any]] = why.get("parts") or ()
    named = [
        (float(part["share"]), str(part["name"]).replace("_", " ").replace("e2e", UPDATE))
        for part in parts
    ]
    shown = [f"{name} {percent(share)}" for share, name in sorted(named, reverse=True) if share > 0]
    if shown:
        yield ", ".join(shown)


def tokens_of(text: str) -> float:
    """A number of tokens.

    >>> tokens_of("15T"), tokens_of("300b")
    (15000000000000.0, 300000000000.0)

    Raises:
        SilicastError: no such number.
    """
    match = _TOKENS.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise SilicastError(
            f"expected a number of tokens, found {text!r:.40}", field="--tokens", hint="15T, 300B"
        )
    return float(match[1]) * _SCALES[match[2].upper()]


def check_run(tokens: str | None, price: Price | None) -> None:
    """Raises SilicastError unless a whole run's tokens can be read; a price needs them."""
    if tokens is not None:
        tokens_of(tokens)
    elif price is not None:
        raise SilicastError("is missing: a price means nothing without it", field="--tokens")


def run_lines(answer: Mapping[str, Any], tokens: str, price: Price | None) -> list[str]:
    """What a whole run of so many tokens ("15T") takes."""
    return [whole_run(answer, tokens_of(tokens), price)]


def whole_run(answer: Mapping[str, Any], tokens: float, price: Price | None) -> str:
    """Days, device hours and cost of a whole run, in a sentence."""
    return WholeRun.of_answer(answer, tokens, price).words()


@final
@dataclass(frozen=True)
class WholeRun:
    """A run of so many tokens.

    Attributes:
        days: "estimate", "p05" and "p95" of the rate at which they are reached -> days; one that
            is never reached is missing.
        failing: what of failures is in it, in words; price: of a device, None = not known.
    """

    tokens: float
    gpus: int
    days: Mapping[str, float]
    failing: str
    price: Price | None

    @staticmethod
    def of_answer(answer: Mapping[str, Any], tokens: float, price: Price | None) -> WholeRun:
        """A run at the speed of an answer."""
        gpus = int(answer["why"]["deployment"]["devices"])
        rates, failing = _rates(answer["metrics"], gpus)
        days = {name: tokens / rate / _DAY for name, rate in rates.items() if rate}
        return WholeRun(tokens, gpus, days if len(days) == len(rates) else {}, failing, price)

    @property
    def hours(self) -> float:
        """Device hours: days times devices; infinite where the tokens are never reached."""
        return self.days.get("estimate", math.inf) * _DAY / _HOUR * self.gpus

    @property
    def cost(self) -> float | None:
        """In the currency of the price; None where that is not known."""
        return None if self.price is None else self.hours * self.price.per_hour

    def cells(self) -> tuple[str, str]:
        """Days and cost for a table."""
        if not self.days:
            return "never", "–"
        cost = "–" if self.cost is None else f"{self.cost:,.0f}"
        return rounded(self.days["estimate"]), cost

    def words(self) -> str:
        """Days, device hours and cost in a sentence."""
        if not self.days:
            return f"{_counted(self.tokens)} tokens are never reached {self.failing}"
        days = self.days
        text = (
            f"{_counted(self.tokens)} tokens take {rounded(days['estimate'])} days (90 %: "
            f"{rounded(days['p95'])} to {rounded(days['p05'])}) {self.failing}: "
            f"{self.hours:,.0f} device hours"
        )
        if self.price is None:
            return text
        return f"{text}, {self.cost:,.0f} {self.price.currency} at {self.price.said()}"


def _counted(tokens: float) -> str:
    """As people write a number of tokens.

    >>> _counted(1.5e13), _counted(3e11), _counted(500.0)
    ('15T', '300B', '500')
    """
    scales = sorted(_SCALES.items(), key=lambda item: -item[1])
    name, scale = next((name, scale) for name, scale in scales if tokens >= scale or not name)
    return f"{tokens / scale:.4g}{name}"


def _rates(metrics: Mapping[str, Any], gpus: int) -> tuple[dict[str, float], str]:
    """Tokens a second of all devices with what was stated of failures, and words for it."""
    names = ("estimate", "p05", "p95")
    if table := metrics.get("tokens_per_s_with_failures"):
        return {name: float(table[name]) for name in names}, "with failures"
    if table := metrics.get("tokens_per_s_with_checkpoints"):
        return {name: float(table[name]) for name in names}, "with checkpoints, without failures"
    rate, slowed = metrics["tokens_per_s_per_gpu"], metrics.get("step_time_slowed_s")
    if slowed is None:
        return {name: float(rate[name]) * gpus for name in names}, "without failures"
    work = float(rate["estimate"]) * float(metrics["step_time_s"]["estimate"]) * gpus
    ends = {"estimate": "estimate", "p05": "p95", "p95": "p05"}
    table = {name: work / float(slowed[ends[name]]) for name in names}
    return table, "with slow devices, without failures"


def candidates_table(
    search: Mapping[str, Any], candidates: Sequence[Mapping[str, Any]]
) -> RenderableType:
    """The best plans and why the others lose."""
    columns = {"plan": "left", "step": "right", "memory": "right", "why not": "left"}
    rows = [
        [
            each["plan"],
            f"{rounded(each['step_time_s'])} s",
            f"{rounded(each['memory_gb'])} GB",
            each["why_not"] or "best",
        ]
        for each in candidates
    ]
    head = (
        f"{search['legal']:,} legal plans, {search['fitting']:,} fit, the best "
        f"{search['predicted']} predicted in full"
    )
    return Group(Text(head, "dim"), listing(columns, rows))
