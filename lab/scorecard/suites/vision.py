"""Whole image models of timm under automatic mixed precision: eager, compiled, trained.

``rtx_3090_to_4090_ratio`` is how many times as long a model takes on the one board as on the other,
eager on the same release of PyTorch: what somebody asks who has the one and may buy the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from lab.scorecard.image_models import ImageRun, families, program_of
from lab.scorecard.model_suite import believed
from lab.scorecard.rows import Labels, subsample
from lab.scorecard.suite import EVIDENCE, Scored, Suite
from lab.scorecard.tables import read_records
from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.program import predict_program
from silicast.composition.step.machine import Machine
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.core.prediction import Z90, Prediction, spread_of_ratio
from silicast.hardware.catalog import find_device
from silicast.workload.frameworks.compiled import fused_graph

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


BOARDS = (CAMPAIGNS[2], Campaign("eager_rtx_4090_ms", "RTX 4090", "2.4.0"))
"""Campaigns of one release on the board that one has, and on the other."""
RATIO = "rtx_3090_to_4090_ratio"
SHARED = ("family", "shapes")
"""Kinds of errors that are the same on both boards: of the same kernels."""


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
            row["arch"],
            row["batch"],
            row["img_size"],
            channels_last=campaign.layout == "nhwc",
            training=campaign.training,
            narrow_math=campaign.version < "2.5",
            fast_norm=not campaign.training,
        )


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
    return sorted(rows.values(), key=lambda row_: (row_.family, row_.row["arch"]))


def predicted(campaign: Campaign, measured: Measured) -> Prediction | None:
    """Our prediction of a row; None where something has no model yet."""
    engine = find_engine("torch-compile" if campaign.compiled else "torch-eager")
    machine = Machine(find_device(campaign.device), engine, evidence=EVIDENCE.get())
    graph = program_of(measured.run(campaign))
    if campaign.compiled:
        graph = fused_graph(graph)
    try:
        return predict_program(machine, graph).total
    except SilicastError as error:
        if error.kind != "not_yet":
            raise
        return None


def _scored(campaign: Campaign, rows: list[Measured]) -> Scored:
    beliefs = np.array([believed(predicted(campaign, measured), 1e3) for measured in rows])

    return Scored(
        campaign.metric,
        measured=np.array([measured.row["step_time_ms"] for measured in rows], dtype=np.float64),
        estimate=beliefs[:, 0],
        p05=beliefs[:, 1],
        p95=beliefs[:, 2],
        roofline=beliefs[:, 3],
        groups=_groups(campaign.device, rows),
        noise=np.full(len(rows), AUTOCAST_NOISE),
        bound=beliefs[:, 3],
    )


def _groups(device: str, rows: list[Measured]) -> dict[str, Labels]:
    return {
        "device": np.array([device for _ in rows]),
        "half": np.array([measured.half for measured in rows]),
        "family": np.array([measured.family for measured in rows]),
    }


def _ratio(pairs: list[tuple[Measured, Measured]]) -> Scored:
    """How many times as long each model takes on the first board."""
    first = [first_run for first_run, _ in pairs]
    taken = np.array([[run.row["step_time_ms"] for run in pair] for pair in pairs])
    measured = taken[:, 0] / taken[:, 1]
    beliefs = np.array([_believed_ratio(pair) for pair in pairs])
    return Scored(
        RATIO,
        measured=measured,
        estimate=beliefs[:, 0],
        p05=beliefs[:, 1],
        p95=beliefs[:, 2],
        baselines={ONE_CONSTANT: np.full(len(pairs), _best_constant(measured))},
        groups=_groups(f"{BOARDS[0].device} to {BOARDS[1].device}", first),
        noise=np.full(len(pairs), AUTOCAST_NOISE * math.sqrt(2.0)),
    )


ONE_CONSTANT = "one constant for all models"


def _best_constant(ratios: F64) -> float:
    """The one that is least off in the mean; of these very rows, which flatters it."""
    return float(min(ratios, key=lambda constant: float(np.mean(np.abs(constant / ratios - 1.0)))))


def _believed_ratio(pair: tuple[Measured, Measured]) -> tuple[float, float, float]:
    """Our ratio with its 90 % interval; NaN where one of the two has no answer."""
    first, second = (predicted(board, run) for board, run in zip(BOARDS, pair, strict=True))
    if first is None or second is None:
        return math.nan, math.nan, math.nan
    ratio = first.seconds / second.seconds
    sd, _ = spread_of_ratio(
        _factors(first), _factors(second), lambda name: float(name.partition(":")[0] in SHARED)
    )
    spread = math.exp(Z90 * sd)
    return ratio, ratio / spread, ratio * spread


def _factors(prediction: Prediction) -> dict[str, float]:
    shares = prediction.error.shares()
    return {name: math.sqrt(share * prediction.error.variance) for name, share in shares.items()}


def _score(data: Path, limit: int | None) -> Iterator[Scored]:
    for campaign in CAMPAIGNS:
        rows = rows_of(data, campaign)
        sample = [rows[index] for index in subsample(len(rows), limit)]
        yield _scored(campaign, sample)
    first, second = (
        {(r.row["arch"], r.row["batch"], r.row["img_size"]): r for r in rows_of(data, c)}
        for c in BOARDS
    )
    pairs = [(run, second[key]) for key, run in first.items() if key in second]
    yield _ratio([pairs[index] for index in subsample(len(pairs), limit)])


SUITES = (Suite("vision", (TIMES,), _score),)
