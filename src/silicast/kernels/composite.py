"""Modules: sequences of other families' kernels that a table or an engine times as one call.

A family states its parts (op batches of other families, each in its own format) and what the
module as a whole must read and write. Its time is

    t = max(efficiency x sum(count x part) + module, host)

where each part is its own family's time, never below its own bound; ``efficiency`` and ``module``
are constants of the module. The bound knows no parts: products of all that must run, at their peak
rates, and the bytes of the whole module, because a library may fuse parts and keep what is between
them on the chip. docs/explanation/composite-kernels.md explains it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, final

import numpy as np

from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.attention_memory import L2_BYTES_PER_CLOCK_AND_CORE
from silicast.kernels.check import op_at
from silicast.kernels.formats import with_format
from silicast.kernels.implementation import (
    Analysis,
    Demand,
    Implementation,
    KernelTimes,
    implementation_for,
)
from silicast.kernels.knowledge import substitute_error
from silicast.kernels.physics import load_physics
from silicast.kernels.streaming import StreamingKernel
from silicast.kernels.work_model import UNCERTAIN_BANDWIDTH, on_chip
from silicast.workload.op import Op, OpBatch, Variant


@final
@dataclass(frozen=True)
class PartBatch:
    """One part of every op of a module's batch.

    Attributes:
        name: of the part; constants and features carry it.
        batch: the part's op for each of the module's ops, in their order; ``cache`` of its
            variant is the state in which the parts before it leave its operands.
        count: how often it runs, a number or one an op of shape (n,); 0 where an op has none (its
            dimensions are then any valid ones).
        least: how often any library must run it, for the bound; None = ``count``.
    """

    name: str
    batch: OpBatch
    count: int | I64 = 1
    least: int | I64 | None = None


@final
@dataclass(frozen=True)
class TimedPart:
    """A part of every op of a batch on one device.

    Attributes:
        name: of the part.
        count: how often it runs, shape (n,).
        least: how often it must run, shape (n,).
        times: of one call.
        streams: it multiplies no matrices.
    """

    name: str
    count: F64
    least: F64
    times: KernelTimes
    streams: bool

    @property
    def total_s(self) -> F64:
        """Time of all its calls."""
        return self.times.estimate_s * self.count


class Composite(Implementation):
    """A family whose kernels are other families'.

    Class attributes:
        group: constants file; its names are "efficiency", "module_s" and the errors
            "independent_log_sd", "device_log_sd", "family_log_sd", "unmeasured_widening".
            "<part>.efficiency" is a factor on one part. A prefix "<style>." puts a constant over
            the plain one for rows of that style (:meth:`constants_styles`).
    """

    group: ClassVar[str]

    @abstractmethod
    def parts(self, batch: OpBatch, device: Device | None) -> Sequence[PartBatch]:
        """The kernels of every op in ``batch``, in the order in which they run.

        Args:
            batch: the module's ops.
            device: where they run; None asks for the useful work alone, which no device changes.
        """

    @abstractmethod
    def operands(self, batch: OpBatch) -> tuple[I64, I64]:
        """Bytes that the whole module reads and writes at least, each of shape (n,): weights,
        inputs, results and its state, nothing that one part hands to another.
        """

    def style(self, variant: Variant, device: Device) -> str:  # noqa: ARG002
        """See :meth:`Implementation.style`: whose kernels."""
        return variant.library

    def constants_styles(self, variant: Variant, device: Device) -> tuple[str, ...]:
        """Whose constants to use, each put over those before it; by default :meth:`style`'s."""
        return (self.style(variant, device),)

    def chosen_products_s(self, batch: OpBatch, device: Device) -> F64 | float:  # noqa: ARG002
        """Products at their bound rate of work that can be done in several ways: the least of all
        ways, whichever is taken. Parts of these ways state 0 as their ``least``. 0 by default.
        """
        return 0.0

    def host_floor_s(self, batch: OpBatch, c: Mapping[str, float]) -> F64 | float:  # noqa: ARG002
        """What the host takes to launch the parts one by one, where no graph does; 0 by default."""
        return 0.0

    @final
    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        """See :meth:`Implementation.analyse`."""
        return self.analyse_with(batch, device, self.constants(batch.variant, device))

    @final
    def analyse_with(self, batch: OpBatch, device: Device, c: Mapping[str, float]) -> Analysis:
        """As :meth:`analyse`, with given constants: for fitting them."""
        timed = self.timed_parts(batch, device)
        shares: dict[str, F64] = {}
        for part in timed:
            own = part.total_s * c.get(f"{part.name}.efficiency", 1.0) * c["efficiency"]
            shares[part.name] = shares[part.name] + own if part.name in shares else own
        time = _sum(shares.values()) + c["module_s"]
        time = np.maximum(time, self.host_floor_s(batch, c))
        if batch.variant.launch == "stream":
            time = time + self._host_s(batch, device)
        resource_s = self._bounds(batch, device, timed)
        bound = _largest(resource_s.values())
        return Analysis(
            time_s=time,
            bound_s=bound,
            resource_s={**resource_s, "launch": np.full(len(batch), c["module_s"])},
            demand=_demand(timed),
            features={
                **{f"{name}_share": share / time for name, share in shares.items()},
                "bound_share": bound / time,
            },
            independent_log_sd=np.full(len(batch), c["independent_log_sd"]),
            warnings=tuple(dict.fromkeys(said for part in timed for said in part.times.warnings)),
        )

    @final
    def timed_parts(self, batch: OpBatch, device: Device) -> list[TimedPart]:
        """Every part with its own family's times.

        Raises:
            SilicastError: a part has no model on this device, or not in its format.
        """
        timed = []
        for part in self.parts(batch, device):
            model = _model_of(part, device)
            found = model.times(_queued(part.batch), device)
            count = np.zeros(len(batch)) + part.count
            least = count if part.least is None else np.minimum(part.least, count)
            streams = isinstance(model, StreamingKernel)
            timed.append(TimedPart(part.name, count, least, found, streams))
        return timed

    @final
    def constants(self, variant: Variant, device: Device) -> Mapping[str, float]:
        """Constants of the device's architecture, with those of the style put over them."""
        return _constants(self.group, device.architecture, self.constants_styles(variant, device))

    @final
    def shared_log_sd(self, batch: OpBatch, device: Device) -> Mapping[str, float]:
        """See :meth:`Implementation.shared_log_sd`."""
        c = self.constants(batch.variant, device)
        measured = load_physics(self.group).is_measured(device.architecture)
        wider = 1.0 if measured else c["unmeasured_widening"]
        found = {
            f"family:{self.family}": c["family_log_sd"], "device": c["device_log_sd"] * wider
        }  # fmt: skip
        formats = {part.batch.variant.dtype for part in self.parts(batch, device)}
        if any(with_format(device, name)[1] for name in formats):
            found["format"] = substitute_error(device)
        return found

    @final
    def flops(self, op: Op) -> int:
        """Exact useful floating-point operations: the parts'."""
        total = 0
        for part in self.parts(OpBatch.of([op]), None):
            model = implementation_for(part.batch.family, "simt")
            assert model is not None
            count = part.count if isinstance(part.count, int) else int(part.count[0])
            total += count * model.flops(op_at(part.batch, 0)) if count else 0
        return total

    @final
    def compulsory_bytes(self, op: Op) -> int:
        """Exact bytes of the module's own operands and results."""
        read, written = self.operands(OpBatch.of([op]))
        return int(read[0]) + int(written[0])

    def _host_s(self, batch: OpBatch, device: Device) -> F64:
        """What launching from the host adds: parts queue behind the first one."""
        first = self.parts(batch, device)[0]
        model = _model_of(first, device)
        queued = model.times(_queued(first.batch), device).estimate_s
        variant = replace(first.batch.variant, launch="stream")
        alone = model.times(replace(first.batch, variant=variant), device).estimate_s
        return np.maximum(alone - queued, 0.0)

    def _bounds(self, batch: OpBatch, device: Device, timed: Sequence[TimedPart]) -> dict[str, F64]:
        """Products of all parts one after another; the module's bytes through each memory."""
        read, written = (side.astype(np.float64) for side in self.operands(batch))
        capacity, chip_per_s = _chip_bound(device)
        beyond = np.maximum(read + written - capacity, 0.0)
        forced = np.maximum(read, beyond) if batch.variant.cache == "cold" else beyond
        return {
            "tensor": _sum(_products_s(part) for part in timed)
            + self.chosen_products_s(batch, device),
            "dram": forced / device.dram.bandwidth_bytes_per_s,
            "chip": (read + written) / chip_per_s,
        }


