"""A scenario's deployment, compiled once for many questions about single steps and batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from silicast.composition.memory.memory_advice import advice
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.static_batch import batch_memory, gigabytes
from silicast.composition.prices.batch_price import batch_price
from silicast.composition.prices.step_predictor import StepPredictor
from silicast.core.errors import SilicastError
from silicast.core.plain_data import check_tree
from silicast.scenario.answer import Belief
from silicast.scenario.answers.inference.answerer import cached_of, check_generates, lengths_of
from silicast.scenario.decode import decode, with_workload
from silicast.scenario.resolving.deployments import deployment_of
from silicast.scenario.road import refuse_coming
from silicast.scenario.workloads import InferenceWorkload

MILLI = 1e3
ONE_STEP = {"batch": 1, "input_len": 1, "output_len": 1}


@final
class BatchMetrics(dict[str, Belief]):
    """Metrics of a static batch, by name.

    Attributes:
        warnings: that it does not fit in memory, and what would.
    """

    def __init__(self, metrics: Mapping[str, Belief], warnings: tuple[str, ...] = ()) -> None:
        super().__init__(metrics)
        self.warnings = warnings


@final
class KnownDeployment:
    """What runs where, with the tables that its steps are read from.

    Args:
        tree: fields of a scenario, without a task and a workload.

    Attributes:
        step: seconds of single steps; ``warnings``: what was assumed.

    Raises:
        SilicastError: as of :func:`.deployment_of`; or there are several pools.
    """

    def __init__(self, tree: dict[str, Any]) -> None:
        for name in ("task", "workload", "pools", "speculative"):
            if name in tree:
                raise SilicastError(
                    "is not of a single deployment",
                    field=name,
                    hint="state model, device, engine, parallel",
                )
        whole = {**tree, "task": "inference", "workload": ONE_STEP}
        check_tree(whole)
        refuse_coming(whole)
        self._scenario = decode(whole, checked=True)
        deployment, warnings = deployment_of(self._scenario)
        self.deployment: Deployment = deployment
        self.step = StepPredictor(deployment, tuple(warnings))

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.step.warnings

    def batch(self, workload: dict[str, Any]) -> BatchMetrics:
        """Metrics of a static batch, by name, as task ``inference`` has them.

        Args:
            workload: that of the task.

        Raises:
            SilicastError: as of task ``inference``; or the engine runs a model's code pass by pass.
        """
        if self.deployment.engine.kind != "serving":
            raise SilicastError(
                f"{self.deployment.engine.name} runs a model's code pass by pass",
                field="engine",
                hint="silicast infer composes its passes",
            )
        work = with_workload(self._scenario, workload)
        assert isinstance(work, InferenceWorkload)
        check_generates(self.deployment.model, work)
        lengths, past = lengths_of(work), cached_of(work, self.deployment.model)
        price = batch_price(self.step.prices, lengths, work.output_len, past)
        named = {
            "prefill_ms": price.prefill_s,
            "decode_step_ms": price.decode_step_s,
            "total_ms": price.total_s,
        }
        metrics = {
            name: Belief.from_quantity(value.times(MILLI))
            for name, value in named.items()
            if value is not None
        }
        memory = batch_memory(self.deployment, lengths, work.output_len, cached=past)
        metrics["memory_gb"] = Belief.from_quantity(gigabytes(memory))
        if not memory.excess:
            return BatchMetrics(metrics)
        line = advice(self.deployment, lengths, work.output_len, memory, cached=past)
        return BatchMetrics(metrics, (line,))
