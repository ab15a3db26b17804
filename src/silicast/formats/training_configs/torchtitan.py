"""torchtitan (github.com/pytorch/torchtitan): a job's configuration in TOML.

A registry in Python is read as the table of a TOML: the job that a function builds.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, final

from silicast.core.errors import SilicastError, unsupported
from silicast.formats.effects import effects_of
from silicast.formats.fields import Fields
from silicast.formats.python_file import CALLED, GIVEN, PythonFile
from silicast.formats.source import Source
from silicast.formats.training_configs.python_recipe import chosen_recipe, known_values
from silicast.formats.training_configs.reader import (
    Stated,
    TrainingConfig,
    Tree,
    parallel_of,
    register,
)

MODES = {"FullAC": "full", "SelectiveAC": "selective", "MemoryBudgetAC": "memory_budget"}
"""Classes of activation checkpointing."""
TABLES = ("training", "parallelism", "compile", "checkpoint", "debug", "comm", "metrics")
DEFAULTS = {"local_batch_size": 8, "seq_len": 2048}
"""Of ``TrainingConfig`` (torchtitan 0.3.0, config/configs.py)."""


def is_registry(file: Source) -> bool:
    """Whether a file is a registry of configurations."""
    return file.path.suffix.casefold() == ".py" and "model_registry" in file.text()


def job_of(file: Source, stated: Stated, remarks: list[str]) -> Tree:
    """The job of one function of a file; remarks are added to ``remarks``.

    Raises:
        SilicastError: it holds several, or one that only running it would give.
    """
    effects = effects_of("torchtitan")
    name, python, built, more = chosen_recipe(
        file,
        stated,
        {"model_spec": object, "training": object},
        "a function that returns Trainer.Config(model_spec=..., training=...)",
        effects,
    )
    remarks += more
    remarks.append(f"job: {name}")
    tree = built.tree
    job: Tree = {"model": _model(tree["model_spec"], python, name, file)}
    for table in TABLES:
        job[table] = known_values(tree.get(table), table, str(file.path), effects)
    job["training"] = {**DEFAULTS, **job["training"]}
    again = tree.get("activation_checkpoint")
    kind = str(again.get(CALLED, "")).split(".") if isinstance(again, Mapping) else []
    modes = [MODES[word] for word in kind if word in MODES]
    if kind and not modes:
        raise unsupported(
            f"{'.'.join(kind)} is not read",
            "activation_checkpoint",
            ", ".join(MODES),
            file=str(file.path),
        )
    job["activation_checkpoint"] = {"mode": modes[0] if modes else "none"}
    if modes == ["selective"]:
        job["activation_checkpoint"]["selective_ac_option"] = "op"
    optimizer = tree.get("optimizer")
    called = str(optimizer.get(CALLED, "")) if isinstance(optimizer, Mapping) else ""
    job["optimizer"] = {"name": "Adam" if called.endswith("_adam") else "AdamW"}
    return job


def _model(spec: Any, python: PythonFile, name: str, file: Source) -> Tree:
    arguments = spec.get(GIVEN) if isinstance(spec, Mapping) else None
    flavor = (
        arguments[0] if arguments else spec.get("flavor") if isinstance(spec, Mapping) else None
    )
    if not isinstance(flavor, str):
        raise unsupported(
            "its flavour is no literal",
            f"{name}.model_spec",
            'model_registry("8B")',
            file=str(file.path),
        )
    listed = spec.get("converters") or []
    converters = [
        str(converter.get(CALLED, "")) for converter in listed if isinstance(converter, Mapping)
    ]
    words = {"MXFP8": "mx", "NVFP4": "nvfp4", "Float8": "float8"}
    return {
        "name": _family(python, file) or name.rpartition("_")[0],
        "flavor": flavor,
        "converters": [
            next((short for word, short in words.items() if word in converter), converter)
            for converter in converters
        ],
    }


def _family(python: PythonFile, file: Source) -> str:
    """The model's family: the module from which its registry comes."""
    for node in python.imports:
        if any(alias.name == "model_registry" for alias in node.names):
            return (
                node.module.rpartition(".")[2] if node.module else file.path.resolve().parent.name
            )
    defines = any(isinstance(node, ast.FunctionDef) for node in python.module.body)
    return (
        file.path.resolve().parent.name if "model_registry" in python.functions and defines else ""
    )


