"""The shared model of kernels that stream data: bound by memory or by latency, never by tensor
cores. A family (norms, elementwise, RoPE, ...) states what it moves; this file says how long.

    t = launch + chain + smooth_max(dram, sm, fma, xu)

launch is the protocol's floor, chain the dependent memory round trips and block reductions of one
thread block, ``sm`` what the busiest core needs for its share of the rows (at the rate at which
the L2 feeds it), ``dram`` the bytes that miss the L2 at the bandwidth that streaming kernels
reach. See docs/explanation/row-kernels.md.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, final

from msgspec import Struct, structs

from silicast.core import xp
from silicast.core.dtypes import BITS, RECIPES
from silicast.core.errors import unsupported
from silicast.core.numerics import F64, ceil_div, smooth_max
from silicast.hardware.device import Device
from silicast.kernels.implementation import Analysis, Demand, Implementation
from silicast.kernels.in_blocks import Lazy
from silicast.kernels.movement.streaming_rates import GROUP, StreamingRates, rates_of
from silicast.kernels.physics.constants import constants_of
from silicast.kernels.physics.device_rates import ClockedRates
from silicast.kernels.row_devices import RowDevices
from silicast.workload.graphs.op import Op, OpBatch, Variant
from silicast.workload.libraries.catalog import kernel_rule
from silicast.workload.libraries.library_file import RuleFacts

SCALAR, VECTORISED = "scalar", "vectorised"
"""Styles of kernels: one element at a time, with constants of its own, and all others."""

Sizes = Mapping[str, Any]
"""Dimensions of one op (Python integers) or of a batch (int64 arrays): formulas serve both."""


@final
class Stream(Struct, frozen=True):
    """What one op (integers) or a batch of ops (int64 arrays) moves, computes and waits for.

    Attributes:
        read_bytes, write_bytes: unique bytes, each operand and result once.
        flops: useful floating-point operations.
        fma, xu: operations issued to the FMA pipe and to the transcendental unit.
        tasks: thread blocks.
        trips: dependent round trips to memory in one block's chain.
        reductions: block-wide reductions in that chain.
        kernels: kernels launched one after another.
        reread_bytes: bytes that blocks read again after a first sweep over their row;
            rereads: in how many sweeps.
        between_bytes: bytes that an op of several kernels writes and reads again between them.
        blocks_per_core: blocks that a core holds at once; what they read again stays in the L2
            if all of them fit there together.
        in_place_bytes: of those written, bytes that go where they were read from: the working set
            is smaller by so much.
        scattered_bytes: of those that cross memory, bytes of rows that do not begin at multiples
            of 16 bytes, where kernels load element by element.
        looped_trips: dependent reads of memory that every thread makes one after another while
            others stream: its loop takes as long as they do, however few threads there are.
        matrix: operations of 16-bit matrix products that run between the sweeps. The bound allows
            for half of them: those of a symmetric result need not be made twice.
        shared_bytes: of those read, bytes that every block reads (weights), beside its row.
        block_share: of all bytes, what the fullest block moves, where blocks are not alike.

    ``reread_bytes``, ``between_bytes``, ``scattered_bytes``, ``looped_trips`` and ``matrix`` are
    None where kernels of the kind have none, ``block_share`` where blocks are alike.
    """

    read_bytes: Any
    write_bytes: Any
    flops: Any
    fma: Any
    xu: Any
    tasks: Any
    trips: Any = 1.0
    reductions: float = 0.0
    kernels: float = 1.0
    reread_bytes: Any = None
    rereads: float = 1.0
    between_bytes: Any = None
    blocks_per_core: float = 2.0
    in_place_bytes: Any = 0
    scattered_bytes: Any = None
    looped_trips: Any = None
    matrix: Any = None
    shared_bytes: Any = 0
    block_share: Any = None


class Streamed(Implementation):
    """A family with a kernel that reads its operands once; subclasses state what it moves."""

    takes_numbers: ClassVar[bool] = True
    dtypes: ClassVar[tuple[str, ...]] = ("bf16", "fp16", "fp32")

    @abstractmethod
    def stream(self, sizes: Sizes, variant: Variant) -> Stream:
        """What the ops move; integer arithmetic only, exact for integers as for int64 arrays."""

    @final
    def streamed(self, batch: OpBatch, device: Device) -> Analysis:
        """Time, bound, demand and features of that one kernel."""
        return self._streamed_with(batch, self.rates(batch.variant, device))

    @final
    def streamed_at(self, batch: OpBatch, devices: RowDevices) -> Analysis:
        """:meth:`streamed` of rows with a clock each."""
        device = devices.devices[0]
        rates = StreamingRates.from_device(
            device,
            self.family,
            constants_of(GROUP, device.architecture),
            self.kernel_style(batch.variant),
            ClockedRates(*devices.beside(ClockedRates.from_device)),
        )
        return self._streamed_with(batch, rates)

    def clocked(self, variant: Variant, device: Device) -> StreamingRates | None:
        """Rates as kernels of this family reach them; None = more than these count."""
        return self.rates(variant, device)

    @final
    def analyse_clocked(self, batch: OpBatch, device: Device, record: StreamingRates) -> Analysis:  # noqa: ARG002
        """As :meth:`streamed`, by rates that are known."""
        return self._streamed_with(batch, record)

    def _streamed_with(self, batch: OpBatch, rates: StreamingRates) -> Analysis:
        analysis = analyse_stream(self.stream(batch.dims, batch.variant), batch.variant, rates)
        remarks = self.remarks(batch.variant)
        return structs.replace(analysis, warnings=remarks) if remarks else analysis

    @final
    def rates(self, variant: Variant, device: Device) -> StreamingRates:
        """The device's rates as this family's kernels of a variant reach them."""
        return rates_of(device, self.family, self.kernel_style(variant))

    @final
    def is_scalar(self, variant: Variant) -> bool:
        """Whether a variant's kernel moves one element at a time, as those of 2023 did."""
        return self.kernel_style(variant) == SCALAR

    def style(self, variant: Variant, device: Device) -> str:  # noqa: ARG002
        """Scalar or vectorised, in families where measured libraries differ in that."""
        name = self.kernel_style(variant)
        return name if name in (SCALAR, VECTORISED) else ""

    def kernel_style(self, variant: Variant) -> str:
        """How a variant's library runs this family, which names constants; "" = as most do."""
        rule = kernel_rule(self.family, RuleFacts.from_variant(variant))
        return rule.style if rule else ""

    def remarks(self, variant: Variant) -> tuple[str, ...]:  # noqa: ARG002
        """What a reader must know of a variant: assumptions that its flags stand for."""
        return ()

    def shared_log_sd(self, variant: Variant, device: Device) -> Mapping[str, float]:
        """Errors that all kernels of this family, or all on this device, make together."""
        rates = self.rates(variant, device)
        scale = rates.eager_error if variant.launch == "stream" else 1.0
        return {
            f"device:{device.name}": rates.device_log_sd * scale,
            f"family:{self.family}": rates.family_log_sd * scale,
        }


