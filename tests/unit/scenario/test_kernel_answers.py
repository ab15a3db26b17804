"""Task kernel: answers, limits, tiers and calibrations."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from silicast.core.calibration import Calibration, Offset, Scope, save_calibration
from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer
from silicast.scenario.decode import decode
from silicast.scenario.run import run

GEMM = {"op": "gemm", "m": 4096, "n": 4096, "k": 4096}


def answered(kernel: dict[str, Any] = GEMM, folder: Path | None = None, **fields: Any) -> Answer:
    tree = {"task": "kernel", "device": "H100", "workload": {"kernel": kernel}, **fields}
    return run(decode(tree, folder=folder))


def refused(kernel: dict[str, Any] = GEMM, **fields: Any) -> SilicastError:
    with pytest.raises(SilicastError) as caught:
        answered(kernel, **fields)
    return caught.value


def test_a_gemm_lies_between_its_bound_and_sense() -> None:
    result = answered(id="g")
    latency = result.metrics["latency_us"]
    # 2 * 4096^3 FLOP at 989 TFLOP/s take 139 us; at the largest clock 8 % less
    assert 120 < result.bound["latency_us"] < 139
    assert result.bound["latency_us"] <= latency.p05 <= latency.estimate <= latency.p95 < 600
    assert result.id == "g"
    assert result.tier == "cross-device"
    assert result.why["name"] == "gemm"
    assert result.why["bound_by"] == "tensor"


def test_the_bound_tier_answers_the_bound() -> None:
    result = answered(tier="bound")
    assert result.tier == "bound"
    assert result.metrics["latency_us"].estimate == result.bound["latency_us"]


def test_a_clock_limit_slows_estimate_and_bound() -> None:
    full, half = answered(), answered(limits={"clock_mhz": 915})
    assert half.metrics["latency_us"].estimate > 1.5 * full.metrics["latency_us"].estimate
    assert half.bound["latency_us"] > 1.9 * full.bound["latency_us"]


def test_a_limit_above_the_device_changes_nothing() -> None:
    high, current = answered(limits={"clock_mhz": 5000}), answered()
    assert (high.metrics, high.bound) == (current.metrics, current.bound)
    assert [line for line in high.warnings if line not in current.warnings] == [
        "limits.clock_mhz = 5000 changes nothing: the device's own limit is 1980 MHz"
    ]


def test_an_absurd_clock_is_refused() -> None:
    assert refused(limits={"clock_mhz": 1.5}).field == "limits.clock_mhz"


def test_an_inline_device_and_a_device_file_answer_alike(tmp_path: Path) -> None:
    import tomllib

    from silicast.core.catalog import CATALOG

    source = CATALOG / "devices" / "nvidia-h100-sxm-80gb.toml"
    (tmp_path / "mine.toml").write_bytes(source.read_bytes())
    by_name = answered()
    table = tomllib.loads(source.read_text(encoding="utf-8"))
    assert answered(device=table) == by_name
    assert answered(device="mine.toml", folder=tmp_path) == by_name


def test_a_bad_inline_device_names_its_field() -> None:
    error = refused(device={"name": "x"})
    assert error.field.startswith("device")
    assert "missing" in error.message


def test_unknown_devices_offer_the_nearest() -> None:
    error = refused(device="h1000")
    assert (error.kind, error.field) == ("unknown_name", "device")
    assert "H100" in error.hint


@pytest.mark.parametrize("field", ["speculative", "lora", "colocation"])
def test_what_no_kernel_has_is_not_ignored(field: str) -> None:
    tables: dict[str, Any] = {
        "speculative": {"method": "mtp", "k": 1},
        "lora": {"rank": 8},
        "colocation": {"mode": "mps"},
    }
    pools = {"a": {"device": "H100"}, "b": {"device": "H100"}}
    error = refused(**{field: tables[field]}, pools=pools)
    assert error.kind == "not_yet"


def test_fields_that_change_nothing_are_named() -> None:
    result = answered(engine="vllm", kernel={**GEMM})
    assert "not used by task kernel: engine" in result.warnings


def test_a_kernel_of_early_releases_takes_the_steps_of_k_one_after_the_other() -> None:
    """aiconfigurator, vLLM 0.19 on H100: 27.6, 29.8 and 30.4 us at k = 7,168, 52.1 at 16,384."""

    def us(n: int, k: int) -> float:
        product = {"op": "gemm", "m": 1, "n": n, "k": k, "dtype": "fp8_block", "library": "vllm"}
        kernel = {**product, "variant": "CutlassFp8BlockScaledMMKernel", "includes_quantize": True}
        return answered(kernel=kernel).metrics["latency_us"].estimate

    measured = {(256, 7168): 27.6, (1536, 7168): 29.8, (4096, 7168): 30.4, (256, 16384): 52.1}
    for (n, k), value in measured.items():
        assert us(n, k) == pytest.approx(value, rel=0.15), (n, k)


def test_deepseek_on_sixteen_boards_under_a_release_of_2025() -> None:
    """tenstorrent/tt-inference-server#356: TPOT 31.2 ms, one client, vLLM 0.9.1 on 2 x 8 H100."""
    workload = {
        "requests": 2,
        "input_len": 128,
        "output_len": 64,
        "arrival": {"kind": "closed", "concurrency": 1},
    }
    tree = {
        "task": "serving",
        "model": "DeepSeek-R1",
        "device": "h100",
        "parallel": {"tp": 16},
        "engine": {"name": "vllm", "version": "0.9.1"},
        "workload": workload,
        "cluster": {"gpus": 16, "gpus_per_node": 8},
    }
    tpot = run(decode(tree)).metrics["tpot_mean_ms"]
    assert tpot.p05 < 31.2 < tpot.p95
    assert 0.75 * 31.2 < tpot.estimate < 1.25 * 31.2


