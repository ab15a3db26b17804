"""LLaMA-Factory (github.com/hiyouga/LLaMA-Factory): a run's YAML, with DeepSpeed's JSON beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, final

from silicast.core.errors import unsupported
from silicast.formats.fields import Fields
from silicast.formats.source import Source
from silicast.formats.training_configs.accelerate_config import is_accelerate
from silicast.formats.training_configs.deepspeed_config import is_deepspeed
from silicast.formats.training_configs.effects import remarks_of_unused
from silicast.formats.training_configs.hugging_face import beside_of, trainer_run
from silicast.formats.training_configs.reader import Stated, TrainingConfig, Tree, register
from silicast.formats.training_configs.trainer_run import (
    LOSS_COPIES,
    PLAIN,
    TrainerRun,
    is_on,
    targets_of,
)

STAGES = {"pt": "pretrain", "sft": "sft", "rm": "reward", "dpo": "dpo", "kto": "dpo"}
ALONE = ("orpo", "simpo")
"""Losses over pairs without a frozen model."""
ATTENTION = {"auto": "fused", "fa2": "fused", "fa3": "fused", "sdpa": "fused", "disabled": "math"}
KEPT = (
    "quantization_type",
    "double_quantization",
    "quantization_method",
    "upcast_layernorm",
    "freeze_vision_tower",
    "freeze_multi_modal_projector",
    "flash_attn",
    "packing",
    "neat_packing",
    "enable_liger_kernel",
    "pure_bf16",
    "do_train",
    "do_eval",
    "ddp_timeout",
    "disable_shuffling",
    "train_on_prompt",
    "mask_history",
    "lora_alpha",
    "lora_dropout",
    "use_rslora",
    "plot_loss",
)


@register
@final
class LlamaFactory(TrainingConfig):
    """Reads a run's file."""

    name: ClassVar[str] = "LLaMA-Factory"
    files: ClassVar[str] = "a run's YAML or JSON, and DeepSpeed's JSON that it names"
    numbers: ClassVar[Mapping[str, str]] = {"workload.seq_len": "cutoff_len"}

    def recognises(self, files: Sequence[Source]) -> bool:
        """A model with a way of fine-tuning, besides DeepSpeed's or accelerate's files."""
        return len(_mains(files)) == 1

    def read(self, files: Sequence[Source], stated: Stated) -> tuple[Tree, list[str]]:
        (main,) = _mains(files)
        remarks: list[str] = []
        tables: list[Fields] = []
        fields = Fields(main.table or {}, file=str(main.path), loose=True)
        beside = beside_of([file for file in files if file is not main], tables, remarks)
        stage = fields.text("stage", default="sft")
        if stage not in STAGES:
            raise unsupported(f"stage {stage[:40]!r} is not read here", "stage", ", ".join(STAGES))
        run = trainer_run(fields, beside, stated.devices, remarks)
        for name in KEPT:
            fields.get(name)
        if not fields.has("cutoff_len"):
            run = replace(run, seq_len=2048)
            remarks.append("cutoff_len: not stated; 2048, its default")
        task = STAGES[stage]
        loss = fields.text("pref_loss", default="sigmoid")
        if task == "dpo" and loss in ALONE:
            task = "reward"
        attention = fields.choice("flash_attn", ATTENTION, "auto")
        options = dict(run.options) | {
            "attention": attention,
            "fused_loss": is_on(fields.get("enable_liger_kernel")),
            "loss_copies": LOSS_COPIES[is_on(fields.get("enable_liger_kernel"))],
        }
        unpriced = [
            n for n in ("use_unsloth", "use_unsloth_gc", "shift_attn") if is_on(fields.get(n))
        ]
        if unpriced:
            options["unpriced"] = unpriced
            remarks.append(
                f"changes time by an unknown amount, a wider interval: {', '.join(unpriced)}"
            )
        again = not is_on(fields.get("disable_gradient_checkpointing"))
        run = replace(run, options=options, task=task, recompute="full" if again else "none")
        run = _tuned(fields, run, remarks)
        if (
            not (is_on(fields.get("packing")) or is_on(fields.get("neat_packing")))
            and stage != "pt"
        ):
            remarks.append("packing: off; every sequence is taken at its full length")
        return run.scenario(fields, remarks), [*remarks, *remarks_of_unused([fields, *tables])]


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
        if bits:
            raise fields.error(
                "weights of few bits are not trained", "quantization_bit", "finetuning_type: lora"
            )
        return run
    weights = {0: "", 8: "int8_wo", 4: "nf4"}
    if bits not in weights:
        raise unsupported(f"{bits} bits are not read", "quantization_bit", "4 or 8")
    name = "lora_target"
    return replace(
        run,
        task="lora" if run.task in PLAIN else run.task,
        adapter_rank=fields.count("lora_rank", default=8),
        targets=targets_of(
            fields if fields.has(name) else Fields({name: "all"}, file=fields.file), name, remarks
        ),
        weights=weights[bits],
    )


def _mains(files: Sequence[Source]) -> list[Source]:
    mains = []
    for file in files:
        table: Mapping[str, Any] | None = file.table
        if table is None:
            return []
        if "model_name_or_path" in table and ("finetuning_type" in table or "stage" in table):
            mains.append(file)
        elif not (is_deepspeed(table) or is_accelerate(table)):
            return []
    return mains
