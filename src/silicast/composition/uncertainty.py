"""The error of a sum of kernels: what its parts share adds up, what is their own averages out.

The residual of a kernel of family f with sizes x on device d is taken as

    log(measured / estimate) = device[d] + family[f] + both[d, f] + shape[d, f](x)

four independent errors. ``shape`` is a field over the logs of the sizes: kernels of one shape have
the very same error, and those a distance r apart (factors of two, Euclidean) share

    correlation(r) = alike x exp(-r / reach)        r > 0

of it, because what a model gets wrong about one problem it gets wrong about its neighbours. With
s[i] the seconds of the kernels of shape i and own[i] the sd of its field, the variance of the sum
is s own R own s, family by family; the other errors add linearly. ``alike``, ``reach`` and how much
of what a device's kernels share is shared by all families come from residuals of held-out kernels
(``benchmarks/fit_uncertainty.py``), for each kind of knowledge: learned on the architecture, its
constants known, or neither.

Beside kernels there are the host, the links, and composition itself: what a step takes that is
none of its kernels, which depends on the way of execution.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, final

import numpy as np

from silicast.composition.as_run import COLLECTIVES
from silicast.composition.engine import Engine
from silicast.composition.node_times import NodeTimes
from silicast.composition.placed import Placed
from silicast.core.numerics import F64, I64
from silicast.core.prediction import TIERS, ErrorFactors
from silicast.kernels.physics import load_physics
from silicast.workload.op import Affine, Dim

GROUP = "uncertainty"
Knowledge = Literal["learned", "known", "unmeasured"]
Mode = Literal["eager", "compiled", "serving"]

OF_DEVICE = frozenset(("device", "software"))
"""Factors that kernels of a device share, more within a family than across."""
OF_KERNELS = frozenset((*OF_DEVICE, "family", "campaign"))
"""Factors that measuring a family's kernels on the device does away with."""
HOST, NETWORK, COMPOSITION = "host", "network", "composition"
MOST_MEASUREMENTS = 6
"""Families whose measurement is tried, those with most to gain first."""


def mode_of(engine: Engine) -> Mode:
    """How an engine executes, as far as the error of composition differs by it."""
    if engine.kind == "serving":
        return "serving"
    return "compiled" if engine.name == "torch-compile" else "eager"


@final
@dataclass(frozen=True, slots=True)
class Sum:
    """What is added up.

    Attributes:
        seconds: of each placed node, all its executions, shape (nodes,).
        own_log_sd: of each node's own error, shape (nodes,).
        shared: per node, loadings on shared factors; nodes of one call have one and the same.
        tiers: of each node, as a place in ``core.prediction.TIERS``, shape (nodes,).
        host_s: host time that the device waits for.
    """

    seconds: F64
    own_log_sd: F64
    shared: Sequence[Mapping[str, float]]
    tiers: I64
    host_s: float = 0.0

    @staticmethod
    def of(nodes: NodeTimes, weights: F64, counts: F64, host_s: float) -> Sum:
        """Nodes that run ``counts`` times in each of some states of weights ``weights``."""
        weighted = nodes.time_s * weights
        once = weighted.sum(axis=1)
        spread = (weighted * nodes.independent).sum(axis=1)
        own = np.divide(spread, once, out=np.zeros_like(once), where=once > 0.0)
        return Sum(
            once * counts, own, nodes.shared, nodes.tiers[:, int(np.argmax(weights))], host_s
        )


@final
@dataclass(frozen=True, slots=True)
class _Family:
    """Shapes of one family and format: their places among all shapes, and their distances."""

    name: str
    shapes: I64
    distance: F64

    def correlation(self, knowledge: Knowledge) -> F64:
        """Of the errors of two shapes, shape (k, k)."""
        alike, reach = _field(knowledge)
        found = alike * np.exp(-self.distance / reach)
        np.fill_diagonal(found, 1.0)
        return found


