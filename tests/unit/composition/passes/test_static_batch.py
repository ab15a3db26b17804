"""Static batches: parts, bounds, consistency of steps, memory by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.composition.engines.engine import FusionTable, engine_index, find_engine
from silicast.composition.memory.memory import static_batch_memory
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.static_batch import StaticBatch, predict_static_batch
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import StepModel
from silicast.core.errors import SilicastError
from silicast.core.prediction import Part
from silicast.hardware.catalog import find_device
from silicast.hardware.host import Host
from silicast.kernels.registry import implementation_for
from silicast.workload.models.lookup import find_model
from silicast.workload.transformers.plan import Plan
from tests.sampling import examples


def deployment(
    model: str = "Llama-3.1-8B", device: str = "H100", engine: str = "sglang", **plan: Any
) -> Deployment:
    return Deployment.from_model(
        find_model(model), find_device(device), find_engine(engine), plan=Plan(**plan)
    )


def on(**machine: Any) -> Deployment:
    """The usual deployment on a machine of which some fields differ."""
    usual = deployment()
    return replace(usual, machine=replace(usual.machine, **machine))


def leaves(part: Part) -> list[Part]:
    return [leaf for child in part.children for leaf in leaves(child)] or [part]


@pytest.fixture(scope="module")
def batch() -> StaticBatch:
    return predict_static_batch(deployment(), [1024] * 8, 128)


def test_total_is_prefill_plus_all_decode_steps(batch: StaticBatch) -> None:
    prefill, decode = batch.total.part.children
    assert prefill.exposed_ps == batch.prefill.part.exposed_ps
    assert batch.total.part.exposed_ps == prefill.exposed_ps + decode.exposed_ps
    assert batch.decode_step is not None
    assert decode.exposed_ps == pytest.approx(127 * batch.decode_step.part.exposed_ps, rel=0.01)


def test_every_kernel_of_a_layer_is_in_the_tree(batch: StaticBatch) -> None:
    assert batch.decode_step is not None
    names = {leaf.name for leaf in leaves(batch.decode_step.part)}
    assert {"qkv", "o", "gate_up", "down", "rope", "kv_copy", "attention_decode"} <= names
    assert {"embedding", "lm_head", "sampling", "final_norm", "host"} <= names
    assert "attention_prefill" not in names


def test_no_part_is_below_its_bound(batch: StaticBatch) -> None:
    for leaf in leaves(batch.total.part):
        assert leaf.exposed_ps >= leaf.bound_ps >= 0


def test_decode_cannot_beat_reading_the_weights(batch: StaticBatch) -> None:
    assert batch.decode_step is not None
    seconds = 2 * 7.5e9 / find_device("H100").dram.bandwidth_bytes_per_s
    assert batch.decode_step.seconds > seconds


def test_intervals_hold_estimate_and_bound(batch: StaticBatch) -> None:
    for prediction in (batch.prefill, batch.total):
        latency = prediction.latency_s
        assert prediction.bound_seconds <= latency.p05 <= latency.estimate <= latency.p95


def test_one_output_token_is_a_prefill_alone() -> None:
    alone = predict_static_batch(deployment(), [512], 1)
    assert alone.decode_step is None
    assert alone.total.part.exposed_ps == alone.prefill.part.exposed_ps


def test_memory_of_llama_8b_by_hand() -> None:
    memory = static_batch_memory(deployment(), [1024] * 8, 128)
    assert memory.weights == 8_030_261_248 * 2
    assert memory.kv_cache == 8 * (1024 + 128) * 131_072
    assert memory.excess == 0


def test_what_does_not_fit_is_predicted_and_said() -> None:
    static_batch = predict_static_batch(deployment("Llama-3.1-70B"), [1024] * 4, 16)
    assert static_batch.memory.excess > 0
    assert any(
        "does not fit by" in line and "tp = " in line for line in static_batch.total.warnings
    )
    assert static_batch.total.seconds > 0


def test_a_batch_that_no_degree_makes_fit_is_still_predicted() -> None:
    static_batch = predict_static_batch(deployment(), [1024] * 10_000, 8)
    assert any(
        "does not fit by" in line and "a batch of" in line for line in static_batch.total.warnings
    )


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_more_devices_make_a_prefill_faster_but_not_superlinearly(tp: int) -> None:
    one = predict_static_batch(deployment("Llama-3.1-70B"), [2048] * 8, 1).prefill
    many = predict_static_batch(deployment("Llama-3.1-70B", tp=tp), [2048] * 8, 1).prefill
    assert one.seconds / tp <= many.seconds * 1.05
    assert many.seconds < one.seconds


def test_a_plan_that_does_not_divide_the_model_is_refused() -> None:
    with pytest.raises(SilicastError, match=r"parallel\.tp"):
        predict_static_batch(deployment(tp=7), [128], 2)
    with pytest.raises(SilicastError, match=r"parallel\.pp"):
        predict_static_batch(deployment(pp=33), [128], 2)


def test_a_slower_host_takes_longer_and_changes_nothing_else() -> None:
    usual = predict_static_batch(deployment(), [128] * 4, 32)
    slow = predict_static_batch(on(host=Host("slow", 0.5)), [128] * 4, 32)
    assert usual.decode_step is not None
    assert slow.decode_step is not None
    parts = [
        {leaf.name: leaf.exposed_ps for leaf in leaves(batch.decode_step.part)}
        for batch in (usual, slow)
        if batch.decode_step
    ]
    assert parts[1].pop("host") == pytest.approx(2 * parts[0].pop("host"), rel=1e-9)
    assert parts[0] == parts[1]


def test_a_power_limit_slows_prefill_down() -> None:
    usual = predict_static_batch(deployment(), [4096] * 8, 1)
    capped = predict_static_batch(on(power_w=350.0), [4096] * 8, 1)
    assert capped.clock_hz[0] < usual.clock_hz[0]
    assert capped.prefill.seconds > usual.prefill.seconds
    assert capped.prefill.bound_seconds == usual.prefill.bound_seconds


def test_a_clock_limit_is_kept() -> None:
    capped = predict_static_batch(on(clock_hz=1.0e9), [4096] * 8, 8)
    assert max(capped.clock_hz) <= 1.0e9


@examples(15)
@given(
    lengths=st.lists(st.integers(1, 4000), min_size=1, max_size=12),
    steps=st.lists(st.integers(1, 500), min_size=1, max_size=6),
)
def test_a_states_result_is_the_same_alone_and_in_any_batch(
    lengths: list[int], steps: list[int]
) -> None:
    model = StepModel.from_deployment(deployment(tp=2))
    together = model.steps(BatchStates.decode(lengths, np.array(steps)))
    for index, step in enumerate(steps):
        alone = model.steps(BatchStates.decode(lengths, np.array([step])))
        assert alone.total_s[0] == together.total_s[index]
        assert (alone.nodes.bound_s[:, 0] == together.nodes.bound_s[:, index]).all()
        assert (alone.exposed_s[:, 0] == together.exposed_s[:, index]).all()


def test_mixed_states_keep_prefill_and_decode_apart() -> None:
    model = StepModel.from_deployment(deployment())
    both = BatchStates.prefill([700]).then(BatchStates.decode([900, 30], np.array([5])))
    times = model.steps(both)
    assert times.total_s[0] == model.steps(BatchStates.prefill([700])).total_s[0]
    decode = BatchStates.decode([900, 30], np.array([5]))
    assert times.total_s[1] == model.steps(decode).total_s[0]


def test_every_engine_of_the_catalog_has_sources() -> None:
    for name in engine_index().names:
        engine = find_engine(name)
        assert {"host", "launch", "memory"} <= set(engine.sources), name
        for table in ("libraries", "formats", "calls", "calls_on", "names"):
            told = any(path.startswith(f"kernels.{table}") for path in engine.sources)
            assert not getattr(engine.kernels, table) or told, name
        current = tuple(path.split(".")[0] for path in engine.sources)
        assert engine.fusion == FusionTable() or "fusion" in current, name
        assert not engine.overlap or "overlap" in current, name
        assert all(len(text) > 10 for text in engine.sources.values()), name


def test_groups_attend_to_their_own_sequences() -> None:
    lengths = [1024, 100, 900, 50]
    one = deployment("Qwen3-30B-A3B", tp=2, ep=2)
    two = deployment("Qwen3-30B-A3B", attention_dp=2, ep=2)
    assert static_batch_memory(two, lengths, 10) == static_batch_memory(two, [1024, 1, 900], 10)
    halves, groups = (predict_static_batch(d, lengths, 10) for d in (one, two))
    assert groups.prefill.part.bound_ps > 0
    names = {leaf.name for leaf in leaves(groups.prefill.part)}
    assert {"experts_all_gather", "experts_reduce_scatter"} <= names
    assert {"o_all_reduce", "experts_all_reduce"} & names == set()
    assert "o_all_reduce" in {leaf.name for leaf in leaves(halves.prefill.part)}


def test_experts_beyond_a_node_get_their_tokens_one_by_one() -> None:
    names = {
        ranks: {leaf.name for leaf in leaves(items.prefill.part)}
        for ranks in (8, 16)
        for items in (
            predict_static_batch(
                deployment("Qwen3-30B-A3B", attention_dp=ranks, ep=ranks), [256] * 16, 3
            ),
        )
    }
    assert {"experts_dispatch", "experts_combine"} <= names[16]
    assert "experts_all_gather" in names[8]
    assert "experts_all_gather" not in names[16]


def test_more_ranks_than_choices_dispatch_inside_a_domain_too() -> None:
    def dispatches(**plan: Any) -> bool:
        result = deployment("Qwen3-30B-A3B", device="GB200", **plan)
        return result.policy.dispatches(result.plan)

    even = [dispatches(attention_dp=ranks, ep=ranks) for ranks in (8, 16)]
    assert even == [False, True], "a token has eight choices: a gather moves no more"
    assert not dispatches(tp=2, attention_dp=16, ep=32), "ranks of a group hold the same tokens"
    held = [
        static_batch_memory(deployment("Qwen3-30B-A3B", device=device, attention_dp=16, ep=16),
                            [512] * 64, 8).activations
        for device in ("GB200", "H100")
    ]  # fmt: skip
    assert held[0] == held[1]


@pytest.mark.parametrize(
    ("device", "engine", "library", "dtype"),
    [
        ("B200", "trtllm", "trtllm", "w4a8_mxfp4_mxfp8"),
        ("B200", "vllm", "vllm", "w4a8_mxfp4_mxfp8"),
        ("H100", "trtllm", "trtllm", "w4a16_mxfp4"),
        ("H100", "torch-eager", "", "w4a16_mxfp4"),
    ],
)
def test_experts_run_as_the_engine_runs_them(
    device: str, engine: str, library: str, dtype: str
) -> None:
    nodes = StepModel.from_deployment(deployment("gpt-oss-20b", device, engine)).graph.nodes
    variants = {node.op.variant for node in nodes if node.op.family == "moe"}
    assert {(v.library, v.dtype, v.cache) for v in variants} == {(library, dtype, "cold")}


def test_experts_make_a_step_of_every_size() -> None:
    static_batch = predict_static_batch(deployment("Mixtral-8x7B", tp=4, ep=2), [64, 9], 5)
    parts = {leaf.name: leaf for leaf in leaves(static_batch.total.part)}
    assert parts["experts"].exposed_ps >= parts["experts"].bound_ps > 0
    assert static_batch.decode_step is not None
    assert static_batch.decode_step.part.exposed_ps < static_batch.prefill.part.exposed_ps


def test_latent_attention_is_answered_or_named() -> None:
    families = ("mla_prefill", "mla_decode")
    wanted = deployment("DeepSeek-V2-Lite")
    if all(implementation_for(family, "simt") for family in families):
        static_batch = predict_static_batch(wanted, [64], 5)
        assert static_batch.total.part.exposed_ps >= static_batch.total.part.bound_ps > 0
        return
    with pytest.raises(SilicastError) as caught:
        predict_static_batch(wanted, [64], 5)
    assert caught.value.kind == "not_yet"
    assert "mla_" in caught.value.message
