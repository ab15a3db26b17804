"""TFLite files: operators as the ONNX operators that do the same, so that one table lowers both.

Images lie with their channels beside each other; shapes are brought into the order of ONNX, with
the strides of the file. Activations that are fused cost nothing of their own. Numbers of fields and
operators are those of ``tensorflow/lite/schema/schema.fbs``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

from silicast.core.dtypes import BITS
from silicast.core.errors import SilicastError, unsupported
from silicast.core.files import read_bounded
from silicast.workload.front_ends.flatbuffer import FlatTable
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.operators import OperatorCall, TensorValue, kernels_of

MAX_BYTES = 2 << 30
IDENTIFIER = b"TFL3"
TYPES: Final[Mapping[int, str]] = {
    0: "fp32",
    1: "fp16",
    2: "int32",
    3: "int8",
    4: "int64",
    6: "bool",
    7: "int16",
    9: "int8",
    10: "fp64",
    17: "int4",
}
"""Number of a type -> format; unsigned bytes count as int8."""
VIEWS = frozenset({22, 43, 70})
"""RESHAPE, SQUEEZE, EXPAND_DIMS: results share memory with their input."""
UNPACKED = frozenset({6, 124})
"""DEQUANTIZE, DENSIFY: of weights, runtimes run them once as they load the file."""
CONV, DEPTHWISE, DENSE, TRANSPOSED, CUSTOM, MATRICES = 3, 4, 9, 67, 32, 126
POOLS = {1: "AveragePool", 17: "MaxPool"}
SEQUENCES: Final[Mapping[int, tuple[str, int, int, int]]] = {
    35: ("RNN", 1, 1, 0),
    44: ("LSTM", 4, 2, 3),
}
"""UNIDIRECTIONAL_SEQUENCE_RNN and _LSTM: ONNX operator, gates, which operand has the weights of one
gate's inputs, and the field that puts steps before sequences."""
OPERATORS: Final[Mapping[int, str]] = {
    0: "Add",
    2: "Concat",
    5: "DepthToSpace",
    6: "DequantizeLinear",
    11: "ReduceL2",
    14: "Sigmoid",
    18: "Mul",
    19: "Relu",
    21: "Clip",
    23: "Resize",
    25: "Softmax",
    26: "SpaceToDepth",
    28: "Tanh",
    34: "Pad",
    36: "Gather",
    39: "Transpose",
    40: "ReduceMean",
    41: "Sub",
    42: "Div",
    45: "Slice",
    47: "Exp",
    49: "Split",
    50: "LogSoftmax",
    53: "Cast",
    54: "PRelu",
    55: "Max",
    56: "ArgMax",
    57: "Min",
    59: "Neg",
    60: "Pad",
    65: "Slice",
    69: "Tile",
    74: "ReduceSum",
    75: "Sqrt",
    76: "Sqrt",
    78: "Pow",
    82: "ReduceMax",
    83: "Concat",
    88: "Split",
    97: "Resize",
    98: "LeakyRelu",
    99: "Sub",
    100: "Pad",
    101: "Abs",
    102: "Split",
    111: "Elu",
    114: "QuantizeLinear",
    117: "HardSwish",
    126: "MatMul",
    150: "Gelu",
}
"""Number of a builtin operator -> the ONNX operator; others count by their bytes, and answers name
them.
"""


def read_tflite(path: Path, sizes: Mapping[str, int]) -> Graph:
    """The graph of the first subgraph of a TFLite file.

    Raises:
        SilicastError: the file is none, is damaged, has a size that is open, or an operator that
            waits for what nothing before it makes.
    """
    data = read_bounded(path, MAX_BYTES, "a TFLite model")
    if data[4:8] != IDENTIFIER:
        raise SilicastError(
            "is not a TFLite file", field="graph", hint="expected a FlatBuffer with TFL3 at byte 4"
        )
    if sizes:
        raise SilicastError(
            f"sizes are fixed in the file, found {', '.join(sizes)}",
            field="sizes",
            hint="convert the model with other sizes",
        )
    model = FlatTable.root(data)
    subgraphs = model.tables(2)
    if not subgraphs or not subgraphs[0].tables(3):
        raise SilicastError("holds no operators", field="graph", hint="convert a whole model")
    return _TFLiteReader(model, subgraphs[0]).graph(path.stem)


