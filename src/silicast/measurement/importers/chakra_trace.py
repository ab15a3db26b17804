"""Chakra traces of PyTorch with their times, one rank: host and device in one file.

A node of the device is a kernel of the operator of the host above it (``ctrl_deps``); that has the
shapes. Traces without times (of simulators) are no measurements.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any, final

from silicast.formats.chakra.calls import collectives_of
from silicast.formats.chakra.files import SUFFIX, ChakraTrace, read_chakra
from silicast.formats.chakra.schema import COLL, COMP, RECV, SEND, ChakraNode, Operands
from silicast.formats.source import Source
from silicast.measurement.importers.importer import FileReading, Importer, Options, session_of
from silicast.measurement.importers.kernel_names import rejection_reason
from silicast.measurement.importers.kineto import refined
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

LONGEST_TEXT = 100_000
"""Characters of the shapes of one node."""


@final
class ChakraMeasured(Importer):
    """``chakra_converter`` of a linked PyTorch trace: host operators and kernels with times."""

    name = "chakra"
    reads = "Chakra with times: trace.<rank>.et"

    def recognises(self, source: Source) -> bool:
        return source.path.suffix.casefold() == SUFFIX

    def read(self, source: Source, options: Options) -> FileReading:
        trace = read_chakra(source.path)
        (rank,) = trace.ranks.values()
        nodes = _RankNodes(rank.nodes)
        if not any(node.duration_us for node in nodes.on_device):
            raise source.error(
                f"holds no kernel with a time among {len(rank.nodes)} nodes",
                "duration_micros",
                "link the host's trace with the profiler's (chakra_trace_link), then convert",
            )
        session = session_of(
            source, options, "Chakra", Protocol("kineto", launch="stream", cache="as in the run")
        )
        launches = [*nodes.kernels(), *_collectives(trace)]
        reading = reading_of(launches, session, options, source, exclusive=False)
        return reading.at(nodes.times(source))


@final
class _RankNodes:
    """Nodes of a rank by where they run."""

    def __init__(self, nodes: Sequence[ChakraNode]) -> None:
        self.rows = {node.id: row for row, node in enumerate(nodes, 1)}
        host = [node for node in nodes if node.on_cpu]
        self.on_device = [
            node for node in nodes if not node.on_cpu and node.type in (COMP, COLL, SEND, RECV)
        ]
        above = {node.id: next(iter(node.ctrl_deps), None) for node in host}
        spans = _nested(host, above)
        self._operators = OperatorSpans([span for _, span in spans])
        positions = {id(span): position for position, span in enumerate(self._operators.spans)}
        self._position = {number: positions[id(span)] for number, span in spans}

    def kernels(self) -> Iterable[Launch]:
        """Kernels of one operator as one launch; those of no operator alone."""
        groups: dict[int, list[ChakraNode]] = {}
        for node in self.on_device:
            if node.type != COMP:
                continue
            position = next(
                (self._position[each] for each in node.parents if each in self._position), NOWHERE
            )
            owner = self._operators.owner(position)
            if owner == NOWHERE:
                reason = rejection_reason(node.name)
                yield Launch(node.name, node.duration_us, self.rows[node.id], reason=reason)
            else:
                groups.setdefault(owner, []).append(node)
        for owner, parts in groups.items():
            longest = max(parts, key=lambda node: node.duration_us)
            total = sum(node.duration_us for node in parts)
            table: Columns = self._operators.tables[owner] or {}
            call = self._operators.spans[owner].call.name
            row = self.rows[longest.id]
            yield Launch(longest.name, total, row, refined(table, call, longest.name))

    def times(self, source: Source) -> DeviceTimes | None:
        """When the device worked; None where starts are not recorded. Times are whole microseconds,
        too coarse to tell whether kernels of a stream overlap.
        """
        spans = [
            DeviceSpan(float(node.start_us), float(node.duration_us), None, self.rows[node.id])
            for node in self.on_device
        ]
        if len({span.start_us for span in spans}) < min(len(spans), 2):
            return None
        return device_times(spans, source, "start_time_micros")


def _nested(
    nodes: Sequence[ChakraNode], above: dict[int, int | None]
) -> list[tuple[int, OperatorSpan]]:
    """Operators as spans that lie in each other as the nodes call each other, in steps of one."""
    below: dict[int | None, list[ChakraNode]] = {}
    for node in nodes:
        parent = above[node.id]
        below.setdefault(parent if parent in above else None, []).append(node)
    spans: list[tuple[int, OperatorSpan]] = []
    clock = 0
    stack: list[tuple[ChakraNode, int]] = [(node, -1) for node in reversed(below.get(None, []))]
    while stack:
        node, begun = stack.pop()
        clock += 1
        if begun >= 0:
            spans.append((node.id, OperatorSpan(begun, clock, 0, _call(node))))
            continue
        stack.append((node, clock))
        stack += [(each, -1) for each in reversed(below.get(node.id, []))]
    return spans


def _call(node: ChakraNode) -> RecordedCall:
    """The operator as Kineto would have recorded it."""
    inputs: Operands = node.inputs
    dims, types, values = (_listed(text) for text in (inputs.shapes, inputs.types, inputs.values))
    plain = [str(each).removeprefix("Tensor(").removesuffix(")") for each in types]
    scalars = [
        "" if isinstance(each, list) and dim else str(each)
        for each, dim in zip(values, dims, strict=False)
    ]
    return RecordedCall(node.name, dims, plain, scalars)


def _listed(text: str) -> list[Any]:
    """A list as Python writes it; empty where it is none."""
    if not text or len(text) > LONGEST_TEXT:
        return []
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    return list(value) if isinstance(value, list | tuple) else []


def _collectives(trace: ChakraTrace) -> Iterable[Launch]:
    """Collectives with a time, in the bytes of nccl-tests."""
    for row, call in enumerate(collectives_of(trace), 1):
        node = call.members[0].node
        if not node.duration_us:
            continue
        gpus = len(call.ranks)
        if not call.op or gpus < 2 or not call.size_bytes:
            reason = "a collective whose kind, group or bytes are not recorded"
            yield Launch(node.name, node.duration_us, row, reason=reason)
            continue
        size = call.size_bytes * (gpus if call.op == "all_gather" else 1)
        table = {"op": call.op, "bytes": size, "gpus": gpus, "implementation": "nccl"}
        yield Launch(node.name, node.duration_us, row, collective=table)
