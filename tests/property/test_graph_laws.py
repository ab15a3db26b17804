"""Laws of dense decoder graphs, over random configurations, plans and batch states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from silicast.workload.counting import (
    forward_flops,
    graph_flops,
    kv_bytes_per_token,
    parameters,
    rank_parameters,
    weight_bytes,
)
from silicast.workload.decoder import bind_graph, build_graph, stage_graphs, step_symbols
from silicast.workload.graph import stage_bounds
from silicast.workload.model import ModelConfig
from silicast.workload.plan import Plan
from silicast.workload.precision import Precision
from silicast.workload.shard import shard_of

FEW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
MANY = settings(max_examples=3_000, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def models(draw: st.DrawFn) -> ModelConfig:
    """Any dense decoder whose sizes up to 16 ranks divide."""
    layers = draw(st.integers(1, 20))
    kv_heads = draw(st.sampled_from([1, 2, 4, 8, 16]))
    heads = 16 * draw(st.integers(1, 4))
    position = draw(st.sampled_from(["rope", "learned", "alibi", "none"]))
    norm = draw(st.sampled_from(["rmsnorm", "layernorm"]))
    flags: dict[str, Any] = {
        name: draw(st.booleans())
        for name in (
            "norm_bias", "gated", "qkv_bias", "o_bias", "mlp_bias", "head_bias", "qk_norm",
            "embedding_norm", "tied",
        )
    }  # fmt: skip
    windows = draw(st.one_of(
        st.just(()), st.lists(st.sampled_from([0, 3, 64]), min_size=layers, max_size=layers)
    ))  # fmt: skip
    return ModelConfig(
        name="random",
        family="random",
        layers=layers,
        hidden=draw(st.integers(1, 600)),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=draw(st.integers(1, 100)),
        intermediate=16 * draw(st.integers(1, 100)),
        vocab=draw(st.integers(1, 3000)),
        norm=norm,  # type: ignore[arg-type]
        activation=draw(st.sampled_from(["silu", "gelu", "relu", "relu2"])),
        position=position,  # type: ignore[arg-type]
        position_rows=draw(st.integers(1, 500)) if position == "learned" else 0,
        residual=draw(st.sampled_from(["sequential", "parallel", "parallel_two_norms"])),
        windows=tuple(windows),
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


def closed_form(m: ModelConfig) -> int:
    """Parameters, written out apart from the code under test."""
    q, kv, h, f = m.heads * m.head_dim, m.kv_heads * m.head_dim, m.hidden, m.intermediate
    norm = h * (1 + m.norm_bias)
    up = 2 if m.gated else 1
    layer = h * (q + 2 * kv) + q * h + (up + 1) * h * f
    layer += norm * (1 if m.residual == "parallel" else 2)
    layer += m.qkv_bias * (q + 2 * kv) + m.o_bias * h + m.mlp_bias * (up * f + h)
    layer += m.qk_norm * 2 * m.head_dim
    outside = m.vocab * h * (1 if m.tied else 2) + m.position_rows * h + norm
    outside += m.embedding_norm * norm + m.head_bias * m.vocab
    return m.layers * layer + outside


def parameters_follow_the_closed_form(model: ModelConfig) -> None:
    assert parameters(model) == closed_form(model) == rank_parameters(model, Plan())


def flops_follow_the_closed_form(model: ModelConfig, step: Any) -> None:
    prefill, decode = step
    found = graph_flops(build_graph(model), step_symbols(prefill, decode))
    assert found == forward_flops(model, prefill, decode)


def shards_add_up(model: ModelConfig, tp: int, step: Any) -> None:
    """All ranks together do the whole model's FLOPs, and beyond them exactly the copies: key and
    value heads that several ranks hold, and the rows that pad the vocabulary."""
    prefill, decode = step
    plan = Plan(tp=tp)
    shard = shard_of(model, plan)
    symbols = step_symbols(prefill, decode)
    tokens, rows = symbols["tokens"], symbols["logit_rows"]
    assert isinstance(tokens, int)
    assert isinstance(rows, int)
    copied_heads = shard.kv_heads * tp - model.kv_heads
    copies = 2 * tokens * model.hidden * 2 * copied_heads * model.head_dim * model.layers
    padding = 2 * rows * model.hidden * (shard.padded_vocab - model.vocab)
    sharded = tp * graph_flops(build_graph(model, plan), symbols)
    assert sharded == forward_flops(model, prefill, decode) + copies + padding
    if model.kv_heads >= tp:
        assert copies == 0


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


def memory_partitions(model: ModelConfig, tp: int, pp: int) -> None:
    plan = Plan(tp=tp, pp=1 + (pp - 1) % model.layers)
    precision = Precision()
    held = [rank_parameters(model, plan, stage) for stage in range(plan.pp)]
    assert [2 * n for n in held] == [
        weight_bytes(model, plan, precision, stage) for stage in range(plan.pp)
    ]
    assert tp * sum(held) >= parameters(model)
    cache = sum(kv_bytes_per_token(model, plan, precision, stage) for stage in range(plan.pp))
    one = 2 * shard_of(model, plan).kv_heads * model.head_dim * 2 * model.layers
    assert cache == one
    assert tp * cache >= kv_bytes_per_token(model, Plan(), precision)


def binding_is_complete(model: ModelConfig, step: Any) -> None:
    prefill, decode = step
    bound = list(bind_graph(build_graph(model, Plan(tp=2)), step_symbols(prefill, decode)))
    families = {op.family for _, _, op in bound}
    assert ("attention_prefill" in families) == bool(prefill)
    assert ("attention_decode" in families) == bool(decode)
    tokens = sum(new for new, _ in prefill) + len(decode)
    for _, node, op in bound:
        sizes = dict(op.dims)
        lengths = (int, tuple)
        assert all(isinstance(size, lengths) for size in sizes.values()), node
        if op.family == "gemm":
            assert sizes["m"] == (len(prefill) + len(decode) if node.name == "lm_head" else tokens)
        for name, size in sizes.items():
            if isinstance(size, int) and name not in ("residual", "window"):
                assert size > 0, (node, name)


LAWS: dict[Callable[..., None], dict[str, Any]] = {
    parameters_follow_the_closed_form: {"model": models()},
    flops_follow_the_closed_form: {"model": models(), "step": steps()},
    shards_add_up: {"model": models(), "tp": degrees, "step": steps()},
    stages_partition: {"model": models(), "tp": degrees, "pp": st.integers(1, 20), "step": steps()},
    memory_partitions: {"model": models(), "tp": degrees, "pp": st.integers(1, 20)},
    binding_is_complete: {"model": models(), "step": steps()},
}


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_law(law: Callable[..., None]) -> None:
    FEW(given(**LAWS[law])(law))()


@pytest.mark.full
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_law_many_times(law: Callable[..., None]) -> None:
    MANY(given(**LAWS[law])(law))()
