"""Ops over rows: one fused kernel in engines, a chain of passes where a framework, its compiler or
kernels written by hand for training run them. The library says which.

A fused forward pass, and a framework's operator that is one kernel, are streams
(:mod:`silicast.kernels.movement.streaming`); everything else is a chain
(:mod:`silicast.kernels.rows.chain_model`). What an op must move is the same for all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, final

from silicast.hardware.device import Device
from silicast.kernels.implementation import Analysis
from silicast.kernels.movement.streaming import Sizes, Streamed
from silicast.kernels.movement.streaming_rates import StreamingRates
from silicast.kernels.row_devices import RowDevices
from silicast.kernels.rows.chain_model import (
    BOTH,
    BY_HAND,
    COMPILED,
    EAGER,
    FUSED,
    ChainedKernel,
    Least,
)
from silicast.workload.graphs.op import OpBatch, Variant

CHAINED = frozenset((EAGER, COMPILED, BY_HAND))
"""Styles of libraries that run a chain; all others have the fused kernel."""


@final
class Gradient(NamedTuple):
    """What a gradient must move and compute at least; integers or arrays of shape (n,).

    Attributes:
        read, written: bytes.
        flops: operations.
        between: bytes that one of both directions writes, whichever.
    """

    read: Any
    written: Any
    flops: Any
    between: Any = 0


class RowKernel(ChainedKernel, Streamed):
    """A family with a fused kernel and chains; subclasses state the stream and the passes.

    Class attributes:
        is_operator: frameworks have the forward pass as one operator.
        fuses_gradient: the fused kernel computes the gradient along, if both are asked for.
    """

    is_operator: ClassVar[bool] = False
    fuses_gradient: ClassVar[bool] = False

    @abstractmethod
    def gradient(self, sizes: Sizes, variant: Variant) -> Gradient:
        """What the backward pass must move and compute."""

    @final
    def least(self, sizes: Sizes, variant: Variant) -> Least:
        """Operands and results of either direction, each once."""
        stream, back = self.stream(sizes, forward_of(variant)), self.gradient(sizes, variant)
        return Least(
            stream.read_bytes,
            stream.write_bytes,
            back.read,
            back.written,
            stream.flops,
            back.flops,
            back.between,
        )

    def provider(self, variant: Variant) -> str:
        """Whose kernels a variant's library runs: a style of chains, or the fused kernel."""
        style = self.kernel_style(variant)
        return style if style in CHAINED else FUSED

    @final
    def is_stream(self, variant: Variant) -> bool:
        """Whether a call is one kernel, whose time the streaming model says. Where a benchmark
        flushes the cache before a call, that hides the host, which chains say.
        """
        alone = self.provider(variant) == FUSED or self.runs_operator(variant)
        flushed = variant.launch == "stream" and variant.cache == "cold"
        return alone and self.has_stream(variant) and not flushed

    @final
    def has_stream(self, variant: Variant) -> bool:
        """Whether the stream is all that a variant asks for."""
        direction = self.direction(variant)
        return not direction.backward or (direction.forward and self.fuses_gradient)

    @final
    def runs_operator(self, variant: Variant) -> bool:
        """Whether a framework runs the forward pass as one operator."""
        return self.is_operator and self.provider(variant) == EAGER

    def style(self, variant: Variant, device: Device) -> str:
        """Of fused kernels scalar or vectorised, where a family has both; else of the chain."""
        if self.is_stream(variant):
            return Streamed.style(self, variant, device)
        return self.provider(variant)

    @final
    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        if self.is_stream(batch.variant):
            return self.streamed(batch, device)
        return self.analyse_with(batch, device, self.constants(device))

    @final
    def clocked(self, variant: Variant, device: Device) -> StreamingRates | None:
        """Of one kernel; chains ask the device."""
        return super().clocked(variant, device) if self.is_stream(variant) else None

    @final
    def analyse_at(self, batch: OpBatch, devices: RowDevices) -> Analysis:
        """One kernel for all rows at once; chains clock by clock."""
        if self.is_stream(batch.variant):
            return self.streamed_at(batch, devices)
        return super().analyse_at(batch, devices)

    @final
    def shared_log_sd(self, variant: Variant, device: Device) -> Mapping[str, float]:
        kind = Streamed if self.is_stream(variant) else ChainedKernel
        return kind.shared_log_sd(self, variant, device)

    @final
    def measured_as(self, variant: Variant) -> str:
        """See :meth:`Implementation.measured_as`: boards are listed by their fused kernels."""
        return self.family if self.is_stream(variant) else f"chain of {self.family}"

    @final
    def is_measured(self, variant: Variant, device: Device) -> bool:
        """Whether the fused kernel, or chains, were measured on the device's architecture."""
        kind = Streamed if self.is_stream(variant) else ChainedKernel
        return kind.is_measured(self, variant, device)


@lru_cache(maxsize=1024)
def forward_of(variant: Variant) -> Variant:
    """The variant of the forward pass alone, where both are asked for.

    >>> forward_of(Variant(flags=((BOTH, True),))).flags
    ()
    """
    return replace(variant, flags=tuple(pair for pair in variant.flags if pair[0] != BOTH))
