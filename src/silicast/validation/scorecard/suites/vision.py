"""Whole image models of timm under automatic mixed precision: eager, compiled, trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from silicast.composition.engine import find_engine
from silicast.composition.machine import Machine
from silicast.composition.program import predict_program
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.validation.scorecard.image_models import ImageRun, families, program_of
from silicast.validation.scorecard.model_suite import UNANSWERED, Believed, believed
from silicast.validation.scorecard.rows import subsample
from silicast.validation.scorecard.suite import EVIDENCE, Scored, Suite
from silicast.validation.scorecard.tables import read_records
from silicast.workload.compiled import fused_graph

TIMES = "vision/timm_gpu.parquet"
AUTOCAST_NOISE = 0.01
"""Of fp16 against bf16 autocast on one card, mean, by the source's own rows."""

_Row = Mapping[str, Any]


@final
@dataclass(frozen=True)
class Campaign:
    """Rows of one file of the source.

    Attributes:
        metric: as reported.
        device: as in the catalog.
    """

    metric: str
    device: str
    version: str
    layout: str = "nchw"
    compiled: bool = False
    training: bool = False

    def holds(self, row: _Row) -> bool:
        """Whether a row is of it."""
        return bool(
            row["device_name"].endswith(self.device)
            and row["engine_version"] == self.version
            and row["layout"] == self.layout
            and (row["compile"] == "torch.compile") == self.compiled
            and (row["task"] == "train") == self.training
        )


CAMPAIGNS = (
    Campaign("eager_rtx_4090_ms", "RTX 4090", "2.9.1"),
    Campaign("compiled_rtx_4090_ms", "RTX 4090", "2.9.1", compiled=True),
    Campaign("eager_rtx_3090_ms", "RTX 3090", "2.4.0"),
    Campaign("channels_last_rtx_3090_ms", "RTX 3090", "2.4.0", layout="nhwc"),
    Campaign("training_rtx_3090_ms", "RTX 3090", "1.12", training=True),
)


@final
@dataclass(frozen=True)
class Measured:
    """A row with where it belongs."""

    row: _Row
    family: str
    half: str

    def run(self, campaign: Campaign) -> ImageRun:
        """The program that it timed."""
        row = self.row
        return ImageRun(
            row["arch"], row["batch"], row["img_size"],
            channels_last=campaign.layout == "nhwc", training=campaign.training,
            narrow_math=campaign.version < "2.5", fast_norm=not campaign.training,
        )  # fmt: skip


def rows_of(data: Path, campaign: Campaign) -> list[Measured]:
    """The campaign's rows of the architectures that stand for their families, by family."""
    wanted = {
        architecture: (family, half)
        for half, table in families().items()
        for family, architecture in table.items()
    }
    rows = {
        row["arch"]: Measured(row, *wanted[row["arch"]])
        for row in read_records(data / TIMES)
        if row["arch"] in wanted and campaign.holds(row)
    }
    return sorted(rows.values(), key=lambda each: (each.family, each.row["arch"]))


def predicted(campaign: Campaign, measured: Measured) -> Believed:
    """Our prediction of a row, in ms."""
    engine = find_engine("torch-compile" if campaign.compiled else "torch-eager")
    machine = Machine(find_device(campaign.device), engine, evidence=EVIDENCE.get())
    graph = program_of(measured.run(campaign))
    if campaign.compiled:
        graph = fused_graph(graph)
    try:
        return believed(predict_program(machine, graph).total, 1e3)
    except SilicastError as error:
        if error.kind != "not_yet":
            raise
        return UNANSWERED


def _scored(campaign: Campaign, rows: list[Measured]) -> Scored:
    found = np.array([predicted(campaign, measured) for measured in rows])

    def labels(of: Callable[[Measured], str]) -> np.ndarray[Any, Any]:
        return np.array([of(measured) for measured in rows])

    return Scored(
        campaign.metric,
        measured=np.array([measured.row["step_time_ms"] for measured in rows], dtype=np.float64),
        estimate=found[:, 0], p05=found[:, 1], p95=found[:, 2], roofline=found[:, 3],
        groups={
            "device": labels(lambda _: campaign.device),
            "half": labels(lambda measured: measured.half),
            "family": labels(lambda measured: measured.family),
        },
        noise=np.full(len(rows), AUTOCAST_NOISE),
    )  # fmt: skip


def _score(data: Path, limit: int | None) -> Iterator[Scored]:
    for campaign in CAMPAIGNS:
        rows = rows_of(data, campaign)
        kept = [rows[index] for index in subsample(len(rows), limit)]
        yield _scored(campaign, kept)


SUITES = (Suite("vision", (TIMES,), _score),)
