"""Blocks of latent attention: their parts, formats, phases and engines."""

from __future__ import annotations

import pytest

from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.attention.mla_decode import MlaDecode
from silicast.kernels.attention.mla_module import MlaModule
from silicast.kernels.attention.mla_prefill import MlaPrefill
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op import Op, OpBatch, Variant

H200 = find_device("H200")
B200 = find_device("B200")
GB200 = find_device("GB200")
WIDTHS = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
BLOCK = {"hidden": 7168, "q_lora_rank": 1536, **WIDTHS}


def variant(linear: str = "bf16", *, generation: bool = False, **other: str) -> Variant:
    flags = ((f"gemm_{linear}", True), *((("generation", True),) if generation else ()))
    return Variant(**{"dtype": "bf16", **other}, flags=flags, config=())


def block(kind: Variant, **sizes: object) -> Op:
    dims = {"batch": 2, "q_len": 100, "kv_len": 300, "num_heads": 16, **BLOCK, **sizes}
    return Op.make("mla_module", kind, **dims)  # type: ignore[arg-type]


def us(op: Op, device: Device = H200) -> float:
    return 1e6 * float(MlaModule().times(OpBatch.from_ops([op]), device).estimate_s[0])


def names(op: Op, device: Device | None = H200) -> list[str]:
    return [part.batch.family for part in MlaModule().work(OpBatch.from_ops([op]), device).parts]


def product(m: int, n: int, k: int) -> int:
    return 2 * m * n * k


def test_flops_of_a_context_pass_by_hand() -> None:
    op = block(variant())
    linear = (
        product(200, 1536 + 576, 7168)
        + product(200, 16 * 192, 1536)
        + product(600, 16 * 256, 512)  # keys and values of all 300 tokens of two sequences
        + product(200, 7168, 16 * 128)
    )
    attention = MlaPrefill().flops(
        Op.make("mla_prefill", Variant(), batch=2, q_len=100, kv_len=300, num_heads=16, **WIDTHS)
    )
    small = MlaModule().flops(op) - linear - attention
    assert 0 < small < 0.01 * linear  # norms and rotation


def test_flops_of_a_generation_pass_by_hand() -> None:
    op = block(variant(generation=True), q_len=1)
    linear = (
        product(2, 1536 + 576, 7168)
        + product(2, 16 * 192, 1536)
        + 16 * (product(2, 512, 128) + product(2, 128, 512))
        + product(2, 7168, 16 * 128)
    )
    attention = MlaDecode().flops(
        Op.make("mla_decode", Variant(), batch=2, q_len=1, kv_len=300, num_heads=16, **WIDTHS)
    )
    small = MlaModule().flops(op) - linear - attention
    assert 0 < small < 0.01 * linear


def test_operands_are_the_blocks_own() -> None:
    wide = MlaModule().compulsory_bytes(block(variant(generation=True), q_len=1))
    weights = 7168 * 2112 + 1536 * 16 * 192 + 16 * 128 * 7168
    up = 512 * 16 * 256  # may be stored in 8 bits
    latent, hidden = 2 * 300 * 576 * 2 + 2 * 576 * 2, 2 * 2 * 7168 * 2
    assert wide == 2 * weights + up + latent + hidden
    narrow = MlaModule().compulsory_bytes(block(variant("fp8_block", generation=True), q_len=1))
    assert narrow == pytest.approx(wide - weights, rel=0.01)


def test_without_a_query_rank_queries_come_straight_from_the_input() -> None:
    moonlight = block(variant(), q_lora_rank=0, hidden=2048)
    assert MlaModule().flops(moonlight) > product(200, 16 * 192, 2048) + product(200, 576, 2048)
    assert us(moonlight) > 0


def test_the_phase_chooses_how_keys_are_seen() -> None:
    assert "mla_prefill" in names(block(variant()))
    assert "mla_decode" not in names(block(variant(library="trtllm")))
    assert "mla_prefill" not in names(block(variant(generation=True), q_len=1))


