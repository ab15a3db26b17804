"""Sizes of every value of an ONNX model: given, inferred by onnx, or by rules of other domains."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

import onnx

from silicast.core.errors import SilicastError, unsupported
from silicast.workload.front_ends.dynamic_sizes import sizes_of_places
from silicast.workload.operators import TensorValue

LARGE = 4096
"""Elements from which on a tensor's content cannot be a shape: it is dropped before inference."""
DTYPES: dict[int, tuple[str, int]] = {
    1: ("fp32", 32), 2: ("int8", 8), 3: ("int8", 8), 4: ("int16", 16), 5: ("int16", 16),
    6: ("int32", 32), 7: ("int64", 64), 9: ("bool", 8), 10: ("fp16", 16), 11: ("fp64", 64),
    12: ("int32", 32), 13: ("int64", 64), 14: ("complex64", 64), 16: ("bf16", 16),
    17: ("fp8", 8), 18: ("fp8", 8), 19: ("fp8", 8), 20: ("fp8", 8), 21: ("int4", 4),
    22: ("int4", 4), 23: ("nvfp4", 4),
}  # fmt: skip
"""Element type of TensorProto -> format and bits."""


def with_shapes(
    model: Any, sizes: Mapping[str, int]
) -> tuple[list[Any], dict[str, TensorValue], frozenset[str]]:
    """Sizes of all values of a model; see :func:`silicast.workload.front_ends.read_program`.

    Returns:
        The nodes, each after those that it waits for; values by name; names of initializers.

    Raises:
        SilicastError: a dynamic dimension has no value, shapes contradict each other, a value's
            sizes are not known, or nodes wait for each other; names the input or node.
    """
    graph = model.graph
    _drop_contents(graph)
    nodes = in_order(graph)
    _fix_inputs(graph, sizes)
    del graph.node[:]
    graph.node.extend(nodes)
    graph.ClearField("value_info")
    for output in graph.output:
        output.type.tensor_type.ClearField("shape")
    weights = {
        tensor.name: _value(tensor.data_type, tuple(tensor.dims), parameter=True)
        for tensor in graph.initializer
    }
    added: list[Any] | None = None
    while added is None or added:
        model = _inferred(model)
        values = {**dict(_known(model.graph)), **weights}
        added = list(_by_rule(model.graph, values))
        model.graph.value_info.extend(added)
    _check_known(model.graph, values)
    return list(model.graph.node), values, frozenset(weights)


def _inferred(model: Any) -> Any:
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception as error:
        message = (str(error).strip().splitlines() or [type(error).__name__])[0][:240]
        raise SilicastError(
            f"shapes do not fit together: {message}",
            field="graph",
            hint="check the sizes that were given, and the file with onnx.checker",
        ) from None


def _drop_contents(graph: Any) -> None:
    """Weights without their numbers: sizes are all that counts."""
    contents = ("raw_data", "float_data", "int32_data", "int64_data", "double_data")
    for tensor in graph.initializer:
        external = tensor.data_location == onnx.TensorProto.EXTERNAL
        if math.prod(tensor.dims) > LARGE or external:
            for name in (*contents, "external_data", "data_location"):
                tensor.ClearField(name)


def in_order(graph: Any) -> list[Any]:
    """The nodes, each after those that it waits for; a file that has such an order keeps it.

    Raises:
        SilicastError: nodes wait for each other, or a value comes from nowhere.
    """
    held = {tensor.name for tensor in graph.initializer} | {x.name for x in graph.input} | {""}
    held |= {tensor.values.name for tensor in graph.sparse_initializer}
    made = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    needs: dict[int, set[int]] = {}
    for index, node in enumerate(graph.node):
        wanted = set(node.input) - held
        if lost := sorted(wanted - made.keys()):
            raise SilicastError(
                f"reads {lost[0]!r}, which nothing makes",
                field=label(node),
                hint="add it to the inputs or initializers",
            )
        needs[index] = {made[name] for name in wanted}
    if all(max(before, default=-1) < index for index, before in needs.items()):
        return list(graph.node)
    try:
        return [graph.node[index] for index in TopologicalSorter(needs).static_order()]
    except CycleError as error:
        first, *others = (label(graph.node[index]) for index in sorted(set(error.args[1])))
        raise SilicastError(
            f"waits for itself through {', '.join(others[:3]) or 'itself'}",
            field=first,
            hint="a graph without cycles is needed: write loops out",
        ) from None


def label(node: Any) -> str:
    """A node's name, else its operator and first result."""
    return str(node.name or f"{node.op_type}({node.output[0] if node.output else ''})")


