"""Memory of a server that starts, against sizes by hand and what engines printed."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.composition.engines.engine import find_engine
from silicast.composition.engines.engine_options import with_options
from silicast.composition.engines.engine_versions import as_of
from silicast.composition.passes.deployment import Deployment
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.serving.capacity.printed_cache import launch_remarks, printed_cache
from silicast.serving.kv.kv_pool import KvLayout
from silicast.serving.simulation.launch import Expected, limits_of, start_of
from silicast.serving.simulation.start import ServerStart, pooled
from silicast.workload.models.counting import weight_bytes
from silicast.workload.models.lookup import find_model
from silicast.workload.transformers.plan import ParallelPolicy, Plan

GIB = 1 << 30


def deployment(
    model: str, device: str, version: str, options: dict[str, Any] | None = None, **plan: int
) -> Deployment:
    engine = with_options(as_of(find_engine("vllm"), version), options or {})
    return Deployment.from_model(find_model(model), find_device(device), engine, Plan(**plan))


def tokens(current: Deployment, expected: Expected | None = None) -> int:
    return limits_of(current, expected).blocks * KvLayout.from_deployment(current).block_tokens


PRINTED = [
    ("Qwen3-32B", "h100", "0.15", {"max_num_batched_tokens": 2048, "max_num_seqs": 256}, {}, 35264),
    ("Llama-3.1-8B", "rtx3090", "0.6.4", {"max_num_batched_tokens": 29000}, {}, 23648),
    ("DeepSeek-R1-Distill-Qwen-14B", "rtx4090", "0.7.2", {"gpu_memory_utilization": 0.98},
     {"tp": 2}, 81536),
    ("Llama-3.1-8B", "rtx4090", "0.19", {"max_num_seqs": 256}, {}, 2588 * 16),
    ("Qwen3-Coder-480B-A35B-FP8", "h20-3e", "0.10.1", {}, {"attention_dp": 8, "ep": 8}, 205728),
    ("Qwen3-Coder-480B-A35B-FP8", "h20-3e", "0.10.1", {"gpu_memory_utilization": 0.95},
     {"attention_dp": 8, "ep": 8}, 235296),
]  # fmt: skip


@pytest.mark.parametrize(("model", "device", "version", "options", "plan", "printed"), PRINTED)
def test_tokens_that_engines_printed(
    model: str, device: str, version: str, options: dict, plan: dict, printed: int
) -> None:
    current = deployment(model, device, version, options, **plan)
    assert tokens(current) == pytest.approx(printed, rel=0.05)


def test_the_sampler_takes_its_rows_of_all_logits() -> None:
    """1,024 rows of 151,936 logits in 38 bytes each, and 2,048 hidden states of 5,120 in 2."""
    current = deployment("Qwen3-32B", "h100", "0.15", {"max_num_batched_tokens": 2048})
    memory = ServerStart(current, 1024, 2048).memory
    assert memory.results == 1024 * 151936 * 38 + 2048 * 5120 * 2
    later = deployment("Qwen3-32B", "h100", "0.19", {"max_num_batched_tokens": 2048})
    assert ServerStart(later, 1024, 2048).memory.results == 1024 * 151936 * 14 + 2048 * 5120 * 2


def test_buffers_of_collectives_count_in_early_releases() -> None:
    parts = {
        (version, tp): ServerStart(deployment("Llama-3.1-8B", "h100", version, tp=tp), 8, 8).memory
        for version in ("0.10.2", "0.11.0")
        for tp in (1, 2)
    }
    assert {at: memory.collectives > 0 for at, memory in parts.items()} == {
        ("0.10.2", 1): False, ("0.10.2", 2): True, ("0.11.0", 1): False, ("0.11.0", 2): False,
    }  # fmt: skip


def test_experts_are_padded_by_their_kernel() -> None:
    """36 layers of 128 experts with three products, 4.25 bits a weight: 2,880 becomes 2,944 in
    their width and 3,072 in the hidden size. Beside them stand biases of 2 bytes.
    """
    current = deployment("gpt-oss-120b", "h100", "0.11")
    assert current.policy.expert_multiples == (128, 256)
    plain = weight_bytes(current.model, current.plan, current.precision, policy=ParallelPolicy())
    loaded = weight_bytes(current.model, current.plan, current.precision, policy=current.policy)
    extra = 36 * 128 * 3 * (2944 * 3072 - 2880 * 2880) * 17 // 32
    assert loaded - plain == extra
    assert loaded / GIB == pytest.approx(65.97, rel=0.01)  # as vLLM printed it
    assert deployment("Qwen3-30B-A3B", "h100", "0.11").policy.expert_multiples == (1, 1)


def test_what_does_not_start_says_what_is_missing_and_what_starts() -> None:
    current = deployment("gpt-oss-120b", "h100", "0.11")
    with pytest.raises(SilicastError) as info:
        limits_of(current)
    error = info.value
    assert "2.17 GiB a device are missing" in error.message
    assert "weights 65.89, results of the profiled step and its sampler 7.33" in error.message
    for remedy in ("gpu_memory_utilization = 0.95", "max_num_seqs = ", "tp = 2"):
        assert remedy in error.hint
    fewest = int(error.hint.split("max_num_seqs = ")[1].split()[0])
    assert tokens(deployment("gpt-oss-120b", "h100", "0.11", {"max_num_seqs": fewest})) > 0
    with pytest.raises(SilicastError):
        limits_of(deployment("gpt-oss-120b", "h100", "0.11", {"max_num_seqs": fewest + 1}))


def test_the_cache_must_hold_a_stated_context() -> None:
    long = {"max_num_batched_tokens": 2048, "max_num_seqs": 256, "max_model_len": 40960}
    with pytest.raises(
        SilicastError, match=r"a KV cache of 40960 tokens \(max_model_len\)"
    ) as info:
        limits_of(deployment("Qwen3-32B", "h100", "0.15", long))
    fits = int(info.value.hint.split("max_model_len = ")[1].split()[0])
    assert limits_of(deployment("Qwen3-32B", "h100", "0.15", long | {"max_model_len": fits}))
    with pytest.raises(SilicastError):
        limits_of(deployment("Qwen3-32B", "h100", "0.15", long | {"max_model_len": fits + 16}))


def test_fewer_sequences_are_assumed_where_a_request_that_ran_does_not_fit() -> None:
    current = deployment("Qwen3-32B", "h100", "0.15", {"max_num_batched_tokens": 2048})
    layout = KvLayout.from_deployment(current)
    usual = limits_of(current, Expected(1000, 0, 1020))
    assert usual.sequences == 1024
    assert not any("max_num_seqs" in text for text in launch_remarks(current, usual, layout))
    longer = limits_of(current, Expected(32700, 0, 32760))
    assert longer.sequences == 256
    assert longer.blocks * 16 == pytest.approx(35264, rel=0.01)
    assert any("max_num_seqs = 256" in text for text in launch_remarks(current, longer, layout))
    stated = {"max_num_batched_tokens": 2048, "max_num_seqs": 1024}
    kept = limits_of(deployment("Qwen3-32B", "h100", "0.15", stated), Expected(32700, 0, 32760))
    assert kept.sequences == 1024


def test_what_an_engine_prints_first() -> None:
    current = deployment("Llama-3.1-8B", "h100", "0.11")
    limits, layout = limits_of(current), KvLayout.from_deployment(current)
    printed = printed_cache(current, limits, layout)
    assert printed.tokens == limits.blocks * 16
    assert printed.concurrency == pytest.approx(printed.tokens / 131072, rel=1e-3)
    assert printed.gib == pytest.approx(printed.tokens * 131072 / GIB, rel=1e-6)
    assert sum(
        part if name == "usable" else -part for name, part in printed.parts.items()
    ) == pytest.approx(0.0, abs=0.01)
    belief = printed.beliefs()["kv_cache_tokens"]
    assert belief.p05 < belief.estimate < belief.p95
    stated = with_options(find_engine("vllm"), {"num_gpu_blocks": 100})
    current = Deployment.from_model(current.model, current.device, stated)
    fixed = printed_cache(current, limits_of(current), layout)
    assert (fixed.tokens, fixed.parts) == (1600, {})


def states(options: dict[str, Any], **plan: int) -> tuple[Deployment, int, int]:
    """Qwen3-Next under SGLang, its sequences, and the bytes that its cache may fill."""
    engine = with_options(as_of(find_engine("sglang"), "0.5.9"), options)
    model = find_model("Qwen3-Next-80B-A3B")
    current = Deployment.from_model(model, find_device("h100"), engine, Plan(**plan))
    limits = limits_of(current)
    free = start_of(current, limits).memory.cache
    return current, limits.sequences, free


def test_states_of_recurrent_layers_cap_what_runs() -> None:
    """36 layers, each with 8 of 32 heads of 128 x 128 in 4 bytes on a rank and three inputs of
    the convolution over 2,048 channels in 2; 0.9 / 1.9 of what is free; three places a sequence.
    """
    each = 36 * (8 * 128 * 128 * 4 + 3 * 2048 * 2)
    current, sequences, free = states({}, tp=4)
    assert start_of(current, limits_of(current)).state_bytes == each
    assert sequences == int(free * 0.9 / 1.9) // each // 3
    assert states({"enable_prefix_caching": False}, tp=4)[1] == int(free * 0.9 / 1.9) // each
    assert states({"mamba_full_memory_ratio": 0.3}, tp=4)[1] == int(free * 0.3 / 1.3) // each // 3
    assert states({"max_mamba_cache_size": 100}, tp=4)[1] == 33


def test_states_of_drafted_tokens_are_set_aside() -> None:
    current, sequences, free = states({}, tp=4)
    start = start_of(current, limits_of(current))
    with_drafts, _ = pooled(start, 3, caching=True)
    left = free - 48 * 3 * start.state_bytes
    assert with_drafts == min(48, int(left * 0.9 / 1.9) // start.state_bytes // 3) < sequences


def test_a_pool_that_leaves_no_cache_is_refused() -> None:
    with pytest.raises(SilicastError) as info:
        states({"max_mamba_cache_size": 1 << 20}, tp=4)
    assert info.value.field == "engine.options.max_mamba_cache_size"
    with pytest.raises(SilicastError, match="in blocks of its KV cache"):
        with_options(find_engine("vllm"), {"max_mamba_cache_size": 8})


SET_ASIDE = [  # by server_args.py of 0.5.6 and arg_groups/memory_hook.py of 0.5.23
    ("rtx4080", "0.5.6", 1, 2048, 8),
    ("l4", "0.5.6", 1, 2048, 24),
    ("l4", "0.5.6", 4, 2048, 80),
    ("l4", "0.5.23", 1, 4096, 48),
    ("l4", "0.5.23", 4, 4096, 160),
    ("a100-40gb", "0.5.6", 1, 4096, 32),
    ("a100-40gb", "0.5.23", 4, 4096, 160),
    ("h100", "0.5.6", 1, 8192, 256),
    ("h200", "0.5.23", 8, 8192, 512),
    ("b200", "0.5.23", 1, 16384, 512),
]


@pytest.mark.parametrize(("device", "version", "tp", "chunk", "rows"), SET_ASIDE)
def test_the_share_of_a_board_is_what_its_server_works_out(
    device: str, version: str, tp: int, chunk: int, rows: int
) -> None:
    """512 MiB, 1.5 for a token of a step, 2 for a row of a graph and 128 for a device; of what was
    free before weights were loaded, which is less by a context and by buffers of several devices.
    """
    engine = as_of(find_engine("sglang"), version)
    board = find_device(device)
    current = Deployment.from_model(find_model("Qwen3-0.6B"), board, engine, Plan(tp=tp))
    whole = board.dram.capacity_bytes / (1 << 20)
    aside = max(512 + 1.5 * chunk + 2 * rows + 128 * tp, 10240 if whole > 60 * 1024 else 0)
    free = whole - 1024 * (0.75 + 0.65 * (tp > 1))
    memory = start_of(current, limits_of(current)).memory
    assert memory.usable == pytest.approx(free * (1 - aside / whole) * (1 << 20), rel=1e-9)


@pytest.mark.parametrize("device", ["l4", "a10g"])
@pytest.mark.parametrize("version", ["0.5.6", "0.5.23", ""])
def test_eight_billion_parameters_in_16_bits_start_on_24_gb(device: str, version: str) -> None:
    """As people run it, with short contexts; and no longest context keeps this server from it."""
    engine = find_engine("sglang")
    engine = as_of(engine, version) if version else engine
    current = Deployment.from_model(find_model("Llama-3.1-8B"), find_device(device), engine)
    assert 2000 < tokens(current) < 30000
    limits = limits_of(current)
    assert not launch_remarks(current, limits, KvLayout.from_deployment(current))
