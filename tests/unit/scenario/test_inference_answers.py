"""Task inference: what is answered, and what is refused rather than guessed."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

import silicast
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.static_batch import predict_static_batch, steps_together
from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer
from silicast.scenario.answers.inference import answerer
from silicast.scenario.answers.inference.answerer import batch_deployment
from silicast.scenario.decode import Scenario, decode
from silicast.scenario.resolving.deployments import deployment_of
from silicast.scenario.run import run, run_many

CASE: dict[str, Any] = {
    "task": "inference",
    "device": "H100",
    "model": "Llama-3.1-8B",
    "workload": {"batch": 2, "input_len": 256, "output_len": 8},
}


FIGURES = (
    "output_tokens_per_s", "output_tokens_per_s_per_gpu", "energy_j", "power_w",
    "energy_per_output_token_j",
)  # fmt: skip
"""What follows from the times, on a board whose power is modelled."""


def answered(**fields: Any) -> Answer:
    return run(decode({**CASE, **fields}))


def refused(**fields: Any) -> SilicastError:
    with pytest.raises(SilicastError) as caught:
        answered(**fields)
    return caught.value


def test_the_metrics_are_the_contracts() -> None:
    result = answered()
    times = ["prefill_ms", "decode_step_ms", "total_ms", "memory_gb"]
    assert list(result.metrics) == [*times, *FIGURES]
    assert set(result.bound) == {"prefill_ms", "decode_step_ms", "total_ms"}
    for name, limit in result.bound.items():
        assert 0 < limit <= result.metrics[name].p05
    assert result.why["exposed_ms"] == pytest.approx(result.metrics["total_ms"].estimate)


def test_parts_of_the_reasons_add_up() -> None:
    def check(node: dict[str, Any]) -> None:
        if "parts" in node:
            total = sum(part["exposed_ms"] for part in node["parts"])
            assert total == pytest.approx(node["exposed_ms"], rel=1e-9)
            for part in node["parts"]:
                check(part)

    check(answered().why)


def test_the_bound_tier_answers_the_bound() -> None:
    result = answered(tier="bound")
    assert result.tier == "bound"
    assert result.metrics["total_ms"].estimate == result.bound["total_ms"]


def test_a_config_given_inline_answers_like_the_catalogs_model() -> None:
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "intermediate_size": 14336, "vocab_size": 128256, "torch_dtype": "bfloat16",
        "max_position_embeddings": 131072,
    }  # fmt: skip
    inline, named = answered(model=config), answered()
    assert inline.metrics["total_ms"] == named.metrics["total_ms"]


def test_a_changed_model_answers_for_the_change() -> None:
    half = answered(model={"base": "Llama-3.1-8B", "layers": 16})
    assert half.metrics["memory_gb"].estimate < 0.7 * answered().metrics["memory_gb"].estimate


def test_an_unmeasured_architecture_is_named() -> None:
    result = answered(device="MI300X")
    assert result.domain == "near"
    assert any("cdna3" in text for text in result.warnings)
    assert answered().warnings == []


def test_a_device_without_bf16_runs_a_bf16_checkpoint_in_fp16() -> None:
    result = answered(device="V100")
    assert any("fp16 is assumed" in text for text in result.warnings)
    assert result.metrics == answered(device="V100", precision={"weights": "fp16"}).metrics
    assert refused(device="V100", precision={"weights": "bf16"}).kind == "unsupported"


def test_a_device_without_bf16_runs_other_checkpoints_in_fp16_between_kernels() -> None:
    result = answered(device="V100", model="Llama-3.1-8B-FP8")
    assert any("no bf16: fp16 is assumed between kernels" in text for text in result.warnings)
    assert any("no fp8 units: computed in fp16" in text for text in result.warnings)


def test_a_model_that_does_not_fit_is_predicted_with_advice() -> None:
    work = {"batch": 256, "input_len": 4096, "output_len": 8}
    result = answered(device="L4", workload=work)
    assert result.metrics["total_ms"].estimate > 0
    assert any("does not fit by" in text for text in result.warnings)


def test_a_stated_link_counts() -> None:
    tp2 = {"parallel": {"tp": 2}}
    slow = {"cluster": {"intra_node": {"kind": "slow", "bandwidth_gb_per_s": 8.0}}}
    fast, limited = answered(**tp2), answered(**tp2, **slow)
    assert limited.metrics["prefill_ms"].estimate > 1.2 * fast.metrics["prefill_ms"].estimate
    pcie = answered(**tp2, cluster={"intra_node": "pcie"})
    assert pcie.metrics["prefill_ms"].estimate > fast.metrics["prefill_ms"].estimate


def test_a_slower_host_takes_longer() -> None:
    slow = answered(host={"cpu": "old", "factor": 0.2})
    assert slow.metrics["decode_step_ms"].estimate > answered().metrics["decode_step_ms"].estimate


def test_power_limits() -> None:
    current = answered()
    high = answered(limits={"power_w": 2000})
    assert high.metrics == current.metrics
    assert high.why == current.why
    assert any("limits.power_w = 2000 changes nothing" in line for line in high.warnings)
    same = answered(limits={"power_w": 700})
    assert (same.metrics, same.warnings) == (current.metrics, current.warnings)
    prompt = {"workload": {"batch": 8, "input_len": 2048, "output_len": 2}}
    low = answered(limits={"power_w": 300}, **prompt)
    assert (
        low.metrics["prefill_ms"].estimate > 1.1 * answered(**prompt).metrics["prefill_ms"].estimate
    )
    for watts in (0.5, 5, 100):
        error = refused(limits={"power_w": watts})
        assert error.field == "limits.power_w"
        assert "without work" in error.message


@pytest.mark.parametrize(("version", "named"), [("0.19", 0), ("0.19.1", 0), ("v0.19", 0),
                                                ("0.18", 1), ("0.190", 1), ("9.9", 1)])  # fmt: skip
def test_another_version_of_an_engine_is_named(version: str, named: int) -> None:
    current = answered(engine={"name": "vllm", "version": "0.19"})
    result = answered(engine={"name": "vllm", "version": version})
    assert result.metrics == current.metrics
    assert sum("engine.version" in line for line in result.warnings) == named


def test_earlier_versions_of_an_engine_run_without_what_came_later() -> None:
    current, before, first = (
        answered(engine={"name": "vllm", "version": version}) for version in ("0.19", "0.13", "0.6")
    )
    steps = [each.metrics["decode_step_ms"].estimate for each in (current, before, first)]
    assert steps == sorted(set(steps))
    assert any("without async_scheduling" in line for line in before.warnings)
    off = answered(engine={"name": "vllm", "options": {"async_scheduling": False}})
    step, unmeasured = off.metrics["decode_step_ms"], before.metrics["decode_step_ms"]
    assert step.estimate == unmeasured.estimate
    assert unmeasured.p05 < step.p05 < step.p95 < unmeasured.p95


def test_sequences_longer_than_the_model_was_made_for_are_named() -> None:
    fits = answered(workload={"batch": 1, "input_len": 131_071, "output_len": 1})
    over = answered(workload={"input_lens": [8, 131_071], "output_len": 2})
    assert not any("made for" in line for line in fits.warnings)
    assert any("made for at most 131072" in line for line in over.warnings)


def test_a_slower_clock_takes_longer() -> None:
    slow = answered(limits={"clock_mhz": 900})
    assert slow.metrics["prefill_ms"].estimate > 1.3 * answered().metrics["prefill_ms"].estimate


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {
                "speculative": {"method": "ngram", "k": 2, "acceptance": 0.5},
                "parallel": {"attention_dp": 2},
            },
            "speculative decoding",
        ),
        ({"lora": {"rank": 8}}, "low-rank adapters"),
        ({"parallel": {"cp": 2}}, "context parallelism in inference"),
        ({"parallel": {"tp": 2, "sp": True}}, "sequence parallelism"),
        ({"engine": {"name": "vllm", "options": {"kv_events": 8}}}, "options of engines"),
        ({"device": "MI350P"}, "not modelled yet"),
        (
            {"device": None, "pools": {"a": {"device": "H100"}, "b": {"device": "H20"}}},
            "several pools",
        ),
        ({"device": None, "pools": {"a": {"device": "H100", "count": 2}}}, "several pools"),
        ({"cluster": {"slow_gpus": {"fraction": 0.1, "slowdown": 2}}}, "slow devices"),
        ({"cluster": {"gpu_log_sd": 0.1}}, "unlike devices"),
    ],
)
def test_what_is_not_modelled_is_named(fields: dict[str, Any], words: str) -> None:
    error = refused(**fields)
    assert error.kind == "not_yet"
    assert words in error.message


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"parallel": {"tp": 3}}, "parallel.tp", "does not divide 32"),
        ({"parallel": {"pp": 33}}, "parallel.pp", "32 layers"),
        ({"model": "Llama-3.1-8C"}, "model", "did you mean"),
        ({"engine": "vlm"}, "engine", "did you mean"),
        ({"engine": "megatron"}, "engine", "trains models"),
        ({"device": "H1000"}, "device", "did you mean"),
        ({"model": {"base": "Llama-3.1-8B", "layer": 3}}, "model.layer", "did you mean layers"),
        ({"model": {"base": "Llama-3.1-8X"}}, "model", "did you mean"),
        ({"model": {"base": 3}}, "model.base", "expected text, found 3"),
        ({"parallel": {"tp": 2, "ep": 2}}, "parallel.ep", "no experts"),
        ({"cluster": {"inter_node": "infinibandx"}}, "cluster.inter_node", "infiniband-ndr"),
        ({"cluster": {"intra_node": "xgmi"}}, "cluster.intra_node", "nvlink"),
        ({"cluster": {"topology": "dgx-h1000"}}, "cluster.topology", "dgx-h100"),
        ({"cluster": {"intra_node": {"kind": "x"}}}, "cluster.intra_node.bandwidth", "missing"),
        ({"device": {"name": "x", "vendr": "y"}}, "device.vendr", "did you mean vendor"),
        ({"model": "none.json"}, "model", "none.json"),
        ({"device": "none.toml"}, "device", "none.toml"),
    ],
)
def test_bad_names_and_degrees_name_their_field(
    fields: dict[str, Any], field: str, words: str
) -> None:
    error = refused(**fields)
    assert error.field.startswith(field)
    assert words in str(error)


def test_experts_and_attention_have_formats_of_their_own() -> None:
    model = {"model": "Qwen3-30B-A3B", "parallel": {"tp": 2}}
    plain = answered(**model)
    experts = answered(**model, precision={"experts": "fp8"})
    whole = answered(**model, precision={"recipe": "fp8"})
    memory = [items.metrics["memory_gb"].estimate for items in (whole, experts, plain)]
    assert memory[0] < memory[1] < 0.7 * memory[2]
    assert experts.why["deployment"]["format"] == "bf16, experts fp8"
    attention = answered(precision={"attention": "fp8"})
    assert attention.why["deployment"]["format"] == "bf16, attention fp8"
    refusal = refused(precision={"experts": "fp9"})
    assert refusal.field == "precision.experts"


def test_a_decoder_behind_an_encoder() -> None:
    """The prefill is the encoder's pass and the first token; steps grow with what is generated."""
    short, long = (
        answered(model="Flan-T5-XL", workload={"batch": 8, "input_len": n, "output_len": 32})
        for n in (128, 1024)
    )
    for items in (short, long):
        times = {"prefill_ms", "decode_step_ms", "total_ms", "memory_gb"}
        assert set(items.metrics) == {*times, *FIGURES}
        for name, bound in items.bound.items():
            assert bound <= items.metrics[name].p05
    assert 3 * short.metrics["prefill_ms"].estimate < long.metrics["prefill_ms"].estimate
    steps = [x.metrics["decode_step_ms"].estimate for x in (short, long)]
    assert steps[0] < steps[1] < 1.5 * steps[0]  # cross-attention sees more


