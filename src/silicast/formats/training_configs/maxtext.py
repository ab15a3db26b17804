"""MaxText (github.com/AI-Hypercomputer/maxtext): a run's YAML, or a script with its fields.

Defaults are those of maxtext 0.2.5, configs/base.yml.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, final

from silicast.formats.effects import effects_of
from silicast.formats.fields import Fields
from silicast.formats.shell_script import Script
from silicast.formats.source import Source
from silicast.formats.training_configs.decoder_config import DecoderSizes, LatentSizes, config_of
from silicast.formats.training_configs.reader import (
    Stated,
    TrainingConfig,
    Tree,
    parallel_of,
    register,
)

AXES: Mapping[str, str] = {
    "data": "replicas",
    "fsdp": "shard",
    "fsdp_transpose": "shard",
    "sequence": "cp",
    "context": "cp",
    "tensor": "tp",
    "tensor_transpose": "tp",
    "tensor_sequence": "tp",
    "expert": "ep",
    "pipeline": "pp",
    "autoregressive": "tp",
    "context_autoregressive": "cp",
}
"""Axes of the mesh -> degrees."""
FREE = {"ici": "fsdp", "dcn": "data"}
"""The axis of each network that takes the devices that are left, where nothing is stated."""
REMAT: Mapping[str, str] = {
    "none": "none",
    "full": "full",
    "minimal": "selective",
    "minimal_flash": "selective",
    "minimal_with_context": "none",
    "minimal_offloaded": "selective",
    "minimal_with_quantization": "selective",
    "minimal_with_context_and_quantization": "none",
    "save_dot_except_mlp": "selective:core_attn+mlp",
    "save_dot_except_mlpwi": "selective:core_attn+mlp",
    "save_dot_with_context_except_mlp": "selective:mlp",
    "save_qkv_proj": "full",
    "save_out_proj": "full",
    "qkv_proj_offloaded": "full",
    "custom": "full",
}
"""What is made again; policies between two of ours stand for the one that keeps less."""
NEAREST = (
    "save_qkv_proj",
    "save_out_proj",
    "qkv_proj_offloaded",
    "custom",
    "minimal_offloaded",
    "save_dot_except_mlpwi",
)
FORMATS: Mapping[str, str] = {
    "": "bf16",
    "none": "bf16",
    "int8": "int8",
    "fp8": "fp8",
    "fp8_full": "fp8",
    "fp8_gpu": "fp8",
    "nanoo_fp8": "fp8",
    "fp8_nanoo": "fp8",
    "aqt_fp8": "fp8",
    "aqt_fp8_full": "fp8",
    "te_fp8_delayedscaling": "fp8",
    "te_fp8_currentscaling": "fp8",
    "te_mxfp8": "mxfp8",
    "te_nvfp4": "nvfp4",
}
OPTIMIZERS = {"adamw": "adamw", "adam_pax": "adamw", "sgd": "sgd", "muon": "muon"}
TOPOLOGY = re.compile(r"(v\d+[ep]?|\w+)-(\d+)")
CORES = ("v4", "v5p")
"""Generations whose topologies count cores, two a chip."""
DEFAULTS: Mapping[str, Any] = {
    "base_emb_dim": 2048,
    "base_num_query_heads": 16,
    "base_num_kv_heads": 16,
    "base_mlp_dim": 7168,
    "base_num_decoder_layers": 16,
    "head_dim": 128,
    "vocab_size": 32_000,
}


@register
@final
class MaxText(TrainingConfig):
    """Reads a run's file."""

    name: ClassVar[str] = "MaxText"
    files: ClassVar[str] = "a run's YAML, or a script that starts it with its fields"
    numbers: ClassVar[Mapping[str, str]] = {
        "model.num_attention_heads": "base_num_query_heads",
        "model.experts": "num_experts",
        "workload.seq_len": "max_target_length",
        "workload.global_batch": "per_device_batch_size",
        "parallel.tp": "ici_tensor_parallelism",
        "parallel.cp": "ici_context_parallelism",
        "parallel.ep": "ici_expert_parallelism",
    }

    def recognises(self, files: Sequence[Source]) -> bool:
        """A batch of a device with a length, under names that only MaxText has."""
        if len(files) != 1:
            return False
        table = files[0].table
        if table is None:
            text = (
                files[0].text() if files[0].path.suffix.casefold() not in (".py", ".toml") else ""
            )
            return "per_device_batch_size=" in text and "max_target_length=" in text
        named = any(name.startswith(("ici_", "dcn_", "base_emb_dim")) for name in table)
        return "per_device_batch_size" in table and (named or "max_target_length" in table)

    def read(self, files: Sequence[Source], stated: Stated) -> tuple[Tree, list[str]]:
        file = files[0]
        table = file.table
        values = dict(table) if table is not None else _of_script(file, stated)
        fields = Fields(values, file=str(file.path), loose=True)
        remarks = ["engine: kernels that XLA fuses are not told apart, FSDP's stand for them"]
        model = _model(fields, remarks)
        devices = stated.devices or _devices(fields)
        degrees = _degrees(fields, devices, remarks)
        dp = degrees["replicas"] * degrees["shard"] * degrees["ep"]
        total = dp * degrees["tp"] * degrees["cp"] * degrees["pp"]
        micro, slices = _sequences(fields, total, dp, degrees["pp"])
        zero = 3 if degrees["shard"] > 1 else 0
        parallel = parallel_of(
            tp=degrees["tp"],
            pp=degrees["pp"],
            cp=degrees["cp"],
            ep=degrees["ep"],
            dp=dp,
            zero=zero,
            sp=degrees["tp"] > 1,
        )
        if zero and degrees["replicas"] > 1:
            parallel["shard"] = degrees["shard"] * degrees["ep"]
        workload: Tree = {
            "seq_len": fields.count("max_target_length", default=2048),
            "global_batch": micro * dp * fields.count("gradient_accumulation_steps", default=1),
            "micro_batch": micro // slices,
            **_memory(fields, remarks),
            "optimizer": fields.choice("opt_type", OPTIMIZERS, "adamw"),
        }
        attention = fields.text("attention", default="autoselected")
        options = {
            "attention": "math" if attention == "dot_product" else "fused",
            "fused_loss": fields.count("num_vocab_tiling", default=1) > 1,
        }
        scenario: Tree = {
            "model": model,
            "parallel": parallel,
            "engine": {"name": "maxtext", "options": options},
            "precision": {"recipe": fields.choice("quantization", FORMATS, "")},
            "workload": workload,
        }
        if devices:
            scenario["cluster"] = {"gpus": total}
        return scenario, [*remarks, *effects_of("maxtext").unused([fields], scenario)]


