"""What attention models must say: who is faster, what bounds it, and the battery."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lab.scorecard.held_out import unknown_architecture
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.kernels.attention.attention_decode import AttentionDecode
from silicast.kernels.attention.attention_kernel import tensor_rate
from silicast.kernels.attention.attention_prefill import AttentionPrefill
from silicast.kernels.attention.attention_scheduled import attention_constants
from silicast.kernels.attention.attention_schemes import resolve_library, scheme_for
from silicast.kernels.check import check_kernel
from silicast.kernels.implementation import KernelTimes
from silicast.kernels.physics.constants import load_physics
from silicast.learning.tiers import kernel_times
from silicast.workload.graphs.op import Dim, Op, OpBatch, Variant

DEVICES = ("A100-SXM-80GB", "H100-SXM-80GB", "B200", "L40S", "RTX PRO 6000 S", "T4")
LIBRARIES = ("", "fa2", "fa3", "flashinfer", "trtllm", "vllm", "sglang", "triton")


def prefill(device: str = "H100", variant: Variant | None = None, **dims: Dim) -> KernelTimes:
    variant = variant or Variant(flags=(("causal", True),))
    full: dict[str, Dim] = {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128, "window": 0}
    op = Op.make("attention_prefill", variant, **{**full, **dims})
    return AttentionPrefill().times(OpBatch.from_ops([op]), find_device(device))


def decode(device: str = "H100", variant: Variant | None = None, **dims: Dim) -> KernelTimes:
    full: dict[str, Dim] = {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128, "window": 0}
    op = Op.make("attention_decode", variant or Variant(), **{**full, **dims})
    return AttentionDecode().times(OpBatch.from_ops([op]), find_device(device))


@pytest.mark.parametrize("model", [AttentionPrefill(), AttentionDecode()], ids=lambda m: m.family)
def test_battery(model: AttentionPrefill | AttentionDecode) -> None:
    devices = [find_device(name) for name in DEVICES]
    variants = [
        Variant(dtype, kv, library, cache=cache, flags=(("causal", True),))
        for library, cache in zip(LIBRARIES, ("", "cold", "warm", "") * 2, strict=True)
        for dtype, kv in (("bf16", ""), ("bf16", "fp8"), ("fp16", "fp16"), ("fp8", "fp8"))
    ]
    assert check_kernel(model, devices, draws=600, variants=variants, scalar_rows=2) >= 400


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_every_library_answers_everywhere(device: str, library: str) -> None:
    variant = Variant("fp16", "fp16", library, flags=(("causal", True),))
    for times in (
        prefill(device, variant, batch=2, q_len=300, kv_len=900),
        decode(device, variant, batch=2, kv_len=900),
    ):
        assert 1e-6 < times.estimate_s[0] < 1e-2
        assert times.p05_s[0] < times.estimate_s[0] < times.p95_s[0]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("causal", [True, False])
def test_a_window_over_all_keys_is_none(library: str, causal: bool) -> None:
    variant = Variant(library=library, flags=(("causal", causal),))
    for window in (1024, 4096):
        for q in (128, 1024):
            none = prefill(variant=variant, batch=1, q_len=q, kv_len=1024)
            wide = prefill(variant=variant, batch=1, q_len=q, kv_len=1024, window=window)
            assert wide.estimate_s[0] == none.estimate_s[0]
            assert wide.bound_s[0] == none.bound_s[0]


@pytest.mark.parametrize("device", ["RTX 6000 Ada", "RTX 4090", "A6000", "H100"])
def test_windows_that_slide_read_every_key_once(device: str) -> None:
    long = {"batch": 1, "q_len": 10**6, "kv_len": 10**6}
    variant = Variant(cache="cold", flags=(("causal", False),))
    times = prefill(device, variant, **long, window=1)
    elements = 10**6 * (8 + 32 + 8) * 128  # keys, queries, values; results may stay in L2
    bandwidth = find_device(device).dram.bandwidth_bytes_per_s
    assert times.bound_s[0] == pytest.approx(2 * elements / bandwidth)
    assert times.estimate_s[0] > 2 * (elements + 10**6 * 32 * 128) / bandwidth


def test_uniform_and_ragged_forms_agree() -> None:
    uniform = prefill(batch=5, q_len=777, kv_len=1234)
    ragged = prefill(q_len=(777,) * 5, kv_len=(1234,) * 5)
    assert uniform.estimate_s[0] == pytest.approx(ragged.estimate_s[0], rel=1e-12)
    uniform, ragged = decode(batch=5, kv_len=1234), decode(kv_len=(1234,) * 5)
    assert uniform.estimate_s[0] == pytest.approx(ragged.estimate_s[0], rel=1e-12)


def test_causal_and_window_save_time() -> None:
    everything = Variant(flags=(("causal", False),))
    full = prefill(variant=everything, batch=1, q_len=8192, kv_len=8192)
    causal = prefill(batch=1, q_len=8192, kv_len=8192)
    window = prefill(batch=1, q_len=8192, kv_len=8192, window=1024)
    assert window.estimate_s[0] < 0.5 * causal.estimate_s[0]
    assert 0.45 < causal.estimate_s[0] / full.estimate_s[0] < 0.75
    long = decode(batch=64, kv_len=32768)
    assert decode(batch=64, kv_len=32768, window=1024).estimate_s[0] < 0.2 * long.estimate_s[0]


def test_long_prefill_is_bound_by_matrix_products_and_decode_by_memory() -> None:
    assert prefill(batch=1, q_len=16384, kv_len=16384).bound_by() == ["tensor"]
    large = decode(batch=64, kv_len=16384)
    assert large.bound_by() == ["dram"]
    assert large.estimate_s[0] < 1.4 * large.bound_s[0]


def test_one_long_sequence_among_short_ones_costs_more_than_even_lengths() -> None:
    even = prefill(q_len=(512,) * 16, kv_len=(512,) * 16)
    uneven = prefill(q_len=(128,) * 15 + (6272,), kv_len=(128,) * 15 + (6272,))
    assert uneven.estimate_s[0] > even.estimate_s[0]


def test_a_long_cache_is_split_over_the_device() -> None:
    one = decode("A100", Variant(library="flashinfer"), batch=1, kv_len=65536)
    assert one.analysis.demand.tasks[0] > 50
    # Alone on a core, this cache would take the cores' number of times longer.
    assert one.estimate_s[0] < 20 * decode("A100", batch=1, kv_len=512).estimate_s[0]


def test_groups_above_32_fall_to_the_kernel_of_one_head_in_tensorrt_llm() -> None:
    variant = Variant(library="trtllm")
    shared = decode(variant=variant, batch=64, kv_len=4096, num_heads=32, num_kv_heads=1)
    alone = decode(variant=variant, batch=64, kv_len=4096, num_heads=64, num_kv_heads=1)
    assert alone.estimate_s[0] > 5 * shared.estimate_s[0]


def test_cache_state_decides_what_a_small_cache_costs() -> None:
    cold = decode(variant=Variant(cache="cold"), batch=4, kv_len=1024)
    warm = decode(variant=Variant(cache="warm"), batch=4, kv_len=1024)
    assert cold.bound_s[0] > 2 * warm.bound_s[0]
    assert cold.estimate_s[0] > warm.estimate_s[0]


def test_appending_to_the_cache_is_part_of_an_engines_call() -> None:
    def engine(append: bool) -> float:
        variant = Variant(library="vllm", flags=(("append", append), ("causal", True)))
        return float(prefill(variant=variant, batch=64, q_len=512, kv_len=512).estimate_s[0])

    moved = 2 * 2 * 64 * 512 * 8 * 128 * 2  # keys and values read and written in two bytes
    assert engine(append=True) - engine(append=False) > moved / 3352e9


@pytest.mark.parametrize("device", ["H100", "B200", "L40S"])
def test_early_releases_of_vllm_were_timed_without_the_write_to_the_cache(device: str) -> None:
    def short(release: str, append: bool | None = None) -> float:
        flags = () if append is None else (("append", append),)
        variant = Variant("bf16", "bf16", "vllm", release, flags=flags)
        dims = {"batch": 1, "kv_len": 16, "num_heads": 32, "num_kv_heads": 8, "head_dim": 128}
        batch = OpBatch.from_ops([Op.make("attention_decode", variant, **dims)])
        return float(AttentionDecode().analyse(batch, find_device(device)).time_s[0])

    assert short("0.22.0") == short("0.24.0", append=False)
    assert short("") == short("0.24.0") == short("0.22.0", append=True)
    assert 1e-6 < short("0.24.0") - short("0.22.0") < 4e-6


def test_casts_to_eight_bits_are_timed_by_release_and_library() -> None:
    def casts(library: str, release: str, device: str) -> bool:
        return scheme_for(Variant("bf16", "fp8", library, release), find_device(device)).casts

    assert casts("sglang", "0.5.14", "B200")
    assert casts("sglang", "", "B200")
    assert not casts("sglang", "0.5.10", "B200")
    assert casts("vllm", "0.24.0", "H100")
    assert not casts("vllm", "0.24.0", "B200")  # kernels that take narrow caches as they are


def test_a_faster_matrix_unit_never_costs_and_gains_no_more_than_its_share() -> None:
    constants = {"tensor_efficiency": 0.6, "tensor_exponent": 0.9}
    rates = []
    for name in ("L40S", "A100-SXM-80GB", "H100", "B200"):
        device = find_device(name)
        pipe = device.matrix_pipe("bf16")
        rates.append(
            (device.rate_per_core(pipe, "bf16"), tensor_rate(device, pipe, "bf16", constants))
        )
    for (slow, reached), (fast, more) in itertools.pairwise(rates):
        assert slow < fast
        assert reached < more < reached * fast / slow
        assert more <= fast


def test_an_unmeasured_architecture_takes_the_class_of_kernel_that_runs_there() -> None:
    """Not the engine's name alone: vLLM runs another kernel with each matrix instruction."""
    pooled = load_physics("attention_prefill").default
    with unknown_architecture("hopper"):
        variant = Variant("bf16", "bf16", "vllm")
        h100 = find_device("H100")
        used = attention_constants("attention_prefill", h100, scheme_for(variant, h100))
        without = load_physics("attention_prefill").default
        assert used["launch_cycles"] == without["vllm/wgmma.launch_cycles"]
        assert used["launch_cycles"] != without["vllm/mma.launch_cycles"]
    assert {f"{engine}/{loop}.launch_cycles" for engine in ("vllm", "sglang", "trtllm")
            for loop in ("mma", "wgmma", "tcgen05")} <= set(pooled)  # fmt: skip


