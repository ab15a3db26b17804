"""One pool of identical replicas: a model under a plan, on devices driven by an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, final

from silicast.composition.engines.board_defaults import captured_sizes, chunk_tokens_of
from silicast.composition.engines.engine import Engine
from silicast.composition.step.machine import Machine
from silicast.core.errors import SilicastError
from silicast.hardware.device import Device
from silicast.workload.models.model import ModelConfig, Precision
from silicast.workload.transformers.plan import ParallelPolicy, Plan


def busiest_group(input_lens: Sequence[int], groups: int) -> Sequence[int]:
    """Sequences of the group with the most tokens, where groups take turns in choosing; all wait
    for it at every layer of experts.

    >>> busiest_group([100, 700, 20, 30], 2)
    [700, 30]
    """
    if groups == 1:
        return input_lens
    shares = [list(input_lens[first::groups]) for first in range(groups)]
    return max(shares, key=sum)


@final
@dataclass(frozen=True)
class Deployment:
    """What runs where.

    Attributes:
        plan: the degrees that the user states.
        policy: what the engine decides beside them; follows from the other fields.
    """

    machine: Machine
    model: ModelConfig
    plan: Plan
    precision: Precision
    policy: ParallelPolicy = field(init=False)

    def __post_init__(self) -> None:
        """Asks the engine for its policy."""
        policy = policy_of(self.machine, self.model, self.plan, self.precision)
        object.__setattr__(self, "policy", policy)

    @staticmethod
    def from_model(
        model: ModelConfig,
        device: Device,
        engine: Engine,
        plan: Plan = Plan(),
        precision: Precision | None = None,
        **machine: Any,
    ) -> Deployment:
        """A deployment from its parts.

        Args:
            precision: None = the checkpoint's.
            machine: further fields of the :class:`~silicast.composition.step.machine.Machine`.
        """
        where = Machine(device, engine, **machine)
        return Deployment(where, model, plan, precision or model.default_precision)

    @property
    def device(self) -> Device:
        return self.machine.device

    @property
    def engine(self) -> Engine:
        return self.machine.engine


def policy_of(
    machine: Machine, model: ModelConfig, plan: Plan, precision: Precision
) -> ParallelPolicy:
    """What the machine's engine decides for a model under a plan.

    Tokens go to their experts' ranks one by one where there are more ranks than a token has
    choices, or beyond the links of a domain; otherwise a gather moves no more than that.
    """
    engine, ranks = machine.engine, plan.tp * plan.attention_dp
    all_to_all = False
    if model.moe is not None and ranks > 1:
        all_to_all = ranks > model.moe.topk or not machine.links.within_domain(ranks)
    launch, multiples = engine.launch_memory if model.moe is not None else None, (1, 1)
    if launch is not None:
        formats = launch.expert_multiples.get(machine.device.architecture, {})
        multiples = formats.get(precision.expert.weights, (1, 1))
    host_layers, expert_layers, host_table = _in_host_memory(machine, model, plan)
    return ParallelPolicy(
        gathers_dense=engine.parallel.gathers_dense,
        extra_layers=engine.parallel.extra_layers,
        all_to_all=all_to_all,
        mixes_prefill=engine.parallel.mixes_prefill,
        captured=captured_sizes(engine, machine.device, plan.tp),
        chunk_tokens=chunk_tokens_of(engine, machine.device),
        expert_multiples=multiples,
        host_layers=host_layers,
        host_expert_layers=expert_layers,
        host_table=host_table,
    )


def _in_host_memory(machine: Machine, model: ModelConfig, plan: Plan) -> tuple[int, int, bool]:
    """Of a model's first layers, those that the host holds whole, and those of whose experts; and
    whether it holds the table of embeddings. What shares the host's memory holds all itself.
    """
    offload, device = machine.engine.memory.offload, machine.device
    if offload is None:
        return 0, 0, False
    layers, experts = offload.host_layers(model.layers), min(offload.expert_layers, model.layers)
    if experts and model.moe is None:
        raise SilicastError(
            f"{model.name} has no experts",
            kind="unsupported",
            field="engine.options.n_cpu_moe",
            hint="leave it out, or state n_gpu_layers",
        )
    shares = "pcie" not in device.links or device.dram.technology.startswith("LPDDR")
    if (layers or experts) and (shares or machine.in_line):
        raise SilicastError(
            f"{device.name} computes in the host's memory: all layers are there",
            kind="unsupported",
            field=f"engine.options.{'n_gpu_layers' if layers else 'n_cpu_moe'}",
            hint="leave it out",
        )
    if (layers or experts) and plan.gpus > 1:
        raise SilicastError(
            "layers in the host's memory are modelled beside one device",
            kind="not_yet",
            field="parallel",
            hint="one device, or all layers on the devices",
        )
    return layers, experts, offload.table and not (shares or machine.in_line)
