from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device, load_device_file
from silicast.hardware.check import check_device
from silicast.hardware.device_file import numbers_of, source_of
from silicast.measurement.machine.cpu_facts import (
    UNKNOWN,
    Cache,
    CpuFacts,
    architecture_of,
    cpu_architectures,
    draft_cpu,
)
from silicast.measurement.machine.device_draft import Draft, MeasuredRates, with_rates
from silicast.measurement.machine.gpu_facts import GpuFacts, draft_gpu, nearest_relative
from silicast.scenario.answer import Answer
from silicast.scenario.answerer import answerer_for
from silicast.scenario.decode import decode

ZEN3 = CpuFacts(
    name="AMD EPYC", vendor="AuthenticAMD", family=25, model=1,
    flags=frozenset({"sse2", "avx", "avx2", "fma", "hypervisor"}), cores=2, logical=2,
    now_mhz=2445.432, memory_bytes=25_276_510_208, hypervisor="kvm",
    caches={1: Cache(1, 32 << 10, 2, 1), 2: Cache(2, 512 << 10, 2, 1), 3: Cache(3, 32 << 20, 1, 2)},
)  # fmt: skip
AMX = frozenset({"avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "avx512_fp16", "amx_tile",
                 "amx_bf16", "amx_int8"})  # fmt: skip
SAPPHIRE = replace(
    ZEN3, name="Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", vendor="GenuineIntel", family=6,
    model=143, flags=AMX, cores=8, logical=16,
)  # fmt: skip
GRACE = replace(
    ZEN3, name="", vendor="ARM", family=0, model=0xD4F, isa="aarch64", hypervisor="",
    flags=frozenset({"asimd", "asimddp", "asimdhp", "sve", "bf16", "i8mm"}), cores=72,
    now_mhz=None,
)  # fmt: skip
STRANGE = replace(ZEN3, name="", vendor="", family=99, model=7, caches={}, hypervisor="")
CPUS = {"zen3": ZEN3, "sapphire-rapids": SAPPHIRE, "neoverse-v2": GRACE, UNKNOWN: STRANGE}

SUPER = GpuFacts(
    "NVIDIA GeForce RTX 4070 SUPER", capability="8.9", sms=56, memory_bytes=12_600_000_000,
    l2_bytes=48 << 20, smem_bytes=100 << 10, max_mhz=3105.0, memory_mhz=10501.0, bus_bits=192,
    default_power_w=220.0, power_w=220.0, pcie_generation=4, pcie_width=16,
)  # fmt: skip
FUTURE = GpuFacts("NVIDIA X900", capability="13.0", sms=200, memory_bytes=300_000_000_000)
OLD = GpuFacts("NVIDIA GeForce 8800", capability="1.0", sms=16, memory_bytes=1_500_000_000)


@pytest.mark.parametrize("name", CPUS)
def test_a_cpu_gets_its_architecture(name: str) -> None:
    assert architecture_of(CPUS[name])[0] == name


def test_no_two_architectures_claim_a_processor() -> None:
    claimed: dict[tuple[str, int, int], str] = {}
    for name, each in cpu_architectures().items():
        for family, low, high in each.models:
            for model in range(low, high + 1):
                other = claimed.setdefault((each.vendor, family, model), name)
                assert other == name


@pytest.mark.parametrize("facts", CPUS.values(), ids=CPUS)
def test_a_cpus_draft_is_a_device(facts: CpuFacts, tmp_path: Path) -> None:
    draft = draft_cpu(facts)
    check(draft, tmp_path)
    device = draft.device
    assert device.cores == facts.cores
    assert device.execution_model == "vector_cpu"
    assert "memory.dram.bandwidth" in device.unknowns
    assert "clocks.boost" in device.unknowns


@pytest.mark.parametrize("facts", [SUPER, FUTURE, OLD], ids=["super", "future", "old"])
def test_a_gpus_draft_is_a_device(facts: GpuFacts, tmp_path: Path) -> None:
    draft = draft_gpu(facts)
    check(draft, tmp_path)
    assert draft.device.cores == facts.sms
    assert draft.device.execution_model == "simt"


def check(draft: Draft, folder: Path) -> None:
    """The file loads, every number has a source, and kernels are predicted on it."""
    assert check_device(draft.table) == []
    path = folder / "drafted.toml"
    draft.save(path)
    assert tomllib.loads(path.read_text()) == draft.table
    device = load_device_file(path)
    assert device == draft.device
    for dotted, _ in numbers_of(draft.table):
        position = dotted.removeprefix(".")
        if not position.startswith(("sources", "unknown", "compute.count")):
            assert source_of(device.sources, position), position
    tree = {"task": "kernel", "device": str(path),
            "kernel": {"op": "gemm", "m": 512, "n": 512, "k": 512, "dtype": "fp32"}}  # fmt: skip
    answer = answerer_for("kernel").answer_many([decode(tree)])[0]
    assert isinstance(answer, Answer)
    assert answer.metrics["latency_us"].estimate > answer.bound["latency_us"] > 0.0


