"""Whatever a user hands in as a model: a model, or one clear error."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from silicast.core.errors import SilicastError
from silicast.workload.families.family import families
from silicast.workload.models.counting import parameters
from silicast.workload.models.lookup import find_model, model_from
from silicast.workload.models.model import ModelConfig
from tests.sampling import examples

FEW = examples(400, suppress_health_check=[HealthCheck.too_slow])
MANY = examples(3_000, suppress_health_check=list(HealthCheck))

GOOD: dict[str, Any] = {
    "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
    "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 50,
    "sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1, "head_dim": 16,
    "torch_dtype": "bfloat16", "n_embd": 64, "n_head": 4, "n_layer": 2, "ffn_dim": 128,
    "d_model": 64, "n_heads": 4, "n_layers": 2, "hidden_act": "silu",
    "attn_config": {"alibi": True}, "num_nextn_predict_layers": 1,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}  # fmt: skip
OTHER_NAMES: dict[str, Any] = {
    "ffn_hidden_size": 128, "num_layers": 2, "padded_vocab_size": 100, "seq_length": 64,
    "multi_query_attention": True, "multi_query_group_num": 2, "kv_channels": 16,
    "block_configs": [{"attention": {"n_heads_in_group": 1}, "ffn": {"ffn_mult": 1.0}}] * 2,
}  # fmt: skip
"""Sizes under names that few families use."""
SPARSE: dict[str, Any] = {
    "num_local_experts": 4, "num_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 0, "n_shared_experts": 1,
    "first_k_dense_replace": 1, "moe_layer_freq": 1, "decoder_sparse_step": 1,
    "mlp_only_layers": [0], "interleave_moe_layer_step": 2, "attention_chunk_size": 8,
    "layer_types": ["full_attention", "sliding_attention"], "qk_norm_type": "per_layer",
}  # fmt: skip
LATENT: dict[str, Any] = {
    "kv_lora_rank": 8, "q_lora_rank": None, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4,
    "v_head_dim": 4, "topk_method": "noaux_tc",
}  # fmt: skip
VISION: dict[str, Any] = {
    "vision_config": {"hidden_size": 8, "depth": 2, "patch_size": 2}, "text_config": {"vocab": 1},
}  # fmt: skip
OWN: dict[str, Any] = {
    "layers": 2, "hidden": 64, "heads": 4, "intermediate": 128, "vocab": 100, "window": 4,
    "windows": [1, 2], "precision": {"weights": "fp8"}, "base": "Llama-3.1-8B", "norm": "layernorm",
    "position": "learned", "position_rows": 7, "parameters": {"exact": 5, "source": "x"},
    "moe": {"experts": 4, "topk": 2, "intermediate": 32, "dense_layers": [0]}, "qk_norm": True,
    "mla": {"kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8},
}  # fmt: skip

odd = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-5, 300), st.integers(), st.floats(),
        st.text(max_size=9),
        st.sampled_from([10**30, -(10**30), 1 << 62, "fp8", "bf16", "modelopt", "FP8", "gelu"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["config_groups", "g", "weights", "bits", "num_bits",
                                         "quant_method", "quant_algo", "type"]), inner, max_size=3),
    ),
    max_leaves=6,
)  # fmt: skip


def one_of_both(value: Any) -> None:
    """A model whose parameters can be counted, or a one-line error."""
    try:
        model = model_from(value)
    except SilicastError as error:
        text = str(error)
        assert text
        assert "\n" not in text
        assert len(text) < 2000
        return
    assert isinstance(model, ModelConfig)
    assert parameters(model) > 0
    assert hash(model) == hash(model_from(value))


@st.composite
def hugging_face(draw: st.DrawFn) -> dict[str, Any]:
    architecture = draw(st.sampled_from(sorted(families())))
    good = dict(GOOD)
    for structure, fields in (("experts", SPARSE), ("latent", LATENT), ("vision", VISION)):
        if structure in families()[architecture].structures:
            good |= fields
    changes = draw(st.dictionaries(st.sampled_from(sorted(good)), odd, max_size=2))
    dropped = draw(st.sets(st.sampled_from(sorted(good)), max_size=2))
    config = {k: v for k, v in (good | changes).items() if k not in dropped}
    return config | {"architectures": [architecture]}


@st.composite
def own_format(draw: st.DrawFn) -> dict[str, Any]:
    remaining = draw(st.sets(st.sampled_from(sorted(OWN))))
    changes = draw(st.dictionaries(st.sampled_from(sorted(OWN)), odd, max_size=2))
    return {k: v for k, v in OWN.items() if k in remaining} | changes


@pytest.mark.parametrize("source", [hugging_face(), own_format()], ids=["hugging_face", "own"])
def test_a_model_or_a_clear_error(source: st.SearchStrategy[dict[str, Any]]) -> None:
    FEW(given(source)(one_of_both))()


@pytest.mark.full
@pytest.mark.parametrize("source", [hugging_face(), own_format()], ids=["hugging_face", "own"])
def test_a_model_or_a_clear_error_many_times(source: st.SearchStrategy[dict[str, Any]]) -> None:
    MANY(given(source)(one_of_both))()


@given(st.text(max_size=60))
@FEW
def test_any_name(name: str) -> None:
    with contextlib.suppress(SilicastError):
        assert isinstance(find_model(name), ModelConfig)


def test_every_family_reads_a_plain_configuration() -> None:
    plain = {k: v for k, v in GOOD.items() if k != "use_sliding_window"}
    for architecture in families():
        experts = (
            {"moe_intermediate_size": 32}
            if "mimov2" in architecture.casefold().replace("_", "")
            else {}
        )
        stated = plain | OTHER_NAMES | experts
        assert model_from({**stated, "architectures": [architecture]}).hidden == 64
