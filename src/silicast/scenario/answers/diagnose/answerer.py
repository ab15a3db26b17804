"""Task ``diagnose``: one reason for a measured kernel's time, and a faster configuration."""

from __future__ import annotations

from typing import Any, ClassVar, final

from silicast.core.prediction import Domain, Quantity
from silicast.scenario.answer import Answer, answer
from silicast.scenario.answerer import Answerer, ignored, refuse_unmodelled, register
from silicast.scenario.answers.diagnose.model_gain import gain_in_model
from silicast.scenario.answers.diagnose.named import measured_kernel
from silicast.scenario.decode import Scenario
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
from silicast.tuning.swept import is_swept

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
        every += [_measured(scenario, one) for one in work.beside]
        return _answer(scenario, every[0], group_errors(every)[0])


def _measured(scenario: Scenario, one: DiagnoseWorkload | MeasuredTable) -> Measured:
    device, given = scenario.raw.device, one.measured_us
    assert device is not None
    values = given if isinstance(given, list) else [given]
    return measured_kernel(one.kernel, device, values, folder=scenario.folder)


def _answer(scenario: Scenario, one: Measured, error: GroupError | None) -> Answer:
    result = diagnose_measured(one, error)
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
        domain=_domain(one),
        warnings=[*ignored(scenario, *UNUSED), *result.warnings],
        why=_why(scenario, one, result),
    )


def _domain(one: Measured) -> Domain:
    return "in" if is_swept(one.op, one.device) else "near"


def _why(scenario: Scenario, one: Measured, result: Diagnosis) -> dict[str, Any]:
    data = diagnosis_data(result)
    why = {name: value for name, value in data.items() if name != "warnings"}
    why["device"] = one.device.name
    why["ran"] = why.pop("configuration")
    if result.faster is not None:
        why["configuration"] = result.faster.configuration.label
    model = scenario.raw.model
    if model is not None:
        tokens = dict(one.op.dims).get("tokens", 1)
        assert isinstance(tokens, int)
        why["model"] = gain_in_model(
            model, one.device.name, tokens, saved_us(result), folder=scenario.folder
        )
    return why