def test_a_cluster_counts_for_kernels_that_leave_the_node_alone() -> None:
    unused = "not used by task kernel: cluster"
    cluster = {"gpus": 32, "gpus_per_node": 8, "inter_node": "efa-400g"}
    assert unused in answered(cluster=cluster, kernel={**GEMM}).warnings
    sent = {"op": "combine", "tokens": 64, "hidden": 7168, "topk": 8, "experts": 256, "ep": 32}
    usual, slow = answered(kernel=sent), answered(cluster=cluster, kernel=sent)
    assert unused not in slow.warnings
    assert slow.metrics["latency_us"].estimate > 1.05 * usual.metrics["latency_us"].estimate


def test_a_convolution_of_an_unmeasured_architecture_is_answered_and_said() -> None:
    conv = {"op": "conv2d", "batch": 1, "in_channels": 3, "out_channels": 8, "height": 9,
            "width": 9, "kernel": 3}  # fmt: skip
    result = answered(conv)
    assert result.domain == "near"
    assert any("conv2d" in warning for warning in result.warnings)


def test_sizes_outside_a_kernel_model_are_refused_by_name() -> None:
    error = refused({"op": "gemm", "m": 1 << 30, "n": 1, "k": 1})
    assert (error.kind, error.field) == ("limit", "workload.kernel.m")


def test_work_beyond_all_sense_is_refused() -> None:
    attention = {"op": "attention_prefill", "batch": 1 << 19, "q_len": 1 << 24, "kv_len": 1 << 24,
                 "num_heads": 64, "head_dim": 128}  # fmt: skip
    assert refused(attention).kind == "limit"


def test_a_calibration_scales_the_estimate(tmp_path: Path) -> None:
    calibration = Calibration(
        1, Scope("H100-SXM-80GB"), [Offset("gemm", math.log(1.25), 0.02, 30, dtype="bf16")]
    )
    save_calibration(calibration, tmp_path / "c.json")
    plain = answered()
    result = answered(folder=tmp_path, calibration="c.json")
    latency = result.metrics["latency_us"]
    assert result.tier == "calibrated"
    assert latency.estimate == pytest.approx(1.25 * plain.metrics["latency_us"].estimate)
    assert latency.p95 / latency.estimate == pytest.approx(math.exp(1.6449 * 0.02), rel=1e-4)
    norm = {"op": "rmsnorm", "tokens": 64, "hidden": 4096}
    assert answered(norm, folder=tmp_path, calibration="c.json") == answered(norm)


