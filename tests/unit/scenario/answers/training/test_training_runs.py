"""Training scenarios carried out: what plans and words of a user come to."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.distributed.pipeline.chunk import chunk_graph
from silicast.scenario.answer import Answer
from silicast.scenario.answers.plan.answerer import best_plan
from silicast.scenario.answers.training.answerer import answer_of
from silicast.scenario.answers.training.training_runs import run_of
from silicast.scenario.decode import decode
from silicast.workload.models.counting import attention_flops, op_flops


def answered(model: str = "Llama-3.2-1B", device: str = "h100", **more: Any) -> Answer:
    work = {"seq_len": 2048, "global_batch": 8, "recompute": "none"} | more.pop("workload", {})
    scenario = decode(
        {
            "format": 1,
            "task": "training",
            "model": model,
            "device": device,
            "workload": work,
            **more,
        }
    )
    return answer_of(scenario, run_of(scenario))


@pytest.mark.parametrize("schedule", ["1f1b", "zbv", "dualpipe", "interleaved"])
def test_a_pipeline_of_one_stage_has_no_schedule(schedule: str) -> None:
    wanted = answered(parallel={"dp": 2})
    assert answered(parallel={"dp": 2, "schedule": schedule}).metrics == wanted.metrics


def test_adapters_that_stand_beside_nothing_are_refused() -> None:
    with pytest.raises(SilicastError, match="has a product that adapters") as refused:
        answered(
            "OLMoE-1B-7B", workload={"task": "lora"}, lora={"rank": 8, "targets": ["gate_proj"]}
        )
    assert refused.value.field == "lora.targets"


@pytest.mark.parametrize(
    ("model", "device"), [("Nemotron-H-56B", "rtx-4090"), ("GPT-J-6B", "xeon-8480")]
)
def test_no_more_than_the_peak_is_used(model: str, device: str) -> None:
    mfu = answered(model, device).metrics["mfu"]
    assert mfu.p05 <= mfu.estimate <= mfu.p95 <= 1.0


def searched(**more: Any) -> dict[str, Any]:
    work = {"seq_len": 512, "global_batch": 64}
    return {
        "format": 1, "task": "plan", "model": "BERT-large", "device": "a100",
        "cluster": {"gpus": 4}, "workload": {"objective": "step_time", "training": work}, **more,
    }  # fmt: skip


def test_the_best_plan_asked_for_alone_takes_what_the_search_says() -> None:
    best, result = best_plan(decode(searched()), finalists=3)
    first = result.finalists[0]
    assert first.micro_batches == 1  # nothing is accumulated, unlike in the plan asked for
    work = {"seq_len": 512, "global_batch": 64, "micro_batch": first.rank.micro_batch}
    degrees = {name: getattr(first.plan, name) for name in ("tp", "pp", "dp", "zero")}
    assert answered("BERT-large", "a100", workload=work, parallel=degrees).metrics == best.metrics


@pytest.mark.parametrize("stated", [{"schedule": "zb_h1"}, {"shard": 2}])
def test_a_search_does_not_pass_over_what_is_stated(stated: dict[str, Any]) -> None:
    with pytest.raises(SilicastError, match="not yet: a search with a stated"):
        best_plan(decode(searched(parallel=stated)))


def test_a_search_does_not_take_some_layers_for_all() -> None:
    """``full:2``, every second layer, which task training answers."""
    tree = searched()
    tree["workload"]["training"]["recompute"] = "full:2"
    with pytest.raises(SilicastError, match="not yet: a search with a stated recompute of some"):
        best_plan(decode(tree))


@pytest.mark.parametrize(
    ("engine", "interleaved", "context"),
    [("deepspeed", False, "all_to_all"), ("megatron", True, "ring")],
)
def test_a_search_offers_what_the_framework_has(
    engine: str, interleaved: bool, context: str
) -> None:
    """DeepSpeed's pipeline holds one chunk a rank, and its context ranks exchange heads."""
    scenario = searched(engine=engine, cluster={"gpus": 8}, parallel={"pp": 4, "cp": 2})
    scenario["workload"]["training"] |= {"seq_len": 4096, "global_batch": 4, "recompute": "none"}
    _, result = best_plan(decode(scenario), finalists=9)
    assert any(each.plan.virtual_stages > 1 for each in result.finalists) == interleaved
    assert {each.plan.etp for each in result.finalists} == {1}  # its model has no experts
    assert {each.plan.context for each in result.finalists} == {context}
    assert {each.rank.plan.context for each in result.finalists} == {context}