MODELS: Mapping[tuple[str, str], str] = {
    ("llama3", "8B"): "Llama-3.1-8B",
    ("llama3", "70B"): "Llama-3.1-70B",
    ("llama3", "405B"): "Llama-3.1-405B",
    ("llama4", "17bx16e"): "Llama-4-Scout-17B-16E",
    ("llama4", "17bx128e"): "Llama-4-Maverick-17B-128E",
    ("deepseek_v3", "16B"): "DeepSeek-V2-Lite",
    ("deepseek_v3", "236B"): "DeepSeek-V2",
    ("deepseek_v3", "671B"): "DeepSeek-V3",
    **{("qwen3", size): f"Qwen3-{size}" for size in ("0.6B", "1.7B", "4B", "8B", "14B", "32B")},
    ("llama3", "1B"): "Llama-3.2-1B",
    ("llama3", "3B"): "Llama-3.2-3B",
    ("gpt_oss", "20b"): "gpt-oss-20b",
    ("gpt_oss", "120b"): "gpt-oss-120b",
    ("qwen3", "30B-A3B"): "Qwen3-30B-A3B",
    ("qwen3", "235B-A22B"): "Qwen3-235B-A22B",
}
"""Name and flavour -> the model of the catalog."""
SCHEDULES: Mapping[str, str] = {
    "1F1B": "1f1b",
    "GPipe": "gpipe",
    "Interleaved1F1B": "interleaved",
    "ZBVZeroBubble": "zbv",
    "InterleavedZeroBubble": "zb_h1",
    "DualPipeV": "dualpipe",
}
"""Names of pipeline schedules."""
NEAREST = ("InterleavedZeroBubble", "DualPipeV")
"""Those that the nearest schedule stands for."""
RECOMPUTE = {"none": "none", "selective": "selective", "full": "full", "memory_budget": "selective"}
"""Modes of activation checkpointing."""
PARTS = ("model", "loss")
"""Parts that are compiled where no list says which (0.2.0, config/job_config.py)."""
CONVERTED = ("float8", "mx")
"""Converters that have a table of their own; one that is not listed converts nothing."""
ASYNC = "enable_async_tensor_parallel"
OPTIMIZERS = {"Adam": "adam", "AdamW": "adamw"}