@final
class _TFLiteReader:
    """Walks the operators once, in order."""

    def __init__(self, model: FlatTable, subgraph: FlatTable) -> None:
        self.codes = [_code(table) for table in model.tables(1)]
        sized = [table.is_filled(0) or table.number(1, "<Q") > 1 for table in model.tables(4)]
        self.values: list[TensorValue] = []
        self.constants: set[int] = set()
        self.stored = 0
        for index, tensor in enumerate(subgraph.tables(0)):
            buffer = tensor.number(2, "<I")
            if 0 < buffer < len(sized) and sized[buffer]:
                self.constants.add(index)
            self.values.append(_value(tensor, index in self.constants))
            self.stored += self.values[-1].nbytes if index in self.constants else 0
        self.operators, self.outputs = subgraph.tables(3), subgraph.numbers(2)
        states = [i for i, tensor in enumerate(subgraph.tables(0)) if tensor.number(5, "<b")]
        self.makers: dict[int, tuple[str, ...]] = dict.fromkeys((*subgraph.numbers(1), *states), ())
        self.nodes: list[Node] = []
        self.names: dict[str, int] = {}

    def graph(self, name: str) -> Graph:
        """The forward pass as one block."""
        for number, operator in enumerate(self.operators):
            self._add(number, operator)
        block = Block("forward", tuple(self.nodes))
        results = dict.fromkeys(x for output in self.outputs for x in self.makers.get(output, ()))
        return Graph(
            name, (block,), "inference", parameter_bytes=self.stored, results=tuple(results)
        )

    def _add(self, number: int, operator: FlatTable) -> None:
        code, custom = self._code_of(number, operator)
        inputs = [self._checked(index, number) for index in operator.numbers(1) if index >= 0]
        outputs = [self._checked(index, number) for index in operator.numbers(2)]
        named = [index for index in inputs if index not in self.constants]
        if inputs and not named:
            self._fold(code, inputs, outputs)
            return
        missing = next((index for index in named if index not in self.makers), None)
        if missing is not None:
            raise SilicastError(
                f"operator {number} reads tensor {missing}, which nothing before it makes",
                field="graph",
                hint="operators must stand in the order in which they run, without a cycle",
            )
        waits = tuple(dict.fromkeys(name for index in named for name in self.makers[index]))
        if code in VIEWS or not any(self.values[index].elements for index in outputs):
            self.makers |= dict.fromkeys(outputs, waits)
            return
        call = self._call(code, custom, operator, inputs, outputs)
        weights = sum(self.values[index].nbytes for index in inputs if index in self.constants)
        names: list[str] = []
        for kernel in kernels_of(call):
            name = self._unique(call.name.partition(".")[2].lower())
            size, read = (0, 0) if names else (call.written_bytes, weights)
            self.nodes.append(
                Node(name, kernel.op, (*waits, *names[-1:]), 0, size, read, call.name)
            )
            names.append(name)
        self.makers |= dict.fromkeys(outputs, tuple(dict.fromkeys((names[0], names[-1]))))

    def _fold(self, code: int, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Takes results of constants for constants: of as many bytes as are stored, where the
        operator only unpacks them.
        """
        stored = sum(self.values[index].nbytes for index in inputs)
        for index in outputs:
            value = self.values[index]
            size = stored if code in UNPACKED else value.nbytes
            self.values[index] = TensorValue(value.shape, value.dtype, size, parameter=True)
        self.constants |= set(outputs)
        self.makers |= dict.fromkeys(outputs, ())

    def _code_of(self, number: int, operator: FlatTable) -> tuple[int, str]:
        index = operator.number(0, "<I")
        if index >= len(self.codes):
            raise SilicastError(
                f"operator {number} is of kind {index}, of {len(self.codes)}", field="graph"
            )
        return self.codes[index]

    def _checked(self, index: int, number: int) -> int:
        if not 0 <= index < len(self.values):
            raise SilicastError(
                f"operator {number} names tensor {index}, of {len(self.values)}", field="graph"
            )
        return index

    def _call(
        self,
        code: int,
        custom: str,
        operator: FlatTable,
        inputs: Sequence[int],
        outputs: Sequence[int],
    ) -> OperatorCall:
        operands = tuple(self.values[index] for index in inputs)
        results = tuple(self.values[index] for index in outputs)
        options = operator.table(4)
        _require_inputs(code, operands)
        if code in (CONV, DEPTHWISE, TRANSPOSED):
            return _convolution(code, operands, results, options)
        if code == DENSE:
            rows = operands[0]
            width = max((1, *operands[1].shape)[-1], 1)
            flat = _reshaped(rows, (rows.elements // width, width))
            args = (flat, *operands[1:2])
            return OperatorCall("onnx.Gemm", args, {"transB": 1}, args, results)
        if code == MATRICES and options is not None:
            turned = [options.number(side, "<b") for side in (0, 1)]
            operands = tuple(
                _turned(operand) if way else operand
                for operand, way in zip(operands, turned, strict=False)
            )
        if code in SEQUENCES:
            return self._sequence(code, operator, operands, results)
        if code in POOLS:
            kwargs = {} if options is None else {"kernel_shape": _pair(options, 4, 3)}
            images = tuple(map(_image, operands))
            return OperatorCall(
                f"onnx.{POOLS[code]}", images, kwargs, images, tuple(map(_image, results))
            )
        name = f"tflite.{custom or code}" if code not in OPERATORS else f"onnx.{OPERATORS[code]}"
        return OperatorCall(name, operands, {}, operands, results)

    def _sequence(
        self,
        code: int,
        operator: FlatTable,
        operands: tuple[TensorValue, ...],
        results: tuple[TensorValue, ...],
    ) -> OperatorCall:
        """A recurrent layer; weights of its gates lie apart, (units, inputs) each."""
        kind, gates, position, field = SEQUENCES[code]
        indices, options = operator.numbers(1), operator.table(4)
        index = indices[position] if position < len(indices) else -1
        weights = self.values[index].shape if 0 <= index < len(self.values) else ()
        if len(operands[0].shape) != 3 or len(weights) != 2:
            raise SilicastError(
                f"operator {kind} has no sequence of three axes, or no weights of two",
                field="graph",
                hint="convert the model anew",
            )
        whole = _reshaped(self.values[index], (1, gates * weights[0], weights[1]))
        steps_first = options is not None and options.number(field, "<b") != 0
        layout = {"layout": 0 if steps_first else 1}
        return OperatorCall(f"onnx.{kind}", (operands[0], whole), layout, operands, results)

    def _unique(self, stem: str) -> str:
        count = self.names[stem] = self.names.get(stem, 0) + 1
        return stem if count == 1 else f"{stem}_{count}"


def _code(table: FlatTable) -> tuple[int, str]:
    """Number of an operator, and the name of one that is not built in."""
    code = max(table.number(0, "<b"), table.number(3))
    return code, table.text(1) if code == CUSTOM else ""


def _value(table: FlatTable, constant: bool) -> TensorValue:
    """A tensor; scalars have no axis."""
    shape, kind = table.numbers(0), table.number(1, "<b")
    if any(size < 0 for size in shape):
        raise unsupported(
            f"tensor {table.text(3)[:60]!r} has an open size",
            "graph",
            "convert the model with fixed sizes",
        )
    dtype = TYPES.get(kind, "int32")
    size = math.ceil(math.prod(shape) * BITS[dtype] / 8)
    return TensorValue(shape, dtype, size, parameter=constant)


def _reshaped(value: TensorValue, shape: tuple[int, ...]) -> TensorValue:
    return TensorValue(shape, value.dtype, value.nbytes, value.parameter)


def _turned(value: TensorValue) -> TensorValue:
    """With its last two axes exchanged."""
    return _reshaped(value, (*value.shape[:-2], *value.shape[:-3:-1]))


def _image(value: TensorValue) -> TensorValue:
    """(batch, height, width, channels) as (batch, channels, height, width) with its strides."""
    if len(value.shape) != 4:
        return value
    batch, height, width, channels = value.shape
    strides = (height * width * channels, 1, width * channels, channels)
    shape = (batch, channels, height, width)
    return TensorValue(shape, value.dtype, value.nbytes, value.parameter, strides)


def _pair(options: FlatTable, first: int, second: int) -> tuple[int, int]:
    """Height and width of a window or a step."""
    return max(options.number(first, default=1), 1), max(options.number(second, default=1), 1)


def _require_inputs(code: int, operands: Sequence[TensorValue]) -> None:
    """Refuses an operator with fewer tensors than it reads."""
    need = 3 if code == TRANSPOSED else 2 if code in (CONV, DEPTHWISE, DENSE, MATRICES) else 1
    if len(operands) < need:
        raise SilicastError(
            f"an operator of kind {code} reads {len(operands)} tensors, needs {need}",
            field="graph",
            hint="is the file damaged? convert the model anew",
        )


def _convolution(
    code: int,
    operands: Sequence[TensorValue],
    results: Sequence[TensorValue],
    options: FlatTable | None,
) -> OperatorCall:
    """A plain, depthwise or transposed convolution; of the last, the sizes of the result come
    first.
    """
    filters, images = (
        (operands[1], operands[2]) if code == TRANSPOSED else (operands[1], operands[0])
    )
    image, out = _image(images), _image(results[0])
    if any(len(tensor.shape) != 4 for tensor in (image, filters, out)):
        raise SilicastError(
            "a convolution of other than four axes",
            field="graph",
            hint="images, filters and results have four: convert the model anew",
        )
    last, height, width, channels = filters.shape
    groups = 1
    if code == DEPTHWISE:
        last, channels, groups = channels, 1, image.shape[1]
    elif code == CONV:
        groups = max(image.shape[1] // max(channels, 1), 1)
    order = (last, channels, height, width)
    if code == TRANSPOSED:
        order = (channels, last, height, width)
    taps = _reshaped(filters, order)
    steps, gaps = (1, 1), (1, 1)
    if options is not None:
        steps = _pair(options, 2, 1)
        gaps = _pair(options, *((6, 5) if code == DEPTHWISE else (5, 4)))
    if code == TRANSPOSED:
        gaps = (1, 1)
    is_same = options is None or options.number(0, "<b") == 0
    pads = (height // 2, width // 2) * 2 if is_same else (0, 0, 0, 0)
    kwargs: dict[str, Any] = {"strides": steps, "pads": pads, "dilations": gaps, "group": groups}
    args = (image, taps)
    name = "onnx.ConvTranspose" if code == TRANSPOSED else "onnx.Conv"
    return OperatorCall(name, args, kwargs, args, (out,))
