"""Passes of whole models: their halves, their parts, what trains."""

import pytest

from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.framework_pass import predict_framework_pass
from silicast.composition.passes.program import ProgramPass
from silicast.composition.step.stage_graph import StageNode
from silicast.hardware.catalog import find_device
from silicast.hardware.host import Host
from silicast.workload.frameworks.eager import Framework
from silicast.workload.models.counting import parameters
from silicast.workload.models.lookup import find_model
from silicast.workload.models.precision import Precision
from silicast.workload.training.backward import Training
from silicast.workload.transformers.plan import Plan

TRAINING = Framework(training=Training())


def asked(
    model: str = "GPT-2",
    framework: Framework = TRAINING,
    *,
    device: str = "A100-SXM-80GB",
    weights: str = "bf16",
    plan: Plan = Plan(),
    host: Host = Host(),
    batch: int = 4,
) -> ProgramPass:
    deployment = Deployment.from_model(
        model=find_model(model),
        device=find_device(device),
        engine=find_engine("torch-compile" if framework.compiled else "torch-eager"),
        plan=plan,
        host=host,
        precision=Precision.from_formats(recipe=weights),
    )
    return predict_framework_pass(deployment, batch, 512, framework)


def seconds(program_pass: ProgramPass) -> tuple[float, float, float]:
    three = (
        program_pass.directions["forward"],
        program_pass.directions["backward"],
        program_pass.total,
    )
    first, second, third = (one.latency_s.estimate for one in three)
    return first, second, third


def moved_bytes(node: StageNode) -> int:
    size = node.op.dim("bytes")
    assert isinstance(size, int)
    return node.count * size


def test_halves_add_up() -> None:
    result = asked()
    assert list(result.directions) == ["forward", "backward"]
    whole = result.total.part.exposed_ps
    halves = sum(half.part.exposed_ps for half in result.directions.values())
    between = find_engine("torch-eager").host.step_us * 1e6
    assert whole == pytest.approx(halves + between, abs=2)
    assert sum(child.exposed_ps for child in result.total.part.children) == whole


def test_inference_has_one_half() -> None:
    assert list(asked(framework=Framework()).directions) == ["forward"]


@pytest.mark.parametrize("device", ["A100-PCIE-40GB", "H100-SXM-80GB", "MI210"])
@pytest.mark.parametrize("weights", ["fp32", "bf16"])
def test_backward_takes_about_twice_the_forward(device: str, weights: str) -> None:
    forward, backward, _ = seconds(asked("gpt2_large", device=device, weights=weights))
    assert 1.3 < backward / forward < 2.8


@pytest.mark.parametrize("weights", ["fp32", "tf32", "bf16", "fp16", "fp8"])
def test_every_recipe_trains(weights: str) -> None:
    forward, backward, total = seconds(asked("Llama-3.1-8B", device="H100", weights=weights))
    assert 0 < forward < backward < total


def test_recomputation_costs_time() -> None:
    totals = [
        seconds(asked("gpt2_large", Framework(training=Training(recompute=kind))))[2]
        for kind in ("none", "selective", "full")
    ]
    assert totals == sorted(totals)
    assert totals[2] > 1.1 * totals[0]


def test_a_compiler_saves_time() -> None:
    eager = seconds(asked("gpt2_large"))
    compiled = seconds(asked("gpt2_large", Framework(compiled=True, training=Training())))
    assert all(less < more for less, more in zip(compiled, eager, strict=True))


def test_ranks_share_a_batch_and_sum_their_gradients() -> None:
    one = asked("gpt2_large", batch=1, weights="fp32")
    four = asked("gpt2_large", batch=4, plan=Plan(dp=4), weights="fp32")
    assert seconds(one)[2] < seconds(four)[2] < 1.2 * seconds(one)[2]
    assert seconds(one)[0] == seconds(four)[0], "forward has nothing to sum"
    nodes = four.model.graph.nodes
    sums = [i for i, node in enumerate(nodes) if node.name.startswith("gradient_sum")]
    alone = sum(four.times.nodes.time_s[i, 0] * nodes[i].count for i in sums)
    assert 0 < seconds(four)[1] - seconds(one)[1] < 0.5 * alone, "backward hides most of it"
    assert four.total.part.hidden_ps - one.total.part.hidden_ps > 0.5e12 * alone
    placed = [nodes[i] for i in sums]
    assert {node.direction for node in placed} == {"backward"}
    assert {dict(node.op.dims)["gpus"] for node in placed} == {4}
    assert not any(node.name.startswith("gradient_sum") for node in one.model.graph.nodes)
    assert sum(map(moved_bytes, placed)) == 4 * parameters(find_model("gpt2_large"))


def test_a_cut_model_sums_over_its_ranks_both_ways() -> None:
    result = asked("gpt2_large", plan=Plan(tp=4))
    blocks = {child.name: child for half in result.total.part.children for child in half.children}
    for name in ("layer", "layer_backward"):
        assert any("all_reduce" in leaf.name for leaf in blocks[name].children)


def test_a_slow_host_is_waited_for() -> None:
    quick = asked(batch=1)
    slow = asked(batch=1, host=Host(factor=0.1))
    assert seconds(slow)[2] > 2 * seconds(quick)[2]


def test_experts_in_a_loop_wait_for_the_host() -> None:
    loop = asked("switchxl4", Framework(), weights="fp32", batch=1)
    host = next(child for child in loop.total.part.children if child.name == "host")
    assert host.exposed_ps > 24 * 4 * 20e6, "four experts in 24 layers, a trip each at least"
