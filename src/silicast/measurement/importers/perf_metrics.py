"""Metrics as GenAI-Perf and AIPerf name them: a tag, a unit and statistics.

Their ``inter_token_latency`` is (end to end - TTFT) / (output tokens - 1) of each request: our
TPOT. The time between chunks of the stream, our ITL, is ``inter_chunk_latency`` (AIPerf alone).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from typing import Any

from silicast.core.errors import SilicastError
from silicast.measurement.importers.serving_runs import MS_PER, STATISTICS, number
from silicast.measurement.importers.source import Source

LATENCIES = {
    "time_to_first_token": "ttft", "inter_token_latency": "tpot", "inter_chunk_latency": "itl",
    "request_latency": "e2e",
}  # fmt: skip
RATES = {
    "output_token_throughput": "output_tokens_per_s", "request_throughput": "requests_per_s",
}  # fmt: skip


def metrics_of(tags: Mapping[str, Mapping[str, Any]], source: Source) -> dict[str, float]:
    """Tags with their statistics, by names of the answer.

    Raises:
        SilicastError: a latency in an unknown unit.
    """
    found: dict[str, float] = {}
    for tag, ours in LATENCIES.items():
        values = tags.get(tag, {})
        unit = str(values.get("unit") or "ms")
        if values and unit not in MS_PER:
            raise SilicastError(
                f"has the unit {unit!r}, expected a time", file=str(source.path), field=tag
            )
        for statistic, our_statistic in STATISTICS.items():
            value = number(values.get(statistic)) * MS_PER.get(unit, 0.0)
            if value > 0 and math.isfinite(value):
                found[f"{ours}_{our_statistic}_ms"] = value
    for tag, ours in RATES.items():
        if number(tags.get(tag, {}).get("avg")) > 0:
            found[ours] = number(tags[tag]["avg"])
    return found


def mean_of(tags: Mapping[str, Mapping[str, Any]], tag: str) -> float:
    """The mean of a tag, 0 if it has none."""
    return number(tags.get(tag, {}).get("avg"))


def tags_of(result: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The tags among the outer fields of a result."""
    return {
        name: value
        for name, value in result.items()
        if isinstance(value, dict) and ("unit" in value or "avg" in value)
    }


def tags_of_csv(source: Source) -> dict[str, Mapping[str, Any]]:
    """The tags of a CSV file: rows of statistics, then rows of one value.

    Raises:
        SilicastError: no CSV.
    """
    return dict(_csv_rows(source))


def _csv_rows(source: Source) -> Iterator[tuple[str, Mapping[str, Any]]]:
    header: list[str] = []
    try:
        for cells in csv.reader(source.text().splitlines()):
            if cells and cells[0] == "Metric":
                header = cells
            elif not cells or not any(cells):
                header = []
            elif header and len(cells) >= 2:
                tag, unit = _tag(cells[0])
                columns = ["avg" if name == "Value" else name for name in header[1:]]
                values: dict[str, Any] = {
                    name: cell.replace(",", "")
                    for name, cell in zip(columns, cells[1:], strict=False)
                }
                yield tag, {**values, "unit": unit} if unit else values
    except csv.Error as error:
        raise SilicastError(f"is no CSV: {error}", file=str(source.path), field="file") from None


def _tag(shown: str) -> tuple[str, str]:
    """The tag and unit of a row's title.

    >>> _tag("Time To First Token (ms)")
    ('time_to_first_token', 'ms')
    """
    title, _, unit = shown.partition("(")
    return title.strip().casefold().replace(" ", "_"), unit.rstrip(") ").strip()


def first_of(table: Any, *path: str) -> Any:
    """What lies at a path of names in tables, None if nothing does."""
    for name in path:
        table = table.get(name) if isinstance(table, dict) else None
    return table
