"""What follows from the times of a static batch: throughput, energy and cost."""

from __future__ import annotations

from collections.abc import Iterator

from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.static_batch import StaticBatch
from silicast.composition.power.energy import work_energy
from silicast.core.prediction import Quantity
from silicast.scenario.answer import Belief

HOUR_S = 3600.0
MILLION = 1e6


def figures_of(
    static_batch: StaticBatch,
    deployment: Deployment,
    sequences: int,
    output_len: int,
    price_per_gpu_hour: float | None = None,
) -> dict[str, Quantity]:
    """Metrics of the whole batch, all devices of the deployment together where the name says
    nothing else.

    Models that generate nothing are counted in sequences, others in output tokens.

    Args:
        price_per_gpu_hour: None = not stated, and no cost.
    """
    devices, time_s = deployment.plan.gpus, static_batch.total.latency_s
    what, units = ("output_token", sequences * output_len)
    if not deployment.model.causal and output_len == 1:
        what, units = ("sequence", sequences)
    metrics = dict(_rates(f"{what}s", units, time_s, devices))
    energy = work_energy(
        deployment.machine, time_s, static_batch.kernels_j() / deployment.plan.pp, devices
    )
    if energy is not None:
        metrics["energy_j"], metrics["power_w"] = energy.energy_j, energy.power_w
        metrics[f"energy_per_{what}_j"] = energy.energy_j.times(1.0 / units)
    if price_per_gpu_hour is not None:
        rate = metrics[f"{what}s_per_s"]
        metrics[f"cost_per_million_{what}s"] = cost_per_million(rate, devices, price_per_gpu_hour)
    return metrics


def cost_per_million(
    rate_per_s: Quantity | Belief, devices: int, price_per_gpu_hour: float
) -> Quantity:
    """What a million of what comes at a rate costs, in the currency of the price.

    >>> cost_per_million(Quantity.exact(1000.0), 4, 9.0).estimate
    10.0
    """
    whole = price_per_gpu_hour * devices / HOUR_S * MILLION
    return Quantity(whole / rate_per_s.estimate, whole / rate_per_s.p95, whole / rate_per_s.p05)


def _rates(what: str, units: int, time_s: Quantity, devices: int) -> Iterator[tuple[str, Quantity]]:
    rate = Quantity(units / time_s.estimate, units / time_s.p95, units / time_s.p05)
    yield f"{what}_per_s", rate
    yield f"{what}_per_s_per_gpu", rate.times(1.0 / devices)
