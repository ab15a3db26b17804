"""Memory of training per rank: known answers, the whole from its shards, and what must grow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.core.errors import SilicastError
from silicast.distributed.memory.memory import RankMemory, Rules, plan_memory, rows_memory
from silicast.distributed.memory.memory_kept import Style, gradient_points, kept_tensors
from silicast.distributed.memory.memory_rows import PipelineRanks, usual_in_flight
from silicast.distributed.memory.memory_search import candidates_memory, remedies
from silicast.distributed.memory.memory_weights import gradient_tensors
from silicast.distributed.memory.offload import Offload
from silicast.distributed.ranks.plan import TrainingPlan
from silicast.distributed.search.candidates import PlanSpace, candidates
from silicast.workload.frameworks.eager import Framework, PassShape, framework_graph
from silicast.workload.graphs.graph import Node
from silicast.workload.models.counting import parameters, rank_parameters
from silicast.workload.models.lookup import find_model
from silicast.workload.models.model import ModelConfig
from silicast.workload.models.precision import Precision
from silicast.workload.training.gradients import saved_by
from silicast.workload.transformers.decoder import build_graph
from silicast.workload.transformers.plan import Plan

MODELS = ("Llama-3.1-8B", "gpt2-xl", "Mixtral-8x7B", "DeepSeek-V2-Lite", "Qwen3-30B-A3B")
OLD = Rules(style=Style(flash=False, dropout=True), in_place=False)
FIELDS = tuple(RankMemory.__dataclass_fields__)


def gpt(layers: int = 4, hidden: int = 1024, heads: int = 16) -> ModelConfig:
    """The shape of Korthikanti et al.: an MLP four times as wide, as many key-value heads."""
    return ModelConfig(
        "gpt", "gpt2", layers, hidden, heads, heads, hidden // heads, 4 * hidden, 51200,
        norm="layernorm", gated=False, activation="gelu", position="learned", position_rows=4096,
    )  # fmt: skip


def layer_bytes(model: ModelConfig, plan: TrainingPlan, seq: int, micro: int, rules: Rules) -> int:
    """What one layer keeps: the difference between two models."""
    small, large = replace(model, layers=4), replace(model, layers=8)
    each = [plan_memory(m, plan, seq, micro, 1, rules).activations[0] for m in (small, large)]
    return int(each[1] - each[0]) // 4


@pytest.mark.parametrize(("seq", "micro"), [(2048, 1), (1024, 4)])
@pytest.mark.parametrize("tp", [1, 8])
def test_a_layer_keeps_what_korthikanti_derived(seq: int, micro: int, tp: int) -> None:
    """Equations 1, 2, 4 and 6 of arXiv 2205.05198, in 16 bits with dropout."""
    model = gpt()
    sbh, scores = seq * micro * model.hidden, 5 * model.heads * seq / model.hidden
    alone, shared = TrainingPlan(tp=tp), TrainingPlan(tp=tp, sequence_parallel=True)
    again = replace(OLD, recompute="selective")
    assert layer_bytes(model, alone, seq, micro, OLD) == sbh * (10 + 24 / tp + scores / tp)
    assert layer_bytes(model, shared, seq, micro, OLD) == sbh * (34 + scores) / tp
    assert layer_bytes(model, shared, seq, micro, again) == sbh * 34 / tp
    full = replace(OLD, recompute="full")
    assert layer_bytes(model, alone, seq, micro, full) == 2 * sbh


def test_gradients_of_a_layer_by_hand() -> None:
    """What an operation reads and writes, beside the stream; scores and theirs where they are kept
    in memory.
    """
    model = gpt()
    h, inner = ("sequence", 1024), 4096
    attention = [
        [h, ("tensor", 3 * 1024 + 1024)],  # queries, keys, values and the result
        [h, ("tensor", 3 * 1024), ("all", 1024)],
    ]
    mlp = [[h, ("tensor", 2 * inner)], [h, ("tensor", inner), ("all", 1024)]]
    flash, written = (gradient_points(model, model.kind(0), Style(flash=x)) for x in (True, False))
    assert [[(x.over, x.width) for x in point] for point in flash] == [
        [h, ("all", 1024)], *attention, *mlp
    ]  # fmt: skip
    assert [[(x.over, x.width) for x in point] for point in written] == [
        [h, ("all", 1024)], *attention, [h, ("tensor", 2 * 16)], *mlp
    ]  # fmt: skip
    assert [x.name for point in written for x in point if x.per_key] == ["scores"]


def test_what_comes_back_from_the_host_is_two_layers_share() -> None:
    """Of what a layer keeps: that which its pass reads, and that which comes for the next."""
    model, plan = gpt(), TrainingPlan()
    current, half = (
        plan_memory(model, plan, 2048, 1, 1, Rules(offload=Offload(activations=share))).buffers[0]
        for share in (0.0, 0.5)
    )
    assert half - current == layer_bytes(model, plan, 2048, 1, Rules())


def test_tensors_of_gradients_by_hand() -> None:
    """One of each shape: queries and their output, keys and values, the MLP's three, the head; of
    experts one, cut over their ranks.
    """
    one, two = np.array([1]), np.array([2])
    there = np.array([True])
    llama = find_model("Llama-3.1-8B")
    h, inner, vocab = 4096, 14336, 128256
    layers = np.array([[4]])
    assert gradient_tensors(llama, layers, there, one, one, every_shape=False) == [vocab * h]
    cut = gradient_tensors(llama, layers, ~there, two, one, every_shape=False)
    assert cut == [2 * inner * h // 2]
    mixtral = find_model("Mixtral-8x7B")
    expert = gradient_tensors(mixtral, layers, ~there, one, two, every_shape=False)
    assert expert == [2 * inner * h // 2]


@pytest.mark.parametrize("tp", [1, 8])
def test_the_gradient_of_an_embedding_may_be_the_worst_moment(tp: int) -> None:
    """A wide vocabulary over one layer: written whole when the layer has given back its own."""
    model = replace(gpt(layers=1), vocab=1_000_000)
    wider = replace(model, vocab=2_000_000)
    plan, rules = TrainingPlan(tp=tp, pp=1), Rules()
    small, large = (
        plan_memory(each, plan, 16, 1, 1, rules).transient[0] for each in (model, wider)
    )
    assert (large - small) * tp == pytest.approx(1_000_000 * 1024 * 2, rel=0.02)


def test_gradients_of_experts_by_hand() -> None:
    model = find_model("Mixtral-8x7B")
    h, inner, half = ("sequence", 4096), 14336, 0.5
    points = gradient_points(model, model.kind(0), Style(routed=half))
    assert [[(x.over, x.width) for x in point] for point in points][-3:] == [
        [h, ("routed_width", 2 * half * 3 * inner)],  # two experts; gate, up and their product
        [h, ("routed_width", 2 * half * 2 * inner), ("routed", 2 * half * 4096)],
        [h, ("routed", 2 * half * 2 * 4096)],
    ]


@pytest.mark.parametrize("name", ["Llama-3.1-8B", "gpt2-xl", "Qwen3-8B"])
def test_a_layer_keeps_what_the_lowered_graph_saves(name: str) -> None:
    """Results that :func:`saved_by` names, and the layer's own input."""
    model, tokens = find_model(name), 512
    framework = Framework(compiled=True, attention="fused", fused_layers=True)
    graph = build_graph(model, Plan(), Precision())
    lowered = framework_graph(graph, model, PassShape(1, tokens), framework, "bf16")
    layer = next(block for block in lowered.blocks if block.name == "layer")
    nodes = {node.name: node for node in layer.nodes}
    saved = {name for node in nodes.values() for name in saved_by(node)}
    elements = model.hidden * tokens + sum(_elements(nodes[each], model) for each in saved)
    tensors = kept_tensors(model, model.kind(model.layers - 1))
    remaining = sum(each.width * tokens for each in tensors if each.bits == 16)
    assert remaining == pytest.approx(elements, rel=0.03)


