"""ONNX files: shapes by onnx's own inference, weights never loaded.

Reshapes, and the arithmetic on shapes that runs on the host, make no node; every other operator
does. Chains that every runtime joins are one node: the erf form of GELU, and the quantise and
dequantise pairs around a product.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import onnx

from silicast.core.errors import SilicastError, unsupported
from silicast.core.files import read_bounded
from silicast.workload.front_ends.onnx_shapes import label, with_shapes
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.operators import OperatorCall, TensorValue, kernels_of

OLDEST_OPSET = 9
"""Operators before it lack rules of shapes that later ones have."""
VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout"})
"""Results that share memory with their input; dropout does nothing outside training."""
SHAPES = frozenset({"Shape", "Size", "Constant"})
"""Operators whose results the host knows."""
HOST_ELEMENTS = 64
"""Integers of up to so many that only depend on shapes are computed on the host."""
MOST_BYTES = 2 << 30
"""Of a file; protobuf allows no larger one."""
PRODUCTS = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose"})


def read_onnx(path: Path, sizes: Mapping[str, int]) -> Graph:
    """The graph of an ONNX file; see :func:`silicast.workload.front_ends.read_program`.

    Raises:
        SilicastError: the file is not one, or of a version that is not read; a dynamic dimension
            has no value; a node's sizes cannot be found, or nodes wait for each other.
    """
    content = read_bounded(path, MOST_BYTES, "an ONNX model")
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf's errors have no common type
        raise SilicastError(
            f"is not an ONNX file ({type(error).__name__})",
            field="graph",
            hint="expected a serialised ModelProto, as torch.onnx.export writes it",
        ) from None
    if not model.graph.node:
        raise SilicastError("holds no nodes", field="graph", hint="export a model, not weights")
    newest = onnx.defs.onnx_opset_version()
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx") and not OLDEST_OPSET <= entry.version <= newest:
            raise unsupported(
                f"opset {entry.version}; {OLDEST_OPSET} to {newest} are read",
                "opset_import",
                "convert it with onnx.version_converter, or export with opset_version=17",
            )
    outputs = tuple(output.name for output in model.graph.output)
    return _OnnxReader(*with_shapes(model, sizes), outputs).graph(path.stem)


@final
class _OnnxReader:
    """Walks the nodes once, in order."""

    def __init__(
        self,
        nodes: list[Any],
        values: Mapping[str, TensorValue],
        weights: frozenset[str],
        outputs: tuple[str, ...],
    ) -> None:
        self.source, self.values, self.weights = nodes, values, weights
        self.outputs = outputs
        self.nodes: list[Node] = []
        self.makers: dict[str, tuple[str, ...]] = {}
        self.host: set[str] = set()
        self.constants = set(weights)
        self.dequantized: dict[str, TensorValue] = {}
        self.readers: dict[str, list[Any]] = {}
        self.names: dict[str, int] = {}
        self.joined: set[int] = set()
        self.gelu: set[int] = set()
        for node in nodes:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    def graph(self, name: str) -> Graph:
        """The forward pass as one block."""
        for node in self.source:
            if node.op_type == "Erf":
                self._join_gelu(node)
        for node in self.source:
            if not self._launches_nothing(node):
                self._add(node)
        written_out = {
            output for node in self.source if node.op_type == "Constant" for output in node.output
        }
        weight_names = self.weights | (self.constants & written_out)
        weights = sum(self.values[weight_name].nbytes for weight_name in weight_names)
        blocks = (Block("forward", tuple(self.nodes)),)
        results = dict.fromkeys(x for output in self.outputs for x in self.makers.get(output, ()))
        return Graph(name, blocks, "inference", parameter_bytes=weights, results=tuple(results))

    def _launches_nothing(self, node: Any) -> bool:
        """Notes where the results of a node come from that is no kernel."""
        if id(node) in self.joined:
            self._alias(node)
        elif node.op_type == "Constant" and self.values[node.output[0]].elements > HOST_ELEMENTS:
            self.constants.update(node.output)
        elif self._on_host(node):
            self.host.update(node.output)
        elif all(name in self.constants for name in node.input if name):
            self.constants.update(node.output)  # folded once, when the model is loaded
            self._note_weights(node)
        elif node.op_type in VIEWS:
            self._alias(node)
        elif node.op_type == "DequantizeLinear" and self._feeds_products(node):
            self.dequantized[node.output[0]] = self.values[node.input[0]]
            self._alias(node)
        else:
            return False
        return True

    def _on_host(self, node: Any) -> bool:
        """Whether a node only computes shapes."""
        if node.op_type in SHAPES:
            return True
        inputs = {name for name in node.input if name}
        if not inputs <= self.host | self.constants or not inputs & self.host:
            return False
        return all(self.values[name].elements <= HOST_ELEMENTS for name in node.output if name)

    def _alias(self, node: Any) -> None:
        makers = tuple(maker for name in node.input for maker in self.makers.get(name, ()))
        self.makers |= dict.fromkeys(node.output, tuple(dict.fromkeys(makers)))

    def _note_weights(self, node: Any) -> None:
        """Remembers in which format weights are stored that are widened before a product."""
        if node.op_type == "DequantizeLinear":
            self.dequantized[node.output[0]] = self.values[node.input[0]]
        elif node.op_type == "Transpose" and node.input[0] in self.dequantized:
            self.dequantized[node.output[0]] = self.dequantized[node.input[0]]

    def _feeds_products(self, node: Any) -> bool:
        readers = self.readers.get(node.output[0], [])
        return bool(readers) and all(reader.op_type in PRODUCTS for reader in readers)

    def _add(self, node: Any) -> None:
        named = [name for name in node.input if name and name not in self.host]
        call = self._call(node, named)
        if not any(value.elements for value in call.outputs):
            return
        waits = tuple(dict.fromkeys(maker for name in named for maker in self.makers.get(name, ())))
        weights = sum(
            (self.dequantized.get(name) or self.values[name]).nbytes
            for name in dict.fromkeys(named)
            if name in self.constants
        )
        names: list[str] = []
        for kernel in kernels_of(call):
            name = self._unique(label(node) + (f".{kernel.role}" if kernel.role else ""))
            size, read = (0, 0) if names else (call.written_bytes, weights)
            before = (*waits, *names[-1:])
            self.nodes.append(Node(name, kernel.op, before, 0, size, read, call.name))
            names.append(name)
        self.makers |= dict.fromkeys(node.output, tuple(dict.fromkeys((names[0], names[-1]))))

    def _call(self, node: Any, named: list[str]) -> OperatorCall:
        """A node with its attributes; ``stored`` holds dequantised operands as they are kept."""
        attributes = {
            entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute
        }
        attributes["stored"] = [self.dequantized.get(name) for name in node.input[:2]]
        attributes["gelu"] = id(node) in self.gelu
        domain = node.domain if node.domain not in ("", "ai.onnx") else "onnx"
        return OperatorCall(
            f"{domain}.{node.op_type}",
            tuple(self._value(name) if name else None for name in node.input),
            attributes,
            tuple(self._value(name) for name in named),
            tuple(self.values[name] for name in node.output if name),
        )

    def _value(self, name: str) -> TensorValue:
        value = self.values[name]
        if name in self.constants:
            return TensorValue(value.shape, value.dtype, value.nbytes, parameter=True)
        return value

    def _unique(self, stem: str) -> str:
        count = self.names[stem] = self.names.get(stem, 0) + 1
        return stem if count == 1 else f"{stem}_{count}"

    def _join_gelu(self, erf: Any) -> None:
        """Marks the nodes around an Erf that are one GELU: x / sqrt(2), 1 + erf, x times, half."""
        before = next((n for n in self.source if erf.input[0] in n.output), None)
        chain, name = [before], erf.output[0]
        for wanted in ("Add", "Mul", "Mul"):
            readers = self.readers.get(name, [])
            if len(readers) != 1 or readers[0].op_type != wanted or name in self.outputs:
                return
            chain.append(readers[0])
            name = readers[0].output[0]
        if before is None or before.op_type not in ("Div", "Mul"):
            return
        if len(self.readers.get(before.output[0], [])) == 1:
            self.gelu.add(id(erf))
            self.joined.update(map(id, chain))