def test_a_calibration_never_beats_the_bound(tmp_path: Path) -> None:
    calibration = Calibration(1, Scope("H100-SXM-80GB"), [Offset("gemm", -4.0, 0.02, 30)])
    save_calibration(calibration, tmp_path / "c.json")
    result = answered(folder=tmp_path, calibration=["c.json"])
    assert result.metrics["latency_us"].estimate == result.bound["latency_us"]


def of_device(name: str, path: Path) -> None:
    """A calibration of a device on which products take half as long again."""
    save_calibration(Calibration(1, Scope(name), [Offset("gemm", 0.4, 0.02, 30)]), path)


def test_a_calibration_of_a_sister_chip_counts_as_far_as_it_carries_over(tmp_path: Path) -> None:
    of_device("H200-SXM-141GB", tmp_path / "c.json")
    plain, result = answered(), answered(folder=tmp_path, calibration="c.json")
    assert result.tier == "scaled"
    (remarks,) = [line for line in result.warnings if "calibration" in line]
    assert "H200-SXM-141GB" in remarks
    assert "H100-SXM-80GB" in remarks
    moved = math.log(result.metrics["latency_us"].estimate / plain.metrics["latency_us"].estimate)
    assert 0.2 < moved < 0.4
    for tier in ("cross-device", "analytic"):
        lower = answered(folder=tmp_path, calibration="c.json", tier=tier)
        assert lower.metrics == answered(tier=tier).metrics


def test_a_calibration_of_another_architecture_changes_next_to_nothing_and_that_is_said(
    tmp_path: Path,
) -> None:
    of_device("A100-SXM-80GB", tmp_path / "c.json")
    plain, result = answered(), answered(folder=tmp_path, calibration="c.json")
    moved = result.metrics["latency_us"].estimate / plain.metrics["latency_us"].estimate
    assert 0.0 <= math.log(moved) < 0.04
    (remarks,) = [line for line in result.warnings if "calibration" in line]
    assert "A100-SXM-80GB" in remarks


def test_a_calibration_of_the_device_itself_goes_first(tmp_path: Path) -> None:
    of_device("H200-SXM-141GB", tmp_path / "h200.json")
    of_device("H100-SXM-80GB", tmp_path / "h100.json")
    alone = answered(folder=tmp_path, calibration="h100.json")
    for both in (["h100.json", "h200.json"], ["h200.json", "h100.json"]):
        result = answered(folder=tmp_path, calibration=both)
        assert (result.tier, result.metrics) == ("calibrated", alone.metrics)


@pytest.mark.parametrize("device", ["MI300X", "TPU-v5p", "my board"])
def test_a_calibration_that_says_nothing_here_is_refused(tmp_path: Path, device: str) -> None:
    of_device(device, tmp_path / "c.json")
    error = refused(folder=tmp_path, calibration="c.json")
    assert error.field == "calibration"
    assert device in error.message
    assert "H100-SXM-80GB" in error.message
    assert error.hint


def test_an_allreduce_has_latency_and_bus_bandwidth() -> None:
    size, n = 1 << 28, 8
    tree = {"task": "collective", "device": "H100",
            "workload": {"op": "all_reduce", "bytes": size, "gpus": n}}  # fmt: skip
    result = run(decode(tree))
    latency, bandwidth = result.metrics["latency_us"], result.metrics["bus_bandwidth_gbs"]
    # nccl-tests: bus bandwidth = size / time x 2 (n - 1) / n
    expected = size / (latency.estimate * 1e-6) * 2 * (n - 1) / n / 1e9
    assert bandwidth.estimate == pytest.approx(expected)
    assert bandwidth.p05 <= bandwidth.estimate <= bandwidth.p95