@pytest.mark.parametrize(
    ("parallel", "options", "field"),
    [
        ({"pp": 2, "virtual_stages": 2}, {}, "parallel.virtual_stages"),
        ({"pp": 2, "schedule": "zb_h1"}, {}, "parallel.schedule"),
        ({"cp": 2}, {"context_exchange": "ring"}, "engine.options.context_exchange"),
    ],
)
def test_what_a_framework_does_not_have_is_refused(
    parallel: dict[str, Any], options: dict[str, Any], field: str
) -> None:
    engine = {"name": "deepspeed", "options": options}
    with pytest.raises(SilicastError, match="deepspeed has no") as refused:
        answered(parallel=parallel, engine=engine)
    assert refused.value.field == field
    answered(parallel=parallel, engine={**engine, "name": "megatron"})


def test_copies_that_share_nothing_have_no_shard_group() -> None:
    wanted = answered(parallel={"dp": 8, "zero": 0})
    assert answered(parallel={"dp": 8, "zero": 0, "shard": 4}).metrics == wanted.metrics


def test_energy_of_a_step_of_which_some_layers_run_again_is_between() -> None:
    """In proportion, as its time is; the answer says the share."""
    parallel = {"dp": 8, "zero": 1}
    table = {
        how: answered(
            "Llama-3.1-8B", parallel=parallel,
            workload={"seq_len": 4096, "global_batch": 64, "recompute": how},
        )
        for how in ("none", None, "full")
    }  # fmt: skip
    share = table[None].why["recompute_share"]
    assert 0.0 < share < 1.0
    assert "recompute_share" not in table["full"].why
    for name in ("step_time_s", "energy_j"):
        remaining, mixed, again = (each.metrics[name].estimate for each in table.values())
        assert mixed == pytest.approx(remaining + share * (again - remaining), rel=2e-3), name


@pytest.mark.parametrize("targets", [["q_proj", "v_proj"], ["o_proj", "gate_proj", "down_proj"]])
def test_frozen_weights_have_no_gradients_in_the_models_operations(targets: list[str]) -> None:
    """All products of the graph that runs, forward and backward, and the scores of attention."""
    result = run_of(
        decode({
            "format": 1, "task": "training", "model": "Llama-3.2-1B", "device": "h100",
            "parallel": {"dp": 2}, "lora": {"rank": 16, "targets": targets},
            "workload": {
                "task": "lora", "seq_len": 2048, "global_batch": 8, "recompute": "none",
            },
        })
    )  # fmt: skip
    model = result.rank.deployment.model
    graph = chunk_graph(result.rank, 0, model.layers)
    products = sum(
        op_flops(node.op) * block.count
        for block in graph.blocks
        for node in block.nodes
        if node.op.family == "gemm"
    )
    scores = 3 * attention_flops(model, [(2048, 2048)])
    assert result.model_flops == 8 * (products + scores)


def test_an_interleaved_schedule_has_several_chunks_a_rank() -> None:
    """As many as share the layers, and the answer says so; never silently those of 1f1b."""
    parallel = {"pp": 4, "schedule": "interleaved"}
    left_out = answered(parallel=parallel)
    stated = answered(parallel={**parallel, "virtual_stages": 4})
    assert left_out.metrics == stated.metrics
    assert any("parallel.virtual_stages = 4" in warning for warning in left_out.warnings)
    assert left_out.metrics != answered(parallel={"pp": 4}).metrics
    with pytest.raises(SilicastError, match="16 layers are shared evenly by no multiple") as no:
        answered(parallel={"pp": 5, "schedule": "interleaved"}, workload={"global_batch": 10})
    assert no.value.field == "parallel.virtual_stages"


