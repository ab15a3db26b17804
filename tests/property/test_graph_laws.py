"""Laws of decoder graphs, over random configurations, plans and batch states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from silicast.workload.models.counting import (
    forward_flops,
    graph_flops,
    kv_bytes_per_token,
    parameters,
    rank_parameters,
    weight_bytes,
)
from silicast.workload.models.model import MLA, LayerSizes, ModelConfig, MoE
from silicast.workload.models.precision import Precision
from silicast.workload.transformers.decoder import bind_graph, build_graph, step_symbols
from silicast.workload.transformers.plan import Plan, shard_of, stage_bounds
from tests.sampling import examples
from tests.stages import stage_graphs

FEW = examples(150, suppress_health_check=[HealthCheck.too_slow])
MANY = examples(3_000, suppress_health_check=list(HealthCheck))


@st.composite
def experts(draw: st.DrawFn, layers: int) -> MoE:
    """Experts in all layers or some, that up to 16 ranks can share in any way."""
    count = 16 * draw(st.integers(1, 4))
    return MoE(
        experts=count,
        topk=draw(st.integers(1, count)),
        intermediate=16 * draw(st.integers(1, 20)),
        shared_intermediate=16 * draw(st.integers(0, 3)),
        shared_gate=draw(st.booleans()),
        router_bias=draw(st.booleans()),
        dense_layers=tuple(sorted(draw(st.sets(st.integers(0, layers - 1))))),
    )


@st.composite
def uneven(draw: st.DrawFn, layers: int, heads: int, width: int) -> tuple[LayerSizes, ...]:
    """No sizes of single layers, or some for each, of which few differ."""
    if draw(st.booleans()):
        return ()
    few = [
        LayerSizes(
            kv_heads=draw(st.sampled_from([0, 1, 2, 16, heads])),
            v_head_dim=draw(st.sampled_from([0, width, width + 2])),
            intermediate=16 * draw(st.integers(0, 20)),
            shared_kv=draw(st.booleans()),
            sinks=draw(st.sampled_from([None, True, False])),
        )
        for _ in range(2)
    ]
    shared = [replace(item, v_head_dim=0) if item.shared_kv else item for item in few]
    return tuple(draw(st.sampled_from(shared)) for _ in range(layers))


latents = st.builds(
    MLA,
    kv_lora_rank=st.integers(1, 90),
    qk_nope_head_dim=st.integers(1, 50),
    qk_rope_head_dim=st.integers(1, 40),
    v_head_dim=st.integers(1, 60),
    q_lora_rank=st.integers(0, 70),
)


@st.composite
def models(draw: st.DrawFn) -> ModelConfig:
    """Any decoder whose sizes up to 16 ranks divide: dense or with experts, with latent attention
    or with heads."""
    layers = draw(st.integers(1, 20))
    kv_heads = draw(st.sampled_from([1, 2, 4, 8, 16]))
    heads = 16 * draw(st.integers(1, 4))
    moe = draw(st.one_of(st.none(), experts(layers)))
    mla = draw(st.one_of(st.none(), latents))
    position = draw(st.sampled_from(["rope", "learned", "alibi", "none"]))
    norm = draw(st.sampled_from(["rmsnorm", "layernorm"]))
    flags: dict[str, Any] = {
        name: draw(st.booleans())
        for name in (
            "norm_bias", "gated", "qkv_bias", "o_bias", "mlp_bias", "head_bias", "qk_norm",
            "embedding_norm", "tied", "output_norms", "sinks", "chunked",
        )
    }  # fmt: skip
    windows = draw(st.one_of(
        st.just(()), st.lists(st.sampled_from([0, 3, 64]), min_size=layers, max_size=layers)
    ))  # fmt: skip
    residual = draw(st.sampled_from(["sequential", "parallel", "parallel_two_norms"]))
    width = mla.qk_head_dim if mla else draw(st.integers(1, 100))
    sizes = () if mla else draw(uneven(layers, heads, width))
    if mla is not None:
        kv_heads, position, windows = heads, "rope", ()
        flags |= {"qkv_bias": False, "qk_norm": False, "sinks": False}
    if moe is not None:
        residual = "sequential"
    norm_at = draw(st.sampled_from(["input", "output", "sum"]))
    if residual != "sequential" or flags["output_norms"]:
        norm_at = "input"
    return ModelConfig(
        name="random",
        family="random",
        layers=layers,
        hidden=draw(st.integers(1, 600)),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=width,
        intermediate=16 * draw(st.integers(1, 100)),
        vocab=draw(st.integers(1, 3000)),
        norm=norm,  # type: ignore[arg-type]
        activation=draw(st.sampled_from(["silu", "gelu", "relu", "relu2"])),
        position=position,  # type: ignore[arg-type]
        position_rows=draw(st.integers(1, 500)) if position == "learned" else 0,
        residual=residual,  # type: ignore[arg-type]
        norm_at=norm_at,  # type: ignore[arg-type]
        sizes=sizes,
        type_rows=draw(st.integers(0, 4)),
        relative_buckets=draw(st.integers(0, 8)),
        windows=tuple(windows),
        qk_norm_over=draw(st.sampled_from(["head", "all_heads", "no_weights"])),
        no_rope_every=draw(st.integers(0, 4)),
        encoder_parameters=draw(st.integers(0, 10_000)),
        moe=moe,
        mla=mla,
        **flags,
    )


@st.composite
def steps(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[int]]:
    """Sequences in prefill (new, total) and in decode (cached), not both empty."""
    pair = st.tuples(st.integers(1, 300), st.integers(0, 300)).map(lambda p: (p[0], p[0] + p[1]))
    prefill = draw(st.lists(pair, max_size=4))
    decode = draw(st.lists(st.integers(0, 500), min_size=0 if prefill else 1, max_size=4))
    return prefill, decode


degrees = st.sampled_from([1, 2, 4, 8, 16])


def sized(m: ModelConfig, layer: int) -> tuple[int, int, int, int]:
    """Key-value heads, widths of a key and of a value, width of the MLP of one layer."""
    current = m.sizes[layer] if m.sizes else LayerSizes()
    width = current.head_dim or m.head_dim
    groups, inner = current.kv_heads or m.kv_heads, current.intermediate or m.intermediate
    return groups, width, current.v_head_dim or width, inner


def closed_form(m: ModelConfig) -> int:
    """Parameters, written out apart from the code under test."""
    h, norm = m.hidden, m.hidden * (1 + m.norm_bias)
    up = 2 if m.gated else 1
    norms = norm * (1 if m.residual == "parallel" else 2) + m.output_norms * 2 * norm
    total = sum(attention_closed_form(m, layer) + norms for layer in range(m.layers))
    dense = range(m.layers) if m.moe is None else m.moe.dense_layers
    for layer in dense:
        inner = sized(m, layer)[3]
        total += (up + 1) * h * inner + m.mlp_bias * (up * inner + h)
    if m.moe is not None:
        e, f = m.moe.experts, m.moe.intermediate
        sparse = e * h + m.moe.router_bias * e + e * (up + 1) * h * f
        sparse += m.mlp_bias * e * (up * f + h) + (up + 1) * h * m.moe.shared_intermediate
        sparse += h * (m.moe.shared_gate and m.moe.shared_intermediate > 0)
        total += (m.layers - len(dense)) * sparse
    outside = m.vocab * h * (1 if m.tied else 2) + m.position_rows * h + m.type_rows * h
    outside += norm * (m.norm_at != "sum") + m.relative_buckets * m.heads
    outside += m.embedding_norm * norm + m.head_bias * m.vocab + m.encoder_parameters
    return total + outside


def attention_closed_form(m: ModelConfig, layer: int) -> int:
    """Parameters of attention in one layer."""
    h, a = m.hidden, m.mla
    if a is not None:
        queries = m.heads * (a.qk_nope_head_dim + a.qk_rope_head_dim)
        down = (h + 1) * a.q_lora_rank + queries * (a.q_lora_rank or h)
        latent = h * (a.kv_lora_rank + a.qk_rope_head_dim) + a.kv_lora_rank
        up = a.kv_lora_rank * m.heads * (a.qk_nope_head_dim + a.v_head_dim)
        return down + latent + up + m.heads * a.v_head_dim * h + m.o_bias * h
    current = m.sizes[layer] if m.sizes else LayerSizes()
    groups, width, value, _ = sized(m, layer)
    q, k, out = m.heads * width, groups * width, m.heads * value
    v = 0 if current.shared_kv else groups * value
    biased = q + k + (v if value == width else 0)
    norms = {"head": 2 * width, "all_heads": q + k, "no_weights": 0}[m.qk_norm_over]
    sinks = m.heads * (m.sinks if current.sinks is None else current.sinks)
    biases = m.qkv_bias * biased + m.o_bias * h
    return h * (q + k + v) + out * h + biases + m.qk_norm * norms + sinks


def parameters_follow_the_closed_form(model: ModelConfig) -> None:
    assert parameters(model) == closed_form(model) == rank_parameters(model, Plan())


def flops_follow_the_closed_form(model: ModelConfig, step: Any) -> None:
    prefill, decode = step
    result = graph_flops(build_graph(model), step_symbols(prefill, decode))
    assert result == forward_flops(model, prefill, decode)


def plan_of(model: ModelConfig, tp: int, ep: int, pp: int = 1) -> Plan:
    """A plan whose ranks share the experts as near ``ep`` as they can; beyond tp, several groups
    have sequences of their own."""
    if model.moe is None:
        return Plan(tp=tp, pp=1 + (pp - 1) % model.layers)
    return Plan(tp=tp, ep=ep, attention_dp=max(1, ep // tp), pp=1 + (pp - 1) % model.layers)


def whole_on_every_rank(model: ModelConfig) -> int:
    """FLOPs per token of what tensor parallelism does not divide, over all layers."""
    result = 0
    if model.mla is not None:
        a = model.mla
        result += model.layers * (a.q_lora_rank + a.kv_lora_rank + a.qk_rope_head_dim)
    if model.moe is not None:
        gate = model.moe.shared_gate and model.moe.shared_intermediate > 0
        result += (model.layers - len(model.moe.dense_layers)) * (model.moe.experts + gate)
    return 2 * model.hidden * result


def shards_add_up(model: ModelConfig, tp: int, ep: int, step: Any) -> None:
    """All ranks together do the whole model's FLOPs, and beyond them exactly the copies: key and
    value heads that several ranks hold, what every rank holds whole (routers, the way down to a
    latent), and the rows that pad the vocabulary."""
    prefill, decode = step
    plan = plan_of(model, tp, ep)
    shard = shard_of(model, plan)
    symbols = step_symbols(prefill, decode, plan.attention_dp)
    tokens, rows = symbols["tokens"], symbols["logit_rows"]
    assert isinstance(tokens, int)
    assert isinstance(rows, int)
    copies = 0
    for layer in range(0 if model.mla else model.layers):
        groups, width, value, _ = sized(model, layer)
        shared = model.sizes and model.sizes[layer].shared_kv
        copied = shard.kv_heads_of(groups) * tp - groups
        copies += 2 * tokens * model.hidden * copied * (width if shared else width + value)
        assert copied == 0 or groups < tp
    copies += (tp - 1) * tokens * whole_on_every_rank(model)
    padding = 2 * rows * model.hidden * (shard.padded_vocab - model.vocab)
    sharded = tp * graph_flops(build_graph(model, plan), symbols)
    assert sharded == forward_flops(model, prefill, decode) + copies + padding


def stages_partition(model: ModelConfig, tp: int, pp: int, step: Any) -> None:
    plan = Plan(tp=tp, pp=1 + (pp - 1) % model.layers)
    graphs = stage_graphs(model, plan)
    layers = [i for graph in graphs for block in graph.blocks for i in block.layers]
    assert sorted(layers) == list(range(model.layers))
    for graph, (first, last) in zip(graphs, stage_bounds(model.layers, plan.pp), strict=True):
        assert sorted(i for b in graph.blocks for i in b.layers) == list(range(first, last))
        names = [block.name for block in graph.blocks]
        assert ("embedding" in names) == (first == 0)
        assert ("head" in names) == (last == model.layers)
        assert ("stage_send" in names) == (last != model.layers)
    symbols = step_symbols(*step)
    whole = graph_flops(build_graph(model, Plan(tp=tp)), symbols)
    assert sum(graph_flops(graph, symbols) for graph in graphs) == whole


def memory_partitions(model: ModelConfig, tp: int, ep: int, pp: int) -> None:
    plan = plan_of(model, tp, ep, pp)
    precision = Precision()
    held = [rank_parameters(model, plan, stage) for stage in range(plan.pp)]
    assert [2 * n for n in held] == [
        weight_bytes(model, plan, precision, stage) for stage in range(plan.pp)
    ]
    assert tp * plan.attention_dp * sum(held) >= parameters(model)
    cache = sum(kv_bytes_per_token(model, plan, precision, stage) for stage in range(plan.pp))
    shard = shard_of(model, plan)
    layers = [sized(model, layer) for layer in range(model.layers)]
    elements = sum(shard.kv_heads_of(groups) * (k + v) for groups, k, v, _ in layers)
    if model.mla is not None:
        elements = model.layers * (model.mla.kv_lora_rank + model.mla.qk_rope_head_dim)
    assert cache == 2 * elements
    assert tp * cache >= kv_bytes_per_token(model, Plan(), precision)


def experts_are_shared_out(model: ModelConfig, tp: int, ep: int) -> None:
    """The routed experts of all ranks together are the model's, each weight once."""
    plan = plan_of(model, tp, ep)
    if model.moe is None:
        return
    one = replace(model, moe=replace(model.moe, experts=model.moe.experts * 2))
    sparse = model.layers - len(model.moe.dense_layers)
    up = 2 if model.gated else 1
    more = model.moe.experts * (up + 1) * model.hidden * model.moe.intermediate * sparse
    copied = model.moe.experts * (model.hidden + model.moe.router_bias) * sparse
    bias = model.moe.experts * sparse * model.mlp_bias
    ranks = tp * plan.attention_dp
    biases = bias * (up * model.moe.intermediate + model.hidden * ranks // plan.ep)
    grown = ranks * (rank_parameters(one, plan) - rank_parameters(model, plan))
    assert grown == more + ranks * copied + biases


def binding_is_complete(model: ModelConfig, step: Any) -> None:
    prefill, decode = step
    bound = list(bind_graph(build_graph(model, Plan(tp=2)), step_symbols(prefill, decode)))
    families = {op.family for _, _, op in bound}
    kind = "mla" if model.mla else "attention"
    assert (f"{kind}_prefill" in families) == bool(prefill)
    assert (f"{kind}_decode" in families) == bool(decode)
    assert ("moe" in families) == (model.mlp_layers < model.layers)
    tokens = sum(new for new, _ in prefill) + len(decode)
    rows = {
        "lm_head": len(prefill) + len(decode),
        "kv_b": sum(total for _, total in prefill),
        "q_absorb": len(decode),
        "v_absorb": len(decode),
    }
    for _, node, op in bound:
        sizes = dict(op.dims)
        lengths = (int, tuple)
        assert all(isinstance(size, lengths) for size in sizes.values()), node
        if op.family == "gemm":
            assert sizes["m"] == rows.get(node.name, tokens)
        for name, size in sizes.items():
            if isinstance(size, int) and name not in ("residual", "window"):
                assert size > 0, (node, name)


LAWS: dict[Callable[..., None], dict[str, Any]] = {
    parameters_follow_the_closed_form: {"model": models()},
    flops_follow_the_closed_form: {"model": models(), "step": steps()},
    shards_add_up: {"model": models(), "tp": degrees, "ep": degrees, "step": steps()},
    stages_partition: {"model": models(), "tp": degrees, "pp": st.integers(1, 20), "step": steps()},
    memory_partitions: {"model": models(), "tp": degrees, "ep": degrees, "pp": st.integers(1, 20)},
    experts_are_shared_out: {"model": models(), "tp": degrees, "ep": degrees},
    binding_is_complete: {"model": models(), "step": steps()},
}


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_law(law: Callable[..., None]) -> None:
    FEW(given(**LAWS[law])(law))()


@pytest.mark.full
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_law_many_times(law: Callable[..., None]) -> None:
    MANY(given(**LAWS[law])(law))()
