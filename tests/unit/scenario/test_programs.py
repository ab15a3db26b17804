"""Programs in files and training steps, as scenarios ask for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer, Refusal
from silicast.scenario.answerer import answerer_for
from silicast.scenario.decode import decode

MLP: dict[str, Any] = {
    "format": 1,
    "name": "mlp",
    "symbols": {"batch": 64},
    "parameter_bytes": 4 * 4096 * 4096,
    "nodes": [
        {"name": "up", "op": "gemm", "dims": {"m": "batch", "n": 4096, "k": 4096},
         "parameter_bytes": 2 * 4096 * 4096},
        {"name": "act", "op": "elementwise", "inputs": ["up"], "flags": {"gelu": True},
         "dims": {"elements": {"symbol": "batch", "factor": 4096}, "inputs": 1}},
        {"name": "down", "op": "gemm", "dims": {"m": "batch", "n": 4096, "k": 4096},
         "inputs": ["act"], "parameter_bytes": 2 * 4096 * 4096},
    ],
}  # fmt: skip


def answered(tmp_path: Path, graph: dict[str, Any] = MLP, **workload: Any) -> Answer:
    (tmp_path / "g.json").write_text(json.dumps(graph))
    tree = {
        "format": 1, "task": "graph", "device": "H100",
        "workload": {"graph": "g.json", **workload},
    }  # fmt: skip
    answer = answerer_for("graph").answer(decode(tree, folder=tmp_path))
    assert not isinstance(answer, Refusal)
    return answer


def trained(model: str = "Llama-3.2-1B", device: str = "H100", **workload: Any) -> Answer:
    work = {"seq_len": 2048, "micro_batch": 1, "global_batch": 4, **workload}
    tree = {"format": 1, "task": "training", "device": device, "model": model, "workload": work}
    return answerer_for("training").answer(decode(tree))


def test_an_op_graph_is_answered_with_memory_and_coverage(tmp_path: Path) -> None:
    result = answered(tmp_path)
    assert set(result.metrics) == {"e2e_ms", "forward_ms", "energy_j", "power_w"}
    assert result.why["coverage"]["operations"] == 3
    assert result.why["memory_gb"]["weights"] == pytest.approx(0.0671, rel=0.01)
    more = answered(tmp_path, batch=8192)
    assert more.metrics["e2e_ms"].estimate > 3 * result.metrics["e2e_ms"].estimate


def test_training_adds_a_backward_pass_and_an_optimizer_only_if_named(tmp_path: Path) -> None:
    plain = answered(tmp_path, mode="training", batch=4096)
    assert set(plain.metrics) == {"e2e_ms", "forward_ms", "backward_ms", "energy_j", "power_w"}
    forward, backward = (plain.metrics[f"{name}_ms"].estimate for name in ("forward", "backward"))
    assert 1.5 < backward / forward < 3.0
    with_update = answered(tmp_path, mode="training", batch=4096, optimizer="adamw")
    assert with_update.metrics["e2e_ms"].estimate > plain.metrics["e2e_ms"].estimate * 1.05
    parameters = 2 * 4096 * 4096
    assert with_update.why["memory_gb"]["optimizer"] == pytest.approx(parameters * 12 / 1e9)


@pytest.mark.parametrize(
    ("workload", "field"),
    [
        ({"graph": "none.json"}, "workload.graph"),
        ({"graph": "g.txt"}, "workload.graph"),
        ({"optimizer": "adamw"}, "workload.optimizer"),
    ],
)
def test_bad_requests_name_the_field(tmp_path: Path, workload: dict[str, Any], field: str) -> None:
    with pytest.raises(SilicastError) as error:
        answered(tmp_path, **workload)
    assert error.value.field.startswith(field)


def test_gradients_and_updates_are_of_all_repeats(tmp_path: Path) -> None:
    node = {**MLP["nodes"][0], "dims": {"m": 64, "n": 4096, "k": 4096}}
    graph = {"format": 1, "blocks": [{"name": "layer", "times": 32, "nodes": [node]}]}
    memory = answered(tmp_path, graph, mode="training", optimizer="adamw").why["memory_gb"]
    assert memory["weights"] == pytest.approx(32 * 2 * 4096 * 4096 / 1e9)
    assert memory["gradients"] == memory["weights"]
    assert memory["optimizer"] == pytest.approx(6 * memory["weights"])


def test_a_program_takes_no_model_beside_it(tmp_path: Path) -> None:
    (tmp_path / "g.json").write_text(json.dumps(MLP))
    tree = {
        "format": 1, "task": "graph", "device": "H100", "model": "GPT-2",
        "workload": {"graph": "g.json"},
    }  # fmt: skip
    with pytest.raises(SilicastError, match="a program in a file is given as well"):
        answerer_for("graph").answer(decode(tree, folder=tmp_path))


def test_a_bad_node_is_named_with_its_file(tmp_path: Path) -> None:
    nodes = [{**MLP["nodes"][0], "op": "warp"}]
    with pytest.raises(SilicastError, match="node 'up' of mlp: no model of 'warp'"):
        answered(tmp_path, {**MLP, "nodes": nodes})


def test_a_program_on_several_devices_is_refused(tmp_path: Path) -> None:
    (tmp_path / "g.json").write_text(json.dumps(MLP))
    tree = {
        "format": 1, "task": "graph", "device": "H100", "parallel": {"tp": 2},
        "workload": {"graph": "g.json"},
    }  # fmt: skip
    with pytest.raises(SilicastError, match="several devices"):
        answerer_for("graph").answer(decode(tree, folder=tmp_path))


def test_a_training_step_by_its_parts() -> None:
    result = trained()
    step = result.metrics["step_time_s"].estimate
    tokens = result.metrics["tokens_per_s_per_gpu"].estimate
    assert tokens == pytest.approx(4 * 2048 / step)
    # 6 FLOPs a parameter and token, and 6 x layers x hidden x length of causal attention
    parameters, layers, hidden = 1.2358e9, 16, 2048
    model_flops = 8192 * (6 * parameters + 6 * layers * hidden * 2048)
    assert result.metrics["model_tflops_per_gpu"].estimate == pytest.approx(
        model_flops / step / 1e12, rel=0.01
    )
    assert 0.2 < result.metrics["mfu"].estimate < 0.8
    assert result.domain != "in"


def test_more_micro_batches_take_longer_and_the_update_runs_once() -> None:
    one, four = (trained(global_batch=n).metrics["step_time_s"].estimate for n in (8, 32))
    assert 3.0 * one < four < 4.0 * one


def test_recomputation_is_the_least_that_fits() -> None:
    assert trained().why["recompute"] == "none"
    small = trained(device="RTX 4090", seq_len=8192, global_batch=1)
    assert small.why["recompute"] != "none"
    stated = trained(recompute="full")
    assert stated.metrics["step_time_s"].estimate > trained().metrics["step_time_s"].estimate
    assert stated.metrics["memory_gb"].estimate < trained().metrics["memory_gb"].estimate


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ({"micro_batch": 3}, "does not divide"),
        ({"task": "lora"}, "lora: is missing"),
        ({"recompute": "selective:mpl"}, "unknown recomputation"),
        ({"recompute": "selective:mlp+mlp"}, "names a module twice"),
        ({"optimizer": "lamb"}, "lamb"),
    ],
)
def test_what_is_not_modelled_is_refused(workload: dict[str, Any], message: str) -> None:
    with pytest.raises(SilicastError, match=message):
        trained(**workload)


def test_a_serving_engine_does_not_train() -> None:
    tree = {
        "format": 1, "task": "training", "device": "H100", "model": "Llama-3.2-1B",
        "engine": "vllm", "workload": {"seq_len": 1024, "global_batch": 1},
    }  # fmt: skip
    with pytest.raises(SilicastError, match="serves models"):
        answerer_for("training").answer(decode(tree))
