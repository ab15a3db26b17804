"""How often drafted tokens are kept, by their place, where a scenario does not say.

    python -m lab.fit_acceptance

``serving/inferencex_golden_acceptance_length``: acceptance lengths of 1 to 8 drafted tokens (coding
requests), by model and by whether it thinks. The chance that the draft at place i is kept, where
all before it were, is first x decay^(i - 1), with one pair of constants a method. Each model's rows
are predicted from the other models'; a rate that is the same at every place (decay = 1) is scored
beside it. Requests are taken to differ as two kinds of text of one model do, with thinking and
without: the table holds no single requests.
Writes ``catalog/physics/acceptance.json``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from lab import fitting
from lab.fitter import Body, Fitter
from lab.scorecard.tables import read_records

TABLE = "serving/inferencex_golden_acceptance_length.parquet"
METHODS = {"mtp": "_mtp", "eagle": "_eagle3"}
"""Method -> what occurs in the names of its files; others draft in another way."""
Series = tuple[str, str, fitting.F]
"""Model, method ("" = another one), acceptance lengths of 1, 2, ... drafted tokens."""


def series(data: Path) -> list[Series]:
    """Every series of the table."""
    table: dict[tuple[str, str, str], dict[int, float]] = {}
    for row in read_records(data / TABLE):
        key = (row["model"], row["file"], row["mode"])
        table.setdefault(key, {})[int(row["num_spec_tokens"])] = float(row["acceptance_length"])
    return [
        (model, _method(file), np.array([lengths[k] for k in sorted(lengths)]))
        for (model, file, _), lengths in sorted(table.items())
    ]


def _method(file: str) -> str:
    return next((method for method, part in METHODS.items() if part in file), "")


def between_kinds(data: Path) -> float:
    """Root mean square of the log of one kind of text's lengths over the other's."""
    table: dict[tuple[str, int], dict[str, float]] = {}
    for row in read_records(data / TABLE):
        key = (row["file"], int(row["num_spec_tokens"]))
        table.setdefault(key, {})[row["mode"]] = float(row["acceptance_length"])
    pairs = [np.log(list(kinds.values())) for kinds in table.values() if len(kinds) == 2]
    return float(np.sqrt(np.mean([(one - other) ** 2 for one, other in pairs])))


def lengths(first: float, decay: float, most: int) -> fitting.F:
    """Acceptance lengths of 1, 2, ... drafted tokens."""
    rates = first * decay ** np.arange(most)
    lengths: fitting.F = 1.0 + np.cumsum(np.cumprod(rates))
    return lengths


def errors(chosen: Sequence[Series], first: float, decay: float) -> fitting.F:
    """Log of predicted over measured acceptance lengths."""
    residuals = [np.log(lengths(first, decay, len(rates)) / rates) for _, _, rates in chosen]
    return np.concatenate(residuals)


def fit(chosen: Sequence[Series], *, decays: bool = True) -> tuple[float, float]:
    """First rate and decay of least squares in log acceptance length."""
    low, high = [0.01, 0.3 if decays else 1.0 - 1e-9], [1.0, 1.0]
    start = [0.8, 0.95 if decays else 1.0 - 5e-10]
    result = least_squares(lambda x: errors(chosen, x[0], x[1]), start, bounds=(low, high))
    return float(result.x[0]), float(result.x[1])


def held_out(chosen: Sequence[Series], *, decays: bool) -> fitting.F:
    """Errors of each model's rows, predicted from the other models'."""
    residuals = []
    for model in sorted({model for model, _, _ in chosen}):
        others = [run for run in chosen if run[0] != model]
        held = [run for run in chosen if run[0] == model]
        residuals.append(errors(held, *fit(others, decays=decays)))
    return np.concatenate(residuals)


def from_first(chosen: Sequence[Series], decay: float) -> fitting.F:
    """Errors at two and more drafted tokens where each series' own first rate is known."""
    residuals = [
        np.log(lengths(float(rates[0]) - 1.0, decay, len(rates)) / rates)[1:]
        for _, _, rates in chosen
    ]
    return np.concatenate(residuals)


def percent(logs: fitting.F) -> dict[str, float]:
    """Rows, mean absolute error and bias."""
    away = np.expm1(logs) * 100.0
    error, bias = float(np.abs(away).mean()), float(away.mean())
    return {"rows": len(logs), "mape": round(error, 1), "bias": round(bias, 1)}


class AcceptanceLengths(Fitter[tuple[list[Series], float]]):
    """Chances that drafted tokens are kept."""

    group = "acceptance"
    data = (TABLE,)
    split = "all rows of a method; each model held out in turn for the scores"
    notes = (
        "one benchmark of coding requests; acceptance depends on the text and on how the drafter "
        "was trained: deepseek-v4-pro's gains nothing beyond three tokens, others' do up to eight; "
        "request_log_sd: of kinds of text, requests of one kind are not measured"
    )

    def rows(self, data: Path) -> tuple[list[Series], float]:
        return series(data), between_kinds(data)

    def fit(self, rows: tuple[list[Series], float]) -> Body:
        constants: fitting.Constants = {"request_log_sd": rows[1]}
        for method in METHODS:
            chosen = _of(rows[0], method)
            first, decay = fit(chosen)
            logs = held_out(chosen, decays=True)
            constants |= {
                f"{method}_first": first,
                f"{method}_decay": decay,
                f"{method}_log_sd": float(np.sqrt(np.mean(logs**2))),
            }
        return fitting.body(fitting.rounded(constants), {})

    def scores(self, rows: tuple[list[Series], float], body: Body) -> Mapping[str, Any]:
        scores: dict[str, dict[str, float]] = {}
        every, _ = rows
        for method in METHODS:
            chosen, decay = _of(every, method), body["default"][f"{method}_decay"]
            scores[f"{method}, model held out"] = percent(held_out(chosen, decays=True))
            scores[f"{method}, model held out, one rate"] = percent(held_out(chosen, decays=False))
            others = [run for run in every if run[1] != method]
            residuals = from_first(others, decay)
            scores[f"other methods, own first rate and decay of {method}"] = percent(residuals)
        scores["all, own first rate at every place"] = percent(from_first(every, 1.0))
        return scores


def _of(rows: Sequence[Series], method: str) -> list[Series]:
    return [run for run in rows if run[1] == method]


if __name__ == "__main__":
    AcceptanceLengths().run()
