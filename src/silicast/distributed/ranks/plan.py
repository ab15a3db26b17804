"""How a training step is spread over devices, and who talks to whom: degrees and rank groups.

Ranks are numbered as Megatron-LM and torchtitan number them: tensor-parallel neighbours first, then
context, data and pipeline ranks. Experts divide the same ranks of a stage anew: tensor ranks of an
expert first, then expert ranks, then the ranks that hold copies of the same experts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal, final

from silicast.core.errors import SilicastError
from silicast.workload.graphs.op import Op, Variant

TENSOR, EXPERTS, DATA, CONTEXT = 1, 2, 3, 4
SUMS, REPLICAS = 8, 9
"""Streams of the transfers of each kind beside the device's own work (stream 0): weights that are
gathered (``DATA``), gradients that are summed, and their sums over replicas have one each."""
ELEMENT = 2
"""Bytes of an element between kernels, and of a weight that is gathered: 16 bits."""


def collective(plan: TrainingPlan, family: str, axis: Axis, size: int) -> Op:
    """A collective of ``size`` bytes (as nccl-tests counts them) along an axis of a plan.

    >>> op = collective(TrainingPlan(tp=2, dp=4), "all_reduce", "dp", 1024)
    >>> op.dim("gpus"), op.dim("stride")
    (4, 2)
    """
    group = plan.group(axis)
    return Op.make(family, Variant(), bytes=max(size, 1), gpus=group.size, stride=group.stride)


Axis = Literal[
    "tp", "cp", "dp", "pp", "dp_cp", "etp", "ep", "edp", "edp_shard", "shard", "replicate"
]
"""Whose members talk to each other: a degree of the plan; ``dp_cp`` all holders of the same dense
weights, ``edp`` all holders of the same experts, ``edp_shard`` those that share their
states, ``shard`` and ``replicate`` the two levels of
hybrid sharding."""

ContextExchange = Literal["ring", "all_to_all", "all_gather"]
"""How context ranks see each other's keys: passed around, by exchanging heads for tokens
(Ulysses), or gathered (Llama 3)."""

ExpertExchange = Literal["all_to_all", "kernel"]
"""How tokens reach their experts: sorted and sent by a collective, or by a kernel that sends a
token once to each rank or node (DeepEP)."""


@final
@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks that take part in one collective.

    Attributes:
        size: members.
        stride: distance of two neighbours in the numbering of ranks.
    """

    size: int
    stride: int

    def per_node(self, gpus_per_node: int) -> int:
        """Members under one host.

        >>> RankGroup(16, 8).per_node(8), RankGroup(16, 2).per_node(8), RankGroup(4, 1).per_node(8)
        (1, 4, 4)
        """
        return max(1, min(self.size, gpus_per_node // self.stride))


@final
@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """Degrees of parallelism of a training step; all at least 1.

    Attributes:
        tp, pp, cp, dp: tensor, pipeline, context and data ranks; their product are the devices.
        ep, etp: ranks that share the routed experts, and that share the width of each; both are
            within the tp x cp x dp ranks of a stage.
        sequence_parallel: tensor ranks also share the tokens of what is between their products.
        zero: 0: each data rank holds everything; 1: its part of the optimizer's states; 2: and of
            the gradients; 3: and of the weights (FSDP).
        shard: data ranks that share the states (hybrid sharding); 0 = all of them.
        virtual_stages: model chunks of each pipeline rank.
        schedule: of the pipeline (:mod:`silicast.distributed.schedules`); "" = interleaved where
            there are virtual stages, else 1f1b.
        context: see :data:`ContextExchange`.
        dispatch: see :data:`ExpertExchange`.

    >>> plan = TrainingPlan(tp=8, pp=4, dp=2, ep=8, etp=1)
    >>> plan.gpus, plan.group("dp"), plan.group("ep"), plan.group("edp").size
    (64, RankGroup(size=2, stride=8), RankGroup(size=8, stride=1), 2)
    """

    tp: int = 1
    pp: int = 1
    cp: int = 1
    dp: int = 1
    ep: int = 1
    etp: int = 1
    sequence_parallel: bool = False
    zero: int = 0
    shard: int = 0
    virtual_stages: int = 1
    schedule: str = ""
    context: ContextExchange = "ring"
    dispatch: ExpertExchange = "all_to_all"

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, int) and value < (0 if each.name in _FROM_ZERO else 1):
                raise SilicastError(f"{each.name} = {value}", field=_field(each.name), hint=">= 1")
        _divides("ep x etp", self.ep * self.etp, "tp x cp x dp", self.stage_ranks, "ep")
        if self.shard:
            _divides("the shard group", self.shard, "dp x cp", self.dp * self.cp, "shard")
        if self.virtual_stages > 1 and self.pp == 1:
            raise SilicastError(
                f"virtual_stages = {self.virtual_stages} on a pipeline of one stage",
                field="parallel.virtual_stages",
                hint="leave it at 1, or give pp",
            )

    @property
    def gpus(self) -> int:
        return self.stage_ranks * self.pp

    @property
    def stage_ranks(self) -> int:
        """Devices of one pipeline stage."""
        return self.tp * self.cp * self.dp

    @property
    def chunks(self) -> int:
        """Parts into which pipeline and virtual stages cut the layers."""
        return self.pp * self.virtual_stages

    @property
    def sharers(self) -> int:
        """Ranks that share what ZeRO shards of the dense weights."""
        return self.shard or self.dp * self.cp

    def group(self, axis: Axis) -> RankGroup:
        """Members of a collective along ``axis``."""
        tp, cp, dp, ep, etp = self.tp, self.cp, self.dp, self.ep, self.etp
        held = self.stage_ranks // (ep * etp)
        table = {
            "tp": (tp, 1),
            "cp": (cp, tp),
            "dp": (dp, tp * cp),
            "pp": (self.pp, self.stage_ranks),
            "dp_cp": (dp * cp, tp),
            "etp": (etp, 1),
            "ep": (ep, etp),
            "edp": (held, ep * etp),
            "edp_shard": (held // math.gcd(held, dp * cp // self.sharers), ep * etp),
            "shard": (self.sharers, tp),
            "replicate": (dp * cp // self.sharers, tp * self.sharers),
        }
        return RankGroup(*table[axis])

    def members(self, axis: Axis, rank: int) -> tuple[int, ...]:
        """The ranks of the group along ``axis`` that ``rank`` is in, in ascending order.

        >>> TrainingPlan(tp=2, dp=3, pp=2).members("dp", 7)
        (7, 9, 11)
        """
        if not 0 <= rank < self.gpus:
            raise SilicastError(f"rank {rank} of {self.gpus}", field="rank")
        group = self.group(axis)
        first = rank - rank // group.stride % group.size * group.stride
        return tuple(first + number * group.stride for number in range(group.size))


_FROM_ZERO = frozenset(("zero", "shard", "sequence_parallel"))


def _field(name: str) -> str:
    return "parallel.sp" if name == "sequence_parallel" else f"parallel.{name}"


def _divides(degree: str, part: int, whole_name: str, whole: int, field: str) -> None:
    if whole % part:
        raise SilicastError(
            f"{degree} = {part} does not divide {whole_name} = {whole}",
            field=f"parallel.{field}",
            hint=f"a divisor of {whole}",
        )
