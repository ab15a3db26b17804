"""Recurrent mixers: convolutions, chunked scans and steps of three engines, each kernel apart.

Constants are fitted by lab/fit_linear_attention.py on the rows that are not held out.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from lab.scorecard.kernel_suite import KernelScore
from lab.scorecard.rows import Labels, MeasuredRows, Sizes, Words, held_out, one_in
from lab.scorecard.suite import Suite
from lab.scorecard.tables import CAMPAIGN, Ops, Table, median_of_repeats, ops, read_table
from lab.scorecard.training import SMALL, Source
from silicast.core.numerics import F64
from silicast.kernels.implementation import KernelTimes
from silicast.kernels.recurrent.recurrent_mixer import RecurrentKernel, kinds_of, phase_of
from silicast.kernels.recurrent.recurrent_model import style_of
from silicast.workload.graphs.op import Variant
from silicast.workload.libraries.library_file import RecurrentStyle

_DELTA = ("num_k_heads", "num_v_heads", "head_k_dim", "head_v_dim", "d_conv")
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "gdn": _DELTA,
    "kda": _DELTA,
    "mamba2": ("nheads", "head_dim", "d_state", "n_groups", "chunk_size", "d_conv"),
}
"""Family -> dimensions, which are columns of its table, heads first."""
HEADS = {"gdn": 2, "kda": 2, "mamba2": 4}
"""How many of them say what the heads are."""
LONG = 1 << 14
"""Tokens of all sequences from which on a prefill counts as large."""


def _mixer(words: Words, s: Sizes) -> list[Ops]:
    """One in four pairs of a mixer's heads and a batch size is held out, for every length."""
    family, phase = words["table"], words["phase"]
    variant = Variant(
        "bf16",
        library=words["backend"],
        version=words["version"],
        kernel=words["kernel_source"],
        flags=() if phase == "context" else ((phase, True),),
    )
    heads = (s[name] for name in COLUMNS[family][: HEADS[family]])
    return ops(family, variant, s, one_in(4, s["batch_size"], *heads, seed=7))


TABLES = {
    family: Table(family, ("phase",), ("batch_size", "seq_len", *columns), _mixer)
    for family, columns in COLUMNS.items()
}


def mixer_rows(data: Path, family: str) -> list[MeasuredRows]:
    """All rows of one family; a shape that several models share counts once, with the median."""
    rows = read_table(data, TABLES[family], repeats=median_of_repeats)
    words = (*CAMPAIGN, "phase")
    # as one text: the order that bootstrap intervals of the committed results were drawn in
    return sorted(rows, key=lambda part: "|".join(part.words[word] for word in words))


SOURCES = tuple(
    Source(
        name,
        (table.path,),
        "one shape in several, by hash",
        partial(mixer_rows, family=name),
        SMALL,
    )
    for name, table in TABLES.items()
)


def kernel_style(rows: MeasuredRows) -> RecurrentStyle:
    """The style of kernel that the model takes the rows for."""
    variant = rows.batch.variant
    (kind,) = kinds_of(variant)
    architecture = rows.hardware.architecture
    return style_of(rows.batch.family, kind, phase_of(variant), variant, architecture)


def roofline_s(rows: MeasuredRows, _: KernelTimes) -> F64:
    """The larger of two times: useful operations at the peak rate, and what must move at least
    at the datasheet's bandwidth.
    """
    device, model = rows.hardware, rows.model
    assert isinstance(model, RecurrentKernel)
    sizes = {name: values.astype(np.float64) for name, values in rows.batch.dims.items()}
    work = model.work(model.shape(sizes, 2), kernel_style(rows), 2)
    pipe = device.matrix_pipe("bf16")
    roofline_s: F64 = np.maximum(
        work.flops / device.peak_per_s(pipe, "bf16"),
        work.least_bytes / device.dram.bandwidth_bytes_per_s,
    )
    return roofline_s


def _regime(rows: MeasuredRows, _: KernelTimes) -> str | Labels:
    """By phase, and a prefill by its tokens."""
    phase = phase_of(rows.batch.variant)
    if phase != "context":
        return phase
    tokens = rows.batch.dims["batch_size"] * rows.batch.dims["seq_len"]
    return np.where(tokens >= LONG, "context, many tokens", "context")


SUITES = (
    Suite(
        "linear_attention",
        tuple(table.path for table in TABLES.values()),
        KernelScore(
            lambda data, _: {f"{name}_us": held_out(mixer_rows(data, name)) for name in COLUMNS},
            roofline_s,
            {
                "kernel": lambda rows, _: kernel_style(rows).name,
                "campaign": lambda rows, _: f"{rows.words['backend']} {rows.words['version']}",
                "regime": _regime,
            },
        ),
    ),
)
