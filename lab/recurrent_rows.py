"""Recurrent layers that DeepBench measured, 2016 to 2019: rows of the table as ops.

Defects of the table: it has no steps; they are those of the benchmark's published list of
problems, where one GRU runs at four lengths in this order. The benchmark leaves out the products of
the inputs (CUDNN_SKIP_INPUT), and calls the library in a loop on the same operands. "Total Time" is
a sum of other columns, and of T4 it is 0: it is not read. P100's "pseudo" 16-bit
sheet (16-bit tensors, fp32 arithmetic) is no format of ours.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from lab.scorecard.rows import MeasuredRows, checksum_one_in
from lab.scorecard.suites.other_vendors import DEEPBENCH, DEEPBENCH_DEVICES
from lab.scorecard.tables import csv_records, ops
from silicast.workload.graphs.op import Variant

KINDS = {"LSTM": "lstm", "GRU": "gru", "Vanilla": "rnn"}
LENGTHS = (1500, 750, 375, 187)
"""Steps of one problem of speech, in the order of the table's rows."""
STEPS: Mapping[tuple[str, int], int] = {
    ("lstm", 256): 150,
    ("lstm", 1536): 50,
    ("gru", 512): 1,
    ("gru", 1024): 1500,
}
"""Kind and units -> steps; of other LSTMs 25, of plain RNNs 50, of other GRUs see LENGTHS."""
PASSES = {
    "forward": ("forward",),
    "backward wrt inputs": ("data",),
    "backward wrt weights": ("weights",),
    "backward": ("data", "weights"),
}
"""Column of the table -> passes that it times."""
FLAGS = {
    "forward": (),
    "data": (("backward_data", True),),
    "weights": (("backward_weights", True),),
}


def recurrent_rows(data: Path) -> list[tuple[tuple[str, ...], list[MeasuredRows]]]:
    """Rows by device, format, kind and column: the column's passes, and the same rows as ops of
    each pass (their times are of all passes together).
    """
    table: dict[tuple[str, str, str, str], list[tuple[int, int, int, float]]] = defaultdict(list)
    repeats: dict[tuple[str, ...], int] = defaultdict(int)
    for row in csv_records(data / DEEPBENCH):
        if not row["op"].startswith("Recurrent Layers") or "suedo" in row["sheet"]:
            continue
        column = row["time_column"].partition("(")[0].strip().removeprefix("Time ").casefold()
        if column not in PASSES or row["time"] in ("", "N/A"):
            continue
        shape = {key.casefold(): value for key, value in json.loads(row["shape_json"]).items()}
        units, batch = int(shape.get("hidden units", shape.get("input", 0))), int(shape["n"])
        kind = KINDS[row["op"].rpartition(" ")[2]]
        problem = (row["device"], row["suite"], row["sheet"], column, kind, str(units), str(batch))
        steps = _steps(kind, units, repeats[problem])
        repeats[problem] += 1
        dtype = "fp16" if "FP16" in row["sheet"] else "fp32"
        key = (DEEPBENCH_DEVICES[row["device"]], dtype, kind, column)
        table[key].append((units, batch, steps, float(row["time"]) * 1e-3))
    return [(PASSES[key[3]], _parts(key, rows)) for key, rows in sorted(table.items())]


def _steps(kind: str, units: int, repeat: int) -> int:
    """Steps of a problem.

    >>> _steps("lstm", 512, 0), _steps("gru", 2816, 1), _steps("rnn", 1760, 0)
    (25, 750, 50)
    """
    if (kind, units) in STEPS:
        return STEPS[kind, units]
    return {"lstm": 25, "rnn": 50}.get(kind, LENGTHS[repeat % len(LENGTHS)])


def _parts(
    key: tuple[str, str, str, str], rows: list[tuple[int, int, int, float]]
) -> list[MeasuredRows]:
    device, dtype, kind, column = key
    units, batch, steps, seconds = (np.array(x) for x in zip(*rows, strict=True))
    dims = {"batch": batch, "steps": steps, "hidden": units, "input": 0}
    held = checksum_one_in(4, "(recurrent, {}, {})", units, batch)
    parts = []
    for pass_name in PASSES[column]:
        variant = Variant(dtype, library="cudnn", cache="warm", flags=FLAGS[pass_name])
        ((ops_of_part, _, _),) = ops(kind, variant, dims, held)
        parts.append(MeasuredRows(ops_of_part, device, seconds.astype(np.float64), held))
    return parts
