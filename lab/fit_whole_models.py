"""Constants that only whole models show, ``catalog/physics/whole_models.json``.

    python -m lab.fit_whole_models

Of GeForce boards no convolution in 16 bits was measured alone, nor rows of norms as short as image
models have, nor a norm over a batch anywhere. What timm's models take shows them: half of the
families give the constants, the other half is scored. Of training they give one: how fast norms
over a batch are in it. Needs PyTorch and timm, which read the models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from lab import fitting
from lab.fitter import Body, Fitter
from lab.fitting import F
from lab.scorecard.image_models import families, program_of
from lab.scorecard.suites.vision import CAMPAIGNS, TIMES, Campaign, rows_of
from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.program import predict_program
from silicast.composition.step.machine import Machine
from silicast.hardware.catalog import find_device
from silicast.kernels.movement.data_movement import OWN_RATES
from silicast.kernels.physics.constants import WHOLE_MODELS, replaced
from silicast.workload.frameworks.compiled import fused_graph
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.op import Op

CHOSEN = "chosen_on"
FAMILIES = ("conv2d", "layernorm", "gemm")
"""Kernels whose constants are estimated, beside those of :data:`OWN_RATES`."""
PULL = 0.25
"""A constant e times its start weighs as much as this share of one model's logarithm."""
STARTS = {
    "conv2d.tensor.share": 1.1,
    "conv2d.tensor.gather_share": 0.15,
    "conv2d.direct_share": 0.15,
    "conv2d.tensor.narrow_taps_per_clock": 0.16,
    "conv2d.looped_share": 0.25,
    "conv2d.looped_last_share": 0.1,
    "conv2d.tensor.layout_share": 0.3,
    "streaming.layernorm.slot_s": 4.0,
    "gemm.headroom_share": 0.3,
    "streaming.batch_norm.dram_fraction": 0.8,
}
TRAINING_STARTS = {"streaming.batch_statistics.dram_fraction": 0.6}
"""Estimated from training alone, where the others stand."""
LEAST, MOST = 0.02, 20.0
"""Of a start, the least and the most that is believed."""
WHOLE_PIPE = {"conv2d.tensor.share": 1.25, "gemm.headroom_share": 1.0}
"""The most that physics allows: all of the pipe's rate, the largest clock."""
SAME = {"conv2d.headroom_share": "gemm.headroom_share"}
"""Constants that are one."""
SHARED = ("streaming.batch_norm.dram_fraction", "streaming.batch_statistics.dram_fraction")
"""Of a library's kernels, which other architectures run as well: the mean stands there."""
UNKNOWN = {"conv2d.tensor.layout_share": 0.0}
"""Architectures that nobody showed: what their kernels were measured with holds."""
FALLBACK = {"blackwell-rtx": "ada"}


@dataclass(frozen=True)
class Program:
    """A measured program: time outside the families that are estimated, and what is of them.

    Attributes:
        rest_s: of everything else.
        ops: with how often each runs.
    """

    campaign: Campaign
    measured_s: float
    rest_s: float
    ops: Mapping[Op, int]
    half: str


Rows = list[Program]


def machine_of(campaign: Campaign) -> Machine:
    """The board and the engine of a campaign."""
    engine = find_engine("torch-compile" if campaign.compiled else "torch-eager")
    return Machine(find_device(campaign.device), engine)


def times_of(machine: Machine, ops: Sequence[Op]) -> F:
    """Seconds of each op in a program of all of them."""
    nodes = tuple(Node(f"op{number}", op) for number, op in enumerate(ops))
    program = predict_program(machine, Graph("ops", (Block("forward", nodes),)))
    seconds = np.zeros(len(ops))
    for index, node in enumerate(program.model.graph.nodes):
        seconds[int(node.name.removeprefix("op"))] = program.times.exposed_s[index, 0]
    return seconds


