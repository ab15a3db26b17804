"""Laws of hybrid models: recurrent layers beside attention, layers without a mixer or a feed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from silicast.workload.models.counting import (
    forward_flops,
    graph_flops,
    kv_bytes_per_token,
    kv_cache_bytes,
    parameters,
    rank_parameters,
)
from silicast.workload.models.model import MLA, ModelConfig, MoE, Recurrent
from silicast.workload.models.precision import Precision
from silicast.workload.transformers.decoder import bind_graph, build_graph, step_symbols
from silicast.workload.transformers.plan import Plan
from tests.sampling import examples

FEW = examples(100, suppress_health_check=[HealthCheck.too_slow])
MANY = examples(2_000, suppress_health_check=list(HealthCheck))
MIXERS = ("gdn", "kda", "mamba2")


@st.composite
def models(draw: st.DrawFn) -> ModelConfig:
    """Any pattern of one recurrent mixer, attention and layers of a feed alone; for 8 ranks."""
    layers = draw(st.integers(1, 8))
    mixer = draw(st.sampled_from(MIXERS))
    mla = draw(st.one_of(st.none(), st.just(MLA(24, 16, 8, 16, 20))))
    attention = "heads" if mla is None else "latent"
    moe = draw(st.one_of(st.none(), st.just(0), st.integers(1, 40)))
    feeds = ["mlp", "experts"] if moe is not None else ["mlp"]
    patterns = st.tuples(
        st.sampled_from([mixer, mixer, attention, ""]), st.sampled_from([*feeds, ""])
    ).filter(any)
    pattern = draw(st.lists(patterns, min_size=layers, max_size=layers))
    key_heads = draw(st.sampled_from([1, 8, 16]))
    heads = 16
    return ModelConfig(
        name="random",
        family="random",
        layers=layers,
        hidden=draw(st.integers(1, 200)),
        heads=heads,
        kv_heads=heads if mla else 8,
        head_dim=mla.qk_head_dim if mla else draw(st.integers(1, 40)),
        intermediate=16 * draw(st.integers(1, 20)),
        vocab=draw(st.integers(1, 500)),
        gated=draw(st.booleans()),
        position=draw(st.sampled_from(["rope", "none"])),
        output_gate=draw(st.booleans()),
        mixers=tuple(m for m, _ in pattern),
        feeds=tuple(f for _, f in pattern),
        moe=None if moe is None else MoE(16, 3, 32, shared_intermediate=16, latent=moe),
        mla=mla,
        recurrent=Recurrent(
            key_heads=key_heads,
            key_dim=draw(st.integers(1, 30)),
            value_heads=16 * draw(st.integers(1, 3)),
            value_dim=draw(st.integers(1, 30)),
            taps=draw(st.integers(1, 5)),
            taps_bias=draw(st.booleans()),
            decay_rank=draw(st.integers(1, 20)),
            gate_rank=draw(st.sampled_from([0, 7])),
        ),
    )


@st.composite
def steps(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[int]]:
    """Sequences in prefill (new, total) and in decode (cached), not both empty."""
    pair = st.tuples(st.integers(1, 90), st.integers(0, 90)).map(lambda p: (p[0], p[0] + p[1]))
    prefill = draw(st.lists(pair, max_size=3))
    return prefill, draw(st.lists(st.integers(0, 99), min_size=0 if prefill else 1, max_size=3))


def mixer_closed_form(m: ModelConfig, layer: int) -> int:
    """Parameters of a layer's mixer, written out apart from the code under test."""
    h, name, r, a = m.hidden, m.mixers[layer], m.recurrent, m.mla
    assert r is not None
    keys, values = r.key_heads * r.key_dim, r.value_heads * r.value_dim
    taps = (2 * keys + values) * (r.taps + r.taps_bias)
    if name == "gdn":
        return (
            h * (2 * keys + 2 * values + 2 * r.value_heads)
            + taps
            + 2 * r.value_heads
            + (r.value_dim + values * h)
        )
    if name == "kda":
        gate = r.gate_rank * (h + values) if r.gate_rank else h * values
        decay = r.decay_rank * (h + keys) + keys + r.value_heads
        rate = h * r.value_heads
        return h * (2 * keys + values) + taps + gate + decay + rate + r.value_dim + values * h
    if name == "mamba2":
        width = 2 * values + 2 * keys + r.value_heads
        return h * width + taps + 3 * r.value_heads + values + values * h
    if name == "latent":
        assert a is not None
        gate = h * m.heads * a.v_head_dim * m.output_gate
        queries = m.heads * a.qk_head_dim
        down = (h + 1) * a.q_lora_rank + queries * a.q_lora_rank
        latent = h * a.cached + a.kv_lora_rank
        up = a.kv_lora_rank * m.heads * (a.qk_nope_head_dim + a.v_head_dim)
        return gate + down + latent + up + m.heads * a.v_head_dim * h
    if name == "heads":
        q, kv = m.heads * m.head_dim, m.kv_heads * m.head_dim
        return h * (2 * q + 2 * kv) + h * q * m.output_gate
    return 0


