"""How alike the errors of two kernels of one family are: by the distance of their sizes.

What a model gets wrong about one problem it gets wrong about its neighbours. Of two different
shapes a distance r apart (factors of two of their sizes, Euclidean) errors correlate by

    correlation(r) = alike x exp(-r / reach)

and by ``variants`` of it where they are different variants (library, flags, launch), with constants
for each kind of knowledge (``catalog/physics/uncertainty.json``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from silicast.composition.step.stage_graph import StageNode
from silicast.core.numerics import F64, I64
from silicast.core.prediction import TIERS
from silicast.hardware.device import Device
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.physics.formats import with_format
from silicast.kernels.physics.unseen import Seen, seen_of
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op import Affine, Dim, Op

GROUP = "uncertainty"
Knowledge = Literal["learned", "sister", "known", "unmeasured"]
KNOWLEDGE: tuple[Knowledge, ...] = ("learned", "sister", "known", "unmeasured")
"""From most to least: corrections learned on the device; it or another of its architecture measured
at all; neither.
"""


def knowledge_of(factors: Mapping[str, float], tier: int, seen: Seen = "board") -> Knowledge:
    """What a kernel's time rests on.

    Args:
        factors: that it shares; one of software says that its maker's libraries were not measured.
        seen: what was measured of it.
    """
    if tier > TIERS.index("analytic"):
        return "sister" if seen == "sister" and TIERS[tier] == "cross-device" else "learned"
    if seen in ("format", "nothing") or any(name.startswith("software:") for name in factors):
        return "unmeasured"
    return "sister" if seen == "sister" else "known"


@final
@dataclass(frozen=True, slots=True)
class Pairs:
    """All ordered pairs of shapes of one family and format, each shape with itself too.

    Attributes:
        families: names; causes: of their errors; family: of each pair, as a place in them.
        one, other: places of the shapes.
        distance: octaves between them; 0 = the very same shape.
        differ: whether they are different variants.
    """

    families: tuple[str, ...]
    causes: tuple[str, ...]
    family: I64
    one: I64
    other: I64
    distance: F64
    differ: NDArray[np.bool_]

    @staticmethod
    def from_nodes(nodes: Sequence[StageNode]) -> Pairs:
        groups: dict[tuple[str, str], list[int]] = {}
        for index, node in enumerate(nodes):
            groups.setdefault((node.op.family, node.op.variant.dtype), []).append(index)
        families = tuple(dict.fromkeys(family for family, _ in groups))
        family, one, other, distance, differ = [], [], [], [], []
        for (name, _), group in groups.items():
            members = np.array(group, dtype=np.int64)
            apart = distances([nodes[index].op.dims for index in group])
            family.append(np.full(len(members) ** 2, families.index(name)))
            one.append(np.repeat(members, len(members)))
            other.append(np.tile(members, len(members)))
            distance.append(apart.ravel())
            known = {nodes[index].op.variant: index for index in group}
            kinds = np.array([known[nodes[index].op.variant] for index in group])
            differ.append((kinds[:, None] != kinds[None, :]).ravel())
        causes = tuple(f"shapes:{name}" for name in families)
        columns: tuple[list[NDArray[Any]], ...] = (family, one, other, distance, differ)
        return Pairs(families, causes, *(np.concatenate(column) for column in columns))

    def correlation(self, knowledge: Sequence[Knowledge]) -> F64:
        """Of each pair's errors, by what is known of each family."""
        fields = np.array([_field(each) for each in knowledge])
        alike, reach, variants = fields[self.family].T
        near = alike * np.exp(-self.distance / reach) * np.where(self.differ, variants, 1.0)
        correlation: F64 = np.where(self.one == self.other, 1.0, near)
        return correlation


def seen_of_op(device: Device, op: Op) -> Seen:
    """What was measured of an op on a device.

    >>> from silicast.hardware.catalog import find_device
    >>> op = Op.make("gemm", m=8, n=4096, k=4096)
    >>> [seen_of_op(find_device(name), op) for name in ("H100", "H20", "Rubin")]
    ['board', 'sister', 'format']
    """
    model = implementation_for(op.family, device.execution_model)
    if model is None or model.execution_model != "simt":
        return "board"
    runs, _ = with_format(device, op.variant.dtype)
    measured = model.is_measured(op.variant, runs)
    return seen_of(op.family, op.variant.dtype, device, measured=measured)


def distances(sizes: Sequence[Sequence[tuple[str, Dim]]]) -> F64:
    """Between ops of one family: Euclidean, in factors of two of their sizes; shape (k, k).

    Sizes that only the batch knows count as equal where they have the same name, and as
    ``unlike_octaves`` apart where not. A size that an op leaves out is 1.

    >>> distances([(("k", 64), ("m", "tokens")), (("k", 512), ("m", "tokens"))])[0, 1]
    np.float64(3.0)
    """
    names = sorted({name for dims in sizes for name, _ in dims})
    squares = np.zeros((len(sizes), len(sizes)))
    for name in names:
        column = [dict(dims).get(name, 1) for dims in sizes]
        octaves = np.array([octaves_of(dim) for dim in column])
        squares += np.square(octaves[:, None] - octaves[None, :])
        symbols = [symbol_of(dim) for dim in column]
        if any(symbols):
            numbers = np.unique(np.array(symbols), return_inverse=True)[1]
            apart = numbers[:, None] != numbers[None, :]
            squares += apart * constants()["unlike_octaves"] ** 2
    distances: F64 = np.sqrt(squares)
    return distances


def octaves_of(dim: Dim) -> float:
    """log2 of a size, of lengths their sum; 0 where only the batch knows it."""
    if isinstance(dim, str):
        return 0.0
    if isinstance(dim, Affine):
        return math.log2(max(dim.factor, 1))
    return math.log2(max(sum(dim) if isinstance(dim, tuple) else dim, 1))


def symbol_of(dim: Dim) -> str:
    """The name of what the batch sets, "" = a number."""
    if isinstance(dim, Affine):
        return dim.symbol
    return dim if isinstance(dim, str) else ""


@lru_cache(maxsize=1)
def constants() -> Mapping[str, float]:
    """Spreads and correlations of errors (``lab/fit_uncertainty.py``)."""
    return load_physics(GROUP).default


def _field(knowledge: Knowledge) -> tuple[float, ...]:
    """How alike the errors of neighbouring shapes are, over how many octaves, and what of it
    different variants have.
    """
    names = ("alike", "reach_octaves", "variants")
    return tuple(constants()[f"{knowledge}.{name}"] for name in names)
