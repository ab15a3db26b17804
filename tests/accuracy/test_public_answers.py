"""The scorecard's predictions are the public ones: the first rows of each suite, written as
scenarios and run through ``silicast batch``, give the same bits.

Suites that predict as if something had not been measured (architectures, calibrated, ways), that
score no prediction of a scenario (intervals, kernel_choice, vllm-steps: single engine steps), and
metrics of that kind in other suites are not compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.scorecard import collectives as collectives_source
from lab.scorecard.collective_points import predict
from lab.scorecard.collectives import CollectiveRows, read_collectives
from lab.scorecard.kernel_suite import KernelScore
from lab.scorecard.model_suite import Believed, Case, answered
from lab.scorecard.rows import MeasuredRows
from lab.scorecard.suite import predicted, suites
from lab.scorecard.suites import (
    end_to_end,
    graph,
    mlenergy,
    moe,
    serving,
    serving_disaggregated,
    silicon_sample,
    training_step,
)
from lab.scorecard.suites.energy import power_rows
from silicast.app.cli import main
from silicast.kernels.check import op_at
from silicast.kernels.physics.energy import kernel_energy
from silicast.scenario.kernels.kernel_table_of import kernel_table_of

pytestmark = pytest.mark.data

ROWS = 5
"""Rows of each metric, of as many sources."""
LIMIT = 400
"""So many rows are read at least."""

KERNELS: Mapping[str, Sequence[str]] = {
    "aiter": ["products_us", "experts_us"],
    "attention-decode": ["latency_us"],
    "attention-lengths": ["latency_us"],
    "attention-prefill": ["latency_us"],
    "conv2d": ["latency_us"],
    "elementwise": ["latency_us"],
    "encoder-attention": ["latency_us"],
    "gemm": [
        "bf16_us", "fp16_us", "fp8_us", "fp8_block_us", "nvfp4_us", "fp8_static_us", "int4_wo_us",
        "int8_wo_us", "sq_us", "fp8_block_early_us",
        "fp8_scaled_mm_us", "bmm_us", "bmm_fp8_us", "fp32_us",
    ],
    "gemm-transfer": ["fp16_shape_us", "fp16_shape_short_us"],
    "linear_attention": ["gdn_us", "kda_us", "mamba2_us"],
    "mla": ["prefill_us", "decode_us"],
    "mla-blocks": ["context_us", "generation_us", "wide_context_us", "wide_generation_us"],
    "mla-products": ["product_us"],
    "moe": [
        "layer_us", "shape_us", "w13_us", "w13_problem_us", "wide_sglang_us", "wide_unnamed_us",
        "wide_trtllm_us", "fused_exchange_us",
    ],
    "moe_exchange": ["dispatch_us", "combine_us"],
    "norms": ["latency_us"],
    "other_vendors": ["latency_us"],
    "quantize": ["latency_us"],
    "silu_mul": ["latency_us"],
    "softmax": ["latency_us"],
    "sparse_modules": ["kernels_us", "dsa_us", "csa_us", "hca_us", "msa_us"],
    "vidur_operators": ["latency_us", "short_latency_us"],
}  # fmt: skip
"""Suites of kernels, and their metrics that are predicted as shipped."""

Triple = tuple[float, float, float]


@pytest.fixture(scope="module")
def read(data: Path) -> Callable[[str], Mapping[str, Sequence[MeasuredRows]]]:
    """The rows of a suite of kernels by metric, read once."""
    known: dict[str, Mapping[str, Sequence[MeasuredRows]]] = {}

    def rows(suite: str) -> Mapping[str, Sequence[MeasuredRows]]:
        if suite not in known:
            known[suite] = score_of(suite).read(data, LIMIT)
        return known[suite]

    return rows


def score_of(suite: str) -> KernelScore:
    score = moe.LAYERS if suite == "moe" else suites()[suite].predict
    assert isinstance(score, KernelScore)
    return score


def first_of(parts: Sequence[MeasuredRows]) -> list[MeasuredRows]:
    """Single rows of parts spread over all; several of a part where there are few."""
    positions = np.linspace(0, len(parts) - 1, ROWS).round().astype(int).tolist()
    return [
        parts[position].take(
            np.array([min(positions[:turn].count(position), len(parts[position]) - 1)])
        )
        for turn, position in enumerate(positions)
    ]


def answers(folder: Path, scenarios: Sequence[Mapping[str, Any]]) -> list[dict[str, Triple]]:
    """What ``silicast batch`` answers: metric -> estimate, p05, p95."""
    cases, out = folder / "cases.jsonl", folder / "answers.jsonl"
    cases.write_text("".join(json.dumps(scenario) + "\n" for scenario in scenarios))
    status = main(["batch", str(cases), "-o", str(out)])
    items = [json.loads(line) for line in out.read_text().splitlines()]
    assert status == 0, [reply["error"] for reply in items if not reply["ok"]]
    return [
        {name: (x["estimate"], x["p05"], x["p95"]) for name, x in reply["metrics"].items()}
        for reply in items
    ]


def kernel_scenario(rows: MeasuredRows) -> dict[str, Any]:
    table = kernel_table_of(op_at(rows.batch, 0))
    return {"task": "kernel", "device": rows.device, "workload": {"kernel": table}}


@pytest.mark.parametrize(
    ("suite", "metric"), [(suite, name) for suite, names in KERNELS.items() for name in names]
)
def test_kernels(
    suite: str,
    metric: str,
    read: Callable[[str], Mapping[str, Sequence[MeasuredRows]]],
    tmp_path: Path,
) -> None:
    rows = first_of(read(suite)[metric])
    result = answers(tmp_path, [kernel_scenario(row) for row in rows])
    for row, answer in zip(rows, result, strict=True):
        times = predicted(row)
        ours = (times.estimate_s, times.p05_s, times.p95_s)
        assert answer["latency_us"] == tuple(1e6 * float(column[0]) for column in ours)


def test_every_metric_of_kernels_as_shipped_is_compared(
    read: Callable[[str], Mapping[str, Sequence[MeasuredRows]]],
) -> None:
    of_kernels = {
        name for name, suite in suites().items() if isinstance(suite.predict, KernelScore)
    }
    of_kernels -= {"backward"}  # parts of passes that train: no scenario asks for one alone
    assert of_kernels | {"moe"} == set(KERNELS)
    for suite, metrics in KERNELS.items():
        assert [name for name in read(suite) if name not in score_of(suite).times_of] == metrics


def test_energy(data: Path, tmp_path: Path) -> None:
    tables = ("gemm", "context_attention", "generation_attention", "moe", "gdn")
    rows = [power_rows(data, name, 1, held_out=True)[0] for name in tables]
    result = answers(tmp_path, [kernel_scenario(row) for row in rows])
    for row, answer in zip(rows, result, strict=True):
        energy = kernel_energy(predicted(row), row.batch, row.hardware)
        assert energy is not None
        ours = (energy.estimate_j, energy.p05_j, energy.p95_j)
        assert answer["energy_mj"] == tuple(1e3 * float(column[0]) for column in ours)


@pytest.fixture(scope="module")
def collectives(data: Path) -> CollectiveRows:
    rows = read_collectives(data, thin=400)
    return rows.take(~rows.fitted)


def paths_of(rows: CollectiveRows, index: int) -> str:
    """What the scorecard states of the host of a campaign."""
    campaign = tuple(str(x[index]) for x in (rows.device, rows.library, rows.version))
    return "own" if campaign in collectives_source._OWN_PATHS else "shared"


@pytest.mark.parametrize("kind", ["plain", "GB200", "versioned"])
def test_collectives(kind: str, collectives: CollectiveRows, tmp_path: Path) -> None:
    unversioned, grace = collectives.version == "", collectives.device == "GB200"
    chosen = {
        "plain": unversioned & ~grace, "GB200": unversioned & grace, "versioned": ~unversioned
    }  # fmt: skip
    indices = np.flatnonzero(chosen[kind])
    rows = collectives.take(indices[np.linspace(0, len(indices) - 1, 4 * ROWS).astype(int)])
    result = answers(
        tmp_path,
        [
            {
                "task": "collective", "device": str(rows.device[i]),
                "cluster": {
                    "gpus": int(rows.per_node[i]), "gpus_per_node": int(rows.per_node[i]),
                    "pcie_paths": paths_of(rows, i),
                },
                "workload": {
                    "op": str(rows.op[i]), "bytes": int(rows.size[i]), "gpus": int(rows.gpus[i]),
                    "dtype": str(rows.dtype[i]), "implementation": str(rows.library[i]),
                    "implementation_version": str(rows.version[i]) or None,
                    "launch": str(rows.launch[i]),
                },
            }
            for i in range(len(rows))
        ],
    )  # fmt: skip
    ours = 1e6 * predict(rows)[:3].T
    assert [answer["latency_us"] for answer in result] == [tuple(row) for row in ours.tolist()]


Answer = Callable[[Case], Mapping[str, Believed]]
MODELS: Mapping[str, tuple[Callable[[Path], Sequence[Case]], Answer]] = {
    "end-to-end": (end_to_end.cases, answered),
    "graph": (graph.cases, graph.answer),
    "training-step": (training_step.cases, answered),
    "silicon-sample": (silicon_sample.cases, silicon_sample.answer),
    "serving": (serving.cases, serving.answer),
    "serving-disaggregated": (serving_disaggregated.cases, serving.answer),
    "mlenergy": (mlenergy.cases, answered),
}
MODELS_NOT_ASKABLE = {
    "silicon-sample": "the closed form of a few clients; suite serving asks as a user does"
}

SLOW = ("serving", "serving-disaggregated", "mlenergy")
"""Suites that simulate: seconds for each of their rows."""


@pytest.mark.parametrize(
    "suite",
    [
        pytest.param(name, marks=pytest.mark.xfail(strict=True, reason=MODELS_NOT_ASKABLE[name]))
        if name in MODELS_NOT_ASKABLE
        else pytest.param(name, marks=pytest.mark.full if name in SLOW else ())
        for name in MODELS
    ],
)
def test_models(suite: str, data: Path, tmp_path: Path) -> None:
    cases, answer = MODELS[suite]
    every = cases(data)
    chosen = [every[i] for i in np.linspace(0, len(every) - 1, ROWS).astype(int)]
    result = answers(tmp_path, [case.scenario for case in chosen])
    for case, public in zip(chosen, result, strict=True):
        ours = answer(case)
        shared = ours.keys() & case.measured.keys() & public.keys()
        assert shared
        for metric in shared:
            assert public[metric] == tuple(ours[metric][:3])
