"""The front of stored rows, and how probable it is that each row is on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from silicast.core.errors import SilicastError, errors_located
from silicast.core.prediction import Quantity
from silicast.exploration.belonging import UncertainPoint, belonging, sign_of
from silicast.exploration.pareto import dominated
from silicast.runner.results import StoredRows

LEAST = 0.05
"""Rows that belong with less probability are left out."""
MOST = 256
"""Rows whose probability is computed: those on the front, then those nearest to it."""


def front_of(rows: StoredRows, names: str) -> tuple[StoredRows, dict[str, float]]:
    """Rows that may be on the front of some metrics, the most probable first.

    Errors of rows are taken as independent of each other. What does not fit is on no front.

    Args:
        names: metrics, with commas between them; times, costs and counts are to be small, rates
            large.

    Raises:
        SilicastError: a name is no metric, or no row has all of them.
    """
    metrics = [name.strip() for name in names.split(",") if name.strip()]
    having = having_metrics(rows, metrics, "--front")
    values = np.array([[sign_of(name) * row[name] for name in metrics] for row in having])
    near = np.argsort(_layers(values), kind="stable")[:MOST]
    chosen = [having[int(index)] for index in sorted(near)]
    points = [UncertainPoint({name: belief_of(row, name) for name in metrics}) for row in chosen]
    probability = belonging(points, metrics)
    front = {row["key"]: float(p) for row, p in zip(chosen, probability, strict=True) if p >= LEAST}
    ordered = sorted(
        (row for row in chosen if row["key"] in front), key=lambda row: -front[row["key"]]
    )
    return StoredRows(ordered, rows.fields, rows.metrics, rows.others), front


def having_metrics(rows: StoredRows, metrics: Sequence[str], flag: str) -> list[Mapping[str, Any]]:
    """Rows that fit and have some metrics.

    Raises:
        SilicastError: a name is no metric, or no row has all of them; names ``flag``.
    """
    for name in metrics:
        if name not in rows.metrics:
            with errors_located(field=flag):
                rows.column(name)
            raise SilicastError(f"{name} is no metric", field=flag)
    if not rows.rows and rows.others:
        raise SilicastError(
            f"no row is of this version, {rows.others:,} of others",
            field=flag,
            hint="--versions all takes them",
        )
    having = [
        row for row in rows.fitting.rows if all(row.get(name) is not None for name in metrics)
    ]
    if not metrics or not having:
        raise SilicastError(
            f"no row that fits has {', '.join(metrics) or 'them'}",
            field=flag,
            hint="name metrics of rows",
        )
    return having


def _layers(values: Any) -> Any:
    """0 for points on the front, 1 for the others: who is looked at first."""
    return dominated(values).astype(int)


def belief_of(row: Mapping[str, Any], name: str) -> Quantity:
    """What is believed of a metric of a row."""
    return Quantity(row[name], row[f"{name}_p05"], row[f"{name}_p95"])
