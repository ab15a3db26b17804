"""SimuMax (github.com/MooreThreads/SimuMax): a model, a strategy and a system in JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, final

from silicast.formats.fields import Fields
from silicast.formats.training_configs.decoder_config import DecoderSizes, LatentSizes, config_of
from silicast.formats.training_configs.device_name import device_named
from silicast.formats.training_configs.reader import Tree, parallel_of, register
from silicast.formats.training_configs.three_files import ThreeFiles

MODULES = {
    "attn_recompute": "core_attn",
    "mlp_recompute": "mlp",
    "mlp_rms_recompute": "layernorm",
    "mla_rms_recompute": "layernorm",
}
"""Flags of modules that are computed again."""


@register
@final
class SimuMax(ThreeFiles):
    """Reads the three files of a run, in any order."""

    name: ClassVar[str] = "SimuMax"
    files: ClassVar[str] = "model, strategy and system (JSON)"
    parts: ClassVar[Mapping[str, Sequence[str]]] = {
        "strategy": ("tp_size", "world_size", "micro_batch_size"),
        "model": ("hidden_size", "head_num", "layer_num"),
        "system": ("accelerator", "networks"),
    }

    def scenario(self, run: Fields, model: Fields) -> tuple[Tree, list[str]]:
        made, remarks = _model(model, run.count("seq_len"))
        names = ("tp", "pp", "cp", "ep", "etp")
        tp, pp, cp, ep, etp = (run.count(f"{name}_size", default=1) for name in names)
        world = run.count("world_size")
        dp, remainder = divmod(world, tp * pp * cp)
        if remainder or not dp:
            raise run.error(f"{world} ranks do not divide by {tp} x {pp} x {cp}", "world_size")
        micro = run.count("micro_batch_size")
        parallel = parallel_of(
            tp=tp,
            pp=pp,
            cp=cp,
            ep=ep,
            dp=dp,
            sp=run.flag("enable_sequence_parallel") and tp > 1,
            virtual_stages=run.count("interleaving_size", default=1),
            zero=run.count("zero_state", default=0, least=0),
        )
        if ep > 1 or etp > 1:
            parallel["etp"] = etp
        recipe = (
            "fp8"
            if run.flag("fp8")
            else run.choice(
                "dtype", {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32", "fp8": "fp8"}, "bf16"
            )
        )
        scenario: Tree = {
            "model": made,
            "parallel": parallel,
            "engine": {"name": "megatron"},
            "precision": {"recipe": recipe},
            "cluster": {"gpus": world},
            "workload": {
                "seq_len": run.count("seq_len"),
                "micro_batch": micro,
                "global_batch": micro * run.count("micro_batch_num") * dp,
                "recompute": _recompute(run, remarks),
            },
        }
        if model.count("expert_num", default=1, least=0) > 1:
            scenario["workload"]["routing"] = "balanced"
        return scenario, remarks

    def join(self, system: Fields, scenario: Tree) -> list[str]:
        """Links into the scenario; the device, where the system's name is one's."""
        remarks = device_named(system.text("sys_name", default=Path(system.file).stem), scenario)
        system.get("accelerator")
        remarks.append("accelerator: rates and efficiencies of Silicast's own device are used")
        if system.has("num_per_node"):
            scenario["cluster"]["gpus_per_node"] = system.count("num_per_node")
        networks = system.table("networks")
        between = networks.table("inter_node")
        link = between.table("bandwidth")
        if rate := link.number("gbps", default=0.0):
            scenario["cluster"]["inter_node"] = {
                "bandwidth_gb_per_s": rate,
                "latency_us": link.number("latency_us", default=0.0),
            }
        return remarks


def _model(fields: Fields, seq_len: int) -> tuple[dict[str, Any], list[str]]:
    heads = fields.count("head_num")
    experts = fields.count("expert_num", default=1, least=0)
    latent = None
    if fields.text("attention_type", default="mha") == "mla":
        latent = LatentSizes(
            kv_lora_rank=fields.count("kv_lora_rank"),
            q_lora_rank=fields.count("q_lora_rank", default=0, least=0),
            qk_nope_head_dim=fields.count("qk_head_dim", default=128),
            qk_rope_head_dim=fields.count("qk_pos_emb_head_dim", default=64),
            v_head_dim=fields.count("v_head_dim", default=128),
        )
    width = fields.count("intermediate_size", default=4 * fields.count("hidden_size"))
    model = DecoderSizes(
        layers=fields.count("layer_num"),
        hidden=fields.count("hidden_size"),
        heads=heads,
        kv_heads=fields.count("kv_head_num", default=heads),
        intermediate=width,
        head_dim=0 if latent else fields.count("head_size", default=0, least=0),
        vocab=fields.count("padded_vocab_size", "vocab_size", "orig_vocab_size"),
        max_positions=seq_len,
        gated=fields.flag("use_swiglu", default=True),
        activation="silu" if fields.flag("use_swiglu", default=True) else "gelu",
        experts=experts if experts > 1 else 0,
        topk=fields.count("topk", default=1),
        moe_intermediate=fields.count("moe_ffn_hidden_size", default=0, least=0),
        shared_intermediate=fields.count("moe_shared_expert_intermediate_size", default=0, least=0),
        dense_first=fields.count("dense_layers", default=0, least=0),
        latent=latent,
        name=fields.text("model_name", default=Path(fields.file).stem),
    )
    fields.get("model_type", "vocab_size", "orig_vocab_size")
    return config_of(model)


def _recompute(plan: Fields, remarks: list[str]) -> str:
    enabled = plan.flag("enable_recompute", default=True)
    kind = plan.text("recompute_granularity", default="")
    layers = plan.count("recompute_layer_num", default=0, least=0)
    if not enabled or not kind or kind == "none":
        for name in MODULES:
            plan.get(name)
        return "none"
    if layers:
        remarks.append(
            f"recompute_layer_num: every layer is computed again, not {layers} of a stage"
        )
    if kind == "full_block":
        return "full"
    modules = [name for flag, name in MODULES.items() if plan.flag(flag)]
    chosen = list(dict.fromkeys(modules))
    if kind == "attn_only" or set(chosen) <= {"core_attn"}:
        return "selective"
    return f"selective:{'+'.join(chosen)}"
