"""Time of Python between two operations of an eager program that run in the calling thread.

The time of a tiny decoder layer is that of its calls and of what lies between them: modules, views,
Python. Its calls are also timed alone, as kernels are measured; the difference divided by their
number is the overhead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import quantiles
from typing import Any, final

HIDDEN, HEADS, KV_HEADS, PAST = 16, 2, 1, 4
ROUNDS = 100
BURST, CALLS = 2, 40
"""Calls of the layer and of an operation that are timed at once: both some 0.2 ms, which other
processes interrupt equally often."""
LEAST_US = 0.1
GROUPS = 5
"""Parts of the rounds whose least times show the uncertainty of the least of all."""


@final
@dataclass(frozen=True)
class PythonOverhead:
    """Microseconds per operation.

    Attributes:
        between_us: at least :data:`LEAST_US`; call_us: of the operation itself.
        p05_us, p95_us: quantiles of repeats, each the least of a part of the rounds.
        operations: of the layer; repeats: their number.
    """

    between_us: float
    call_us: float
    p05_us: float
    p95_us: float
    operations: int
    repeats: int


def python_overhead() -> PythonOverhead:
    """Measures the CPU at hand with one thread, in some tenths of a second."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _measured(torch)
    finally:
        torch.set_num_threads(threads)


def _measured(torch: Any) -> PythonOverhead:
    from torch.nn import functional

    from silicast.measurement.models.programs.decoder import DecoderLayer

    sizes = {"hidden": HIDDEN, "heads": HEADS, "kv_heads": KV_HEADS, "intermediate": 2 * HIDDEN}
    layer = DecoderLayer(sizes, torch.float32).eval()
    width = HIDDEN // HEADS
    x = torch.randn(1, 1, HIDDEN)
    cos, sin = torch.randn(1, width), torch.randn(1, width)
    cache = torch.randn(2, 1, KV_HEADS, PAST + 1, width)
    query, key = torch.randn(1, HEADS, 1, width), cache[0]
    half, wide = query[..., : width // 2], torch.randn(1, 1, 2 * HIDDEN)
    weight, small = torch.ones(HIDDEN), torch.randn(HIDDEN, HIDDEN)
    up, down = torch.randn(2 * HIDDEN, HIDDEN), torch.randn(HIDDEN, 2 * HIDDEN)
    position, row = cache[0][:, :, PAST : PAST + 1], torch.randn(1, KV_HEADS, 1, width)
    calls: list[tuple[int, Callable[[], Any]]] = [
        (2, lambda: functional.rms_norm(x, (HIDDEN,), weight, 1e-5)),
        (4, lambda: functional.linear(x, small)),
        (2, lambda: functional.linear(x, up)),
        (1, lambda: functional.linear(wide, down)),
        (4, lambda: torch.mul(query, cos)),
        (2, lambda: torch.neg(half)),
        (2, lambda: torch.cat((half, half), -1)),
        (4, lambda: torch.add(x, x)),
        (2, lambda: position.copy_(row)),
        (1, lambda: functional.scaled_dot_product_attention(query, key, key, enable_gqa=True)),
        (1, lambda: functional.silu(wide)),
        (1, lambda: torch.mul(wide, wide)),
    ]
    count = sum(number for number, _ in calls)
    wholes, alone = [], []
    with torch.no_grad():
        for _ in range(ROUNDS):
            wholes.append(_each_us(lambda: layer(x, cos, sin, cache, PAST), BURST) / count)
            alone.append([_each_us(call) for _, call in calls])
    # other processes only add time: the least of each is its own
    least = [min(times) for times in zip(*alone, strict=True)]
    call_us = sum(number * t for (number, _), t in zip(calls, least, strict=True)) / count
    each = [max(min(wholes[n::GROUPS]) - call_us, LEAST_US) for n in range(GROUPS)]
    cuts = quantiles(each, n=20, method="inclusive")
    return PythonOverhead(min(each), call_us, cuts[0], cuts[-1], count, GROUPS)


def _each_us(call: Callable[[], object], calls: int = CALLS) -> float:
    call()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls * 1e6
