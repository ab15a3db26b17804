"""Where the time of a configured product goes: causes in microseconds that add up to it.

The model is evaluated with one effect after another, from useful work at peak rates on; what each
adds is its share. What is left between the model and a measurement is not explained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from silicast.kernels.products.tile_times import TileTimes

CAUSES: Mapping[str, str] = {
    "work": "useful work at peak rates",
    "padding": "rows and columns of tiles that hold nothing",
    "memory": "bytes fetched again, and memory's own efficiency",
    "pipelining": "operands and issue between matrix instructions",
    "occupancy": "waits that too few blocks of a core hide",
    "waves": "uneven rounds of blocks: the last one is part empty",
    "overlap": "resources that do not quite overlap",
    "launch": "start and end of the kernel",
    "learned": "what sweeps taught beyond that",
    "unexplained": "the rest of the measurement",
}
"""Every cause, in words, in the order of the model."""


def product_causes(times: TileTimes, index: int, time_s: float) -> dict[str, float]:
    """Seconds of each cause of one product, which add up to ``time_s``.

    Args:
        times: of configurations; place: of the one that ran.
        time_s: predicted for it, corrections included.
    """
    table: dict[str, float] = {}
    reached = 0.0
    for name, level in _levels(times, index):
        table[name] = max(level - reached, 0.0)
        reached = max(level, reached)
    table["launch"] = times.launch_s
    table["overlap"] = max(float(times.time_s[index]) - times.launch_s - reached, 0.0)
    total = sum(table.values())
    table["learned"] = time_s - total
    return {name: table[name] for name in CAUSES if name in table}


def _levels(times: TileTimes, index: int) -> Iterator[tuple[str, float]]:
    """Times with one effect more each, seconds."""
    multiply = float(times.ideal_multiply_s[index])
    memory = float(times.ideal_memory_s[index])
    yield "work", max(multiply, memory)
    padded = multiply * float(times.padded_rows[index]) * float(times.padded_columns[index])
    yield "padding", max(padded, memory)
    yield "memory", max(padded, float(times.memory_s[index]), float(times.l2_s[index]))
    yield "pipelining", float(times.multiply_s[index])
    yield "occupancy", float(times.even_s[index])
    yield "waves", float(times.core_s[index])


def summed(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Causes of several products together.

    >>> summed([{"work": 1.0}, {"work": 2.0, "launch": 0.5}])
    {'work': 3.0, 'launch': 0.5}
    """
    return {
        name: sum(part.get(name, 0.0) for part in parts)
        for name in CAUSES
        if any(name in part for part in parts)
    }