def test_unmeasured_architectures_get_wider_intervals() -> None:
    op = Op.make(
        "attention_prefill", Variant(flags=(("causal", True),)), batch=1, q_len=2048, kv_len=2048,
        num_heads=32, num_kv_heads=8, head_dim=128, window=0,
    )  # fmt: skip
    measured, unmeasured = (
        kernel_times(AttentionPrefill(), OpBatch.from_ops([op]), find_device(name))
        for name in ("L40S", "Jetson AGX Orin 64GB")
    )
    assert unmeasured.shared_log_sd["device"] > measured.shared_log_sd["device"]
    assert unmeasured.p95_s[0] / unmeasured.p05_s[0] > 1.1 * measured.p95_s[0] / measured.p05_s[0]


def test_formats_a_device_lacks_are_refused() -> None:
    with pytest.raises(SilicastError, match="bf16"):
        prefill("V100", Variant("bf16", "bf16"), batch=1, q_len=16, kv_len=16)
    with pytest.raises(SilicastError, match="kv_dtype"):
        prefill("A100", Variant("bf16", "bf17"), batch=1, q_len=16, kv_len=16)


@pytest.mark.parametrize(
    ("library", "architecture", "expected"),
    [
        ("vllm", "hopper", "fa3"),
        ("vllm", "blackwell", "trtllm"),
        ("vllm", "ampere", "fa2"),
        ("sglang", "blackwell-rtx", "flashinfer"),
        ("fa3", "ada", "fa2"),
        ("", "hopper", "fa3"),
        ("triton", "hopper", "triton"),
    ],
)
def test_libraries_resolve(library: str, architecture: str, expected: str) -> None:
    assert resolve_library(library, "", architecture) == expected


def test_a_tables_kernel_name_wins_over_the_engines_usual_kernel() -> None:
    scheme = scheme_for(Variant(library="sglang", kernel="triton"), find_device("H100"))
    assert (scheme.library, scheme.caller, scheme.mainloop) == ("triton", "triton", "mma")


def test_thousands_of_equal_sequences_are_not_expanded() -> None:
    batch = OpBatch.from_ops(
        [
            Op.make(
                "attention_decode",
                batch=1 << 20,
                kv_len=100 + i,
                num_heads=8,
                num_kv_heads=8,
                head_dim=64,
            )
            for i in range(4)
        ]
    )
    times = AttentionDecode().times(batch, find_device("H100"))
    assert np.all(np.diff(times.bound_s) > 0)
