"""Task ``serving``: requests on a deployment, simulated."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer
from silicast.scenario.answerer import Answerer, register
from silicast.scenario.decode import Scenario
from silicast.scenario.deployments import deployment_of
from silicast.scenario.simulated import Simulated
from silicast.scenario.workloads import ServingWorkload
from silicast.serving.deploy import replica_spec
from silicast.serving.metrics import rates, statistics_ms
from silicast.serving.records import Records
from silicast.serving.requests import Requests
from silicast.serving.simulation import Simulation
from silicast.serving.step_mix import columns

PER_CLIENT = 10
"""Requests of each client where a scenario states no number."""


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
        requests = requests_of(work, scenario.raw.seed or 0)

        def metrics_of(records: Records) -> dict[str, float]:
            return metrics_of_run(records, spec.limits.blocks, deployment.plan.gpus)

        found = Simulated(deployment, spec, lambda specs: Simulation(requests, specs).run())
        return found.answer(metrics_of, warnings)


def metrics_of_run(records: Records, blocks: int, gpus: int) -> dict[str, float]:
    """Every metric of a simulation."""
    found = {**statistics_ms(records), **rates(records)}
    found["output_tokens_per_s_per_gpu"] = found["output_tokens_per_s"] / gpus
    found["preemptions"] = float(records.sequences.preemptions.sum())
    start, end, used = columns(records.log.table(), "start_ns", "end_ns", "blocks")
    spans = end - start
    found["kv_utilisation"] = float((used * spans).sum() / max(int(spans.sum()), 1) / blocks)
    return found


def requests_of(work: ServingWorkload, seed: int) -> Requests:
    """The requests of a workload."""
    rng = np.random.default_rng(seed)
    clients = work.arrival.concurrency or 0
    count = work.requests or max(PER_CLIENT * clients, 1)
    if not isinstance(work.input_len, int) or not isinstance(work.output_len, int):
        raise SilicastError("distributions", kind="not_yet", field="workload.input_len")
    lengths = []
    for longest in (work.input_len, work.output_len):
        low = max(int(longest * (1.0 if work.range_ratio is None else work.range_ratio)), 1)
        lengths.append(rng.integers(low, longest + 1, count))
    if work.arrival.kind == "closed":
        arrival = np.zeros(count, dtype=np.int64)
    elif work.arrival.kind == "poisson":
        gaps = rng.exponential(1.0 / (work.arrival.rate_per_s or 1.0), count)
        arrival = np.cumsum(gaps * 1e9).astype(np.int64)
    else:
        raise SilicastError("this arrival", kind="not_yet", field="workload.arrival.kind")
    return Requests.of(arrival, lengths[0], lengths[1], clients)
