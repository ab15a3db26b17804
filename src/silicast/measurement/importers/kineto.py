"""PyTorch's profiler: kernels by the operators that launched them, with their shapes.

A kernel is linked to its operator by its External id. On a CPU there are no kernels: an operator's
time is its own and that of the operators in it that are no kernels themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, final

from silicast.core.errors import SilicastError
from silicast.measurement.importers.host_costs import RuntimeCall, host_costs, is_graph_launch
from silicast.measurement.importers.importer import Importer, Reading, importer
from silicast.measurement.importers.kernel_names import parse_name, unread_reason
from silicast.measurement.importers.kineto_collectives import collective_table
from silicast.measurement.importers.kineto_file import Args, Event, Trace
from silicast.measurement.importers.launches import Launch, rows_of
from silicast.measurement.importers.operator_spans import NOWHERE, Operators, Span
from silicast.measurement.importers.options import Options
from silicast.measurement.importers.recorded_calls import RecordedCall
from silicast.measurement.importers.sessions import session_of
from silicast.measurement.importers.source import Source
from silicast.measurement.records import Columns, Protocol

_NO_ARGS = Args()
_SDPA = {
    "aten::_scaled_dot_product_flash_attention": ("sdpa_flash", "fa2"),
    "aten::_scaled_dot_product_efficient_attention": ("sdpa_efficient", "cutlass"),
    "aten::_scaled_dot_product_cudnn_attention": ("sdpa_cudnn", "cudnn"),
}
"""Operator of a GPU -> variant and library of its kernel."""
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


@final
@importer
class Kineto(Importer):
    """``prof.export_chrome_trace``, ``tensorboard_trace_handler``, packed or not."""

    name: ClassVar[str] = "kineto"
    reads: ClassVar[str] = "PyTorch profiler: trace.json, .json.gz"

    def recognises(self, source: Source) -> bool:
        """See :meth:`Importer.recognises`."""
        own = source.holds('"schemaVersion"') or source.holds('"deviceProperties"')
        return source.is_json and own and (
            source.holds('"traceEvents"') or source.holds('"record_shapes"')
            or source.holds('"deviceProperties"')
        )  # fmt: skip

    def read(self, source: Source, options: Options) -> Reading:
        """See :meth:`Importer.read`."""
        trace = source.decoded(Trace)
        events = [event for event in trace.traceEvents if event.ph == "X"]
        found = _Trace(events, source)
        if not found.on_device and not found.operators.spans:
            raise SilicastError(
                f"holds neither kernels nor operators among {len(events)} events",
                file=str(source.path), field="traceEvents",
                hint="profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
            )  # fmt: skip
        launches = found.kernels() if found.on_device else found.operators_alone()
        used = {event.args.device for event in found.on_device if event.args is not None}
        names = {
            str(device.get("name", ""))
            for device in trace.deviceProperties
            if device.get("id") in used
        }
        notes = () if found.on_device else ("operators of a CPU, whose times hold their dispatch",)
        hosts = host_costs(found.runtime_calls(), options.session, "torch-eager")
        named = {"host_name": trace.host_name} if trace.host_name else {}
        session = session_of(
            source, options, "PyTorch profiler", reported=names, devices=len(used),
            machine={**named, **hosts.noted}, notes=notes,
            protocol=Protocol(timer="kineto", launch="stream", cache="as in the run"),
        )  # fmt: skip
        rows = rows_of(launches, options, str(source.path), exclusive=False)
        records = (*rows.records, *hosts.rows)
        return Reading(session, records, rows.total_us, rows.understood_us)


@final
class _Trace:
    """Events by what they are."""

    def __init__(self, events: list[Event], source: Source) -> None:
        self.source = source
        self.on_device = [event for event in events if event.cat in _ON_DEVICE]
        self.runtime = [event for event in events if event.cat in ("cuda_runtime", "cuda_driver")]
        own = [event for event in events if event.cat == "cpu_op"]
        spans = [(self._span(event), event) for event in own]
        self.operators = Operators([span for span, _ in spans])
        numbers = {id(span): (event.args or _NO_ARGS).operator for span, event in spans}
        self.arguments = {id(span): event.args or _NO_ARGS for span, event in spans}
        self.by_number = {
            numbers[id(span)]: index for index, span in enumerate(self.operators.spans)
        }
        self.order = {id(event): row for row, event in enumerate(events, 1)}

    def _span(self, event: Event) -> Span:
        start, duration = self._number(event, "ts"), self._number(event, "dur")
        args = event.args or _NO_ARGS
        call = RecordedCall(
            str(event.name), _listed(args.dims), _listed(args.types), _listed(args.values),
            _listed(args.strides),
        )  # fmt: skip
        return Span(start, start + duration, (event.pid, event.tid), call)

    def _number(self, event: Event, field: str) -> float:
        value = getattr(event, field)
        try:
            return float(value)
        except ValueError:
            raise SilicastError(
                f"{str(event.name)[:60]!r} has {field} {value!r}, expected a number",
                file=str(self.source.path), field=f"traceEvents.{field}",
            ) from None  # fmt: skip

    def kernels(self) -> Iterable[Launch]:
        """Kernels of one operator as one launch; those of graphs and of nobody by themselves."""
        in_graph = {
            event.args.correlation
            for event in self.runtime
            if event.args is not None and is_graph_launch(str(event.name))
        }
        groups: dict[int, list[tuple[Event, float]]] = {}
        for event in self.on_device:
            args, took = event.args or _NO_ARGS, self._number(event, "dur")
            index = self.by_number.get(args.operator, NOWHERE) if args.operator else NOWHERE
            replayed = args.correlation is not None and args.correlation in in_graph
            owner = NOWHERE if replayed else self.operators.owner(index)
            name = str(event.name)
            collective = self._collective(args, index, name)
            if collective is not None:
                yield Launch(name, took, self.order[id(event)], collective=collective)
            elif owner != NOWHERE and event.cat != "gpu_memset":
                groups.setdefault(owner, []).append((event, took))
            else:
                reason = unread_reason(name)
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
            return Launch(name, total, row, reason=unread_reason(name))
        table = self.operators.tables[owner]
        assert table is not None
        call = self.operators.spans[owner].call.name
        return Launch(name, total, row, kernel=_refined(table, call, name))

    def _collective(self, args: Args, index: int, name: str) -> Columns | None:
        if args.collective is None and index != NOWHERE:
            args = self.arguments[id(self.operators.spans[index])]
        return collective_table(args, name)

    def operators_alone(self) -> Iterable[Launch]:
        """Operators of a CPU: each with what its parts take that are no kernels themselves."""
        spent: dict[int, float] = {}
        for index, own in enumerate(self.operators.own_times()):
            owner = self.operators.owner(index)
            target = index if owner == NOWHERE else owner
            spent[target] = spent.get(target, 0.0) + own
        for index, took in spent.items():
            span, reason = self.operators.spans[index], self.operators.reasons[index]
            table = self.operators.tables[index]
            if table is not None:
                table = {**table, "library": "torch"}
            yield Launch(span.call.name, max(took, 0.0), index + 1, kernel=table, reason=reason)

    def runtime_calls(self) -> Iterable[RuntimeCall]:
        """Calls of the CUDA runtime and driver."""
        for event in self.runtime:
            start, took = self._number(event, "ts"), self._number(event, "dur")
            yield RuntimeCall(str(event.name), (event.pid, event.tid), start, took)


def _refined(table: Columns, call: str, name: str) -> Columns:
    """With what the kernel's name adds: fp32 that is multiplied as TF32, a library of its own."""
    said = parse_name(name)
    found = dict(table)
    if said.dtype == "tf32" and found.get("dtype") == "fp32" and found["op"] in ("gemm", "conv2d"):
        found["dtype"] = "tf32"
    if call in _SDPA:
        found["variant"], found["library"] = _SDPA[call]
    elif said.own_library:
        found["library"] = said.own_library
    return found


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
