"""Power and energy of a simulation, of boards whose power is modelled."""

from __future__ import annotations

import math
from collections.abc import Sequence

from silicast.composition.power.clock import drawn, power_w
from silicast.composition.power.energy import is_modelled, limit_w
from silicast.composition.step.step import step_model
from silicast.core.numerics import I64
from silicast.kernels.physics.energy import model_log_sd
from silicast.serving.simulation.fleet import Fleet, ReplicaPool
from silicast.serving.statistics.metrics import served, span_s
from silicast.serving.statistics.records import Records
from silicast.serving.statistics.step_mix import KINDS, breakdown_of, mix_of


def power(records: Records, fleet: Fleet) -> dict[str, tuple[float, float, float]]:
    """Average watts of a device from the first request to the last token, and joules of all
    devices for each request and output token, each with the least, which idle devices draw, and the
    most that power limits allow (joules of designs: no most); nothing where the power of one is not
    modelled.

    Steps of a kind are taken as the few states that stand for them; devices that wait for requests
    are idle. Groups of attention_dp count as much as the busiest.
    """
    if not all(is_modelled(pool.deployment.machine) for pool in fleet.pools):
        return {}
    seconds = span_s(records)
    whole_w, whole_j = 0.0, 0.0
    for pool, kernels_j in zip(fleet.pools, kernels_j_of(records, fleet), strict=True):
        each = drawn(pool.deployment.machine, seconds, kernels_j)
        whole_w += each.power_w * pool.gpus
        whole_j += each.energy_j * pool.gpus
    rows = served(records)
    machines = [(pool.deployment.machine, pool.gpus) for pool in fleet.pools]
    limit_j = seconds * sum(limit_w(m) * gpus for m, gpus in machines)
    # A design that needs more than we think takes longer under its limit; it draws all of it.
    builds = any(machine.device.structure is not None for machine, _ in machines)
    most_j = math.inf if builds else limit_j
    least_j = seconds * sum(power_w(machine, seconds, 0.0) * gpus for machine, gpus in machines)
    mean_w = whole_w / fleet.gpus
    each_s = seconds * fleet.gpus
    shares = {
        "energy_per_request_j": max(len(rows), 1),
        "energy_per_output_token_j": max(int(records.requests.output_tokens[rows].sum()), 1),
    }
    of_one = {"power_w": (mean_w, least_j / each_s, limit_j / each_s)}
    return of_one | {
        name: (whole_j / share, least_j / share, most_j / share) for name, share in shares.items()
    }


def kernels_j_of(records: Records, fleet: Fleet) -> list[float]:
    """Joules that kernels of one device of each pool take beyond what it draws while it waits."""
    table, first, joules = records.steps(), 0, []
    for pool in fleet.pools:
        of_pool = (table[:, 0] >= first) & (table[:, 0] < first + pool.count)
        joules.append(_kernels_j(table[of_pool], pool))
        first += pool.count
    return joules


def _kernels_j(table: I64, pool: ReplicaPool) -> float:
    """Of one device of a pool, from the steps of the pool."""
    model, kernels_j = step_model(pool.deployment), 0.0
    for kind in KINDS:
        if (mix := mix_of(table, kind, pool.spec.groups)) is not None:
            each = model.kernels_j(breakdown_of(model, mix).times)
            kernels_j += float((each * mix.weights).sum())
    # joules are of one device of every stage, of all replicas
    return kernels_j / (pool.deployment.plan.pp * pool.count)


def log_sd(pools: Sequence[ReplicaPool], waiting_share: float) -> float:
    """Of the model of power, where pools err together: that of the least known."""
    return max(model_log_sd(pool.deployment.device, waiting_share) for pool in pools)
