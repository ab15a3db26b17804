"""Kernels of recurrent mixers: counts by hand, styles by name and engine, behaviour in sizes."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.hardware.catalog import find_device
from silicast.kernels.check import check_kernel
from silicast.kernels.implementation import Implementation
from silicast.kernels.recurrent.recurrent_mixer import constants_of, kinds_of, phase_of
from silicast.kernels.recurrent.recurrent_model import Kind, Phase, chunks_of, style_of
from silicast.kernels.recurrent.recurrent_work import MixerShape, delta_shape
from silicast.kernels.registry import implementation_for
from silicast.learning.dispatch import time_of
from silicast.learning.tiers import Evidence
from silicast.workload.graphs.op import Op, Variant
from silicast.workload.libraries.catalog import recurrent_styles

H100 = find_device("H100-SXM-80GB")
B200 = find_device("B200-SXM-180GB")
L40S = find_device("L40S")
GDN = {
    "num_k_heads": 16, "num_v_heads": 64, "head_k_dim": 128, "head_v_dim": 128, "d_conv": 4,
}  # fmt: skip
MAMBA = {
    "nheads": 64, "head_dim": 64, "d_state": 128, "n_groups": 8, "chunk_size": 128, "d_conv": 4,
}  # fmt: skip
STEP = (("generation", True),)


def gdn(batch: int, length: int, *flags: str, **variant: str) -> Op:
    result = Variant(flags=tuple((name, True) for name in flags), config=(), **variant)
    return Op.make("gdn", result, batch_size=batch, seq_len=length, **GDN)


def us(op: Op, device: object = H100) -> float:
    return 1e6 * time_of(op, device, Evidence(learned=False)).estimate_s  # type: ignore[arg-type]


def model(family: str) -> Implementation:
    implementation = implementation_for(family, "simt")
    assert implementation is not None
    return implementation


def test_counts_of_a_scan_by_hand() -> None:
    op, kernel = gdn(2, 100, "scan"), model("gdn")
    # 64 states of 128 x 128: key x state, rank-one update, query x state; 2 operations each
    assert kernel.flops(op) == 200 * 64 * 6 * 128 * 128
    rows = 200 * (2 * 16 * 128 + 2 * 64 * 128 + 64 * 2) * 2
    assert kernel.compulsory_bytes(op) == rows + 2 * 64 * 128 * 128 * 4


def test_counts_of_a_step_by_hand() -> None:
    op, kernel = gdn(7, 1, "scan", "generation"), model("gdn")
    rows = 7 * (2 * 16 * 128 + 2 * 64 * 128 + 64 * 2) * 2
    assert kernel.compulsory_bytes(op) == rows + 2 * 7 * 64 * 128 * 128 * 4


def test_counts_of_a_convolution_by_hand() -> None:
    op, kernel = gdn(2, 100, "conv"), model("gdn")
    channels = 2 * 16 * 128 + 64 * 128
    assert kernel.flops(op) == 200 * channels * 2 * 4
    assert kernel.compulsory_bytes(op) == (2 * 200 * channels + 4 * channels) * 2


def test_counts_of_mamba_by_hand() -> None:
    variant = Variant(flags=(("scan", True),))
    op = Op.make("mamba2", variant, batch_size=3, seq_len=10, **MAMBA)
    assert model("mamba2").flops(op) == 30 * 64 * 4 * 64 * 128
    rows = 30 * (2 * 64 * 64 + 2 * 8 * 128 + 2 * 64) * 2
    assert model("mamba2").compulsory_bytes(op) == rows + 3 * 64 * 64 * 128 * 4


def test_gates_of_every_channel_are_read() -> None:
    sizes = {**GDN, "batch_size": 1, "seq_len": 1}
    one, all_ = (delta_shape(sizes, 2, gate_per_channel=g) for g in (False, True))
    assert all_.row_bytes - one.row_bytes == 64 * (129 - 2) * 2


@pytest.mark.parametrize("family", ["gdn", "kda"])
@pytest.mark.parametrize("phase", [(), STEP, (("verify", True),)])
def test_whole_mixer_is_the_sum_of_its_kernels(
    family: str, phase: tuple[tuple[str, bool], ...]
) -> None:
    ops = [
        Op.make(family, Variant(flags=(*flags, *phase)), batch_size=4, seq_len=5, **GDN)
        for flags in ((), (("conv", True),), (("scan", True),))
    ]
    whole, conv, scan = (time_of(op, B200, Evidence(learned=False)).estimate_s for op in ops)
    assert whole == pytest.approx(conv + scan, rel=1e-12)
    flops = [model(family).flops(op) for op in ops]
    assert flops[0] == flops[1] + flops[2]


@pytest.mark.parametrize(
    ("family", "kind", "phase", "variant", "architecture", "style"),
    [
        ("gdn", "scan", "context", Variant(), "hopper", "delta_flashinfer"),
        ("gdn", "scan", "context", Variant(), "ada", "delta_vllm"),
        ("gdn", "scan", "context", Variant(library="sglang"), "hopper", "delta_sglang"),
        ("gdn", "scan", "context", Variant(library="trtllm"), "ada", "delta_trtllm"),
        ("gdn", "scan", "generation", Variant(), "ada", "delta_step"),
        ("gdn", "conv", "context", Variant(library="vllm", version="0.24.0"), "ada", "conv_triton"),
        (
            "gdn", "conv", "context", Variant(library="sglang", version="0.5.10"), "ada",
            "conv_cuda_early",
        ),
        ("gdn", "conv", "context", Variant(library="trtllm"), "ada", "conv_cuda"),
        ("kda", "conv", "context", Variant(library="vllm"), "hopper", "conv_three_vllm"),
        ("kda", "scan", "context", Variant(), "blackwell", "kda_flash"),
        ("kda", "scan", "context", Variant(library="sglang"), "blackwell", "kda_triton"),
        ("kda", "scan", "verify", Variant(), "blackwell", "kda_verify"),
        ("mamba2", "scan", "context", Variant(), "ada", "ssm_chunks"),
        ("mamba2", "scan", "generation", Variant(library="vllm"), "ada", "ssm_step"),
    ],
)  # fmt: skip
def test_styles_of_engines(
    family: str, kind: Kind, phase: Phase, variant: Variant, architecture: str, style: str
) -> None:
    assert style_of(family, kind, phase, variant, architecture).name == style


def test_a_kernel_name_wins_over_the_engine() -> None:
    named = Variant(library="vllm", kernel="chunk_gated_delta_rule_triton")
    assert style_of("gdn", "scan", "context", named, "hopper").name == "delta_vllm"
    assert kinds_of(named) == ("scan",)
    assert kinds_of(Variant(kernel="causal_conv1d_update")) == ("conv",)
    assert phase_of(Variant(flags=STEP)) == "generation"


def test_campaigns_that_timed_the_keys_channels_only() -> None:
    old = Variant(library="trtllm", version="1.3.0rc20", kernel="causal_conv1d_fn")
    few, many = (
        Op.make("gdn", old, batch_size=2, seq_len=4096, **{**GDN, "num_v_heads": heads})
        for heads in (16, 64)
    )
    assert us(few) == us(many)
    new = Variant(library="vllm", version="0.24.0", kernel="causal_conv1d_fn")
    few, many = (
        Op.make("gdn", new, batch_size=2, seq_len=4096, **{**GDN, "num_v_heads": heads})
        for heads in (16, 64)
    )
    assert us(many) > 1.8 * us(few)


def test_every_style_has_constants_on_every_architecture() -> None:
    from silicast.kernels.physics.constants import load_physics

    physics = load_physics("linear_attention")
    for architecture in ("ada", "ampere", "hopper", "blackwell", "blackwell-rtx", "cdna3"):
        table = physics.constants(architecture)
        for style in recurrent_styles():
            constants = constants_of(table, style)
            assert {"launch_s", "chunk_cycles", "independent_log_sd", "serial"} <= set(constants)


def test_a_step_streams_its_states() -> None:
    """Large batches: twice as many sequences take twice as long, near the memory's bandwidth."""
    one, two = us(gdn(256, 1, "scan", *("generation",))), us(gdn(512, 1, "scan", "generation"))
    assert two / one == pytest.approx(2.0, rel=0.02)
    bound = time_of(gdn(512, 1, "scan", "generation"), H100, Evidence(learned=False)).bound_s
    assert 1.0 < two / (1e6 * bound) < 1.35


