"""Sizes of every value of an ONNX model: given, inferred by onnx, or by rules of other domains."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, final

import onnx

from silicast.core.errors import SilicastError
from silicast.workload.front_ends.dimensions import sizes_of_places
from silicast.workload.operators import Value

LARGE = 4096
"""Elements from which on a tensor's content cannot be a shape: it is dropped before inference."""

_T = onnx.TensorProto
DTYPES: dict[int, tuple[str, int]] = {
    1: ("fp32", 32), 2: ("int8", 8), 3: ("int8", 8), 4: ("int16", 16), 5: ("int16", 16),
    6: ("int32", 32), 7: ("int64", 64), 9: ("bool", 8), 10: ("fp16", 16), 11: ("fp64", 64),
    12: ("int32", 32), 13: ("int64", 64), 14: ("complex64", 64), 16: ("bf16", 16),
    17: ("fp8", 8), 18: ("fp8", 8), 19: ("fp8", 8), 20: ("fp8", 8), 21: ("int4", 4),
    22: ("int4", 4), 23: ("nvfp4", 4),
}  # fmt: skip
"""Element type of TensorProto -> format and bits."""


@final
@dataclass(frozen=True)
class ShapedModel:
    """A model and the sizes of its values.

    Attributes:
        nodes: in an order in which each comes after those that it waits for.
        values: by name.
        weights: names of initializers.
    """

    nodes: Sequence[Any]
    values: Mapping[str, Value]
    weights: frozenset[str]


def with_shapes(model: Any, symbols: Mapping[str, int]) -> ShapedModel:
    """Sizes of all values of a model; see :func:`silicast.workload.front_ends.read_program`.

    Raises:
        SilicastError: as there.
    """
    graph = model.graph
    _drop_contents(graph)
    nodes = in_order(graph)
    _fix_inputs(graph, symbols)
    del graph.node[:]
    graph.node.extend(nodes)
    graph.ClearField("value_info")
    for output in graph.output:
        output.type.tensor_type.ClearField("shape")
    weights = {tensor.name: _tensor_value(tensor) for tensor in graph.initializer}
    values: dict[str, Value] = {}
    while True:
        model = _inferred(model)
        values = {**_known(model.graph), **weights}
        added = list(_by_rule(model.graph, values))
        if not added:
            break
        model.graph.value_info.extend(added)
    _check_known(model.graph, values)
    return ShapedModel(list(model.graph.node), values, frozenset(weights))


def _inferred(model: Any) -> Any:
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0][:240]
        raise SilicastError(
            f"shapes do not fit together: {said}", field="graph",
            hint="check the sizes that were given, and the file with onnx.checker",
        ) from None  # fmt: skip


def _drop_contents(graph: Any) -> None:
    """Weights without their numbers: sizes are all that counts."""
    for tensor in graph.initializer:
        if math.prod(tensor.dims) > LARGE or tensor.data_location == _T.EXTERNAL:
            for name in ("raw_data", "float_data", "int32_data", "int64_data", "double_data"):
                tensor.ClearField(name)
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")


def in_order(graph: Any) -> list[Any]:
    """The nodes, each after those that it waits for; a file that has such an order keeps it.

    Raises:
        SilicastError: nodes wait for each other, or a value comes from nowhere.
    """
    held = {tensor.name for tensor in graph.initializer} | {x.name for x in graph.input} | {""}
    held |= {tensor.values.name for tensor in graph.sparse_initializer}
    made = {name: place for place, node in enumerate(graph.node) for name in node.output if name}
    needs: dict[int, set[int]] = {}
    for place, node in enumerate(graph.node):
        wanted = set(node.input) - held
        if lost := sorted(wanted - made.keys()):
            raise SilicastError(
                f"reads {lost[0]!r}, which nothing makes", field=label(node),
                hint="add it to the inputs or initializers",
            )  # fmt: skip
        needs[place] = {made[name] for name in wanted}
    if all(max(before, default=-1) < place for place, before in needs.items()):
        return list(graph.node)
    try:
        return [graph.node[place] for place in TopologicalSorter(needs).static_order()]
    except CycleError as error:
        first, *others = (label(graph.node[place]) for place in sorted(set(error.args[1])))
        raise SilicastError(
            f"waits for itself through {', '.join(others[:3]) or 'itself'}", field=first,
            hint="a graph without cycles is needed: write loops out",
        ) from None  # fmt: skip


def label(node: Any) -> str:
    """A node's name, else its operator and first result."""
    return str(node.name or f"{node.op_type}({node.output[0] if node.output else ''})")


def _fix_inputs(graph: Any, symbols: Mapping[str, int]) -> None:
    """Writes the given sizes into the inputs.

    Raises:
        SilicastError: a dynamic dimension has no value, or a name is unknown.
    """
    held = {tensor.name for tensor in graph.initializer}
    places: dict[str, tuple[str, Any]] = {}
    for value in graph.input:
        if value.name in held:
            continue
        if not value.type.HasField("tensor_type"):
            raise SilicastError(
                "is not a tensor", kind="unsupported", field=value.name,
                hint="export the model with tensors as inputs",
            )  # fmt: skip
        if not value.type.tensor_type.HasField("shape"):
            raise SilicastError(
                "has no shape", field=value.name, hint="export the model with shapes of its inputs"
            )
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value") or dim.dim_value <= 0:
                places[f"{value.name}.{axis}"] = value.name, dim
    given = sizes_of_places({place: dim.dim_param for place, (_, dim) in places.items()}, symbols)
    for place, (name, dim) in places.items():
        if place not in given:
            own = dim.dim_param or place
            raise SilicastError(
                f"dimension {place.rpartition('.')[2]} ({own}) has no value", field=name,
                hint=f'give {own} a size: {{"{own}": 8}}',
            )  # fmt: skip
        dim.ClearField("dim_param")
        dim.dim_value = given[place]


