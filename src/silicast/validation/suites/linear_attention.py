"""Kernels of recurrent mixers: convolutions, chunked scans and steps of three engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.kernels.implementation import implementation_for
from silicast.kernels.recurrent_mixer import RecurrentMixer, phase_of
from silicast.validation.suite import Labels, Scored, Suite, register_suite, timed
from silicast.validation.suites._linear_attention_rows import COLUMNS, Rows, read_rows, sample

LONG = 1 << 14
"""Tokens of all sequences from which on a prefill counts as large."""


@register_suite
@final
class LinearAttention(Suite):
    """Every kernel of a mixer on its own, as its campaign timed it."""

    name: ClassVar[str] = "linear_attention"
    title: ClassVar[str] = "Linear attention and state spaces"
    split: ClassVar[str] = (
        "one in four pairs of a mixer's heads and a batch size is never fitted, on any device, in "
        "any campaign or length; only those are scored. A shape that several models share counts "
        "once, with the median of its times."
    )
    source: ClassVar[tuple[str, ...]] = tuple(f"aiconfigurator/{name}.parquet" for name in COLUMNS)

    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "gdn_us": {"mean_ape": 9.0, "bias_pct": 4.0},
        "kda_us": {"mean_ape": 13.0, "bias_pct": 6.0},
        "mamba2_us": {"mean_ape": 9.0, "bias_pct": 4.0},
    }

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """One row a measured kernel, device and campaign."""
        return [
            _scored(family, read_rows(data, family, held_out=True), limit) for family in COLUMNS
        ]


def roofline_s(rows: Rows, model: RecurrentMixer) -> F64:
    """The larger of two times: useful operations at the peak rate, and what must move at least
    at the datasheet's bandwidth.
    """
    device = find_device(rows.device)
    sizes = {name: values.astype(np.float64) for name, values in rows.dims.items()}
    work = model.work(model.shape(sizes, 2), rows.style, 2)
    pipe = device.matrix_pipe("bf16")
    found: F64 = np.maximum(
        work.flops / device.peak_per_s(pipe, "bf16"),
        work.least_bytes / device.dram.bandwidth_bytes_per_s,
    )
    return found


def _regimes(rows: Rows) -> Labels:
    """By phase, and a prefill by its tokens."""
    phase = phase_of(rows.variant)
    if phase != "context":
        return np.full(len(rows), phase)
    tokens = rows.dims["batch_size"] * rows.dims["seq_len"]
    return np.where(tokens >= LONG, "context, many tokens", "context")


def _scored(family: str, parts: Sequence[Rows], limit: int | None) -> Scored:
    if limit is not None:
        parts = [sample(part, max(3, limit // len(parts))) for part in parts]
    model = implementation_for(family, "simt")
    assert isinstance(model, RecurrentMixer)
    times = [timed(model, part.batch, find_device(part.device)) for part in parts]

    def label(names: Sequence[str]) -> Labels:
        return np.repeat(np.array(names), [len(part) for part in parts])

    return Scored(
        metric=f"{family}_us",
        measured=1e6 * np.concatenate([part.seconds for part in parts]),
        estimate=1e6 * np.concatenate([found.estimate_s for found in times]),
        p05=1e6 * np.concatenate([found.p05_s for found in times]),
        p95=1e6 * np.concatenate([found.p95_s for found in times]),
        roofline=1e6 * np.concatenate([roofline_s(part, model) for part in parts]),
        noise=np.concatenate([part.noise for part in parts]),
        groups={
            "device": label([part.device for part in parts]),
            "kernel": label([part.style.name for part in parts]),
            "campaign": label([f"{p.variant.library} {p.variant.version}" for p in parts]),
            "regime": np.concatenate([_regimes(part) for part in parts]),
        },
    )