def test_an_encoder_runs_once_and_generates_nothing() -> None:
    result = answered(model="bert_large", workload={"batch": 8, "input_len": 512, "output_len": 1})
    assert "decode_step_ms" not in result.metrics
    error = refused(model="bert_large", workload={"batch": 8, "input_len": 512, "output_len": 2})
    assert error.field == "workload.output_len"


@pytest.mark.parametrize(("cache", "said"), [("int8", True), ("nvfp4", True), ("fp8", False)])
def test_a_cache_in_a_format_nobody_measured_is_said(cache: str, said: bool) -> None:
    result = answered(precision={"kv_cache": cache})
    assert (result.domain == "near") is said
    assert any(f"cache in {cache}" in line for line in result.warnings) is said


def test_a_quantised_format_is_fp16_between_kernels_where_there_is_no_bf16() -> None:
    result = answered(device="V100", precision={"recipe": "fp8"})
    assert any("no bf16: fp16 is assumed between kernels" in text for text in result.warnings)
    assert "no bf16" in refused(device="V100", precision={"recipe": "bf16"}).message


@pytest.mark.parametrize(("tokens", "domain"), [(1024, "in"), (40_000, "near"), (1_000_000, "out")])
def test_the_domain_knows_how_long_measured_sequences_are(tokens: int, domain: str) -> None:
    work = {"batch": 1, "input_len": tokens, "output_len": 2}
    result = answered(workload=work)
    assert result.domain == domain
    remarks = [text for text in result.warnings if "beyond all that were measured" in text]
    assert bool(remarks) == (domain != "in")
    assert all("attention" in text or "gemm" in text for text in remarks)