def test_vllms_decode_kernels_take_short_prefills_on_hopper() -> None:
    def runs(q_len: int, kv: str, device: Device) -> dict[str, bool]:
        op = block(variant(library="vllm", kv_dtype=kv), q_len=q_len, kv_len=2000)
        parts = MlaModule().work(OpBatch.from_ops([op]), device).parts
        counts = [(p.batch.family, p.count if isinstance(p.count, int) else int(p.count[0]))
                  for p in parts]  # fmt: skip
        return {name: count > 0 for name, count in counts if name.startswith("mla_")}

    assert runs(512, "bf16", H200) == {"mla_prefill": False, "mla_decode": True}
    assert runs(513, "bf16", H200) == {"mla_prefill": True}
    assert runs(200, "fp8", H200) == {"mla_prefill": True}
    assert runs(1, "bf16", B200) == {"mla_prefill": False, "mla_decode": True}


def test_formats_of_linear_layers_change_their_time_only() -> None:
    wide, narrow = (
        us(block(variant(linear, generation=True, library="trtllm"), q_len=1, num_heads=128), B200)
        for linear in ("bf16", "fp8_block")
    )
    assert narrow < wide
    nvfp4 = MlaModule().times(
        OpBatch.from_ops([block(variant("nvfp4", generation=True), q_len=1)]), H200
    )
    assert any("nvfp4" in warning for warning in nvfp4.warnings)


def test_older_builds_of_vllm_are_told_apart_on_blackwell() -> None:
    model = MlaModule()
    new, old = (variant(generation=True, library="vllm", version=v) for v in ("0.24.0", "0.22.0"))
    assert model.style(new, B200) == "vllm_generation"
    assert model.style(old, B200) == "vllm_early_generation"
    assert model.style(new, GB200) == "vllm_early_generation"
    assert model.style(old, H200) == "vllm_generation"
    op = block(old, q_len=1)
    assert us(op, B200) > 1.1 * us(block(new, q_len=1), B200)


def test_wide_expert_prefills_wait_for_the_host() -> None:
    kind = variant("fp8_block", library="sglang", kv_dtype="fp8")
    small = us(block(kind, batch=1, q_len=4, kv_len=4))
    assert small == pytest.approx(us(block(kind, batch=1, q_len=64, kv_len=64)), rel=1e-9)
    assert us(block(kind, batch=1, q_len=16384, kv_len=16384, num_heads=128)) > 5 * small


@pytest.mark.parametrize("device", ["TPU v5p", "Xeon 8480", "MI300X", "A100", "RTX PRO 6000 S"])
def test_every_execution_model_answers(device: str) -> None:
    result = find_device(device)
    model = implementation_for("mla_module", result.execution_model)
    assert model is not None
    for op in (block(variant()), block(variant(generation=True), q_len=1)):
        times = model.times(OpBatch.from_ops([op]), result)
        assert 0 < times.bound_s[0] <= times.p05_s[0] <= times.estimate_s[0] <= times.p95_s[0]


def test_the_bound_is_that_of_the_cheaper_way_whichever_runs() -> None:
    """vLLM brings few queries to a long cache, and expands the cache for many."""
    few, many = (
        MlaModule().times(
            OpBatch.from_ops([block(variant(library="vllm"), q_len=q, kv_len=40_000)]), H200
        )
        for q in (512, 513)
    )
    tensor = [float(items.analysis.resource_s["tensor"][0]) for items in (few, many)]
    assert tensor[0] < tensor[1] < 1.01 * tensor[0]
    # way of the few: queries to the latent and results back, and scores of the latent's width
    scores = 2 * (512 * (40_000 - 512) + 512 * 513 // 2)
    absorbed = 2 * 1024 * 16 * 512 * 256 + 2 * scores * 16 * (576 + 512)
    shared = (
        product(1024, 1536 + 576, 7168) + product(1024, 16 * 192, 1536)
        + product(1024, 7168, 16 * 128)
    )  # fmt: skip
    expanded = 2 * 80_000 * 16 * 512 * 256 + 2 * scores * 16 * (192 + 128)
    per_s = H200.bound_per_s("tensor", "bf16")
    assert tensor[0] == pytest.approx((shared + min(absorbed, expanded)) / per_s, rel=1e-9)


def test_occupancy_is_of_kernels_that_run() -> None:
    long, short = (block(variant(library="vllm"), q_len=q, kv_len=q) for q in (5000, 100))
    model = MlaModule()
    alone = model.times(OpBatch.from_ops([long]), H200).analysis.demand.occupancy[0]
    beside = model.times(OpBatch.from_ops([long, short]), H200).analysis.demand.occupancy[0]
    assert alone == beside
