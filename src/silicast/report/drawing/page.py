"""An answer, or a comparison, as one page that needs nothing else: it opens without a network, and
prints on paper.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from silicast import __version__
from silicast.core.errors import SilicastError
from silicast.core.files import write_atomically
from silicast.hardware.catalog import find_device
from silicast.report.answers import label, notes, setup_lines, shown_metrics
from silicast.report.drawing.drawings import Bar, BarPiece, Point, bars, interval, scatter
from silicast.report.drawing.numbers import Shown, duration, percent, rounded
from silicast.report.reasons.causes import words_of
from silicast.report.tasks.sequences import counts_sequences, without_tokens
from silicast.report.tasks.serving import (
    LATENCIES,
    ONE_LATENCY,
    RATES,
    STATISTICS,
    LatencyTable,
    serving_lines,
)
from silicast.report.tasks.training import UPDATE, plan_lines, shares

if TYPE_CHECKING:
    from silicast.scenario.answers.inference.comparison import Candidate
    from silicast.scenario.answers.serving.load_sweep import LoadCurve

Answer = Mapping[str, Any]

MOST_PARTS: Final = 9
"""Of a row of the drawing of time; what is less is summed up."""
MOST_FACTORS: Final = 6
MOST_SOURCES: Final = 20
_IN_TABLE: Final = ("power:", "cost:")
"""Lines on what the table of metrics has too."""
_OF_TOKENS: Final = (
    "total_ms",
    "step_time_s",
    "e2e_ms",
    "ttft_p99_ms",
    "tpot_p99_ms",
    "e2e_p99_ms",
    "output_tokens_per_s",
    "tokens_per_s_per_gpu",
)
_OF_SEQUENCES: Final = ("total_ms", "e2e_p50_ms", "e2e_p99_ms", "sequences_per_s")
_OF_EACH: Final = (
    "energy_per_sequence_j",
    "energy_per_output_token_j",
    "cost_per_million_sequences",
    "cost_per_million_output_tokens",
)
"""What an answer is told by in a sentence, the first four that it has."""
_SPREAD: Final = ("mean", "p99")
"""Statistics of latencies that have their interval beside them."""
STYLE: Final = """
body{font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;color:#1d2129;
max-width:46rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.45rem;line-height:1.25;margin:0 0 .25rem}
h2{font-size:1.05rem;margin:1.6rem 0 .5rem;border-bottom:1px solid #d8dce2;padding-bottom:.15rem}
p.setup{color:#5a6270;margin:0 0 .8rem}
p.verdict{font-size:1.1rem;background:#eef3fa;border-left:4px solid #3b6fb6;
padding:.5rem .8rem;margin:.8rem 0}
p.verdict.no{background:#fdeeee;border-color:#b00020}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.18rem .5rem;text-align:right;border-bottom:1px solid #eceff3;white-space:nowrap}
th:first-child,td:first-child{text-align:left;white-space:normal;padding-left:0}
th{font-weight:600;color:#5a6270;font-size:.85rem}
svg{width:100%;height:auto;display:block}
svg text{font-family:inherit}
svg.interval{width:9rem;display:inline-block;vertical-align:middle}
ul{padding-left:1.1rem;margin:.3rem 0}
.warning{color:#8a4b00}
footer{margin-top:2rem;color:#5a6270;font-size:.85rem}
div.wide{overflow-x:auto;font-size:.85rem}div.wide td,div.wide th{padding:.18rem .35rem}
div.wide td:first-child{white-space:nowrap}div.wide+table{margin-top:.8rem}
p.setup+p.setup{margin-top:-.7rem}
@media print{body{margin:0;max-width:none;font-size:11pt}h2{break-after:avoid}svg,table,
p.verdict{break-inside:avoid}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}@page{margin:16mm}}
"""


def write_page(path: Path, page: str) -> None:
    """Writes a page; the file appears when it is complete.

    Raises:
        SilicastError: it cannot be written.
    """
    write_atomically(path, page.encode())


def answer_page(head: str, answer: Answer, more: Sequence[str] = ()) -> str:
    """One answer: what it says, how sure it is, why, where time and memory go, what it rests on.

    Args:
        head: what was asked, in a line.
        more: what else was asked of it, a line each.
    """
    why = answer["why"]
    parts = [f"<h1>{escape(head)}</h1>"]
    setup = [*setup_lines(why), *filter(None, plan_lines(why))]
    parts += [f'<p class="setup">{escape(line)}</p>' for line in setup]
    parts.append(_verdict(answer))
    tables = [_latencies(answer), _metrics(shown_metrics(_without_latencies(answer)))]
    lines = (line for line in serving_lines(answer) if not line.startswith(_IN_TABLE))
    remarks = [*(lines if tables[0] else shares(why)), *more]
    parts += _section("What to expect", [*tables, _list(remarks) if remarks else ""])
    parts += _section("How latencies are distributed", _distribution(answer["metrics"]))
    parts += _section("Where the time goes", _timeline(why))
    parts += _section("Memory of a device", _memory(why))
    parts += _section("Why, and how sure", [_list(notes(answer)), *_uncertainty(why)])
    remarks = answer["warnings"]
    parts += _section("To know", [_list(remarks, "warning")] if remarks else [])
    parts += _section("What it rests on", [_list(_sources(why))])
    return _page(head, parts)


def comparison_page(
    head: str, candidates: Sequence[Candidate], word: str, after: Sequence[str], today: date
) -> str:
    """Candidates in order: a table, and time a token over throughput of a device.

    Args:
        word: what they are sorted by.
        after: further lines.
    """
    from silicast.report.tasks.comparison import (
        beyond_lines,
        blank_lines,
        points_of,
        price_lines,
        table_rows,
        warnings_of,
    )

    parts = [f"<h1>{escape(head)}</h1>"]
    fitting = [candidate for candidate in candidates if candidate.fits]
    if fitting:
        headings, rows = table_rows(fitting, word)
        starred = next(at for at, heading in enumerate(headings) if heading.endswith("*"))
        best = f"{headings[starred].rstrip(' *')} {rows[0][starred]} ({rows[0][-1]})"
        words = f"first: <b>{escape(rows[0][0])}</b>, {escape(best)}"
        parts.append(f'<p class="verdict">{words}</p>')
        key = "GB and W are of one device; the last column is the 90 % interval of the one with *."
        table = f'<div class="wide">{_table(headings, rows)}</div><p class="setup">{key}</p>'
        lines = [*price_lines(fitting), *blank_lines(fitting), *beyond_lines(fitting), *after]
        parts += _section("Candidates", [table, _list(lines)])
        points = [
            Point(name, _three(rate), _three(time)) for name, rate, time in points_of(fitting)
        ]
        drawn = [scatter(points, "output tokens/s of a device", "ms a token")] if points else []
        parts += _section("Latency against throughput, with 90 % intervals", drawn)
    reasons = [
        f"{candidate.label}: {candidate.reason}" for candidate in candidates if not candidate.fits
    ]
    parts += _section("What does not fit", [_list(reasons)] if reasons else [])
    warnings = warnings_of(fitting, today)
    parts += _section("To know", [_list(warnings, "warning")] if warnings else [])
    return _page(head, parts)


def curve_page(head: str, curve: LoadCurve) -> str:
    """A sweep of loads: a table, and latencies over what is answered."""
    from silicast.report.tasks.load_curve import LOADS, curve_lines, curve_rows

    headings, rows = curve_rows(curve)
    knee = () if curve.knee is None else (curve.answered[curve.knee][0],)
    lines = list(curve_lines(curve))
    parts = [f"<h1>{escape(head)}</h1>"]
    parts += [f'<p class="verdict">{escape(lines[0])}</p>'] if lines else []
    table = f'<div class="wide">{_table(headings, rows)}</div>'
    parts += _section("Loads", [table, _list(lines[1:])])
    counted = any(counts_sequences(answer.metrics) for _, answer in curve.answered)
    for latency, words in (ONE_LATENCY if counted else LATENCIES).items():
        name = f"{latency}_p99_ms"
        points = [
            Point(
                f"{load:g}{' knee' if load in knee else ''}",
                _three(answer.metrics["requests_per_s"]),
                _three(answer.metrics[name]),
            )
            for load, answer in curve.answered
            if name in answer.metrics
        ]
        title = f"{words} p99 over load ({LOADS[curve.what]} beside each point)"
        drawn = scatter(points, "requests/s answered", "ms", joined=True) if points else ""
        parts += _section(title, [drawn])
    remarks = dict.fromkeys(line for _, answer in curve.answered for line in answer.warnings)
    parts += _section("To know", [_list(remarks, "warning")] if remarks else [])
    return _page(head, parts)


def _distribution(metrics: Mapping[str, Any]) -> list[str]:
    """Of a server: a bar for each latency, from what half of the requests take to what 99 % do."""
    drawn = []
    for name, words in (ONE_LATENCY if counts_sequences(metrics) else LATENCIES).items():
        ends = [(each, f"{name}_{each}_ms") for each in ("p50", "p90", "p95", "p99")]
        if any(metric not in metrics for _, metric in ends):
            continue
        pieces, before = [], 0.0
        for statistic, metric in ends:
            ms = float(metrics[metric]["estimate"])
            pieces.append(BarPiece(f"to {statistic}", ms - before, duration(ms * 1e-3)))
            before = ms
        drawn.append(bars([Bar(words, pieces)], "ms", f"distribution of {words}"))
    return drawn


def _page(head: str, parts: Iterable[str]) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(head)}</title><style>{STYLE}</style></head><body>\n<main>\n"
        + "\n".join(filter(None, parts))
        + f"\n</main>\n<footer>Silicast {__version__}. Estimates with 90 % intervals, not "
        "measurements; a bound is what physics allows. Energy is of the devices: hosts, cooling "
        "and idle devices are not in it.</footer></body></html>\n"
    )


def _section(title: str, parts: Sequence[str]) -> list[str]:
    shown = [part for part in parts if part]
    return [f"<h2>{escape(title)}</h2>", *shown] if shown else []


def _verdict(answer: Answer) -> str:
    """The answer in one sentence."""
    metrics = without_tokens(answer["metrics"])
    excess = next((line for line in answer["warnings"] if line.startswith("does not fit")), "")
    if excess:
        return f'<p class="verdict no">{escape(excess)}</p>'
    told = _OF_SEQUENCES if counts_sequences(metrics) else _OF_TOKENS
    chosen = [name for name in (*told, *_OF_EACH) if name in metrics]
    words = []
    for name in chosen[:4]:
        shown = Shown(name, metrics[name])
        named = escape(label(name, metrics))
        words.append(f"<b>{named}</b> {escape(shown.value)} ({escape(shown.interval)})")
    return f'<p class="verdict">{"; ".join(words)}</p>' if words else ""


def _latencies(answer: Answer) -> str:
    """Of a server: a row for each latency; "" of other answers."""
    metrics = answer["metrics"]
    if not any(f"{name}_mean_ms" in metrics for name in LATENCIES):
        return ""
    columns = [word for name in STATISTICS for word in (name, f"90 % of {name}")]
    columns = [word for word in columns if not word.startswith("90") or word.endswith(_SPREAD)]
    return f'<div class="wide">{_table(["", *columns], _latency_rows(metrics))}</div>'


def _latency_rows(metrics: Mapping[str, Any]) -> list[list[str]]:
    return list(LatencyTable(metrics).rows(STATISTICS, _SPREAD))


def _without_latencies(answer: Answer) -> Answer:
    """What a server's table of latencies and its lines leave out: rates, power, energy and cost."""
    metrics = without_tokens(answer["metrics"])
    if not any(f"{name}_mean_ms" in metrics for name in LATENCIES):
        return answer
    shown = (*RATES, "power_w", *_OF_EACH)
    return {**answer, "metrics": {name: metrics[name] for name in shown if name in metrics}}


def _metrics(answer: Answer) -> str:
    rows = []
    for name, quantity in answer["metrics"].items():
        shown = Shown(name, quantity)
        bound = answer["bound"].get(name)
        limit = ""
        if bound:
            limit = Shown(name, bound).value
        drawn = interval(
            quantity["estimate"], quantity["p05"], quantity["p95"], quantity["p95"] * 1.05
        )
        rows.append(
            [
                escape(label(name, answer["metrics"])),
                escape(shown.value),
                escape(shown.interval),
                drawn,
                escape(limit),
            ]
        )
    return _cells(["", "estimate", "90 % interval", "from zero", "bound"], rows)


def _timeline(why: Mapping[str, Any]) -> list[str]:
    """Phases one after the other, and below what each is made of."""
    phases = [part for part in why.get("parts", ()) if part.get("exposed_ms")]
    if not phases:
        return []
    whole = float(why["exposed_ms"])
    factor, unit = (1e-3, "s") if whole >= 1e4 else (1.0, "ms")
    rows, start = [], 0.0
    for part in phases:
        size = float(part["exposed_ms"]) * factor
        rows.append(Bar(_words(part), [_piece(part, factor)], start))
        start += size
    timeline = [bars(rows, unit, "phases one after the other")]
    made = {id(part): _kinds(part) for part in phases}
    order = list(dict.fromkeys(name for kinds in made.values() for name, _ in kinds))
    for part in phases:
        kinds = made[id(part)]
        if len(kinds) > 1 and float(part["share"]) > 0.02:
            name = _words(part)
            pieces = [BarPiece(each, ms * factor, duration(ms * 1e-3)) for each, ms in kinds]
            timeline.append(bars([Bar(name, pieces)], unit, f"what {name} is made of", order))
    return timeline


def _piece(part: Mapping[str, Any], factor: float) -> BarPiece:
    ms = float(part["exposed_ms"])
    return BarPiece(_words(part), ms * factor, duration(ms * 1e-3))


def _words(part: Mapping[str, Any]) -> str:
    return str(part["name"]).replace("_", " ").replace("e2e", UPDATE)


def _kinds(part: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Milliseconds by name of what runs, of all layers together; the largest first."""
    table: dict[str, float] = defaultdict(float)
    for name, ms in _leaves(part):
        table[name.replace("_", " ")] += ms
    ordered = sorted(table.items(), key=lambda item: -item[1])
    remaining = sum(ms for _, ms in ordered[MOST_PARTS:])
    return ordered[:MOST_PARTS] + ([("others", remaining)] if remaining else [])


def _leaves(part: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """What runs, not what it waits for."""
    children = [child for child in part.get("parts", ()) if child.get("kind") != "pipe"]
    if not children:
        yield str(part["name"]), float(part["exposed_ms"])
    for child in children:
        yield from _leaves(child)


def _memory(why: Mapping[str, Any]) -> list[str]:
    memory = why.get("memory_gb")
    if not isinstance(memory, Mapping):
        return []
    pieces = [
        BarPiece(name.replace("_", " "), float(size), f"{rounded(float(size))} GB")
        for name, size in memory.items()
        if name not in {"usable", "excess"} and float(size) > 0.0
    ]
    usable = float(memory["usable"])
    drawn = bars([Bar("held", pieces, mark=usable)], "GB", "memory of a device and what is usable")
    return [drawn, f"<p>The red line is what is usable: {rounded(usable)} GB.</p>"]


def _uncertainty(why: Mapping[str, Any]) -> list[str]:
    """What the interval of the last metric is made of."""
    uncertainty = why.get("uncertainty") or {}
    if not uncertainty:
        return []
    name, result = list(uncertainty.items())[-1]
    factors = sorted(result.get("factors", ()), key=lambda each: -each["share"])[:MOST_FACTORS]
    if not factors:
        return []
    rows = [[escape(words_of(each["name"])), percent(each["share"])] for each in factors]
    return [_cells([f"what the interval of {label(name, uncertainty)} is made of", "share"], rows)]


def _sources(why: Mapping[str, Any]) -> list[str]:
    """Where the numbers of the devices are from, and what was calibrated."""
    setup = why.get("deployment")
    if not isinstance(setup, Mapping):
        return []
    try:
        device = find_device(str(setup["device"]))
    except SilicastError:
        return ["the device's own file"]
    named = dict.fromkeys(device.sources.values())
    return [f"{device.name}: {source}" for source in named][:MOST_SOURCES]


def _list(lines: Iterable[str], kind: str = "") -> str:
    mark = f' class="{kind}"' if kind else ""
    return f"<ul{mark}>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return _cells(list(map(escape, headings)), [[escape(cell) for cell in row] for row in rows])


def _cells(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    head = "".join(f'<th scope="col">{each}</th>' if each else "<td></td>" for each in headings)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _three(belief: Any) -> tuple[float, float, float]:
    return belief.estimate, belief.p05, belief.p95
