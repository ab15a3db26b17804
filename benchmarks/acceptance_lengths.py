"""Published acceptance lengths of drafted tokens: one rate for all places against one for each.

    python -m benchmarks.acceptance_lengths

``serving/inferencex_golden_acceptance_length`` has the tokens that a step brings for 1, 2, ...
drafted tokens of a model in a mode. The first and second give the chances that the first and the
second draft are kept; more drafts are predicted with the first rate everywhere ("geometric"), and
with rates that go on falling by the ratio of the second to the first ("by position"). Rows of three
and more drafts are scored. Writes benchmarks/results/acceptance_lengths.json.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lab import fitting
from lab.scorecard.suite import data_folder
from silicast.formats.tables import open_table
from silicast.serving.simulation.speculation import Acceptance

OUT = Path(__file__).parent / "results" / "acceptance_lengths.json"


def main() -> None:
    """Prints and writes the mean error of both."""
    path = data_folder() / "serving" / "inferencex_golden_acceptance_length.parquet"
    lengths: dict[tuple[str, str, str], dict[int, float]] = {}
    for row in open_table(path).records():
        key = str(row["file"]), str(row["model"]), str(row["mode"])
        drafts = int(row["num_spec_tokens"])
        lengths.setdefault(key, {})[drafts] = float(row["acceptance_length"])
    errors: dict[str, list[float]] = {"geometric": [], "by_position": []}
    for by_drafts in lengths.values():
        if not {1, 2} <= set(by_drafts):
            continue
        first = by_drafts[1] - 1.0
        second = (by_drafts[2] - by_drafts[1]) / first
        for drafts, measured in by_drafts.items():
            if drafts < 3:
                continue
            falling = tuple(min(first * (second / first) ** at, 1.0) for at in range(drafts))
            for name, rates in (("geometric", (first,) * drafts), ("by_position", falling)):
                errors[name].append(Acceptance(rates).mean / measured - 1.0)
    table = {
        name: {
            "rows": len(each),
            "mean_ape": round(float(np.mean(np.abs(each))), 4),
            "bias": round(float(np.mean(each)), 4),
        }
        for name, each in errors.items()
    }
    print(table)
    fitting.write(OUT, table)


if __name__ == "__main__":
    main()