def _elements(node: Node, model: ModelConfig) -> int:
    sizes = {name: size for name, size in node.op.dims if isinstance(size, int)}
    if node.op.family == "rope":
        heads = model.heads + 2 * model.kv_heads
        return sizes["tokens"] * heads * model.head_dim
    if node.op.family.startswith("attention"):
        return 512 * model.heads * model.head_dim
    return node.output_bytes // 2


def test_one_expert_is_a_dense_mlp() -> None:
    dense = find_model("Llama-3.1-8B")
    mixed = find_model("Mixtral-8x7B")
    assert mixed.moe is not None
    one = replace(mixed, moe=replace(mixed.moe, experts=1, topk=1), vocab=dense.vocab)

    def kept(model: ModelConfig) -> float:
        tensors = kept_tensors(model, model.kind(0))
        return sum(each.width * each.bits for each in tensors if each.name != "router_scores")

    assert kept(one) == kept(dense) + 16 * dense.hidden  # rows sorted by expert are another tensor


def test_latent_attention_keeps_whole_heads() -> None:
    """What Megatron-LM's multi-latent attention hands to its core: assembled queries and keys."""
    model = find_model("DeepSeek-V2-Lite")
    widths = {each.name: each.width for each in kept_tensors(model, model.kind(1))}
    assert widths["queries"] == widths["keys"] == 16 * (128 + 64)
    assert widths["values"] == widths["attention_output"] == 16 * 128
    assert widths["kv_latent"] == widths["kv_latent_normed"] == 512


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("pp", [1, 3])
def test_stages_hold_the_whole_model(name: str, pp: int) -> None:
    model = find_model(name)
    held = plan_memory(model, TrainingPlan(pp=pp), 512, 1, 1).parameters.sum()
    copies = model.vocab * model.hidden if model.tied and pp > 1 else 0
    assert held == parameters(model, mtp=False) + copies


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (2, 1), (4, 1), (2, 2)])
def test_a_rank_holds_what_serving_counts(name: str, tp: int, pp: int) -> None:
    """Two counts of a tensor rank's parameters, experts cut by their width."""
    model = replace(find_model(name), vocab=4096)
    if model.heads % tp or model.layers % pp:
        tp = pp = 1
    held = plan_memory(model, TrainingPlan(tp=tp, pp=pp, etp=tp), 512, 1).parameters
    assert held.tolist() == [rank_parameters(model, Plan(tp=tp, pp=pp), s) for s in range(pp)]


