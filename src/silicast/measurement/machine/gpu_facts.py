"""Properties of a GPU as PyTorch and nvidia-smi report them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, final

from silicast.measurement.machine.nvidia_smi import Query, nvidia_smi, other_processes

_FIELDS = (
    "driver_version", "clocks.max.sm", "clocks.max.memory", "clocks.applications.graphics",
    "clocks.default_applications.graphics", "power.limit", "power.default_limit",
    "pcie.link.gen.max", "pcie.link.width.max", "mig.mode.current", "ecc.mode.current",
    "persistence_mode", "memory.total",
)  # fmt: skip


@final
@dataclass(frozen=True)
class GpuFacts:
    """A GPU; 0, None or "" = not reported.

    Attributes:
        capability: compute capability ("9.0"); sms: multiprocessors.
        memory_bytes: of the board; free_bytes: unused when read.
        smem_bytes: shared memory of one multiprocessor.
        max_mhz: largest clock of its multiprocessors; memory_mhz, bus_bits: of its memory, whose
            data rate is twice the clock.
        power_w: power limit that is set; default_power_w: the board's own.
        set_mhz: application clock where one is set.
        others: other processes that compute on it, as "name (pid)".
    """

    name: str
    index: int = 0
    count: int = 1
    uuid: str = ""
    capability: str = ""
    sms: int = 0
    memory_bytes: int = 0
    free_bytes: int = 0
    l2_bytes: int = 0
    smem_bytes: int = 0
    max_mhz: float | None = None
    memory_mhz: float | None = None
    bus_bits: int = 0
    power_w: float | None = None
    default_power_w: float | None = None
    set_mhz: float | None = None
    pcie_generation: int = 0
    pcie_width: int = 0
    driver: str = ""
    cuda: str = ""
    mig: bool = False
    ecc: bool = False
    others: tuple[str, ...] = ()

    @property
    def memory_gb_per_s(self) -> float:
        """Bandwidth by clock and width of the bus; 0 where they are not reported."""
        return 2.0 * (self.memory_mhz or 0.0) * 1e6 * self.bus_bits / 8 / 1e9

    def table(self) -> dict[str, object]:
        """What a session records: nothing that changes from run to run."""
        table: dict[str, object] = {
            "gpu": self.name, "uuid": self.uuid, "compute_capability": self.capability,
            "multiprocessors": self.sms, "memory_bytes": self.memory_bytes,
            "l2_bytes": self.l2_bytes, "shared_memory_bytes": self.smem_bytes,
            "max_clock_mhz": self.max_mhz, "memory_clock_mhz": self.memory_mhz,
            "memory_bus_bits": self.bus_bits or None, "power_limit_w": self.power_w,
            "default_power_limit_w": self.default_power_w, "application_clock_mhz": self.set_mhz,
            "mig": self.mig, "ecc": self.ecc,
        }  # fmt: skip
        return {name: value for name, value in table.items() if value not in {None, ""}}

    def notes(self) -> tuple[str, ...]:
        """What about its state makes times doubtful or unusual."""
        items = []
        if self.others:
            items.append(f"other processes compute on it: {', '.join(self.others)}")
        used = self.memory_bytes - self.free_bytes
        if self.free_bytes and not self.others and used > 0.05 * self.memory_bytes + (1 << 30):
            items.append(f"{used / 1e9:.1f} GB of its memory are in use by invisible processes")
        if self.set_mhz is not None:
            items.append(f"its application clock is set to {self.set_mhz:.0f} MHz")
        power, default = self.power_w, self.default_power_w
        if power is not None and default is not None and abs(power - default) > 1.0:
            items.append(f"its power limit is set to {power:.0f} W, the board's is {default:.0f} W")
        if self.mig:
            items.append("it is partitioned (MIG): only one part of it is measured")
        return tuple(items)


def read_gpu(index: int = 0, query: Query = nvidia_smi) -> GpuFacts:
    """Properties of a GPU.

    Args:
        index: among those that PyTorch sees; query: replaces nvidia-smi.
    """
    import torch

    properties, free = torch.cuda.get_device_properties(index), 0
    with suppress(RuntimeError):
        free, _ = torch.cuda.mem_get_info(index)
    count, cuda = torch.cuda.device_count(), str(torch.version.cuda or "")
    return gpu_facts(properties, index, count, query, free, cuda)


def gpu_facts(
    properties: Any, index: int, count: int, query: Query, free_bytes: int, cuda: str
) -> GpuFacts:
    """Combines PyTorch's properties of a GPU with nvidia-smi's fields."""
    uuid = str(getattr(properties, "uuid", "") or "")
    uuid = uuid if not uuid or uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    reported = _query_fields(query, uuid or str(index))

    def number(field: str) -> float | None:
        with suppress(ValueError):
            return float(reported.get(field, ""))
        return None

    def whole(name: str) -> int:
        return int(getattr(properties, name, 0) or 0)

    wanted = number("clocks.applications.graphics")
    usual = number("clocks.default_applications.graphics")
    return GpuFacts(
        name=str(properties.name),
        index=index,
        count=count,
        uuid=uuid,
        capability=f"{properties.major}.{properties.minor}",
        sms=whole("multi_processor_count"),
        memory_bytes=whole("total_memory"),
        free_bytes=free_bytes,
        l2_bytes=whole("L2_cache_size") or whole("l2_cache_size"),
        smem_bytes=whole("shared_memory_per_multiprocessor"),
        max_mhz=number("clocks.max.sm") or (whole("clock_rate") * 1e-3 or None),
        memory_mhz=number("clocks.max.memory") or (whole("memory_clock_rate") * 1e-3 or None),
        bus_bits=whole("memory_bus_width"),
        power_w=number("power.limit"),
        default_power_w=number("power.default_limit"),
        set_mhz=wanted if wanted and usual and wanted != usual else None,
        pcie_generation=int(number("pcie.link.gen.max") or 0),
        pcie_width=int(number("pcie.link.width.max") or 0),
        driver=reported.get("driver_version", ""),
        cuda=cuda,
        mig=reported.get("mig.mode.current") == "Enabled" or uuid.startswith("MIG-"),
        ecc=reported.get("ecc.mode.current") == "Enabled",
        others=other_processes(uuid or str(index), query),
    )


def _query_fields(query: Query, gpu: str) -> Mapping[str, str]:
    """Fields of nvidia-smi, queried one by one where it does not know all of them."""

    def ask(*fields: str) -> dict[str, str]:
        text = query(
            (f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", "-i", gpu)
        )
        values = [value.strip() for value in text.strip().split(",")]
        return dict(zip(fields, values, strict=True)) if len(values) == len(fields) else {}

    query_fields = ask(*_FIELDS)
    if query_fields or not query(("-L",)):
        return query_fields
    return {name: value for field in _FIELDS for name, value in ask(field).items()}
