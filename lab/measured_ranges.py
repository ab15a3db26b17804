"""Ranges of measured sizes: outside them a prediction is an extrapolation.

    python -m lab.measured_ranges

Writes ``catalog/physics/ranges.json``: smallest and largest value of each dimension per family over
the open tables, and the boards that were measured, with the rows of each family and format. How
much an interval widens per factor of two beyond the sizes is judged, not fitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.fitter import Body, Fitter
from lab.scorecard.suite import data_folder
from lab.scorecard.suites.conv2d import conv_rows
from lab.scorecard.suites.mfma import aiter_expert_groups, aiter_groups
from lab.scorecard.suites.other_vendors import all_groups
from lab.scorecard.suites.streaming import NEUSIGHT
from lab.scorecard.tables import AIC, read_columns
from lab.scorecard.training import ONE_METRIC, by_metric_and_device

LOG_SD_PER_OCTAVE = 0.1
LATENT = ("context_mla", "generation_mla", "mla_context_module", "mla_generation_module")
EXPERTS = ("num_tokens", "num_experts", "topk", "hidden_size", "inter_size")
MIXERS = ("gdn", "kda", "mamba2")


def columns(table: str, *names: str) -> dict[str, np.ndarray]:
    return read_columns(data_folder() / table, names)


def of_op(op: str) -> tuple[np.ndarray, np.ndarray]:
    table = columns(NEUSIGHT, "op", "B", "H")
    rows = (table["op"] == op) & np.isfinite(table["B"]) & np.isfinite(table["H"])
    return table["B"][rows], table["H"][rows]


def sizes() -> dict[str, dict[str, Any]]:
    gemm = columns(AIC + "gemm.parquet", "m", "n", "k")
    shapes = ("batch_size", "isl", "step", "num_heads", "head_dim")
    prefill = columns(AIC + "context_attention.parquet", *shapes)
    decode = columns(AIC + "generation_attention.parquet", *shapes)
    latent = {
        table: columns(AIC + f"{table}.parquet", "batch_size", "isl", "step", "num_heads")
        for table in LATENT
    }
    context, generation = latent["context_mla"], latent["generation_mla"]
    blocks = [latent["mla_context_module"], latent["mla_generation_module"]]
    quantize = columns(AIC + "computescale.parquet", "m", "k")
    norm_rows, norm_cols = of_op("ln")
    soft_rows, soft_cols = of_op("softmax")
    sample = columns("pipeweave/kernel_elementwise_sample.parquet", "op", "seq", "dim")
    shape = ("batch_size", "seq_len")
    return {
        **{name: columns(AIC + f"{name}.parquet", *shape) for name in MIXERS},
        "gemm": gemm,
        "attention_prefill": {
            "batch": prefill["batch_size"],
            "q_len": prefill["isl"],
            "kv_len": prefill["isl"] + prefill["step"],
            "num_heads": prefill["num_heads"],
            "head_dim": prefill["head_dim"],
        },
        "attention_decode": {
            "batch": decode["batch_size"],
            "kv_len": decode["step"],
            "num_heads": decode["num_heads"],
            "head_dim": decode["head_dim"],
        },
        "mla_prefill": {
            "batch": context["batch_size"],
            "q_len": context["isl"],
            "kv_len": context["isl"] + context["step"],
            "num_heads": context["num_heads"],
        },
        "mla_decode": {
            "batch": generation["batch_size"],
            "kv_len": generation["isl"] - 1 + generation["step"],
            "num_heads": generation["num_heads"],
        },
        "mla_module": {
            "batch": np.concatenate([b["batch_size"] for b in blocks]),
            "q_len": np.concatenate([b["isl"] for b in blocks]),
            "kv_len": np.concatenate([b["isl"] - 1 + b["step"] for b in blocks]),
            "num_heads": np.concatenate([b["num_heads"] for b in blocks]),
        },
        "quantize": {"tokens": quantize["m"], "hidden": quantize["k"]},
        "layernorm": {"tokens": norm_rows, "hidden": norm_cols},
        "softmax": {"rows": soft_rows, "cols": soft_cols},
        "rmsnorm": {"tokens": sample["seq"], "hidden": sample["dim"]},
        "conv2d": convolutions(),
        "moe": experts(),
    }


def experts() -> dict[str, np.ndarray]:
    """Whole layers and the first product alone."""
    layers = columns(AIC + "moe.parquet", *EXPERTS)
    first = columns("pipeweave/kernel_moe_w13.parquet", "M", "E", "topk", "H", "N")
    names = ("tokens", "experts", "topk", "hidden", "intermediate")
    pairs = zip(names, layers.values(), first.values(), strict=True)
    return {name: np.concatenate([a, b]) for name, a, b in pairs}


def convolutions() -> dict[str, np.ndarray]:
    """No layer with groups was measured."""
    rows = [rows.batch.dims for rows in conv_rows(data_folder())]
    table = {
        name: np.concatenate([dims[name] for dims in rows])
        for name in ("batch", "in_channels", "out_channels", "height", "width")
    }
    for name in ("kernel", "stride"):
        table[name] = np.concatenate([dims[f"{name}_{side}"] for dims in rows for side in "hw"])
    return {**table, "groups": np.ones(1, dtype=np.int64)}


def boards() -> fitting.Tables:
    """Board -> family (and format, where formats are reported apart) -> rows that may be fitted."""
    tables: fitting.Tables = {}
    data = data_folder()
    rows = [part for parts in by_metric_and_device(data).values() for part in parts]
    for part in (*rows, *all_groups(data), *aiter_groups(data), *aiter_expert_groups(data)):
        count = int((~part.held_out).sum())
        if count:
            family, dtype = part.batch.family, part.batch.variant.dtype
            name = family if family in ONE_METRIC else f"{family}.{dtype}"
            counts = tables.setdefault(part.hardware.name, {})
            counts[name] = counts.get(name, 0.0) + count
    return {name: dict(sorted(tables[name].items())) for name in sorted(tables)}


class Ranges(Fitter[dict[str, dict[str, Any]]]):
    """Extents of all open rows, and the boards that were measured."""

    group = "ranges"
    data = (
        "aiconfigurator: gemm, context_attention, generation_attention, computescale",
        f"aiconfigurator: {', '.join(MIXERS)}",
        NEUSIGHT,
        "pipeweave/kernel_elementwise_sample.parquet",
        "kernels/deepbench.csv.gz",
        "aiconfigurator/moe.parquet, pipeweave/kernel_moe_w13.parquet",
    )
    split = "extents of all open rows; nothing is fitted"
    notes = "log_sd_per_octave is judged: an error of 10 % for each factor of two outside"

    def rows(self, data: Path) -> dict[str, dict[str, Any]]:
        return sizes()

    def fit(self, rows: dict[str, dict[str, Any]]) -> Body:
        default = {"log_sd_per_octave": LOG_SD_PER_OCTAVE}
        for family, dims in rows.items():
            for name, values in dims.items():
                default[f"{family}.{name}.low"] = float(np.min(values))
                default[f"{family}.{name}.high"] = float(np.max(values))
        # unrounded: sizes and numbers of rows
        return {"default": default, "architectures": boards(), "fallback": {}}

    def scores(self, rows: dict[str, dict[str, Any]], body: Body) -> Mapping[str, Any]:
        """Nothing is predicted."""
        return {}


if __name__ == "__main__":
    Ranges().run()
