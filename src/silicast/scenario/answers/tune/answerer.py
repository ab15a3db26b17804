"""Task ``tune``: tuned configurations of a model's experts or plain products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, final

from silicast.core.errors import SilicastError
from silicast.core.prediction import Domain, Quantity
from silicast.learning.configuration_ranking import shipped_ranker
from silicast.scenario.answer import Answer, answer
from silicast.scenario.answerer import Answerer, ignored, refuse_unmodelled, register
from silicast.scenario.decode import Scenario
from silicast.scenario.resolve import device_of, model_of
from silicast.scenario.schema import ParallelTable, PrecisionTable
from silicast.scenario.workloads import TuneWorkload
from silicast.tuning.files import SWEPT_FORMATS, engines
from silicast.tuning.plan import (
    BLOCK_SCALED,
    TunedFile,
    TuningPlan,
    plan_data,
    tune_experts,
    tune_products,
)

UNUSED = ("cluster", "host", "limits", "seed", "tier", "calibration", "router")


@register
@final
class TuneAnswerer(Answerer):
    """Metrics: ``tokens_N_us`` for each number of tokens, of all products that are tuned; ``why``
    has the files with their entries, and what an existing file leaves.
    """

    task: ClassVar[str] = "tune"

    def answer(self, scenario: Scenario) -> Answer:
        refuse_unmodelled(scenario, "speculative", "lora", "colocation", "pools", "links")
        plan = plan_of(scenario)
        return answer(
            metrics=_times(plan.files),
            bound={},
            tier="cross-device",
            domain=_domain(plan),
            warnings=[*ignored(scenario, *UNUSED), *plan.warnings],
            why=plan_data(plan),
        )


def plan_of(scenario: Scenario) -> TuningPlan:
    """The files that a scenario asks for.

    Raises:
        SilicastError: see :func:`~silicast.tuning.plan.tune_experts`; an
        existing file that
            cannot be read.
    """
    work, raw, engine = scenario.workload, scenario.raw, scenario.engine
    assert isinstance(work, TuneWorkload)
    existing = None if work.existing is None else scenario.folder / work.existing
    named = engines()[0] if engine is None else engine.name
    device, model = device_of(scenario), model_of(scenario)
    precision = raw.precision or PrecisionTable()
    if work.kernel == "gemm":
        if work.routing is not None:
            raise SilicastError(
                "is of experts alone", field="workload.routing", hint="leave it out"
            )
        return tune_products(
            model,
            device,
            named,
            dtype=precision.recipe or BLOCK_SCALED,
            tp=(raw.parallel.tp,),
            tokens=work.tokens,
            existing=existing,
        )
    return tune_experts(
        model, device, named, dtype=precision.experts or precision.recipe or "",
        tp=(_experts_degree(raw.parallel),), ep=raw.parallel.ep, tokens=work.tokens,
        existing=existing, compiler=work.compiler, routing=work.routing,
    )  # fmt: skip


def _experts_degree(parallel: ParallelTable) -> int:
    """The experts' tensor degree."""
    ranks = parallel.tp * parallel.attention_dp
    if ranks % parallel.ep:
        raise SilicastError(
            f"{parallel.ep} does not divide {ranks} ranks (tp x attention_dp)", field="parallel.ep"
        )
    return ranks // parallel.ep


def _times(files: Sequence[TunedFile]) -> dict[str, Quantity]:
    """Sums over files for each number of tokens."""
    sums: dict[str, list[float]] = {}
    for file in files:
        for each in file.entries:
            total = sums.setdefault(f"tokens_{each.tokens}_us", [0.0, 0.0, 0.0])
            for index, value in enumerate((each.estimate_us, each.p05_us, each.p95_us)):
                total[index] += value
    return {name: Quantity(*values) for name, values in sums.items()}


def _domain(plan: TuningPlan) -> Domain:
    swept = plan.device in shipped_ranker().card.devices
    return "in" if swept and plan.dtype in SWEPT_FORMATS else "near"
