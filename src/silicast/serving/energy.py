"""Power and energy of a simulation, of boards whose power is modelled."""

from __future__ import annotations

import math

from silicast.composition.clock import power_w
from silicast.composition.deployment import Deployment
from silicast.composition.step import step_model
from silicast.core.prediction import Z90, Quantity
from silicast.kernels import energy
from silicast.kernels.physics import load_physics
from silicast.kernels.power import limits
from silicast.serving.metrics import span_s
from silicast.serving.records import Records
from silicast.serving.step_mix import KINDS, breakdown_of, mix_of


def power(records: Records, deployment: Deployment, groups: int = 1) -> dict[str, float]:
    """Average watts of a device from the first request to the last token, and joules of all
    devices for each request and output token; nothing where power is not modelled.

    Steps of a kind are taken as the few states that stand for them; devices that wait for requests
    are idle. Groups of attention_dp count as much as the busiest.
    """
    machine, plan = deployment.machine, deployment.plan
    if not limits(machine.limited_device):
        return {}
    model, table = step_model(deployment), records.log.table()
    core_j = memory_j = 0.0
    for kind in KINDS:
        mix = mix_of(table, kind, groups)
        if mix is None:
            continue
        times = breakdown_of(model, mix).times
        for place, count in enumerate(mix.weights.tolist()):
            cores, memory = model.joules(times, place)
            core_j, memory_j = core_j + count * cores, memory_j + count * memory
    rows = records.finished
    replicas = max(len(set(records.replica[rows].tolist())), 1)
    seconds = span_s(records)
    # joules are of one device of every stage, of all replicas
    each = plan.pp * replicas
    watts = power_w(machine, seconds, core_j / each, memory_j / each)
    whole_j = watts * seconds * plan.gpus * replicas
    return {
        "power_w": watts,
        "energy_per_request_j": whole_j / len(rows),
        "energy_per_output_token_j": whole_j / int(records.requests.output_tokens[rows].sum()),
    }


def with_model_error(value: Quantity, deployment: Deployment, most: float = math.inf) -> Quantity:
    """An energy or a power with the error of the model of power on top of that of times.

    Args:
        most: that a limit of the board allows.
    """
    constants = load_physics(energy.PHYSICS).constants(deployment.device.architecture)
    below, above = (
        math.hypot(math.log(end / value.estimate), Z90 * constants["log_sd"])
        for end in (value.p05, value.p95)
    )
    high = max(min(value.estimate * math.exp(above), most), value.estimate)
    return Quantity(value.estimate, value.estimate * math.exp(-below), high)