@pytest.mark.parametrize("name", ["Mixtral-8x7B", "Qwen3-30B-A3B"])
@pytest.mark.parametrize(("ep", "etp"), [(2, 1), (4, 1), (2, 2), (8, 1)])
def test_expert_ranks_share_all_experts(name: str, ep: int, etp: int) -> None:
    model = find_model(name)
    assert model.moe is not None
    experts = model.layers * model.moe.experts * 3 * model.hidden * model.moe.intermediate
    plan = TrainingPlan(tp=2, dp=4, ep=ep, etp=etp)
    whole = plan_memory(model, replace(plan, ep=1, etp=1), 512, 1).parameters[0]
    held = plan_memory(model, plan, 512, 1).parameters[0]
    assert (held - (whole - experts)) * ep * etp == experts


@given(st.integers(1, 64), st.sampled_from(MODELS))
def test_zero_shares_states_exactly(dp: int, name: str) -> None:
    model = find_model(name)
    each = [plan_memory(model, TrainingPlan(dp=dp, zero=z), 512, 1) for z in range(4)]
    for parts, sharded in (("optimizer", 1), ("gradients", 2), ("weights", 3)):
        sizes = [int(getattr(item, parts)[0]) for item in each]
        assert len(set(sizes[:sharded])) == len(set(sizes[sharded:])) == 1
        per_parameter = sizes[0] // int(each[0].parameters[0])
        assert 0 <= sizes[-1] * dp - sizes[0] < 2 * dp * per_parameter