def test_a_step_does_not_depend_on_what_came_before_but_a_scan_on_its_length() -> None:
    assert us(gdn(1, 8192, "scan")) / us(gdn(1, 4096, "scan")) == pytest.approx(2.0, rel=0.1)


def test_sequences_run_side_by_side_until_the_device_is_full() -> None:
    """64 heads on 132 cores: a second sequence is nearly free, four take two rounds."""
    one, two, four = (us(gdn(batch, 8192, "scan")) for batch in (1, 2, 4))
    assert two < 1.3 * one
    assert 1.5 * two < four < 2.5 * two


def test_drafts_to_be_verified_write_a_state_each() -> None:
    times = [
        us(Op.make("kda", Variant(flags=(("scan", True), ("verify", True))),
                   batch_size=64, seq_len=length, **{**GDN, "num_k_heads": 64}))
        for length in (2, 8)
    ]  # fmt: skip
    assert times[1] / times[0] == pytest.approx(9 / 3, rel=0.15)


def test_chunks_of_uneven_sequences() -> None:
    def shape(batch: float, longest: float, tokens: float) -> MixerShape:
        names = MixerShape.__struct_fields__
        values = {name: np.array([1.0]) for name in names}
        values |= {
            "sequences": np.array([batch]),
            "longest": np.array([longest]),
            "tokens": np.array([tokens]),
        }
        return MixerShape(**values)

    each, all_ = chunks_of(shape(2, 100, 200), 64)
    assert (each[0], all_[0]) == (2.0, 4.0)
    each, all_ = chunks_of(shape(3, 640, 650), 64)  # 640, 5 and 5 tokens: 12 chunks
    assert each[0] == 10.0
    assert 10.0 < all_[0] < 14.0