def test_this_kind_of_virtual_machine() -> None:
    device = draft_cpu(ZEN3).device
    assert device.rate_per_core("fma", "fp32") == 32.0
    assert device.matrix_pipe("fp32") == "fma"
    assert device.clocks.base_hz == 2445.432e6
    assert device.memory["l3"].capacity_bytes == 32 << 20
    assert device.dram.capacity_bytes == pytest.approx(25_276_510_208)
    assert device.dram.bandwidth_bytes_per_s <= 8 * 3200e6 * 8
    assert device.power_cap_w is None
    assert "power.cap_w" in draft_cpu(ZEN3).text()


def test_instructions_that_a_hypervisor_hides_are_not_counted() -> None:
    seen = draft_cpu(SAPPHIRE).device
    assert seen.rate_per_core("fma", "fp32") == 64.0
    assert seen.rate_per_core("tensor", "bf16") == 2048.0
    hidden = draft_cpu(replace(SAPPHIRE, flags=frozenset({"avx2", "fma"}))).device
    assert hidden.rate_per_core("fma", "fp32") == 32.0
    assert "tensor" not in hidden.core.pipes


def test_a_known_processor_with_other_cores_keeps_its_clocks() -> None:
    relative = find_device("EPYC 7742")
    device = draft_cpu(replace(ZEN3, name="AMD EPYC 7742", model=49, family=23), relative).device
    assert device.clocks == relative.clocks
    assert device.cores == 2


def test_clocks_that_the_system_tells_count() -> None:
    clocks = draft_cpu(replace(ZEN3, base_mhz=2000.0, max_mhz=3000.0)).device.clocks
    assert (clocks.base_hz, clocks.max_hz) == (2000e6, 3000e6)
    assert clocks.boost_hz <= 3000e6


def test_measured_rates_raise_a_draft_and_never_lower_it() -> None:
    draft = draft_cpu(ZEN3)
    assert with_rates(draft, MeasuredRates(1.0, 1.0, 1.0)) == draft
    raised = with_rates(draft, MeasuredRates(80.04, 300.0, 280.0))
    assert check_device(raised.table) == []
    device = raised.device
    assert device.dram.bandwidth_bytes_per_s >= 80.04e9
    assert device.memory["l3"].bandwidth_bytes_per_s >= 300e9
    assert device.clocks.max_hz * device.cores * 32.0 >= 280e9
    remark = source_of(device.sources, "memory.dram.bandwidth_gb_per_s")
    assert remark.startswith("measured")
    assert "51.2" in remark
    assert device.clocks.boost_hz == draft.device.clocks.boost_hz


def test_a_rate_beyond_any_clock_is_said() -> None:
    raised = with_rates(draft_cpu(ZEN3), MeasuredRates(product_gflops=5000.0))
    assert check_device(raised.table) == []
    assert any("5000" in note for note in raised.notes)


def test_memory_of_a_gpu_is_clock_times_width() -> None:
    device = draft_gpu(SUPER).device
    assert device.dram.bandwidth_bytes_per_s == pytest.approx(504e9, rel=1e-3)
    assert device.power_cap_w == 220.0
    assert "memory.dram.bandwidth" not in device.unknowns
    assert "memory.l2.bandwidth" in device.unknowns
    assert device.links["pcie"].bandwidth_bytes_per_s == 32e9
    assert not device.links["pcie"].peer_access


def test_a_gpu_takes_after_its_own_kind() -> None:
    consumer = nearest_relative(SUPER)
    assert "GeForce" in " ".join(consumer.aliases)
    assert consumer.compute_capability == "8.9"
    server = nearest_relative(replace(SUPER, name="NVIDIA L21"))
    assert "GeForce" not in " ".join(server.aliases)


def test_a_capability_between_others_takes_the_one_below() -> None:
    assert nearest_relative(replace(SUPER, capability="9.9")).compute_capability == "9.0"
    assert nearest_relative(OLD).compute_capability == "5.2"


def test_rates_of_an_unknown_capability_are_unknown() -> None:
    device = draft_gpu(FUTURE).device
    assert "compute.children.pipes.tensor" in device.unknowns
    assert "memory.dram.bandwidth" in device.unknowns
    assert device.compute_capability == ""


def test_a_gpu_without_multiprocessors_is_refused() -> None:
    with pytest.raises(SilicastError, match="multiprocessors"):
        draft_gpu(replace(SUPER, sms=0))


def test_text_survives_odd_names() -> None:
    draft = draft_cpu(replace(ZEN3, name='Odd "name" \\ µ'))
    table = tomllib.loads(draft.text())
    assert table == msgspec.to_builtins(draft.table)
