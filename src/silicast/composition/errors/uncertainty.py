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
(``lab/fit_uncertainty.py``), for each kind of knowledge: learned on the architecture, its
constants known, or neither.

Beside kernels there are the board as a whole, the host, the links, and composition itself: what a
step takes that is none of its kernels, which depends on the way of execution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, final

import numpy as np
from msgspec import Struct

from silicast.composition.engines.engine import Engine
from silicast.composition.engines.engine_lowering import COLLECTIVES
from silicast.composition.errors.error_correlation import (
    KNOWLEDGE,
    Knowledge,
    Pairs,
    constants,
    knowledge_of,
    octaves_of,
    seen_of_op,
    symbol_of,
)
from silicast.composition.step.machine import Machine
from silicast.composition.step.stage_graph import StageGraph, StageNode
from silicast.core.numerics import F64, I64
from silicast.core.prediction import TIERS, Z90, ErrorFactors, Quantity

Mode = Literal["eager", "compiled", "serving"]

OF_DEVICE = frozenset(("device", "software"))
"""Factors that kernels of a device share, more within a family than across."""
OF_KERNELS = frozenset((*OF_DEVICE, "family", "campaign"))
"""Factors that measuring a family's kernels on the device does away with."""
HOST, NETWORK, COMPOSITION = "host", "network", "composition"
RELEASE = "release"
"""What kernels are off together under a release of the engine that nothing was measured of."""
BOARD = "board"
"""What models on one board are off together beyond what their kernels explain."""
ALL_KERNELS = "kernels"
"""The measurement of some kernels of every family."""
MOST_LAYOUTS = 256
"""Layouts that are remembered; results never depend on it."""

MOST_PRODUCTS = 1 << 19
"""Products of errors of pairs of shapes that are added up together."""
_NO_LIMIT = 1e100
"""Log sd: a finite one, for kernels that do not run."""

MOST_SHAPES = 500
"""Different shapes up to which each is told apart; their pairs are counted."""
MOST_FAMILIES = 4
"""Families whose measurement is tried, those with the largest share of the variance."""


def mode_of(engine: Engine) -> Mode:
    """How an engine executes, as far as the error of composition differs by it."""
    if engine.kind == "serving":
        return "serving"
    return "compiled" if engine.compiles else "eager"


@final
class Sum(Struct, frozen=True):
    """What is added up.

    Attributes:
        seconds: of each placed node, all its executions, shape (nodes,).
        own_log_sd: of each node's own error, shape (nodes,).
        shared: per node, loadings on shared factors; nodes of one call have one and the same.
        tiers: of each node, as a place in ``core.prediction.TIERS``, shape (nodes,).
        host_s: host time that the device waits for; launch_s: the part that launches kernels.
        state_log_sd: of the power state that the device is in.
    """

    seconds: F64
    own_log_sd: F64
    shared: Sequence[Mapping[str, float]]
    tiers: I64
    host_s: float = 0.0
    launch_s: float = 0.0
    state_log_sd: float = 0.0


@final
class Terms(Struct, frozen=True):
    """The terms of a sum, arrays of shape (nodes,).

    Attributes:
        seconds: of all executions of a node; runs: how many there are.
        log_sd: of one execution.
        host_s, host_log_sd: the host's time that the device waits for.
    """

    seconds: F64
    runs: F64
    log_sd: F64
    host_s: float
    host_log_sd: float

    @property
    def whole(self) -> float:
        return float(self.seconds.sum()) + self.host_s


_Signature = tuple[int | tuple[tuple[str, float], ...], ...]


def _signature(shared: Sequence[Mapping[str, float]]) -> _Signature:
    """Factors of nodes by content: those of a call where it comes first, then its number."""
    calls: dict[int, int] = {}
    return tuple(
        calls[id(factors)]
        if id(factors) in calls
        else (calls.setdefault(id(factors), len(calls)), tuple(factors.items()))[1]
        for factors in shared
    )