@given(
    st.sampled_from(MODELS), st.sampled_from([1024, 4096]), st.integers(1, 4), st.integers(1, 8),
    st.sampled_from(["none", "selective", "selective:moe_act+layernorm", "full"]),
)  # fmt: skip
def test_more_work_needs_no_less(
    name: str, seq: int, micro: int, flight: int, recompute: str
) -> None:
    model, plan, rules = find_model(name), TrainingPlan(), Rules(recompute=recompute)

    def total(seq: int, micro: int, flight: int) -> int:
        result = plan_memory(model, plan, seq, micro, rules=rules, in_flight=[flight])
        return int(result.total[0])

    base = total(seq, micro, flight)
    assert total(2 * seq, micro, flight) > base
    assert total(seq, micro + 1, flight) > base
    assert total(seq, micro, flight + 1) > base


@pytest.mark.parametrize("name", MODELS)
def test_more_recomputation_keeps_less(name: str) -> None:
    levels = ("none", "selective", "selective:core_attn+layernorm", "full")
    remaining = [
        int(plan_memory(find_model(name), TrainingPlan(), 4096, 1, 1, Rules(recompute=each))
            .activations[0])
        for each in levels
    ]  # fmt: skip
    assert remaining == sorted(remaining, reverse=True)
    assert remaining[-1] < remaining[0] / 4


@given(st.lists(st.tuples(
    st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]),
    st.integers(0, 3), st.booleans(), st.integers(1, 3),
), min_size=1, max_size=5))  # fmt: skip
def test_a_row_is_the_same_alone(shapes: list[tuple[int, int, int, int, bool, int]]) -> None:
    model, rules = find_model("Mixtral-8x7B"), Rules(recompute="selective")
    rows = [
        PipelineRanks.from_model(model, TrainingPlan(tp=t, pp=p, cp=c, dp=8, ep=2, zero=z,
        sequence_parallel=s),
                4096, m)
        for t, p, c, z, s, m in shapes
    ]  # fmt: skip
    together = rows_memory(model, PipelineRanks.joined(rows), rules)
    apart = [rows_memory(model, each, rules) for each in rows]
    for name in FIELDS:
        separate = np.concatenate([getattr(each, name) for each in apart])
        assert (getattr(together, name) == separate).all()


