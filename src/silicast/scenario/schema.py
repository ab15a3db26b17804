"""The tables of a scenario (DESIGN section 4) apart from the workloads.

Every table refuses unknown fields. Docstrings are the reference: docs/reference/scenario.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import force_setattr

from silicast.core.decode import Terse
from silicast.scenario.reading.limits import (
    Count,
    Degree,
    Fraction,
    Gpus,
    Name,
    NonNegative,
    Positive,
)

Task = Literal[
    "kernel", "collective", "graph", "inference", "serving", "training", "capacity", "plan",
    "workflow", "diagnose", "tune", "fits",
]  # fmt: skip
OWN_FORMAT = "auto"
"""In a number format's stead: the checkpoint's own."""
TierChoice = Literal["auto", "bound", "analytic", "cross-device", "scaled", "calibrated"]
FORMAT = 1


class LinkTable(Terse, frozen=True):
    """A kind of link between devices or nodes, per device and direction."""

    kind: Name = "custom"
    bandwidth_gb_per_s: Positive | None = None
    latency_us: NonNegative | None = None
    count: Count = 1
    switched: bool = True


class SlowTable(Terse, frozen=True):
    """Devices that run slower than the rest."""

    fraction: Fraction
    slowdown: Annotated[float, Meta(ge=1, le=100)]


class FailureTable(Terse, frozen=True):
    """How often a device fails and what that costs; ``mtbf_hours_per_gpu`` may be a published run
    ("llama-3-405b"). ``repair_s``: the run goes on without the replica that failed, which is back
    after so long.
    """

    mtbf_hours_per_gpu: Positive | Name
    restart_s: NonNegative = 600.0
    repair_s: NonNegative | None = None
    checkpoint_interval_s: Positive | None = None
    checkpoint_s: NonNegative = 0.0


class ClusterTable(Terse, frozen=True):
    """Devices and what joins them.

    ``topology`` is a system of the catalog ("dgx-h100"); ``intra_node`` and ``inter_node`` name a
    link of the device and a network of the catalog, or describe them. ``gpus_per_pod`` devices
    share a level of the network, ``inter_pod`` joins pods, and ``oversubscription`` is of it.
    ``pcie_paths`` is of the host: pairs of devices have their own over its PCIe, or take turns.
    ``gpu_log_sd``: how unlike devices are, of which a training step waits for the slowest; 0 = all
    alike, None = as published.
    """

    gpus: Gpus | None = None
    gpus_per_node: Degree | None = None
    intra_node: Name | LinkTable | None = None
    inter_node: Name | LinkTable | None = None
    topology: Name = ""
    gpus_per_pod: Gpus | None = None
    inter_pod: Name | LinkTable | None = None
    oversubscription: Annotated[float, Meta(ge=1)] | None = None
    pcie_paths: Literal["own", "shared"] | None = None
    slow_gpus: SlowTable | None = None
    gpu_log_sd: Fraction | None = None
    failures: FailureTable | None = None
    price_per_gpu_hour: NonNegative | None = None


class HostTable(Terse, frozen=True):
    """The host: ``factor`` is its single-thread speed against the reference host.

    A ``cpu`` of the catalog has its own factor; a free name needs one. ``memory_gb`` and its rate
    ``memory_gb_per_s`` are of a node, ``link_gb_per_s`` is to each device, per direction.
    """

    cpu: Name = "reference"
    factor: Annotated[float, Meta(ge=0.01, le=100)] | None = None
    memory_gb: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    memory_gb_per_s: Positive | None = None
    link_gb_per_s: Positive | None = None


class LimitsTable(Terse, frozen=True):
    """Limits the user set on a device."""

    power_w: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    clock_mhz: Annotated[float, Meta(gt=0, le=1e5)] | None = None


class PrecisionTable(Terse, frozen=True):
    """Number formats; what is left out is as the checkpoint says, else bf16.

    ``experts`` and ``attention``: recipes of the routed experts and of attention's projections,
    where they are not the other layers'. ``auto``, as servers' command lines have it, is the
    checkpoint's own, like a field that is left out.

    >>> PrecisionTable(recipe="auto", kv_cache="fp8") == PrecisionTable(kv_cache="fp8")
    True
    """

    weights: Name | None = None
    activations: Name | None = None
    kv_cache: Name | None = None
    recipe: Name | None = None
    group_size: Annotated[int, Meta(ge=1, le=65536)] | None = None
    experts: Name | None = None
    attention: Name | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if is_own_format(getattr(self, name)):
                force_setattr(self, name, None)


def is_own_format(value: object) -> bool:
    """Whether a format is the checkpoint's own by a name of servers' command lines."""
    return isinstance(value, str) and value.strip().casefold() == OWN_FORMAT


class ParallelTable(Terse, frozen=True):
    """Parallel degrees.

    ``sp``: sequence parallelism of the norms over the tensor-parallel ranks (true), or, with
    ``tp`` = 1, the degree to which heads are exchanged for tokens. ``zero``: ZeRO stage. ``etp``:
    the experts' tensor degree in training. ``shard``: data ranks that share what ``zero`` shards,
    all if left out.
    """

    tp: Degree = 1
    pp: Degree = 1
    dp: Degree | None = None
    ep: Degree = 1
    cp: Degree = 1
    sp: bool | Annotated[int, Meta(ge=0, le=65536)] = 1
    attention_dp: Degree = 1
    etp: Degree | None = None
    zero: Annotated[int, Meta(ge=0, le=3)] | None = None
    shard: Degree | None = None
    virtual_stages: Degree | None = None
    schedule: Name | None = None


def _flat(options: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Options with tables of options unfolded, one level."""
    for name, value in options.items():
        if isinstance(value, dict) and value:
            yield from ((f"{name}.{inner}", each) for inner, each in value.items())
        else:
            yield name, value


