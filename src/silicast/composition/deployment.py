"""One pool of identical replicas: a model on devices under an engine, with its host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from silicast.composition.engine import Engine
from silicast.core.errors import SilicastError
from silicast.hardware.device import Device
from silicast.hardware.host import Host
from silicast.workload.model import ModelConfig, Precision
from silicast.workload.plan import Plan


@final
@dataclass(frozen=True)
class Deployment:
    """What runs where.

    Attributes:
        power_w, clock_hz: limits the user set; None = the board's own.
        gpus_per_node: devices that share the fast link.
    """

    model: ModelConfig
    device: Device
    engine: Engine
    plan: Plan = Plan()
    precision: Precision | None = None
    host: Host = Host()
    gpus_per_node: int = 8
    power_w: float | None = None
    clock_hz: float | None = None

    def __post_init__(self) -> None:
        _check_plan(self.model, self.plan)


def _check_plan(model: ModelConfig, plan: Plan) -> None:
    """Refuses degrees that contradict the model or each other.

    Raises:
        SilicastError: names the field of the scenario.
    """
    if plan.pp > model.layers:
        raise SilicastError(
            f"pp = {plan.pp} stages for a model of {model.layers} layers",
            field="parallel.pp",
            hint=f"use at most {model.layers}",
        )
    if model.heads % plan.tp:
        divisors = [d for d in (1, 2, 4, 8, 16, 32, 64) if model.heads % d == 0]
        raise SilicastError(
            f"tp = {plan.tp} does not divide the {model.heads} attention heads",
            field="parallel.tp",
            hint=f"use one of {', '.join(map(str, divisors))}",
        )
    for name, degree in (("ep", plan.ep), ("cp", plan.cp), ("attention_dp", plan.attention_dp)):
        if degree > 1:
            raise SilicastError(
                f"{name} = {degree} in inference is not modelled",
                kind="not_yet",
                field=f"parallel.{name}",
                hint=f"leave {name} at 1",
            )