@pytest.mark.parametrize("recipe", [None, "bf16"])
def test_no_training_inherits_a_format_of_inference(recipe: str | None) -> None:
    """4-bit experts of a checkpoint are not trained unless somebody asks for it."""
    stated: dict[str, Any] = {} if recipe is None else {"precision": {"recipe": recipe}}
    result = answered("gpt-oss-20b", parallel={"ep": 8, "dp": 8}, **stated)
    assert result.why["deployment"]["format"] == "bf16"
    assert any(each.startswith("trained in bf16;") for each in result.warnings) == (recipe is None)


def test_mfu_of_eight_bits_stands_beside_the_one_that_people_quote() -> None:
    result = answered(precision={"recipe": "fp8"})
    fp8, bf16 = (result.metrics[name].estimate for name in ("mfu", "mfu_16_bit"))
    assert bf16 == pytest.approx(2.0 * fp8)
    peak = result.why["peak_tflops"]["bf16"]
    assert bf16 == pytest.approx(result.metrics["model_tflops_per_gpu"].estimate / peak)
    assert "mfu_16_bit" not in answered().metrics
    without = answered(precision={"recipe": "fp8"}, device="A100")  # computes it in bf16
    assert without.why["peak_tflops"] == {"bf16": pytest.approx(312.0, rel=1e-3)}


def test_a_search_says_nothing_of_degrees_that_it_chooses() -> None:
    plain = searched(model="Llama-3.2-1B", cluster={"gpus": 8})
    plain["workload"]["training"] |= {"global_batch": 32}
    result, _ = best_plan(decode(plain), finalists=2)
    assert not any("where nothing is stated" in each for each in result.warnings)


BUBBLE = {"seq_len": 1024, "global_batch": 16, "micro_batch": 2}


def with_bubble(**fields: Any) -> Answer:
    work = {**BUBBLE, **fields.pop("workload", {})}
    return answered("Qwen3-4B", parallel={"pp": 4, **fields}, workload=work)


@pytest.mark.parametrize(
    "remedy", ["virtual_stages = 9", "micro_batch = 1", "global_batch = 32", "pp = 2"]
)
def test_what_is_said_to_mend_a_bubble_mends_it(remedy: str) -> None:
    plain = with_bubble(dp=2)
    (warning,) = (each for each in plain.warnings if "bubble takes" in each)
    assert remedy in warning
    name, value = remedy.split(" = ")
    table: dict[str, Any] = {name: int(value)}
    degrees = {"dp": 4, **table} if name == "pp" else {"dp": 2}
    degrees |= table if name == "virtual_stages" else {}
    mended = with_bubble(**degrees, workload=table if name.endswith("batch") else {})
    rates = [each.metrics["tokens_per_s_per_gpu"].estimate for each in (plain, mended)]
    assert rates[0] < rates[1]


def test_an_exchange_of_experts_is_no_bubble() -> None:
    """The bubble is that of 1F1B, (p - 1) / (m + p - 1), however long ranks exchange."""
    shares = [
        answered(
            "DeepSeek-V3",
            "h800",
            parallel={"pp": 16, "dp": 64, "ep": ep},
            workload={"seq_len": 4096, "global_batch": 64 * 90},
        ).why["pipeline_bubble"]
        for ep in (8, 64)
    ]
    assert shares == pytest.approx([15.0 / 105.0] * 2, rel=0.15)


def test_a_small_bubble_is_not_said() -> None:
    many = {"seq_len": 2048, "global_batch": 128}
    result = answered("Llama-3.1-8B", parallel={"pp": 2}, workload=many)
    assert not any("bubble takes" in warning for warning in result.warnings)
