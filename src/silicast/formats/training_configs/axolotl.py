"""Axolotl (github.com/axolotl-ai-cloud/axolotl): a run's YAML, with DeepSpeed's JSON beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, final

from silicast.core.errors import unsupported
from silicast.formats.fields import Fields
from silicast.formats.source import Source
from silicast.formats.training_configs.accelerate_config import AccelerateConfig
from silicast.formats.training_configs.deepspeed_config import is_deepspeed
from silicast.formats.training_configs.effects import remarks_of_unused
from silicast.formats.training_configs.hugging_face import beside_of, sharding_of
from silicast.formats.training_configs.reader import Stated, TrainingConfig, Tree, register
from silicast.formats.training_configs.trainer_run import (
    ALL_TARGETS,
    LOSS_COPIES,
    PLAIN,
    TrainerRun,
    is_on,
    optimizer_of,
    refuse_both,
    targets_of,
)

TASKS = {"": "sft", "dpo": "dpo", "ipo": "dpo", "simpo": "reward", "orpo": "reward", "kto": "dpo"}
"""Of ``rl``: losses over pairs, with or without a frozen model."""
QUIET = (
    "datasets",
    "test_datasets",
    "special_tokens",
    "wandb_project",
    "hub_model_id",
    "val_set_size",
    "plugins",
    "tokens",
    "chat_template",
    "gradient_checkpointing_kwargs",
    "fsdp_config",
    "dataset_prepared_path",
    "evals_per_epoch",
    "saves_per_epoch",
    "is_mistral_derived_model",
    "model_type",
    "tokenizer_type",
    "pad_to_sequence_len",
    "eval_sample_packing",
    "strict",
    "lora_alpha",
    "lora_dropout",
    "lora_fan_in_fan_out",
    "lora_model_dir",
    "train_on_inputs",
    "group_by_length",
    "early_stopping_patience",
    "local_rank",
    "xformers_attention",
    "eval_batch_size",
    "peft",
    "pretraining_dataset",
    "dataset_processes",
    "hub_strategy",
    "bnb_config_kwargs",
    "is_llama_derived_model",
    "is_falcon_derived_model",
    "tokenizer_config",
    "base_model_config",
    "overrides_of_model_config",
    "lr_scheduler",
    "logging_steps",
    "adam_beta1",
    "adam_beta2",
    "s2_attention",
    "eval_table_size",
    "eval_max_new_tokens",
    "is_qwen_derived_model",
    "streaming",
    "roundup_power2_divisions",
    "chat_template_jinja",
)
"""Fields that change no step."""


@register
@final
class Axolotl(TrainingConfig):
    """Reads a run's file."""

    name: ClassVar[str] = "Axolotl"
    files: ClassVar[str] = "a run's YAML, and DeepSpeed's JSON that it names"
    numbers: ClassVar[Mapping[str, str]] = {
        "workload.seq_len": "sequence_len",
        "parallel.tp": "tensor_parallel_size",
        "parallel.cp": "context_parallel_size",
    }

    def recognises(self, files: Sequence[Source]) -> bool:
        """A YAML with a base model and a micro-batch, besides DeepSpeed's files."""
        return len(_mains(files)) == 1

    def read(self, files: Sequence[Source], stated: Stated) -> tuple[Tree, list[str]]:
        (main,) = _mains(files)
        remarks: list[str] = []
        tables: list[Fields] = []
        fields = Fields(main.table or {}, file=str(main.path), loose=True)
        beside = beside_of([file for file in files if file is not main], tables, remarks)
        for one, other in (
            ("bf16", "fp16"),
            ("load_in_4bit", "load_in_8bit"),
            ("deepspeed", "fsdp"),
            ("fp8", "load_in_4bit"),
            ("deepspeed", "fsdp_config"),
        ):
            refuse_both(fields, one, other)
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
        ranks = (stated.devices, 0) if stated.devices else None
        recipe = "bf16"
        if is_on(fields.get("fp8")):
            recipe = "fp8"
        elif is_on(fields.get("fp16", "float16")):
            recipe = "fp16"
        elif not any(is_on(fields.get(n)) for n in ("bf16", "bfloat16")) and fields.has("bf16"):
            recipe = "fp32"
        for name in ("bfloat16", "float16", "tf32", "fp8_config", *QUIET):
            fields.get(name)
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
            **_loss(fields, remarks),
        )
        run = _adapted(fields, run, remarks)
        if fields.has("dp_shard_size") and not run.zero:
            run = replace(run, zero=3)
        return run.scenario(fields, remarks), [*remarks, *remarks_of_unused([fields, *tables])]


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
        if bits:
            raise fields.error(
                "weights of few bits are not trained without adapters",
                f"load_in_{bits}bit",
                "adapter: qlora",
            )
        return run
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
    return replace(
        run,
        task="lora" if run.task in PLAIN else run.task,
        adapter_rank=fields.count("lora_r", default=8),
        targets=targets,
        weights={0: "", 4: "nf4", 8: "int8_wo"}[bits],
    )


def _options(fields: Fields, options: Mapping[str, Any], remarks: list[str]) -> dict[str, Any]:
    made = dict(options)
    kernels = (
        "flash_attention",
        "sdp_attention",
        "flex_attention",
        "xformers_attention",
        "sage_attention",
    )
    flash = [is_on(fields.get(name)) for name in kernels]
    stated = fields.text("attn_implementation")
    eager = is_on(fields.get("eager_attention")) or stated == "eager"
    made["attention"] = "math" if eager and not any(flash) else "fused"
    losses = (
        "liger_fused_linear_cross_entropy",
        "liger_cross_entropy",
        "cut_cross_entropy",
        "flash_attn_cross_entropy",
        "chunked_cross_entropy",
    )
    made["fused_loss"] = sum(is_on(fields.get(name)) for name in losses) > 0
    made["loss_copies"] = LOSS_COPIES[made["fused_loss"]]
    unpriced = [
        name
        for name in (
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
        if is_on(fields.get(name))
    ]
    if unpriced:
        made["unpriced"] = unpriced
        names = ", ".join(unpriced)
        remarks.append(f"changes time by an unknown amount, a wider interval: {names}")
    return made


def _loss(fields: Fields, remarks: list[str]) -> dict[str, Any]:
    """The run's task, and what its workload says of it.

    Raises:
        SilicastError: a way of training that is not read.
    """
    packs = is_on(fields.get("sample_packing"))
    if not packs and not is_on(fields.get("pad_to_sequence_len")):
        remarks.append("sample_packing: off; every sequence is taken at its full length")
    kind = fields.text("rl").casefold()
    if kind not in TASKS:
        raise unsupported(f"rl: {kind[:40]} is not read", "rl", ", ".join(filter(None, TASKS)))
    for name in ("dpo_use_weighting", "rl_beta", "dpo_label_smoothing", "trl"):
        fields.get(name)
    known = is_on(fields.get("precompute_ref_log_probs"))
    task = "reward" if is_on(fields.get("reward_model")) else TASKS[kind]
    return {"task": task, "more": {"reference": False} if known and task == "dpo" else {}}


def _mains(files: Sequence[Source]) -> list[Source]:
    """Files of a run; [] where others are no DeepSpeed files."""
    mains = []
    for file in files:
        table = file.table if file.path.suffix.casefold() in (".yaml", ".yml", ".json") else None
        if table is not None and "base_model" in table and "micro_batch_size" in table:
            mains.append(file)
        elif table is None or not is_deepspeed(table):
            return []
    return mains