def test_batches_of_the_same_prompts_share_their_prefill() -> None:
    deployment, _, _ = batch_deployment(decode(CASE))
    work = [([256] * 2, 8), ([256] * 2, 16), ([128] * 2, 8)]
    steps = steps_together(deployment, work)
    assert steps[0][0] is steps[1][0]
    assert steps[0][0] is not steps[2][0]
    for (lengths, output), known in zip(work, steps, strict=True):
        alone = predict_static_batch(deployment, lengths, output)
        static_batch = predict_static_batch(deployment, lengths, output, steps=known)
        assert static_batch.total.part == alone.total.part
        assert static_batch.prefill.error == alone.prefill.error


def test_batches_that_hold_a_clock_each_are_those_of_single_runs() -> None:
    deployment, _, _ = batch_deployment(decode(CASE | {"limits": {"power_w": 350}}))
    work = [([1024] * 8, 4), ([3000] * 16, 2), ([700, 90], 3), ([2048] * 32, 1)]
    steps = steps_together(deployment, work)
    clocks = set()
    for (lengths, output), known in zip(work, steps, strict=True):
        alone = predict_static_batch(deployment, lengths, output)
        together = predict_static_batch(deployment, lengths, output, steps=known)
        clocks.add(together.clock_hz[0])
        assert together.clock_hz == alone.clock_hz
        assert together.total.part == alone.total.part
        assert together.total.error == alone.total.error
        assert dict(together.total.narrowed) == dict(alone.total.narrowed)
        assert together.kernels_j() == alone.kernels_j()
        assert together.tier_seconds() == alone.tier_seconds()
    assert len(clocks) > 2
    assert max(clocks) < deployment.device.clocks.boost_hz


