"""Candidates side by side: what fits first, what does not after it with the reason."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.core.errors import SilicastError, unknown_name
from silicast.core.files import write_atomically
from silicast.report.drawing.numbers import Shown, duration, rounded
from silicast.report.drawing.plot_file import check_plot, figure_class, save_plot
from silicast.report.drawing.tables import listing
from silicast.scenario.answer import Answer, Belief

if TYPE_CHECKING:
    from silicast.scenario.answers.inference.comparison import Candidate

PER_GPU: Final = "output_tokens_per_s_per_gpu"


class Column(NamedTuple):
    """One metric of the table.

    Attributes:
        metrics: the first of them that a candidate has.
        word: by which ``--sort`` calls it; most: whether more is better.
    """

    heading: str
    metrics: tuple[str, ...]
    word: str
    most: bool = False


COLUMNS: Final = (
    Column("GPUs", ("gpus",), "gpus"),
    Column("TTFT", ("prefill_ms", "ttft_mean_ms"), "ttft"),
    Column("TPOT", ("decode_step_ms", "tpot_mean_ms"), "tpot"),
    Column("batch", ("total_ms",), "time"),
    Column("tok/s", ("output_tokens_per_s",), "throughput", most=True),
    Column("seq/s", ("sequences_per_s",), "throughput", most=True),
    Column("a GPU", (PER_GPU,), "throughput-per-gpu", most=True),
    Column("a GPU", ("sequences_per_s_per_gpu",), "throughput-per-gpu", most=True),
    Column("GB", ("memory_gb",), "memory"),
    Column("W", ("power_w",), "power"),
    Column("J/tok", ("energy_per_output_token_j",), "energy"),
    Column("J/seq", ("energy_per_sequence_j",), "energy"),
    Column("{}/h", ("cost_per_hour",), "cost-per-hour"),
    Column("{}/M", ("cost_per_million_output_tokens",), "cost"),
    Column("{}/M", ("cost_per_million_sequences",), "cost"),
)
"""Devices, the power and memory of one, all else of all; {} is the currency of prices."""
ON_REQUEST: Final = ("time",)
"""Of a batch: shown where candidates are sorted by it."""
BEYOND: Final = 8.0
"""Times the best candidate's cost, or its devices, from which on a remark says so."""
_MARKS: Final = "os^Dv"
"""Of ten candidates each, whose colours are those of the ten before."""
BY_DEFAULT: Final = ("cost", "gpus", "time")
"""What candidates are sorted by where nobody says: the first that one of them has."""


def sort_word(word: str | None, candidates: Sequence[Candidate]) -> str:
    """What candidates are sorted by.

    Raises:
        SilicastError: a word that names nothing, or nothing that was predicted.
    """
    words = list(dict.fromkeys(column.word for column in COLUMNS))
    has = [each for each in words if any(_belief(candidate, each) for candidate in candidates)]
    if word is None:
        return next((each for each in BY_DEFAULT if each in has), "time")
    if word not in words:
        raise unknown_name(f"unknown: {word!r:.40}", "--sort", f"one of {', '.join(words)}")
    if word not in has and any(isinstance(candidate.reply, Answer) for candidate in candidates):
        hint = (
            "state prices with --price" if word.startswith("cost") else f"one of {', '.join(has)}"
        )
        raise SilicastError(f"no candidate has {word}", field="--sort", hint=hint)
    return word


def in_order(candidates: Sequence[Candidate], word: str) -> list[Candidate]:
    """Those that fit from the best on, then those that do not, then those without an answer."""
    most = next(column.most for column in COLUMNS if column.word == word)

    def order(candidate: Candidate) -> tuple[int, bool, float]:
        belief = _belief(candidate, word)
        kind = 0 if candidate.fits else 1 if isinstance(candidate.reply, Answer) else 2
        value = 0.0 if belief is None else belief.estimate
        return kind, belief is None, -value if most else value

    return sorted(candidates, key=order)


def comparison_report(
    head: str, candidates: Sequence[Candidate], word: str, today: date, after: Sequence[str] = ()
) -> RenderableType:
    """The table, what does not fit, and what to know.

    Args:
        candidates: in order.
        after: further lines.
    """
    fitting = [candidate for candidate in candidates if candidate.fits]
    parts: list[RenderableType] = [Text(head, "bold"), Text("")]
    if fitting:
        parts += [_table(fitting, word), Text("")]
    for candidate in candidates:
        if not candidate.fits:
            parts.append(
                Text(f"{candidate.label}: {candidate.reason}", "red" if not fitting else "yellow")
            )
    lines = (*price_lines(fitting), *blank_lines(fitting), *beyond_lines(fitting), *after)
    parts += [Text(line) for line in lines]
    parts += [Text(f"warning: {line}", "yellow") for line in warnings_of(fitting, today)]
    return Group(*parts)