@final
class Uncertainty:
    """Error factors of sums over placed nodes.

    Args:
        placed: the nodes.
        engine: how they are executed, and how certain its host constants are.
        assumed: whether the model's structure was assumed.
    """

    def __init__(self, placed: Sequence[Placed], engine: Engine, *, assumed: bool = False) -> None:
        self.engine = engine
        self.assumed = assumed
        self.placed = tuple(placed)
        shapes: dict[tuple[object, ...], int] = {}
        first: list[int] = []
        of_node = []
        for index, node in enumerate(self.placed):
            op = node.op
            key = (op.family, op.variant, op.dims, node.crosses)
            place = shapes.setdefault(key, len(shapes))
            if place == len(first):
                first.append(index)
            of_node.append(place)
        self._shape = np.array(of_node, dtype=np.int64)
        self._routed = np.array([_is_routed(node) for node in self.placed], dtype=np.bool_)
        groups: dict[tuple[str, str], list[int]] = {}
        for place, index in enumerate(first):
            op = self.placed[index].op
            groups.setdefault((op.family, op.variant.dtype), []).append(place)
        self._families = tuple(
            _Family(
                family,
                np.array(members, dtype=np.int64),
                distances([self.placed[first[place]].op.dims for place in members]),
            )
            for (family, _), members in groups.items()
        )
        self._correlations: dict[tuple[int, Knowledge], F64] = {}

    def of(self, total: Sum, measured: frozenset[str] = frozenset()) -> ErrorFactors:
        """The error of a sum.

        Args:
            measured: what is taken as measured on the machine: families of kernels, "host",
                "network".
        """
        whole = float(total.seconds.sum()) + total.host_s
        if whole <= 0.0:
            return ErrorFactors()
        constants = _constants()
        linear = self._shared(total, measured)
        host = constants["measured.host_log_sd"] if HOST in measured else self.engine.host.log_sd
        linear[HOST] = total.host_s * min(host, self.engine.host.log_sd)
        if self._routed.any():
            routed = float(total.seconds[self._routed].sum())
            linear["experts"] = routed * constants["experts_log_sd"]
        loadings = {name: value / whole for name, value in sorted(linear.items()) if value > 0.0}
        if self.assumed:
            loadings["structure"] = constants["structure_log_sd"]
        causes = {name: value / whole for name, value in self._own(total, measured).items()}
        causes[COMPOSITION] = constants[f"{mode_of(self.engine)}.composition_log_sd"]
        own = math.sqrt(math.fsum(value * value for value in causes.values()))
        return ErrorFactors(loadings, own, causes)

    def narrowed(self, total: Sum) -> dict[str, ErrorFactors]:
        """Measurement -> the error that it would leave; those that change nothing are left out."""
        now = self.of(total)
        gain: dict[str, float] = {}
        for family in dict.fromkeys(node.op.family for node in self.placed):
            if family not in COLLECTIVES:
                left = self.of(total, frozenset((family,)))
                gain[family] = now.variance - left.variance
        chosen = sorted(gain, key=lambda name: -gain[name])[:MOST_MEASUREMENTS]
        found = {name: self.of(total, frozenset((name,))) for name in (*chosen, HOST, NETWORK)}
        return {name: error for name, error in found.items() if error.variance < now.variance}

    def _shared(self, total: Sum, measured: frozenset[str]) -> dict[str, float]:
        """Factor -> sum of seconds times loading; nodes of one call are added first."""
        seconds: dict[int, float] = {}
        sample: dict[int, int] = {}
        for index, (time, factors) in enumerate(
            zip(total.seconds.tolist(), total.shared, strict=True)
        ):
            key = id(factors)
            if key in seconds:
                seconds[key] += time
            else:
                seconds[key], sample[key] = time, index
        found: dict[str, float] = {}
        for key, index in sample.items():
            factors, family = total.shared[index], self.placed[index].op.family
            is_measured = family in measured
            spread = split(factors, family, knowledge_of(factors, int(total.tiers[index])))
            for name, value in spread:
                left = _after(name, value, family, measured) if measured else value
                found[name] = found.get(name, 0.0) + seconds[key] * left
            if is_measured:
                name = f"device:{family}"
                left = min(math.hypot(*factors.values()), _calibrated(family).shared)
                found[name] = found.get(name, 0.0) + seconds[key] * left
        return found

    def _own(self, total: Sum, measured: frozenset[str]) -> dict[str, float]:
        """Cause -> sd, in seconds, of what shapes of a family leave open."""
        spread = np.bincount(self._shape, weights=total.seconds * total.own_log_sd)
        found: dict[str, float] = {}
        first: dict[int, int] = {}
        for index, place in enumerate(self._shape.tolist()):
            first.setdefault(place, index)
        seconds = np.bincount(self._shape, weights=total.seconds) if measured else spread
        for number, family in enumerate(self._families):
            mine = spread[family.shapes]
            largest = first[int(family.shapes[int(np.argmax(mine))])]
            knowledge = knowledge_of(total.shared[largest], int(total.tiers[largest]))
            if _is_measured(family.name, measured):
                knowledge = "learned"
                most = _calibrated(family.name).own
                mine = np.minimum(mine, seconds[family.shapes] * most)
            if len(mine) > 1:
                variance = float(mine @ self._correlation(number, knowledge) @ mine)
            else:
                variance = float(mine[0]) ** 2
            if variance > 0.0:
                name = f"shapes:{family.name}"
                found[name] = math.hypot(found.get(name, 0.0), math.sqrt(variance))
        return found

    def _correlation(self, number: int, knowledge: Knowledge) -> F64:
        key = (number, knowledge)
        found = self._correlations.get(key)
        if found is None:
            found = self._correlations[key] = self._families[number].correlation(knowledge)
        return found


