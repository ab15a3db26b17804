"""Modules that a backward pass runs again: which nodes of a layer they are."""

from __future__ import annotations

import pytest

from silicast.core.errors import SilicastError
from silicast.distributed.memory.memory_kept import kept_tensors
from silicast.workload.frameworks.eager import Framework, PassShape, framework_graph
from silicast.workload.graphs.op import Op, Variant
from silicast.workload.models.lookup import find_model
from silicast.workload.training.backward import Training
from silicast.workload.training.recomputation import (
    MODULES,
    activation,
    activation_bytes,
    recomputed_parts,
)
from silicast.workload.transformers.decoder import build_graph
from silicast.workload.transformers.plan import Plan


def again(model: str, recompute: str, *, fused: bool = True) -> dict[str, list[str]]:
    """Names of what runs again, by backward block."""
    known = find_model(model)
    framework = Framework(
        compiled=fused, attention="fused" if fused else "math", fused_layers=fused,
        training=Training(dropout=False, recompute=recompute),
    )  # fmt: skip
    formats = known.default_precision
    graph = framework_graph(
        build_graph(known, Plan(), formats), known, PassShape(1, 512), framework, formats.hidden
    )
    return {
        block.name: [
            node.name.removesuffix("_again") for node in block.nodes
            if node.name.endswith("_again")
        ]
        for block in graph.blocks if block.direction == "backward"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("model", "modules", "names"),
    [
        ("Llama-3-8B", "core_attn", ["attention_prefill"]),
        ("Llama-3-8B", "layernorm", ["input_norm", "post_norm"]),
        ("Llama-3-8B", "mlp", ["gate_up", "silu_mul", "down"]),
        ("Llama-3-8B", "mlp+core_attn", ["attention_prefill", "gate_up", "silu_mul", "down"]),
        ("Llama-3-8B", "moe+mla_up_proj", []),
        ("Mixtral-8x7B", "moe_act", ["experts_act"]),
        ("Mixtral-8x7B", "moe", ["router", "router_softmax", "experts"]),
        ("Mixtral-8x7B", "core_attn", ["attention_prefill"]),
        ("Mixtral-8x7B", "mlp", []),
    ],
)
def test_a_module_is_these_nodes(model: str, modules: str, names: list[str]) -> None:
    result = again(model, f"selective:{modules}")
    assert result["layer_backward"] == names
    assert not result.get("head_backward")


def test_modules_of_a_layer_with_a_latent_and_shared_experts() -> None:
    result = again("DeepSeek-V3", "selective:mla_up_proj")["layer_moe_backward"]
    assert result == ["q_b", "rope", "kv_b"]
    result = again("DeepSeek-V3", "selective:shared_experts")["layer_moe_backward"]
    assert result == ["shared_gate_up", "shared_silu_mul", "shared_down", "shared_add"]
    assert again("DeepSeek-V3", "selective")["layer_moe_backward"] == ["mla_prefill"]


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("model", ["Llama-3-8B", "GPT-2", "Mixtral-8x7B", "Gemma-2-27B"])
def test_every_module_is_a_part_of_everything(model: str, *, fused: bool) -> None:
    whole = again(model, "full", fused=fused)
    for module in MODULES:
        for block, names in again(model, f"selective:{module}", fused=fused).items():
            grouped = [name for name in names if module == "moe_act" and name.endswith("s_act")]
            assert set(names) - set(grouped) <= set(whole[block])


@pytest.mark.parametrize("model", ["Llama-3-8B", "Mixtral-8x7B", "DeepSeek-V3"])
def test_what_a_module_saves_and_what_it_runs_again_belong_together(model: str) -> None:
    known = find_model(model)
    kinds = {known.kind(layer) for layer in range(known.layers)}
    remaining = {each.part for kind in kinds for each in kept_tensors(known, kind)}
    for module, parts in MODULES.items():
        runs = any(again(model, f"selective:{module}").values())
        assert runs == bool(remaining & parts), module


@pytest.mark.parametrize(
    "named", ["selective:mpl", "selective:", "some", "full:mlp", "selective:mlp,moe"]
)
def test_an_unknown_module_is_named_with_those_known(named: str) -> None:
    with pytest.raises(SilicastError, match="core_attn, layernorm") as refused:
        recomputed_parts(named)
    assert refused.value.field == "recompute"


@pytest.mark.parametrize("gated", [True, False])
def test_the_activation_of_grouped_experts_is_over_every_expert_that_a_token_passes(
    gated: bool,
) -> None:
    """64 tokens pass 2 experts each, which 4 ranks share; each rank has half of 1,024 columns."""
    flags = (("gated", True),) if gated else ()
    op = Op.make(
        "moe", Variant(dtype="bf16", flags=flags), tokens=64, topk=2, experts=8, hidden=256,
        intermediate=1024, ep=4, tp=2,
    )  # fmt: skip
    again = activation(op)
    if gated:
        assert dict(again.dims) == {"tokens": 32, "width": 2 * 512}
    else:
        assert again.dim("elements") == 32 * 512
    assert activation_bytes(op) == 2 * 32 * 512 * (3 if gated else 2)  # read, and written once
