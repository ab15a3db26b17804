"""Which kernels of an op can be measured: ranges of its sizes, choices of everything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, final

from silicast.measurement.records import Columns

Settle = Callable[[Columns], Columns]


@final
@dataclass(frozen=True, slots=True)
class Size:
    """Values of one size: multiples of ``multiple`` from ``low`` to ``high``, both among them.

    Attributes:
        scale: how a sweep spaces them.
    """

    low: int
    high: int
    scale: Literal["log", "linear"] = "log"
    multiple: int = 1

    def near(self, value: float) -> int:
        """The allowed value next to a number.

        >>> Size(16, 4096, multiple=16).near(100.0), Size(1, 8).near(1e9)
        (96, 8)
        """
        steps = round(value / self.multiple) * self.multiple
        return min(max(steps, self.low), self.high)


def _as_drawn(kernel: Columns) -> Columns:
    return kernel


@final
@dataclass(frozen=True)
class Ranges:
    """Kernels of one op that a machine can be asked for.

    Attributes:
        op: what ``kernel`` tables call it.
        sizes: column -> its values.
        choices: column -> values; None = the column is left out.
        settle: ties columns to each other (``kv_len`` of a causal prefill is ``q_len``) and lessens
            sizes whose product is more than a sweep has time or memory for. Settling twice changes
            nothing.
    """

    op: str
    sizes: Mapping[str, Size]
    choices: Mapping[str, Sequence[object]] = field(default_factory=dict)
    settle: Settle = _as_drawn

    def kernel(self, drawn: Mapping[str, object]) -> Columns:
        """The ``kernel`` table of drawn values: rounded, settled, without what is left out.

        Raises:
            KeyError: a size or choice has no value.
        """
        found: Columns = {"op": self.op}
        for name, size in self.sizes.items():
            value = drawn[name]
            assert isinstance(value, (int, float))
            found[name] = size.near(value)
        found |= {name: drawn[name] for name in self.choices}
        settled = self.settle({k: v for k, v in found.items() if v is not None})
        return {name: value for name, value in settled.items() if value is not None}


def lessened(
    kernel: Columns, names: Sequence[str], most: float, cost: Callable[[Columns], float]
) -> Columns:
    """The kernel with its sizes halved, the largest of ``names`` first, until it costs no more.

    >>> lessened({"m": 64, "n": 8}, ("m", "n"), 100.0, lambda k: k["m"] * k["n"])
    {'m': 12, 'n': 8}
    """
    found = dict(kernel)
    while cost(found) > most:
        name = max(names, key=lambda each: int(found[each]))
        if found[name] <= 1:
            break
        over = cost(found) / most
        found[name] = max(1, int(found[name] / min(2.0, over)) if over > 1.0 else found[name])
    return found
