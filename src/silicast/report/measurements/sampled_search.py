"""The networks that a search of a space came to, as a table and as data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType

from silicast.core.prediction import Z90
from silicast.measurement.calibrating.sampled_search import SampledSearch
from silicast.report.drawing.tables import figure, listing


def search_parts(result: SampledSearch) -> Iterator[RenderableType]:
    """Lines and a table, in order."""
    networks, blend = result.networks, result.blend
    basis = "no sample: ranked by what other devices take"
    if blend is not None:
        width = 100.0 * math.expm1(Z90 * blend.log_sd)
        count = "its networks were measured" if result.known else f"{blend.rows} samples"
        basis = f"{count}, interval ±{width:.0f} %"
    elif result.priced is not None:
        basis = "no sample: by kernels and datasheet, for ranks"
    yield f"{result.space.name} on {result.device}: {basis}"
    yield (
        f"{networks.within:,} of {networks.evaluated:,} networks are within the budget; the most "
        f"{result.objective} first"
    )
    if not len(networks.choices):
        yield "none is: a larger budget, or more evaluations"
        return
    ends = "90 % interval" if result.priced is None else "range, coverage not known"
    columns = {"": "right", "network": "left", "ms": "right", ends: "right"}
    columns[result.objective] = "right"
    rows = []
    for index, name in enumerate(result.names):
        latency = result.latency_ms(index)
        times = ["", ""]
        if latency is not None:
            interval = f"{figure(latency.p05)} – {figure(latency.p95)}"
            times = [figure(latency.estimate), interval]
        value = figure(float(networks.values[index]))
        rows.append([str(index + 1), name.partition(":")[2], *times, value])
    yield listing(columns, rows)


def search_data(result: SampledSearch) -> dict[str, Any]:
    """The same as plain tables."""
    networks, blend = result.networks, result.blend
    rows = []
    for index, name in enumerate(result.names):
        latency = result.latency_ms(index)
        row: dict[str, Any] = {"model": name, result.objective: float(networks.values[index])}
        if latency is not None:
            row["latency_ms"] = {
                "estimate": latency.estimate,
                "p05": latency.p05,
                "p95": latency.p95,
            }
        rows.append(row)
    return {
        "space": result.space.name,
        "device": result.device,
        "samples": 0 if blend is None or result.known else blend.rows,
        "objective": result.objective,
        "evaluated": networks.evaluated,
        "within_budget": networks.within,
        "networks": rows,
        "notes": list(result.notes),
    }
