"""One pool of identical replicas: a model under a plan, on devices driven by an engine; what the
engine sets by the board, and the copies of experts that it keeps so that ranks share them evenly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, final

import numpy as np

from silicast.composition.engines.engine import BoardTable, Engine, ServingTable
from silicast.composition.engines.host_copies import link_bytes_per_s
from silicast.composition.step.machine import Machine
from silicast.core.errors import SilicastError, unmodelled, unsupported
from silicast.hardware.device import Device
from silicast.kernels.experts.routing import busiest_loads
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

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Remembered: tables of what is known of deployments ask for it again and again."""
        return hash((self.machine, self.model, self.plan, self.precision, self.policy))

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
        cuts_encoder=engine.parallel.encoder == "weights",
        extra_layers=engine.parallel.extra_layers,
        all_to_all=all_to_all,
        mixes_prefill=engine.parallel.mixes_prefill,
        captured=captured_sizes(engine, machine.device, plan.tp),
        chunk_tokens=chunk_tokens_of(engine, machine.device),
        expert_multiples=multiples,
        host_layers=host_layers,
        host_expert_layers=expert_layers,
        host_table=host_table,
        host_bytes=_host_bytes(machine),
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
        raise unsupported(
            f"{model.name} has no experts",
            "engine.options.n_cpu_moe",
            "leave it out, or state n_gpu_layers",
        )
    shares = "pcie" not in device.links or device.dram.technology.startswith("LPDDR")
    if (layers or experts) and (shares or machine.in_line):
        raise unsupported(
            f"{device.name} computes in the host's memory: all layers are there",
            f"engine.options.{'n_gpu_layers' if layers else 'n_cpu_moe'}",
            "leave it out",
        )
    if (layers or experts) and plan.gpus > 1:
        raise unmodelled(
            "layers in the host's memory are modelled beside one device",
            "parallel",
            "one device, or all layers on the devices",
        )
    return layers, experts, offload.table and not (shares or machine.in_line)


def _host_bytes(machine: Machine) -> int:
    """Of a rank's weights, bytes that the host holds.

    Raises:
        SilicastError: no link is known over which the device reads them.
    """
    table = machine.engine.memory.host_weights
    if table is None or not table.gib:
        return 0
    try:
        link_bytes_per_s(machine)
    except SilicastError as error:
        raise unsupported(
            error.message,
            "engine.options.cpu_offload_gb",
            "leave it out, or state host.link_gb_per_s",
        ) from None
    return round(table.gib * GIB)


GIB = float(1 << 30)


def board_of(table: ServingTable, device: Device, tp: int = 1) -> BoardTable:
    """The defaults for a device under a tensor-parallel degree: of the last entry about them."""
    board_table = BoardTable(0.0)
    for board in table.boards:
        if device.dram.capacity_bytes < board.from_gib * GIB or tp < board.from_tp:
            continue
        if board.only_on and not device.name.startswith(tuple(board.only_on)):
            continue
        if not device.name.startswith(tuple(board.not_on)):
            board_table = board
    return board_table


def chunk_tokens_of(engine: Engine, device: Device) -> int:
    """Most new tokens of one step; 0 = no limit."""
    chunk_tokens, table = engine.memory.prefill_chunk_tokens, engine.serving
    if chunk_tokens or table is None:
        return chunk_tokens
    return board_of(table, device).step_tokens or table.step_tokens


def captured_sizes(engine: Engine, device: Device, tp: int) -> tuple[int, ...]:
    """Batch sizes that graphs are captured for, on a device under a tensor-parallel degree.

    >>> from silicast.composition.engines.engine import find_engine
    >>> from silicast.hardware.catalog import find_device
    >>> sglang, board = find_engine("sglang"), find_device("RTX 4090")
    >>> [captured_sizes(sglang, board, tp)[-1] for tp in (1, 4)]
    [48, 160]
    """
    sizes, table = engine.launch.graph_batch_sizes, engine.serving
    most = board_of(table, device, tp).graph_rows if table is not None else 0
    return tuple(size for size in sizes if not most or size <= most)