def _tensor_value(tensor: Any) -> Value:
    return _value(tensor.data_type, tuple(tensor.dims), parameter=True)


def _value(kind: int, shape: tuple[int, ...], *, parameter: bool = False) -> Value:
    name, bits = DTYPES.get(kind, ("fp32", 32))
    return Value(shape, name, -(-math.prod(shape) * bits // 8), parameter)


def _known(graph: Any) -> dict[str, Value]:
    """Values whose sizes are all numbers."""
    found = {}
    for value in (*graph.value_info, *graph.input, *graph.output):
        tensor = value.type.tensor_type
        if not value.type.HasField("tensor_type") or not tensor.HasField("shape"):
            continue
        dims = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim]
        if all(size >= 0 for size in dims) and tensor.elem_type:
            found[value.name] = _value(tensor.elem_type, tuple(dims))
    return found


def _check_known(graph: Any, values: Mapping[str, Value]) -> None:
    for node in graph.node:
        for name in node.output:
            if name and name not in values:
                where = f"{node.domain}." if node.domain else ""
                raise SilicastError(
                    f"the sizes of {name!r} are not known: {where}{node.op_type} has no rule of "
                    "shapes, or they depend on the content of a tensor", field=label(node),
                    hint="export with fixed sizes, or write the shape into the file's value_info",
                )  # fmt: skip


Rule = Callable[[Any, list[Value]], list[tuple[int, ...]]]


def attribute(node: Any, name: str, default: Any = None) -> Any:
    """An attribute's value; bytes as text."""
    for entry in node.attribute:
        if entry.name == name:
            value = onnx.helper.get_attribute_value(entry)
            return value.decode() if isinstance(value, bytes) else value
    return default


def _first(_: Any, inputs: list[Value]) -> list[tuple[int, ...]]:
    return [inputs[0].shape]


def _skip(_: Any, inputs: list[Value]) -> list[tuple[int, ...]]:
    shape = inputs[0].shape
    return [shape, (*shape[:-1], 1), (*shape[:-1], 1), shape]


def _packed(node: Any, inputs: list[Value]) -> list[tuple[int, ...]]:
    return [(*inputs[0].shape[:-1], int(attribute(node, "N")))]


def _fused_qkv(_: Any, inputs: list[Value]) -> list[tuple[int, ...]]:
    return [(*inputs[0].shape[:-1], inputs[1].shape[-1] // 3)]


def _grouped(node: Any, inputs: list[Value]) -> list[tuple[int, ...]]:
    """Result like the queries; the cache keeps its size."""
    heads, groups = int(attribute(node, "num_heads")), int(attribute(node, "kv_num_heads"))
    q = inputs[0].shape
    packed = len(inputs) < 2 or not inputs[1].shape
    width = q[-1] * heads // (heads + 2 * groups) if packed else q[-1]
    cache = inputs[3].shape if len(inputs) > 3 and inputs[3].shape else (
        q[0], groups, q[1], width // heads
    )  # fmt: skip
    return [(q[0], q[1], width), cache, cache]


def _embedded(_: Any, inputs: list[Value]) -> list[tuple[int, ...]]:
    shape = (*inputs[0].shape, inputs[2].shape[-1])
    return [shape, (inputs[0].shape[0],), shape]


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ("Gelu", "FastGelu", "BiasGelu", "QuickGelu", "SimplifiedLayerNormalization", "BiasAdd",
         "RotaryEmbedding", "MultiHeadAttention", "QLinearAdd", "QLinearMul", "QLinearSigmoid",
         "LayerNormalization", "GroupNorm", "QuantizeLinear", "DequantizeLinear"), _first,
    ),
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), _skip),
    "MatMulNBits": _packed,
    "Attention": _fused_qkv,
    "GroupQueryAttention": _grouped,
    "EmbedLayerNormalization": _embedded,
}  # fmt: skip
"""Shapes of results of operators outside ONNX's own domain, which has rules of its own."""


def _by_rule(graph: Any, values: Mapping[str, Value]) -> Iterator[Any]:
    """Sizes that a rule gives for values not yet known."""
    empty = Value((), "fp32", 0)
    for node in graph.node:
        rule = RULES.get(node.op_type) if node.domain not in ("", "ai.onnx") else None
        names = [name for name in node.output if name]
        if rule is None or all(name in values for name in names):
            continue
        if not all(name in values for name in node.input if name):
            continue
        inputs = [values[name] if name else empty for name in node.input]
        kind = next((k for k, v in DTYPES.items() if v[0] == inputs[0].dtype), 1)
        if node.op_type == "EmbedLayerNormalization":
            kind = next((k for k, v in DTYPES.items() if v[0] == inputs[2].dtype), 1)
        for name, shape in zip(node.output, rule(node, inputs), strict=False):
            if name and name not in values:
                yield onnx.helper.make_tensor_value_info(name, kind, shape)