def test_a_deployment_of_a_batch_is_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = []

    def counted(scenario: Scenario, **fields: Any) -> tuple[Deployment, list[str]]:
        resolved.append(scenario.raw.precision)
        return deployment_of(scenario, **fields)

    monkeypatch.setattr(answerer, "deployment_of", counted)
    small = {"workload": {"batch": 2, "input_len": 64, "output_len": 2}}
    trees = [CASE, CASE | small | {"id": 7}, CASE | {"precision": {"recipe": "fp8"}}, CASE]
    items = run_many("inference", [decode(tree) for tree in trees])
    assert len(resolved) == 2
    assert items == [run_many("inference", [decode(tree)])[0] for tree in trees]
    assert items[0] == items[3]
    assert items[0] != items[2]


def behind(cached: int, new: int, **fields: Any) -> Answer:
    lengths = {"batch": 2, "input_len": new, "output_len": 8, "cached_len": cached}
    return answered(workload=lengths, **fields)


def test_nothing_cached_is_the_usual_answer() -> None:
    assert behind(0, 256).metrics == answered().metrics


def test_tokens_are_decoded_behind_all_that_is_cached_whoever_computed_it() -> None:
    whole, behind_some = behind(0, 4352), behind(4096, 256)
    step = behind_some.metrics["decode_step_ms"].estimate
    assert step == pytest.approx(whole.metrics["decode_step_ms"].estimate, rel=1e-9)
    held = [reply.why["memory_gb"]["kv_cache"] for reply in (whole, behind_some)]
    assert held[0] == held[1] == pytest.approx(2 * (4352 + 16) * 131_072 / 1e9)


