"""Sizes of a decoder as an inline ``config.json``: of the family that has its structures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final


@final
@dataclass(frozen=True, kw_only=True)
class LatentSizes:
    """Sizes of multi-head latent attention."""

    kv_lora_rank: int
    q_lora_rank: int = 0
    qk_nope_head_dim: int = 128
    qk_rope_head_dim: int = 64
    v_head_dim: int = 128


@final
@dataclass(frozen=True, kw_only=True)
class DecoderSizes:
    """What a training configuration says of its model.

    Attributes:
        head_dim: 0 = hidden over heads.
        gated: the MLP has a gate (SwiGLU).
        norm: "rmsnorm" or "layernorm"; position: "rope" or "learned".
        tied: the head shares the embedding.
        biases: of all linear layers; qkv_bias: of queries, keys and values alone.
        experts: routed ones; 0 = none. ``moe_intermediate`` is of one of them,
            ``shared_intermediate`` of what runs beside them, ``dense_first`` layers at the start
            and ``dense_layers`` (from 0) have none.
    """

    layers: int
    hidden: int
    heads: int
    intermediate: int
    vocab: int
    kv_heads: int = 0
    head_dim: int = 0
    max_positions: int = 4096
    gated: bool = True
    activation: str = "silu"
    norm: str = "rmsnorm"
    position: str = "rope"
    tied: bool = False
    biases: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    experts: int = 0
    topk: int = 2
    moe_intermediate: int = 0
    shared_intermediate: int = 0
    dense_first: int = 0
    dense_layers: tuple[int, ...] = ()
    latent: LatentSizes | None = None
    mtp_layers: int = 0
    name: str = ""


def config_of(model: DecoderSizes) -> tuple[dict[str, Any], list[str]]:
    """The configuration, and what of the model no family has.

    >>> made = config_of(DecoderSizes(layers=2, hidden=64, heads=4, intermediate=128, vocab=1000))
    >>> made[0]["architectures"], made[1]
    (['LlamaForCausalLM'], [])
    """
    made: dict[str, Any] = {
        "num_hidden_layers": model.layers,
        "hidden_size": model.hidden,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads or model.heads,
        "intermediate_size": model.intermediate,
        "vocab_size": model.vocab,
        "max_position_embeddings": model.max_positions,
        "tie_word_embeddings": model.tied,
        "hidden_act": model.activation,
    }
    if model.dense_layers:
        made["mlp_only_layers"] = list(model.dense_layers)
    if model.head_dim:
        made["head_dim"] = model.head_dim
    if model.name:
        made["_name_or_path"] = model.name
    if model.latent is not None:
        return _latent(model, model.latent, made)
    if model.experts:
        return _experts(model, made)
    return _dense(model, made)


def _dense(model: DecoderSizes, made: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    if model.gated or model.norm == "rmsnorm":
        remarks = [] if model.gated else ["an MLP without a gate behind RMSNorm: a gate is assumed"]
        remarks += _as_llama(model)
        if model.qk_norm:
            table = {
                "architectures": ["Qwen3ForCausalLM"],
                "model_type": "qwen3",
                "head_dim": model.head_dim or model.hidden // model.heads,
                "attention_bias": model.biases or model.qkv_bias,
            }
        elif model.qkv_bias and not model.biases:
            table = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
        else:
            table = {
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                "attention_bias": model.biases,
                "mlp_bias": model.biases,
            }
        return made | table, remarks
    remarks = ["normalised queries and keys are left out"] if model.qk_norm else []
    grouped = model.kv_heads not in (0, model.heads)
    if model.position == "learned" and not grouped:
        table = {
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            "n_inner": model.intermediate,
            "activation_function": model.activation,
        }
        if not model.biases:
            remarks.append("linear layers are taken with biases")
        for name in ("intermediate_size", "num_key_value_heads", "hidden_act"):
            made.pop(name)
        return made | table, remarks
    if model.position == "learned":
        remarks.append("learned positions beside grouped queries: rotary ones are assumed")
    if model.activation == "relu2":
        table = {
            "architectures": ["NemotronForCausalLM"],
            "model_type": "nemotron",
            "attention_bias": model.biases,
            "mlp_bias": model.biases,
        }
        return made | table, remarks
    table = {
        "architectures": ["Starcoder2ForCausalLM"],
        "model_type": "starcoder2",
        "use_bias": model.biases,
    }
    return made | table, remarks


def _as_llama(model: DecoderSizes) -> list[str]:
    remarks = []
    if model.norm != "rmsnorm":
        remarks.append("LayerNorm before a gated MLP: RMSNorm is assumed")
    if model.position != "rope":
        remarks.append("learned positions before a gated MLP: rotary ones are assumed")
    return remarks


def _experts(model: DecoderSizes, made: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    if not model.gated and model.norm == "layernorm":
        return _plain_experts(model, made)
    remarks = _as_llama(model)
    if not model.gated:
        remarks.append("experts without a gate: a gate is assumed")
    own_width = model.moe_intermediate or model.intermediate
    counts = {"num_experts_per_tok": model.topk, "moe_intermediate_size": own_width}
    if model.shared_intermediate or model.dense_first or model.dense_layers:
        shared, remainder = divmod(model.shared_intermediate, own_width)
        if remainder:
            remarks.append(
                f"a shared expert of {model.shared_intermediate} beside experts of {own_width}: "
                f"{max(shared, 1)} of {own_width} are assumed"
            )
            shared = max(shared, 1)
        table: dict[str, Any] = {
            "architectures": ["Glm4MoeForCausalLM"],
            "model_type": "glm4_moe",
            "n_routed_experts": model.experts,
            "n_shared_experts": shared,
            "first_k_dense_replace": model.dense_first,
            "attention_bias": model.qkv_bias,
            "use_qk_norm": model.qk_norm,
        }
    elif model.qk_norm:
        table = {
            "architectures": ["Qwen3MoeForCausalLM"],
            "model_type": "qwen3_moe",
            "num_experts": model.experts,
        }
    else:
        return made | {
            "architectures": ["MixtralForCausalLM"],
            "model_type": "mixtral",
            "num_local_experts": model.experts,
            "num_experts_per_tok": model.topk,
            "intermediate_size": own_width,
        }, remarks
    table["head_dim"] = model.head_dim or model.hidden // model.heads
    return made | counts | table, remarks


def _plain_experts(model: DecoderSizes, made: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Experts of two products behind LayerNorm."""
    return made | {
        "architectures": ["MegatronMoeForCausalLM"],
        "model_type": "megatron_moe",
        "num_local_experts": model.experts,
        "num_experts_per_tok": model.topk,
        "moe_intermediate_size": model.moe_intermediate or model.intermediate,
        "shared_expert_intermediate_size": model.shared_intermediate,
        "first_k_dense_replace": model.dense_first,
        "position_embedding_type": model.position,
        "attention_bias": model.biases,
        "use_qk_norm": model.qk_norm,
    }, []


def _latent(
    model: DecoderSizes, latent: LatentSizes, made: dict[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    made.pop("head_dim", None)
    made |= {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "num_key_value_heads": model.heads,
        "kv_lora_rank": latent.kv_lora_rank,
        "q_lora_rank": latent.q_lora_rank or None,
        "qk_nope_head_dim": latent.qk_nope_head_dim,
        "qk_rope_head_dim": latent.qk_rope_head_dim,
        "v_head_dim": latent.v_head_dim,
        "num_nextn_predict_layers": model.mtp_layers,
    }
    own_width = model.moe_intermediate or model.intermediate
    remarks = _as_llama(model)
    if not model.experts:
        remarks.append(
            "latent attention without experts: one expert that every token takes stands in"
        )
    shared = model.shared_intermediate // own_width
    return made | {
        "n_routed_experts": model.experts or 1,
        "num_experts_per_tok": min(model.topk, model.experts or 1),
        "moe_intermediate_size": own_width,
        "n_shared_experts": shared,
        "first_k_dense_replace": model.dense_first if model.experts else model.layers,
        "topk_method": "noaux_tc",
    }, remarks
