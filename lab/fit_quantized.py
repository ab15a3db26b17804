"""Constants of back ends for local use, ``catalog/physics/quantized.json``.

    python -m lab.fit_quantized

Shares of a device's peaks and instructions to unpack a weight, one set a back end, so that whole
passes of llama-bench come out right on half of the devices (``lab.scorecard.local_runs``). All that
is not a product of stored weights is as the other kernel models have it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from lab import fitting
from lab.fitter import Body, Fitter
from lab.scorecard.local_runs import TABLE, settled
from lab.scorecard.model_suite import Case
from silicast.composition.passes.static_batch import batch_steps
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.implementation import Implementation
from silicast.kernels.physics.constants import Physics, PhysicsCard, replaced
from silicast.kernels.physics.formats import with_format
from silicast.kernels.registry import implementation_for
from silicast.scenario.answers.inference.answerer import batch_deployment
from silicast.scenario.decode import decode
from silicast.scenario.workloads import InferenceWorkload
from silicast.workload.graphs.op import OpBatch

GROUP = "quantized"
STORED = ("quantized_gemm", "quantized_moe")
LIBRARIES: Mapping[str, str] = {
    "cuda": "ggml_cuda",
    "metal": "ggml_metal",
    "vulkan": "ggml_vulkan",
    "mlx": "mlx",
}
TILE_ROWS: Mapping[str, float] = {
    "ggml_cuda": 128.0,
    "ggml_vulkan": 64.0,
    "ggml_metal": 32.0,
    "mlx": 32.0,
}
"""Rows of a tile in the back ends' kernels: mmq.cuh, mul_mm.comp, kernel_mul_mm, qmm_t."""
START: Mapping[str, float] = {
    "dram_efficiency": 0.85,
    "matrix_efficiency": 0.25,
    "experts_efficiency": 0.7,
    "unpack_ops": 3.0,
    "few_rows_unpack_ops": 4.0,
    "cores_scale": 200.0,
    "launch_s": 4e-6,
    "experts_launch_s": 4e-5,
}
NO_CONVERSION: Mapping[str, float] = {"converted_from_rows": 0.0, "converted_efficiency": 0.75}
CONVERSION: Mapping[str, Mapping[str, float]] = {"ggml_cuda": {"converted_from_rows": 64.0}}
"""MMQ_DP4A_MAX_BATCH_SIZE of mmq.cuh; what cuBLAS reaches of a V100's peak in device-benchmarks."""
LIMITS: Mapping[str, tuple[float, float]] = {
    "dram_efficiency": (0.3, 0.97),
    "matrix_efficiency": (0.03, 0.95),
    "experts_efficiency": (0.2, 1.0),
    "unpack_ops": (0.3, 100.0),
    "few_rows_unpack_ops": (0.3, 30.0),
    "cores_scale": (20.0, 1e4),
    "launch_s": (5e-7, 5e-5),
    "experts_launch_s": (1e-6, 5e-4),
}
SPREADS: Mapping[str, float] = {
    "independent_log_sd": 0.08,
    "device_log_sd": 0.12,
    "family_log_sd": 0.08,
}
ROUNDS = (2.0, 1.5, 1.25, 1.1, 1.05, 1.02)
"""Factors by which constants are changed one after the other, until none makes rows fit better."""


@final
@dataclass(frozen=True)
class Part:
    """Products of stored weights in one pass.

    Attributes:
        calls: how often each row of the batch runs, shape (rows,).
    """

    model: Implementation
    batch: OpBatch
    device: Device
    calls: F64

    def seconds(self) -> float:
        """Of all of them, under the constants that hold."""
        analysis = self.model.analyse(self.batch.arrays(), self.device)
        return float(np.maximum(analysis.time_s, analysis.bound_s) @ self.calls)


@final
@dataclass(frozen=True)
class Pass:
    """A measured pass: what its stored products take follows from constants, the rest is fixed."""

    case: Case
    measured_s: float
    other_s: float
    parts: tuple[Part, ...]

    def log_ratio(self) -> float:
        """Prediction over measurement."""
        seconds = self.other_s + sum(part.seconds() for part in self.parts)
        return math.log(seconds / self.measured_s)