class EngineTable(Terse, frozen=True):
    """The engine or framework; ``options`` are its own, those of a table of options by both names.

    >>> EngineTable("trtllm", options={"moe_config": {"backend": "CUTLASS"}}).options
    {'moe_config.backend': 'CUTLASS'}
    """

    name: Name
    version: Annotated[str, Meta(max_length=64)] = ""
    options: dict[str, Any] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if any(isinstance(value, dict) and value for value in self.options.values()):
            msgspec.structs.force_setattr(self, "options", dict(_flat(self.options)))


class KvTierTable(Terse, frozen=True):
    """A place below the host's memory for cached keys and values: its room and the rate at which it
    is read, both of one replica (of a group of ranks with ``attention_dp``).
    """

    kind: Literal["disk", "remote"]
    size_gb: Annotated[float, Meta(gt=0, le=1e9)]
    bandwidth_gb_per_s: Positive
    latency_us: NonNegative = 0.0


class PoolTable(Terse, frozen=True):
    """Replicas of one deployment. What is left out is as at the top of the scenario, the price of a
    device as in ``cluster``. ``shares_with``: another pool whose devices it takes by turns, as
    rollouts and updates of one trainer do; in workflows alone. ``kv_tiers``: where cached keys and
    values go that the engine's cache in the host's memory evicts, the nearest first.
    """

    device: Name | dict[str, Any] | None = None
    count: Gpus = 1
    model: Name | dict[str, Any] | None = None
    parallel: ParallelTable | None = None
    engine: Name | EngineTable | None = None
    role: Name = ""
    precision: PrecisionTable | None = None
    limits: LimitsTable | None = None
    price_per_gpu_hour: NonNegative | None = None
    shares_with: Name | None = None
    kv_tiers: Annotated[list[KvTierTable], Meta(min_length=1, max_length=8)] | None = None


class PoolLinkTable(Terse, frozen=True):
    """What joins two pools."""

    source: Name | None = msgspec.field(default=None, name="from")
    target: Name | None = msgspec.field(default=None, name="to")
    kind: Name = "custom"
    bandwidth_gb_per_s: Positive | None = None
    latency_us: NonNegative | None = None


class SpeculativeTable(Terse, frozen=True):
    """Speculative decoding: ``k`` drafted tokens a step; ``acceptance`` a rate, or one for each, of
    those that are kept where all before them were; ``acceptance_spread`` by what requests differ,
    the log standard deviation of their acceptance lengths; ``tree`` how many tokens of a sequence a
    step verifies where drafts branch.
    """

    method: Literal["draft", "mtp", "eagle", "ngram"]
    k: Annotated[int, Meta(ge=1, le=64)]
    draft: Name | dict[str, Any] | None = None
    acceptance: Fraction | Annotated[list[Fraction], Meta(min_length=1, max_length=64)] | None = (
        None
    )
    acceptance_spread: Fraction | None = None
    tree: Annotated[int, Meta(ge=2, le=1024)] | None = None


class LoraTable(Terse, frozen=True):
    """Low-rank adapters: ``adapters`` is how many are in use at once."""

    rank: Annotated[int, Meta(ge=1, le=65536)]
    targets: Annotated[list[Name], Meta(min_length=1, max_length=64)] | None = None
    adapters: Count = 1


class ColocationTable(Terse, frozen=True):
    """Several pools on the same devices; shares by pool, or in the pools' order."""

    mode: Literal["time_slice", "mps", "mig"]
    shares: dict[str, Fraction] | Annotated[list[Fraction], Meta(min_length=1)] | None = None


class RawScenario(Terse, frozen=True):
    """A scenario as it is written; tables whose type depends on others are decoded after it.

    ``router`` chooses the replica of a request: "round_robin", "random", "least_loaded", "session",
    "prefix_aware"; left out, replicas of ``parallel.dp`` are chosen by load and pools in turn.
    """

    task: Task
    format: Literal[1] = 1
    id: Name | int | None = None
    seed: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] | None = None
    device: Name | dict[str, Any] | None = None
    cluster: ClusterTable | None = None
    host: HostTable | None = None
    limits: LimitsTable = LimitsTable()
    model: Name | dict[str, Any] | None = None
    precision: PrecisionTable | None = None
    parallel: ParallelTable = ParallelTable()
    engine: Name | EngineTable | None = None
    pools: dict[str, Any] | None = None
    links: dict[str, Any] | None = None
    router: Name | None = None
    speculative: SpeculativeTable | None = None
    lora: LoraTable | None = None
    colocation: ColocationTable | None = None
    calibration: Name | Annotated[list[Name], Meta(min_length=1, max_length=64)] | None = None
    tier: TierChoice = "auto"
    why: Literal["short", "full"] = "short"
    workload: dict[str, Any] | None = None
    kernel: dict[str, Any] | None = None
