"""Axolotl (github.com/axolotl-ai-cloud/axolotl): a run's YAML, with DeepSpeed's JSON beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, final

from silicast.core.errors import unsupported
from silicast.formats.fields import Fields
from silicast.formats.training_configs.accelerate_config import AccelerateConfig
from silicast.formats.training_configs.fine_tuning import BesideFiles, FineTuning, sharding_of
from silicast.formats.training_configs.reader import register
from silicast.formats.training_configs.trainer_run import (
    ALL_TARGETS,
    LOSS_COPIES,
    TrainerRun,
    is_on,
    optimizer_of,
    refuse_both,
    targets_of,
    unpriced,
)

TASKS = {"": "sft", "dpo": "dpo", "ipo": "dpo", "simpo": "reward", "orpo": "reward", "kto": "dpo"}
"""Of ``rl``: losses over pairs, with or without a frozen model."""
KERNELS = (
    "flash_attention",
    "sdp_attention",
    "flex_attention",
    "xformers_attention",
    "sage_attention",
)
LOSSES = (
    "liger_fused_linear_cross_entropy",
    "liger_cross_entropy",
    "cut_cross_entropy",
    "flash_attn_cross_entropy",
    "chunked_cross_entropy",
)
UNPRICED = (
    "torch_compile",
    "liger_rope",
    "liger_rms_norm",
    "liger_glu_activation",
    "liger_swiglu",
    "lora_mlp_kernel",
    "lora_qkv_kernel",
    "lora_o_kernel",
    "flash_attn_fuse_mlp",
    "flash_attn_rms_norm",
    "unsloth_lora_mlp",
    "tiled_mlp",
    "flash_attn_fuse_qkv",
    "liger_layer_norm",
)


@register
@final
class Axolotl(FineTuning):
    """Reads a run's file."""

    name: ClassVar[str] = "Axolotl"
    tool: ClassVar[str] = "axolotl"
    packing: ClassVar[tuple[str, ...]] = ("sample_packing",)
    files: ClassVar[str] = "a run's YAML, and DeepSpeed's JSON that it names"
    numbers: ClassVar[Mapping[str, str]] = {
        "workload.seq_len": "sequence_len",
        "parallel.tp": "tensor_parallel_size",
        "parallel.cp": "context_parallel_size",
    }

    def is_run(self, table: Mapping[str, Any]) -> bool:
        return "base_model" in table and "micro_batch_size" in table

    def run(
        self, fields: Fields, beside: BesideFiles, devices: int, remarks: list[str]
    ) -> TrainerRun:
        for first, second in (
            ("bf16", "fp16"),
            ("load_in_4bit", "load_in_8bit"),
            ("deepspeed", "fsdp"),
            ("fp8", "load_in_4bit"),
            ("deepspeed", "fsdp_config"),
        ):
            refuse_both(fields, first, second)
        sharding, config = sharding_of(fields, beside, AccelerateConfig(), remarks)
        if fields.has("fsdp_version") and not sharding.zero and fields.has("fsdp_config"):
            sharding = replace(sharding, zero=3)
        again = fields.get("gradient_checkpointing")
        offload = dict(sharding.offload)
        if "offload" in str(again) or is_on(fields.get("activation_offloading")):
            offload["activations"] = 1.0
            remarks.append("gradient_checkpointing: what is kept goes to the host, all of it")
        length = fields.count("sequence_len", default=512)
        micro = fields.count("micro_batch_size", default=1)
        ranks = (devices, 0) if devices else None
        recipe = "bf16"
        if is_on(fields.get("fp8")):
            recipe = "fp8"
        elif is_on(fields.get("fp16", "float16")):
            recipe = "fp16"
        elif not any(is_on(fields.get(n)) for n in ("bf16", "bfloat16")) and fields.has("bf16"):
            recipe = "fp32"
        run = TrainerRun(
            model=fields.text("base_model", default=None),
            seq_len=length,
            micro_batch=micro,
            accumulation=fields.count("gradient_accumulation_steps", default=1),
            ranks=ranks,
            engine=sharding.engine,
            zero=sharding.zero,
            shard=fields.count("dp_shard_size", default=0, least=0) or config.shard,
            tp=fields.count("tensor_parallel_size", default=1),
            cp=fields.count("context_parallel_size", "sequence_parallel_degree", default=1),
            ep=fields.count("expert_parallel_size", default=1),
            recipe=recipe,
            optimizer=optimizer_of(fields, "optimizer", remarks, "adamw_torch_fused"),
            recompute="full" if is_on(again) else sharding.recompute or "none",
            offload=offload,
            options=_options(fields, sharding.options, remarks),
            **_loss(fields),
        )
        run = _adapted(fields, run, remarks)
        if fields.has("dp_shard_size") and not run.zero:
            run = replace(run, zero=3)
        return run


def _adapted(fields: Fields, run: TrainerRun, remarks: list[str]) -> TrainerRun:
    """With adapters.

    Raises:
        SilicastError: an adapter that is not read, or weights of few bits without one.
    """
    kind = fields.text("adapter").casefold()
    bits = 4 if is_on(fields.get("load_in_4bit")) else 8 if is_on(fields.get("load_in_8bit")) else 0
    if kind not in ("", "lora", "qlora", "none"):
        raise unsupported(f"adapter {kind[:40]!r} is not read", "adapter", "lora or qlora")
    if kind in ("", "none"):
        return run.whole(fields, bits, f"load_in_{bits}bit", "adapter: qlora")
    if kind == "qlora" and bits == 8:
        raise fields.error("contradicts adapter: qlora", "load_in_8bit", "load_in_4bit: true")
    if kind == "qlora" and not bits:
        if fields.has("load_in_4bit"):
            raise fields.error("contradicts adapter: qlora", "load_in_4bit", "true, or lora")
        bits = 4
    everything = is_on(fields.get("lora_target_linear"))
    targets = ALL_TARGETS if everything else targets_of(fields, "lora_target_modules", remarks)
    fields.get("lora_target_modules")
    saved = fields.get("lora_modules_to_save")
    if saved:
        remarks.append("lora_modules_to_save: trained whole, which is not counted: memory is low")
    return run.adapted(fields.count("lora_r", default=8), targets, bits)


def _options(fields: Fields, options: Mapping[str, Any], remarks: list[str]) -> dict[str, Any]:
    flash = [is_on(fields.get(name)) for name in KERNELS]
    attention = fields.text("attn_implementation")
    eager = is_on(fields.get("eager_attention")) or attention == "eager"
    fused = sum(is_on(fields.get(name)) for name in LOSSES) > 0
    return {
        **options,
        "attention": "math" if eager and not any(flash) else "fused",
        "fused_loss": fused,
        "loss_copies": LOSS_COPIES[fused],
        **unpriced(fields, UNPRICED, remarks),
    }


def _loss(fields: Fields) -> dict[str, Any]:
    """The run's task, and what its workload says of it.

    Raises:
        SilicastError: a way of training that is not read.
    """
    kind = fields.text("rl").casefold()
    if kind not in TASKS:
        raise unsupported(f"rl: {kind[:40]} is not read", "rl", ", ".join(filter(None, TASKS)))
    precomputed = is_on(fields.get("precompute_ref_log_probs"))
    task = "reward" if is_on(fields.get("reward_model")) else TASKS[kind]
    return {"task": task, "more": {"reference": False} if precomputed and task == "dpo" else {}}
