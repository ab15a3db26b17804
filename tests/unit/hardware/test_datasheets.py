"""Rates, SM counts and clocks multiply to the dense figures of the datasheets."""

from __future__ import annotations

import pytest

from silicast.hardware.catalog import device_index, find_device
from silicast.hardware.device import Device

TENSOR = [  # dense TFLOPS or TOPS, fp32 accumulation
    ("A100", "tf32", 156), ("A100", "bf16", 312), ("A100", "int8", 624), ("A100", "fp64", 19.5),
    ("A30", "bf16", 165), ("A30", "int8", 330), ("A40", "bf16", 149.7), ("A40", "int8", 299.3),
    ("RTX A6000", "bf16", 154.8), ("A10", "fp16", 125), ("A10", "int8", 250),
    ("A10G", "fp16", 70), ("A10G", "int8", 140), ("RTX 3090", "fp16", 71),
    ("H100", "tf32", 494.7), ("H100", "bf16", 989.4), ("H100", "fp8", 1978.9),
    ("H100-PCIE", "bf16", 756), ("H100-PCIE", "fp8", 1513), ("H100-NVL", "bf16", 835.5),
    ("H200", "fp8", 1978.9), ("H800", "bf16", 989.4), ("H20", "bf16", 148), ("H20", "fp8", 296),
    ("GH200", "bf16", 989), ("L4", "bf16", 121), ("L4", "fp8", 242), ("L20", "bf16", 119.5),
    ("L40", "bf16", 181), ("L40", "fp8", 362), ("L40S", "bf16", 362), ("L40S", "fp8", 724),
    ("RTX 6000 Ada", "bf16", 364.2), ("RTX 6000 Ada", "fp8", 728.5),
    ("RTX 4090", "bf16", 165.2), ("RTX 4090", "fp8", 330.3), ("RTX 4090", "int8", 660.6),
    ("B100", "bf16", 1750), ("B200", "tf32", 1125), ("B200", "bf16", 2250),
    ("B200", "fp8", 4500), ("B200", "nvfp4", 9000), ("GB200", "bf16", 2500),
    ("GB200", "nvfp4", 10000), ("B300", "fp8", 4500), ("B300", "nvfp4", 13500),
    ("GB300", "nvfp4", 15000), ("RTX PRO 6000", "bf16", 467.8), ("RTX PRO 6000", "nvfp4", 1871),
    ("RTX 5090", "bf16", 209.5), ("RTX 5090", "nvfp4", 1676), ("V100", "fp16", 125),
    ("V100-PCIE", "fp16", 112), ("T4", "fp16", 65), ("T4", "int8", 130),
    ("RTX 2080 Ti", "fp16", 53.8), ("RTX 2080 Ti", "int8", 215.2), ("A16", "fp16", 17.9),
    ("A2", "fp16", 18.1), ("RTX A5000", "fp16", 111.1), ("RTX 3080", "fp16", 59.5),
    ("RTX 5000 Ada", "fp8", 522), ("RTX 4080", "fp8", 194.9), ("RTX 5080", "nvfp4", 900.5),
    ("RTX 5070 Ti", "nvfp4", 703), ("RTX 5070", "nvfp4", 494), ("RTX 5060 Ti", "nvfp4", 379.5),
    ("GB10", "nvfp4", 500), ("H20-3e", "bf16", 148), ("RTX 5880 Ada", "fp8", 554),
    ("RTX PRO 6000 Max-Q", "nvfp4", 1755.5), ("RTX 5060", "nvfp4", 307),
    ("RTX PRO 6000 Workstation", "nvfp4", 2000),
    ("RTX 5050", "nvfp4", 210.5), ("TITAN RTX", "fp16", 130),
]  # fmt: skip
OTHER_TENSOR = [  # dense TFLOPS or TOPS of other vendors' datasheets
    ("MI100", "fp16", 184.6), ("MI100", "bf16", 92.3), ("MI100", "fp32", 46.1),
    ("MI100", "int8", 184.6), ("MI210", "bf16", 181), ("MI210", "fp64", 45.3),
    ("MI250", "bf16", 362.1 / 2), ("MI250X", "bf16", 383 / 2), ("MI300A", "bf16", 980.6),
    ("MI300X", "bf16", 1307.4), ("MI300X", "fp8", 2614.9), ("MI300X", "tf32", 653.7),
    ("MI325X", "bf16", 1307.4), ("MI350X", "bf16", 2306.9), ("MI355X", "bf16", 2516.6),
    ("MI355X", "fp8", 5033), ("MI355X", "mxfp4", 10066), ("MI455X", "bf16", 5000),
    ("MI455X", "mxfp4", 20000), ("RX 7900 XTX", "fp16", 122.9), ("Radeon PRO W7900", "fp16", 122.6),
    ("R9700", "fp16", 191), ("R9700", "fp8", 383), ("Radeon 8060S", "fp16", 59.4),
    ("RX 7900 XT", "fp16", 103), ("RX 9070 XT", "fp16", 195), ("RX 9070", "fp16", 145),
    ("RX 9060 XT", "fp16", 103), ("Arc A770", "fp16", 137.6),
    ("Arc Pro B60", "bf16", 98.3), ("Arc Pro B60", "int8", 196.6), ("Max 1100", "bf16", 355),
    ("Rubin", "bf16", 4000), ("Rubin", "fp8", 17500), ("Rubin", "nvfp4", 35000),
    ("TPU v3", "bf16", 123), ("TPU v4", "bf16", 275), ("TPU v5e", "bf16", 197),
    ("TPU v5e", "int8", 393), ("TPU v5p", "bf16", 459), ("TPU v6e", "bf16", 918),
    ("TPU v6e", "int8", 1836), ("TPU v7x", "bf16", 2307), ("TPU v7x", "fp8", 4614),
    ("Trainium1", "bf16", 190), ("Trainium1", "fp32", 47.5), ("Inferentia2", "bf16", 190),
    ("Trainium2", "bf16", 667), ("Trainium2", "fp8", 1299), ("Trainium3", "bf16", 671),
    ("Trainium3", "fp8", 2517), ("Gaudi2", "bf16", 432), ("Gaudi2", "fp8", 865),
    ("Gaudi3", "bf16", 1677), ("Gaudi3", "tf32", 459), ("Ascend 950DT", "fp16", 486),
    ("Jetson AGX Orin 64GB", "int8", 85), ("Jetson Orin Nano 8GB", "int8", 20.5),
    ("Xeon Platinum 8480+", "bf16", 298),
]  # fmt: skip
OTHER_VECTOR = [
    ("MI100", 23.1), ("MI210", 22.6), ("MI300X", 163.4), ("MI355X", 157.3),
    ("RX 7900 XTX", 61.4), ("Radeon PRO W7900", 61.3), ("MI25", 12.3), ("Vega FE", 13.1),
    ("Xeon Phi 7250", 6.09), ("Arc A770", 17.2), ("Arc Pro B60", 12.3), ("Max 1100", 22.2),
    ("RX 7800 XT", 37.3), ("RX 7700 XT", 35.2), ("RX 7600", 21.75), ("Radeon PRO W7700", 28.3),
    ("M2 Pro", 6.8), ("M3 Ultra", 28.4), ("M1", 2.6), ("M2 Max", 13.49), ("M2 Ultra", 27.2),
    ("M4 Max", 18.4),
    ("Jetson AGX Orin 64GB", 5.3), ("EPYC 9654", 9.5), ("Grace CPU", 7.4),
]  # fmt: skip
OTHER_DRAM_GB_PER_S = [
    ("MI100", 1229), ("MI210", 1638), ("MI250X", 1638), ("MI300X", 5325), ("MI355X", 8000),
    ("TPU v4", 1229), ("TPU v5p", 2765), ("TPU v6e", 1640), ("TPU v7x", 7370),
    ("Trainium2", 2900), ("Gaudi3", 3700), ("M1 Max", 409.6), ("M4 Max", 546),
    ("Max 1100", 1228.8), ("Arc Pro B60", 456), ("Radeon PRO W7900", 864), ("MI25", 484),
    ("Jetson AGX Orin 64GB", 204.8),
    ("EPYC 9654", 460.8), ("Xeon 6980P", 844.8), ("Core i9-13900K", 89.6),
    ("Core i9-10940X", 93.856), ("Core i9-12900K", 76.8), ("Ryzen 9 7950X", 83.2),
    ("Ryzen 9 5950X", 51.2), ("Threadripper 7980X", 166.4),
]  # fmt: skip
FP32 = [
    ("A100", 19.5), ("A40", 37.4), ("RTX A6000", 38.7), ("A10", 31.2), ("A10G", 35),
    ("RTX 3090", 35.6), ("L4", 30.3), ("L40", 90.5), ("RTX 6000 Ada", 91.1), ("RTX 4090", 82.6),
    ("RTX 5090", 104.8), ("RTX 5080", 56.3), ("RTX 5070 Ti", 43.9), ("RTX 5070", 30.9),
    ("RTX 5060 Ti", 23.7), ("RTX 4080", 48.7), ("RTX 4080 SUPER", 52.2),
    ("RTX 4070 Ti SUPER", 44.1), ("RTX 4070", 29.1), ("RTX 4060 Ti", 22.1), ("RTX 3090 Ti", 40),
    ("RTX 3080", 29.8), ("RTX 3070", 20.3), ("RTX 3060", 12.7), ("RTX A4000", 19.2),
    ("RTX A5000", 27.8), ("RTX 5000 Ada", 65.3), ("A2", 4.5), ("A16", 4.5),
    ("RTX 2080 Ti", 13.4), ("GTX 1080 Ti", 11.3), ("TITAN Xp", 12.1), ("TITAN X Pascal", 11),
    ("RTX 5880 Ada", 69.3), ("GTX TITAN X", 6.6), ("M40", 6.84),
    ("V100", 15.7), ("V100-PCIE", 14.0), ("T4", 8.1), ("P100-PCIE", 9.3),
    ("P100-SXM2", 10.6), ("P4", 5.7), ("P40", 11.76), ("RTX PRO 5000", 73.7),
    ("RTX 4060", 15.1), ("RTX 4070 SUPER", 35.5), ("RTX 4070 Ti", 40.1), ("RTX 3060 Ti", 16.2),
    ("RTX 4090 D", 73.5), ("RTX 3080 Ti", 34.1), ("RTX 4000 Ada", 26.7), ("RTX A4500", 23.7),
    ("RTX 5000 Ada Laptop", 42.6), ("RTX A5000 Laptop", 21.7), ("RTX 2060", 6.45),
]  # fmt: skip
FP32_AT_LARGEST_CLOCK = [("H100", 67), ("H200", 67), ("L40S", 91.6), ("B200", 75), ("GB200", 80)]
DRAM_GB_PER_S = [
    ("A100", 2039), ("A100-PCIE-80GB", 1935), ("A100-SXM-40GB", 1555), ("A30", 933),
    ("A40", 696), ("RTX A6000", 768), ("A10", 600), ("H100", 3352), ("H200", 4917),
    ("H20", 4023), ("L4", 300), ("L20", 864), ("L40S", 864), ("RTX 6000 Ada", 960),
    ("B200", 8000), ("GB300", 8000), ("RTX PRO 6000", 1792), ("V100", 900), ("T4", 320),
    ("P100", 732), ("P4", 192), ("P40", 346), ("M40", 288),
    ("GTX 1080 Ti", 484), ("TITAN Xp", 547.7),
    ("RTX 2080 Ti", 616), ("RTX 3080", 760), ("RTX 4080", 716.8), ("RTX 5080", 960),
    ("RTX 5060 Ti", 448), ("A16", 200), ("RTX A5000", 768),
    ("RTX 4060", 272), ("RTX 4070 SUPER", 504), ("RTX 5060", 448), ("RTX 5050", 320),
    ("RTX 4090 Laptop", 576), ("RTX 4080 Laptop", 432), ("RTX 4060 Laptop", 256),
    ("RTX 4050 Laptop", 192), ("RTX 5090 Laptop", 896), ("RTX 5070 Ti Laptop", 672),
    ("RTX 5060 Laptop", 384), ("RTX 3070 Laptop", 448), ("RTX 3060 Laptop", 336),
    ("RTX PRO 6000 Max-Q", 1792), ("RTX PRO 6000 Workstation", 1792),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype", "tflops"), TENSOR)
def test_tensor_peaks(name: str, dtype: str, tflops: float) -> None:
    assert find_device(name).peak_per_s("tensor", dtype) / 1e12 == pytest.approx(tflops, rel=0.011)


@pytest.mark.parametrize(("name", "dtype", "tflops"), OTHER_TENSOR)
def test_matrix_peaks_of_other_vendors(name: str, dtype: str, tflops: float) -> None:
    assert find_device(name).peak_per_s("tensor", dtype) / 1e12 == pytest.approx(tflops, rel=0.011)


@pytest.mark.parametrize(("name", "tflops"), OTHER_VECTOR)
def test_vector_peaks_of_other_vendors(name: str, tflops: float) -> None:
    assert find_device(name).peak_per_s("fma", "fp32") / 1e12 == pytest.approx(tflops, rel=0.011)


@pytest.mark.parametrize(("name", "gb_per_s"), OTHER_DRAM_GB_PER_S)
def test_memory_bandwidth_of_other_vendors(name: str, gb_per_s: float) -> None:
    assert find_device(name).dram.bandwidth_bytes_per_s / 1e9 == pytest.approx(gb_per_s, rel=1e-3)


@pytest.mark.parametrize(("name", "tflops"), FP32)
def test_fp32_peaks(name: str, tflops: float) -> None:
    assert find_device(name).peak_per_s("fma", "fp32") / 1e12 == pytest.approx(tflops, rel=0.01)


@pytest.mark.parametrize(("name", "tflops"), FP32_AT_LARGEST_CLOCK)
def test_fp32_figures_that_count_the_largest_clock(name: str, tflops: float) -> None:
    assert find_device(name).bound_per_s("fma", "fp32") / 1e12 == pytest.approx(tflops, rel=0.01)


@pytest.mark.parametrize(("name", "gb_per_s"), DRAM_GB_PER_S)
def test_memory_bandwidth(name: str, gb_per_s: float) -> None:
    assert find_device(name).dram.bandwidth_bytes_per_s / 1e9 == pytest.approx(gb_per_s, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "gb_per_s", "switched", "multicast"),
    [
        ("A100", 300, True, False), ("A800", 200, True, False), ("H100", 450, True, True),
        ("H800", 200, True, True), ("H20", 450, True, True), ("B200", 900, True, True),
        ("GB300", 900, True, True), ("V100-SXM2-16GB", 150, False, False),
        ("P100-SXM2", 80, False, False),
    ],
)  # fmt: skip
def test_nvlink(name: str, gb_per_s: float, switched: bool, multicast: bool) -> None:
    link = find_device(name).links["nvlink"]
    assert link.bandwidth_bytes_per_s == gb_per_s * 1e9
    assert (link.switched, link.multicast) == (switched, multicast)


