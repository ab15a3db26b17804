"""PyTorch's profiler (Kineto): kernels by the operators that launched them, with their shapes.

A kernel is linked to its operator by its External id. On a CPU there are no kernels: an operator's
time is its own and that of the operators in it that are no kernels themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, final

import msgspec

from silicast.core.dtypes import BITS
from silicast.formats.source import Source
from silicast.measurement.importers.host_costs import RuntimeCall, host_costs, is_graph_launch
from silicast.measurement.importers.importer import FileReading, Importer, Options, session_of
from silicast.measurement.importers.kernel_names import parse_name, rejection_reason
from silicast.measurement.importers.launches import Launch, reading_of
from silicast.measurement.importers.operator_spans import (
    NOWHERE,
    DeviceSpan,
    DeviceTimes,
    OperatorSpan,
    OperatorSpans,
    device_times,
)
from silicast.measurement.importers.recorded_calls import RecordedCall
from silicast.measurement.records.records import Columns, Protocol

_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
ON_A_CPU = "operators of a CPU, whose times hold their dispatch"
_SDPA = {
    "aten::_scaled_dot_product_flash_attention": ("sdpa_flash", "fa2"),
    "aten::_scaled_dot_product_efficient_attention": ("sdpa_efficient", "cutlass"),
    "aten::_scaled_dot_product_cudnn_attention": ("sdpa_cudnn", "cudnn"),
}
"""Operator of a GPU -> variant and library of its kernel."""
_COLLECTIVES = {
    "allreduce": "all_reduce", "all_reduce": "all_reduce", "allgather": "all_gather",
    "_allgather_base": "all_gather", "allgather_into_tensor_coalesced": "all_gather",
    "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter", "all_to_all": "all_to_all",
    "all_to_allv": "all_to_all", "alltoall": "all_to_all", "alltoall_base": "all_to_all",
    "allreduce_coalesced": "all_reduce", "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "broadcast": "broadcast", "send": "send_recv",
    "recv": "send_recv",
}  # fmt: skip
_DTYPES = {
    "bfloat16": "bf16", "half": "fp16", "float16": "fp16", "float": "fp32", "float32": "fp32",
    "double": "fp64", "int": "int32", "long": "int64", "char": "int8", "byte": "int8",
    "float8_e4m3fn": "fp8", "float8_e5m2": "fp8",
}  # fmt: skip


@final
class Args(msgspec.Struct, frozen=True):
    """Fields of an event besides its time; versions of PyTorch differ in what they write."""

    external_id: Any = msgspec.field(name="External id", default=None)
    external_id_before: Any = msgspec.field(name="external id", default=None)
    correlation: int | float | str | None = None
    device: int | float | str | None = None
    dims: Any = msgspec.field(name="Input Dims", default=None)
    types: Any = msgspec.field(name="Input type", default=None)
    values: Any = msgspec.field(name="Concrete Inputs", default=None)
    strides: Any = msgspec.field(name="Input Strides", default=None)
    collective: Any = msgspec.field(name="Collective name", default=None)
    elements_in: Any = msgspec.field(name="In msg nelems", default=None)
    elements_out: Any = msgspec.field(name="Out msg nelems", default=None)
    group_size: Any = msgspec.field(name="Group size", default=None)
    dtype: Any = None

    @property
    def operator(self) -> int:
        """Number of the operator that an event belongs to, 0 = none."""
        value = self.external_id if self.external_id is not None else self.external_id_before
        return value if isinstance(value, int) else 0


@final
class Event(msgspec.Struct, frozen=True):
    """One event; times in microseconds."""

    ph: str = ""
    cat: str = ""
    name: Any = ""
    ts: float | str = 0.0
    dur: float | str = 0.0
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    stated: Args | None = msgspec.field(name="args", default=None)

    @property
    def args(self) -> Args:
        """Its fields, none where it has no arguments."""
        return self.stated or _NO_ARGS


_NO_ARGS = Args()


@final
class DeviceProperties(msgspec.Struct, frozen=True):
    """A device that a trace names, and its number there."""

    id: int | float | str | None = None
    name: Any = ""


@final
class KinetoTrace(msgspec.Struct, frozen=True):
    """The file, as far as it is read."""

    traceEvents: list[Event]  # noqa: N815 - the file's own name
    deviceProperties: list[DeviceProperties] = []  # noqa: N815
    host_name: str = ""


@final
class Kineto(Importer):
    """``prof.export_chrome_trace``, ``tensorboard_trace_handler``, packed or not."""

    name = "kineto"
    reads = "PyTorch profiler: trace.json, .json.gz"

    def recognises(self, source: Source) -> bool:
        events = source.holds('"traceEvents"') or source.holds('"record_shapes"')
        versioned = source.holds('"schemaVersion"') and events
        return source.is_json and (source.holds('"deviceProperties"') or versioned)

    def read(self, source: Source, options: Options) -> FileReading:
        trace = source.decoded(KinetoTrace)
        events = [event for event in trace.traceEvents if event.ph == "X"]
        result = _Events(events, source)
        if not result.on_device and not result.operators.spans:
            raise source.error(
                f"holds neither kernels nor operators among {len(events)} events",
                "traceEvents",
                "profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
            )
        used = {event.args.device for event in result.on_device} - {None}
        host_rows, noted = host_costs(result.runtime_calls(), options.session, "torch-eager")
        session = session_of(
            source,
            options,
            "PyTorch profiler",
            Protocol(timer="kineto", launch="stream", cache="as in the run"),
            reported={str(device.name) for device in trace.deviceProperties if device.id in used},
            devices=len(used),
            machine={**({"host_name": trace.host_name} if trace.host_name else {}), **noted},
            notes=() if result.on_device else (ON_A_CPU,),
        )
        launches = result.kernels() if result.on_device else result.operators_alone()
        reading = reading_of(launches, session, options, source, exclusive=False, more=host_rows)
        return reading.at(result.times())


@final
class _Events:
    """Events by what they are."""

    def __init__(self, events: list[Event], source: Source) -> None:
        self.source = source
        self.on_device = [event for event in events if event.cat in _ON_DEVICE]
        self.runtime = [event for event in events if event.cat in ("cuda_runtime", "cuda_driver")]
        spans = [(self._span(event), event.args) for event in events if event.cat == "cpu_op"]
        self.operators = OperatorSpans([span for span, _ in spans])
        arguments = {id(span): args for span, args in spans}
        self.arguments = [arguments[id(span)] for span in self.operators.spans]
        self.by_number = {args.operator: index for index, args in enumerate(self.arguments)}
        self.order = {id(event): row for row, event in enumerate(events, 1)}

    def _span(self, event: Event) -> OperatorSpan:
        start, duration = self._number(event, "ts"), self._number(event, "dur")
        args = event.args
        recorded = (args.dims, args.types, args.values, args.strides)
        call = RecordedCall(
            str(event.name), *(each if isinstance(each, list) else [] for each in recorded)
        )
        return OperatorSpan(start, start + duration, (event.pid, event.tid), call)

    def _number(self, event: Event, field: str) -> float:
        value = getattr(event, field)
        with suppress(ValueError):
            if math.isfinite(number := float(value)) or field == "dur":
                return number
        text = f"{str(event.name)[:60]!r} has {field} {value!r}, expected a number"
        raise self.source.error(text, f"traceEvents.{field}")

    def kernels(self) -> Iterable[Launch]:
        """Kernels of one operator as one launch; those of graphs and of no operator alone."""
        in_graph = {
            event.args.correlation for event in self.runtime if is_graph_launch(str(event.name))
        } - {None}
        groups: dict[int, list[tuple[Event, float]]] = {}
        for event in self.on_device:
            args, took, name = event.args, self._number(event, "dur"), str(event.name)
            index = self.by_number.get(args.operator, NOWHERE) if args.operator else NOWHERE
            replayed = args.correlation in in_graph
            owner = NOWHERE if replayed else self.operators.owner(index)
            sized = (
                args if args.collective is not None or index == NOWHERE else (self.arguments[index])
            )
            collective = collective_table(sized, name)
            if collective is not None:
                yield Launch(name, took, self.order[id(event)], collective=collective)
            elif owner != NOWHERE and event.cat != "gpu_memset":
                groups.setdefault(owner, []).append((event, took))
            else:
                reason = rejection_reason(name)
                if index != NOWHERE and not replayed and event.cat == "kernel":
                    reason = f"{self.operators.spans[index].call.name}: {reason}"
                yield Launch(name, took, self.order[id(event)], reason=reason)
        for owner, parts in groups.items():
            yield self._launched(owner, parts)

    def _launched(self, owner: int, parts: list[tuple[Event, float]]) -> Launch:
        """All kernels of one operator; a transfer from or to the host is no kernel's."""
        event, _ = max(parts, key=lambda part: part[1])
        name, row = str(event.name), self.order[id(event)]
        total = sum(took for _, took in parts)
        if any("HtoD" in str(each.name) or "DtoH" in str(each.name) for each, _ in parts):
            return Launch(name, total, row, reason=rejection_reason(name))
        call = self.operators.spans[owner].call.name
        return Launch(name, total, row, refined(self.operators.tables[owner] or {}, call, name))

    def operators_alone(self) -> Iterable[Launch]:
        """Operators of a CPU: each with what its parts take that are no kernels themselves."""
        spent: dict[int, float] = {}
        for index, time in enumerate(self.operators.own_times()):
            owner = self.operators.owner(index)
            target = index if owner == NOWHERE else owner
            spent[target] = spent.get(target, 0.0) + time
        for index, took in spent.items():
            span, reason = self.operators.spans[index], self.operators.reasons[index]
            table = self.operators.tables[index]
            kernel = None if table is None else {**table, "library": "torch"}
            yield Launch(span.call.name, max(took, 0.0), index + 1, kernel, reason=reason)

    def times(self) -> DeviceTimes | None:
        """When the device worked; None without kernels."""
        spans = [
            DeviceSpan(
                self._number(event, "ts"),
                self._number(event, "dur"),
                (event.pid, event.tid),
                self.order[id(event)],
            )
            for event in self.on_device
        ]
        return device_times(spans, self.source, "traceEvents.ts") if spans else None

    def runtime_calls(self) -> Iterable[RuntimeCall]:
        """Calls of the CUDA runtime and driver."""
        for event in self.runtime:
            start, took = self._number(event, "ts"), self._number(event, "dur")
            yield RuntimeCall(str(event.name), (event.pid, event.tid), start, took)