def _table(candidates: Sequence[Candidate], word: str) -> RenderableType:
    headings, rows = table_rows(candidates, word)
    first, *others = headings
    return listing({first: "tree", **dict.fromkeys(others, "right")}, rows)


def table_rows(candidates: Sequence[Candidate], word: str) -> tuple[list[str], list[list[str]]]:
    """Headings and cells: names, metrics, and the interval of what they are sorted by."""
    currency = next((candidate.price.currency for candidate in candidates if candidate.price), "")
    had = [c for c in COLUMNS if any(_found(candidate, c) for candidate in candidates)]
    shown = [c for c in had if c.word not in ON_REQUEST or c.word == word]
    chosen = next(column for column in shown if column.word == word)
    headings = [column.heading.format(currency) for column in shown]
    if not any(column.metrics == (PER_GPU,) for column in had):  # no token, none that is the first
        headings = ["prefill" if each == "TTFT" else each for each in headings]
    interval = "90 %"
    headings[shown.index(chosen)] += " *"
    rows = []
    for candidate in candidates:
        cells = [_cell(candidate, column) for column in shown]
        rows.append(
            [candidate.label, *cells, _interval(candidate, chosen) or _other_interval(candidate)]
        )
    return ["", *headings, interval], rows


def _found(candidate: Candidate, column: Column) -> tuple[str, Belief] | None:
    metrics = candidate.reply.metrics if isinstance(candidate.reply, Answer) else {}
    return next(((name, metrics[name]) for name in column.metrics if name in metrics), None)


def _belief(candidate: Candidate, word: str) -> Belief | None:
    result = (_found(candidate, column) for column in COLUMNS if column.word == word)
    return next((each[1] for each in result if each), None)


def _cell(candidate: Candidate, column: Column) -> str:
    result = _found(candidate, column)
    if result is None:
        return ""
    name, belief = result
    return (
        duration(belief.estimate * 1e-3) if name.endswith("_ms") else _number(name, belief.estimate)
    )


def _number(name: str, value: float) -> str:
    return f"{value:,.0f}" if name == "gpus" else rounded(value)


def _interval(candidate: Candidate, column: Column) -> str:
    result = _found(candidate, column)
    if result is None:
        return ""
    name, belief = result
    if name == "gpus":
        return f"{belief.p05:,.0f} – {belief.p95:,.0f}"
    shown = Shown(name, belief)
    unit = f" {shown.unit}" if name.endswith("_ms") else ""
    return f"{shown.interval}{unit}"


def _other_interval(candidate: Candidate) -> str:
    """Where it has not what candidates are sorted by: of the first it has of what they could be,
    named.
    """
    could = (column for word in BY_DEFAULT for column in COLUMNS if column.word == word)
    result = ((column.heading, _interval(candidate, column)) for column in could)
    return next((f"{heading} {interval}" for heading, interval in result if interval), "")


def price_lines(candidates: Sequence[Candidate]) -> Iterator[str]:
    """Whose prices were taken, and of which devices none is known."""
    priced = {
        candidate.scenario["device"]: candidate.price
        for candidate in candidates
        if candidate.price is not None
    }
    if not priced:
        return
    yield "prices: " + "; ".join(f"{name} {price.said()}" for name, price in priced.items())
    without = [candidate.scenario["device"] for candidate in candidates if candidate.price is None]
    if without:
        yield f"no price, no cost: {', '.join(dict.fromkeys(map(str, without)))}"


def blank_lines(candidates: Sequence[Candidate]) -> Iterator[str]:
    """Of which devices a cell is blank, and why."""
    powered = [candidate for candidate in candidates if _belief(candidate, "power")]
    without = [candidate.label for candidate in candidates if _belief(candidate, "power") is None]
    if powered and without:
        yield f"no power is modelled, so no W and no J: {', '.join(without)}"


def beyond_lines(candidates: Sequence[Candidate]) -> Iterator[str]:
    """Candidates that take many times the devices or the money of another: nobody builds them."""
    for word, subject in (("cost", "the cost"), ("gpus", "the devices")):
        values = [
            (candidate, belief) for candidate in candidates if (belief := _belief(candidate, word))
        ]
        if len(values) < 2:
            continue
        best, least = min(values, key=lambda each: each[1].estimate)
        for candidate, belief in values:
            times = belief.estimate / max(least.estimate, 1e-12)
            if times >= BEYOND:
                few = _belief(best, "gpus")
                fewer = "" if few is None else f"; that takes {few.estimate:,.0f} devices"
                words = f"{times:,.0f} times {subject} of {best.label}: hardly to be built{fewer}"
                yield f"{candidate.label}: {words}"
        return