def test_a_prompt_behind_cached_tokens_computes_itself_alone_and_reads_them() -> None:
    """Products are those of the prompt; attention's pairs grow with what is cached."""
    times = [behind(cached, 1024).metrics["prefill_ms"].estimate for cached in (0, 8192, 16384)]
    assert times[0] < times[1] < times[2] < behind(0, 17408).metrics["prefill_ms"].estimate / 4
    more = [late - early for early, late in pairwise(times)]
    assert more[1] == pytest.approx(more[0], rel=0.15)

    def products(reply: Answer) -> float:
        prefill = next(part for part in reply.why["parts"] if part["name"] == "prefill")
        layers = next(part for part in prefill["parts"] if "qkv" in str(part))
        return float(sum(p["exposed_ms"] for p in layers["parts"] if "up" in p["name"]))

    assert products(behind(8192, 1024)) == pytest.approx(
        products(behind(0, 1024)), rel=0.03
    )  # at the clock that each mix holds


def test_a_compiled_deployment_knows_cached_tokens_too() -> None:
    wanted = behind(8192, 1024).metrics
    plain = {name: CASE[name] for name in ("device", "model")}
    batch = silicast.deployment(**plain).batch(
        batch=2, input_len=1024, output_len=8, cached_len=8192
    )
    for name in ("prefill_ms", "decode_step_ms", "memory_gb"):
        assert batch[name].estimate == pytest.approx(wanted[name].estimate, rel=0.01)


@pytest.mark.parametrize("fields", [{"engine": "torch-eager"}, {"model": "T5-base"}])
def test_what_keeps_no_cache_is_asked_for_none(fields: dict[str, Any]) -> None:
    with pytest.raises(SilicastError) as caught:
        behind(100, 100, **fields)
    assert caught.value.field == "workload.cached_len"


SLOWER = "kernels of releases before 0.4 were not measured: they are taken to need {} times as long"


@pytest.mark.parametrize(
    ("device", "version", "factor"),
    [
        ("H100", "0.3.3", "1.38"),
        ("A100", "0.2.7", "1.18"),
        ("L40S", "0.3.3", ""),
        ("H100", "0.4.3", ""),
        ("H100", "0.5.5", ""),
    ],
)
def test_releases_before_0_4_are_taken_as_slower_and_say_so(
    device: str, version: str, factor: str
) -> None:
    result = answered(device=device, engine={"name": "vllm", "version": version})
    lines = [line for line in result.warnings if "times as long as measured ones" in line]
    assert len(lines) == bool(factor)
    if factor:
        assert lines[0].startswith(SLOWER.format(factor))
        assert result.domain == "near"
    if version in ("0.4.3", "0.5.5"):
        assert result.domain == "in"


def test_paged_attention_is_named_on_devices_that_run_it_alone() -> None:
    engine = {"name": "vllm", "version": "0.4.2"}
    for device, named in (("H100", True), ("MI300X", True), ("TPU v5e", False), ("Gaudi 3", False)):
        words = " ".join(answered(device=device, engine=engine).warnings)
        assert ("vllm_paged" in words) == named, device
        assert "kernels.slower" not in words
        assert "on default" not in words
