"""Physical limits of what is served, known before anything is simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from silicast.composition.prices.step_tables import one_state
from silicast.composition.step.step import step_model
from silicast.composition.timeline.breakdown import Breakdown
from silicast.serving.simulation.fleet import Fleet
from silicast.serving.simulation.replica import Role
from silicast.serving.traffic.requests import Requests

if TYPE_CHECKING:
    from silicast.composition.prices.pass_prices import PassPrices

STATISTICS = ("mean", "p50", "p90", "p95", "p99")


def latency_bounds(fleet: Fleet, requests: Requests, shortest: int) -> dict[str, float]:
    """Metric -> its physical limit: the shortest prompt alone, one sequence in decode alone, all of
    whose drafts are kept.

    Args:
        shortest: tokens of a prompt that must be computed at least.
    """
    none = np.zeros(0, dtype=np.int64)
    prompt = _bound_ms(fleet, "decode", [(shortest, shortest)], none)
    token = _bound_ms(fleet, "prefill", (), np.array([int(requests.input_tokens.min())]))
    step = token
    accepted = next((pool.spec.accepted for pool in fleet.pools if pool.spec.accepted), None)
    if accepted is not None:
        token /= 1 + len(accepted.rates)
    least = {"ttft": prompt, "tpot": token, "itl": step}
    least["e2e"] = prompt + (int(requests.output_tokens.min()) - 1) * token
    return {
        f"{name}_{statistic}_ms": value for name, value in least.items() for statistic in STATISTICS
    }


def rate_bounds(
    fleet: Fleet, requests: Requests, latencies: Mapping[str, float]
) -> dict[str, float]:
    """The most tokens a second of clients that wait for their answers: each has a token in the time
    of a token alone at best, the first of them in that of a prompt.
    """
    if not requests.concurrency:
        return {}
    first, token = (latencies[f"{name}_mean_ms"] * 1e-3 for name in ("ttft", "tpot"))
    outputs = requests.output_tokens
    rates = [
        n / max(first + (n - 1) * token, 1e-12) for n in (int(outputs.min()), int(outputs.max()))
    ]
    most = requests.concurrency * max(rates)
    return {"output_tokens_per_s": most, "output_tokens_per_s_per_gpu": most / fleet.gpus}


def _bound_ms(
    fleet: Fleet, unless: Role, prefill: Sequence[tuple[int, int]], cached: np.ndarray[Any, Any]
) -> float:
    """Of a step, on the quickest pool that has not the role ``unless``."""
    state, bounds_ms = one_state(prefill, cached, -1), []
    for pool in fleet.pools:
        if pool.spec.policy.one_pass:
            if prefill:
                passes = pass_prices_of(pool.spec.prices)
                step = passes.breakdown(len(prefill), prefill[0][1], 1.0).part("step")
                bounds_ms.append(step.bound_ps * 1e-9)
        elif pool.spec.role != unless:
            model = step_model(pool.deployment)
            step = Breakdown(model, model.steps(state), np.ones(1)).part("step")
            bounds_ms.append(step.bound_ps * 1e-9)
    return min(bounds_ms, default=0.0)


def pass_prices_of(prices: object) -> PassPrices:
    """Prices of an engine that computes whole requests; only such ones import how."""
    from silicast.composition.prices.pass_prices import PassPrices

    assert isinstance(prices, PassPrices)
    return prices
