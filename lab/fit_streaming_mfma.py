"""Fits the streaming kernels of CDNA; writes catalog/physics/streaming_mfma.json.

    OPENBLAS_NUM_THREADS=1 python -m lab.fit_streaming_mfma

From NeuSight's vector kernels of MI100 (train split, shapes with an even checksum): first those of
one element, then what norms and softmax have of their own. CDNA 2 takes the same constants.
Deterministic; under a minute on one core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.fitter import Body, Fitter
from lab.fitting import Constants, F, Prior
from lab.scorecard.rows import MeasuredRows, held_out
from lab.scorecard.suites.other_vendors import amd_neusight_groups
from silicast.kernels.movement.streaming import analyse_stream
from silicast.kernels.movement.streaming_rates import GROUP, StreamingRates
from silicast.kernels.physics.constants import load_physics

RANGES = {
    "stream_dispatch_s": 4.0, "stream_record_s": 4.0, "launch_cycles": 6.0, "dram_fraction": 2.0,
    "l2_fraction": 6.0, "slot_s": 10.0, "core_bytes_per_clock": 6.0, "pipe_fraction": 4.0,
    "block_bytes_per_clock": 6.0, "trip_cycles": 6.0, "reduction_cycles": 6.0,
    "scatter_share": 20.0, "core_headroom": 2.0, "resident_from": 4.0, "resident_to": 4.0,
}  # fmt: skip
"""Constant -> how many times smaller or larger than other devices' it may be."""
OF_ALL = (
    "stream_dispatch_s", "stream_record_s", "launch_cycles", "dram_fraction", "l2_fraction",
    "slot_s", "core_bytes_per_clock", "pipe_fraction", "resident_from", "resident_to",
)  # fmt: skip
OF_FAMILY = (
    "stream_dispatch_s", "stream_record_s", "dram_fraction", "l2_fraction", "slot_s",
    "core_bytes_per_clock", "block_bytes_per_clock", "trip_cycles", "reduction_cycles",
)  # fmt: skip
STAGES: Mapping[str, tuple[str, ...]] = {
    "elementwise": OF_ALL,
    "layernorm": tuple(f"layernorm.{name}" for name in OF_FAMILY),
    "softmax": tuple(f"softmax.{name}" for name in (*OF_FAMILY, "scatter_share")),
}
WEIGHT = 0.01


def log_ratio(rows: MeasuredRows, table: Mapping[str, float]) -> F:
    """Log of predicted over measured time; predictions are never below the bound."""
    model: Any = rows.model
    batch = rows.batch
    rates = StreamingRates.from_device(rows.hardware, batch.family, table)
    result = analyse_stream(model.stream(batch.dims, batch.variant), batch.variant, rates)
    ratio: F = np.log(np.maximum(result.time_s, result.bound_s) / rows.seconds)
    return ratio


def priors_of(names: Sequence[str], table: Mapping[str, float]) -> dict[str, Prior]:
    """Where each constant starts, and how far it may go."""
    priors = {}
    for name in names:
        start, far = table.get(name, 1.0), RANGES[name.rpartition(".")[2]]
        priors[name] = (start, start / far, start * far)
    return priors


def fit(parts: Sequence[MeasuredRows], priors: Mapping[str, Prior], start: Constants) -> Constants:
    """All constants, those of ``priors`` fitted."""
    return fitting.fit_within(
        priors,
        lambda c: [log_ratio(part, c) for part in parts],
        start,
        sum(map(len, parts)),
        weight=WEIGHT,
        steps=100,
    )


class MfmaStreaming(Fitter[list[MeasuredRows]]):
    """Streaming kernels of CDNA, where they differ from other devices'."""

    group = "streaming_mfma"
    data = ("neusight/kernels_amd: MI100, fp32, train split",)
    split = "every second shape is not fitted; scores are on these"

    def __init__(self) -> None:
        self.others: Constants = dict(load_physics(GROUP).default)

    def rows(self, data: Path) -> list[MeasuredRows]:
        return [part for part in amd_neusight_groups(data) if part.batch.family in STAGES]

    def fit(self, rows: list[MeasuredRows]) -> Body:
        table = self.others
        for family, names in STAGES.items():
            train = held_out(of_family(rows, family), False)
            priors = priors_of(names, table)
            start = {**table, **{name: prior[0] for name, prior in priors.items()}}
            table = fit(train, priors, start)
        logs = np.concatenate([log_ratio(part, table) for part in held_out(rows, False)])
        shared = (table["device_log_sd"], table["family_log_sd"])
        table["own_log_sd"] = fitting.own_log_sd(logs, shared, wider=1.1)
        table["eager_error"] = 1.0
        changed = {name: x for name, x in table.items() if x != self.others.get(name)}
        print(fitting.rounded(changed))
        return fitting.body(self.others, {"cdna": changed}, {"cdna2": "cdna"})

    def scores(self, rows: list[MeasuredRows], body: Body) -> Mapping[str, Any]:
        table = body["default"] | body["architectures"]["cdna"]
        entries = {}
        for family in STAGES:
            for part in held_out(of_family(rows, family)):
                kind = ",".join(name for name, _ in part.batch.variant.flags) or family
                logs = log_ratio(part, table)
                entries[f"MI100 {kind}"] = fitting.percent(
                    logs, "rows", "mape", "median", "p90", "bias"
                )
                print(f"MI100 {kind:12s}", entries[f"MI100 {kind}"], flush=True)
        return {"held-out shapes": entries}


def of_family(rows: Sequence[MeasuredRows], family: str) -> list[MeasuredRows]:
    """The parts of one family."""
    return [part for part in rows if part.batch.family == family]


if __name__ == "__main__":
    MfmaStreaming().run()
