"""Power and energy of a simulation, of boards whose power is modelled."""

from __future__ import annotations

import math
from collections.abc import Sequence

from silicast.composition.clock import power_w
from silicast.composition.step import step_model
from silicast.core.numerics import I64
from silicast.core.prediction import Z90, Quantity
from silicast.hardware.device import Device
from silicast.kernels import energy
from silicast.kernels.power import limits
from silicast.serving.fleet import Fleet, Pool
from silicast.serving.metrics import span_s
from silicast.serving.records import Records
from silicast.serving.step_mix import KINDS, breakdown_of, mix_of


def power(records: Records, fleet: Fleet) -> dict[str, tuple[float, float, float]]:
    """Average watts of a device from the first request to the last token, and joules of all
    devices for each request and output token, each with the least, which idle devices draw, and the
    most that power limits allow; nothing where the power of one is not modelled.

    Steps of a kind are taken as the few states that stand for them; devices that wait for requests
    are idle. Groups of attention_dp count as much as the busiest.
    """
    devices = [pool.deployment.machine.limited_device for pool in fleet.pools]
    if not all(limits(each) or energy.states_energy(each) for each in devices):
        return {}
    seconds, table, first, whole_j = span_s(records), records.log.table(), 0, 0.0
    for pool in fleet.pools:
        own = (table[:, 0] >= first) & (table[:, 0] < first + pool.count)
        whole_j += _watts(table[own], pool, seconds) * seconds * pool.gpus
        first += pool.count
    rows = records.finished
    machines = [(pool.deployment.machine, pool.gpus) for pool in fleet.pools]
    most_j = seconds * sum(_most_w(m.limited_device) * gpus for m, gpus in machines)
    least_j = seconds * sum(power_w(machine, seconds, 0.0) * gpus for machine, gpus in machines)
    shares = {
        "power_w": seconds * fleet.gpus,
        "energy_per_request_j": len(rows),
        "energy_per_output_token_j": int(records.requests.output_tokens[rows].sum()),
    }
    return {
        name: (whole_j / share, least_j / share, most_j / share) for name, share in shares.items()
    }


def _most_w(device: Device) -> float:
    """What its limit allows; of a design without one, nothing limits it."""
    if device.power_cap_w is None:
        return math.inf
    return device.power_cap_w


def _watts(table: I64, pool: Pool, seconds: float) -> float:
    """Of one device of a pool on average, from the steps of the pool."""
    model, kernels_j = step_model(pool.deployment), 0.0
    for kind in KINDS:
        if (mix := mix_of(table, kind, pool.spec.groups)) is not None:
            each = model.kernels_j(breakdown_of(model, mix).times)
            kernels_j += float((each * mix.weights).sum())
    # joules are of one device of every stage, of all replicas
    shares = pool.deployment.plan.pp * pool.count
    return power_w(pool.deployment.machine, seconds, kernels_j / shares)


def with_model_error(value: float, pools: Sequence[Pool], least: float, most: float) -> Quantity:
    """A power or an energy with the error of the model of power: where steps take longer, their
    power falls, and the energy stays about the same.

    Args:
        least: that idle devices draw; ``most``: that power limits allow.
    """
    spread = math.exp(Z90 * max(energy.model_log_sd(pool.deployment.device) for pool in pools))
    return Quantity(
        value, min(max(value / spread, least), value), max(min(value * spread, most), value)
    )