class WholeModels(Fitter[Rows]):
    """What image models show of kernels that were not measured alone."""

    group = WHOLE_MODELS
    data = (TIMES,)
    split = (
        "families of timm in two halves (image_models.toml): the constants are of the first, of "
        "forward passes but for batch_statistics, which is of training"
    )
    notes = "log residuals of whole passes, soft absolute value; pulled to the start"

    def rows(self, data: Path) -> Rows:
        return [program for campaign in CAMPAIGNS for program in self._programs(data, campaign)]

    def _programs(self, data: Path, campaign: Campaign) -> Rows:
        machine, rows = machine_of(campaign), []
        for measured in rows_of(data, campaign):
            graph = program_of(measured.run(campaign))
            graph = fused_graph(graph) if campaign.compiled else graph
            whole = predict_program(machine, graph)
            ops = [node.op for _, node in graph.nodes() if _is_estimated(node.op)]
            counts = Counter(ops)
            inside = float(times_of(machine, list(counts)) @ np.array([*counts.values()]))
            remainder = whole.total.latency_s.estimate - inside
            seconds = measured.row["step_time_ms"] / 1e3
            rows.append(Program(campaign, seconds, remainder, counts, measured.half))
        return rows

    def fit(self, rows: Rows) -> Body:
        """One set of constants for each architecture, then what all share."""
        boards = dict.fromkeys(architecture_of(row) for row in rows)
        tables: dict[str, dict[str, float]] = {}
        for architecture in boards:
            train = [
                row for row in rows if row.half == CHOSEN and architecture_of(row) == architecture
            ]
            forward = [row for row in train if not row.campaign.training]
            trained = [row for row in train if row.campaign.training]
            tables[architecture] = _fitted(architecture, forward, STARTS, {})
            if trained:
                tables[architecture] |= _fitted(
                    architecture, trained, TRAINING_STARTS, tables[architecture]
                )
        shared = {name: _mean(name, tables) for name in SHARED}
        tables = {architecture: shared | table for architecture, table in tables.items()}
        return fitting.body(UNKNOWN | shared, tables, FALLBACK)

    def scores(self, rows: Rows, body: Body) -> Mapping[str, Any]:
        scores = {}
        with replaced({WHOLE_MODELS: of(body["architectures"])}):
            for campaign in dict.fromkeys(row.campaign for row in rows):
                for half in families():
                    scored = [row for row in rows if (row.campaign, row.half) == (campaign, half)]
                    measured = np.array([row.measured_s for row in scored])
                    off = np.abs(predicted(scored) / measured - 1.0)
                    scores[f"{campaign.metric}/{half} mean_ape"] = round(100 * float(off.mean()), 1)
        print(scores)
        return scores


def architecture_of(row: Program) -> str:
    """Of the board that a program ran on."""
    return find_device(row.campaign.device).architecture


def _is_estimated(op: Op) -> bool:
    return op.family in FAMILIES or any(op.variant.flag(name) for name in OWN_RATES)


def _mean(name: str, tables: Mapping[str, Mapping[str, float]]) -> float:
    """Geometric mean over the architectures that show a constant."""
    return float(
        np.exp(np.mean([np.log(table[name]) for table in tables.values() if name in table]))
    )


def _fitted(
    architecture: str, rows: Rows, start: Mapping[str, float], others: Mapping[str, float]
) -> dict[str, float]:
    """Constants that bring programs nearest to what was measured, beside others that stand."""
    starts = np.array([*start.values()])
    most = np.log([min(MOST, WHOLE_PIPE.get(name, np.inf) / s) for name, s in start.items()])

    def constants(x: F) -> dict[str, float]:
        table = dict(zip(start, (starts * np.exp(x)).tolist(), strict=True))
        return table | {name: table[source] for name, source in SAME.items() if source in table}

    def residuals(x: F) -> F:
        with replaced({WHOLE_MODELS: of({architecture: {**others, **constants(x)}})}):
            log = np.log(predicted(rows) / np.array([row.measured_s for row in rows]))
        return np.concatenate([log, PULL * x])

    result = least_squares(
        residuals,
        np.zeros(len(starts)),
        bounds=(np.log(LEAST), most),
        loss="soft_l1",
        f_scale=0.05,
        diff_step=0.02,
        max_nfev=8,
    )
    print(architecture, constants(result.x), flush=True)
    return constants(result.x)


def of(architectures: Mapping[str, Mapping[str, float]]) -> Any:
    """A file of constants with these."""
    tables = {name: dict(table) for name, table in architectures.items()}
    return fitting.physics(fitting.card("", [], ""), UNKNOWN, tables, FALLBACK)


def predicted(rows: Rows) -> F:
    """Seconds of each program under the constants in use."""
    result = np.zeros(len(rows))
    for campaign in dict.fromkeys(row.campaign for row in rows):
        indices = [position for position, row in enumerate(rows) if row.campaign is campaign]
        ops = list(dict.fromkeys(op for position in indices for op in rows[position].ops))
        times = dict(zip(ops, times_of(machine_of(campaign), ops), strict=True))
        for position in indices:
            ops_s = sum(times[op] * count for op, count in rows[position].ops.items())
            result[position] = rows[position].rest_s + ops_s
    return result


if __name__ == "__main__":
    WholeModels().run()
