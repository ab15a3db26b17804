"""What inline error correction takes of the bandwidth of GDDR6 boards.

    python -m lab.fit_data_rate

Experts' products so small that only reading weights takes time (PipeWeave's fused-MoE rows, at
most one token an expert, 300 MB and more): the share of the datasheet bandwidth that a board
with correction on (A40, L20) reaches, over that of one with correction off (RTX 6000 Ada). Layers
that suite ``moe`` scores are left out. Writes ``catalog/physics/data_rate.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.fitter import Body, Fitter
from lab.scorecard.rows import MeasuredRows, held_out
from lab.scorecard.suites.moe import DIMS, PIPEWEAVE, pipeweave_rows

LARGE_BYTES = 300e6
CORRECTED, PLAIN = ("A40", "L20"), "RTX 6000 Ada"


def share_of_datasheet(rows: MeasuredRows) -> float:
    """Upper quartile of the share of the datasheet bandwidth over rows that only read.

    What correction takes is seen at the ceiling. The ceilings of the three boards are sharp, but a
    third of A40's few rows (the largest weights) run at half of it, which moves a median.
    """
    tokens, experts, topk, hidden, width = (rows.batch.dims[name] for name in DIMS[:5])
    read = np.minimum(experts, tokens * topk) * (width * hidden * 2.0)
    only_read = (tokens * topk <= experts) & (read > LARGE_BYTES)
    bandwidth = rows.hardware.dram.bandwidth_bytes_per_s
    return float(np.quantile(read[only_read] / rows.seconds[only_read] / bandwidth, 0.75))


class DataRate(Fitter[Mapping[str, MeasuredRows]]):
    """Share of the bandwidth that inline error correction leaves."""

    group = "data_rate"
    data = (PIPEWEAVE,)
    split = (
        "rows of A40, L20 and RTX 6000 Ada with at most one token an expert, without the one in "
        "five layers (experts, topk, hidden, width) that suite moe scores"
    )
    notes = (
        "units cancel: only the ratio of two boards' shares (upper quartiles) is used; by medians "
        "it would be 0.836, for a third of A40's 27 rows run at half its rate"
    )

    def rows(self, data: Path) -> Mapping[str, MeasuredRows]:
        return {rows.device: rows for rows in held_out(pipeweave_rows(data), False)}

    def fit(self, rows: Mapping[str, MeasuredRows]) -> Body:
        shares = [share_of_datasheet(rows[gpu]) for gpu in (*CORRECTED, PLAIN)]
        return fitting.body({"inline_ecc_share": sum(shares[:-1]) / 2 / shares[-1]}, {})

    def scores(self, rows: Mapping[str, MeasuredRows], body: Body) -> Mapping[str, Any]:
        scores = {gpu: round(share_of_datasheet(rows[gpu]), 4) for gpu in (*CORRECTED, PLAIN)}
        print(scores)
        return scores


if __name__ == "__main__":
    DataRate().run()