def pass_of(case: Case) -> Pass:
    """The pass of a case: the whole prompt, or the median step."""
    scenario = decode(dict(case.scenario))
    deployment, _, _ = batch_deployment(scenario)
    work = scenario.workload
    assert isinstance(work, InferenceWorkload)
    prompt, decoding = batch_steps(deployment, [work.input_len or 1], work.output_len)
    prefills = "prefill_ms" in case.measured
    steps = prompt if prefills else decoding
    rows = steps.rows if prefills else steps.rows[len(steps.rows) // 2 :][:1]
    if prefills and case.detail:  # behind so many cached tokens
        rows = rows[case.detail // deployment.policy.chunk_tokens :]
    model, states = steps.model, steps.states.chosen(rows)
    device = model.machine.boosted_device
    times, symbols = model.steps(states), model.timer.symbols(states)
    parts = []
    for group, members, places in model.timer.calls(states):
        if group.family not in STORED:
            continue
        call = model.timer.call(group, members, places, states, symbols, device)
        implementation = implementation_for(group.family, device.execution_model)
        assert call.batch is not None
        assert implementation is not None
        calls = np.zeros(len(call.batch))
        for member, op in zip(call.members, call.ops.tolist(), strict=True):
            for place in call.size_index.tolist():
                calls[op * call.count + place] += model.graph.counts[member]
        able, _ = with_format(device, group.variant.dtype)
        parts.append(Part(implementation, call.batch, able, calls))
    stored_s = sum(part.seconds() for part in parts)
    measured = case.measured["prefill_ms" if prefills else "decode_step_ms"] * 1e-3
    return Pass(case, measured, float(times.total_s.sum()) - stored_s, tuple(parts))


def physics(library: str, constants: Mapping[str, float]) -> Physics:
    """One back end's constants alone."""
    usual = {**START, **SPREADS, **NO_CONVERSION, "tile_rows": TILE_ROWS[library]}
    return Physics(1, PhysicsCard([], "", "", ""), usual, {library: dict(constants)})


def loss(passes: Sequence[Pass]) -> float:
    """Mean |log ratio|: of passes of one device, model and kind, then of all such groups, so that
    a device measured often counts as much as others.
    """
    groups: dict[tuple[str, ...], list[float]] = {}
    for run in passes:
        labels = run.case.labels
        kind = "prompt" if "prefill_ms" in run.case.measured else "generation"
        key = labels["device"], labels["model"], kind
        groups.setdefault(key, []).append(abs(run.log_ratio()))
    return float(np.mean([np.mean(values) for values in groups.values()]))


OF_EXPERTS = ("experts_efficiency", "cores_scale", "experts_launch_s")
"""Constants that only passes of models with experts show; the first two, only their prompts."""
RELATIVES: Mapping[str, str] = {"ggml_vulkan": "ggml_cuda", "mlx": "ggml_metal"}
"""Back ends without rows of some kind take those constants from another."""


def shown_by(passes: Sequence[Pass]) -> list[str]:
    """The constants that some passes depend on."""
    experts = [run for run in passes if any(p.batch.family == STORED[1] for p in run.parts)]
    prompts = [run for run in experts if "prefill_ms" in run.case.measured]
    hidden = OF_EXPERTS if not experts else () if prompts else OF_EXPERTS[:2]
    return [name for name in START if name not in hidden]


def fitted(
    library: str, passes: Sequence[Pass], start: Mapping[str, float] = START
) -> dict[str, float]:
    """The constants under which the passes fit best, by coordinate descent."""
    names = shown_by(passes)
    best_constants = {name: START[name] if name in names else start[name] for name in START}

    def score(constants: Mapping[str, float]) -> float:
        with replaced({GROUP: physics(library, constants)}):
            return loss(passes)

    best = score(best_constants)
    for factor in ROUNDS:
        improved = True
        while improved:
            improved = False
            for name in names:
                for change in (factor, 1.0 / factor):
                    low, high = LIMITS[name]
                    value = min(max(best_constants[name] * change, low), high)
                    trial = {**best_constants, name: value}
                    result = score(trial)
                    if result < best - 1e-5:
                        best_constants, best, improved = trial, result, True
    print(library, len(passes), f"{100 * best:.1f} %", best_constants)
    return {name: float(f"{value:.3g}") for name, value in best_constants.items()}


class Quantized(Fitter[list[Case]]):
    """Back ends of stored weights."""

    group = GROUP
    data = (TABLE,)
    split = (
        "every other device of a back end, in alphabetical order (lab/scorecard/local_runs.py); of "
        "MLX, of which there is one device, the dense model"
    )
    notes = (
        "tile_rows and conversion are of the kernels' sources; spreads are judged; ggml_cpu: see "
        "the default"
    )

    def rows(self, data: Path) -> list[Case]:
        return list(settled(data))

    def fit(self, rows: list[Case]) -> Body:
        libraries: dict[str, dict[str, float]] = {}
        usual = {**START, **SPREADS, **NO_CONVERSION, "tile_rows": 16.0}
        for backend, library in LIBRARIES.items():
            of_library = [case for case in rows if case.labels["backend"] == backend]
            chosen = [
                case
                for case in of_library
                if case.labels["half"] == "fitted" and case.labels["host"] == "usual"
            ]
            start = libraries.get(RELATIVES.get(library, ""), dict(START))
            constants = fitted(library, [pass_of(case) for case in chosen], start)
            sources = {"tile_rows": TILE_ROWS[library], **CONVERSION.get(library, {})}
            libraries[library] = {**constants, **sources}
        stand_ins = {"ggml_sycl": "ggml_vulkan", "ggml_hip": "ggml_cuda"}
        return fitting.body(usual, libraries, stand_ins)

    def scores(self, rows: list[Case], body: Body) -> Mapping[str, Any]:
        return dict(_held_out(rows, body))

    def left_out(self, rows: list[Case], body: Body) -> Sequence[str]:
        return []


def _held_out(rows: list[Case], body: Body) -> Iterator[tuple[str, float]]:
    """Mean error in percent of the held out half, by back end and kind of pass."""
    card = PhysicsCard([], "", "", "")
    constants = Physics(1, card, body["default"], body["architectures"], body["fallback"])
    with replaced({GROUP: constants}):
        for backend in (*LIBRARIES, "rocm"):
            for metric in ("decode_step_ms", "prefill_ms"):
                chosen = [
                    case
                    for case in rows
                    if case.labels["backend"] == backend
                    and case.labels["half"] == "held out"
                    and case.labels["host"] == "usual"
                    and case.labels["kernels"] == "own"
                    and metric in case.measured
                ]
                if chosen:
                    errors = [abs(math.exp(pass_of(case).log_ratio()) - 1.0) for case in chosen]
                    yield f"{backend}_{metric}_mean_ape", round(100.0 * float(np.mean(errors)), 1)


if __name__ == "__main__":
    Quantized().run()
