"""Trainers of Hugging Face, with accelerate's YAML and DeepSpeed's JSON beside their arguments."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, final

from silicast.formats.fields import Fields
from silicast.formats.shell_script import Script
from silicast.formats.source import Source, table_of
from silicast.formats.training_configs.accelerate_config import (
    AccelerateConfig,
    Sharding,
    is_accelerate,
)
from silicast.formats.training_configs.deepspeed_config import DeepSpeedConfig, is_deepspeed
from silicast.formats.training_configs.fine_tuning import BesideFiles, FineTuning, sharding_of
from silicast.formats.training_configs.launcher import LEAST_KNOWN, arguments_of, closed, ranks_of
from silicast.formats.training_configs.megatron import KNOWN as MEGATRON
from silicast.formats.training_configs.reader import Stated, register
from silicast.formats.training_configs.trainer_run import (
    LOSS_COPIES,
    TrainerRun,
    is_on,
    optimizer_of,
    refuse_both,
    targets_of,
    unpriced,
)

ARGUMENTS = frozenset(
    (
        "per-device-train-batch-size",
        "gradient-accumulation-steps",
        "model-name-or-path",
        "num-train-epochs",
        "deepspeed",
        "deepspeed-config",
        "learning-rate",
        "output-dir",
        "gradient-checkpointing",
        "fsdp",
        "bf16",
        "max-seq-length",
        "use-peft",
        "lora-r",
        "optim",
        "max-length",
        "dataset-name",
        "config-file",
        "train-micro-batch-size-per-gpu",
        "block-size",
    )
)
"""Three of these make a command one of a trainer."""
LENGTHS = (
    "max_seq_length",
    "max_seq_len",
    "max_length",
    "block_size",
    "model_max_length",
    "seq_length",
    "seq_len",
    "cutoff_len",
)
BATCHES = (
    "per_device_train_batch_size",
    "per_device_batch_size",
    "per_gpu_train_batch_size",
    "train_micro_batch_size_per_gpu",
    "micro_batch_size",
    "batch_size_per_device",
)
USUAL_MICRO_BATCH = 8
"""Sequences of a device in one pass where nothing is stated (``per_device_train_batch_size`` of
transformers' TrainingArguments)."""
SCRIPT = re.compile(r"(?:\b|_)(dpo|reward)\w*(?:\.py|\s+-)")
"""Of TRL's scripts and commands, those that train on pairs."""
LAUNCH = re.compile(r"\b(?:accelerate\s+launch|torchrun|deepspeed|trl)\b")
TARGETS = ("lora_target_modules", "lora_target", "target_modules")
MODELS = ("model_name_or_path", "model_id", "model_name", "model_path", "model", "config_name")


@register
@final
class HuggingFace(FineTuning):
    """Reads a trainer's arguments and the files that they name."""

    name: ClassVar[str] = "Hugging Face trainers, accelerate and DeepSpeed"
    tool: ClassVar[str] = "hugging_face"
    files: ClassVar[str] = (
        "a trainer's arguments (YAML, JSON, or a script that starts it), accelerate's YAML, "
        "DeepSpeed's JSON; several of them together"
    )
    numbers: ClassVar[Mapping[str, str]] = {
        "workload.global_batch": "train_batch_size",
        "parallel.tp": "tensor_parallel",
        "parallel.cp": "sequence_parallel_size",
    }

    def is_run(self, table: Mapping[str, Any]) -> bool:
        names = {str(name).replace("_", "-") for name in table}
        states_batch = "per-device-train-batch-size" in names
        return states_batch and not names & {"stage", "finetuning-type"}

    def recognises(self, files: Sequence[Source]) -> bool:
        """Each of the files is one of these."""
        kinds = self._kinds(files)
        return bool(kinds) and all(kinds) and len(set(kinds)) == len(kinds)

    def fields(self, files: Sequence[Source], stated: Stated, remarks: list[str]) -> Fields:
        sources = dict(zip(self._kinds(files), files, strict=True))
        beside = sources.get("arguments")
        main = sources.get("script") or beside
        shown = main if main is not None else files[0]
        values: Mapping[str, Any] = (main.table if main is not None else None) or {}
        if main is not None and main.table is None:
            text, path = main.text(), str(main.path)
            arguments, more = arguments_of(text, path, stated, ARGUMENTS, self.tool)
            remarks += more
            script = SCRIPT.search(text)
            values = closed(arguments, path, remarks, self.tool)
            values |= {"script": script[1]} if script else {}
            written = {name for name, _ in self._written(main, stated)}
            values = {n: v for n, v in values.items() if n != "config-file" or v not in written}
            values_beside = {} if beside is None else beside.table or {}
            values = {
                **{str(name).replace("_", "-"): v for name, v in values_beside.items()},
                **values,
            }
        named = {name.replace("-", "_"): value for name, value in values.items()}
        return Fields(named, file=str(shown.path), loose=True)

    def configurations(
        self, files: Sequence[Source], stated: Stated
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Files that a script writes itself, then those beside it."""
        for kind, file in zip(self._kinds(files), files, strict=True):
            if kind == "script":
                yield from self._written(file, stated)
        yield from super().configurations(files, stated)

    def _written(self, script: Source, stated: Stated) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Tables that a script writes as here-documents, with the names of their files."""
        for name, text in Script.parse(script.text(), stated.variables).files.items():
            table = table_of(text, Path(name))
            if table is not None and (is_accelerate(table) or is_deepspeed(table)):
                yield name, table

    def run(
        self, fields: Fields, beside: BesideFiles, devices: int, remarks: list[str]
    ) -> TrainerRun:
        run = trainer_run(fields, beside, devices, remarks)
        return adapted(fields, _with_loss(fields, run), remarks)

    def _kinds(self, files: Sequence[Source]) -> list[str]:
        """What each file is; beside a trainer's arguments a script may have none of them."""
        kinds = [self._kind(file) for file in files]
        if "arguments" not in kinds or "script" in kinds:
            return kinds
        return [
            "script" if not kind and file.table is None and LAUNCH.search(file.text()) else kind
            for kind, file in zip(kinds, files, strict=True)
        ]

    def _kind(self, file: Source) -> str:
        """What a file is; "" = none of these."""
        table = file.table
        if table is None:
            if file.path.suffix.casefold() in (".py", ".toml"):
                return ""
            return "script" if _is_script(file.text()) else ""
        if is_accelerate(table):
            return "accelerate"
        if is_deepspeed(table):
            return "deepspeed"
        return "arguments" if self.is_run(table) else ""


def trainer_run(
    fields: Fields, beside: BesideFiles, devices: int, remarks: list[str]
) -> TrainerRun:
    """The run of a trainer's arguments; remarks are added to ``remarks``.

    Raises:
        SilicastError: a field is wrong, or contradicts another.
    """
    accelerate = beside.accelerate or AccelerateConfig()
    refuse_both(fields, "bf16", "fp16")
    refuse_both(fields, "load_in_4bit", "load_in_8bit")
    sharding, config = sharding_of(fields, beside, accelerate, remarks)
    ranks = _ranks(fields, accelerate, devices)
    recipe = "bf16" if is_on(fields.get("bf16")) else "fp16" if is_on(fields.get("fp16")) else ""
    held = fields.text("torch_dtype", default=fields.text("dtype")).rpartition(".")[2]
    by_name = {"bfloat16": "bf16", "float16": "fp16", "bf16": "bf16", "fp16": "fp16"}
    mixed = fields.text("mixed_precision")
    if recipe and config.recipe and recipe != config.recipe:
        raise fields.error(
            f"DeepSpeed's file enables {config.recipe}", recipe, f"state {config.recipe} in both"
        )
    recipe = (
        recipe
        or config.recipe
        or accelerate.recipe
        or by_name.get(mixed)
        or by_name.get(held)
        or ("" if held else "fp32")
    )
    again = fields.get("gradient_checkpointing", "use_gradient_checkpointing")
    micro = fields.text(*BATCHES, default="auto")
    steps = fields.text("gradient_accumulation_steps", default="auto")
    accumulation = int(steps) if steps.isdigit() else config.accumulation
    name = next((n for n in ("optim", "optimizer", "optim_name") if fields.has(n)), "optim")
    optimizer = (
        optimizer_of(fields, name, remarks)
        if fields.has(name) or not config.optimizer
        else optimizer_of(
            Fields({"type": config.optimizer}, "optimizer", fields.file), "type", remarks
        )
    )
    run = TrainerRun(
        model=fields.text(*MODELS),
        seq_len=fields.count(*LENGTHS, default=0, least=0),
        micro_batch=fields.count(*BATCHES) if micro.isdigit() else config.micro,
        accumulation=accumulation or 1,
        ranks=ranks,
        engine=sharding.engine,
        zero=sharding.zero,
        shard=_shard(sharding, config, accelerate, ranks),
        tp=max(config.tp, accelerate.degrees.get("tp", 1)),
        cp=max(config.cp, accelerate.degrees.get("cp", 1)),
        recipe=recipe or "bf16",
        optimizer=optimizer,
        recompute="full" if is_on(again) else sharding.recompute or "none",
        offload=sharding.offload,
        options=options_of(fields, sharding.options, remarks),
    )
    if not run.micro_batch:
        run = _with_micro_batch(run, fields, config, accumulation, remarks)
    return _with_batch(run, fields, config)


def options_of(fields: Fields, options: Mapping[str, Any], remarks: list[str]) -> dict[str, Any]:
    """Options of the engine: kernels of attention and of the loss."""
    attention = fields.text("attn_implementation", "_attn_implementation", default="sdpa")
    liger = any(is_on(fields.get(n)) for n in ("use_liger_kernel", "use_liger", "liger_kernel"))
    return {
        **options,
        "attention": "math" if attention == "eager" else "fused",
        "fused_loss": liger,
        "loss_copies": LOSS_COPIES[liger],
        **unpriced(fields, ["torch_compile"], remarks),
    }


def adapted(fields: Fields, run: TrainerRun, remarks: list[str]) -> TrainerRun:
    """With adapters and quantised weights, as PEFT's arguments state them.

    Raises:
        SilicastError: quantised weights without adapters, or an unknown module.
    """
    bits = 4 if any(is_on(fields.get(n)) for n in ("load_in_4bit", "use_4bit")) else 0
    bits = bits or (8 if any(is_on(fields.get(n)) for n in ("load_in_8bit", "use_8bit")) else 0)
    rank = fields.count("lora_r", "lora_rank", "peft_lora_r", "rank", default=0, least=0)
    peft = any(is_on(fields.get(n)) for n in ("use_peft", "use_lora", "use_peft_lora", "peft"))
    if not (peft or rank):
        return run.whole(fields, bits, f"load_in_{bits}bit", "use_peft: true and lora_r")
    name = next((n for n in TARGETS if fields.has(n)), TARGETS[0])
    return run.adapted(rank or 16, targets_of(fields, name, remarks), bits)


def _with_loss(fields: Fields, run: TrainerRun) -> TrainerRun:
    """With what TRL's scripts train: pairs, and a frozen model beside them."""
    script = fields.text("script")
    loss = fields.text("loss_type", default="sigmoid")
    pairs = fields.has("beta") or "dpo" in script
    if pairs and loss not in ("orpo", "simpo"):
        precomputed = is_on(fields.get("precompute_ref_log_probs")) or is_on(
            fields.get("reference_free")
        )
        return replace(run, task="dpo", more={"reference": False} if precomputed else {})
    return replace(run, task="reward") if "reward" in script else run


def _shard(
    sharding: Sharding,
    config: DeepSpeedConfig,
    accelerate: AccelerateConfig,
    ranks: tuple[int, int] | None,
) -> int:
    within = ranks[1] if ranks is not None and sharding.within_node else 0
    return config.shard or accelerate.degrees.get("shard", 0) or within


def _ranks(fields: Fields, accelerate: AccelerateConfig, devices: int) -> tuple[int, int] | None:
    ranks = ranks_of(fields.hyphened(), devices)
    if ranks is not None and (devices or accelerate.ranks is None):
        return ranks
    return ranks or accelerate.ranks


def _with_micro_batch(
    run: TrainerRun, fields: Fields, config: DeepSpeedConfig, accumulation: int, remarks: list[str]
) -> TrainerRun:
    """With a micro-batch, which no file states: transformers' default, as far as it divides
    DeepSpeed's whole batch; what the whole batch leaves where accumulation is stated, and where
    the file leaves nothing to the trainer: by DeepSpeed's rule it is one pass.

    Args:
        accumulation: 0 = not stated.

    Raises:
        SilicastError: the whole batch does not divide.
    """
    micro, why = USUAL_MICRO_BATCH, "the default of transformers"
    if config.whole:
        ranks = (run.ranks or (1, 0))[0] // (run.tp * run.cp)
        micro, left = divmod(config.whole, run.accumulation * ranks)
        if left:
            raise fields.error(
                f"{config.whole} sequences do not divide by {ranks} ranks x {run.accumulation}",
                "train_batch_size",
                "change it, or gradient_accumulation_steps",
            )
        if run.ranks is None or (config.filled_in and not accumulation):
            micro = math.gcd(micro, USUAL_MICRO_BATCH)
        if micro != USUAL_MICRO_BATCH:
            why = f"of train_batch_size {config.whole} on {ranks} ranks"
    name = next((key for key in BATCHES if fields.has(key)), BATCHES[0])
    remarks.append(f"{name}: not stated; {micro} a device and pass, {why}")
    return replace(run, micro_batch=micro)


def _with_batch(run: TrainerRun, fields: Fields, config: DeepSpeedConfig) -> TrainerRun:
    """With DeepSpeed's whole batch.

    Raises:
        SilicastError: it is not what its parts make.
    """
    if not config.whole:
        return run
    ranks = (run.ranks or (1, 0))[0] // (run.tp * run.cp)
    made = run.micro_batch * run.accumulation * ranks
    if config.accumulation and run.ranks is not None and made != config.whole:
        raise fields.error(
            f"{config.whole} is not {run.micro_batch} x {run.accumulation} x {ranks} ranks",
            "train_batch_size",
            f"change it to {made}, or the number of devices: --set cluster.gpus",
        )
    if run.ranks is not None and config.whole % (run.micro_batch * ranks):
        raise fields.error(
            f"{config.whole} does not divide by {run.micro_batch} x {ranks} ranks",
            "train_batch_size",
            "change it, or the number of devices: --set cluster.gpus",
        )
    return replace(run, global_batch=config.whole)


def _is_script(text: str) -> bool:
    names = set(re.findall(r"--([A-Za-z][\w-]*)", text[: 1 << 20].replace("_", "-")))
    return len(ARGUMENTS & names) >= LEAST_KNOWN > len(MEGATRON & names)