def test_a_stated_network_counts() -> None:
    tree: dict[str, Any] = {
        "task": "collective", "device": "H100",
        "workload": {"op": "all_reduce", "bytes": 1 << 28, "gpus": 16},
    }  # fmt: skip
    slow = {**tree, "cluster": {"inter_node": {"bandwidth_gb_per_s": 5.0}}}
    assumed, stated = run(decode(tree)), run(decode(slow))
    assert stated.metrics["latency_us"].estimate > assumed.metrics["latency_us"].estimate


@pytest.mark.parametrize(
    ("library", "op", "named"),
    [
        ("deepgemm", {"op": "gemm", "m": 8, "n": 64, "k": 64}, True),
        ("triton", {"op": "gemm", "m": 8, "n": 64, "k": 64}, True),
        ("cublas", {"op": "gemm", "m": 8, "n": 64, "k": 64}, False),
        ("vllm", {"op": "gemm", "m": 8, "n": 64, "k": 64}, False),
        ("fa2", {"op": "attention_decode", "num_heads": 8, "head_dim": 64, "kv_len": 9}, False),
        ("cublas", {"op": "attention_decode", "num_heads": 8, "head_dim": 64, "kv_len": 9}, True),
        ("triton", {"op": "rmsnorm", "tokens": 8, "hidden": 64}, True),
        ("torch", {"op": "cross_entropy", "rows": 8, "vocab": 64}, False),
    ],
)
def test_a_library_without_a_model_is_named(library: str, op: dict[str, Any], named: bool) -> None:
    plain = answered(workload={"kernel": op})
    result = answered(workload={"kernel": {**op, "library": library}})
    assert any(f"library {library}" in line for line in result.warnings) is named
    if named and op["op"] != "attention_decode":
        assert result.metrics == plain.metrics


@pytest.mark.parametrize(
    ("kernel", "idle"),
    [
        ({**GEMM, "library_version": "banana", "variant": "nonsense"}, True),
        ({"op": "attention_decode", "num_heads": 8, "head_dim": 64, "kv_len": 9,
          "library_version": "banana", "variant": "nonsense", "library": "vllm"}, True),
        ({"op": "attention_prefill", "num_heads": 8, "head_dim": 128, "kv_len": 4096,
          "q_len": 4096, "variant": "triton"}, False),
    ],
)  # fmt: skip
def test_texts_that_change_nothing_are_named(kernel: dict[str, Any], idle: bool) -> None:
    lines = [line for line in answered(kernel).warnings if "changes nothing" in line]
    assert [line.split()[0] for line in lines] == ["library_version", "variant"] * idle
    assert all("banana" in line or "nonsense" in line for line in lines)


def test_a_cache_format_that_nobody_measured_is_said_and_widens() -> None:
    decode = {"op": "attention_decode", "num_heads": 32, "num_kv_heads": 8, "head_dim": 128,
              "kv_len": 4096, "batch": 16}  # fmt: skip
    known, other = (answered({**decode, "kv_dtype": name}) for name in ("fp8", "int8"))
    assert (known.domain, other.domain) == ("in", "near")
    assert any("cache in int8" in line for line in other.warnings)
    assert not any("cache in" in line for line in known.warnings)
    wide, usual = (x.metrics["latency_us"] for x in (other, known))
    assert wide.p95 / wide.estimate > usual.p95 / usual.estimate


def test_products_that_were_timed_with_the_host_are_said() -> None:
    lines = answered({**GEMM, "library": "vllm", "dtype": "fp8_block"}).warnings
    assert any("of the host" in line for line in lines)
    assert not any("of the host" in line for line in answered().warnings)


def latency(kernel: dict[str, Any], **fields: Any) -> tuple[float, float, float]:
    metric = answered(kernel, **fields).metrics["latency_us"]
    return metric.p05, metric.estimate, metric.p95


