"""Task ``serving``: requests on a deployment, simulated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from silicast.composition.breakdown import Breakdown
from silicast.composition.deployment import Deployment
from silicast.composition.states import BatchStates
from silicast.composition.step_tables import one_state
from silicast.core.errors import SilicastError
from silicast.core.prediction import Prediction, Quantity
from silicast.scenario.answer import Answer, answer, why_tree
from silicast.scenario.answerer import Answerer, not_yet, register
from silicast.scenario.decode import Scenario
from silicast.scenario.deployments import description, pools_of
from silicast.scenario.served import Served
from silicast.scenario.workloads import ServingWorkload
from silicast.serving.deploy import replica_spec
from silicast.serving.records import Records
from silicast.serving.requests import Requests

if TYPE_CHECKING:
    from silicast.composition.trace_events import Trace

PER_CLIENT = 10
"""Requests of each client where a scenario states no number."""
OPEN = 1000


@register
@final
class ServingAnswerer(Answerer):
    """Metrics: ``ttft``, ``tpot``, ``itl`` and ``e2e`` (mean, p50, p90, p95, p99), throughput,
    preemptions and use of the KV cache.
    """

    task: ClassVar[str] = "serving"

    def answer(self, scenario: Scenario) -> Answer:
        """See :class:`~silicast.scenario.answerer.Answerer`."""
        return prepared(scenario).answer()

    def trace(self, scenario: Scenario) -> Trace:
        """See :class:`~silicast.scenario.answerer.Answerer`: steps and requests."""
        served = prepared(scenario).served
        served.simulate()
        return served.trace()


@final
class Prepared:
    """A serving scenario, ready to run.

    Attributes:
        served: its requests on its replicas; what was observed once :meth:`answer` was called.
    """

    def __init__(self, served: Served, warnings: list[str]) -> None:
        self.served, self._warnings = served, warnings

    def answer(self) -> Answer:
        """Simulates, and answers."""
        self.served.simulate()
        return _answer(self.served, self._warnings)


def prepared(scenario: Scenario) -> Prepared:
    """Requests and replicas of a scenario.

    Raises:
        SilicastError: it cannot be simulated.
    """
    work = scenario.workload
    assert isinstance(work, ServingWorkload)
    (pool, *others) = pools_of(scenario).values()
    if others:
        raise not_yet("several pools", "pools")
    cluster = scenario.raw.cluster
    served = Served(
        pool.deployment, replica_spec(pool.deployment), requests_of(work, scenario.raw.seed or 0),
        pool.count, work.slo, cluster.price_per_gpu_hour if cluster else None,
    )  # fmt: skip
    return Prepared(served, [*pool.warnings])


def requests_of(work: ServingWorkload, seed: int) -> Requests:
    """The requests of a workload."""
    rng = np.random.default_rng(seed)
    clients = work.arrival.concurrency or 0
    count = work.requests or PER_CLIENT * clients or OPEN
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


def _answer(served: Served, warnings: list[str]) -> Answer:
    records, deployment = served.records, served.deployment
    decode, prefill = _typical(records, deployment)
    metrics: dict[str, Quantity] = {}
    error = {"ttft": prefill, "tpot": decode, "itl": decode, "e2e": decode}
    slower = _spread(1.0, decode)
    for name, value in served.metrics_of(records).items():
        if (latency := name.partition("_")[0]) in error:
            metrics[name] = _spread(value, error[latency])
        elif "_per_s" in name:
            metrics[name] = Quantity(value, value / slower.p95, value / slower.p05)
        else:
            metrics[name] = Quantity.exact(value)
    domain = "in" if decode.domain == prefill.domain == "in" else decode.domain
    why: dict[str, Any] = why_tree(decode.part) | served.why()
    why["deployment"] = description(
        deployment.machine, deployment.model.name, served.gpus, deployment.precision.label
    )
    return answer(
        metrics=metrics, bound={}, tier=decode.tier, domain=domain,
        warnings=[*decode.warnings, *warnings], why=why,
    )  # fmt: skip


def _spread(value: float, like: Prediction) -> Quantity:
    """A value whose relative error is that of a predicted time."""
    time = like.latency_s
    return Quantity(value, value * time.p05 / time.estimate, value * time.p95 / time.estimate)


def _typical(records: Records, deployment: Deployment) -> tuple[Prediction, Prediction]:
    """Predictions of a decode step and of a prefill as they occurred in the middle."""
    from silicast.composition.step import step_model

    requests, table = records.requests, records.log.table()
    weights = (table[:, 2] - table[:, 1]) * (table[:, 4] > 0)
    decoding = int((table[:, 4] * weights).sum() / max(int(weights.sum()), 1)) or 1
    each = max(decoding // deployment.plan.attention_dp, 1)
    prompt = int(np.median(requests.input_tokens))
    cached = np.full(each, prompt + int(np.median(requests.output_tokens)) // 2)
    model = step_model(deployment)

    def predicted(state: BatchStates) -> Prediction:
        times = model.steps(state)
        times = model.at_clock(times, state, model.held_clock(times, 0), np.zeros(1, np.int64))
        found = Breakdown(model, times, np.ones(1))
        return found.prediction(found.part("step"))

    none = np.zeros(0, dtype=np.int64)
    return predicted(one_state((), cached, -1)), predicted(one_state([(prompt, prompt)], none, -1))
