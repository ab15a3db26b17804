"""Task ``serving``: requests on a deployment, simulated."""

from __future__ import annotations

from typing import ClassVar, final

from silicast.core.errors import unmodelled
from silicast.scenario.answer import Answer
from silicast.scenario.answerer import Answerer, register
from silicast.scenario.decode import Scenario
from silicast.scenario.deployments import deployment_of
from silicast.scenario.simulated import Simulated
from silicast.scenario.traffic import traffic_of
from silicast.scenario.workloads import ServingWorkload
from silicast.serving.deploy import replica_spec
from silicast.serving.metrics import rates, statistics_ms
from silicast.serving.records import Records
from silicast.serving.simulation import Simulation
from silicast.serving.step_mix import columns


@register
@final
class ServingAnswerer(Answerer):
    """Metrics: ``ttft``, ``tpot``, ``itl`` and ``e2e`` (mean, p50, p90, p95, p99), throughput,
    preemptions and use of the KV cache.
    """

    task: ClassVar[str] = "serving"

    def answer(self, scenario: Scenario) -> Answer:
        """See :class:`~silicast.scenario.answerer.Answerer`."""
        work = scenario.workload
        assert isinstance(work, ServingWorkload)
        deployment, warnings = deployment_of(scenario)
        spec = replica_spec(deployment)
        traffic = traffic_of(work, scenario.raw.seed or 0, scenario.folder)
        requests = traffic.requests
        if requests.content is not None:
            raise unmodelled(
                "prompts that begin alike",
                "workload",
                "prefix.cache = false has none of them reused",
            )

        def metrics_of(records: Records) -> dict[str, float]:
            return metrics_of_run(records, spec.limits.blocks, deployment.plan.gpus)

        found = Simulated(deployment, spec, lambda specs: Simulation(requests, specs).run())
        return found.answer(metrics_of, [*warnings, *traffic.remarks])


def metrics_of_run(records: Records, blocks: int, gpus: int) -> dict[str, float]:
    """Every metric of a simulation."""
    found = {**statistics_ms(records), **rates(records)}
    found["output_tokens_per_s_per_gpu"] = found["output_tokens_per_s"] / gpus
    found["preemptions"] = float(records.sequences.preemptions.sum())
    start, end, used = columns(records.log.table(), "start_ns", "end_ns", "blocks")
    spans = end - start
    found["kv_utilisation"] = float((used * spans).sum() / max(int(spans.sum()), 1) / blocks)
    return found