def refined(table: Columns, call: str, name: str) -> Columns:
    """With what the kernel's name adds: fp32 that is multiplied as TF32, a library of its own."""
    named, columns = parse_name(name), dict(table)
    if named.dtype == "tf32" and columns["dtype"] == "fp32" and columns["op"] in ("gemm", "conv2d"):
        columns["dtype"] = "tf32"
    if call in _SDPA:
        columns["variant"], columns["library"] = _SDPA[call]
    elif named.own_library:
        columns["library"] = named.own_library
    return columns


def collective_table(args: Args, name: str) -> Columns | None:
    """The ``workload`` of a collective kernel, None if the trace does not hold its size.

    nccl-tests counts the whole buffer: of an all-gather what is received, of a reduce-scatter what
    is given, of the others one rank's.
    """
    op = _COLLECTIVES.get(str(args.collective).casefold().removeprefix("nccl:"))
    dtype = _DTYPES.get(str(args.dtype).casefold().removeprefix("c10::"), "")
    sizes = (args.elements_in, args.elements_out, args.group_size)
    if op is None or not dtype or not all(isinstance(size, int) for size in sizes):
        return None
    nbytes = int(max(args.elements_in, args.elements_out) * BITS[dtype] // 8)
    if nbytes < 1 or args.group_size < 2 or parse_name(name).family != "collective":
        return None
    return {
        "op": op,
        "bytes": nbytes,
        "gpus": args.group_size,
        "dtype": dtype,
        "implementation": "nccl",
    }