@register
@final
class Torchtitan(TrainingConfig):
    """Reads a job's file."""

    name: ClassVar[str] = "torchtitan"
    files: ClassVar[str] = "the job's TOML, or a registry of jobs in Python (read and not run)"
    numbers: ClassVar[Mapping[str, str]] = {
        "workload.global_batch": "training.global_batch_size",
        "workload.seq_len": "training.seq_len",
        "parallel.tp": "tensor_parallel_degree",
        "parallel.cp": "context_parallel_degree",
    }

    def recognises(self, files: Sequence[Source]) -> bool:
        """A TOML with a model's flavour and a table of training, or a registry."""
        return _job(files) is not None or (len(files) == 1 and is_registry(files[0]))

    def read(self, files: Sequence[Source], stated: Stated) -> tuple[Tree, list[str]]:
        remarks: list[str] = []
        job = _job(files)
        if job is None:
            job = Fields(job_of(files[0], stated, remarks), file=str(files[0].path), loose=True)
        model, training = job.table("model"), job.table("training")
        recompute = job.table("activation_checkpoint")
        optimizer, compiled = job.table("optimizer"), job.table("compile")
        key = (model.text("name"), model.text("flavor"))
        if key not in MODELS:
            hint = ", ".join(" ".join(key_of_model) for key_of_model in MODELS)
            raise model.error(f"unknown model {key[0]!r} of flavour {key[1]!r}", "flavor", hint)
        if key[0] == "deepseek_v3" and key[1] != "671B":
            remarks.append(f"model.flavor: {key[1]} is taken as {MODELS[key]}")
        degrees = _Degrees(job)
        parallel, ranks, more = _parallel(degrees, stated.devices)
        local = training.count("local_batch_size", "batch_size", default=8)
        pp, dp = parallel.get("pp", 1), parallel.get("dp", 1)
        whole = training.count("global_batch_size", default=0, least=-1)
        if whole < 1:
            whole = local * dp
            remarks.append(f"training.global_batch_size: {local} on each of {dp} data ranks")
        slices = degrees.count("pipeline_parallel_microbatch_size", default=1)
        compiles = _compiled(compiled, training)
        converters = _converters(model)
        _pass_over_unused_formats(job, converters)
        workload: Tree = {
            "seq_len": training.count("seq_len", default=2048),
            "global_batch": whole,
            "micro_batch": slices if pp > 1 else local,
            "recompute": _recompute(recompute, remarks),
            "optimizer": optimizer.choice("name", OPTIMIZERS, "AdamW"),
            "overlap": {
                "gradients": True,
                "weights": True,
                "tensor": degrees.holding(ASYNC).flag(ASYNC),
            },
        }
        scenario: Tree = {
            "model": MODELS[key],
            "parallel": parallel,
            "engine": {"name": "fsdp", "options": _options(degrees, training, compiles, pp)},
            "precision": {"recipe": _recipe(converters, training)},
            "workload": workload,
        }
        if ranks:
            scenario["cluster"] = {"gpus": ranks}
        if training.text("dtype", default="float32") != "float32":
            remarks.append("training.dtype: weights without copies of 32 bits; those are counted")
        if training.flag("enable_cpu_offload"):
            scenario["workload"]["offload"] = {"optimizer": 1.0, "weights": 1.0}
        return scenario, [*remarks, *more, *effects_of("torchtitan").unused([job], scenario)]


def _job(files: Sequence[Source]) -> Fields | None:
    for file in files:
        table = file.table if file.path.suffix.casefold() == ".toml" else None
        model = table.get("model") if table else None
        if table and isinstance(model, dict) and "flavor" in model and "training" in table:
            return Fields(table, file=str(file.path), loose=True)
    return None


@final
class _Degrees:
    """Degrees of a job; early versions have them in the tables of training and of experiments."""

    def __init__(self, job: Fields) -> None:
        names = ("parallelism", "training", "experimental")
        self._tables = [job.table(name) for name in names]

    def holding(self, name: str) -> Fields:
        """The first table that states a field."""
        return next((table for table in self._tables if table.has(name)), self._tables[0])

    def count(self, name: str, default: int, least: int = 1) -> int:
        return self.holding(name).count(name, default=default, least=least)

    def text(self, name: str, default: str) -> str:
        return self.holding(name).text(name, default=default)

    def error(self, message: str, name: str, hint: str) -> SilicastError:
        return self.holding(name).error(message, name, hint)


