"""A scenario's deployment, compiled once for many questions about single steps and batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

from silicast.composition.memory.memory_advice import advice
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.static_batch import BatchTimes, batch_memory, batch_times
from silicast.composition.prices.batch_price import batch_price
from silicast.composition.prices.step_predictor import StepPredictor
from silicast.core.errors import SilicastError
from silicast.core.plain_data import check_tree
from silicast.scenario.answer import Belief
from silicast.scenario.answers.inference.answerer import (
    cached_of,
    check_generates,
    lengths_of,
    memory_gb,
    parts_of,
    states_of,
)
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
        warnings: that it does not fit in memory, and what would; that files of weights known by
            the name of their mix differ in size.
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
        lengths, output_len, past = self._sizes(workload)
        times = batch_price(self.step.prices, lengths, output_len, past)
        return self._metrics(times, lengths, output_len, past)

    def batches(self, workloads: Sequence[dict[str, Any]]) -> list[BatchMetrics]:
        """The metrics of task ``inference`` itself of many static batches, evaluated together.

        Args:
            workloads: of each batch, that of the task.

        Raises:
            SilicastError: as :meth:`batch`; of a workload, names the row.
        """
        sizes = []
        for number, workload in enumerate(workloads):
            try:
                sizes.append(self._sizes(workload))
            except SilicastError as error:
                of_row = error.field.startswith("workload")
                raise (error.at(f"rows[{number}]") if of_row else error) from None
        metrics: list[BatchMetrics] = []
        for part in parts_of(sizes, lambda batch: states_of(len(batch[0]), batch[1])):
            batches = [(lengths, output_len) for lengths, output_len, _ in part]
            times = batch_times(self.deployment, batches, [past for _, _, past in part])
            metrics += [
                self._metrics(each, *batch) for batch, each in zip(part, times, strict=True)
            ]
        return metrics

    def _sizes(self, workload: dict[str, Any]) -> tuple[list[int], int, int]:
        """Prompts of a batch, tokens to generate, and tokens before the prompts.

        Raises:
            SilicastError: as :meth:`batch`.
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
        return lengths_of(work), work.output_len, cached_of(work, self.deployment.model)

    def _metrics(
        self, times: BatchTimes, lengths: list[int], output_len: int, past: int
    ) -> BatchMetrics:
        """Times by name, and the memory of the batch."""
        named = (
            ("prefill_ms", times.prefill),
            ("decode_step_ms", times.decode_step),
            ("total_ms", times.total),
        )
        metrics = {
            name: Belief.from_quantity(value.times(MILLI))
            for name, value in named
            if value is not None
        }
        memory = batch_memory(self.deployment, lengths, output_len, cached=past)
        size, remarks = memory_gb(memory, self.deployment)
        metrics["memory_gb"] = Belief.from_quantity(size)
        if memory.excess:
            line = advice(self.deployment, lengths, output_len, memory, cached=past)
            remarks = [line, *remarks]
        return BatchMetrics(metrics, tuple(remarks))
