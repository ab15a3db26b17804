"""A device's rates as the kernels of one family reach them: its file under fitted constants.

A constant of the table (catalog/physics/streaming.json) is multiplied by those of the same name for
the kind of memory ("gddr.", "hbm."), the family ("rmsnorm."), the style ("scalar.") and both of the
latter ("scalar.rmsnorm."), where there are any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

from silicast.core import xp
from silicast.hardware.device import Device
from silicast.kernels.physics.constants import constants_of
from silicast.kernels.physics.device_rates import ClockedRates, data_rate
from silicast.kernels.physics.power import silicon

GROUP = "streaming"
TRIP_PER_LATENCY = 1.5
"""A dependent trip of a block, as fitted, over the latency of memory that files of A100, H100 and
RTX 4090 state (1.4 to 1.6); for devices whose file states none."""


@final
@dataclass(frozen=True, slots=True)
class StreamingRates:
    """A device's rates as one family's kernels reach them; SI units.

    Attributes:
        built_cores: of the board of the catalog that a description changes: their rows in flight
            compete for the L2.
        launch_s: start and drain of a kernel that does nothing, as a profiler reports it.
        gap_s: between two kernels of a replayed graph, invisible to a profiler.
        stream_dispatch_s, stream_record_s: host time before an eager kernel starts on an idle
            device, and from there until the event after it is recorded.
        trip_s, reduction_s: a dependent round trip to memory, a block-wide reduction.
        latency_s: a read of device memory by one thread.
        slot_s: shortest time between two thread blocks on one core.
        dram_per_s, l2_per_s, core_per_s, block_per_s: bytes per second from memory to the device,
            from the L2 to all cores and to one, and to one thread block alone.
        resident: working sets, in bytes, up to which the L2 holds everything and from which it
            holds nothing when the same data were just written or read; ``between`` likewise where
            other kernels ran in between, and the L2 then gives ``between_share`` of its rate;
            ``reread`` for what the blocks in flight read again,
            which competes with all that streams past.
        scatter_share: how much dearer bytes of rows are that do not begin at 16-byte boundaries.
        fma_per_s, xu_per_s, matrix_per_s: operations per second of the device, the last in 16-bit
            matrix products (or the narrowest float it has); ``*_peak_per_s`` are for bounds.
        *_log_sd: log sd of errors shared by device and by family, and of a single kernel when
            busy and in addition when waiting (``small``); ``eager_error`` scales all of them for
            kernels launched one by one, which are timed more alike.
    """

    cores: int
    built_cores: int
    launch_s: float
    gap_s: float
    stream_dispatch_s: float
    stream_record_s: float
    trip_s: float
    latency_s: float
    reduction_s: float
    slot_s: float
    dram_per_s: float
    dram_peak_per_s: float
    l2_per_s: float
    core_per_s: float
    block_per_s: float
    port_peak_per_s: float
    l2_bytes: float
    resident: tuple[float, float]
    between: tuple[float, float]
    between_share: float
    reread: tuple[float, float]
    scatter_share: float
    fma_per_s: float
    fma_peak_per_s: float
    xu_per_s: float
    xu_peak_per_s: float
    matrix_per_s: float
    matrix_peak_per_s: float
    device_log_sd: float
    family_log_sd: float
    own_log_sd: float
    small_log_sd: float
    eager_error: float

    @staticmethod
    def from_device(
        device: Device,
        family: str,
        table: Mapping[str, float],
        style: str = "",
        at: ClockedRates | None = None,
    ) -> StreamingRates:
        """A device under the constants of its architecture.

        Args:
            device: the device.
            family: kernel family.
            table: constants of the architecture.
            style: of the family's kernels, where it tells some apart.
            at: what differs by the clock, as columns, of rows with a clock each; None = at that
                of the device. Rates are then columns too.
        """
        memory = "gddr" if device.dram.technology.startswith("GDDR") else "hbm"
        if table is constants_of(GROUP, device.architecture):  # the same at every clock
            constant = _constants(device.architecture, memory, family, style).__getitem__
        else:
            constant = _with_factors(table, memory, family, style).__getitem__
        cores = silicon(device).cores
        capacity = device.l2.capacity_bytes
        clock, _, peak_l2_per_s = at or ClockedRates.from_device(device)
        # salvaged parts keep the whole L2: what a core gets is its share of the L2's bandwidth, and
        # stays so where a description of a board changes the number of cores
        if not xp.all_of(peak_l2_per_s > 0.0):
            peak_l2_per_s = table["unknown_l2_bytes_per_clock"] * clock * device.cores
        l2_per_s = peak_l2_per_s * constant("l2_fraction")
        core_per_s: Any = xp.minimum(
            l2_per_s * constant("core_headroom") / cores, constant("core_bytes_per_clock") * clock
        )
        swept = capacity * constant("reread_share")
        matrix = _matrix_rate(device) * device.cores
        fma, xu = (device.rate_per_core(pipe, "fp32") * device.cores for pipe in ("fma", "xu"))
        matrix_share = constants_of("gemm", device.architecture)["tensor_efficiency"]
        return StreamingRates(
            cores=device.cores,
            built_cores=cores,
            launch_s=constant("launch_cycles") * constant("launch_factor") / clock,
            gap_s=constant("gap_s"),
            stream_dispatch_s=constant("stream_dispatch_s"),
            stream_record_s=constant("stream_record_s"),
            trip_s=constant("trip_cycles") / clock,
            latency_s=memory_latency_s(device, clock),
            reduction_s=constant("reduction_cycles") / clock,
            slot_s=constant("slot_s"),
            dram_per_s=data_rate(device) * min(constant("dram_fraction"), 1.0),
            dram_peak_per_s=device.dram.bandwidth_bytes_per_s,
            l2_per_s=l2_per_s,
            core_per_s=core_per_s,
            block_per_s=constant("block_bytes_per_clock") * clock,
            port_peak_per_s=table["port_bytes_per_clock"] * device.clocks.max_hz * device.cores,
            l2_bytes=capacity,
            resident=(constant("resident_from") * capacity, constant("resident_to") * capacity),
            between=(constant("between_from") * capacity, constant("between_to") * capacity),
            between_share=constant("between_share"),
            reread=(constant("reread_from") * swept, constant("reread_to") * swept),
            scatter_share=constant("scatter_share"),
            fma_per_s=fma * clock * constant("pipe_fraction"),
            fma_peak_per_s=fma * device.clocks.max_hz,
            xu_per_s=xu * clock * constant("pipe_fraction"),
            xu_peak_per_s=xu * device.clocks.max_hz,
            matrix_per_s=matrix * clock * matrix_share,
            matrix_peak_per_s=matrix * device.clocks.max_hz,
            device_log_sd=constant("device_log_sd"),
            family_log_sd=constant("family_log_sd"),
            own_log_sd=constant("own_log_sd"),
            small_log_sd=constant("small_log_sd"),
            eager_error=constant("eager_error"),
        )


@lru_cache(maxsize=1024)
def _constants(architecture: str, memory: str, family: str, style: str) -> Mapping[str, float]:
    return _with_factors(constants_of(GROUP, architecture), memory, family, style)


def _with_factors(
    table: Mapping[str, float], memory: str, family: str, style: str
) -> Mapping[str, float]:
    """Constants times those of the kind of memory, of the family and of the style.

    >>> table = {"launch": 2.0, "hbm.launch": 3.0, "scalar.rope.launch": 5.0, "gddr.launch": 7.0}
    >>> _with_factors(table, "hbm", "rope", "scalar"), _with_factors(table, "hbm", "rope", "")
    ({'launch': 30.0}, {'launch': 6.0})
    """
    prefixes = (memory, family, style, f"{style}.{family}") if style else (memory, family)
    constants = {}
    for name, value in table.items():
        if "." not in name:
            for prefix in prefixes:
                value *= table.get(f"{prefix}.{name}", 1.0)  # noqa: PLW2901 - a product
            constants[name] = value
    return constants


def memory_latency_s(device: Device, clock_hz: float) -> float:
    """A read of device memory by one thread: as the file states, else as kernels show."""
    trip_s = constants_of(GROUP, device.architecture)["trip_cycles"] / clock_hz
    return device.dram.latency_s or trip_s / TRIP_PER_LATENCY


def _matrix_rate(device: Device) -> float:
    """Operations of 16-bit products, per clock and core."""
    for dtype in ("bf16", "fp16", "fp32"):
        for pipe in ("tensor", "fma"):
            if (rate := device.rate_per_core(pipe, dtype)) > 0.0:
                return rate
    return 0.0


@lru_cache(maxsize=4096)
def rates_of(device: Device, family: str, style: str = "") -> StreamingRates:
    """A device under the constants of the catalog."""
    return StreamingRates.from_device(
        device, family, constants_of(GROUP, device.architecture), style
    )
