"""What prefill and decode of attention share: the library's kernel, its constants, a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import ClassVar, final

from msgspec import structs

from silicast.hardware.device import Device
from silicast.kernels.attention.attention_kernel import AttentionKernel
from silicast.kernels.attention.attention_schemes import Scheme, scheme_for, style_of
from silicast.kernels.attention.attention_work import (
    AttentionSequences,
    column,
    compute_format,
    windows,
)
from silicast.kernels.implementation import Analysis
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.physics.device_rates import ClockedRates
from silicast.kernels.row_devices import RowDevices
from silicast.workload.graphs.op import OpBatch, Variant

ENCODER = "attention_encoder"
"""Constants of bidirectional attention without a cache, put over those of prefill."""

BORROWED = "attention kernels of {} were not measured: constants of {}'s stand in"


class AttentionBatch(ABC):
    """One batch on one device: the steps of a model, each a few array operations.

    Args:
        rates: columns of the rates, where rows differ by their clock.
    """

    decode: ClassVar[bool]

    @final
    def __init__(
        self,
        batch: OpBatch,
        device: Device,
        scheme: Scheme,
        c: Mapping[str, float],
        rates: ClockedRates | None = None,
    ) -> None:
        self.batch, self.device, self.scheme, self.c = batch, device, scheme, c
        self.rates_of_clock = rates or ClockedRates.from_device(device)
        self.causal = batch.variant.flag("causal", default=True)
        self.work = AttentionSequences.from_batch(batch, decode=self.decode)
        self.heads = column(batch, "num_heads", 1)
        self.groups = column(batch, "num_kv_heads", 1)
        self.width = column(batch, "head_dim", 128)
        self.window = windows(batch, self.work)
        self.dtype = compute_format(batch.variant.dtype)
        self.pipe = device.matrix_pipe(self.dtype)
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Decides what the analysis rests on: tiles, tasks, splits."""

    @abstractmethod
    def analysis(self) -> Analysis:
        """Time, bound, demand and features of the batch."""


class ScheduledAttention(AttentionKernel):
    """Attention whose library's kernel and schedule follow from the variant and the device."""

    @property
    @abstractmethod
    def model(self) -> type[AttentionBatch]:
        """What times a batch."""

    @final
    def constants(self, variant: Variant, device: Device) -> Mapping[str, float]:
        return attention_constants(self.family, device, scheme_for(variant, device))

    @final
    def analyse_with(self, batch: OpBatch, device: Device, c: Mapping[str, float]) -> Analysis:
        return self.model(batch, device, scheme_for(batch.variant, device), c).analysis()

    @final
    def analyse_at(self, batch: OpBatch, devices: RowDevices) -> Analysis:
        """All rows at once, with a column of each rate that differs by the clock."""
        rates = devices.beside(ClockedRates.from_device)
        return self.analyse_clocked(batch, devices.devices[0], ClockedRates(*rates))

    @final
    def clocked(self, variant: Variant, device: Device) -> ClockedRates:  # noqa: ARG002
        return ClockedRates.from_device(device)

    @final
    def analyse_clocked(self, batch: OpBatch, device: Device, record: ClockedRates) -> Analysis:
        scheme, c = scheme_for(batch.variant, device), self.constants(batch.variant, device)
        analysis = self.model(batch, device, scheme, c, record).analysis()
        return structs.replace(analysis, choice=tuple)

    @final
    def borrowed(self, variant: Variant, device: Device) -> str:
        scheme = scheme_for(variant, device)
        return BORROWED.format(scheme.library, scheme.borrows) if scheme.borrows else ""

    @final
    def style(self, variant: Variant, device: Device) -> str:
        return style_of(variant, device)


def attention_constants(group: str, device: Device, scheme: Scheme) -> Mapping[str, float]:
    """Constants of an architecture with those of the caller ("vllm.launch_cycles") put over them.

    Of an architecture without its own they are those that fit the same call with the same matrix
    instruction elsewhere ("vllm/mma.launch_cycles"). Encoders have some of their own besides:
    kernels tuned for other widths, no cache to look up.
    """
    return _constants(group, device.architecture, scheme.caller, scheme.mainloop, scheme.encoder)


@cache
def _constants(
    group: str, architecture: str, caller: str, mainloop: str, encoder: bool
) -> Mapping[str, float]:
    constants = _of_caller(group, architecture, caller, mainloop)
    if encoder and group == "attention_prefill":
        return {**constants, **_of_caller(ENCODER, architecture, caller, mainloop)}
    return constants


def _of_caller(group: str, architecture: str, caller: str, mainloop: str) -> dict[str, float]:
    every = load_physics(group).constants(architecture)
    table = {k: v for k, v in every.items() if "." not in k}
    for prefix in (f"{caller}/{mainloop}.", f"{caller}."):
        table |= {k.removeprefix(prefix): v for k, v in every.items() if k.startswith(prefix)}
    return table
