"""Exchanges of experts: what runs beside them, and what the host launches of their products."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer
from silicast.scenario.answers.training.training_runs import run_of
from silicast.scenario.decode import decode
from silicast.scenario.run import run


def stated(model: str, overlap: Any = None, **options: Any) -> dict[str, Any]:
    return {
        "format": 1,
        "task": "training",
        "model": model,
        "device": "H100",
        "engine": {"name": "megatron", "options": options},
        "parallel": {"dp": 8, "ep": 8},
        "cluster": {"gpus": 8},
        "workload": {
            "seq_len": 4096,
            "micro_batch": 2,
            "global_batch": 32,
            "recompute": "none",
            "overlap": overlap,
        },
    }


def step_s(answer: Answer) -> float:
    return answer.metrics["step_time_s"].estimate


GATHERS = {"gradients": True, "weights": True}
SHARED = "deepseek-v2-lite"


def test_exchanges_wait_unless_something_runs_beside_them() -> None:
    alone, shared, batches = (
        run(decode(stated(SHARED, GATHERS | more, cuda_graph="full")))
        for more in ({}, {"shared_experts": True}, {"experts": True})
    )
    assert step_s(batches) < step_s(shared) < step_s(alone)


def test_beside_another_batch_a_pass_takes_its_work_or_its_exchanges() -> None:
    """No less than the larger of both, no more than their sum."""
    run_, beside = (
        run_of(decode(stated(SHARED, GATHERS | more, cuda_graph="full")))
        for more in ({}, {"experts": True})
    )
    assert run_.many is not None
    assert beside.many is not None
    one, other = run_.many.passes[0], beside.many.passes[0]
    names = [node.name for node in one.model.graph.nodes]
    sent = sum(
        float(seconds)
        for name, seconds in zip(names, one.times.exposed_s[:, 0], strict=True)
        if name.startswith(("experts_dispatch", "experts_combine"))
    )
    whole, together = (each.total.part.exposed_ps * 1e-12 for each in (one, other))
    assert max(sent, whole - sent) <= together * (1 + 1e-9)
    assert together < whole
    again = {node.name: node.op for node in other.model.graph.nodes}
    assert again["experts_dispatch"] in {node.op for node in one.model.graph.nodes}


def test_each_weight_of_an_expert_has_a_hook_and_its_products_are_one_call() -> None:
    """Mixtral on eight ranks: one expert, two matrices: forward and data gradients are one call,
    gradients of weights two; two launches each.
    """
    many = run_of(decode(stated("Mixtral-8x7B"))).many
    assert many is not None
    graph = many.passes[0].model.graph
    counted = {
        node.name: (launches, calls)
        for node, launches, calls in zip(graph.nodes, graph.launches, graph.calls, strict=True)
        if node.op.family == "moe"
    }
    assert counted["experts_routed"] == (2, 1)
    assert counted["experts_routed_grad_input"] == (2, 1)
    assert counted["experts_routed_grad_weight"] == (2, 2)


@pytest.mark.parametrize(
    ("dispatcher", "families", "choices"),
    [("all_to_all", {"all_to_all"}, 38), ("kernel", {"dispatch", "combine"}, 32)],
)
def test_a_dispatcher_brings_tokens_to_experts_and_counts_them(
    dispatcher: str, families: set[str], choices: int
) -> None:
    for engine in ("megatron", "megatron-bridge"):
        scenario = stated("Mixtral-8x7B", dispatcher=dispatcher)
        scenario["engine"]["name"] = engine
        many = run_of(decode(scenario)).many
        assert many is not None
        nodes = [node for node in many.passes[0].model.graph.nodes if node.direction == "forward"]
        moved = {"all_to_all", "dispatch", "combine"} & {node.op.family for node in nodes}
        assert moved == families
        names = {node.name.rpartition(".")[2] for node in nodes}
        assert sum(name.startswith("experts_choice") for name in names) == choices


def test_an_unknown_dispatcher_is_refused() -> None:
    with pytest.raises(SilicastError, match="all_to_all, kernel"):
        run_of(decode(stated(SHARED, dispatcher="pigeon")))


def test_graphs_of_parts_of_layers_leave_experts_to_the_host() -> None:
    small = {"seq_len": 256, "micro_batch": 1, "global_batch": 8}
    steps = []
    for graph in ("off", "piecewise", "full"):
        scenario = stated("qwen3-30b-a3b", cuda_graph=graph)
        scenario["workload"] |= small
        steps.append(step_s(run(decode(scenario))))
    assert steps[0] > steps[1] > steps[2]


@pytest.mark.parametrize("word", ["experts", "moe_a2a"])
def test_words_for_the_overlap_of_experts(word: str) -> None:
    assert run(decode(stated(SHARED, {word: True}))) is not None


def launched(recipe: str, model: str = "Mixtral-8x7B") -> dict[str, tuple[float, float]]:
    """Launches and calls of each node of a layer."""
    scenario = {**stated(model), "device": "B200", "precision": {"recipe": recipe}}
    many = run_of(decode(scenario)).many
    assert many is not None
    graph = many.passes[0].model.graph
    return {
        node.name: (launches, calls)
        for node, launches, calls in zip(graph.nodes, graph.launches, graph.calls, strict=True)
    }


@pytest.mark.parametrize(
    ("recipe", "before", "beside"), [("bf16", 0, 0), ("fp8", 3, 0), ("mxfp8", 1, 2)]
)
def test_a_product_in_few_bits_is_quantised_in_calls_of_its_own(
    recipe: str, before: int, beside: int
) -> None:
    """Its input forward, and once for both gradients; one expert has two products."""
    counted = launched(recipe)
    calls = 2 if before else 1
    for name in ("o", "o_grad_input"):
        assert counted[name] == (1 + before + beside, calls)
    assert counted["o_grad_weight"] == (1 + beside, 1)
    assert counted["router"] == (1, 1), "it stays in 16 bits"
    for name in ("experts_routed", "experts_routed_grad_input"):
        assert counted[name] == (2 * (1 + before + beside), 1)
    assert counted["experts_routed_grad_weight"] == (2 * (1 + beside), 2)


def test_tokens_that_a_kernel_brought_are_sorted_where_it_does_not() -> None:
    """Read once and written once an expert, and the other way around, forward and backward: two
    experts a token of 4,096 numbers in 16 bits, 8,192 tokens.
    """
    moved = {}
    for device in ("H100", "B200"):
        many = run_of(
            decode({**stated("Mixtral-8x7B", dispatcher="kernel"), "device": device})
        ).many
        assert many is not None
        moved[device] = {
            node.name: tuple(dict(node.op.dims).get(n) for n in ("read_bytes", "written_bytes"))
            for node in many.passes[0].model.graph.nodes
            if "permute" in node.name
        }
    token = 8192 * 4096 * 2
    assert moved["B200"] == {}
    assert moved["H100"] == {
        "experts_permute": (token, 2 * token),
        "experts_unpermute": (2 * token, token),
        "experts_permute_grad_input": (2 * token, token),
        "experts_unpermute_grad_input": (token, 2 * token),
    }


def test_single_modules_run_again_before_whole_layers() -> None:
    """Where nothing fits without, the first that fits; of one that fits, none."""
    scenario: dict[str, Any] = {
        "task": "training", "device": "B200", "model": "deepseek-v3", "engine": "megatron-bridge",
        "precision": {"recipe": "mxfp8"}, "cluster": {"gpus": 256},
        "parallel": {"pp": 8, "ep": 32, "virtual_stages": 2, "etp": 1},
        "workload": {"seq_len": 4096, "micro_batch": 1, "global_batch": 4096},
    }  # fmt: skip
    least = run_of(decode(scenario))
    assert least.recompute == "selective:mla_up_proj"
    again = [
        run_of(decode({**scenario, "workload": {**scenario["workload"], "recompute": name}}))
        for name in ("none", "selective:mla_up_proj", "full")
    ]
    excess = [each.memory.parts["excess"] for each in again]
    assert excess[0] > 0.0 == excess[1] == excess[2]
    assert [each.step.seconds for each in again] == sorted(each.step.seconds for each in again)
    assert least.step.seconds == again[1].step.seconds