@final
class _Layout(Struct, frozen=True):
    """What of a sum does not depend on its times.

    Attributes:
        names: shared factors; loadings: of each in each call, shape (factors, calls).
        call: which call timed each node, shape (nodes,).
        correlation: of each pair of shapes.
        most_own: of each shape, what its own log sd is at most, shape (shapes,).
    """

    names: tuple[str, ...]
    loadings: F64
    call: I64
    correlation: F64
    most_own: F64


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Cases:
    """Layouts under several sets of what is taken as measured, side by side.

    Attributes:
        layouts: of each case.
        most_own, correlation: of all of them, shapes (cases, shapes) and (cases, pairs).
        position: of the family of each pair under each case, for sums, shape (cases x pairs,).
    """

    layouts: tuple[_Layout, ...]
    most_own: F64
    correlation: F64
    position: I64


@final
class Uncertainty:
    """Error factors of sums over the nodes of a stage graph.

    Args:
        graph: the nodes.
        machine: where they run: how they are executed, and how certain its host constants are.
        assumed: whether the model's structure was assumed.
    """

    def __init__(self, graph: StageGraph, machine: Machine, *, assumed: bool = False) -> None:
        placed = graph.nodes
        self.engine: Engine = machine.engine
        self._whole = machine.evidence.whole
        self._release_log_sd = self.engine.release_log_sd(machine.device.architecture)
        self.assumed = assumed
        self.families: list[str] = [node.op.family for node in placed]
        self._runs = np.array([node.count for node in placed], dtype=np.float64)
        self._routed = np.flatnonzero([_is_routed(node) for node in placed])
        first, of_node = _shapes(placed, _exact)
        if len(first) > MOST_SHAPES:
            first, of_node = _shapes(placed, _octaves)
        self._shape = np.array(of_node, dtype=np.int64)
        kinds = {(n.op.family, n.op.variant.dtype): n.op for n in first}
        seen = {kind: seen_of_op(machine.device, op) for kind, op in kinds.items()}
        self._seen = [seen[node.op.family, node.op.variant.dtype] for node in placed]
        self._shape_families = [node.op.family for node in first]
        self._pairs = Pairs.from_nodes(first)
        self._kernels = [name for name in dict.fromkeys(self.families) if name not in COLLECTIVES]
        self._layouts: dict[tuple[tuple[frozenset[str], ...], bytes, int], _Cases] = {}
        self._signatures: dict[_Signature, int] = {}
        self._factors: dict[int, tuple[Sequence[Mapping[str, float]], int]] = {}

    def factors(self, total: Sum, measured: frozenset[str] = frozenset()) -> ErrorFactors:
        """The error of a sum.

        Args:
            measured: what is taken as measured on the machine: families of kernels, "host",
                "network".
        """
        return self.factors_of((total,), measured)[0]

    def factors_of(
        self, totals: Sequence[Sum], measured: frozenset[str] = frozenset()
    ) -> list[ErrorFactors]:
        """:meth:`factors` of several sums; that of a sum is the same in any company."""
        return [error for (error,) in self._errors(totals, (measured,))]

    def _errors(
        self, totals: Sequence[Sum], cases: tuple[frozenset[str], ...], *, causes: bool = True
    ) -> list[list[ErrorFactors]]:
        """Of each sum, its error under each set of what is taken as measured.

        Args:
            causes: whether what the independent part is made of is asked for.
        """
        items = [[ErrorFactors() for _ in cases] for _ in totals]
        groups: dict[_Cases, list[int]] = {}
        for index, total in enumerate(totals):
            if float(total.seconds.sum()) + total.host_s > 0.0:
                groups.setdefault(self._cases(total, cases), []).append(index)
        for laid_out, group in groups.items():
            most = max(MOST_PRODUCTS // max(laid_out.correlation.size, 1), 1)
            for begin in range(0, len(group), most):
                part = group[begin : begin + most]
                of_part = [totals[index] for index in part]
                several = self._of_layout(of_part, cases, laid_out, causes=causes)
                for index, errors in zip(part, several, strict=True):
                    items[index] = errors
        return items

    def _of_layout(
        self,
        totals: Sequence[Sum],
        cases: tuple[frozenset[str], ...],
        laid_out: _Cases,
        *,
        causes: bool,
    ) -> list[list[ErrorFactors]]:
        """:meth:`_errors` of sums of one layout."""
        seconds = np.array([total.seconds for total in totals])
        whole = seconds.sum(axis=1) + np.array([total.host_s for total in totals])
        layouts, count = laid_out.layouts, laid_out.layouts[0].loadings.shape[1]
        by_call = binned(layouts[0].call, seconds, count)[:, :, None]  # the same in all layouts
        log_sd = np.array([total.own_log_sd for total in totals])
        sds = self._own(seconds, log_sd, laid_out, whole)
        usual = constants()[f"{mode_of(self.engine)}.composition_log_sd"]
        composition = usual if self._whole is None else self._whole.log_sd
        variances = (sds * sds).tolist()
        beside = {
            x: [
                self._beside_kernels(total, whole_s, host_measured=x)
                for total, whole_s in zip(totals, whole.tolist(), strict=True)
            ]
            for x in {HOST in measured for measured in cases}
        }
        tables = {x: np.array([[*row.values()] for row in rows]) for x, rows in beside.items()}
        errors: list[list[ErrorFactors]] = [[] for _ in totals]
        for case, (layout, measured) in enumerate(zip(layouts, cases, strict=True)):
            host_measured = HOST in measured
            others = beside[host_measured][0]
            columns = [at for at, name in enumerate(layout.names) if name not in others]
            kernels = np.matmul(layout.loadings, by_call)[:, :, 0] / whole[:, None]
            both = np.take(kernels, columns, axis=1), tables[host_measured]
            table = np.concatenate(both, axis=1).tolist()
            names = (*[layout.names[at] for at in columns], *others)
            for row, values in enumerate(table):
                pairs = zip(names, values, strict=True)
                loadings = {name: value for name, value in pairs if value > 0.0}
                variance = math.fsum([*variances[row][case], composition * composition])
                made_of = {}
                if causes:
                    of_shapes = zip(self._pairs.causes, sds[row, case].tolist(), strict=True)
                    made_of = {name: sd for name, sd in of_shapes if sd > 0.0}
                    made_of[COMPOSITION] = composition
                errors[row].append(ErrorFactors(loadings, math.sqrt(variance), made_of))
        return errors

    def _beside_kernels(self, total: Sum, whole: float, *, host_measured: bool) -> dict[str, float]:
        """Loadings of the power state, the engine's release, the host, routing and an assumed
        structure.
        """
        known, linear = constants(), dict[str, float]()
        host, launch = self.engine.host.log_sd, self.engine.host.launch_log_sd
        if host_measured:
            host = min(host, known["measured.host_log_sd"])
            launch = None if launch is None else min(launch, known["measured.host_log_sd"])
        on_device = (whole - total.host_s) / whole
        linear["power_state"] = total.state_log_sd * on_device
        if self._whole is None:
            linear[RELEASE] = self._release_log_sd * on_device
        linear[HOST] = total.host_s * host / whole
        if launch is not None:
            linear[HOST] += total.launch_s * (launch - host) / whole
        if len(self._routed):
            routed = float(total.seconds[self._routed].sum())
            linear["experts"] = routed * known["experts_log_sd"] / whole
        if self.assumed:
            linear["structure"] = known["structure_log_sd"]
        return linear

    def terms(self, total: Sum) -> Terms:
        """The times of a sum and how certain each is alone."""
        pairs = zip(total.shared, total.own_log_sd.tolist(), strict=True)
        log_sd = np.array([math.hypot(item, *shared.values()) for shared, item in pairs])
        host_log_sd = self.engine.host.log_sd
        return Terms(total.seconds, self._runs, log_sd, total.host_s, host_log_sd)

    def narrowed(self, total: Sum, now: ErrorFactors | None = None) -> dict[str, ErrorFactors]:
        """Measurement -> the error that it would leave, the least first and without its causes;
        those that would change nothing are left out.

        Args:
            now: the error of the sum, if it is known.
        """
        return self.narrowed_of((total,), (now or self.factors(total),))[0]

    def narrowed_of(
        self, totals: Sequence[Sum], now: Sequence[ErrorFactors]
    ) -> list[dict[str, ErrorFactors]]:
        """:meth:`narrowed` of several sums, whose errors are ``now``."""
        items: list[dict[str, ErrorFactors]] = [{} for _ in totals]
        groups: dict[tuple[str, ...], list[int]] = {}
        for index, error in enumerate(now):
            groups.setdefault(self._tried(error), []).append(index)
        for tried, group in groups.items():
            names, cases = tried, tuple(frozenset((name,)) for name in tried)
            if len(self._kernels) > 1:
                names, cases = (*names, ALL_KERNELS), (*cases, frozenset(self._kernels))
            several = self._errors([totals[index] for index in group], cases, causes=False)
            for index, errors in zip(group, several, strict=True):
                least = now[index].variance
                pairs = zip(names, errors, strict=True)
                left = [(name, each) for name, each in pairs if each.variance < least]
                items[index] = dict(sorted(left, key=lambda item: item[1].variance))
        return items

    def _tried(self, now: ErrorFactors) -> tuple[str, ...]:
        """The measurements that may narrow an error, those of the largest share of it first."""
        gain: dict[str, float] = {}
        for name, value in (*now.loadings.items(), *now.causes.items()):
            _, _, family = name.partition(":")
            gain[family] = gain.get(family, 0.0) + value * value
        families = sorted(self._kernels, key=lambda name: -gain.get(name, 0.0))
        return (*families[:MOST_FAMILIES], *(n for n in (HOST, NETWORK) if n in now.loadings))

    def _cases(self, total: Sum, cases: tuple[frozenset[str], ...]) -> _Cases:
        """Remembered for sums whose kernel calls have the same factors."""
        if id(total.shared) not in self._factors:
            signature = _signature(total.shared)
            if signature not in self._signatures and len(self._signatures) >= MOST_LAYOUTS:
                self._signatures.clear()
                self._layouts.clear()
                self._factors.clear()
            number = self._signatures.setdefault(signature, len(self._signatures))
            if len(self._factors) >= MOST_LAYOUTS:
                self._factors.clear()
            self._factors[id(total.shared)] = total.shared, number  # kept, so that its id is its
        key = (cases, total.tiers.tobytes(), self._factors[id(total.shared)][1])
        known = self._layouts.get(key)
        if known is None:
            if len(self._layouts) >= MOST_LAYOUTS:
                self._layouts.clear()
            known = self._layouts[key] = self._new_cases(total, cases)
        return known

    def _new_cases(self, total: Sum, cases: tuple[frozenset[str], ...]) -> _Cases:
        layouts = tuple(self._new_layout(total, measured) for measured in cases)
        families = len(self._pairs.causes)
        return _Cases(
            layouts,
            np.array([layout.most_own for layout in layouts]),
            np.array([layout.correlation for layout in layouts]),
            (self._pairs.family + families * np.arange(len(layouts))[:, None]).ravel(),
        )

    def _new_layout(self, total: Sum, measured: frozenset[str]) -> _Layout:
        positions: dict[tuple[int, str], int] = {}
        spreads: list[dict[str, float]] = []
        call = []
        known: dict[str, Knowledge] = {}
        for family, factors, tier, seen in zip(
            self.families, total.shared, total.tiers.tolist(), self._seen, strict=True
        ):
            key = (id(factors), family)
            call.append(positions.setdefault(key, len(spreads)))
            if call[-1] < len(spreads):
                continue
            knowledge = knowledge_of(factors, tier, seen)
            spread = _after(split(factors, family, knowledge), family, measured)
            spreads.append(spread)
            if factors or TIERS[tier] != "analytic":  # else it does not run
                whole = "learned" if _is_measured(family, measured) else knowledge
                spread[BOARD] = constants()[f"{whole}.board_log_sd"]
                known[family] = max(known.get(family, knowledge), knowledge, key=KNOWLEDGE.index)
        names = tuple(sorted({name for spread in spreads for name in spread}))
        loadings = [[spread.get(name, 0.0) for spread in spreads] for name in names]
        most_own = np.full(len(self._shape_families), _NO_LIMIT)
        if measured:
            limited = [_is_measured(family, measured) for family in self._shape_families]
            most = [_calibrated(family).own for family in self._shape_families]
            most_own = np.where(limited, most, _NO_LIMIT)
            known |= {name: "learned" for name in known if _is_measured(name, measured)}
        return _Layout(
            names,
            np.array(loadings).reshape(len(names), len(spreads)),
            np.array(call, dtype=np.int64),
            self._pairs.correlation([known.get(name, "known") for name in self._pairs.families]),
            most_own,
        )

    def _own(self, seconds: F64, own_log_sd: F64, cases: _Cases, whole: F64) -> F64:
        """Log sd of what the shapes of each cause leave open, under each layout.

        Args:
            seconds, own_log_sd: of the nodes of each sum, shape (sums, nodes).
            whole: all that each sum adds up, s, shape (sums,).

        Returns:
            Shape (sums, layouts, causes).
        """
        count, pairs = len(self._shape_families), self._pairs
        spread = binned(self._shape, seconds * own_log_sd, count)[:, None, :]
        spreads = np.minimum(
            spread, binned(self._shape, seconds, count)[:, None, :] * cases.most_own
        )
        products = cases.correlation * spreads[:, :, pairs.one] * spreads[:, :, pairs.other]
        shape = len(whole), len(cases.layouts), len(pairs.causes)
        variances = binned(cases.position, products.reshape(len(whole), -1), shape[1] * shape[2])
        sds: F64 = np.sqrt(np.maximum(variances, 0.0)) / whole[:, None]
        return sds.reshape(shape)


def binned(bins: I64, weights: F64, count: int) -> F64:
    """Sums of each row's weights by bin, in their order; a row's are the same in any company.

    Args:
        bins: of each column, shape (columns,), below ``count``.
        weights: shape (rows, columns).

    Returns:
        Shape (rows, count).

    >>> binned(np.array([0, 1, 0]), np.array([[1.0, 2.0, 4.0], [0.5, 0.0, 0.25]]), 2).tolist()
    [[5.0, 2.0], [0.75, 0.0]]
    """
    rows = len(weights)
    at = (bins + count * np.arange(rows)[:, None]).ravel()
    sums: F64 = np.bincount(at, weights=weights.ravel(), minlength=rows * count).astype(np.float64)
    return sums.reshape(rows, count)


def narrowed_sum(
    terms: Sequence[tuple[float, ErrorFactors, Mapping[str, ErrorFactors]]],
) -> dict[str, ErrorFactors]:
    """Measurement -> the error it would leave of a sum of ``(time, error, narrowed errors)``,
    without the causes of it.
    """
    names = dict.fromkeys(name for _, _, narrowed in terms for name in narrowed)
    table = {
        name: ErrorFactors.of_sum(
            [(time, narrowed.get(name, error)) for time, error, narrowed in terms], causes=False
        )
        for name in names
    }
    return dict(sorted(table.items(), key=lambda item: item[1].variance))


def _shapes(
    placed: Sequence[StageNode], key_of: Callable[[StageNode], Hashable]
) -> tuple[list[StageNode], list[int]]:
    """A node of each shape, and the shape of each node."""
    known: dict[Hashable, int] = {}
    first: list[StageNode] = []
    of_node = []
    for node in placed:
        of_node.append(known.setdefault(key_of(node), len(first)))
        if of_node[-1] == len(first):
            first.append(node)
    return first, of_node


def _exact(node: StageNode) -> Hashable:
    return node.op.family, node.op.variant, node.op.dims, node.crosses


def _octaves(node: StageNode) -> Hashable:
    """Sizes of whole octaves: coarser shapes share more of their errors than they do."""
    sizes = tuple((name, symbol_of(dim), round(octaves_of(dim))) for name, dim in node.op.dims)
    return node.op.family, node.op.variant.dtype, sizes


def split(factors: Mapping[str, float], family: str, knowledge: Knowledge) -> dict[str, float]:
    """Shared factors of a call, the device's split in what all its kernels share ("device") and
    what only those of the family do ("device:gemm").

    >>> list(split({"device": 0.1, "family:gemm": 0.02}, "gemm", "known"))
    ['family:gemm', 'device', 'device:gemm']
    """
    of_device = math.fsum(v * v for n, v in factors.items() if _kind(n) in OF_DEVICE)
    table = {n: v for n, v in factors.items() if _kind(n) not in OF_DEVICE}
    if of_device > 0.0:
        everywhere = constants()[f"{knowledge}.device_share"]
        table["device"] = math.sqrt(everywhere * of_device)
        table[f"device:{family}"] = math.sqrt((1.0 - everywhere) * of_device)
    return table


def _kind(factor: str) -> str:
    return factor.partition(":")[0]


def _is_routed(node: StageNode) -> bool:
    """Whether how evenly tokens choose decides its time; frameworks run experts one by one."""
    return node.op.family == "moe" or node.name.startswith("experts_")


def _is_measured(family: str, measured: frozenset[str]) -> bool:
    return family in measured or (NETWORK in measured and family in COLLECTIVES)


def _after(spread: dict[str, float], family: str, measured: frozenset[str]) -> dict[str, float]:
    """Shared loadings of a call once something has been measured."""
    if family in measured:
        gone = [value for name, value in spread.items() if _kind(name) in OF_KERNELS]
        after = {n: v for n, v in spread.items() if _kind(n) not in OF_KERNELS}
        after[f"device:{family}"] = min(math.hypot(*gone), _calibrated(family).shared)
        return after
    if _is_measured(family, measured):
        most = _calibrated(family).shared
        return {name: min(value, most) for name, value in spread.items()}
    return spread


@final
class Calibrated(Struct, frozen=True):
    """What measured kernels of a family leave: shared by them, and of each shape; log sd."""

    shared: float
    own: float


@lru_cache(maxsize=256)
def _calibrated(family: str) -> Calibrated:
    known = constants()
    name = NETWORK if family in COLLECTIVES else family
    if f"calibrated.{name}.log_sd" not in known:
        name = "other"
    return Calibrated(known[f"calibrated.{name}.shared_log_sd"], known[f"calibrated.{name}.log_sd"])


REMARK = (
    "the model's structure is assumed: intervals of time and of memory are widened for it, alone "
    "by a factor of {:.2f}"
)


def structure_factor() -> float:
    """p95 over the estimate where nothing but the structure is uncertain: a judged spread of
    ``structure_log_sd`` (catalog/physics/uncertainty.json).
    """
    return math.exp(Z90 * float(constants()["structure_log_sd"]))


def structure_remark() -> str:
    """The warning that states the factor."""
    return REMARK.format(structure_factor())


def with_assumed_structure(memory: Quantity) -> Quantity:
    """Memory of a model whose structure was assumed: its weights and cache are as uncertain."""
    factor = structure_factor()
    return Quantity(memory.estimate, memory.p05 / factor, memory.p95 * factor)
