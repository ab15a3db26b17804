"""A run as trainers of PyTorch describe it, and the scenario that it means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

from silicast.formats.effects import WIDER
from silicast.formats.fields import Fields
from silicast.formats.training_configs.reader import Tree, parallel_of

OPTIMIZERS: Mapping[str, str] = {
    "adam": "adam",
    "adamw": "adamw",
    "fusedadam": "adamw",
    "adamw_hf": "adamw",
    "adamw_torch": "adamw",
    "adamw_torch_fused": "adamw",
    "adamw_apex_fused": "adamw",
    "adamw_anyprecision": "adamw",
    "paged_adamw": "adamw",
    "paged_adamw_32bit": "adamw",
    "adamw_8bit": "adamw_8bit",
    "adamw_bnb_8bit": "adamw_8bit",
    "paged_adamw_8bit": "adamw_8bit",
    "adamw_torch_8bit": "adamw_8bit",
    "adamw_torch_4bit": "adamw",
    "adam_pax": "adamw",
    "distributed_fused_adam": "adamw",
    "fused_adam": "adamw",
    "distributed_fused": "adamw",
    "sgd": "sgd_momentum",
    "adafactor": "adafactor",
    "lion": "lion",
    "lion_32bit": "lion",
    "lion_8bit": "lion",
    "paged_lion_32bit": "lion",
    "lion_pytorch": "lion",
    "muon": "muon",
}
"""Names of optimizers, in small letters -> update rules."""
NARROW = re.compile(r"8bit|4bit")
TARGETS: Mapping[str, str] = {
    **{
        name: name
        for name in (
            "q_proj",
            "k_proj",
            "v_proj",
            "o_proj",
            "gate_proj",
            "up_proj",
            "down_proj",
            "qkv_proj",
            "linear_qkv",
            "linear_proj",
            "linear_fc1",
            "linear_fc2",
        )
    },
    "query_key_value": "qkv_proj",
    "c_attn": "qkv_proj",
    "Wqkv": "qkv_proj",
    "W_pack": "qkv_proj",
    "wq": "q_proj",
    "wk": "k_proj",
    "wv": "v_proj",
    "wo": "o_proj",
    "out_proj": "o_proj",
    "dense": "o_proj",
    "w1": "gate_proj",
    "w2": "down_proj",
    "w3": "up_proj",
    "fc1": "up_proj",
    "fc2": "down_proj",
    "dense_h_to_4h": "up_proj",
    "dense_4h_to_h": "down_proj",
    "gate_up_proj": "gate_proj",
    "c_fc": "up_proj",
}
"""Modules that adapters stand beside -> products of a scenario."""
ALL_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
PLAIN = ("pretrain", "sft")
"""Tasks in which adapters are trained as task "lora"."""
FEW_BITS = {0: "", 4: "nf4", 8: "int8_wo"}
"""Bits of frozen weights -> their format."""
LOSS_COPIES = {False: 2, True: 0}
"""Of the logits in 32 bits that a loss of transformers holds: the logits themselves and their
softmax (loss/loss_utils.py, recalled); a fused one makes them piece by piece."""
USUAL_TARGETS = ("q_proj", "v_proj")
"""Of a decoder where nothing is stated (PEFT)."""


@final
@dataclass(frozen=True, kw_only=True)
class TrainerRun:
    """What a trainer's files say; 0 and "" = nothing.

    Attributes:
        micro_batch: of a device and a pass; accumulation: passes of a step.
        global_batch: where it is stated whole.
        shard: data ranks that share states.
        weights: format of frozen weights.
        narrow_states: the optimizer keeps its states in 8 bits.
        task: pretrain, sft, lora, dpo or reward; a batch of the last two is of pairs.
        more: further fields of the workload.
    """

    model: str = ""
    seq_len: int = 0
    micro_batch: int = 0
    accumulation: int = 1
    global_batch: int = 0
    ranks: tuple[int, int] | None = None
    engine: str = "fsdp"
    zero: int = 0
    shard: int = 0
    tp: int = 1
    cp: int = 1
    ep: int = 1
    recipe: str = "bf16"
    weights: str = ""
    optimizer: str = "adamw"
    recompute: str = "none"
    task: str = "sft"
    adapter_rank: int = 0
    targets: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    offload: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    def adapted(self, rank: int, targets: tuple[str, ...], bits: int = 0) -> TrainerRun:
        """With adapters of a rank, beside weights of 4 or 8 bits (0 = of the run's format)."""
        return replace(
            self,
            task="lora" if self.task in PLAIN else self.task,
            adapter_rank=rank,
            targets=targets,
            weights=FEW_BITS[bits],
        )

    def whole(self, fields: Fields, bits: int, name: str, remedy: str) -> TrainerRun:
        """Without adapters; raises SilicastError where weights have few bits."""
        if bits:
            raise fields.error("weights of few bits are not trained without adapters", name, remedy)
        return self

    def scenario(self, fields: Fields, remarks: list[str]) -> Tree:
        """The scenario; remarks are added to ``remarks``.

        Args:
            fields: for errors.

        Raises:
            SilicastError: degrees that the devices do not divide.
        """
        total, in_node = self.ranks or (0, 0)
        unit = self.tp * self.cp
        dp, left = divmod(total, unit) if total else (1, 0)
        if left or not dp:
            raise fields.error(
                f"{total} devices do not divide by {self.tp} x {self.cp} (tensor x context)",
                "tensor_parallel_size" if self.tp > 1 else "context_parallel_size",
                "state another cluster.gpus, or change it",
            )
        if not total:
            remarks.append("devices: not stated, one is assumed; state them: --set cluster.gpus=8")
        zero = self.zero if dp * self.cp > 1 else 0
        parallel = parallel_of(tp=self.tp, cp=self.cp, ep=self.ep, dp=dp, zero=zero, sp=self.tp > 1)
        if zero and 1 < self.shard < dp:
            if dp % self.shard:
                raise fields.error(
                    f"{dp} data ranks do not divide by groups of {self.shard}",
                    "dp_shard_size",
                    "change it, or cluster.gpus",
                )
            parallel["shard"] = self.shard
        micro = self.micro_batch or 1
        workload: Tree = {"micro_batch": micro, "recompute": self.recompute, "task": self.task}
        workload["global_batch"] = self.global_batch or micro * self.accumulation * dp
        workload["optimizer"] = self.optimizer
        if self.seq_len:
            workload["seq_len"] = self.seq_len
        if self.offload:
            workload["offload"] = dict(self.offload)
        tree: Tree = {
            "parallel": parallel,
            "engine": {"name": self.engine, "options": dict(self.options)},
            "precision": {"weights": self.weights} if self.weights else {"recipe": self.recipe},
            "workload": workload | dict(self.more),
        }
        if self.model:
            tree["model"] = self.model
        if self.adapter_rank:
            tree["lora"] = {"rank": self.adapter_rank, "targets": list(self.targets)}
        if total:
            tree["cluster"] = {"gpus": total, **({"gpus_per_node": in_node} if in_node else {})}
        return tree


def optimizer_of(fields: Fields, name: str, remarks: list[str], default: str = "adamw") -> str:
    """The update rule of a trainer's optimizer.

    Raises:
        SilicastError: it is not known.
    """
    word = fields.text(name, default=default).casefold()
    word = word.removeprefix("optimizernames.").replace("-", "_")
    if word not in OPTIMIZERS:
        hint = ", ".join(OPTIMIZERS)
        raise fields.error(f"unknown optimizer {word[:40]!r}", name, hint)
    if NARROW.search(word) and not OPTIMIZERS[word].endswith("8bit"):
        remarks.append(f"{name}: {word} keeps its states in fewer bits; states of 32 are counted")
    return OPTIMIZERS[word]


def targets_of(fields: Fields, name: str, remarks: list[str]) -> tuple[str, ...]:
    """Products that have adapters, of a list or a text with commas; "all" = all linear ones.

    Raises:
        SilicastError: a module that no product stands for.
    """
    value = fields.get(name)
    words = value if isinstance(value, list) else re.split(r"[,\s]+", str(value or "").strip())
    words = [str(word).strip("'\"[]") for word in words if str(word).strip("'\"[]")]
    if not words:
        remarks.append(f"{name}: not stated; {' and '.join(USUAL_TARGETS)} are assumed")
        return USUAL_TARGETS
    if set(words) <= {"all", "all-linear", "all_linear", "linear"}:
        return ALL_TARGETS
    unknown = [word for word in words if word.rpartition(".")[2] not in TARGETS]
    left_out = [word for word in unknown if word in ("embed_tokens", "lm_head", "wte")]
    if left_out:
        remarks.append(f"{name}: {', '.join(left_out)} are left out, which takes less memory")
    unknown = [word for word in unknown if word not in left_out]
    if unknown:
        raise fields.error(f"no product {unknown[0][:40]!r}", name, ", ".join(TARGETS))
    targets = [TARGETS[word.rpartition(".")[2]] for word in words if word not in left_out]
    return tuple(dict.fromkeys(targets))


def refuse_both(fields: Fields, first: str, second: str) -> None:
    """Raises SilicastError where both of two flags are on that exclude each other."""
    if is_on(fields.get(first)) and is_on(fields.get(second)):
        raise fields.error(f"contradicts {second}", first, "keep one of them")


def unpriced(fields: Fields, names: Iterable[str], remarks: list[str]) -> dict[str, Any]:
    """Options of an engine: switches that are on and cost a time that is not known."""
    held = [name for name in names if is_on(fields.get(name))]
    if not held:
        return {}
    remarks.append(f"not priced, would change step time{WIDER}: {', '.join(held)}")
    return {"unpriced": held}


def is_on(value: Any) -> bool:
    """Whether a flag is set; "auto" is.

    >>> [is_on(value) for value in (True, "true", "auto", "", None, "false", 0)]
    [True, True, True, True, False, False, False]
    """
    if value is None or value is False or value == 0:
        return False
    return str(value).strip().casefold() not in ("false", "no", "0", "none", "null")
