"""DeepSpeed's JSON: what it says of formats, sharing of states, and batches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

from silicast.formats.fields import Fields

AUTO = "auto"
BATCHES = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
_STAGE = re.compile(r"(?:z|zero|zero[-_]?stage|stage)[-_]?([0-3])(?!\d)")


@final
@dataclass(frozen=True, kw_only=True)
class DeepSpeedConfig:
    """What a file says; 0 and "" = nothing, or that the trainer fills it in.

    Attributes:
        optimizer: its name.
        filled_in: the trainer states what a batch is of ("auto").
        offload: shares that the host holds.
        options: of the engine.
    """

    zero: int = 0
    recipe: str = ""
    whole: int = 0
    micro: int = 0
    accumulation: int = 0
    filled_in: bool = False
    optimizer: str = ""
    shard: int = 0
    cp: int = 1
    tp: int = 1
    recompute: str = ""
    offload: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


def is_deepspeed(table: Mapping[str, Any]) -> bool:
    """Whether a table is a configuration of DeepSpeed."""
    return isinstance(table.get("zero_optimization"), dict) or BATCHES[1] in table


def read_deepspeed(fields: Fields, remarks: list[str]) -> DeepSpeedConfig:
    """A file's content; remarks are added to ``remarks``.

    Raises:
        SilicastError: a field is wrong, or contradicts another.
    """
    zero = fields.table("zero_optimization")
    stage = zero.count("stage", default=0, least=0)
    if stage > 3:
        raise zero.error(f"no stage {stage}", "stage", "0, 1, 2 or 3")
    halves = [fields.table(name) for name in ("bf16", "bfloat16", "fp16")]
    on = [half.get("enabled") not in (None, False, "false") for half in halves]
    if (on[0] or on[1]) and on[2] and AUTO not in [half.get("enabled") for half in halves]:
        raise fields.error("contradicts bf16", "fp16.enabled", "enable one of them")
    for half in halves:
        _ignored(half)
    batches = [_count(fields, name) for name in BATCHES]
    offload = _offload(zero, stage, remarks)
    reduced = fields.text("communication_data_type", default="")
    options: dict[str, Any] = {}
    if reduced == "fp32":
        options["gradient_format"] = "fp32"
    optimizer = fields.table("optimizer")
    _ignored(optimizer.table("params"))
    activations = fields.table("activation_checkpointing")
    again = activations.get("partition_activations") not in (None, False)
    if again:
        remarks.append(
            "activation_checkpointing: every layer is taken, where the model asks for it"
        )
    if activations.flag("cpu_checkpointing"):
        offload["activations"] = 1.0
    if zero.get("overlap_comm") is False:
        remarks.append("zero_optimization.overlap_comm: false: sums of gradients wait")
    parallel = fields.table("tensor_parallel")
    return DeepSpeedConfig(
        zero=stage,
        recipe="bf16" if on[0] or on[1] else "fp16" if on[2] else "",
        whole=batches[0],
        micro=batches[1],
        accumulation=batches[2],
        filled_in=AUTO in [fields.get(name) for name in BATCHES],
        optimizer=optimizer.text("type", default="").casefold(),
        shard=zero.count("zero_hpz_partition_size", default=0, least=0),
        cp=fields.count("sequence_parallel_size", default=1),
        tp=parallel.count("autotp_size", default=1),
        recompute="full" if again else "",
        offload=offload,
        options=options,
    )


def named_deepspeed(name: str, remarks: list[str]) -> DeepSpeedConfig | None:
    """What the name of a file says that is not given, as projects call theirs: its stage, and
    whether it offloads; None = it says no stage.

    >>> (named_deepspeed("deepspeed/ds_z3_offload_config.json", []) or DeepSpeedConfig()).zero
    3
    >>> named_deepspeed("ds.json", [])
    """
    words = name.casefold().rpartition("/")[2]
    match = _STAGE.search(words)
    if match is None:
        return None
    stage = int(match[1])
    remarks.append(
        f"deepspeed: {name[-60:]} is not given; stage {stage} by its name (name the file beside)"
    )
    offload: dict[str, Any] = {}
    if "offload" in words:
        offload["optimizer"] = 1.0
        if stage == 3 and "optimizer" not in words:
            offload["weights"] = 1.0
    return DeepSpeedConfig(zero=stage, offload=offload)


def _offload(zero: Fields, stage: int, remarks: list[str]) -> dict[str, Any]:
    """Shares that the host holds.

    Raises:
        SilicastError: weights, which only stage 3 moves.
    """
    offload: dict[str, Any] = {}
    for name, ours in (("offload_optimizer", "optimizer"), ("offload_param", "weights")):
        table = zero.table(name)
        device = table.text("device", default="none")
        if device == "nvme":
            remarks.append(f"zero_optimization.{name}: nvme is taken as the host's memory")
        if device in ("cpu", "nvme"):
            offload[ours] = 1.0
        _ignored(table)
    if zero.flag("cpu_offload"):
        offload["optimizer"] = 1.0
    if "weights" in offload and stage < 3:
        raise zero.error("needs stage 3", "offload_param", "stage 3, or no offload_param")
    return offload


def _count(fields: Fields, name: str) -> int:
    return 0 if fields.text(name, default=AUTO) == AUTO else fields.count(name)


def _ignored(table: Fields) -> None:
    """Reads all of a table, which changes no step."""
    for name in table.names():
        table.get(name)