def knowledge_of(factors: Mapping[str, float], tier: int) -> Knowledge:
    """What a kernel's time rests on: its shared factors say whether libraries of its architecture
    were ever measured.
    """
    if tier > TIERS.index("analytic"):
        return "learned"
    return "unmeasured" if any(name.startswith("software:") for name in factors) else "known"


def split(
    factors: Mapping[str, float], family: str, knowledge: Knowledge
) -> tuple[tuple[str, float], ...]:
    """Shared factors of a call, the device's split in what all its kernels share ("device") and
    what only those of the family do ("device:gemm").

    >>> {name: round(sd, 3) for name, sd in split({"family:gemm": 0.02}, "gemm", "known")}
    {'family:gemm': 0.02}
    """
    of_device = math.fsum(v * v for n, v in factors.items() if _kind(n) in OF_DEVICE)
    rest = tuple((n, v) for n, v in factors.items() if _kind(n) not in OF_DEVICE)
    if of_device <= 0.0:
        return rest
    everywhere = _constants()[f"{knowledge}.device_share"]
    return (
        ("device", math.sqrt(everywhere * of_device)),
        (f"device:{family}", math.sqrt((1.0 - everywhere) * of_device)),
        *rest,
    )


def distances(sizes: Sequence[Sequence[tuple[str, Dim]]]) -> F64:
    """Between ops of one family: Euclidean, in factors of two of their sizes; shape (k, k).

    Sizes that only the batch knows count as equal where they have the same name, and as
    :func:`unlike` octaves apart where not. A size that an op leaves out is 1.

    >>> distances([(("k", 64), ("m", "tokens")), (("k", 512), ("m", "tokens"))])[0, 1]
    np.float64(3.0)
    """
    names = sorted({name for dims in sizes for name, _ in dims})
    squares = np.zeros((len(sizes), len(sizes)))
    for name in names:
        column = [dict(dims).get(name, 1) for dims in sizes]
        octaves = np.array([_octaves(dim) for dim in column])
        squares += np.square(octaves[:, None] - octaves[None, :])
        symbols = [_symbol(dim) for dim in column]
        if any(symbols):
            numbers = np.unique(np.array(symbols), return_inverse=True)[1]
            apart = numbers[:, None] != numbers[None, :]
            squares += apart * _constants()["unlike_octaves"] ** 2
    found: F64 = np.sqrt(squares)
    return found


def _octaves(dim: Dim) -> float:
    if isinstance(dim, str):
        return 0.0
    if isinstance(dim, Affine):
        return math.log2(max(dim.factor, 1))
    return math.log2(max(sum(dim) if isinstance(dim, tuple) else dim, 1))


def _symbol(dim: Dim) -> str:
    if isinstance(dim, Affine):
        return dim.symbol
    return dim if isinstance(dim, str) else ""


def _kind(factor: str) -> str:
    return factor.partition(":")[0]


def _is_routed(node: Placed) -> bool:
    """Whether how evenly tokens choose decides its time; frameworks run experts one by one."""
    return node.op.family == "moe" or node.name.startswith("experts_")


def _is_measured(family: str, measured: frozenset[str]) -> bool:
    return family in measured or (NETWORK in measured and family in COLLECTIVES)


def _after(name: str, value: float, family: str, measured: frozenset[str]) -> float:
    """A shared loading of a family's kernels once something has been measured."""
    if name == NETWORK and NETWORK in measured:
        return min(value, _calibrated(NETWORK).shared)
    return 0.0 if family in measured and _kind(name) in OF_KERNELS else value


@final
@dataclass(frozen=True, slots=True)
class Calibrated:
    """What measured kernels of a family leave: shared by them, and of each shape; log sd."""

    shared: float
    own: float


@lru_cache(maxsize=256)
def _calibrated(family: str) -> Calibrated:
    constants = _constants()
    name = NETWORK if family in COLLECTIVES else family
    if f"calibrated.{name}.log_sd" not in constants:
        name = "other"
    return Calibrated(
        constants[f"calibrated.{name}.shared_log_sd"], constants[f"calibrated.{name}.log_sd"]
    )


@lru_cache(maxsize=1)
def _constants() -> Mapping[str, float]:
    return load_physics(GROUP).default


def _field(knowledge: Knowledge) -> tuple[float, float]:
    """How alike the errors of neighbouring shapes are, and over how many octaves."""
    constants = _constants()
    return constants[f"{knowledge}.alike"], constants[f"{knowledge}.reach_octaves"]