def _sequences(fields: Fields, total: int, dp: int, pp: int) -> tuple[int, int]:
    """Sequences of a data rank and a pass, and micro-batches that a pipeline cuts them into.

    Raises:
        SilicastError: they are no whole number, or do not divide.
    """
    batch = fields.number("per_device_batch_size", default=12.0, above=0.0)
    micro = batch * total / dp
    if micro != int(micro):
        raise fields.error(
            f"{batch:g} x {total} devices are no whole number of sequences on {dp} data ranks",
            "per_device_batch_size",
            f"change it to {math.ceil(micro) * dp / total:g}",
        )
    slices = fields.count("num_pipeline_microbatches", default=-1, least=-1)
    slices = (slices if slices > 0 else pp) if pp > 1 else 1
    if int(micro) % slices:
        raise fields.error(
            f"{int(micro)} sequences do not divide by {slices} micro-batches",
            "num_pipeline_microbatches",
            "change it, or per_device_batch_size",
        )
    return int(micro), slices


def _memory(fields: Fields, remarks: list[str]) -> Tree:
    """What is made again, and what the host holds."""
    policy = fields.text("remat_policy", default="full")
    if policy in NEAREST:
        remarks.append(f"remat_policy: {policy} is taken as {REMAT[policy]}, which keeps less")
    offload: dict[str, Any] = {}
    if fields.flag("optimizer_memory_host_offload"):
        offload["optimizer"] = 1.0
    if policy == "minimal_offloaded":
        offload["activations"] = 1.0
    made: Tree = {"recompute": fields.choice("remat_policy", REMAT, "full")}
    return made | ({"offload": offload} if offload else {})


def _of_script(file: Source, stated: Stated) -> dict[str, str]:
    """``name=value`` arguments of the command with a batch of a device."""
    runs = {}
    for words in Script.parse(file.text(), stated.variables).runs:
        pairs = dict(word.partition("=")[::2] for word in words if re.match(r"[a-z]\w*=", word))
        if "per_device_batch_size" in pairs:
            runs[tuple(sorted(pairs.items()))] = pairs
    names = {str(number): run.get("run_name", "") for number, run in enumerate(runs.values(), 1)}
    chosen = list(runs.values())[int(stated.chosen(names, str(file.path))) - 1]
    for name, value in chosen.items():
        if "$" in value and name not in ("run_name", "base_output_directory", "dataset_path"):
            raise Fields(chosen, file=str(file.path)).error(
                f"its value {value[:40]!r} is left to the shell", name, "state it: --env NAME=value"
            )
    return {name: value.strip("'\"") for name, value in chosen.items()}


