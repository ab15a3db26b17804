"""Identifies the machine at hand, and the device of the catalog that it is."""

from __future__ import annotations

import importlib.util
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, final

from silicast.core.errors import SilicastError, unsupported
from silicast.core.packages import missing_package
from silicast.hardware.catalog import device_index, find_device
from silicast.hardware.device import Device
from silicast.hardware.index import device_names
from silicast.measurement.machine.cpu_facts import CpuFacts, draft_cpu, plain_name, read_cpu
from silicast.measurement.machine.device_draft import Draft
from silicast.measurement.machine.gpu_facts import GpuFacts, draft_gpu, read_gpu
from silicast.measurement.machine.measured_machine import MeasuredMachine

AUTO = "auto"
_CUDA = re.compile(r"(?:cuda|gpu)(?::(\d+))?", re.IGNORECASE)
_DIGIT = re.compile(r"\d")
_MEMORY_SLACK = 0.06
"""Share of a board's memory that firmware and page tables may take."""


@final
@dataclass(frozen=True)
class IdentifiedMachine:
    """The machine, and a draft of its device file if the catalog does not contain it."""

    machine: MeasuredMachine
    draft: Draft | None = None

    @property
    def device(self) -> Device:
        """Of the catalog, of the user's file, or as drafted."""
        device = self.machine.device or (self.draft.device if self.draft else None)
        assert device is not None
        return device


def find_machine(wanted: str = AUTO, *, need_torch: bool = True) -> IdentifiedMachine:
    """The machine at hand.

    Args:
        wanted: "auto" (the first GPU, else the CPU), "cpu", "cuda:0", or the name or file of the
            device that it is.
        need_torch: raise an error without PyTorch, which all measurements need.

    Raises:
        SilicastError: no PyTorch, no such GPU, or a device that is neither known nor a file.
    """
    has_torch = importlib.util.find_spec("torch") is not None
    if need_torch and not has_torch:
        raise missing_package("torch", "measuring")
    gpus = _gpus() if has_torch else 0
    named = _CUDA.fullmatch(wanted)
    if wanted == "cpu" or (wanted == AUTO and not gpus):
        return cpu_machine(read_cpu())
    if named or wanted == AUTO:
        index = int(named[1] or 0) if named else 0
        if index >= gpus:
            raise SilicastError(_no_gpu(index, gpus), field="--device", hint="--device cpu")
        return gpu_machine(read_gpu(index))
    return _stated(wanted, gpus)


def _stated(wanted: str, gpus: int) -> IdentifiedMachine:
    """The machine as the device that the user names."""
    device = find_device(wanted)
    name = wanted if wanted.endswith(".toml") else device.name
    is_cpu = device.execution_model == "vector_cpu"
    if not is_cpu and not gpus:
        raise SilicastError(
            f"{device.name} is no CPU, and {_no_gpu(0, 0)}", field="--device", hint="--device cpu"
        )
    machine = (cpu_machine(read_cpu()) if is_cpu else gpu_machine(read_gpu(0))).machine
    notes = list(machine.notes)
    if machine.device is not None and machine.device != device:
        notes.append(f"named {device.name}, but it reports itself as {machine.device.name}")
    if device.cores != machine.cores:
        notes.append(f"{device.name} has {device.cores} cores, this machine {machine.cores}")
    return IdentifiedMachine(replace(machine, device=device, named=name, notes=tuple(notes)))


def cpu_machine(facts: CpuFacts) -> IdentifiedMachine:
    """The machine as a CPU."""
    notes = []
    if facts.quota is not None and facts.quota < facts.cores:
        notes.append(f"its control group allows {facts.quota:g} of {facts.cores} cores")
    if facts.governor not in {"", "performance"}:
        notes.append(f"its clock governor is {facts.governor}: times drift as clocks follow load")
    device, relative = catalog_cpu(facts)
    machine = _machine(
        "cpu", facts.name, device, facts.cores, facts.memory_bytes, facts.name, facts.table(),
        notes, threads=facts.cores, dtypes=_cpu_dtypes(facts),
    )  # fmt: skip
    return IdentifiedMachine(machine, None if device else draft_cpu(facts, relative))


def catalog_cpu(facts: CpuFacts) -> tuple[Device | None, Device | None]:
    """The processor of the catalog that a CPU is, or else one of its name with other cores.

    A name without a number ("AMD EPYC", as virtual machines report) identifies no processor.
    """
    words = plain_name(facts.name)
    names = device_names()
    for name in (words, words.partition(" ")[2]):
        if name in names and _DIGIT.search(name):
            device = find_device(name)
            if device.execution_model != "vector_cpu":
                continue
            whole = facts.cores == device.cores and facts.sockets == 1
            return (device, None) if whole else (None, device)
    return None, None


