"""What inline error correction takes of the bandwidth of GDDR6 boards.

    .venv/bin/python lab/fit_data_rate.py

Experts' products so small that only reading weights takes time (PipeWeave's fused-MoE rows, at
most one token an expert, 300 MB and more): the share of the datasheet bandwidth that a board
with correction on (A40, L20) reaches, over that of one with correction off (RTX 6000 Ada). Layers
that suite ``moe`` scores are left out. Writes ``catalog/physics/data_rate.json``.
"""

from __future__ import annotations

import numpy as np

from lab import fitting
from silicast.validation.scorecard.rows import MeasuredRows, held_out
from silicast.validation.scorecard.suite import data_folder
from silicast.validation.scorecard.suites.moe import DIMS, PIPEWEAVE, pipeweave_rows

LARGE_BYTES = 300e6


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


def main() -> None:
    fitted = {rows.device: rows for rows in held_out(pipeweave_rows(data_folder()), False)}
    shares = {gpu: share_of_datasheet(fitted[gpu]) for gpu in ("A40", "L20", "RTX 6000 Ada")}
    print(shares)
    value = (shares["A40"] + shares["L20"]) / 2 / shares["RTX 6000 Ada"]
    about = fitting.card(
        "lab/fit_data_rate.py",
        [PIPEWEAVE],
        "rows of A40, L20 and RTX 6000 Ada with at most one token an expert, without the "
        "one in five layers (experts, topk, hidden, width) that suite moe scores",
        {gpu: round(share, 4) for gpu, share in shares.items()},
        "units cancel: only the ratio of two boards' shares (upper quartiles) is used; by "
        "medians it would be 0.836, for a third of A40's 27 rows run at half its rate",
    )
    found = fitting.physics(about, {"inline_ecc_share": round(value, 4)})
    fitting.write_physics(fitting.PHYSICS / "data_rate.json", found)


if __name__ == "__main__":
    main()
