"""The machine at hand: what is measured on it, and which device of the catalog it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, final

from silicast.hardware.device import Device

Kind = Literal["cpu", "cuda"]


@final
@dataclass(frozen=True)
class Machine:
    """A device that can be measured here, and its host.

    Attributes:
        kind: what runs on it; device_name: what the driver or the system calls it.
        device: of the catalog or of a device file; None = it is not known yet.
        cores: SMs, or physical cores that this process may use.
        memory_bytes: of the device, whoever uses it.
        threads: that PyTorch computes with on a CPU.
        torch: its version, "" = not installed.
        dtypes: formats whose products it computes in hardware, the usual first.
        index: of the device among those of its kind; count: how many of them there are.
        named: what a scenario calls the device: a catalog name, or a path to a file.
        host: the CPU that feeds it, as the system calls it.
        stack: software -> version; facts: everything else that was read, for the record.
        notes: what a reader of the times should know, such as a clock that is locked.
    """

    kind: Kind
    device_name: str
    device: Device | None
    cores: int
    memory_bytes: int
    threads: int = 1
    torch: str = ""
    dtypes: tuple[str, ...] = ("fp32",)
    index: int = 0
    count: int = 1
    named: str = ""
    host: str = ""
    stack: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def torch_device(self) -> str:
        """Its name for PyTorch."""
        return "cpu" if self.kind == "cpu" else f"cuda:{self.index}"