@lru_cache(maxsize=1024)
def _constants(group: str, architecture: str, styles: tuple[str, ...]) -> Mapping[str, float]:
    table = load_physics(group).constants(architecture)
    found = {name: value for name, value in table.items() if "." not in name}
    factors = {name: value for name, value in table.items() if name.endswith(".efficiency")}
    found |= {name: value for name, value in factors.items() if name.count(".") == 1}
    for style in styles:
        prefix = style + "."
        found |= {k.removeprefix(prefix): v for k, v in table.items() if k.startswith(prefix)}
    return found


def _chip_bound(device: Device) -> tuple[float, float]:
    """What the chip may hold from the call before, bytes, and bytes per second on it at most."""
    if device.execution_model == "simt":
        per_s = device.cores * device.clocks.max_hz * L2_BYTES_PER_CLOCK_AND_CORE
        return device.l2.capacity_bytes, per_s
    capacity, per_s, published = on_chip(device)
    return capacity, per_s * (1.0 if published else UNCERTAIN_BANDWIDTH)


def _model_of(part: PartBatch, device: Device) -> Implementation:
    model = implementation_for(part.batch.family, device.execution_model)
    if model is None:
        raise ValueError(f"no model of {part.batch.family} for {device.execution_model}")
    return model


def _queued(batch: OpBatch) -> OpBatch:
    """As a part runs: behind others, so that its launch does not wait for the host."""
    variant = batch.variant
    return replace(batch, variant=replace(variant, launch="")) if variant.launch else batch