def test_scaled_products_of_sgl_kernel_are_those_of_the_scorecard() -> None:
    from silicast.hardware.catalog import find_device
    from silicast.kernels.products.gemm import Gemm
    from silicast.learning.tiers import kernel_times
    from silicast.workload.graphs.op import Op, OpBatch, Variant

    scored = Variant(dtype="fp8", library="sgl_kernel", kernel="fp8_scaled_mm")
    batch = OpBatch.from_ops([Op.make("gemm", scored, m=128, n=4096, k=4096, batch=1)])
    times = kernel_times(Gemm(), batch, find_device("H20"))
    details = {"op": "gemm", "m": 128, "n": 4096, "k": 4096, "dtype": "fp8",
    "library": "sgl_kernel",
            "variant": "fp8_scaled_mm"}  # fmt: skip
    result = answered(details, device="H20")
    assert latency(details, device="H20") == tuple(
        float(each[0]) * 1e6 for each in (times.p05_s, times.estimate_s, times.p95_s)
    )
    assert not result.warnings
    assert latency({**details, "library": "SGL-kernel"}, device="H20") == latency(
        details, device="H20"
    )
    usual = {name: value for name, value in details.items() if name not in ("library", "variant")}
    assert latency(usual, device="H20") != latency(details, device="H20")
    assert refused({**details, "library": "pipeweave"}).field == "workload.kernel.library"


def test_an_engines_product_quantises_only_where_its_format_does() -> None:
    for dtype, quantizes in (("bf16", False), ("fp8", True)):
        details = {**GEMM, "library": "vllm", "dtype": dtype}
        assert latency(details) == latency({**details, "includes_quantize": quantizes})


def test_one_size_of_a_window_is_that_of_both_sides() -> None:
    images = {"op": "conv2d", "batch": 8, "in_channels": 64, "out_channels": 64, "height": 56,
              "width": 56, "dtype": "fp32", "library": "cudnn"}  # fmt: skip
    square = latency({**images, "kernel": 3, "padding": 1}, device="V100")
    sides = {
        f"{name}_{side}": size for name, size in (("kernel", 3), ("padding", 1)) for side in "hw"
    }
    assert latency({**images, **sides}, device="V100") == square
    assert latency({**images, **sides, "kernel": 7}, device="V100") == square
    assert refused(images).field == "workload.kernel.kernel"


def test_states_of_kernels_inside_a_pass_can_be_asked_for() -> None:
    norm = {"op": "rmsnorm", "tokens": 4096, "hidden": 8192, "residual": True}
    shown = {launch: latency({**norm, "launch": launch})[1] for launch in ("profiler", "graph")}
    assert shown["profiler"] < shown["graph"]
    caches = [latency({**norm, "cache": cache})[1] for cache in ("warm", "between", "cold")]
    assert caches == sorted(caches)


def test_a_release_of_a_collective_counts() -> None:
    work = {"op": "all_reduce", "bytes": 1 << 20, "gpus": 4, "implementation": "vllm"}
    tree = {"task": "collective", "device": "H100"}
    items = [
        run(decode({**tree, "workload": {**work, **more}})).metrics["latency_us"].p95
        for more in ({}, {"implementation_version": "0.24.0"}, {"implementation_version": "0.14.0"})
    ]
    assert len(set(items)) == 3
    with pytest.raises(SilicastError, match="nccl, sglang, trtllm, vllm") as caught:
        decode({**tree, "workload": {**work, "implementation": "gloo"}})
    assert caught.value.field == "workload.implementation"


def test_a_kernel_whose_constants_are_another_library_s_is_near_what_was_measured() -> None:
    sizes = {"batch": 8, "q_len": 1, "kv_len": 2048, "num_heads": 32, "num_kv_heads": 8}
    known, borrowed = (
        answered({"op": "attention_decode", "head_dim": 128, "library": library, **sizes})
        for library in ("trtllm", "vllm_paged")
    )
    remark = "attention kernels of vllm_paged were not measured: constants of trtllm's stand in"
    assert (known.domain, borrowed.domain) == ("in", "near")
    assert remark not in known.warnings
    assert list(borrowed.warnings) == [remark]