def _fix_inputs(graph: Any, size_by_name: Mapping[str, int]) -> None:
    """Writes the given sizes into the inputs."""
    held = {tensor.name for tensor in graph.initializer}
    positions: dict[str, Any] = {}
    for value in graph.input:
        if value.name in held:
            continue
        if not value.type.HasField("tensor_type"):
            raise unsupported(
                "is not a tensor", value.name, "export the model with tensors as inputs"
            )
        if not value.type.tensor_type.HasField("shape"):
            raise SilicastError(
                "has no shape", field=value.name, hint="export the model with shapes of its inputs"
            )
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value") or dim.dim_value <= 0:
                positions[f"{value.name}.{axis}"] = dim
    sizes = sizes_of_places(
        {position: dim.dim_param for position, dim in positions.items()}, size_by_name
    )
    for position, dim in positions.items():
        if position not in sizes:
            name, _, number = position.rpartition(".")
            dim_name = dim.dim_param or position
            raise SilicastError(
                f"dimension {number} ({dim_name}) has no value",
                field=name,
                hint=f'give {dim_name} a size: {{"{dim_name}": 8}}',
            )
        dim.ClearField("dim_param")
        dim.dim_value = sizes[position]


def _value(kind: int, shape: tuple[int, ...], *, parameter: bool = False) -> TensorValue:
    name, bits = DTYPES.get(kind, ("fp32", 32))
    return TensorValue(shape, name, -(-math.prod(shape) * bits // 8), parameter)


def _known(graph: Any) -> Iterator[tuple[str, TensorValue]]:
    """Values whose sizes are all numbers."""
    for value in (*graph.value_info, *graph.input, *graph.output):
        tensor = value.type.tensor_type
        if not value.type.HasField("tensor_type") or not tensor.HasField("shape"):
            continue
        dims = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim]
        if all(size >= 0 for size in dims) and tensor.elem_type:
            yield value.name, _value(tensor.elem_type, tuple(dims))


def _check_known(graph: Any, values: Mapping[str, TensorValue]) -> None:
    for node in graph.node:
        for name in node.output:
            if name and name not in values:
                where = f"{node.domain}." if node.domain else ""
                raise SilicastError(
                    f"the sizes of {name!r} are not known: {where}{node.op_type} has no rule of "
                    "shapes, or they depend on the content of a tensor",
                    field=label(node),
                    hint="export with fixed sizes, or write the shape into the file's value_info",
                )


Shapes = list[tuple[int, ...]]


def _number(node: Any, name: str) -> int:
    return next(int(entry.i) for entry in node.attribute if entry.name == name)


def _first(_: Any, inputs: list[TensorValue]) -> Shapes:
    return [inputs[0].shape]


def _skip(_: Any, inputs: list[TensorValue]) -> Shapes:
    shape = inputs[0].shape
    return [shape, (*shape[:-1], 1), (*shape[:-1], 1), shape]


def _packed(node: Any, inputs: list[TensorValue]) -> Shapes:
    return [(*inputs[0].shape[:-1], _number(node, "N"))]


def _fused_qkv(_: Any, inputs: list[TensorValue]) -> Shapes:
    return [(*inputs[0].shape[:-1], inputs[1].shape[-1] // 3)]


def _grouped(node: Any, inputs: list[TensorValue]) -> Shapes:
    """Result like the queries; the cache keeps its size."""
    heads, groups = _number(node, "num_heads"), _number(node, "kv_num_heads")
    q = inputs[0].shape
    packed = len(inputs) < 2 or not inputs[1].shape
    width = q[-1] * heads // (heads + 2 * groups) if packed else q[-1]
    held = inputs[3].shape if len(inputs) > 3 else ()
    cache = held or (q[0], groups, q[1], width // heads)
    return [(q[0], q[1], width), cache, cache]


def _embedded(_: Any, inputs: list[TensorValue]) -> Shapes:
    shape = (*inputs[0].shape, inputs[2].shape[-1])
    return [shape, (inputs[0].shape[0],), shape]


RULES: dict[str, Callable[[Any, list[TensorValue]], Shapes]] = {
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


def _by_rule(graph: Any, values: Mapping[str, TensorValue]) -> Iterator[Any]:
    """Sizes that a rule gives for values not yet known."""
    empty = TensorValue((), "fp32", 0)
    for node in graph.node:
        rule = RULES.get(node.op_type) if node.domain not in ("", "ai.onnx") else None
        new = [name for name in node.output if name and name not in values]
        if rule is None or not new or any(n and n not in values for n in node.input):
            continue
        inputs = [values[name] if name else empty for name in node.input]
        typed = inputs[2 if node.op_type == "EmbedLayerNormalization" else 0].dtype
        kind = next((k for k, v in DTYPES.items() if v[0] == typed), 1)
        for name, shape in zip(node.output, rule(node, inputs), strict=False):
            if name in new:
                yield onnx.helper.make_tensor_value_info(name, kind, shape)
