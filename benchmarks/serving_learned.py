"""Gradient boosting on the raw columns of served runs, on the split of suite ``serving``.

    pip install -e .[boost] && python benchmarks/serving_learned.py [out.json]

Learns TTFT and TPOT of every pair of model and device from all other pairs' rows (``other pairs``,
five folds of whole pairs), and from the suite's train pairs alone (``train pairs``). The second is
what was open to our own constants. Both are scored on the suite's held-out rows.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lab.scorecard.model_suite import Case
from lab.scorecard.suite import data_folder
from lab.scorecard.suites.serving import METRICS, cases, with_rate
from silicast.core.numerics import F64

OUT = Path(__file__).parent / "results" / "serving_learned.json"
FOLDS = 5
_WORDS = 3
"""Leading columns that are words."""


def raw(case: Case) -> list[Any]:
    """Columns of a row: words, then numbers."""
    scenario, work = case.scenario, case.scenario["workload"]
    return [
        case.labels["device"], case.labels["engine"], case.labels["model"],
        work["input_len"], work["output_len"], work["arrival"]["concurrency"],
        *(scenario["parallel"][name] for name in ("tp", "pp", "ep", "attention_dp")),
    ]  # fmt: skip


def learned(rows: Sequence[Case], metric: str, train: F64, test: F64) -> F64:
    """Predictions of a metric; the logarithm is learned."""
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OrdinalEncoder

    columns = np.array([raw(case) for case in rows], dtype=object)
    truth = np.log([case.measured[metric] for case in rows])
    words = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    model = make_pipeline(
        make_column_transformer((words, list(range(_WORDS))), remainder="passthrough"),
        HistGradientBoostingRegressor(loss="absolute_error", max_iter=300, random_state=0),
    )
    model.fit(columns[train], truth[train])
    return np.asarray(np.exp(model.predict(columns[test])), dtype=np.float64)


def main(out: Path) -> None:
    """Print and write medians of absolute errors in percent."""
    from sklearn.model_selection import GroupKFold

    rows = cases(data_folder())
    pairs = np.array(
        [f"{case.labels['model'].split()[0]} {case.labels['device']}" for case in rows]
    )
    held_out = np.array([case.labels["pair"] == "held out" for case in rows])
    everything = np.arange(len(rows))
    folds = list(GroupKFold(FOLDS).split(everything, groups=pairs))
    splits = {"other pairs": folds, "train pairs": [(everything[~held_out], everything[held_out])]}
    table: dict[str, Any] = {"rows": int(held_out.sum()), "median_ape": {}}
    for name, parts in splits.items():
        guess = {metric: np.full(len(rows), np.nan) for metric in METRICS[:2]}
        for train, test in parts:
            for metric, values in guess.items():
                values[test] = learned(rows, metric, train, test)
        off: dict[str, list[float]] = {metric: [] for metric in METRICS}
        for i in everything[held_out]:
            answer = {metric: (float(values[i]),) * 4 for metric, values in guess.items()}
            for metric, value in with_rate(rows[i], answer).items():
                off[metric].append(abs(value[0] / rows[i].measured[metric] - 1.0) * 100.0)
        table["median_ape"][name] = {m: round(float(np.median(v)), 2) for m, v in off.items()}
    text = json.dumps(table, indent=1, sort_keys=True) + "\n"
    out.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else OUT)
