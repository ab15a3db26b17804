from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.measurement.machine import identify
from silicast.measurement.machine.cpu_facts import CpuFacts
from silicast.measurement.machine.gpu_facts import GpuFacts, gpu_facts
from silicast.measurement.machine.identify import (
    catalog_cpu,
    catalog_gpu,
    cpu_machine,
    find_machine,
)
from silicast.measurement.machine.identify import gpu_machine as as_gpu

H200 = {
    "driver_version": "570.1", "clocks.max.sm": "1980", "clocks.max.memory": "3201",
    "clocks.applications.graphics": "1980", "clocks.default_applications.graphics": "1980",
    "power.limit": "700.00", "power.default_limit": "700.00", "pcie.link.gen.max": "5",
    "pcie.link.width.max": "16", "mig.mode.current": "Disabled", "ecc.mode.current": "Enabled",
    "persistence_mode": "Enabled", "memory.total": "143771",
}  # fmt: skip
PROPERTIES = SimpleNamespace(
    name="NVIDIA H200", major=9, minor=0, multi_processor_count=132, total_memory=150_121_283_584,
    L2_cache_size=62_914_560, shared_memory_per_multiprocessor=233_472, uuid="1-2-3",
    memory_bus_width=6144,
)  # fmt: skip


class Smi:
    """Stands for nvidia-smi."""

    def __init__(self, fields: dict[str, str], apps: str = "", refuses: str = "") -> None:
        self.fields, self.apps, self.refuses = fields, apps, refuses

    def __call__(self, arguments: Sequence[str]) -> str:
        if arguments[0] == "-L":
            return "GPU 0: NVIDIA H200\n"
        kind, _, names = arguments[0].partition("=")
        if kind == "--query-compute-apps":
            return self.apps
        assert arguments[-1] == "GPU-1-2-3"
        wanted = names.split(",")
        if self.refuses in wanted:
            return ""
        return ", ".join(self.fields[name] for name in wanted) + "\n"


def facts(smi: Smi | None = None, free: int = 149_000_000_000) -> GpuFacts:
    return gpu_facts(PROPERTIES, 0, 1, smi or Smi(H200), free, "12.8")


def test_reads_a_gpu() -> None:
    result = facts()
    assert (result.name, result.capability, result.sms) == ("NVIDIA H200", "9.0", 132)
    assert result.memory_gb_per_s == pytest.approx(4916.7, abs=0.1)
    assert (result.max_mhz, result.power_w, result.driver) == (1980.0, 700.0, "570.1")
    assert result.ecc
    assert not result.mig
    assert result.notes() == ()
    assert "free_bytes" not in result.table()


def test_fields_that_a_driver_does_not_know_are_left_out() -> None:
    result = facts(Smi(H200, refuses="mig.mode.current"))
    assert result.max_mhz == 1980.0
    assert not result.mig


def test_a_gpu_without_nvidia_smi() -> None:
    result = gpu_facts(PROPERTIES, 0, 1, lambda _: "", 0, "12.8")
    assert (result.max_mhz, result.power_w, result.others) == (None, None, ())
    assert result.memory_gb_per_s == 0.0
    assert catalog_gpu(result) is not None


def test_other_processes_are_noted_and_this_one_is_not() -> None:
    smi = Smi(H200, apps=f"{os.getpid()}, python\n4242, /usr/bin/other\n")
    assert "other processes compute on it: /usr/bin/other (4242)" in facts(smi).notes()


def test_one_process_that_may_be_this_one_is_not_another() -> None:
    assert facts(Smi(H200, apps="4242, python\n")).others == ()


@pytest.mark.parametrize(
    ("capability", "formats"),
    [
        ("6.1", ("fp32",)),
        ("7.0", ("fp16", "fp32")),
        ("7.5", ("fp16", "int8", "fp32")),
        ("8.0", ("bf16", "fp16", "tf32", "int8", "fp32")),
        ("8.9", ("bf16", "fp16", "fp8", "tf32", "int8", "fp32")),
    ],
)
def test_formats_of_a_gpu(capability: str, formats: tuple[str, ...]) -> None:
    assert as_gpu(replace(facts(), capability=capability)).machine.dtypes == formats


def test_memory_in_use_by_the_unseen_is_noted() -> None:
    assert "invisible processes" in facts(free=100_000_000_000).notes()[0]


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("clocks.applications.graphics", "1200", "application clock is set to 1200 MHz"),
        ("power.limit", "400.00", "power limit is set to 400 W"),
        ("mig.mode.current", "Enabled", "MIG"),
    ],
)
def test_settings_are_noted(field: str, value: str, says: str) -> None:
    (note,) = facts(Smi({**H200, field: value})).notes()
    assert says in note