class StreamingKernel(Streamed):
    """A family whose every kernel streams its data, whichever library runs it."""

    @final
    def flops(self, op: Op) -> int:
        """Exact useful floating-point operations."""
        return int(self.stream(dict(op.dims), op.variant).flops)

    @final
    def compulsory_bytes(self, op: Op) -> int:
        """Exact bytes of all operands and results."""
        stream = self.stream(dict(op.dims), op.variant)
        return int(stream.read_bytes + stream.write_bytes)

    @final
    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        """Analytic time, bound, demand and features; see :meth:`Implementation.analyse`."""
        return self.streamed(batch, device)

    @final
    def analyse_at(self, batch: OpBatch, devices: RowDevices) -> Analysis:
        """All rows at once, with a column of each rate that differs by the clock."""
        return self.streamed_at(batch, devices)


@final
class _MovedBytes(Struct, frozen=True):
    """Bytes that really move: whole device, from DRAM, and through the busiest core."""

    total: F64
    working_set: F64
    everywhere: F64
    from_dram: F64
    core: F64
    block: F64


def _moved(
    stream: Stream, read: F64, tasks: F64, rounds: F64, variant: Variant, m: StreamingRates
) -> _MovedBytes:
    """The traffic of ``stream`` after the cache model."""
    written = xp.float64(stream.write_bytes)
    none = xp.full_like(read, 0.0)
    again, between = (
        none if x is None else xp.float64(x) for x in (stream.reread_bytes, stream.between_bytes)
    )
    total = read + written
    working_set = total - stream.in_place_bytes
    held = m.between if variant.cache == "between" else m.resident
    missing = _missing(working_set + between / stream.kernels, held)
    if variant.cache == "cold":
        from_dram = read + (written + between) * missing
    else:
        from_dram = (total + between) * missing
    if stream.reread_bytes is not None:
        swept = xp.minimum(tasks, m.built_cores * stream.blocks_per_core) * (again / tasks)
        swept = swept / stream.rereads  # a sweep finds what the one before it left
        from_dram = from_dram + again * _missing(swept, m.reread)
    if stream.scattered_bytes is not None:
        slower = 1.0 + m.scatter_share * stream.scattered_bytes / total
        from_dram, again = from_dram * slower, again + (slower - 1.0) * total
    if stream.block_share is not None:
        block = (total + again + between) * stream.block_share
        core = rounds * block
    elif stream.between_bytes is None:
        block = (total - stream.shared_bytes + again) / tasks
        core = rounds * block
    else:
        # the kernels before the last one spread their bytes over all cores
        block = (again + between) / tasks
        core = rounds * block + total / m.cores
    return _MovedBytes(total, working_set, total + again + between, from_dram, core, block)