def _parallel(degrees: _Degrees, devices: int) -> tuple[Tree, int, list[str]]:
    """Degrees; ranks in all, 0 = not stated; remarks.

    Raises:
        SilicastError: ``devices`` that the degrees do not divide.
    """
    remarks: list[str] = []
    tp = degrees.count("tensor_parallel_degree", default=1)
    pp = degrees.count("pipeline_parallel_degree", default=1)
    cp = degrees.count("context_parallel_degree", default=1)
    ep = degrees.count("expert_parallel_degree", default=1)
    etp = degrees.count("expert_tensor_parallel_degree", default=tp if ep == 1 else 1)
    copies = degrees.count("data_parallel_replicate_degree", default=1)
    shard = degrees.count("data_parallel_shard_degree", default=-1, least=-1)
    reshard = degrees.text("fsdp_reshard_after_forward", default="default")
    zero = 3 if reshard == "always" or pp == 1 else 2
    others = tp * pp * cp * copies
    if shard < 1 and devices:  # all that the other degrees leave
        shard, left = divmod(devices, others)
        if left or not shard:
            raise degrees.error(
                f"{devices} devices do not divide by {tp} x {pp} x {cp} x {copies}",
                "data_parallel_shard_degree",
                "state another cluster.gpus",
            )
    dp = copies * max(shard, 1)
    if devices and tp * pp * cp * dp != devices:
        raise degrees.error(
            f"the degrees take {tp * pp * cp * dp} of {devices} devices",
            "data_parallel_shard_degree",
            "-1 takes what is left; or state another cluster.gpus",
        )
    if shard < 1:
        remarks.append(
            "data_parallel_shard_degree: all other ranks; state how many devices there are: "
            "--set cluster.gpus=8"
        )
    elif shard == 1:
        zero = 0
    schedule = degrees.text("pipeline_parallel_schedule", default="1F1B")
    if pp > 1 and schedule not in SCHEDULES:
        hint = ", ".join(SCHEDULES)
        raise degrees.error(
            f"unknown schedule {schedule[:40]!r}", "pipeline_parallel_schedule", hint
        )
    parallel = parallel_of(
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        dp=dp if shard > 0 else 1,
        zero=zero,
        sp=tp > 1,
        virtual_stages=2 if pp > 1 and schedule == "Interleaved1F1B" else 1,
    )
    if copies > 1 and shard > 1:
        parallel["shard"] = shard
    if ep > 1 or etp != tp:
        parallel["etp"] = etp
    if pp > 1:
        parallel["schedule"] = SCHEDULES[schedule]
        if schedule == "Interleaved1F1B":
            remarks.append("virtual_stages: two chunks a rank are assumed")
        if schedule in NEAREST:
            remarks.append(
                f"pipeline_parallel_schedule: {schedule} is taken as {SCHEDULES[schedule]}"
            )
    return parallel, tp * pp * cp * dp if shard > 0 else 0, remarks


def _compiled(table: Fields, training: Fields) -> Collection[str]:
    """What is compiled, of ``PARTS``."""
    if not table.flag("enable") and not training.flag("compile"):
        return ()
    parts = table.get("components")
    return parts if isinstance(parts, list) else PARTS


def _options(degrees: _Degrees, training: Fields, compiles: Collection[str], pp: int) -> Tree:
    """How weights are sharded, in which format gradients are summed, and whether the loss is one
    kernel.
    """
    reduced = training.text("mixed_precision_reduce", default="float32")
    options: Tree = {
        "gradient_format": "fp32" if reduced == "float32" else "bf16",
        "fused_loss": "loss" in compiles,
        "compile": "model" in compiles,
    }
    if pp == 1 and degrees.text("fsdp_reshard_after_forward", default="default") == "never":
        options["reshard_after_forward"] = False
    return options


def _recompute(table: Fields, remarks: list[str]) -> str:
    """What is computed again; remarks are added to ``remarks``."""
    mode, option = table.text("mode", default="selective"), table.text("selective_ac_option")
    kind = str(table.choice("mode", RECOMPUTE, "selective"))
    if mode == "memory_budget":
        remarks.append(
            "activation_checkpoint.mode: memory_budget is not modelled, selective is taken"
        )
    elif kind == "selective" and option == "op":
        # It keeps every second product and what attention gives: of a layer about as many bytes as
        # stay where the MLP alone is computed again.
        remarks.append("selective_ac_option: op, every second product, is taken as the whole MLP")
        return "selective:mlp"
    elif kind == "selective" and option.isdigit() and int(option) > 0:
        return f"full:{option}"
    return kind


def _converters(model: Fields) -> list[str]:
    listed = model.get("converters")
    return [str(each) for each in listed] if isinstance(listed, list) else []


def _pass_over_unused_formats(job: Fields, converters: list[str]) -> None:
    """Marks the tables that say how to convert to formats that nothing is converted to."""
    quantize = job.table("quantize")
    for name in CONVERTED:
        if not any(name in each for each in converters):
            for table in (job, *map(quantize.table, quantize.names())):
                table.get(name)


def _recipe(converters: list[str], training: Fields) -> str:
    """The format of products."""
    for name in converters:
        if "float8" in name:
            return "fp8"
        if "nvfp4" in name:
            return "nvfp4"
        if "mx" in name:
            return "mxfp8"
    held = training.text("mixed_precision_param", default="bfloat16")
    return {"bfloat16": "bf16", "float32": "fp32"}.get(held, "bf16")
