"""Training steps: MosaicML's published runs of small MPT models on one server of 8 devices.

Truth is the step's time that the published tokens a second of one device mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.scorecard.model_suite import Believed, Case, Metric, RunsScore, believed
from lab.scorecard.suite import EVIDENCE, Suite
from lab.scorecard.tables import read_records
from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.training_step import Batch, predict_training_step
from silicast.hardware.catalog import find_device
from silicast.workload.frameworks.eager import Framework
from silicast.workload.models.lookup import find_model
from silicast.workload.models.precision import Precision

TABLE = "training/training_measured.parquet"
_GPUS = 8
ATTENTION = "triton"
"""Of llm-foundry's configurations of 2023; the table says "flash attention"."""


def cases(data: Path) -> list[Case]:
    """One case a published run, sorted by its name."""
    rows = [row for row in read_records(data / TABLE) if _counts(row)]
    return [_case(row) for row in sorted(rows, key=lambda row: row["config_id"])]


def _counts(row: Mapping[str, Any]) -> bool:
    return bool(
        row["metric"] == "tokens_per_s_per_gpu"
        and not row["is_prediction"]
        and row["n_gpus"] == _GPUS
        and row["precision_family"] == "bf16"
        and row["model"].startswith("mpt-")
        and row["source"].startswith("mosaicml")
        and row["recompute"] in ("none", "full", "selective")
        and row["micro_batch"]
    )


def _case(row: Mapping[str, Any]) -> Case:
    micro, seq_len = int(row["micro_batch"]), int(row["seq"])
    sequences = micro * max(int(row["global_batch"]) // (_GPUS * micro), 1)  # of one device
    return Case(
        scenario={
            "task": "training", "device": row["gpu"], "model": row["model"],
            "engine": "fsdp",
            "precision": {"weights": "bf16"},
            "workload": {
                "seq_len": seq_len, "micro_batch": micro, "global_batch": sequences,
                "optimizer": "adamw", "recompute": row["recompute"],
            },
        },
        measured={"step_time_s": sequences * seq_len / row["value"]},
        labels={
            "device": row["gpu"], "model": row["model"], "sequence": str(row["seq"]),
            "recompute": row["recompute"],
        },
    )  # fmt: skip


def answer(case: Case) -> dict[str, Believed]:
    """Of eager code with fused attention, as MosaicML ran it; the public engine fuses layers and
    runs attention of today.
    """
    scenario, work = case.scenario, case.scenario["workload"]
    deployment = Deployment.from_model(
        model=find_model(scenario["model"]),
        device=find_device(scenario["device"]),
        engine=find_engine(scenario["engine"]),
        precision=Precision.from_formats(weights=scenario["precision"]["weights"]),
        evidence=EVIDENCE.get(),
    )
    micro = work["micro_batch"]
    batch = Batch(work["seq_len"], micro, work["global_batch"] // micro)
    training_step = predict_training_step(
        deployment,
        batch,
        work["optimizer"],
        work["recompute"],
        framework=Framework(attention="fused", attention_library=ATTENTION),
    )
    return {"step_time_s": believed(training_step.step, 1.0)}


SCORE = RunsScore(cases, [Metric("step_time_s")], answer)
SUITES = (Suite("training-step", (TABLE,), SCORE),)
