"""Passes of whole models in a plain framework: NeuSight's measured models in FP32."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from silicast.validation.suite import Scored, Suite, register_suite, subsample
from silicast.validation.suites._graph_rows import (
    LABELS,
    OP_GRAPHS,
    PLAIN,
    at_boost,
    column,
    from_op_graphs,
    read_rows,
    scored,
    totals,
    with_backward,
)


@final
@register_suite
class GraphSuite(Suite):
    """Attention as products and softmax one by one, TF32 off, logits of all tokens."""

    name: ClassVar[str] = "graph"
    title: ClassVar[str] = "Whole models in PyTorch, eager and compiled, inference and training"
    split: ClassVar[str] = (
        "All rows of NeuSight's models on the open devices: one pass forward, or forward and "
        "backward, on one GPU or on four. No time depends on a fit to any of them: the kernels' "
        "constants come from kernel tables, the operations from the model code and autograd's "
        "rules, P4's clock from its kernel table, whose campaign found it throttled. That rule was "
        "made when P4's passes were known to be far off: plain_nvidia_at_boost_ms are the plain "
        "NVIDIA rows without it. Of the interval, one small spread is from the same source. Noise "
        "is the source's own: the sum of its measured operations against its measured pass. "
        "op_graph_e2e_ms are the same rows out of NeuSight's own op graphs, which lose kernels."
    )
    source: ClassVar[tuple[str, ...]] = (LABELS, OP_GRAPHS)
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "e2e_ms": {"mean_ape": 7.0, "bias_pct": 6.0},
        "plain_nvidia_ms": {"mean_ape": 6.0},
        "plain_nvidia_at_boost_ms": {"mean_ape": 7.5},
        "self_consistent_nvidia_ms": {"mean_ape": 6.0},
        "forward_ms": {"mean_ape": 12.0},
        "backward_ms": {"mean_ape": 11.0},
        "op_graph_e2e_ms": {"mean_ape": 11.0},
    }

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """One row a device, model, mode and batch."""
        rows = read_rows(data)
        rows = [rows[index] for index in subsample(len(rows), limit)]
        found = [row.predicted for row in rows]
        noise = np.abs(column(rows, "opsum_gpu_ms") / column(rows, "meas_e2e_ms") - 1.0)
        whole = [None if one is None else one.total for one in found]
        parts = [scored("e2e_ms", "e2e", rows, whole, noise)]
        plain = [row for row in rows if row.kind == PLAIN]
        if plain:
            parts.append(scored("plain_nvidia_ms", "e2e", plain, totals(plain)))
            parts.append(scored("plain_nvidia_at_boost_ms", "e2e", plain, at_boost(plain)))
        steady = [row for row in plain if row.labels == "consistent"]
        if steady:
            parts.append(scored("self_consistent_nvidia_ms", "e2e", steady, totals(steady)))
        halves = list(with_backward(rows))
        if halves:
            passes = [row.predicted for row in halves]
            first = [None if one is None else one.directions["forward"] for one in passes]
            second = [None if one is None else one.directions["backward"] for one in passes]
            parts.append(scored("forward_ms", "fw", halves, first))
            parts.append(scored("backward_ms", "bw", halves, second))
        theirs = [row for row in rows if row["has_opgraph"] and row.kind != "parallel"]
        if theirs:
            parts.append(scored("op_graph_e2e_ms", "e2e", theirs, from_op_graphs(data, theirs)))
        return parts
