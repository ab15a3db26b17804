"""Steps of many devices: what ranks share, and what that costs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import silicast
from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.training_step import Batch, predict_training_step
from silicast.composition.step.pipes import clocked_ps
from silicast.composition.step.stage_graph import StageGraph
from silicast.core.errors import SilicastError
from silicast.core.prediction import Part
from silicast.distributed.memory.memory import plan_memory
from silicast.distributed.pipeline.chunk import Rank, chunk_graph, predict_chunk
from silicast.distributed.pipeline.chunk_bounds import chunk_bounds
from silicast.distributed.ranks.adapters import RankAdapters
from silicast.distributed.ranks.data_ranks import Exchanges, layer_parameters
from silicast.distributed.ranks.dispersion import Dispersion
from silicast.distributed.ranks.plan import ContextExchange, TrainingPlan
from silicast.distributed.search.candidates import FIELDS, RECOMPUTES, PlanSpace, candidates
from silicast.distributed.search.search import closed_form, search
from silicast.distributed.step.step import Overlap, alike, predict_step
from silicast.hardware.catalog import find_device
from silicast.workload.frameworks.eager import Framework
from silicast.workload.graphs.graph import Graph
from silicast.workload.models.counting import parameters
from silicast.workload.models.lookup import find_model
from silicast.workload.models.precision import Precision
from silicast.workload.training.backward import Training
from silicast.workload.training.recomputation import module_policies
from silicast.workload.transformers.plan import Plan

SMALL, EXPERTS = "Llama-3.2-1B", "Mixtral-8x7B"


@cache
def rank(
    plan: TrainingPlan, model: str = SMALL, *, seq_len: int = 2048, accumulates: bool = True,
    device: str = "H100", adapters: RankAdapters | None = None,
) -> Rank:  # fmt: skip
    deployment = Deployment.from_model(
        find_model(model), find_device(device), find_engine("megatron"), Plan(tp=plan.tp),
        Precision.from_formats(weights="bf16"),
    )  # fmt: skip
    framework = Framework(
        compiled=True, attention="fused", fused_layers=True,
        training=Training(dropout=False, accumulates=accumulates),
    )  # fmt: skip
    return Rank(deployment, plan, framework, seq_len, 1, adapters)


def sent(graph: Graph, family: str, part: str = "") -> int:
    """Bytes of a family of collectives over all blocks, as often as they run."""
    sent = 0
    for block, node in graph.nodes():
        if node.op.family == family and part in node.name:
            size = node.op.dim("bytes")
            assert isinstance(size, int)
            sent += size * block.count
    return sent


def whole(current: Rank, **exchanges: Any) -> Graph:
    return chunk_graph(current, 0, current.deployment.model.layers, Exchanges(**exchanges))


@pytest.mark.parametrize("count", [1, 3])
def test_one_device_takes_what_one_device_takes(count: int) -> None:
    current = rank(TrainingPlan(), accumulates=count > 1)
    alone = predict_training_step(
        current.deployment, Batch(2048, 1, count), "adamw", "none", framework=current.framework
    )
    many = predict_step(current, count, "adamw")
    assert many.step.part.exposed_ps == alone.step.part.exposed_ps
    assert many.step.part.bound_ps == alone.step.part.bound_ps
    assert many.step.error == alone.step.error


@pytest.mark.parametrize("plan", [TrainingPlan(dp=8, zero=1), TrainingPlan(tp=2, pp=2, dp=2)])
def test_a_step_waits_for_the_slowest_board(plan: TrainingPlan) -> None:
    alike_boards = predict_step(rank(plan), 4).step.part
    unlike = replace(rank(plan), boards=Dispersion(0.02))
    parts = predict_step(unlike, 4).step.part.children
    (wait,) = (part for part in parts if part.name == "slowest_device")
    (passes,) = (part for part in parts if part.name == "forward_and_backward")
    assert tuple(part for part in parts if part != wait) == alike_boards.children
    share = Dispersion(0.02).wait_for_slowest(8)
    assert wait.exposed_ps == round(clocked_ps(passes) * share)
    assert 0 < wait.exposed_ps < passes.exposed_ps * share


def test_chunks_that_are_alike_depend_on_the_model_and_the_cut() -> None:
    dense = rank(TrainingPlan(pp=4))
    model = replace(dense.deployment.model, windows=(0, 128) * 8)
    unlike = replace(dense, deployment=replace(dense.deployment, model=model))
    quarters, singles = ((0, 4), (4, 8), (8, 12), (12, 16)), ((0, 5), (5, 6), (6, 7), (7, 16))
    assert alike(dense, quarters) == ((0, 4), (4, 8), (4, 8), (12, 16))
    assert alike(dense, singles) == ((0, 5), (5, 6), (5, 6), (7, 16))
    assert alike(unlike, singles) == singles


def test_links_memory_and_host_take_as_long_on_every_board() -> None:
    kinds = ("tensor", "power", "dram", "link", "host", "pipeline")
    parts = [Part(name, 10**k, bound_by=name) for k, name in enumerate(kinds)]
    assert clocked_ps(Part.group("pass", parts)) == 11


def test_one_board_waits_for_none() -> None:
    alone = predict_step(replace(rank(TrainingPlan()), boards=Dispersion(0.1)), 2).step
    assert alone.part.exposed_ps == predict_step(rank(TrainingPlan()), 2).step.part.exposed_ps


def test_shards_add_up_to_the_model() -> None:
    model = find_model(SMALL)
    for tp in (1, 2, 4):
        dense, experts = layer_parameters(whole(rank(TrainingPlan(tp=tp))), model)
        assert experts == 0
        assert 0 <= dense * tp - parameters(model) <= (tp - 1) * 40 * model.layers * model.hidden
    current = rank(TrainingPlan(dp=4, ep=4), EXPERTS)
    dense, experts = layer_parameters(whole(current), current.deployment.model)
    assert dense + 4 * experts == parameters(current.deployment.model)


def test_sequence_parallelism_sends_what_sums_send() -> None:
    """An all-reduce is a reduce-scatter and an all-gather; the backward pass gathers once more."""
    current = rank(TrainingPlan(tp=2, sequence_parallel=True))
    graph, layers = whole(current), current.deployment.model.layers
    hidden = 2048 * current.deployment.model.hidden * 2
    gathers = sent(graph, "all_gather") - sent(graph, "all_gather", "_regathered")
    scatters = sent(graph, "reduce_scatter")
    assert gathers == scatters == (4 * layers + 2) * hidden
    assert sent(graph, "all_gather", "_regathered") == (2 * layers + 1) * hidden
    sums = whole(rank(TrainingPlan(tp=2)))
    losses = sum(sent(sums, "all_reduce", name) for name in ("loss_",))
    assert sent(sums, "all_reduce") - losses == (4 * layers + 2) * hidden


def test_sharded_weights_are_gathered_twice_and_summed_once() -> None:
    current = rank(TrainingPlan(dp=8, zero=3))
    graph = whole(current, gathers_forward=True, gathers_backward=True, sums=True, gradient_bits=32)
    dense, _ = layer_parameters(graph, current.deployment.model)
    assert sent(graph, "all_gather") == 2 * 2 * dense
    assert sent(graph, "reduce_scatter") == 4 * dense


def test_tokens_go_to_their_experts_and_back() -> None:
    current = rank(TrainingPlan(dp=8, ep=8), EXPERTS)
    model = current.deployment.model
    assert model.moe is not None
    each = 2048 * model.moe.topk * model.hidden * 2
    assert sent(whole(current), "all_to_all") == 4 * model.layers * each  # there and back, twice


def pairs_seen(current: Rank) -> int:
    """Pairs of queries and keys of the first layer's attention on one rank."""
    pairs = 0
    for _, node in chunk_graph(current, 0, 1).nodes():
        if node.op.family == "attention_prefill":
            new, keys = node.op.dim("q_len"), node.op.dim("kv_len")
            assert isinstance(new, tuple)
            assert isinstance(keys, tuple)
            causal = node.op.variant.flag("causal", default=True)
            pairs += sum(a * b // (2 if causal else 1) for a, b in zip(new, keys, strict=True))
    return pairs


def test_a_library_launches_small_kernels_and_single_experts() -> None:
    current = rank(TrainingPlan(dp=8, ep=4), EXPERTS)
    machine = current.deployment.machine
    table, graph = machine.engine.experts, chunk_graph(current, 0, 32)
    chosen = table.routing + table.exchange["all_to_all"]
    for direction, wanted in (("forward", chosen), ("backward", table.routing_back)):
        items = [
            (block.name, node.name)
            for block, node in graph.nodes()
            if "experts_choice" in node.name and block.direction == direction
        ]
        assert len(items) == wanted * len({block for block, _ in items})
    lowered = StageGraph(graph, machine)
    reads = [node.name for node, waits in zip(lowered.nodes, lowered.host_waits, strict=True)
             if waits]  # fmt: skip
    assert reads == [f"experts_choice_{chosen - 1}"] * len(reads)
    assert reads
    of_experts = {
        launches
        for node, launches in zip(lowered.nodes, lowered.launches, strict=True)
        if node.op.family == "moe"
    }
    assert of_experts == {2 * 8 // 4 * table.products}  # up and down of the experts of a rank


def test_chunks_are_built_once() -> None:
    current = rank(TrainingPlan(dp=8, ep=4), EXPERTS)
    assert chunk_graph(current, 0, 32) is chunk_graph(current, 0, 32)


def test_pieces_of_a_ring_hold_all_causal_pairs() -> None:
    cp, length = 4, 16384
    current = rank(TrainingPlan(cp=cp), seq_len=length)
    assert pairs_seen(current) * cp == length * length // 2


@pytest.mark.parametrize("context", ["ring", "all_gather"])
def test_context_ranks_see_all_pairs_of_attention_that_is_not_causal(
    context: ContextExchange,
) -> None:
    current = rank(TrainingPlan(cp=4, context=context), "BERT-large", seq_len=512)
    assert pairs_seen(current) * 4 == 512 * 512


def test_an_encoder_is_not_spread_over_context_ranks() -> None:
    with pytest.raises(SilicastError, match="encoder of T5-Base over context ranks"):
        chunk_graph(rank(TrainingPlan(cp=2), "T5-base", seq_len=512), 0, 12)


def test_frozen_weights_have_no_gradients() -> None:
    current = rank(
        TrainingPlan(tp=2, sequence_parallel=True), adapters=RankAdapters(16, ("qkv", "o"))
    )
    names = {node.name for _, node in whole(current).nodes()}
    assert not any(name.startswith(("gate_up_grad_weight", "down_grad_weight")) for name in names)
    assert {"qkv_adapter_down_grad_weight", "o_adapter_up_grad_weight"} <= names
    assert {"gate_up_grad_input", "qkv_frozen_grad_input"} <= names
    dense, _ = layer_parameters(whole(current), current.deployment.model, current.adapters)
    assert 0 < dense < parameters(current.deployment.model) // 100


def test_frozen_weights_are_gathered_only_where_they_are_sharded() -> None:
    adapters = RankAdapters(16, ("qkv",))
    gathers = Exchanges(gathers_forward=True)
    sizes = {
        zero: sent(
            chunk_graph(
                rank(TrainingPlan(dp=8, zero=zero), adapters=adapters), 0, 16, gathers
            ), "all_gather",
        )
        for zero in (1, 3)
    }  # fmt: skip
    assert 0 < sizes[1] < sizes[3] / 50


@pytest.mark.parametrize("seq_len", [8192, 128])
def test_stages_without_bubbles_add_up(seq_len: int) -> None:
    """One micro-batch through two stages takes what both take, one after the other: each direction
    what the device takes, or the host with its launches and half of the schedule.
    """
    current = rank(TrainingPlan(pp=2), accumulates=False, seq_len=seq_len)
    step = predict_step(current, 1)
    machine = current.deployment.machine
    half = round(machine.engine.host.stage_us * machine.host_us_s * 1e12) // 2
    device = [
        one.directions[way].part.exposed_ps
        for one in step.passes
        for way in ("forward", "backward")
    ]
    host = [
        round(float(one.times.launches_s[number].sum()) * 1e12) + half
        for one in step.passes
        for number in (0, 1)
    ]
    busy = [one > other for one, other in zip(device, host, strict=True)]
    assert all(busy) if seq_len == 8192 else not any(busy)
    assert step.run is not None
    send = int(2 * step.run.transfer)
    assert int(step.run.makespan) == sum(map(max, device, host)) + send


def test_a_bubble_waits_for_other_stages_not_for_the_network() -> None:
    step = predict_step(rank(TrainingPlan(pp=4)), 4, overlap=Overlap(transfers=False)).step
    parts = {part.name: part.bound_by for part in step.part.children}
    assert parts["pipeline_bubble"] == "pipeline"
    assert parts["transfers_between_stages"] == "network"


def test_counts_are_within_the_parent_however_many_micro_batches() -> None:
    work = predict_step(rank(TrainingPlan()), 8).step.part.children[0]
    forward = work.children[0]
    layer = next(part for part in forward.children if part.name == "layer")
    assert (work.count, forward.name, forward.count) == (8, "forward", 1)
    assert layer.count == 15  # of 16; the first is a block of its own


def test_more_to_hide_is_never_quicker() -> None:
    current = rank(TrainingPlan(dp=16, zero=1, tp=2, sequence_parallel=True), seq_len=16384)
    hidden = predict_step(current, 4, overlap=Overlap(tensor=True)).step.seconds
    usual = predict_step(current, 4).step.seconds
    exposed = predict_step(current, 4, overlap=Overlap(False, False, False)).step.seconds
    assert hidden < usual < exposed


def test_replicas_sum_their_gradients_where_nothing_hides_it() -> None:
    plan = TrainingPlan(dp=64, zero=1, shard=8)
    shown = predict_step(rank(plan), 2, overlap=Overlap(gradients=False, weights=False))
    assert "gradients_replicate" in [node.name for node in shown.update.model.graph.nodes]
    assert shown.step.seconds > predict_step(rank(plan), 2).step.seconds


def test_data_ranks_do_not_shorten_passes() -> None:
    alone = predict_step(rank(TrainingPlan()), 2).step.part.children[0].exposed_ps
    for zero in (0, 1, 3):
        many = predict_step(rank(TrainingPlan(dp=8, zero=zero)), 2)
        assert many.step.part.children[0].exposed_ps >= alone


def test_ends_hold_a_layer_less_where_only_that_divides() -> None:
    sizes = [last - first for first, last in chunk_bounds(126, 16 * 8)]
    assert sizes[0] == sizes[-1] == 0
    assert set(sizes[1:-1]) == {1}
    with pytest.raises(SilicastError, match="chunks of"):
        chunk_bounds(4, 8)


def test_candidates_are_all_that_divide() -> None:
    space = PlanSpace(find_model(SMALL), 8, 8, 4096, 16, {"recompute": 0})
    result = candidates(space)
    rows = {tuple(row) for row in result.table.T.tolist()}
    assert len(rows) == len(result)
    for number in range(len(result)):
        plan, micro, _ = result.plan(number)
        assert plan.gpus == 8
        assert 16 % (micro * plan.dp) == 0
    degrees = {
        (tp, pp, cp)
        for tp in (1, 2, 4, 8) for pp in (1, 2, 4, 8) for cp in (1, 2)
        if tp * pp * cp <= 8
    }  # fmt: skip
    names = [FIELDS.index(name) for name in ("tp", "pp", "cp")]
    assert {tuple(row[position] for position in names) for row in rows} == degrees


def test_candidates_are_what_a_framework_offers() -> None:
    space = PlanSpace(find_model(SMALL), 8, 8, 16384, 16, {"recompute": 0, "zero": 1})
    every = candidates(space)
    plain = candidates(replace(space, interleaved=False, context="all_to_all"))
    assert set(every.column("virtual_stages")) > {1}
    assert set(plain.column("virtual_stages")) == {1}
    assert set(every.column("etp")) == {1}  # no experts: their degrees are not stated
    heads = space.model.heads
    assert all(heads % (tp * cp) == 0 for tp, cp in plain.table[[0, 2]].T.tolist())
    assert plain.plan(0)[0].context == "all_to_all"


@pytest.mark.parametrize(("gpus", "batch"), [(7 * 11, 16), (13 * 17, 8), (1000, 16)])
def test_the_nearest_numbers_of_devices_are_those_of_a_search_of_all(gpus: int, batch: int) -> None:
    space = PlanSpace(find_model(SMALL), gpus, 8, 8192, batch, {"recompute": 0})

    def has_plan(number: int) -> bool:
        try:
            return len(candidates(replace(space, gpus=number))) > 0
        except SilicastError:
            return False

    assert not has_plan(gpus)
    below = next((n for n in range(gpus - 1, gpus // 2, -1) if has_plan(n)), 0)
    above = next((n for n in range(gpus + 1, 2 * gpus + 1) if has_plan(n)), 0)
    with pytest.raises(SilicastError) as caught:
        candidates(space)
    if below or above:
        assert caught.value.hint == " or ".join(f"{n:,} devices" for n in (below, above) if n)
    else:
        assert "more divisors" in caught.value.hint


@pytest.mark.parametrize(("engine", "whole"), [("megatron", 1), ("fsdp", 2)])
def test_plans_that_keep_whole_weights_shard_as_the_library_can(engine: str, whole: int) -> None:
    parallel = find_engine(engine).parallel
    space = PlanSpace(
        find_model(SMALL), 8, 8, 4096, 16, {"recompute": 0},
        zero_whole_weights=parallel.zero_whole_weights,
    )  # fmt: skip
    stages = set(candidates(space).column("zero").tolist())
    assert stages == {0, whole, 3}  # 0 where nothing is shared


def test_a_search_keeps_what_is_stated_and_ranks_by_the_full_prediction() -> None:
    current = rank(TrainingPlan())
    legal = candidates(
        PlanSpace(current.deployment.model, 8, 8, 2048, 16, {"pp": 2, "micro_batch": 1})
    )
    match = search(current, legal, lambda plans: np.zeros(len(plans)), 1.0, finalists=6)
    assert [each.plan.pp for each in match.finalists] == [2] * len(match.finalists)
    seconds = [each.seconds for each in match.finalists]
    assert seconds == sorted(seconds)
    for each in match.finalists:
        assert each.estimate_s == pytest.approx(each.seconds, rel=0.3)
    with pytest.raises(SilicastError, match="fits into"):
        search(current, legal, lambda plans: np.full(len(plans), 2.0), 1.0)


def test_modules_run_again_only_where_the_plan_does_not_fit_without() -> None:
    policies = (*RECOMPUTES, "selective:mlp", "selective:layernorm+mlp")
    space = PlanSpace(find_model(SMALL), 2, 8, 4096, 4, {"zero": 1, "pp": 1}, recomputes=policies)
    legal = candidates(space)
    level = legal.column("recompute")
    small = legal.column("micro_batch") == 1
    fits = small | (level > 0)  # larger micro-batches fit with anything that runs again
    worthwhile = legal.worthwhile(fits)
    assert not worthwhile[small & (level >= len(RECOMPUTES))].any()
    assert worthwhile[small & (level < len(RECOMPUTES))].all()
    assert worthwhile[~small & (level > 0)].all()
    assert not worthwhile[~fits].any()


@pytest.mark.parametrize("model", [SMALL, EXPERTS, "DeepSeek-V2-Lite"])
def test_what_modules_cost_is_near_the_full_prediction(model: str) -> None:
    config = find_model(model)
    policies = module_policies(latent=config.mla is not None, experts=config.moe is not None)
    policies = ("none", *policies, "full")
    space = PlanSpace(config, 8, 8, 4096, 128, {"dp": 8, "zero": 1, "ep": 1, "micro_batch": 1},
        recomputes=policies)  # fmt: skip
    legal = candidates(space)
    current = rank(TrainingPlan(dp=8, zero=1), model, seq_len=4096)
    times = closed_form(current, legal)
    seconds = []
    for policy in policies:
        training = Training(dropout=False, accumulates=True, recompute=policy)
        again = replace(current, framework=replace(current.framework, training=training))
        seconds.append(predict_step(again, 16).step.seconds)
    more = np.array(seconds) - seconds[0]
    assert np.abs(times - times[0] - more).max() < 0.1 * more[-1]
    assert (times[1:-1] < times[-1]).all()
    if model == EXPERTS:  # no activation beside whole experts; the host's launches are all hidden
        experts = policies.index("selective:moe")
        assert times[experts] - times[0] == pytest.approx(more[experts], rel=0.02)


def test_the_closed_form_of_one_plan_is_that_of_many() -> None:
    current = rank(TrainingPlan())
    legal = candidates(PlanSpace(current.deployment.model, 4, 8, 2048, 8, {"recompute": 0}))
    together = closed_form(current, legal)
    for row in range(0, len(legal), 7):
        assert closed_form(current, legal.chosen(np.array([row])))[0] == together[row]


@pytest.mark.filterwarnings("error")
def test_plans_without_a_price_are_slower_than_any() -> None:
    current = rank(TrainingPlan(), device="M2 Ultra")
    legal = candidates(
        PlanSpace(current.deployment.model, 4, 8, 2048, 8, {"recompute": 0, "tp": 4})
    )
    assert np.isposinf(closed_form(current, legal)).all()


def test_chunks_of_the_same_layers_are_one() -> None:
    current = rank(TrainingPlan(pp=4), accumulates=True)
    step = predict_step(current, 4)
    assert step.passes[1] is step.passes[2]
    assert predict_chunk(current, 0, 4) is predict_chunk(replace(current), 0, 4)


def test_steps_with_context_ranks_are_less_certain() -> None:
    """By the log sd that the engine's file states, on top of what switches add."""
    spread = find_engine("megatron").training.context_log_sd
    alone, shared = (
        predict_step(rank(TrainingPlan(dp=2 // cp, cp=cp)), 2).step.error.loadings for cp in (1, 2)
    )
    assert spread > 0.0
    assert "switches" not in alone
    assert shared["switches"] == pytest.approx(spread)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("tp", [1, 2])
def test_dropout_of_scores_costs_time_where_no_kernel_holds_it(tp: int, recompute: str) -> None:
    """A pass over the scores forward, again where they are made again, and backward: less than
    what the scores themselves take, which ten passes and more do.
    """

    def seconds(attention: str, *, dropout: bool) -> float:
        scenario = {
            "task": "training", "device": "A100-80GB", "model": "gpt2-medium",
            "engine": {"name": "megatron", "options": {"attention": attention, "dropout": dropout}},
            "cluster": {"gpus": 2}, "parallel": {"tp": tp, "dp": 2 // tp},
            "workload": {"seq_len": 1024, "micro_batch": 8, "global_batch": 32,
                         "recompute": recompute},
        }  # fmt: skip
        return silicast.predict(scenario).answer.metrics["step_time_s"].estimate

    with_masks, without = (seconds("math", dropout=each) for each in (True, False))
    assert without < with_masks < 1.5 * without
    fused = [seconds("fused", dropout=each) for each in (True, False)]
    assert fused[0] == fused[1]
    assert with_masks - without < without - fused[0]


def test_ends_of_the_model_may_hold_no_layers() -> None:
    """Six layers on eight chunks: embedding and head are alone on theirs, and are priced and held
    there alone (Megatron-LM's ``account_for_embedding_in_pipeline_split``).
    """
    model = replace(find_model("Llama-3.1-8B"), layers=6)
    plan = TrainingPlan(pp=4, virtual_stages=2)
    bounds = chunk_bounds(6, 8)
    assert bounds[:3] == ((0, 0), (0, 1), (1, 2))
    current = rank(plan)
    current = replace(current, deployment=replace(current.deployment, model=model))
    priced = alike(current, bounds)
    assert priced[0] == (0, 0)
    assert priced[-1] == (6, 6)
    assert set(priced[1:-1]) == {(1, 2)}, "a layer amid the model"
    graphs = [chunk_graph(current, *each) for each in priced]
    for name in ("embedding", "lm_head"):
        held = [sum(node.name == name for _, node in graph.nodes()) for graph in graphs]
        assert sum(held) == 1
    whole = plan_memory(model, plan, 128, 1).parameters
    assert int(whole.sum()) == parameters(model)
