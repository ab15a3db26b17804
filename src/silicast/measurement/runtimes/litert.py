"""LiteRT (TensorFlow Lite) on this machine's CPU, one thread, through XNNPACK: runs of test models.

Test models are TFLite files written here; numbers of operators, options and their fields are those
of ``tensorflow/lite/schema/schema.fbs``. What a converter joins before it writes a file, norms and
sums of channels in front of all, is no rule of the runtime: activations stand as operators of their
own in these files.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, final

import numpy as np

from silicast.core.packages import missing_package
from silicast.measurement.runtimes.flat_file import flat
from silicast.measurement.runtimes.minimal_pairs import BARRIER, CHANNELS, NEUTRAL, SIDE, warm_cpu_s

SHAPE = (1, SIDE, SIDE, CHANNELS)
FP32 = 0
REPEATS = 128
"""Of a chain in a model: starting an operator takes some hundredths of a microsecond."""
Weights = tuple[tuple[int, ...], ...]
_POOL = (5, {0: 0, 1: 1, 2: 1, 3: 3, 4: 3})
OPERATORS: Mapping[str, tuple[int, Weights, tuple[int, Mapping[int, Any]]]] = {
    "conv": (3, ((CHANNELS, 3, 3, CHANNELS), (CHANNELS,)), (1, {0: 0, 1: 1, 2: 1})),
    "pointwise_conv": (3, ((CHANNELS, 1, 1, CHANNELS), (CHANNELS,)), (1, {0: 0, 1: 1, 2: 1})),
    "depthwise_conv": (4, ((1, 3, 3, CHANNELS), (CHANNELS,)), (2, {0: 0, 1: 1, 2: 1, 3: 1})),
    "matmul": (9, ((CHANNELS, CHANNELS), (CHANNELS,)), (8, {0: 0, 2: 1})),
    "add_channels": (0, ((CHANNELS,),), (11, {0: 0})),
    "mul_channels": (18, ((CHANNELS,),), (21, {0: 0})),
    "mul_scalar": (18, ((1,),), (21, {0: 0})),
    "max_pool": (17, (), _POOL),
    "average_pool": (1, (), _POOL),
    "relu": (19, (), (0, {})),
    "clip": (21, (), (0, {})),
    "leaky_relu": (98, (), (75, {0: 0.1})),
    "sigmoid": (14, (), (0, {})),
    "tanh": (28, (), (0, {})),
    "elu": (111, (), (0, {})),
    "softmax": (25, (), (9, {0: 1.0})),
    BARRIER: (101, (), (0, {})),
    NEUTRAL: (59, (), (0, {})),
}
"""Operator -> its number, shapes of its weights, number and fields of its options; the barrier is
ABS and the neutral operator NEG, which XNNPACK runs among the others and joins with nothing."""


def tflite_of(chain: Sequence[str]) -> bytes:
    """A TFLite file that runs the operators of ``chain`` one after the other, repeatedly."""
    codes = sorted({OPERATORS[name][0] for name in (*chain, BARRIER)})
    tensors: list[dict[int, Any]] = [{0: SHAPE, 1: FP32, 2: 0}]
    buffers: list[dict[int, Any]] = [{}]
    operators: list[dict[int, Any]] = []
    value = 0
    for name in (*chain, BARRIER) * REPEATS:
        code, shapes, (kind, options) = OPERATORS[name]
        inputs = [value]
        for shape in shapes:
            inputs.append(len(tensors))
            tensors.append({0: shape, 1: FP32, 2: len(buffers)})
            buffers.append({0: _numbers(int(np.prod(shape)))})
        value = len(tensors)
        tensors.append({0: SHAPE, 1: FP32, 2: 0})
        options_of_op = {3: kind, 4: dict(options)} if kind else {}
        operators.append({0: codes.index(code), 1: tuple(inputs), 2: (value,), **options_of_op})
    graph = {0: tensors, 1: (0,), 2: (value,), 3: operators}
    named = [{0: code, 2: 1, 3: code} for code in codes]
    return flat({0: 3, 1: named, 2: [graph], 4: buffers})


def _numbers(count: int) -> bytes:
    return struct.pack(f"<{count}f", *(0.01 * (1.0 + 0.1 * (i % 7)) for i in range(count)))


@cache
def _package() -> Any:
    try:
        from ai_edge_litert import interpreter
    except ImportError:
        raise missing_package("ai_edge_litert", "litert") from None
    return interpreter


@final
class LiteRt:
    """Interpreters by chain of operators, made once."""

    name = "litert"
    target = "cpu"
    operators = frozenset(OPERATORS)

    def __init__(self) -> None:
        package = _package()
        try:
            self.version = version("ai-edge-litert")
        except PackageNotFoundError:
            self.version = str(getattr(package, "__version__", ""))
        self._known: dict[tuple[str, ...], Any] = {}

    def seconds(self, chain: Sequence[str]) -> float:
        """Seconds of the CPU that a repeat of a chain takes, the quicker of two warm runs."""
        interpreter = self._known.get(tuple(chain))
        if interpreter is None:
            interpreter = _package().Interpreter(model_content=tflite_of(chain), num_threads=1)
            interpreter.allocate_tensors()
            interpreter.set_tensor(
                interpreter.get_input_details()[0]["index"], np.zeros(SHAPE, np.float32)
            )
            self._known[tuple(chain)] = interpreter
        return warm_cpu_s(interpreter.invoke) / REPEATS
