"""accelerate's YAML: how processes are started, and how FSDP shards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

from silicast.formats.fields import Fields
from silicast.formats.training_configs.deepspeed_config import DeepSpeedConfig
from silicast.formats.training_configs.trainer_run import is_on

STRATEGIES = {
    "FULL_SHARD": 3,
    "1": 3,
    "SHARD_GRAD_OP": 2,
    "2": 2,
    "NO_SHARD": 0,
    "3": 0,
    "HYBRID_SHARD": 3,
    "4": 3,
    "HYBRID_SHARD_ZERO2": 2,
    "_HYBRID_SHARD_ZERO2": 2,
    "5": 2,
}
MIXED = {"no": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8"}


@final
@dataclass(frozen=True, kw_only=True)
class Sharding:
    """How data ranks share states.

    Attributes:
        zero: stage; within_node: each node holds all of them.
        recompute: "" = nothing is stated.
    """

    engine: str = "fsdp"
    zero: int = 0
    within_node: bool = False
    recompute: str = ""
    offload: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@final
@dataclass(frozen=True, kw_only=True)
class AccelerateConfig:
    """What a file says.

    Attributes:
        ranks: devices and those of a node; None = not stated.
        deepspeed: its DeepSpeed section, or what the name of its file says.
        deepspeed_file: that it names.
    """

    ranks: tuple[int, int] | None = None
    recipe: str = ""
    sharding: Sharding = Sharding()
    deepspeed: DeepSpeedConfig | None = None
    deepspeed_file: str = ""
    degrees: Mapping[str, int] = field(default_factory=dict)


def is_accelerate(table: Mapping[str, Any]) -> bool:
    """Whether a table is a configuration of accelerate."""
    return "distributed_type" in table and ("num_processes" in table or "num_machines" in table)


def read_accelerate(fields: Fields) -> AccelerateConfig:
    """A file's content.

    Raises:
        SilicastError: a field is wrong.
    """
    kind = fields.text("distributed_type", default="NO").rpartition(".")[2].upper()
    processes = fields.count("num_processes", default=0, least=0)
    machines = fields.count("num_machines", default=1, least=0) or 1
    ranks = (processes, processes // machines) if processes else None
    recipe = (
        str(fields.choice("mixed_precision", MIXED, "no")) if fields.has("mixed_precision") else ""
    )
    sharding, deepspeed, named = Sharding(), None, ""
    if kind == "FSDP":
        sharding = fsdp_of(fields.table("fsdp_config"))
    elif kind == "DEEPSPEED":
        table = fields.table("deepspeed_config")
        named = table.text("deepspeed_config_file")
        deepspeed = None if named else _section(table)
    elif kind == "MEGATRON_LM":
        raise fields.error(
            "MEGATRON_LM is not read", "distributed_type", "give Megatron-LM's own arguments"
        )
    table = fields.table("parallelism_config")
    degrees = {
        ours: max(table.count(name, default=1, least=-1), 1)
        for name, ours in (
            ("parallelism_config_tp_size", "tp"),
            ("parallelism_config_cp_size", "cp"),
            ("parallelism_config_dp_shard_size", "shard"),
            ("parallelism_config_dp_replicate_size", "replicas"),
        )
        if table.has(name)
    }
    return AccelerateConfig(
        ranks=ranks,
        recipe=recipe,
        sharding=sharding,
        deepspeed=deepspeed,
        deepspeed_file=named,
        degrees=degrees,
    )


def fsdp_of(fields: Fields) -> Sharding:
    """A section of FSDP, with or without "fsdp_" before its names.

    Raises:
        SilicastError: an unknown strategy.
    """

    def named(name: str) -> str:
        return f"fsdp_{name}" if fields.has(f"fsdp_{name}") else name

    fields.get(named("version"))
    strategy = fields.text(named("sharding_strategy"), default="FULL_SHARD").upper()
    if strategy not in STRATEGIES:
        raise fields.error(
            f"unknown strategy {strategy[:40]!r}", named("sharding_strategy"), ", ".join(STRATEGIES)
        )
    zero = STRATEGIES[strategy]
    options: dict[str, Any] = {}
    again = fields.get(named("reshard_after_forward"))
    if again is not None:
        word = str(again).upper()
        if word in STRATEGIES:
            zero, again = STRATEGIES[word], STRATEGIES[word] == 3
        if not is_on(again):
            options["reshard_after_forward"] = False
    offload: dict[str, Any] = {}
    if is_on(fields.get(named("offload_params"))):
        offload = {"optimizer": 1.0, "weights": 1.0}
    return Sharding(
        zero=zero,
        within_node="HYBRID" in strategy or strategy in ("4", "5"),
        recompute="full" if is_on(fields.get(named("activation_checkpointing"))) else "",
        offload=offload,
        options=options,
    )


def fsdp_words(text: str, sharding: Sharding) -> Sharding:
    """``--fsdp "full_shard auto_wrap offload"`` over what its section says.

    >>> fsdp_words("shard_grad_op auto_wrap", Sharding()).zero
    2
    """
    words = text.casefold().replace(",", " ").split()
    strategies = [word for word in words if word.upper() in STRATEGIES]
    if strategies:
        zero = STRATEGIES[strategies[0].upper()]
        sharding = replace(sharding, zero=zero, within_node="hybrid" in strategies[0])
    elif is_on(text) and text.strip():
        sharding = replace(sharding, zero=sharding.zero or 3)
    if "offload" in words:
        sharding = replace(sharding, offload={"optimizer": 1.0, "weights": 1.0})
    return sharding


def _section(fields: Fields) -> DeepSpeedConfig:
    """DeepSpeed's section in accelerate's own words."""
    offload = {
        ours: 1.0
        for name, ours in (
            ("offload_optimizer_device", "optimizer"),
            ("offload_param_device", "weights"),
        )
        if fields.text(name, default="none") in ("cpu", "nvme")
    }
    accumulation = fields.text("gradient_accumulation_steps", default="auto")
    return DeepSpeedConfig(
        zero=fields.count("zero_stage", default=2, least=0),
        accumulation=int(accumulation) if accumulation.isdigit() else 0,
        offload=offload,
    )


def deepspeed_sharding(config: DeepSpeedConfig) -> Sharding:
    """DeepSpeed's sharing of states."""
    return Sharding(
        engine="deepspeed",
        zero=config.zero,
        recompute=config.recompute,
        offload=config.offload,
        options=config.options,
    )
