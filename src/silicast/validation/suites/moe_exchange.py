"""Dispatch and combine inside a node: DeepEP of three engines, TensorRT-LLM over NVLink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.kernels.implementation import implementation_for
from silicast.kernels.moe_exchange import fabric_of, payload_bytes, remote_of
from silicast.validation.suite import Scored, Suite, register_suite, subsample, timed
from silicast.validation.suites._moe_exchange_rows import Rows, load_rows


@register_suite
@final
class ExpertExchange(Suite):
    """Layers that no constant was fitted on; one metric a direction."""

    name: ClassVar[str] = "moe_exchange"
    title: ClassVar[str] = "Dispatch and combine of expert parallelism"
    split: ClassVar[str] = (
        "one in four layers (hidden, topk, experts) is never fitted nor learned; between nodes "
        "and over NVLink alone, of which there are few layers, one in two pairs of tokens and "
        "nodes; only those are scored. DeepEP v2 is left out."
    )
    source: ClassVar[tuple[str, ...]] = (
        "aiconfigurator/moe_a2a.parquet",
        "aiconfigurator/wideep_deepep_ll.parquet",
        "aiconfigurator/wideep_deepep_normal.parquet",
        "aiconfigurator/trtllm_alltoall.parquet",
    )
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "dispatch_us": {"mean_ape": 7.0, "bias_pct": 4.0},
        "combine_us": {"mean_ape": 8.0, "bias_pct": 4.0},
    }

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """One row a measured exchange."""
        held = [part.take(part.held_out) for part in load_rows(data)]
        return [
            _scored(phase, [p for p in held if len(p) and p.batch.family == phase], limit)
            for phase in ("dispatch", "combine")
        ]


def roofline_s(rows: Rows) -> F64:
    """The copies that leave a rank, one a rank, at the link's datasheet bandwidth."""
    d = rows.batch.dims
    remote = remote_of(d["topk"], d["ep"], d["ep"])
    moved = d["tokens"] * d["hidden"] * payload_bytes(rows.batch.variant, rows.batch.family)
    return moved * remote.once / fabric_of(find_device(rows.device)).link


def _nodes(rows: Rows) -> str:
    count = int(rows.batch.dims["nodes"][0])
    return "one node" if count == 1 else f"{count} nodes"


def _scored(phase: str, parts: Sequence[Rows], limit: int | None) -> Scored:
    if limit is not None:
        parts = [part.take(subsample(len(part), max(4, limit // len(parts)))) for part in parts]
    model = implementation_for(phase, "simt")
    assert model is not None
    times = [timed(model, part.batch, find_device(part.device)) for part in parts]
    counts = [len(part) for part in parts]
    tokens = np.concatenate([part.batch.dims["tokens"] for part in parts])
    labels = {
        "device": [part.device for part in parts],
        "library": [part.batch.variant.library for part in parts],
        "kernel": [part.batch.variant.kernel for part in parts],
        "nodes": [_nodes(part) for part in parts],
    }
    return Scored(
        metric=f"{phase}_us",
        measured=1e6 * np.concatenate([part.seconds for part in parts]),
        estimate=1e6 * np.concatenate([found.estimate_s for found in times]),
        p05=1e6 * np.concatenate([found.p05_s for found in times]),
        p95=1e6 * np.concatenate([found.p95_s for found in times]),
        roofline=1e6 * np.concatenate([roofline_s(part) for part in parts]),
        groups={
            **{name: np.repeat(np.array(values), counts) for name, values in labels.items()},
            "regime": np.where(tokens <= 256, "tokens <= 256", "tokens > 256"),
        },
    )