@pytest.mark.parametrize("name", ["A40", "RTX A6000", "L40S", "L4", "RTX 6000 Ada", "H100-PCIE"])
def test_pcie_cards_have_no_nvlink_unless_a_bridge_is_fitted(name: str) -> None:
    assert "nvlink" not in find_device(name).links


def _all() -> list[Device]:
    index = device_index()
    return [index.get(name) for name in index.names]


def test_clocks_and_on_chip_memories_of_the_whole_catalog() -> None:
    for device in _all():
        assert device.clocks.base_hz <= device.clocks.boost_hz <= device.clocks.max_hz
        for level in device.memory.values():
            copies = device.cores if level.scope == "core" else 1
            rate = copies * level.bandwidth_bytes_per_s
            assert rate == 0.0 or rate >= device.dram.bandwidth_bytes_per_s
            assert level.bandwidth_bytes_per_s <= level.peak_bytes_per_s


def test_bounds_and_peaks_of_nvidia_boards() -> None:
    for device in _all():
        if device.vendor != "NVIDIA" or "pcie" not in device.links or device.core.name != "sm":
            continue
        assert device.dram.bandwidth_bytes_per_s < device.l2.bandwidth_bytes_per_s
        assert device.l2.bandwidth_bytes_per_s <= device.l2.peak_bytes_per_s
        assert device.links["pcie"].bandwidth_bytes_per_s in {8e9, 16e9, 32e9, 64e9, 128e9}
        assert device.matrix_pipe("fp32") == "fma"


