"""How long a chain of passes takes, and what memory it needs.

Each pass costs

    launch + smooth_max(max(dram, l2), issue) + blocks

dram: bytes that miss the L2 at the bandwidth that streaming kernels reach, times the share of it
that passes of the kind get; l2: all bytes at the L2's rate; issue: elements at so many cycles of a
core each; blocks: what a core spends on each row besides (reductions that all threads wait for).
Kernels that start one block a core take a core's rows one after the other, so many seconds an
element. A tensor that is read comes from the L2 as far as what was touched since fits there (its
reuse distance); so do rows that blocks sweep twice. What registers do not hold of a row is written
out and read again, so many cycles an element.

Where the host launches the kernels (``launch = "stream"``), it needs a time for each kernel and for
each direction, and a benchmark that flushes the L2 before a call (``cache = "cold"``) hides as much
of it as the flush takes: the call takes the longer of both.

Rates of a device are those of streaming kernels
(:mod:`silicast.kernels.movement.streaming_rates`); what
kinds of passes make of them, and hosts, is in ``catalog/physics/chains.json``. A pass that is a
fused kernel, or a framework's operator, takes as long as the streaming model says.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
from msgspec import Struct

from silicast.core import xp
from silicast.core.numerics import F64, smooth_max
from silicast.hardware.device import Device
from silicast.kernels.implementation import (
    Analysis,
    Demand,
    Estimates,
    Implementation,
    matrix_seconds,
)
from silicast.kernels.in_blocks import Lazy
from silicast.kernels.movement.streaming import Sizes, Stream, analyse_stream, element_bytes
from silicast.kernels.movement.streaming_rates import StreamingRates, rates_of
from silicast.kernels.physics.constants import load_physics, shared_errors
from silicast.kernels.registry import implementation_for
from silicast.kernels.rows.pass_chain import SMALL, Chain, Pass
from silicast.workload.graphs.op import Op, OpBatch, Variant
from silicast.workload.libraries.catalog import kernel_rule
from silicast.workload.libraries.library_file import RuleFacts

GROUP = "chains"
BACKWARD, BOTH = "backward", "both"
"""Flags of ops that are a gradient alone, and a forward pass with its gradient."""
SUMMED, ACCUMULATED, PER_ROW = "summed", "accumulated", "per_row"
"""Flags: gradients that begin with the sum of the result, so that its own gradient is one number;
gradients of operands that are added to what is there; losses that are not summed, and operands that
a kernel must not overwrite."""
EAGER, COMPILED, BY_HAND, FUSED = "eager", "compiled", "by_hand", "fused"
"""Styles: a framework's operators, one by one; a compiler's kernels; kernels written by hand for
training; the one kernel that engines and newer frameworks have for the op."""
MEMORY_RANGE = 1.1
"""Ends of the interval of a peak: allocators round up, and programs keep what they need not."""
FLUSH_BYTES = 256e6
"""What benchmarks write to flush the L2 (Triton's ``do_bench``)."""


@final
class Direction(NamedTuple):
    """Which passes a call runs."""

    forward: bool
    backward: bool


@final
class Least(Struct, frozen=True):
    """What any implementation must move and compute; integers or arrays of shape (n,).

    Attributes:
        read, written: bytes of the forward pass.
        read_back, written_back: bytes of the backward pass.
        flops, flops_back: operations of either, products of matrices aside.
        written_between: bytes that one of both passes writes, whichever.
        products, products_back, products_between: (m, n, k) of products of matrices of either
            pass, and of one of both, whichever.
    """

    read: Any
    written: Any
    read_back: Any
    written_back: Any
    flops: Any
    flops_back: Any
    written_between: Any = 0
    products: tuple[tuple[Any, Any, Any], ...] = ()
    products_back: tuple[tuple[Any, Any, Any], ...] = ()
    products_between: tuple[tuple[Any, Any, Any], ...] = ()

    def products_in(self, direction: Direction) -> tuple[tuple[Any, Any, Any], ...]:
        """Products of a direction."""
        between = self.products_between if direction.forward and direction.backward else ()
        return (
            *(self.products if direction.forward else ()),
            *(self.products_back if direction.backward else ()),
            *between,
        )

    def moved(self, direction: Direction) -> tuple[Any, Any, Any, Any]:
        """Of a direction: bytes read that nothing before has touched, all bytes read, bytes
        written, and operations.
        """
        if not direction.backward:
            return self.read, self.read, self.written, self.flops
        if not direction.forward:
            return self.read_back, self.read_back, self.written_back, self.flops_back
        written = self.written + self.written_back + self.written_between
        return self.read, self.read + self.read_back, written, self.flops + self.flops_back


@final
class RowCall(Struct, frozen=True):
    """How an op is called.

    Attributes:
        style: whose kernels (:data:`EAGER`, ...).
        variant: of the op.
        size: bytes of an element.
        cores: of the device, for kernels that start as many blocks.
        workspace_bytes: what a framework keeps once it has multiplied matrices.
    """

    style: str
    variant: Variant
    size: int
    cores: int
    workspace_bytes: int = 0

    @property
    def kernel(self) -> str:
        """The kernel asked for by name, "" = the usual one."""
        return self.variant.kernel

    def has(self, flag: str) -> bool:
        """Whether a flag is set."""
        return self.variant.flag(flag)


class ChainedKernel(Implementation):
    """A family that providers run as chains; subclasses state these and what any of them must do.

    Flags choose the direction (:data:`BACKWARD`, :data:`BOTH`, else forward).
    """

    takes_numbers: ClassVar[bool] = True
    dtypes: ClassVar[tuple[str, ...]] = ("bf16", "fp16", "fp32")

    @abstractmethod
    def chain(self, sizes: Sizes, call: RowCall) -> Chain:
        """The passes of both directions, and their tensors."""

    @abstractmethod
    def least(self, sizes: Sizes, variant: Variant) -> Least:
        """What any implementation moves and computes."""

    def direction(self, variant: Variant) -> Direction:
        """Which passes a variant asks for."""
        backward = variant.flag(BACKWARD)
        return Direction(forward=not backward, backward=backward or variant.flag(BOTH))

    def provider(self, variant: Variant) -> str:
        """Whose kernels a variant's library runs: one of the styles."""
        rule = kernel_rule(self.family, RuleFacts.from_variant(variant))
        return rule.style if rule is not None else EAGER

    def style(self, variant: Variant, device: Device) -> str:  # noqa: ARG002
        return self.provider(variant)

    @final
    def call(self, variant: Variant, device: Device) -> RowCall:
        """How a variant is called on a device."""
        workspace = int(self.constants(device)["workspace_mib"] * 2**20)
        size = element_bytes(variant.dtype)
        return RowCall(self.provider(variant), variant, size, device.cores, workspace)

    @final
    def peak_bytes(self, batch: OpBatch, device: Device) -> Any:
        """Most bytes that are allocated at once, operands, results and their gradients included;
        of both directions unless the variant is a forward pass.
        """
        chain = self.chain(batch.dims, self.call(batch.variant, device))
        trains = self.direction(batch.variant).backward
        return chain.peak_bytes if trains else chain.forward_peak_bytes

    @final
    def constants(self, device: Device) -> Mapping[str, float]:
        return load_physics(GROUP).constants(device.architecture)

    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        return self.analyse_with(batch, device, self.constants(device))

    def analyse_with(self, batch: OpBatch, device: Device, c: Mapping[str, float]) -> Analysis:
        """As :meth:`analyse`, with given constants: for fitting them."""
        variant = batch.variant
        call, direction = self.call(variant, device), self.direction(variant)
        chain = self.chain(batch.dims, call)
        rates = rates_of(device, "elementwise")
        least = self.least(batch.dims, variant)
        first, read, written, flops = least.moved(direction)
        none = xp.float64(read) * 0.0
        products = _Products(batch, device)
        walk = _Walk(rates, device, c, products, cold=variant.cache == "cold", none=none)
        seconds = none
        if not direction.forward:
            walk.touch(chain.forward)
        for row_pass in chain.forward if direction.forward else ():
            seconds = seconds + walk.seconds(row_pass)
        for row_pass in chain.backward if direction.backward else ():
            seconds = seconds + walk.seconds(row_pass)
        if variant.launch == "stream":
            seconds = seconds + c["events_s"]
            host_s = _host_s(chain, direction, call, rates, c)
            seconds = xp.maximum(seconds, none + host_s)
        moved = xp.float64(first), xp.float64(read), xp.float64(written)
        resource_s = _bounds(*moved, xp.float64(flops), rates, direction, cold=walk.cold)
        resource_s["tensor"] = none
        for sizes in least.products_in(direction):
            resource_s["tensor"] = resource_s["tensor"] + products.least_s(sizes)
        bound_s = none
        for resource in resource_s.values():
            bound_s = xp.maximum(bound_s, resource)
        return Analysis(
            time_s=seconds,
            bound_s=bound_s,
            resource_s={**resource_s, "launch": none + rates.launch_s},
            demand=Demand(
                tasks=none + 1.0,
                waves=none + 1.0,
                occupancy=none + 1.0,
                pipe_work={"fma": xp.float64(flops)},
                level_bytes={"dram": walk.dram_bytes, "l2": walk.all_bytes},
            ),
            features=Lazy(lambda: {"bound_share": bound_s / seconds}),
            independent_log_sd=none + c["independent_log_sd"],
        )

    def shared_log_sd(self, variant: Variant, device: Device) -> Mapping[str, float]:  # noqa: ARG002
        return shared_errors(self.family, self.constants(device))

    def is_measured(self, variant: Variant, device: Device) -> bool:  # noqa: ARG002
        """Whether chains of the family were measured on the device's architecture."""
        rows = load_physics(GROUP).architectures.get(device.architecture, {})
        return f"measured.{self.family}" in rows

    @final
    def flops(self, op: Op) -> int:
        least, direction = self.least(dict(op.dims), op.variant), self.direction(op.variant)
        products = sum(2 * m * n * k for m, n, k in least.products_in(direction))
        return int(least.moved(direction)[3] + products)

    @final
    def compulsory_bytes(self, op: Op) -> int:
        least = self.least(dict(op.dims), op.variant)
        _, read, written, _ = least.moved(self.direction(op.variant))
        return int(read + written)


def _host_s(
    chain: Chain, direction: Direction, call: RowCall, rates: StreamingRates, c: Mapping[str, float]
) -> F64:
    """What the host takes, less what a flush of the cache hides of it."""
    who = call.style if call.style == BY_HAND else EAGER
    total: Any = 0.0
    for i, name in enumerate(direction._fields):
        if direction[i]:
            total = total + chain.launches[i] * c[f"{who}.kernel_s"] + c[f"{who}.{name}_s"]
            total = total + chain.host_calls[i] * c["call_s"] + chain.host_waits[i] * c["wait_s"]
    if all(direction):
        total = total + c[f"{who}.both_s"]
    hidden = FLUSH_BYTES / rates.dram_per_s if call.variant.cache == "cold" else 0.0
    host_s: F64 = xp.maximum(total * c["host_factor"] - hidden, 0.0)
    return host_s


class _Products:
    """Products of matrices of a batch, in its format, by the family of their own."""

    def __init__(self, batch: OpBatch, device: Device) -> None:
        self._batch, self._device = batch, device
        self.dtype = batch.variant.dtype
        self._known: dict[tuple[int, ...], tuple[tuple[Any, ...], Estimates]] = {}

    def _estimates(self, sizes: tuple[Any, ...]) -> Estimates:
        """Of the very same sizes only once; these are held, so that no others take their ids."""
        key = tuple(map(id, sizes))
        if key not in self._known:
            self._known[key] = sizes, self._computed(sizes)
        return self._known[key][1]

    def _computed(self, sizes: tuple[Any, ...]) -> Estimates:
        model = implementation_for("gemm", self._device.execution_model)
        assert model is not None
        whole = self._batch
        ones = whole.filled(1) if whole.numbers else np.ones(len(whole), dtype=np.int64)
        dims = {name: ones * size for name, size in zip("mnk", sizes, strict=True)}
        variant = Variant(whole.variant.dtype)
        return model.estimates(whole.beside("gemm", variant, {**dims, "batch": ones}), self._device)

    def seconds(self, sizes: tuple[Any, ...]) -> F64:
        seconds: F64 = self._estimates(sizes).estimate_s
        return seconds

    def least_s(self, sizes: tuple[Any, ...]) -> F64:
        """Their operations at the bound rate."""
        return matrix_seconds(self._estimates(sizes).analysis)


@final
class _Kind(NamedTuple):
    """What passes of a kind make of a device's rates: bytes a second, and seconds an element or a
    row, of all cores or (``alone_s``) of one.
    """

    dram_per_s: float
    issue_s: float
    row_s: float
    alone_s: float
    resident_rows: float

    @staticmethod
    def from_rates(kind: str, m: StreamingRates, c: Mapping[str, float], clock: float) -> _Kind:
        """From the constants of a kind."""
        return _Kind(
            m.dram_per_s * c.get(f"{kind}.share", 1.0),
            c.get(f"{kind}.cycles", 0.0) / (m.cores * clock),
            c.get(f"{kind}.row_cycles", 0.0) / (m.cores * clock),
            c.get(f"{kind}.element_s", 0.0),
            m.cores * c.get(f"{kind}.resident_rows", 1.0),
        )


class _Walk:
    """Passes one after another, and what the L2 holds of what they touched."""

    def __init__(
        self,
        rates: StreamingRates,
        device: Device,
        c: Mapping[str, float],
        products: _Products,
        *,
        cold: bool,
        none: F64,
    ) -> None:
        self._rates, self._c, self._products = rates, c, products
        self.cold, self._device = cold, device
        self._clock = device.clocks.boost_hz
        self._kinds: dict[str, _Kind] = {}
        self._launch_s = rates.launch_s + rates.gap_s
        self._fill_s = c["trips"] * rates.trip_s
        self._l2_per_s = rates.l2_per_s * c["l2_rate"]
        self._spilled_s = c["spill_cycles"] / (rates.cores * self._clock)
        self._swept = rates.l2_bytes * c["reread_from"], rates.l2_bytes * c["reread_to"]
        self._touched: Any = 0
        self._last: dict[int, Any] = {}
        self.dram_bytes: F64 = none
        self.all_bytes: F64 = none
        self._none = none

    def touch(self, passes: Sequence[Pass]) -> None:
        """Remembers passes that ran before the timed ones, if nothing flushed the cache since."""
        if not self.cold:
            for row_pass in passes:
                self._remember(row_pass)

    def _remember(self, row_pass: Pass) -> None:
        touched, last = self._touched, self._last
        for tensor in (*row_pass.reads, *row_pass.writes):
            touched = touched + tensor.bytes
            last[id(tensor)] = touched
        self._touched = touched

    def seconds(self, row_pass: Pass) -> F64:
        """Seconds of one pass times how often it runs, shape (rows,)."""
        if row_pass.product:
            self._remember(row_pass)
            once = self._products.seconds(row_pass.product)
        elif row_pass.stream is not None:
            once = self._fused(row_pass.kind, row_pass.stream)
            self._remember(row_pass)
        elif row_pass.kind == SMALL:
            once = self._none + (self._launch_s + self._c["small_s"])
        else:
            once = self._streamed(row_pass)
        seconds: F64 = once * row_pass.times
        return seconds

    def _fused(self, family: str, stream: Stream) -> F64:
        """A fused kernel or an operator, under the rates that such kernels of a family reach."""
        state = Variant(self._products.dtype, cache="cold" if self.cold else "")
        analysis = analyse_stream(stream, state, rates_of(self._device, family))
        moved = analysis.demand.level_bytes
        self.dram_bytes = self.dram_bytes + moved["dram"]
        self.all_bytes = self.all_bytes + moved["l2"]
        return analysis.time_s

    def _streamed(self, row_pass: Pass) -> F64:
        m, kind = self._rates, self._kinds.get(row_pass.kind)
        if kind is None:
            kind = self._kinds[row_pass.kind] = _Kind.from_rates(
                row_pass.kind, m, self._c, self._clock
            )
        size: Any = 0
        for tensor in (*row_pass.reads, *row_pass.writes):
            size = size + tensor.bytes
        dram: Any = 0.0
        for tensor in row_pass.reads:
            dram = dram + tensor.bytes * self._missed(id(tensor), size)
        if row_pass.writes:
            lost = _missing(size, m.resident)
            for tensor in row_pass.writes:
                dram = dram + tensor.bytes * lost
        if row_pass.again is not None:
            rows = xp.minimum(row_pass.rows, kind.resident_rows)
            dram = dram + row_pass.again * _missing(rows * row_pass.swept_bytes, self._swept)
            size = size + row_pass.again
        self._remember(row_pass)
        self.dram_bytes = self.dram_bytes + dram * row_pass.times
        self.all_bytes = self.all_bytes + size * row_pass.times
        busy = xp.maximum(dram / kind.dram_per_s, size / self._l2_per_s)
        if kind.issue_s > 0.0:
            issue_s = row_pass.work * kind.issue_s
            if row_pass.blocks is not None:
                issue_s = issue_s * (m.cores / xp.minimum(row_pass.blocks, float(m.cores)))
            busy = smooth_max((busy, issue_s))
        if kind.alone_s > 0.0:  # a block a core, which takes its rows one after the other
            share = xp.ceil(row_pass.rows / m.cores) * (row_pass.work / row_pass.rows)
            busy = xp.maximum(busy, share * kind.alone_s)
        streamed: F64 = busy + (
            self._launch_s
            + self._fill_s
            + row_pass.spilled * self._spilled_s
            + row_pass.rows * kind.row_s
        )
        return streamed

    def _missed(self, tensor: int, size: Any) -> F64:
        """Share of a tensor that comes from memory: by what was touched since it was."""
        last = self._last.get(tensor)
        if last is None:
            return self._none + 1.0 if self.cold else _missing(size, self._rates.resident)
        return _missing(self._touched - last + size, self._rates.resident)


def _missing(distance: F64, held: tuple[float, float]) -> F64:
    """Share of bytes that the cache has lost after touching ``distance`` others."""
    share = (distance - held[0]) / (held[1] - held[0])
    missing: F64 = xp.minimum(xp.maximum(share, 0.0), 1.0)
    return missing


def _bounds(
    first: F64,
    read: F64,
    written: F64,
    flops: F64,
    m: StreamingRates,
    direction: Direction,
    *,
    cold: bool,
) -> dict[str, F64]:
    """Times at peak rates, of what any implementation must do. Of two passes each may find in the
    L2 as much as that holds.
    """
    held = m.l2_bytes * (2.0 if all(direction) else 1.0)
    beyond = xp.maximum(read + written - held, 0.0)
    forced = xp.maximum(first, beyond) if cold else beyond
    fma = flops / m.fma_peak_per_s if m.fma_peak_per_s > 0.0 else flops * 0.0
    return {
        "dram": forced / m.dram_peak_per_s,
        "l2": xp.maximum(read, written) / m.port_peak_per_s,
        "fma": fma,
    }


WARPS = ((0, 4), (2048, 8), (8192, 16), (32768, 32))
"""Columns from which a row kernel takes so many warps (Triton's layer norm and its descendants)."""
REGISTERS, LANES, MOST_REGISTERS = 65536, 32, 255


def spilled_of_rows(columns: Any, arrays: int) -> Any:
    """Elements of one row's arrays that do not fit the registers of its threads.

    Args:
        columns: of the row, padded to a power of two by such kernels.
        arrays: values of 4 bytes that a thread holds for each of its columns.

    >>> spilled_of_rows(4096, 3), spilled_of_rows(32768, 3)
    (0, 32768)
    """
    spilled = columns * 0
    for least, warps in WARPS:
        threads = warps * LANES
        held = min(REGISTERS // threads, MOST_REGISTERS) * threads
        over = xp.maximum(columns * arrays - held, columns * 0)
        spilled = xp.where(columns >= least, over, spilled)
    return spilled
