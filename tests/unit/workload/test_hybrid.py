"""Hybrid models: states and counts by hand, graphs, and what configurations say."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.workload.graphs.op import Op, Variant
from silicast.workload.models.counting import (
    kv_bytes_per_token,
    kv_cache_bytes,
    op_flops,
    parameters,
    weight_bytes,
)
from silicast.workload.models.huggingface import read_config
from silicast.workload.models.lookup import find_model, model_from
from silicast.workload.models.precision import Precision
from silicast.workload.transformers.decoder import build_graph
from silicast.workload.transformers.plan import Plan

BF16 = Precision()
QWEN = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "text_config": {
        "num_hidden_layers": 8, "hidden_size": 1024, "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 256, "intermediate_size": 3584,
        "vocab_size": 1000, "linear_num_key_heads": 16, "linear_num_value_heads": 16,
    },
}  # fmt: skip
NEMOTRON = {
    "architectures": ["NemotronHForCausalLM"], "hybrid_override_pattern": "M-M*ME",
    "hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
    "intermediate_size": 1024, "vocab_size": 1000, "mamba_num_heads": 16, "n_routed_experts": 8,
    "num_experts_per_tok": 2, "moe_intermediate_size": 256, "moe_latent_size": 128,
}  # fmt: skip
KIMI = {
    "architectures": ["KimiLinearForCausalLM"], "num_hidden_layers": 4, "hidden_size": 512,
    "num_attention_heads": 8, "intermediate_size": 1024, "vocab_size": 1000, "num_experts": 8,
    "num_experts_per_token": 2, "moe_intermediate_size": 256,
    "linear_attn_config": {
        "num_heads": 8, "kda_layers": [1, 2, 3], "full_attn_layers": [4], "head_dim": 64,
    },
}  # fmt: skip


def memory(name: str, length: int, tp: int = 1) -> int:
    return kv_cache_bytes(find_model(name), Plan(tp=tp), BF16, [length])


def test_state_of_qwen_by_hand() -> None:
    """45 of 60 layers hold 64 states of 128 x 128 in fp32 and 3 inputs of 12,288 channels; 15 hold
    2 heads of 256 keys and values a token."""
    state = 45 * (64 * 128 * 128 * 4 + 3 * (2 * 16 * 128 + 64 * 128) * 2)
    assert memory("Qwen3.5-397B-A17B", 1000) == state + 1000 * 15 * 2 * 2 * 256 * 2
    assert kv_bytes_per_token(find_model("Qwen3.5-397B-A17B"), Plan(), BF16) == 30_720


def test_state_of_nemotron_by_hand() -> None:
    """23 Mamba layers of 64 heads of 64 x 128, 6 of attention with 2 heads of 128."""
    state = 23 * (64 * 64 * 128 * 4 + 3 * (64 * 64 + 2 * 8 * 128) * 2)
    assert memory("Nemotron-3-Nano-30B-A3B", 1000) == state + 1000 * 6 * 2 * 2 * 128 * 2


def test_state_of_kimi_by_hand() -> None:
    """20 layers of 32 heads of 128 x 128, 7 with one latent of 576."""
    state = 20 * (32 * 128 * 128 * 4 + 3 * 3 * 32 * 128 * 2)
    assert memory("Kimi-Linear-48B-A3B", 1000) == state + 1000 * 7 * 576 * 2


def test_ranks_share_the_states() -> None:
    whole = memory("Qwen3.5-397B-A17B", 1) - 30_720
    per_rank = memory("Qwen3.5-397B-A17B", 1, tp=8) - 15 * 2 * 256 * 2
    assert whole == 8 * per_rank


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("Nemotron-3-Nano-30B-A3B", 31_577_940_288),
        ("Kimi-Linear-48B-A3B", 49_122_681_728),
        ("Nemotron-H-56B", 56_324_350_464),
    ],
)
def test_counts(name: str, count: int) -> None:
    """By hand from the published sizes; each rounds to what its page prints."""
    assert parameters(find_model(name)) == count


def test_pattern_of_layers() -> None:
    model = read_config(QWEN)
    assert model.mixers == ("gdn", "gdn", "gdn", "heads") * 2
    assert model.output_gate
    assert model.recurrent is not None
    assert model.recurrent.state == 16 * 128 * 128
    blocks = {block.name: block.count for block in build_graph(model).blocks}
    assert blocks == {"embedding": 1, "first_layer": 1, "layer_gdn": 5, "layer_heads": 2, "head": 1}


def test_layers_of_one_part() -> None:
    model = read_config(NEMOTRON)
    assert model.mixers == ("mamba2", "", "mamba2", "heads", "mamba2", "")
    assert model.feeds == ("", "mlp", "", "", "", "experts")
    assert model.moe is not None
    assert model.moe.latent == 128
    nodes = {node.name: node.op for _, node in build_graph(model).nodes()}
    assert nodes["experts"].dim("hidden") == 128
    assert (nodes["latent_down"].dim("n"), nodes["latent_up"].dim("n")) == (128, 512)


def test_latent_attention_beside_recurrent_layers() -> None:
    model = read_config(KIMI)
    assert model.mixers == ("kda", "kda", "kda", "latent")
    assert model.position == "none"
    families = {node.op.family for _, node in build_graph(model).nodes()}
    assert {"kda", "mla_prefill", "mla_decode", "moe"} <= families
    assert "rope" not in families


@pytest.mark.parametrize(
    ("config", "change", "field"),
    [
        (NEMOTRON, {"hybrid_override_pattern": "MXM"}, "hybrid_override_pattern"),
        (NEMOTRON, {"num_hidden_layers": 7}, "hybrid_override_pattern"),
        (NEMOTRON, {"mamba_num_heads": 12}, "recurrent.key_heads"),
        (KIMI, {"linear_attn_config": {"num_heads": 8, "kda_layers": [1, 2]}},
         "linear_attn_config"),
    ],
)  # fmt: skip
def test_contradictions_are_named(
    config: dict[str, Any], change: dict[str, Any], field: str
) -> None:
    with pytest.raises(SilicastError) as caught:
        read_config({**config, **change})
    assert caught.value.field == field


def test_recurrent_sizes_in_our_own_format() -> None:
    changed = model_from(
        {"base": "Qwen3.5-9B", "recurrent": {"value_heads": 16}, "output_gate": False}
    )
    assert changed.recurrent is not None
    assert (changed.recurrent.key_heads, changed.recurrent.value_heads) == (16, 16)
    assert parameters(changed) < parameters(find_model("Qwen3.5-9B"))
    with pytest.raises(SilicastError) as caught:
        model_from({"base": "Llama-3.1-8B", "mixers": ["gdn"] * 32})
    assert caught.value.field == "recurrent"


def test_value_heads_bound_the_ranks() -> None:
    with pytest.raises(SilicastError) as caught:
        weight_bytes(find_model("Qwen3.5-27B"), Plan(tp=32), BF16)
    assert caught.value.field == "parallel.tp"


def test_flops_of_a_concrete_op() -> None:
    sizes = {
        "num_k_heads": 2, "head_k_dim": 8, "num_v_heads": 4, "head_v_dim": 16, "d_conv": 4,
        "batch_size": 3, "seq_len": 5, "num_tokens": 15,
    }  # fmt: skip
    conv = Op.make("gdn", Variant(flags=(("conv", True),)), **sizes)
    scan = Op.make("gdn", Variant(flags=(("scan", True),)), **sizes)
    assert op_flops(conv) == 15 * (2 * 2 * 8 + 4 * 16) * 2 * 4
    assert op_flops(scan) == 15 * 4 * 8 * 16 * 6
