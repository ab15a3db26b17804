"""Fits which tile a tuned table of Triton's fused experts holds; see kernels/tuned_tiles.py.

    OPENBLAS_NUM_THREADS=1 python -m lab.fit_tuned_tiles

A softmax for each side of the tile over the tables of vLLM and SGLang for NVIDIA devices. One file
in five, by the hash of its name, is never fitted; scores are on those. Deterministic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from lab.fitter import Body, Fitter
from lab.fitting import Constants, F
from lab.scorecard.tables import csv_records
from silicast.kernels.experts.tuned_tiles import PHYSICS, terms_of, weight_name
from silicast.kernels.products.candidates import tuned_sides

TABLE = "kernels/fused_moe_tuned_configs.csv.gz"
COLUMNS = {"m": "BLOCK_SIZE_M", "n": "BLOCK_SIZE_N", "k": "BLOCK_SIZE_K"}
PULL = 0.05
"""Of each weight toward zero."""


@dataclass(frozen=True)
class Choices:
    """Entries of tuned tables: arrays of shape (rows,), the terms of shape (terms, rows)."""

    terms: F
    tile: dict[str, NDArray[np.int64]]
    tokens: F
    experts: F
    unseen: NDArray[np.bool_]
    files: int


def format_of(row: dict[str, str]) -> str:
    name = row["dtype"]
    if name.startswith(("fp8", "float8")):
        return "fp8_block" if row["block_shape"] else "fp8"
    return {"int8_w8a16": "int8_wo", "int8_w8a8": "int8"}.get(name, "bf16")


def choices(data: Path) -> Choices:
    """Entries for NVIDIA devices; tables of the second product alone are left out."""
    rows = [
        row
        for row in csv_records(data / TABLE)
        if row["BLOCK_SIZE_M"]
        and row["device"].startswith("NVIDIA")
        and not row["device"].endswith("_down")
        and not row["dtype"].endswith("_down")
    ]
    rows.sort(key=format_of)
    tokens, experts, width = (
        np.array([float(row[name]) for row in rows]) for name in ("M_tokens", "E", "N")
    )
    formats = np.array([format_of(row) for row in rows])
    parts = [
        terms_of(tokens[here], experts[here], width[here], name)
        for name in np.unique(formats).tolist()
        for here in [formats == name]
    ]
    return Choices(
        np.concatenate(parts, axis=1),
        {s: np.array([int(float(r[column])) for r in rows]) for s, column in COLUMNS.items()},
        tokens,
        experts,
        np.array([crc32(row["file"].encode()) % 5 == 0 for row in rows]),
        len({row["file"] for row in rows}),
    )


def fit_side(terms: F, chosen: NDArray[np.int64], sizes: tuple[int, ...]) -> F:
    """Weights of one side, shape (terms, sizes); sizes that are none of these are not fitted."""
    has_side = np.isin(chosen, sizes)
    x, hot = (
        terms[:, has_side],
        (chosen[has_side] == np.array(sizes).reshape(-1, 1)).astype(np.float64),
    )
    count = x.shape[1]

    def loss(flat: F) -> tuple[float, F]:
        weights = flat.reshape(len(terms), len(sizes))
        p = probabilities(weights, x)
        value = -float(np.log(np.maximum((p * hot).sum(axis=0), 1e-12)).sum())
        slope = x @ (p - hot).T + PULL * weights
        return (value + 0.5 * PULL * float((flat**2).sum())) / count, slope.ravel() / count

    start = np.zeros(len(terms) * len(sizes))
    result = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 400})
    return np.round(np.asarray(result.x).reshape(len(terms), len(sizes)), 4)


def probabilities(weights: F, terms: F) -> F:
    logits = weights.T @ terms
    raised = np.exp(logits - logits.max(axis=0))
    probabilities: F = raised / raised.sum(axis=0)
    return probabilities


def score(weights: F, data: Choices, side: str) -> dict[str, float]:
    """Accuracy on files that were not fitted: ours, the commonest size's, the default rule's."""
    sizes, chosen, unseen = tuned_sides()[side], data.tile[side], data.unseen
    p = probabilities(weights, data.terms[:, unseen])
    truth = chosen[unseen]
    common = max(sizes, key=lambda size: int((chosen[~unseen] == size).sum()))
    table = {
        "rows": float(unseen.sum()),
        "accuracy": float((np.array(sizes)[p.argmax(axis=0)] == truth).mean()),
        "commonest": float((truth == common).mean()),
        "probability_of_truth": float(
            (p * (truth == np.array(sizes).reshape(-1, 1))).sum(0).mean()
        ),
    }
    if side == "m":  # the rule that both engines fall back to in 16 bits
        rule = np.where(data.tokens <= data.experts, 16, 64)[unseen]
        table["default_rule"] = float((rule == truth).mean())
    return {name: round(value, 3) for name, value in table.items()}


class TunedTiles(Fitter[Choices]):
    """Which tile a tuned table holds."""

    group = PHYSICS
    split = "one file in five, by hash of its name, is never fitted; scores are on those"
    notes = "no latency is behind these entries: what a tuner chose, not what it gained"

    def rows(self, data: Path) -> Choices:
        rows = choices(data)
        self.data = (f"{TABLE} (vLLM 0.33.0, SGLang 0.5.23; {rows.files} files, NVIDIA devices)",)
        return rows

    def fit(self, rows: Choices) -> Body:
        default: Constants = {}
        fitted = ~rows.unseen
        for side, sizes in tuned_sides().items():
            weights = fit_side(rows.terms[:, fitted], rows.tile[side][fitted], sizes)
            for term, row in enumerate(weights.tolist()):
                for size, value in zip(sizes, row, strict=True):
                    default[weight_name(side, size, term)] = value
        return {"default": default, "architectures": {}, "fallback": {}}

    def scores(self, rows: Choices, body: Body) -> Mapping[str, Any]:
        scores = {}
        for side, sizes in tuned_sides().items():
            weights = np.array(
                [
                    [body["default"][weight_name(side, size, term)] for size in sizes]
                    for term in range(len(rows.terms))
                ]
            )
            scores[f"block_{side}"] = score(weights, rows, side)
            print(side, scores[f"block_{side}"])
        return scores


if __name__ == "__main__":
    TunedTiles().run()