@pytest.mark.parametrize(
    ("name", "capability", "sms", "memory", "known"),
    [
        ("NVIDIA H200", "9.0", 132, 150.1e9, "H200-SXM-141GB"),
        ("NVIDIA H100 80GB HBM3", "9.0", 132, 85.0e9, "H100-SXM-80GB"),
        ("NVIDIA H100 PCIe", "9.0", 114, 85.0e9, "H100-PCIE-80GB"),
        ("NVIDIA A100-SXM4-80GB", "8.0", 108, 85.1e9, "A100-SXM-80GB"),
        ("NVIDIA GeForce RTX 4090", "8.9", 128, 25.4e9, "RTX 4090"),
        ("Tesla V100-SXM2-16GB", "7.0", 80, 16.9e9, "V100-SXM2-16GB"),
        ("NVIDIA L4", "8.9", 58, 23.6e9, "L4"),
        ("NVIDIA H200", "9.0", 60, 75.0e9, ""),  # half of one
        ("NVIDIA GeForce RTX 4070 SUPER", "8.9", 56, 12.6e9, "RTX 4070 SUPER"),
        ("NVIDIA X900", "13.0", 200, 300e9, ""),
    ],
)
def test_gpus_of_the_catalog(
    name: str, capability: str, sms: int, memory: float, known: str
) -> None:
    gpu = GpuFacts(name, capability=capability, sms=sms, memory_bytes=int(memory))
    result = catalog_gpu(gpu)
    assert (result.name if result else "") == known
    assert (as_gpu(gpu).draft is None) == bool(known)


def test_a_divided_gpu_is_none_of_the_catalog() -> None:
    assert catalog_gpu(replace(facts(), mig=True)) is None


@pytest.mark.parametrize(
    ("name", "cores", "whole", "relative"),
    [
        ("AMD EPYC 7742 64-Core Processor", 64, "EPYC 7742", ""),
        ("AMD EPYC 7742 64-Core Processor", 4, "", "EPYC 7742"),
        ("Intel(R) Xeon(R) Platinum 8480+", 56, "Xeon Platinum 8480+", ""),
        ("Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz", 40, "Xeon Platinum 8380", ""),
        ("AMD EPYC", 96, "", ""),  # an alias of the EPYC 9654, but no name of one processor
        ("Intel Xeon Processor", 56, "", ""),
        ("Intel(R) Core(TM) i7-9700K CPU @ 3.60GHz", 8, "", ""),
        ("", 8, "", ""),
    ],
)
def test_cpus_of_the_catalog(name: str, cores: int, whole: str, relative: str) -> None:
    cpu = CpuFacts(name, cores=cores, memory_bytes=1 << 34, flags=frozenset({"avx2", "fma"}))
    device, like = catalog_cpu(cpu)
    assert (device.name if device else "", like.name if like else "") == (whole, relative)
    assert (cpu_machine(cpu).draft is None) == bool(whole)


def test_two_sockets_are_not_one_device() -> None:
    cpu = CpuFacts("AMD EPYC 7742 64-Core Processor", cores=64, sockets=2, memory_bytes=1 << 34)
    assert catalog_cpu(cpu)[0] is None


def test_what_disturbs_a_cpu_is_noted() -> None:
    cpu = CpuFacts("x", cores=8, quota=1.5, governor="powersave", memory_bytes=1 << 34)
    notes = cpu_machine(cpu).machine.notes
    assert any("1.5 of 8 cores" in note for note in notes)
    assert any("powersave" in note for note in notes)


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> Any:
        return None if name == "torch" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(SilicastError, match="PyTorch") as raised:
        find_machine()
    assert raised.value.hint == "pip install 'silicast[torch]'"
    assert find_machine(need_torch=False).machine.kind == "cpu"


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identify, "_gpus", lambda: 0)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("wanted", ["cuda", "cuda:1", "gpu"])
def test_without_a_gpu_none_can_be_asked_for(wanted: str) -> None:
    with pytest.raises(SilicastError, match="GPU"):
        find_machine(wanted, need_torch=False)


@pytest.mark.usefixtures("no_gpu")
def test_a_device_that_is_stated() -> None:
    machine = find_machine("EPYC 7742", need_torch=False)
    assert machine.draft is None
    assert machine.machine.named == "EPYC 7742"
    assert any("64 cores" in note for note in machine.machine.notes)
    with pytest.raises(SilicastError, match="is no CPU"):
        find_machine("H100", need_torch=False)
    with pytest.raises(SilicastError, match="unknown device"):
        find_machine("EPIC 7742x", need_torch=False)


@pytest.mark.usefixtures("no_gpu")
def test_a_device_file_that_is_stated(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    draft = find_machine("cpu", need_torch=False).draft
    if draft is None:
        pytest.skip("this machine is in the catalog")
    draft.save(path)
    machine = find_machine(str(path), need_torch=False).machine
    assert machine.named == str(path)
    assert machine.device == draft.device


def test_a_torch_that_does_not_load_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "torch"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('libcudart.so is missing')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(SilicastError, match="cannot be loaded: libcudart"):
        find_machine()
