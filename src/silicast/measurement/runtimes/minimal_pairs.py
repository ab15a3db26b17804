"""Test models of one or two operators, as ONNX files in memory.

A model repeats its operators many times with a barrier behind each repeat, an operator that no
runtime joins with anything: what a call costs besides is small, and repeats do not meet. Tensors
are tiny, so that starting an operator is most of its time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from silicast.core.errors import unknown_name
from silicast.core.packages import missing_package

CHANNELS, SIDE, REPEATS = 16, 2, 24
SHAPE = (1, CHANNELS, SIDE, SIDE)
INPUT = "x"
OPSET, IR = 17, 9
BARRIER, NEUTRAL = "Sin", "Cos"
"""Operators that nothing is joined with: between repeats, and in front of a second one alone."""
STARTED = "relu"
"""An operator that hardly computes: behind a neutral one it costs what starting one costs."""

Build = Callable[[Any, str, str, str], tuple[list[Any], list[Any]]]
"""onnx, input, output and a prefix of names -> nodes and weights; shapes stay."""


def _plain(kind: str, **attributes: Any) -> Build:
    def build(onnx: Any, x: str, y: str, _: str) -> tuple[list[Any], list[Any]]:
        return [onnx.helper.make_node(kind, [x], [y], **attributes)], []

    return build


def _convolution(taps: int, groups: int = 1) -> Build:
    def build(onnx: Any, x: str, y: str, prefix: str) -> tuple[list[Any], list[Any]]:
        names = [f"{prefix}w", f"{prefix}b"]
        node = onnx.helper.make_node(
            "Conv", [x, *names], [y], kernel_shape=[taps] * 2, pads=[taps // 2] * 4, group=groups
        )
        shape = (CHANNELS, CHANNELS // groups, taps, taps)
        return [node], [_weights(onnx, names[0], shape), _weights(onnx, names[1], (CHANNELS,))]

    return build


def _constant(kind: str, *shape: int) -> Build:
    def build(onnx: Any, x: str, y: str, prefix: str) -> tuple[list[Any], list[Any]]:
        name = f"{prefix}c"
        return [onnx.helper.make_node(kind, [x, name], [y])], [_weights(onnx, name, shape)]

    return build


def _batch_norm(onnx: Any, x: str, y: str, prefix: str) -> tuple[list[Any], list[Any]]:
    names = [f"{prefix}{each}" for each in ("scale", "bias", "mean", "var")]
    node = onnx.helper.make_node("BatchNormalization", [x, *names], [y])
    return [node], [_weights(onnx, name, (CHANNELS,), 0.5) for name in names]


def _clip(onnx: Any, x: str, y: str, prefix: str) -> tuple[list[Any], list[Any]]:
    low, high = f"{prefix}low", f"{prefix}high"
    weights = [_weights(onnx, low, (), -0.3), _weights(onnx, high, (), 0.3)]
    return [onnx.helper.make_node("Clip", [x, low, high], [y])], weights


def _weights(onnx: Any, name: str, shape: Sequence[int], value: float = 0.01) -> Any:
    values = [value * (1.0 + 0.1 * (index % 7)) for index in range(math.prod(shape))]
    return onnx.helper.make_tensor(name, onnx.TensorProto.FLOAT, list(shape), values)


_POOL: Mapping[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
OPERATORS: Mapping[str, Build] = {
    "conv": _convolution(3),
    "pointwise_conv": _convolution(1),
    "depthwise_conv": _convolution(3, CHANNELS),
    "matmul": _constant("MatMul", SIDE, SIDE),
    "batch_norm": _batch_norm,
    "add_channels": _constant("Add", 1, CHANNELS, 1, 1),
    "mul_channels": _constant("Mul", 1, CHANNELS, 1, 1),
    "mul_scalar": _constant("Mul"),
    "max_pool": _plain("MaxPool", **_POOL),
    "average_pool": _plain("AveragePool", **_POOL),
    "relu": _plain("Relu"),
    "leaky_relu": _plain("LeakyRelu", alpha=0.1),
    "clip": _clip,
    "sigmoid": _plain("Sigmoid"),
    "tanh": _plain("Tanh"),
    "elu": _plain("Elu"),
    "hard_sigmoid": _plain("HardSigmoid"),
    "softmax": _plain("Softmax", axis=-1),
    BARRIER: _plain(BARRIER),
    NEUTRAL: _plain(NEUTRAL),
}
_CONVOLUTIONS = ("conv", "pointwise_conv", "depthwise_conv")
FIRST = (*_CONVOLUTIONS, "matmul", "batch_norm", "add_channels", "max_pool", "relu")
"""Operators that others may be joined to."""
SECOND = tuple(name for name in OPERATORS if name not in (BARRIER, NEUTRAL))
Pair = tuple[str, str]


def pairs(names: Sequence[str] = ()) -> list[Pair]:
    """Pairs to be tested: all of them, or those whose first operator is among ``names``.

    Raises:
        SilicastError: an unknown operator.
    """
    for name in names:
        if name not in FIRST:
            raise unknown_name(
                f"unknown operator {name!r:.40}", "operators", f"one of {', '.join(FIRST)}"
            )
    return [(first, second) for first in (names or FIRST) for second in SECOND]


def model_of(chain: Sequence[str]) -> bytes:
    """A serialised model that runs the operators of ``chain`` one after the other, repeatedly.

    Raises:
        SilicastError: onnx is not installed.
    """
    onnx = imported_onnx()
    nodes: list[Any] = []
    weights: list[Any] = []
    value = INPUT
    for repeat in range(REPEATS):
        for position, name in enumerate((*chain, BARRIER)):
            result = f"v{repeat}_{position}"
            added, held = OPERATORS[name](onnx, value, result, f"p{repeat}_{position}")
            nodes += added
            weights += held
            value = result
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, SHAPE)
        for name in (INPUT, value)
    ]
    graph = onnx.helper.make_graph(nodes, "pair", ends[:1], ends[1:], weights)
    opset = [onnx.helper.make_opsetid("", OPSET)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=IR)
    content: bytes = model.SerializeToString()
    return content


def imported_onnx() -> Any:
    """The package onnx.

    Raises:
        SilicastError: it is not installed.
    """
    try:
        import onnx
    except ImportError:
        raise missing_package("onnx") from None
    return onnx


def warm_cpu_s(run: Callable[[], object]) -> float:
    """CPU seconds of this thread for a model: the quicker of two runs after a first one."""
    run()
    return min(_cpu_s(run), _cpu_s(run))


def _cpu_s(run: Callable[[], object]) -> float:
    begin = time.thread_time_ns()
    run()
    return (time.thread_time_ns() - begin) * 1e-9
