"""The machine that is measured, and the device of the catalog that it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, final

from silicast.hardware.device import Device


@final
@dataclass(frozen=True)
class MeasuredMachine:
    """A device that can be measured here, and its host.

    Attributes:
        kind: of device; device_name: as the driver or the operating system reports it.
        device: of the catalog or of a device file; None = not identified yet.
        cores: SMs, or physical cores that this process may use.
        memory_bytes: of the device, used or not.
        threads: that PyTorch computes with on a CPU.
        torch: its version, "" = not installed.
        dtypes: formats whose products are computed in hardware, the usual one first.
        index: of the device among those of its kind; count: number of these.
        named: the device as scenarios name it: a catalog name, or path to a file.
        host: the CPU that feeds it, as the operating system reports it.
        stack: software -> version; facts: all other facts that a session records.
        notes: remarks on the validity of times, such as a locked clock.
    """

    kind: Literal["cpu", "cuda"]
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
        """Its name in PyTorch."""
        return "cpu" if self.kind == "cpu" else f"cuda:{self.index}"
