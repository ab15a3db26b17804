"""Task ``diagnose``: the kernel by its names, its causes, and a faster configuration.

>>> kernel = {"op": "moe", "tokens": 64, "experts": 128, "topk": 8, "hidden": 2048,
...           "intermediate": 768, "part": "w13"}
>>> diagnosis = diagnose(kernel, "H20", [420.0, 421.0, 423.0])
>>> abs(sum(diagnosis.causes_us.values()) - diagnosis.measured_us) < 1e-6
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, final

from silicast.core.errors import errors_at, unsupported
from silicast.core.prediction import Domain, Quantity
from silicast.kernels.configuration import of_pairs, read_configuration
from silicast.scenario.answer import Answer, answer
from silicast.scenario.answerer import Answerer, ignored, refuse_unmodelled, register
from silicast.scenario.decode import Scenario, decode
from silicast.scenario.kernels.kernel_case import kernel_case
from silicast.scenario.resolve import find_any_device, find_any_model
from silicast.scenario.run import run
from silicast.scenario.workloads import DiagnoseWorkload, MeasuredTable
from silicast.tuning.diagnosis import (
    Diagnosis,
    GroupError,
    Measured,
    diagnose_measured,
    diagnosis_data,
    group_errors,
    saved_us,
)
from silicast.tuning.files import is_swept

CONTEXT = 1024
"""Tokens of context that a step is predicted with."""


def gain_in_model(
    model: str | dict[str, Any],
    device: str,
    tokens: int,
    saved_us: float,
    *,
    folder: Path = Path(),
    **fields: Any,
) -> dict[str, float]:
    """Step time and TPOT of a static batch before and after.

    Args:
        model: with experts; tokens: of a step, one a request.
        saved_us: of one layer's kernel; folder: where paths start.
        fields: further fields of the scenario ("engine", "parallel", "precision").

    Raises:
        SilicastError: no experts, or a batch that the device cannot hold.
    """
    config = find_any_model(model, folder)
    layers = sum(config.feed(layer) == "experts" for layer in range(config.layers))
    if not layers:
        raise unsupported(f"{config.name} has no experts", "model")
    with errors_at("model"):
        tree = {
            "task": "inference",
            "model": model,
            "device": device,
            "workload": {"batch": tokens, "input_len": CONTEXT, "output_len": 8},
            **fields,
        }
        metrics = run(decode(tree, folder=folder)).metrics
    step_us = metrics["decode_step_ms"].estimate * 1e3
    saved = min(saved_us * layers, step_us)
    return {
        "layers": float(layers),
        "saved_us": saved,
        "step_us": step_us,
        "saved_pct": 100.0 * saved / step_us,
        "tpot_ms": step_us / 1e3,
        "tpot_then_ms": (step_us - saved) / 1e3,
    }


def measured_kernel(
    kernel: Mapping[str, Any],
    device: str | dict[str, Any],
    measured_us: Sequence[float],
    configuration: Mapping[str, Any] | None = None,
    folder: Path = Path(),
) -> Measured:
    """What was measured, with its names resolved; see :func:`diagnose`."""
    op, board = kernel_case(kernel).op, find_any_device(device, folder)
    pairs = op.variant.config
    op = replace(op, variant=replace(op.variant, config=()))
    used = read_configuration(configuration) if configuration else None
    if used is None and pairs:
        used = of_pairs(pairs)
    return Measured(op, used, board, tuple(measured_us))


def diagnose(
    kernel: Mapping[str, Any],
    device: str,
    measured_us: Sequence[float],
    *,
    configuration: Mapping[str, Any] | None = None,
) -> Diagnosis:
    """Diagnoses one measured kernel.

    Args:
        kernel: as a scenario's ``kernel`` table: moe (w13 or w2) or gemm.
        device: catalog name, or path to a device file.
        measured_us: repeats.
        configuration: that ran; None = what the kernel's table states, else the likeliest.

    Raises:
        SilicastError: no such kernel or device, no measurement, one that is faster than its bound,
            or a configuration that the device cannot run.
    """
    return diagnose_measured(measured_kernel(kernel, device, measured_us, configuration))


UNUSED = (
    "cluster", "host", "limits", "seed", "tier", "calibration", "router", "precision", "parallel",
    "engine",
)  # fmt: skip


@register
@final
class DiagnoseAnswerer(Answerer):
    """Metrics: ``best_us`` (the faster configuration's time; the measured one where none is) and
    ``gain_pct`` of the measured time. ``why`` has the rest.
    """

    task: ClassVar[str] = "diagnose"

    def answer(self, scenario: Scenario) -> Answer:
        refuse_unmodelled(scenario, "speculative", "lora", "colocation", "pools", "links")
        work = scenario.workload
        assert isinstance(work, DiagnoseWorkload)
        every = [_measured(scenario, work)]
        every += [_measured(scenario, table) for table in work.beside]
        return _answer(scenario, every[0], group_errors(every)[0])


def _measured(scenario: Scenario, table: DiagnoseWorkload | MeasuredTable) -> Measured:
    device, measured_us = scenario.raw.device, table.measured_us
    assert device is not None
    values = measured_us if isinstance(measured_us, list) else [measured_us]
    return measured_kernel(table.kernel, device, values, folder=scenario.folder)


def _answer(scenario: Scenario, measured: Measured, error: GroupError | None) -> Answer:
    result = diagnose_measured(measured, error)
    bound = result.bound_us
    metrics = {"best_us": Quantity(result.measured_us, result.measured_us, result.measured_us)}
    metrics["gain_pct"] = Quantity(0.0, 0.0, 0.0)
    best = result.faster
    if best is not None:
        metrics["best_us"] = Quantity(best.estimate_us, best.p05_us, best.p95_us)
        metrics["gain_pct"] = Quantity(best.gain_pct, best.gain_p05_pct, best.gain_p95_pct)
    return answer(
        metrics=metrics,
        bound={"best_us": bound},
        tier="cross-device",
        domain=_domain(measured),
        warnings=[*ignored(scenario, *UNUSED), *result.warnings],
        why=_why(scenario, measured, result),
    )


def _domain(measured: Measured) -> Domain:
    return "in" if is_swept(measured.op, measured.device) else "near"


def _why(scenario: Scenario, measured: Measured, result: Diagnosis) -> dict[str, Any]:
    data = diagnosis_data(result)
    why = {name: value for name, value in data.items() if name != "warnings"}
    why["device"] = measured.device.name
    why["ran"] = why.pop("configuration")
    if result.faster is not None:
        why["configuration"] = result.faster.configuration.label
    model = scenario.raw.model
    if model is not None:
        tokens = dict(measured.op.dims).get("tokens", 1)
        assert isinstance(tokens, int)
        why["model"] = gain_in_model(
            model, measured.device.name, tokens, saved_us(result), folder=scenario.folder
        )
    return why
