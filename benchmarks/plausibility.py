"""Thirty published figures that nothing was fitted on, ours beside them: a page for people.

    python -m benchmarks.plausibility [--recalled]

Writes ``docs/accuracy/plausibility.md`` and ``benchmarks/results/plausibility.json``. Rows are
evenly spaced ones of each table as its suite sorts it: nobody chose them by how well they come out.
Further ones (``recalled_figures.toml``) are recalled from publications; with ``--recalled`` only
those are predicted anew.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from lab.scorecard.model_suite import Believed, Case, answered
from lab.scorecard.rows import subsample
from lab.scorecard.suite import data_folder
from lab.scorecard.suites import mlenergy, mlperf, serving_throughput, splitwise, training
from silicast import predict
from silicast.core.errors import SilicastError
from silicast.core.files import write_atomically
from silicast.report.answers import title
from silicast.report.drawing.numbers import Shown, percent, rounded

RECALLED: Final = Path(__file__).parent / "recalled_figures.toml"
ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "accuracy" / "plausibility.md"
RESULT = ROOT / "benchmarks" / "results" / "plausibility.json"


@dataclass(frozen=True)
class Published:
    """A table of published figures.

    Attributes:
        name, date: of the publication.
        cases: its rows; answer: ours to one of them.
        metrics: that are shown, the next one for each row.
        rows: how many.
    """

    name: str
    date: str
    cases: Callable[[Path], list[Case]]
    answer: Callable[[Case], Mapping[str, Believed]]
    metrics: tuple[str, ...]
    rows: int


TABLES: Final = (
    Published(
        "MLPerf Inference 4.1, closed, offline (a replica)", "2024-08", mlperf.cases,
        mlperf.SCORE.answer, (mlperf.METRIC,), 5,
    ),
    Published(
        "NVIDIA TensorRT-LLM 1.0, performance overview", "2025", serving_throughput.cases,
        serving_throughput.SCORE.answer, (serving_throughput.METRIC,), 7,
    ),
    Published(
        "Splitwise (Patel et al., ISCA 2024), perf_model.csv", "2023-11", splitwise.cases,
        splitwise.answer, ("prompt_ms", "token_ms", "power_w"), 6,
    ),
    Published(
        "ML.ENERGY leaderboard 2, models of the test split", "2024", mlenergy.cases, answered,
        ("tpot_mean_ms", "energy_per_output_token_j"), 6,
    ),
    Published(
        "published training runs (data/training, newest of each source)", "2021 to 2025",
        training.cases, answered, ("step_time_s",), 6,
    ),
)  # fmt: skip
NAMES: Final = {"prompt_ms": "prompt", "token_ms": "token", "output_tokens_per_s": "output tokens"}


def figures(data: Path) -> list[dict[str, Any]]:
    """Published and predicted, row by row."""
    figures = []
    for table in TABLES:
        every = table.cases(data)
        positions = subsample(len(every), table.rows)
        for number, position in enumerate(positions):
            case = every[position]
            metrics = [name for name in table.metrics if case.measured.get(name, 0.0) > 0.0]
            metric = metrics[number % len(metrics)] if metrics else next(iter(case.measured))
            ours = table.answer(case).get(metric)
            estimate, p05, p95 = ours[:3] if ours else (None, None, None)
            figures.append(
                {
                    "source": table.name, "date": table.date, "case": title(case.scenario),
                    "metric": metric, "published": case.measured[metric], "estimate": estimate,
                    "p05": p05, "p95": p95,
                }
            )  # fmt: skip
    return figures


def recalled() -> list[dict[str, Any]]:
    """Figures that are recalled from publications, and ours."""
    rows = []
    for each in tomllib.loads(RECALLED.read_text())["figure"]:
        case = f"{each['stated']}; assumed: {each['assumed']}"
        belief: dict[str, float | None]
        try:
            answer = predict(each["scenario"])
        except SilicastError as error:
            case, belief = f"{case} ({error})", dict.fromkeys(("estimate", "p05", "p95"))
        else:
            ours = answer[each["metric"]]
            belief = {"estimate": ours.estimate, "p05": ours.p05, "p95": ours.p95}
        named = {name: each[name] for name in ("source", "date", "metric", "published")}
        rows.append({**named, "case": case, "recalled": True, **belief})
    return rows


def page(rows: list[dict[str, Any]]) -> str:
    """The page."""
    text = [row for row in rows if not row.get("recalled")]
    again = [row for row in rows if row.get("recalled")]
    return _page_of(text) + (_recalled_page(again) if again else "")


def _recalled_page(rows: list[dict[str, Any]]) -> str:
    inside = sum(row["p05"] <= row["published"] <= row["p95"] for row in rows if row["estimate"])
    words = (
        f"{len(rows)} more figures (`benchmarks/recalled_figures.toml`) are recalled from "
        "publications, not read from a copy; what they leave open is assumed. "
        f"{inside} of {len(rows)} lie in the interval; rates of a node are stated as the time of "
        "the step that gives them."
    )
    table = _page_of(rows).split("\n", 3)[3].replace("\n## ", "\n### ")
    return f"\n## Recalled from publications\n\n{words}\n{table}"


def _page_of(rows: list[dict[str, Any]]) -> str:
    answered_rows = [row for row in rows if row["estimate"] is not None]
    off = [abs(row["estimate"] / row["published"] - 1.0) for row in answered_rows]
    inside = sum(row["p05"] <= row["published"] <= row["p95"] for row in answered_rows)
    lines = [
        "# Published figures, and ours",
        "",
        _summary(len(rows), inside, sorted(off)[len(off) // 2]),
    ]
    source = ""
    for row in rows:
        if row["source"] != source:
            source = row["source"]
            lines += [
                "", f"## {source}, {row['date']}", "",
                "| case | figure | published | ours | 90 % interval | ours / published | inside |",
                "|---|---|---:|---:|---:|---:|---|",
            ]  # fmt: skip
        lines.append(_line(row))
    return "\n".join(lines) + "\n"


def _summary(rows: int, inside: int, median: float) -> str:
    return (
        f"{rows} figures that others published and nothing here was fitted on, from evenly spaced "
        "rows of the tables that the [suites](../accuracy-at-a-glance.md) score in full (`python "
        f"-m benchmarks.plausibility`). {inside} of {rows} lie in the 90 % interval; the median is "
        f"{percent(median)} off. What a source does not state (lengths, versions) is assumed as "
        "the page of its suite says. MLPerf is a trademark of MLCommons; figures derived from it "
        "are not verified by it."
    )


def _line(row: Mapping[str, Any]) -> str:
    name = row["metric"]
    published = Shown(name, dict.fromkeys(("estimate", "p05", "p95"), row["published"]))
    heading = NAMES.get(name, published.label)
    if row["estimate"] is None:
        return f"| {row['case']} | {heading} | {published.value} | not answered | | | |"
    ours = Shown(name, row)
    ratio = rounded(row["estimate"] / row["published"])
    inside = "yes" if row["p05"] <= row["published"] <= row["p95"] else "no"
    cells = (row["case"], heading, published.value, ours.value, ours.interval, ratio, inside)
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Writes both files."""
    former = msgspec.json.decode(RESULT.read_bytes()) if "--recalled" in sys.argv else []
    rows = [row for row in former if not row.get("recalled")] or figures(data_folder())
    rows += recalled()
    write_atomically(RESULT, msgspec.json.format(msgspec.json.encode(rows), indent=2) + b"\n")
    write_atomically(PAGE, page(rows).encode())


if __name__ == "__main__":
    main()
