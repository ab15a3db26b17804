"""LLaMA-Factory (github.com/hiyouga/LLaMA-Factory): a run's YAML, with DeepSpeed's JSON beside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, final

from silicast.core.errors import unsupported
from silicast.formats.fields import Fields
from silicast.formats.training_configs.fine_tuning import BesideFiles, FineTuning
from silicast.formats.training_configs.hugging_face import trainer_run
from silicast.formats.training_configs.reader import register
from silicast.formats.training_configs.trainer_run import (
    FEW_BITS,
    LOSS_COPIES,
    TrainerRun,
    is_on,
    targets_of,
    unpriced,
)

STAGES = {"pt": "pretrain", "sft": "sft", "rm": "reward", "dpo": "dpo", "kto": "dpo"}
ALONE = ("orpo", "simpo")
"""Losses over pairs without a frozen model."""
UNPRICED = ("use_unsloth", "use_unsloth_gc", "shift_attn")
ATTENTION = {"auto": "fused", "fa2": "fused", "fa3": "fused", "sdpa": "fused", "disabled": "math"}


@register
@final
class LlamaFactory(FineTuning):
    """Reads a run's file."""

    name: ClassVar[str] = "LLaMA-Factory"
    tool: ClassVar[str] = "llama_factory"
    files: ClassVar[str] = "a run's YAML or JSON, and DeepSpeed's JSON that it names"
    numbers: ClassVar[Mapping[str, str]] = {"workload.seq_len": "cutoff_len"}

    def is_run(self, table: Mapping[str, Any]) -> bool:
        return "model_name_or_path" in table and ("finetuning_type" in table or "stage" in table)

    def run(
        self, fields: Fields, beside: BesideFiles, devices: int, remarks: list[str]
    ) -> TrainerRun:
        stage = fields.text("stage", default="sft")
        if stage not in STAGES:
            raise unsupported(f"stage {stage[:40]!r} is not read here", "stage", ", ".join(STAGES))
        run = trainer_run(fields, beside, devices, remarks)
        if not fields.has("cutoff_len"):
            run = replace(run, seq_len=2048)
            remarks.append("cutoff_len: not stated; 2048, its default")
        task = STAGES[stage]
        loss = fields.text("pref_loss", default="sigmoid")
        if task == "dpo" and loss in ALONE:
            task = "reward"
        fused = is_on(fields.get("enable_liger_kernel"))
        options = {
            **run.options,
            "attention": fields.choice("flash_attn", ATTENTION, "auto"),
            "fused_loss": fused,
            "loss_copies": LOSS_COPIES[fused],
            **unpriced(fields, UNPRICED, remarks),
        }
        again = not is_on(fields.get("disable_gradient_checkpointing"))
        run = replace(run, options=options, task=task, recompute="full" if again else "none")
        return _tuned(fields, run, remarks)


def _tuned(fields: Fields, run: TrainerRun, remarks: list[str]) -> TrainerRun:
    """With what is trained.

    Raises:
        SilicastError: a way that is not read, or weights of few bits that are trained.
    """
    kind = fields.text("finetuning_type", default="lora")
    bits = fields.count("quantization_bit", default=0, least=0)
    if kind not in ("lora", "full"):
        raise unsupported(
            f"finetuning_type {kind[:40]!r} is not read", "finetuning_type", "lora or full"
        )
    if kind == "full":
        return run.whole(fields, bits, "quantization_bit", "finetuning_type: lora")
    if bits not in FEW_BITS:
        raise unsupported(f"{bits} bits are not read", "quantization_bit", "4 or 8")
    name = "lora_target"
    tuned_fields = fields if fields.has(name) else Fields({name: "all"}, file=fields.file)
    targets = targets_of(tuned_fields, name, remarks)
    return run.adapted(fields.count("lora_rank", default=8), targets, bits)