def with_copies(model: ModelConfig, plan: Plan, engine: Engine) -> tuple[ModelConfig, list[str]]:
    """The model with the copies of experts that the engine's options state, and what was assumed.

    Where none are stated and ranks cannot share the experts evenly, engines do not start without:
    the fewest copies that let them are taken.

    Raises:
        SilicastError: fewer places than experts, or a number that ranks cannot share evenly.

    >>> from silicast.composition.engines.engine import find_engine
    >>> from silicast.workload.models.lookup import find_model
    >>> model, said = with_copies(
    ...     find_model("DeepSeek-V3"), Plan(attention_dp=48, ep=48), find_engine("trtllm"))
    >>> model.moe.held, said
    (288, ['parallel.ep: 48 ranks share 256 experts with 32 copies of some, as assumed'])
    """
    moe, table = model.moe, engine.parallel
    states_copies = bool(table.expert_copies or table.expert_places)
    if moe is None:
        text = f"engine.options: {model.name} has no experts to copy"
        return model, [text] if states_copies else []
    option = "num_slots" if table.expert_places else "num_redundant_experts"
    field = f"engine.options.{option}"
    copies = table.expert_copies
    if table.expert_places:
        copies = table.expert_places - moe.experts
    if copies < 0:
        raise SilicastError(
            f"{table.expert_places} places for {moe.experts} experts",
            field=field,
            hint=f"{moe.experts} or more",
        )
    left = -(moe.experts + copies) % plan.ep
    if states_copies and left:
        raise SilicastError(
            f"{plan.ep} ranks cannot share {moe.experts} experts and {copies} copies evenly",
            field=field,
            hint=f"{left} more" + (f", or {plan.ep - left} less" if copies else ""),
        )
    whole = plan.ep == plan.tp * plan.attention_dp
    remarks = []
    if (
        not states_copies and left and whole
    ):  # ranks that share the width of experts hold none twice
        copies = left
        shared = f"{plan.ep} ranks share {moe.experts} experts with {copies} copies of some"
        remarks = [f"parallel.ep: {shared}, as assumed"]
    return replace(model, moe=replace(moe, copies=copies)) if copies else model, remarks


def without_copies(model: ModelConfig) -> ModelConfig:
    """The model as it was trained."""
    return model if model.moe is None else replace(model, moe=replace(model.moe, copies=0))


def imbalance(deployment: Deployment, input_lens: Sequence[int]) -> dict[str, float]:
    """Load of the busiest over the mean, for a static batch; {} where no rank waits for another.

    Keys: ``prefill_tokens`` of the groups of attention_dp; ``prefill_assignments``,
    ``decode_assignments`` and ``decode_experts_used`` of the ranks that share the experts.
    """
    plan, moe = deployment.plan, deployment.model.moe
    imbalance: dict[str, float] = {}
    groups = plan.attention_dp
    busiest_lens = busiest_group(input_lens, groups)
    if groups > 1:
        imbalance["prefill_tokens"] = sum(busiest_lens) * groups / sum(input_lens)
    if moe is None or plan.ep == 1:
        return imbalance
    for name, tokens in (("prefill", sum(input_lens)), ("decode", len(busiest_lens) * groups)):
        routed, experts, topk = (np.array([x]) for x in (tokens, moe.held, moe.topk))
        busiest = busiest_loads(moe.spread, routed, experts, topk, np.array([plan.ep]))
        whole = busiest_loads(moe.spread, routed, experts, topk, np.array([1]))
        mean = tokens * moe.topk / plan.ep
        imbalance[f"{name}_assignments"] = float(busiest.tokens()[0]) / mean
        if name == "decode":
            used = float(whole.experts_hit()[0]) / plan.ep
            imbalance["decode_experts_used"] = float(busiest.experts_hit()[0]) / used
    return imbalance