def feed_closed_form(m: ModelConfig, layer: int) -> int:
    """Parameters of a layer's feed."""
    h, up = m.hidden, 2 if m.gated else 1
    if m.feeds[layer] == "mlp":
        return (up + 1) * h * m.intermediate
    if m.feeds[layer] == "":
        return 0
    assert m.moe is not None
    inside = m.moe.latent or h
    routed = m.moe.experts * (up + 1) * inside * m.moe.intermediate
    around = 2 * h * m.moe.latent
    return routed + around + h * m.moe.experts + (up + 1) * h * m.moe.shared_intermediate


def parameters_follow_the_closed_form(model: ModelConfig) -> None:
    value = 2 * model.vocab * model.hidden + model.hidden
    for layer in range(model.layers):
        parts = (model.mixers[layer] != "") + (model.feeds[layer] != "")
        value += mixer_closed_form(model, layer) + feed_closed_form(model, layer)
        value += parts * model.hidden
    assert parameters(model) == value == rank_parameters(model, Plan())


def flops_follow_the_closed_form(model: ModelConfig, step: Any) -> None:
    prefill, decode = step
    result = graph_flops(build_graph(model), step_symbols(prefill, decode))
    assert result == forward_flops(model, prefill, decode)


def states_do_not_grow(model: ModelConfig, length: int) -> None:
    """The cache of a sequence is its states, and by the token what attention alone keeps."""
    plan, precision, r = Plan(), Precision(), model.recurrent
    assert r is not None
    grown = kv_cache_bytes(model, plan, precision, [length])
    states = grown - length * kv_bytes_per_token(model, plan, precision)
    recurrent = sum(mixer in MIXERS for mixer in model.mixers)
    channels = 2 * r.key_heads * r.key_dim + r.value_heads * r.value_dim
    state = r.value_heads * r.key_dim * r.value_dim * 4
    assert states == recurrent * (channels * (r.taps - 1) * 2 + state)
    assert kv_cache_bytes(model, plan, precision, [0]) == 0


def ranks_hold_at_least_their_share(model: ModelConfig, tp: int) -> None:
    plan, precision = Plan(tp=tp), Precision()
    assert tp * rank_parameters(model, plan) >= parameters(model)
    one = kv_cache_bytes(model, Plan(), precision, [50, 3])
    assert tp * kv_cache_bytes(model, plan, precision, [50, 3]) >= one


def kernels_run_where_their_sequences_are(model: ModelConfig, step: Any) -> None:
    prefill, decode = step
    bound = list(bind_graph(build_graph(model, Plan(tp=2)), step_symbols(prefill, decode)))
    flags = {op.variant.flag("generation") for _, _, op in bound if op.family in MIXERS}
    expected = {True} & {bool(decode)} | {False} & {not prefill}
    if any(mixer in MIXERS for mixer in model.mixers):
        assert flags == expected
    for _, node, op in bound:
        if op.family in MIXERS:
            sizes = dict(op.dims)
            assert all(isinstance(size, int) and size > 0 for size in sizes.values()), node
            assert sizes["num_tokens"] == (
                len(decode) if op.variant.flag("generation") else sum(n for n, _ in prefill)
            )


LAWS: dict[Any, dict[str, Any]] = {
    parameters_follow_the_closed_form: {"model": models()},
    flops_follow_the_closed_form: {"model": models(), "step": steps()},
    states_do_not_grow: {"model": models(), "length": st.integers(1, 1000)},
    ranks_hold_at_least_their_share: {"model": models(), "tp": st.sampled_from([1, 2, 4, 8])},
    kernels_run_where_their_sequences_are: {"model": models(), "step": steps()},
}


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_law(law: Any) -> None:
    FEW(given(**LAWS[law])(law))()


@pytest.mark.full
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_law_many_times(law: Any) -> None:
    MANY(given(**LAWS[law])(law))()
