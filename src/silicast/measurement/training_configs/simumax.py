"""SimuMax (github.com/MooreThreads/SimuMax): a model, a strategy and a system in JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, final

from silicast.core.errors import SilicastError
from silicast.measurement.training_configs.config_file import ConfigFile, Fields, not_used
from silicast.measurement.training_configs.decoder_config import Decoder, Latent, config_of
from silicast.measurement.training_configs.device_name import device_named
from silicast.measurement.training_configs.reader import TrainingConfig, Tree, parallel_of, register

MODEL = ("hidden_size", "head_num", "layer_num")
STRATEGY = ("tp_size", "world_size", "micro_batch_size")
SYSTEM = ("accelerator", "networks")
MODULES = {
    "attn_recompute": "core_attn", "mlp_recompute": "mlp", "mlp_rms_recompute": "layernorm",
    "mla_rms_recompute": "layernorm",
}  # fmt: skip
"""Flags of modules that are computed again."""


@register
@final
class SimuMax(TrainingConfig):
    """Reads the three files of a run, in any order."""

    name: ClassVar[str] = "SimuMax"
    files: ClassVar[str] = "model, strategy and system (JSON)"

    def recognises(self, files: Sequence[ConfigFile]) -> bool:
        """A strategy among them, or a model."""
        return _with(files, STRATEGY) is not None or _with(files, MODEL) is not None

    def read(self, files: Sequence[ConfigFile]) -> tuple[Tree, list[str]]:
        """See :class:`TrainingConfig`."""
        plan, shape = _needed(files, STRATEGY, "strategy"), _needed(files, MODEL, "model")
        model, said = _model(shape, plan.whole("seq_len"))
        names = ("tp", "pp", "cp", "ep", "etp")
        tp, pp, cp, ep, etp = (plan.whole(f"{name}_size", default=1) for name in names)
        world = plan.whole("world_size")
        dp, rest = divmod(world, tp * pp * cp)
        if rest or not dp:
            raise plan.error(f"{world} ranks do not divide by {tp} x {pp} x {cp}", "world_size")
        micro = plan.whole("micro_batch_size")
        parallel = parallel_of(
            tp=tp, pp=pp, cp=cp, ep=ep, dp=dp, sp=plan.flag("enable_sequence_parallel") and tp > 1,
            virtual_stages=plan.whole("interleaving_size", default=1),
            zero=plan.whole("zero_state", default=0, least=0),
        )  # fmt: skip
        if ep > 1 or etp > 1:
            parallel["etp"] = etp
        recipe = "fp8" if plan.flag("fp8") else plan.choice(
            "dtype", {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32", "fp8": "fp8"}, "bf16"
        )  # fmt: skip
        scenario: Tree = {
            "model": model, "parallel": parallel, "engine": {"name": "megatron"},
            "precision": {"recipe": recipe}, "cluster": {"gpus": world},
            "workload": {
                "seq_len": plan.whole("seq_len"), "micro_batch": micro,
                "global_batch": micro * plan.whole("micro_batch_num") * dp,
                "recompute": _recompute(plan, said),
            },
        }  # fmt: skip
        if shape.whole("expert_num", default=1, least=0) > 1:
            scenario["workload"]["routing"] = "balanced"
        tables = [shape, plan]
        if _with(files, SYSTEM) is None:
            return scenario, [*said, "system: not given", *not_used(tables)]
        system = _needed(files, SYSTEM, "system")
        said += _system(system, scenario)
        return scenario, [*said, *not_used([*tables, system])]


def _with(files: Sequence[ConfigFile], names: Sequence[str]) -> ConfigFile | None:
    return next((f for f in files if f.table and all(name in f.table for name in names)), None)


def _needed(files: Sequence[ConfigFile], names: Sequence[str], what: str) -> Fields:
    file = _with(files, names)
    if file is None or file.table is None:
        raise SilicastError(
            f"the {what} is missing", file=str(files[0].path), field=what,
            hint=f"the file that holds {', '.join(names)}",
        )  # fmt: skip
    return Fields(file.table, str(file.path))


def _model(fields: Fields, seq_len: int) -> tuple[dict[str, Any], list[str]]:
    heads = fields.whole("head_num")
    experts = fields.whole("expert_num", default=1, least=0)
    latent = None
    if fields.text("attention_type", default="mha") == "mla":
        latent = Latent(
            kv_lora_rank=fields.whole("kv_lora_rank"),
            q_lora_rank=fields.whole("q_lora_rank", default=0, least=0),
            qk_nope_head_dim=fields.whole("qk_head_dim", default=128),
            qk_rope_head_dim=fields.whole("qk_pos_emb_head_dim", default=64),
            v_head_dim=fields.whole("v_head_dim", default=128),
        )
    width = fields.whole("intermediate_size", default=4 * fields.whole("hidden_size"))
    model = Decoder(
        layers=fields.whole("layer_num"), hidden=fields.whole("hidden_size"), heads=heads,
        kv_heads=fields.whole("kv_head_num", default=heads), intermediate=width,
        head_dim=0 if latent else fields.whole("head_size", default=0, least=0),
        vocab=fields.whole("padded_vocab_size", "vocab_size", "orig_vocab_size"),
        max_positions=seq_len, gated=fields.flag("use_swiglu", default=True),
        activation="silu" if fields.flag("use_swiglu", default=True) else "gelu",
        experts=experts if experts > 1 else 0, topk=fields.whole("topk", default=1),
        moe_intermediate=fields.whole("moe_ffn_hidden_size", default=0, least=0),
        shared_intermediate=fields.whole(
            "moe_shared_expert_intermediate_size", default=0, least=0
        ),
        dense_first=fields.whole("dense_layers", default=0, least=0), latent=latent,
        name=fields.text("model_name", default=Path(fields.file).stem),
    )  # fmt: skip
    fields.raw("model_type", "vocab_size", "orig_vocab_size")
    return config_of(model)


def _recompute(plan: Fields, said: list[str]) -> str:
    enabled = plan.flag("enable_recompute", default=True)
    kind = plan.text("recompute_granularity", default="")
    layers = plan.whole("recompute_layer_num", default=0, least=0)
    if not enabled or not kind or kind == "none":
        for name in MODULES:
            plan.raw(name)
        return "none"
    if layers:
        said.append(f"recompute_layer_num: every layer is computed again, not {layers} of a stage")
    if kind == "full_block":
        return "full"
    modules = [name for flag, name in MODULES.items() if plan.flag(flag)]
    chosen = list(dict.fromkeys(modules))
    if kind == "attn_only" or set(chosen) <= {"core_attn"}:
        return "selective"
    return f"selective:{'+'.join(chosen)}"


def _system(fields: Fields, scenario: Tree) -> list[str]:
    """Links into the scenario; the device, where the system's name is one's."""
    said = device_named(fields.text("sys_name", default=Path(fields.file).stem), scenario)
    fields.raw("accelerator")
    said.append("accelerator: rates and efficiencies of Silicast's own device are used")
    if fields.has("num_per_node"):
        scenario["cluster"]["gpus_per_node"] = fields.whole("num_per_node")
    networks = fields.table("networks")
    between = networks.table("inter_node")
    link = between.table("bandwidth")
    if rate := link.number("gbps"):
        scenario["cluster"]["inter_node"] = {
            "bandwidth_gb_per_s": rate, "latency_us": link.number("latency_us"),
        }  # fmt: skip
    return [*said, *not_used([networks, between, link])]