def test_a_search_takes_the_fullest_rank() -> None:
    model = find_model("DeepSeek-V2-Lite")
    result = candidates(PlanSpace(model, 16, 8, 4096, 64, {}))
    needed = candidates_memory(result)
    for row in range(0, len(result), max(len(result) // 20, 1)):
        plan, micro, recompute = result.plan(row)
        passes = int(result.micro_batches[row])
        current = plan_memory(model, plan, 4096, micro, passes, Rules(recompute=recompute))
        assert needed[row] == current.total.max()


def test_interleaved_stages_keep_more() -> None:
    """Narayanan et al. 2021: 1 + (p - 1) / (p v) times as much on the first rank."""
    model = gpt(layers=16)
    once = plan_memory(model, TrainingPlan(pp=4), 2048, 1, 64).activations[0]
    twice = plan_memory(model, TrainingPlan(pp=4, virtual_stages=2), 2048, 1, 64).activations[0]
    assert twice == pytest.approx(once * (1 + 3 / 8), rel=1e-9)
    assert usual_in_flight(TrainingPlan(pp=4), 0, 2) == 2


def test_frozen_weights_need_no_states() -> None:
    model = find_model("Llama-3.1-8B")
    rules = Rules(style=Style(adapted=("qkv", "o"), adapter_rank=16))
    whole, lora = (
        plan_memory(model, TrainingPlan(), 4096, 1, 1, each) for each in (Rules(), rules)
    )
    trained = 32 * 16 * ((4096 + 6144) + (4096 + 4096))
    assert lora.gradients[0] == 4 * trained
    assert lora.optimizer[0] == 12 * trained
    assert lora.weights[0] == whole.weights[0] + 2 * trained
    assert lora.activations[0] < whole.activations[0]


def test_frozen_products_are_held_in_their_own_bits() -> None:
    """Llama-3.1-8B: queries and results of 4096, keys and values of 1024, an MLP of 14336."""
    model, style = find_model("Llama-3.1-8B"), Style(adapted=("qkv", "o"), adapter_rank=16)
    wide, narrow, middle = (
        plan_memory(model, TrainingPlan(), 4096, 1, 1, Rules(style=replace(style, frozen_bits=b)))
        for b in (16.0, 4.5, 12.0)
    )
    products = 32 * 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336)
    assert wide.weights[0] - narrow.weights[0] == products * (16 - 4.5) / 8
    assert wide.weights[0] - middle.weights[0] == products * (16 - 12) / 8


def test_quantised_products_keep_narrow_inputs() -> None:
    model, plan = find_model("Llama-3.1-8B"), TrainingPlan()
    of = {
        name: plan_memory(
            model, plan, 4096, 1, 1, Rules(style=Style(Precision.from_formats(recipe=name)))
        )
        for name in ("bf16", "fp8", "mxfp8", "nvfp4")
    }
    remaining = {name: int(each.activations[0]) for name, each in of.items()}
    assert remaining["nvfp4"] < remaining["fp8"] < remaining["mxfp8"] < remaining["bf16"]
    assert of["fp8"].weights[0] > of["bf16"].weights[0]
    assert of["fp8"].optimizer[0] == of["bf16"].optimizer[0]


def test_offload_takes_its_share() -> None:
    model, plan = find_model("Llama-3.1-8B"), TrainingPlan()
    here = plan_memory(model, plan, 4096, 1, 1)
    away = plan_memory(
        model, plan, 4096, 1, 1, Rules(offload=Offload(activations=0.5, optimizer=1.0))
    )
    assert away.optimizer[0] == 0
    head = 2 * 4096 * model.hidden * 2  # the head reads at once what it keeps
    assert away.activations[0] == head + (here.activations[0] - head) // 2


def test_remedies_fit() -> None:
    model, plan, usable = find_model("Llama-3.1-8B"), TrainingPlan(dp=8), 76e9
    result = remedies(model, plan, 2048, 1, 4, Rules(), usable)
    assert result == ("zero = 1", "offload.optimizer = 1", "tp = 4", "pp = 4")
    away = Rules(offload=Offload(optimizer=1.0))
    assert plan_memory(model, plan, 2048, 1, 4, away).total.max() <= usable
    for text in (each for each in result if not each.startswith("offload.")):
        axis, _, value = text.partition(" = ")
        changes: dict[str, Any] = {axis: int(value)}
        if axis != "zero":
            changes |= {"dp": 8 // int(value), "sequence_parallel": axis == "tp"}
        other = replace(plan, **changes)
        passes = 4 * plan.dp // other.dp
        assert plan_memory(model, other, 2048, 1, passes).total.max() <= usable
    assert remedies(model, plan, 2048, 1, 4, Rules(), 1e15) == ()


def test_a_remedy_says_how_many_devices_it_takes() -> None:
    # One device has no data ranks to take from: "tp = 4" alone would be refused as advice.
    model, rules = find_model("Llama-3.1-8B"), Rules(recompute="full")
    ways = remedies(model, TrainingPlan(), 2048, 1, 4, rules, 60e9)
    assert [way for way in ways if way.startswith("tp")] == ["tp = 4 on 4 devices"]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [({"recompute": "selective:everything"}, "recompute"), ({"optimizer": "adamm"}, "optimizer")],
)
def test_rules_refuse(wrong: dict[str, object], field: str) -> None:
    with pytest.raises(SilicastError) as caught:
        Rules(**wrong)  # type: ignore[arg-type]
    assert caught.value.field == field


def test_one_rank_alone_shards_nothing() -> None:
    model = find_model("Llama-3.2-1B")
    alone = plan_memory(model, TrainingPlan(pp=2), 2048, 1)
    for zero in (1, 2, 3):
        result = plan_memory(model, TrainingPlan(pp=2, zero=zero), 2048, 1)
        assert (result.total == alone.total).all()