def test_siblings_differ_only_where_they_should() -> None:
    h100, h200, h800 = map(find_device, ("H100", "H200", "H800"))
    assert h100.cores == h200.cores == h800.cores
    for other in (h200, h800):
        assert other.core.pipes["tensor"].rate["bf16"] == h100.core.pipes["tensor"].rate["bf16"]
        assert other.clocks == h100.clocks
    assert h100.l2.capacity_bytes == h800.l2.capacity_bytes < h200.l2.capacity_bytes


LAPTOPS = [name for name in device_index().names if name.endswith("Laptop")]


@pytest.mark.parametrize("name", LAPTOPS)
def test_laptops_state_their_range_of_power(name: str) -> None:
    board = find_device(f"NVIDIA {name.replace(' Laptop', '')} Laptop GPU")
    assert board.name == name
    assert board.power_cap_w is not None
    assert board.least_power_cap_w is not None
    assert 30 <= board.least_power_cap_w < board.power_cap_w <= 175
    assert board.default_gpus_per_node == 1


@pytest.mark.parametrize(
    ("laptop", "desktop"),
    [
        ("RTX 4090 Laptop", "RTX 4080"), ("RTX 4060 Laptop", "RTX 4060"),
        ("RTX 5080 Laptop", "RTX 5080"), ("RTX 3070 Laptop", "RTX 3070"),
    ],
)  # fmt: skip
def test_a_laptop_is_below_the_desktop_board_of_its_chip(laptop: str, desktop: str) -> None:
    small, large = find_device(laptop), find_device(desktop)
    assert small.architecture == large.architecture
    for pipe, dtype in (("tensor", "fp16"), ("fma", "fp32")):
        assert small.rate_per_core(pipe, dtype) == large.rate_per_core(pipe, dtype)
        assert small.peak_per_s(pipe, dtype) < large.peak_per_s(pipe, dtype)
    assert small.dram.bandwidth_bytes_per_s <= large.dram.bandwidth_bytes_per_s


@pytest.mark.parametrize(
    ("name", "gflops"),
    [
        ("Core i9-9900K", 8 * 32 * 4.7), ("Ryzen 9 5950X", 16 * 32 * 4.0),
        ("Ryzen 9 9950X", 16 * 64 * 5.0), ("Core i9-10940X", 14 * 64 * 4.0),
        ("Core i9-12900K", 8 * 32 * 4.9 + 8 * 16 * 3.7),
        ("Core i9-14900K", 8 * 32 * 5.6 + 16 * 16 * 4.4),
    ],
)  # fmt: skip
def test_cores_of_two_kinds_add_up(name: str, gflops: float) -> None:
    assert find_device(name).peak_per_s("fma", "fp32") / 1e9 == pytest.approx(gflops, rel=1e-3)
