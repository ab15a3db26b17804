"""Training steps: MosaicML's published runs of small MPT models on one server of 8 devices."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np

from silicast.composition.deployment import Deployment
from silicast.composition.engine import find_engine
from silicast.composition.training_step import Batch, TrainingStep, predict_training_step
from silicast.hardware.catalog import find_device
from silicast.validation.suite import EVIDENCE, Scored, Suite, register_suite, subsample
from silicast.workload.backward import Recompute
from silicast.workload.eager import Framework
from silicast.workload.models import find_model
from silicast.workload.precision import Precision

_COLUMNS = (
    "config_id", "source", "model", "gpu", "n_gpus", "seq", "micro_batch", "global_batch",
    "precision_family", "recompute", "metric", "value", "is_prediction",
)  # fmt: skip
_GPUS = 8
_RECOMPUTE: Mapping[str, Recompute] = {"none": "none", "full": "full", "selective": "selective"}


@final
@register_suite
class TrainingStepSuite(Suite):
    """Truth is the step's time as the published tokens a second of one device mean it."""

    name: ClassVar[str] = "training-step"
    title: ClassVar[str] = "Training steps of small models, one device of a server"
    split: ClassVar[str] = (
        "All bf16 rows of MosaicML's MPT models up to 3 billion parameters on 8 devices of one "
        "server, FSDP, with the software of 2023. The prediction is of one device, without what "
        "communication adds, and with kernels of today, so it is low. No time depends on a fit to "
        "them; of the interval, one spread is from the A100-40GB rows. No backward kernel of 16 "
        "bits was measured: backward times are those of forward kernels of the same sizes."
    )
    source: ClassVar[tuple[str, ...]] = ("training/training_measured.parquet",)
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {"step_time_s": {"mean_ape": 40.0}}

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """One row a published run."""
        import pyarrow.parquet as pq

        table = pq.read_table(data / self.source[0], columns=list(_COLUMNS)).to_pylist()
        rows = sorted((row for row in table if _counts(row)), key=lambda row: row["config_id"])
        rows = [rows[index] for index in subsample(len(rows), limit)]
        found = [_predict(row) for row in rows]
        times = [one.step.latency_s for one in found]
        return [
            Scored(
                metric="step_time_s",
                measured=np.array([_tokens(row) / row["value"] for row in rows]),
                estimate=np.array([time.estimate for time in times]),
                p05=np.array([time.p05 for time in times]),
                p95=np.array([time.p95 for time in times]),
                roofline=np.array([one.step.bound_seconds for one in found]),
                groups={
                    "device": np.array([row["gpu"] for row in rows]),
                    "model": np.array([row["model"] for row in rows]),
                    "sequence": np.array([str(row["seq"]) for row in rows]),
                    "recompute": np.array([row["recompute"] for row in rows]),
                },
            )
        ]


def _counts(row: Mapping[str, Any]) -> bool:
    return bool(
        row["metric"] == "tokens_per_s_per_gpu"
        and not row["is_prediction"]
        and row["n_gpus"] == _GPUS
        and row["precision_family"] == "bf16"
        and row["model"].startswith("mpt-")
        and row["source"].startswith("mosaicml")
        and row["recompute"] in _RECOMPUTE
        and row["micro_batch"]
    )


def _batch(row: Mapping[str, Any]) -> Batch:
    micro = int(row["micro_batch"])
    return Batch(int(row["seq"]), micro, max(int(row["global_batch"]) // (_GPUS * micro), 1))


def _tokens(row: Mapping[str, Any]) -> int:
    return _batch(row).tokens


def _predict(row: Mapping[str, Any]) -> TrainingStep:
    deployment = Deployment.of(
        model=find_model(row["model"]),
        device=find_device(row["gpu"]),
        engine=find_engine("fsdp"),
        precision=Precision.of(weights="bf16"),
        evidence=EVIDENCE.get(),
    )
    return predict_training_step(
        deployment,
        _batch(row),
        "adamw",
        _RECOMPUTE[row["recompute"]],
        framework=Framework(attention="fused"),
    )