def analyse_stream(stream: Stream, variant: Variant, m: StreamingRates) -> Analysis:
    """The model itself: what ``stream`` costs on ``m``; arrays of shape (n,), seconds."""
    tasks, read = xp.float64(stream.tasks), xp.float64(stream.read_bytes)
    rounds = xp.float64(ceil_div(stream.tasks, m.cores))
    moved = _moved(stream, read, tasks, rounds, variant, m)
    fma, xu = xp.float64(stream.fma), xp.float64(stream.xu)
    matrix = xp.full_like(tasks, 0.0) if stream.matrix is None else xp.float64(stream.matrix)
    fill = _fill(stream, tasks, rounds, m)

    dram_s = moved.from_dram / m.dram_per_s
    # the L2 feeds all cores at a fixed rate, the busiest one somewhat faster than its share
    block_s = moved.block / m.block_per_s
    share = m.between_share if variant.cache == "between" else 1.0
    core_s = xp.maximum(moved.everywhere / m.l2_per_s, moved.core / m.core_per_s) / share
    core_s = xp.maximum(core_s, block_s)
    slot_s = rounds * m.slot_s
    fma_s, xu_s = _over(fma, m.fma_per_s) / fill, _over(xu, m.xu_per_s) / fill
    streams_s = xp.maximum(dram_s, core_s)
    if stream.looped_trips is not None:
        streams_s = xp.maximum(streams_s, stream.looped_trips * m.latency_s)
    busy_s = smooth_max((streams_s, slot_s, fma_s, xu_s))
    if stream.matrix is not None:
        busy_s = busy_s + _over(matrix, m.matrix_per_s)
    time_s = _with_protocol(busy_s, stream, variant, m)
    own_log_sd = m.own_log_sd + m.small_log_sd * (1.0 - busy_s / time_s)
    resource_s = _bounds(read, moved, fma, xu, variant, m)
    resource_s["tensor"] = _over(0.5 * matrix, m.matrix_peak_per_s)
    return Analysis(
        time_s=time_s,
        bound_s=_maximum(list(resource_s.values())),
        resource_s={**resource_s, "launch": xp.full_like(time_s, m.launch_s * stream.kernels)},
        demand=Demand(
            tasks=tasks,
            waves=tasks / m.cores,
            occupancy=xp.minimum(tasks / m.cores, rounds),
            pipe_work={"fma": fma, "xu": xu, "tensor": matrix},
            level_bytes={"dram": moved.from_dram, "l2": moved.everywhere},
            core_level_bytes={"l2": moved.core},
        ),
        features=Lazy(
            lambda: {
                "dram_share": dram_s / time_s,
                "core_share": core_s / time_s,
                "block_share": block_s / time_s,
                "slot_share": slot_s / time_s,
                "fma_share": fma_s / time_s,
                "xu_share": xu_s / time_s,
                "busy_share": busy_s / time_s,
                "fill": fill,
                "round_fill": tasks / (rounds * m.cores),
                "working_set": xp.minimum(moved.working_set / m.l2_bytes, 64.0),
                "from_dram": moved.from_dram / moved.everywhere,
            }
        ),
        independent_log_sd=own_log_sd * (m.eager_error if variant.launch == "stream" else 1.0),
    )