def _products_s(part: TimedPart) -> F64:
    """Time of a part's matrix products at their bound rate, on whichever pipe forms them; what
    streaming kernels put on the FMA pipe is left out, for a fusion may avoid it.
    """
    resource_s = part.times.analysis.resource_s
    found = resource_s.get("tensor", resource_s.get("fma"))
    if found is None or part.streams:
        return np.zeros_like(part.least)
    return found * part.least


def _sum(terms: Iterable[F64]) -> F64:
    """Sum in the order given: the same bits for any number of rows."""
    total: F64 | None = None
    for term in terms:
        total = term if total is None else total + term
    if total is None:
        raise ValueError("a module has at least one part")
    return total


def _largest(terms: Iterable[F64]) -> F64:
    largest: F64 | None = None
    for term in terms:
        largest = term if largest is None else np.maximum(largest, term)
    if largest is None:
        raise ValueError("a bound has at least one resource")
    return largest


def _demand(timed: Sequence[TimedPart]) -> Demand:
    """Work of all parts; the occupancy is the largest of those that run."""
    pipes: dict[str, F64] = {}
    levels: dict[str, F64] = {}
    for part in timed:
        demand = part.times.analysis.demand
        for into, given in ((pipes, demand.pipe_work), (levels, demand.level_bytes)):
            for name, amount in given.items():
                into[name] = into.get(name, np.zeros_like(part.count)) + amount * part.count
    return Demand(
        tasks=_sum(part.times.analysis.demand.tasks * part.count for part in timed),
        waves=_sum(part.times.analysis.demand.waves * part.count for part in timed),
        occupancy=_largest(
            np.where(part.count > 0.0, part.times.analysis.demand.occupancy, 0.0) for part in timed
        ),
        pipe_work=pipes,
        level_bytes=levels,
    )
