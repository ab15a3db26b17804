"""TFLite files written byte by byte."""

from __future__ import annotations

from typing import Any

from silicast.measurement.runtimes.flat_file import flat

Byte = tuple[str, int]
CONV, DEPTHWISE, DENSE, RESHAPE, SOFTMAX, TRANSPOSED, CUSTOM = 3, 4, 9, 22, 25, 67, 32


def model(
    tensors: list[tuple[tuple[int, ...], int, bool]],
    operators: list[tuple[int, tuple[int, ...], tuple[int, ...], dict[int, Any]]],
    custom: str = "",
) -> bytes:
    """A file: (shape, type, whether it is stored) a tensor, (code, inputs, outputs, options) an
    operator; tensor 0 is the input.
    """
    codes = sorted({code for code, *_ in operators})
    return flat(
        {
            0: 3,
            1: [{0: min(c, 127), 3: c, **({1: custom} if c == CUSTOM else {})} for c in codes],
            2: [
                {
                    0: [{0: s, 1: kind, 2: int(stored)} for s, kind, stored in tensors],
                    1: (0,),
                    2: operators[-1][2],
                    3: [
                        {0: codes.index(c), 1: i, 2: o, **({4: options} if options else {})}
                        for c, i, o, options in operators
                    ],
                }
            ],
            4: [{}, {0: b"\1\2\3\4"}],
        }
    )


INT8, FP32 = 9, 0
SMALL = model(
    [
        ((1, 32, 32, 3), INT8, False),
        ((16, 3, 3, 3), INT8, True),
        ((1, 16, 16, 16), INT8, False),
        ((1, 5, 5, 16), INT8, True),
        ((1, 16, 16, 16), INT8, False),
        ((1, 4096), INT8, False),
        ((10, 4096), INT8, True),
        ((1, 10), INT8, False),
        ((1, 10), INT8, False),
    ],
    [
        (CONV, (0, 1), (2,), {0: 0, 1: 2, 2: 2}),
        (DEPTHWISE, (2, 3), (4,), {0: 0, 1: 1, 2: 1, 3: 1}),
        (RESHAPE, (4,), (5,), {}),
        (DENSE, (5, 6), (7,), {}),
        (SOFTMAX, (7,), (8,), {}),
    ],
)