def _fill(stream: Stream, tasks: F64, rounds: F64, m: StreamingRates) -> F64:
    """Share of the device's pipes that work while the busiest core does: few blocks leave cores
    idle, and blocks that are not alike wait for the fullest.
    """
    if stream.block_share is None:
        return xp.minimum(tasks, float(m.cores)) / m.cores
    fill: F64 = xp.minimum(1.0 / (rounds * stream.block_share * m.cores), 1.0)
    return fill


def _with_protocol(busy_s: F64, stream: Stream, variant: Variant, m: StreamingRates) -> F64:
    """Latency chain and launch added to the busy time."""
    kernel_s: F64 = busy_s + (stream.trips * m.trip_s + stream.reductions * m.reduction_s)
    if variant.launch == "stream":
        # events around one call on an idle device: the kernel hides the second event's dispatch
        record_s = xp.full_like(busy_s, m.stream_record_s)
        return m.stream_dispatch_s + smooth_max((kernel_s + m.launch_s, record_s))
    gap_s = 0.0 if variant.launch == "profiler" else m.gap_s
    return kernel_s + (m.launch_s + gap_s) * stream.kernels


def _missing(total: F64, resident: tuple[float, float]) -> F64:
    """Share of the bytes that miss the L2, by the size of the working set."""
    everything, nothing = resident
    share = (total - everything) / (nothing - everything)
    missing: F64 = xp.minimum(xp.maximum(share, 0.0), 1.0)
    return missing


def _bounds(
    read: F64, moved: _MovedBytes, fma: F64, xu: F64, variant: Variant, m: StreamingRates
) -> dict[str, F64]:
    """Times at peak rates: what the stated cache state forces through DRAM, and the L2's ports.

    What is written in place and did not fit is written back as well as read.
    """
    beyond = xp.maximum(moved.working_set - m.l2_bytes, 0.0)
    twice = moved.total - moved.working_set
    beyond = beyond + xp.maximum(twice - m.l2_bytes, 0.0)
    forced = xp.maximum(read, beyond) if variant.cache == "cold" else beyond
    return {
        "dram": forced / m.dram_peak_per_s,
        "l2": xp.maximum(read, moved.total - read) / m.port_peak_per_s,
        "fma": _over(fma, m.fma_peak_per_s),
        "xu": _over(xu, m.xu_peak_per_s),
    }


def _over(work: F64, rate: float) -> F64:
    """Work over a rate; nothing where the device file does not state the pipe."""
    none: F64 = work * 0.0
    return none if xp.all_of(rate == 0.0) else work / rate


def _maximum(terms: list[F64]) -> F64:
    largest = terms[0]
    for term in terms[1:]:
        largest = xp.maximum(largest, term)
    return largest


def fullest_share(elements: Any, chunk: int) -> Any:
    """Of all elements, those of a full block of ``chunk``: the last block alone has fewer.

    >>> fullest_share(512, 1024), fullest_share(2048, 1024)
    (1.0, 0.5)
    """
    return 1.0 / xp.maximum(xp.float64(elements) / chunk, 1.0)


@lru_cache(maxsize=256)
def element_bytes(dtype: str) -> int:
    """Bytes of one activation element under a dtype or recipe (norms of an fp8 model run in bf16).

    Raises:
        SilicastError: no such number format, or one below a byte.

    >>> element_bytes("fp32"), element_bytes("fp8")
    (4, 2)
    """
    name = RECIPES[dtype].output if dtype in RECIPES else dtype
    bits = BITS.get(name, 0.0)
    if bits < 8:
        raise unsupported(
            f"{dtype!r} is not a format that activations are stored in",
            "dtype",
            "use bf16, fp16 or fp32",
        )
    return int(bits) // 8