def gpu_machine(facts: GpuFacts) -> IdentifiedMachine:
    """The machine as a GPU."""
    device, host = catalog_gpu(facts), read_cpu()
    machine = _machine(
        "cuda", facts.name, device, facts.sms, facts.memory_bytes, host.name,
        facts.table() | {"host": host.table()}, facts.notes(), dtypes=_gpu_dtypes(facts.capability),
        index=facts.index, count=facts.count,
    )  # fmt: skip
    stack = {**machine.stack, "driver": facts.driver, "cuda": facts.cuda}
    return IdentifiedMachine(replace(machine, stack=stack), None if device else draft_gpu(facts))


def _machine(
    kind: Literal["cpu", "cuda"],
    device_name: str,
    device: Device | None,
    cores: int,
    memory_bytes: int,
    host: str,
    facts: dict[str, object],
    notes: Sequence[str],
    *,
    threads: int = 1,
    dtypes: tuple[str, ...],
    index: int = 0,
    count: int = 1,
) -> MeasuredMachine:
    """With the software that affects times."""
    stack = {"python": platform.python_version(), "os": f"{platform.system()} {platform.release()}"}
    for package in ("silicast", "torch", "triton", "flash-attn", "numpy"):
        try:
            stack[package] = version(package)
        except PackageNotFoundError:
            continue
    torch: Any = _torch()
    threads = torch.get_num_threads() if torch else threads
    if torch and kind == "cpu":
        facts = facts | {"torch_threads": threads}
    return MeasuredMachine(
        kind, device_name, device, cores, memory_bytes, threads,
        str(torch.__version__) if torch else "", dtypes, index, count,
        device.name if device else "", host, stack, facts, tuple(notes),
    )  # fmt: skip


def catalog_gpu(facts: GpuFacts) -> Device | None:
    """The device of the catalog that has a GPU's name or chip, and agrees with its numbers."""
    if facts.mig:
        return None
    plain = " ".join(re.sub(r"\b(?:NVIDIA|Tesla|Generation)\b", " ", facts.name).split())
    index = device_index()
    for name in (facts.name, plain):
        if name in index and _agrees(index.get(name), facts):
            return index.get(name)
    chip = next((word for word in re.split(r"[\s-]+", plain) if _DIGIT.search(word)), "")
    like = [
        device
        for device in map(index.get, index.names)
        if device.vendor == "NVIDIA"
        and _agrees(device, facts)
        and chip.casefold() in re.split(r"[\s-]+", device.name.casefold())
    ]
    power = facts.default_power_w or facts.power_w

    def distance(device: Device) -> tuple[float, int]:
        away = abs((device.power_cap_w or 0.0) - power) if power else 0.0
        return away, index.names.index(device.name)

    return min(like, key=distance, default=None)


def _agrees(device: Device, facts: GpuFacts) -> bool:
    memory = device.dram.capacity_bytes
    return (
        device.cores == facts.sms
        and device.compute_capability == facts.capability
        and abs(facts.memory_bytes / memory - 1.0) <= _MEMORY_SLACK
    )


def draft_path(measurements: Path) -> Path:
    """Path of the drafted device file beside a file of measurements."""
    return measurements.with_name(f"{measurements.name.removesuffix('.jsonl')}.device.toml")


def _torch() -> Any:
    if importlib.util.find_spec("torch") is None:
        return None
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a shared library that does not load
        raise unsupported(
            f"PyTorch is installed, but cannot be loaded: {str(error)[:200]}",
            hint="does `python -c 'import torch'` work?",
        ) from None
    return torch


def _gpus() -> int:
    torch = _torch()
    if torch.version.hip:
        raise unsupported(
            "this PyTorch is built for AMD GPUs, which are not measured yet",
            "--device",
            "--device cpu",
        )
    return int(torch.cuda.device_count()) if torch.cuda.is_available() else 0


def _no_gpu(index: int, count: int) -> str:
    torch = _torch()
    if count:
        return f"PyTorch sees {count} GPU{'s' if count > 1 else ''}, there is no cuda:{index}"
    if torch is not None and torch.version.cuda is None:
        return "the installed PyTorch is the CPU build and sees no GPU"
    return "PyTorch sees no GPU: is the driver loaded (nvidia-smi), is CUDA_VISIBLE_DEVICES empty?"


def _cpu_dtypes(facts: CpuFacts) -> tuple[str, ...]:
    """Formats of products that have instructions of their own, fp32 first."""
    flags = facts.flags
    bf16 = flags & {"avx512_bf16", "amx_bf16", "bf16"}
    fp16 = flags & {"avx512_fp16", "amx_fp16"}
    return ("fp32", *(("bf16",) if bf16 else ()), *(("fp16",) if fp16 else ()))


def _gpu_dtypes(capability: str) -> tuple[str, ...]:
    """Formats of products by compute capability, the most usual one first.

    >>> _gpu_dtypes("7.5"), _gpu_dtypes("9.0")
    (('fp16', 'int8', 'fp32'), ('bf16', 'fp16', 'fp8', 'tf32', 'int8', 'fp32'))
    """
    level = float(capability or 0.0)
    since = {"bf16": 8.0, "fp16": 7.0, "fp8": 8.9, "tf32": 8.0, "int8": 7.5}
    return (*(name for name, first in since.items() if level >= first), "fp32")
