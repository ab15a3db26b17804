"""Forward passes of whole models in a plain framework: NeuSight's measured models in FP32."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np

from silicast.composition.deployment import Deployment
from silicast.composition.engine import find_engine
from silicast.composition.forward import ForwardPass, predict_forward
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.validation.suite import EVIDENCE, Scored, Suite, register_suite, subsample
from silicast.workload.eager import Framework
from silicast.workload.models import find_model
from silicast.workload.precision import Precision

_COLUMNS = (
    "gpu", "config", "model", "mode", "seqlen", "batch", "option", "meas_e2e_ms",
    "neusight_e2e_ms", "habitat_e2e_ms", "roofline_e2e_ms", "micro_e2e_ms", "opsum_gpu_ms",
    "self_consistent",
)  # fmt: skip
_ENGINES = {"": "torch-eager", "fusion": "torch-compile"}
_PEERS = ("neusight", "habitat", "micro")


@final
@register_suite
class GraphSuite(Suite):
    """Attention as products and softmax one by one, TF32 off, logits of all tokens."""

    name: ClassVar[str] = "graph"
    title: ClassVar[str] = "Forward passes of whole models in PyTorch, eager and compiled, FP32"
    split: ClassVar[str] = (
        "All inference rows of NeuSight's models on the open devices, on one GPU. No time depends "
        "on a fit to any of them: the kernels' constants come from kernel tables, the operations "
        "from the model code. Of the interval, one small spread is from the same source. Noise is "
        "the source's own: the sum of its measured operations against its measured pass."
    )
    source: ClassVar[tuple[str, ...]] = ("neusight/model_e2e.parquet",)
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "e2e_ms": {"mean_ape": 9.0, "bias_pct": 8.0}
    }

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """One row a device, model and batch."""
        import pyarrow.parquet as pq

        table = pq.read_table(data / self.source[0], columns=list(_COLUMNS)).to_pylist()
        rows = [row for row in table if row["mode"] == "inf" and row["option"] in _ENGINES]
        rows.sort(key=lambda row: (row["gpu"], row["config"]))
        rows = [rows[index] for index in subsample(len(rows), limit)]
        found = [_predict(row) for row in rows]
        times = [None if one is None else one.total.latency_s.times(1e3) for one in found]
        nan = float("nan")

        def column(name: str) -> np.ndarray:
            return np.array([nan if row[name] is None else row[name] for row in rows], float)

        measured = column("meas_e2e_ms")
        return [
            Scored(
                metric="e2e_ms",
                measured=measured,
                estimate=np.array([nan if t is None else t.estimate for t in times]),
                p05=np.array([nan if t is None else t.p05 for t in times]),
                p95=np.array([nan if t is None else t.p95 for t in times]),
                roofline=np.array(
                    [nan if one is None else one.total.bound_seconds * 1e3 for one in found]
                ),
                peers={name: column(f"{name}_e2e_ms") for name in _PEERS},
                groups={
                    "device": np.array([row["gpu"] for row in rows]),
                    "model": np.array([row["model"] for row in rows]),
                    "engine": np.array([_ENGINES[row["option"]] for row in rows]),
                    "labels": np.array([_labels(row["self_consistent"]) for row in rows]),
                },
                noise=np.abs(column("opsum_gpu_ms") / measured - 1.0),
            )
        ]


def _labels(consistent: bool | None) -> str:
    """Whether the source's operations add up to its pass within 5 %."""
    if consistent is None:
        return "not traced"
    return "consistent" if consistent else "contradictory"


def _predict(row: Mapping[str, Any]) -> ForwardPass | None:
    try:
        deployment = Deployment(
            model=find_model(row["model"]),
            device=find_device(row["gpu"]),
            engine=find_engine(_ENGINES[row["option"]]),
            precision=Precision.of(weights="fp32"),
            evidence=EVIDENCE.get(),
        )
        framework = Framework(compiled=row["option"] == "fusion")
        return predict_forward(deployment, row["batch"], row["seqlen"], framework)
    except SilicastError as error:
        if error.kind != "not_yet":
            raise
        return None