def test_uneven_lengths_take_no_longer_than_the_longest_everywhere() -> None:
    even = gdn(4, 4096, "scan")
    uneven = Op.make("gdn", even.variant, batch_size=4, seq_len=4096, num_tokens=6000, **GDN)
    alone = gdn(1, 4096, "scan")
    assert us(alone) <= us(uneven) <= us(even)


def test_cold_states_come_from_memory() -> None:
    warm = gdn(2, 1, "scan", "generation")
    cold = gdn(2, 1, "scan", "generation", cache="cold")
    assert us(cold) >= us(warm)
    moved = model("gdn").compulsory_bytes(cold)
    bound = time_of(cold, H100, Evidence(learned=False))
    assert bound.bound_s == pytest.approx(moved / H100.dram.bandwidth_bytes_per_s)
    assert time_of(warm, H100, Evidence(learned=False)).bound_s < bound.bound_s


def test_what_was_not_measured_says_so() -> None:
    variant = Variant(flags=STEP)
    op = Op.make("mamba2", variant, batch_size=8, seq_len=1, **MAMBA)
    assert not time_of(op, H100, Evidence(learned=False)).measured
    assert time_of(gdn(8, 1, "generation"), H100, Evidence(learned=False)).measured
    odd = gdn(8, 1, kernel="a_kernel_of_tomorrow")
    assert not time_of(odd, H100, Evidence(learned=False)).measured


@pytest.mark.parametrize("family", ["gdn", "kda", "mamba2"])
@pytest.mark.parametrize("flags", [STEP, (("verify", True),), (("conv", True),), (("scan", True),)])
def test_battery_of_phases_and_parts(family: str, flags: tuple[tuple[str, bool], ...]) -> None:
    variants = [Variant(cache=cache, flags=flags) for cache in ("", "cold")]
    assert check_kernel(model(family), [H100, L40S], draws=80, variants=variants, scalar_rows=4)


@pytest.mark.parametrize("family", ["gdn", "kda", "mamba2"])
@pytest.mark.parametrize("device", ["TPU v6e", "Intel Xeon 8480", "MI300X"])
def test_other_execution_models_answer(family: str, device: str) -> None:
    sizes = MAMBA if family == "mamba2" else GDN
    for flags, length in (((), 1024), (STEP, 1)):
        op = Op.make(family, Variant(flags=flags), batch_size=4, seq_len=length, **sizes)
        time = time_of(op, find_device(device), Evidence(learned=False))
        assert 0.0 < time.bound_s <= time.p05_s <= time.estimate_s <= time.p95_s
