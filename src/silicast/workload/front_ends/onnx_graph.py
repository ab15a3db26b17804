"""Nodes of an ONNX model as nodes of a graph: what runs, what is a view, what runs on the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import onnx

from silicast.workload.front_ends.onnx_shapes import ShapedModel, label
from silicast.workload.graph import Block, Graph, Node
from silicast.workload.operators import Call, Value, kernels_of

VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout"})
"""Results that share memory with their input; dropout does nothing outside training."""
SHAPES = frozenset({"Shape", "Size", "Constant"})
"""Operators whose results the host knows."""
HOST_ELEMENTS = 64
"""Integers of up to so many that only depend on shapes are computed on the host."""
PRODUCTS = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose"})


def graph_of_model(model: ShapedModel, name: str) -> Graph:
    """The forward pass of a model as one block."""
    reader = _Reader(model)
    for node in model.nodes:
        reader.add(node)
    written_out = {
        each for node in model.nodes if node.op_type == "Constant" for each in node.output
    }
    kept = model.weights | (reader.constants & written_out)
    weights = sum(model.values[each].nbytes for each in kept)
    blocks = (Block("forward", tuple(reader.nodes)),)
    return Graph(name, blocks, "inference", parameter_bytes=weights)


@final
class _Reader:
    """Walks the nodes once, in order."""

    def __init__(self, model: ShapedModel) -> None:
        self.model, self.values = model, model.values
        self.nodes: list[Node] = []
        self.makers: dict[str, tuple[str, ...]] = {}
        self.host: set[str] = set()
        self.constants = set(model.weights)
        self.dequantized: dict[str, Value] = {}
        self.readers: dict[str, list[Any]] = {}
        self.names: dict[str, int] = {}
        self.joined: set[int] = set()
        self.gelu: set[int] = set()
        for node in model.nodes:
            for each in node.input:
                self.readers.setdefault(each, []).append(node)
        for node in model.nodes:
            if node.op_type == "Erf":
                self._join_gelu(node)

    def add(self, node: Any) -> None:
        """Adds the kernels of one node, if it has any."""
        if id(node) in self.joined:
            self._alias(node)
            return
        if node.op_type == "Constant" and self.values[node.output[0]].elements > HOST_ELEMENTS:
            self.constants.update(node.output)
            return
        if self._on_host(node):
            self.host.update(node.output)
            return
        if all(each in self.constants for each in node.input if each):
            self.constants.update(node.output)  # folded once, when the model is loaded
            self._note_weights(node)
            return
        if node.op_type in VIEWS:
            self._alias(node)
            return
        if node.op_type == "DequantizeLinear" and self._feeds_products(node):
            self.dequantized[node.output[0]] = self.values[node.input[0]]
            self._alias(node)
            return
        self._add(node)

    def _on_host(self, node: Any) -> bool:
        """Whether a node only computes shapes."""
        if node.op_type in SHAPES:
            return True
        known = self.host | self.constants
        inputs = [each for each in node.input if each]
        if not inputs or not all(each in known for each in inputs):
            return False
        if not any(each in self.host for each in inputs):
            return False
        return all(self.values[each].elements <= HOST_ELEMENTS for each in node.output if each)

    def _alias(self, node: Any) -> None:
        found = tuple(maker for each in node.input for maker in self.makers.get(each, ()))
        for each in node.output:
            self.makers[each] = tuple(dict.fromkeys(found))

    def _note_weights(self, node: Any) -> None:
        """Remembers in which format weights are stored that are widened before a product."""
        if node.op_type == "DequantizeLinear":
            self.dequantized[node.output[0]] = self.values[node.input[0]]
        elif node.op_type == "Transpose" and node.input[0] in self.dequantized:
            self.dequantized[node.output[0]] = self.dequantized[node.input[0]]

    def _feeds_products(self, node: Any) -> bool:
        readers = self.readers.get(node.output[0], [])
        return bool(readers) and all(each.op_type in PRODUCTS for each in readers)

    def _add(self, node: Any) -> None:
        named = [each for each in node.input if each and each not in self.host]
        call = self._call(node, named)
        if not any(value.elements for value in call.outputs):
            return
        waits = tuple(dict.fromkeys(maker for each in named for maker in self.makers.get(each, ())))
        weights = sum(
            (self.dequantized.get(each) or self.values[each]).nbytes
            for each in dict.fromkeys(named)
            if each in self.constants
        )
        names: list[str] = []
        for kernel in kernels_of(call):
            name = self._unique(label(node) + (f".{kernel.role}" if kernel.role else ""))
            first = not names
            before = (*waits, *names[-1:])
            size, read = (call.written_bytes, weights) if first else (0, 0)
            self.nodes.append(Node(name, kernel.op, before, 0, size, read, call.name))
            names.append(name)
        makers = tuple(dict.fromkeys((names[0], names[-1])))
        for each in node.output:
            self.makers[each] = makers

    def _call(self, node: Any, named: list[str]) -> Call:
        """A node with its attributes; ``stored`` says how dequantised operands were kept."""
        given = {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}
        given["stored"] = [self.dequantized.get(each) for each in node.input[:2]]
        given["gelu"] = id(node) in self.gelu
        domain = node.domain if node.domain not in ("", "ai.onnx") else "onnx"
        return Call(
            f"{domain}.{node.op_type}",
            tuple(self._value(each) if each else None for each in node.input),
            given,
            tuple(self._value(each) for each in named),
            tuple(self.values[each] for each in node.output if each),
        )

    def _value(self, name: str) -> Value:
        value = self.values[name]
        if name in self.constants:
            return Value(value.shape, value.dtype, value.nbytes, parameter=True)
        return value

    def _unique(self, stem: str) -> str:
        count = self.names[stem] = self.names.get(stem, 0) + 1
        return stem if count == 1 else f"{stem}_{count}"

    def _join_gelu(self, erf: Any) -> None:
        """Marks the nodes around an Erf that are one GELU: x / sqrt(2), 1 + erf, x times, half."""
        makers: Mapping[str, Any] = {out: n for n in self.model.nodes for out in n.output}
        before = makers.get(erf.input[0])
        after = []
        name = erf.output[0]
        for wanted in ("Add", "Mul", "Mul"):
            readers = self.readers.get(name, [])
            if len(readers) != 1 or readers[0].op_type != wanted:
                return
            after.append(readers[0])
            name = readers[0].output[0]
        if before is None or before.op_type not in ("Div", "Mul"):
            return
        if len(self.readers.get(before.output[0], [])) != 1:
            return
        self.gelu.add(id(erf))
        self.joined.update((id(before), *(id(each) for each in after)))