def _model(fields: Fields, remarks: list[str]) -> str | dict[str, Any]:
    name = fields.text("model_name", default="default")
    if name != "default":
        return name
    sizes = {key: fields.count(key, default=default) for key, default in DEFAULTS.items()}
    listed = fields.get("mlp_activations")
    gated = not isinstance(listed, list) or len(listed) > 1
    experts = fields.count("num_experts", default=1)
    latent = None
    if fields.text("attention_type") == "mla":
        latent = LatentSizes(
            kv_lora_rank=fields.count("kv_lora_rank", default=512),
            q_lora_rank=fields.count("q_lora_rank", default=0, least=0),
            qk_nope_head_dim=fields.count("qk_nope_head_dim", default=128),
            qk_rope_head_dim=fields.count("qk_rope_head_dim", default=64),
            v_head_dim=fields.count("v_head_dim", default=128),
        )
    width = fields.integer("base_moe_mlp_dim", default=-1)
    heads, hidden = sizes["base_num_query_heads"], sizes["base_emb_dim"]
    made, more = config_of(
        DecoderSizes(
            layers=sizes["base_num_decoder_layers"],
            hidden=hidden,
            heads=heads,
            intermediate=sizes["base_mlp_dim"],
            vocab=sizes["vocab_size"],
            kv_heads=sizes["base_num_kv_heads"],
            head_dim=sizes["head_dim"] if sizes["head_dim"] * heads != hidden else 0,
            max_positions=max(fields.count("max_target_length", default=2048), 4096),
            gated=gated,
            activation="silu" if gated else "gelu",
            tied=fields.flag("logits_via_embedding"),
            qk_norm=fields.flag("use_qk_norm"),
            experts=experts if experts > 1 else 0,
            topk=fields.count("num_experts_per_tok", default=1),
            moe_intermediate=width if width > 0 else sizes["base_mlp_dim"],
            shared_intermediate=fields.count("shared_experts", default=0, least=0) * max(width, 0),
            dense_first=fields.count("first_num_dense_layers", default=0, least=0),
            latent=latent,
        )
    )
    remarks += more
    return made


def _devices(fields: Fields) -> int:
    """Chips of the topology that the run is compiled for; 0 = not stated."""
    match = TOPOLOGY.fullmatch(fields.text("compile_topology"))
    slices = fields.integer("compile_topology_num_slices", "num_slices", default=-1)
    if match is None or len(match[2]) > 8:
        return 0
    chips = int(match[2]) // (2 if match[1] in CORES else 1)
    return chips * max(slices, 1)


def _degrees(fields: Fields, devices: int, remarks: list[str]) -> dict[str, int]:
    """Degrees of all axes of both networks; one that is -1 takes the devices that are left.

    Raises:
        SilicastError: the devices do not divide, or two axes are -1.
    """
    degrees = dict.fromkeys(AXES.values(), 1)
    slices = 1
    for network in ("dcn", "ici"):
        usual = {axis: -1 if FREE[network] == axis else 1 for axis in AXES}
        by_axis = {
            axis: fields.integer(f"{network}_{axis}_parallelism", default=usual[axis], least=-1)
            for axis in AXES
        }
        free = [axis for axis, degree in by_axis.items() if degree < 1]
        if len(free) > 1:
            raise fields.error(
                f"{' and '.join(free)} are both -1",
                f"{network}_{free[0]}_parallelism",
                "one axis takes what is left",
            )
        fixed = math.prod(degree for degree in by_axis.values() if degree > 0)
        if network == "dcn":
            whole = slices = max(fields.integer("num_slices", default=-1), fixed, 1)
        else:
            whole, left = divmod(devices, slices)
            if left:
                raise fields.error(f"{devices} devices are no {slices} slices", "num_slices")
        axis = free[0] if free else FREE[network]
        if whole and (whole % fixed or (not free and fixed != whole)):
            raise fields.error(
                f"the axes take {fixed} of {whole} devices",
                f"{network}_{axis}_parallelism",
                "change an axis (-1 takes what is left), or the devices: --set cluster.gpus",
            )
        if free and not whole:
            remarks.append(
                f"{network}_{axis}_parallelism: all other devices; state how many there are: "
                "--set cluster.gpus=8"
            )
        for name, degree in by_axis.items():
            degrees[AXES[name]] *= degree if degree > 0 else max(whole // fixed, 1)
    return degrees