def warnings_of(candidates: Sequence[Candidate], today: date) -> list[str]:
    """What to know of those that fit; what is true of all of them once."""
    details: dict[str, list[str]] = {}
    for candidate in candidates:
        assert isinstance(candidate.reply, Answer)
        doubt = candidate.price.doubt(today) if candidate.price else ""
        doubts = (
            [f"its price {doubt}: {candidate.price.said()}"] if candidate.price and doubt else []
        )
        for line in (*candidate.reply.warnings, *doubts):
            details.setdefault(line, []).append(candidate.label)
    return [
        line
        if len(candidates) > 1 and len(labels) == len(candidates)
        else f"{', '.join(labels)}: {line}"
        for line, labels in details.items()
    ]


def plain(candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
    """The candidates for programs."""
    import msgspec

    plain = []
    for candidate in candidates:
        price = None
        if candidate.price is not None:
            price = {n: getattr(candidate.price, n) for n in candidate.price.__dataclass_fields__}
        devices = None
        if isinstance(candidate.reply, Answer):
            devices = candidate.reply.why["deployment"]["devices"]
        plain.append(
            {
                "case": candidate.label,
                **msgspec.to_builtins(candidate.reply),
                "device": candidate.scenario["device"],
                "plan": candidate.plan,
                "devices": devices,
                "fits": candidate.fits,
                "reason": candidate.reason,
                "price": price,
            }
        )
    return plain


def write_csv(path: Path, candidates: Sequence[Candidate]) -> None:
    """A line a candidate: every metric with its interval.

    Raises:
        SilicastError: it cannot be written.
    """
    metrics = list(
        dict.fromkeys(
            name
            for candidate in candidates
            if isinstance(candidate.reply, Answer)
            for name in candidate.reply.metrics
        )
    )
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    ends = ("", "_p05", "_p95")
    named = [f"{name}{end}" for name in metrics for end in ends]
    table.writerow(["case", "device", "plan", "devices", "fits", *named, "currency", "reason"])
    for candidate, tree in zip(candidates, plain(candidates), strict=True):
        beliefs: Mapping[str, Belief] = (
            candidate.reply.metrics if isinstance(candidate.reply, Answer) else {}
        )
        values = [
            getattr(beliefs[name], part) if name in beliefs else ""
            for name in metrics
            for part in ("estimate", "p05", "p95")
        ]
        plan = " ".join(f"{name}={degree}" for name, degree in candidate.plan.items())
        currency = candidate.price.currency if candidate.price else ""
        table.writerow(
            [candidate.label, candidate.scenario["device"], plan, tree["devices"] or "",
             "yes" if candidate.fits else "no", *values, currency, candidate.reason]
        )  # fmt: skip
    write_atomically(path, text.getvalue().encode())


def points_of(candidates: Sequence[Candidate]) -> list[tuple[str, Belief, Belief]]:
    """Name, throughput of a device and milliseconds a token of what fits and decodes."""
    latency = next(column for column in COLUMNS if column.word == "tpot")
    points = []
    for candidate in candidates:
        time = _found(candidate, latency)
        if candidate.fits and time is not None and isinstance(candidate.reply, Answer):
            points.append((candidate.label, candidate.reply.metrics[PER_GPU], time[1]))
    return points


def write_plot(path: Path, candidates: Sequence[Candidate], head: str) -> None:
    """Time per token over throughput of a device, with 90 % intervals, of what fits.

    Raises:
        SilicastError: nothing decodes, matplotlib is not there, or it cannot be written.
    """
    check_plot(path)
    drawn = points_of(candidates)
    if not drawn:
        raise SilicastError("nothing that fits decodes: there is nothing to draw", field="--plot")
    figure = figure_class()(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    for number, (name, rate, time) in enumerate(drawn):
        axes.errorbar(
            [rate.estimate],
            [time.estimate],
            fmt=_MARKS[number // 10 % len(_MARKS)],
            label=name,
            color=f"C{number % 10}",
            capsize=2.5,
            xerr=[[rate.estimate - rate.p05], [rate.p95 - rate.estimate]],
            yerr=[[time.estimate - time.p05], [time.p95 - time.estimate]],
            markersize=4.5,
            elinewidth=1.0,
        )
    axes.set_xlim(left=0.0)
    axes.set_ylim(bottom=0.0)
    axes.legend(fontsize=8, loc="best")
    axes.set_xlabel("output tokens/s of a device")
    axes.set_ylabel("ms a token")
    axes.grid(visible=True, linewidth=0.4, alpha=0.5)
    axes.set_title(head, fontsize=9)
    save_plot(figure, path)
