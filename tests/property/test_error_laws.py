"""Laws of errors of sums: between the two extremes, blind to order and to how a part is cut."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from lab.scorecard.suites.intervals import independent, linear
from silicast.composition.engines.engine import find_engine
from silicast.composition.errors.error_correlation import KNOWLEDGE, Pairs, distances
from silicast.composition.errors.uncertainty import (
    ALL_KERNELS,
    HOST,
    Sum,
    Uncertainty,
    narrowed_sum,
)
from silicast.composition.step.machine import Machine
from silicast.composition.step.stage_graph import StageGraph, StageNode
from silicast.core.prediction import TIERS, ErrorFactors
from silicast.hardware.catalog import find_device
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.op import Op
from tests.sampling import examples

FAMILIES = ("gemm", "attention_decode", "rmsnorm")
MACHINE = Machine(find_device("H100"), find_engine("vllm"))

sds = st.floats(0.0, 0.5)
seconds = st.floats(1e-6, 1.0)


@st.composite
def terms(draw: st.DrawFn) -> tuple[list[Block], Sum]:
    """Nodes of a few families, each in a block of its own, with times and errors; nodes of a family
    are of one call.
    """
    count = draw(st.integers(1, 8))
    factors = {family: {"device": draw(sds), f"family:{family}": draw(sds)} for family in FAMILIES}
    known = {family: TIERS.index(draw(st.sampled_from(TIERS[1:3]))) for family in FAMILIES}
    placed, shared, tiers = [], [], []
    for number in range(count):
        family = draw(st.sampled_from(FAMILIES))
        size = draw(st.sampled_from((1, 64, 128, 4096)))
        op = Op.make(family, m=size, n=draw(st.sampled_from((512, 8192))))
        times = draw(st.integers(1, 40))
        placed.append(Block(f"block {number}", (Node("node", op),), times=times))
        shared.append(factors[family])
        tiers.append(known[family])
    total = Sum(
        np.array([draw(seconds) for _ in placed]),
        np.array([draw(sds) for _ in placed]),
        tuple(shared),
        np.array(tiers),
        draw(st.floats(0.0, 1.0)),
    )
    return placed, total


def uncertainty(placed: Sequence[Block]) -> Uncertainty:
    graph = StageGraph(Graph("sum", tuple(placed)), MACHINE)
    assert len(graph.nodes) == len(placed)
    return Uncertainty(graph, MACHINE)


def error(placed: Sequence[Block], total: Sum) -> ErrorFactors:
    return uncertainty(placed).factors(total)


def without_composition(error_factors: ErrorFactors) -> float:
    return math.sqrt(max(error_factors.variance - error_factors.causes["composition"] ** 2, 0.0))


@given(terms())
def test_between_all_for_themselves_and_all_together(case: tuple[list[Block], Sum]) -> None:
    placed, total = case
    ours = without_composition(error(placed, total))
    alone = uncertainty(placed).terms(total)
    least, most = independent(alone).log_sd, linear(alone).log_sd
    assert least <= ours * (1.0 + 1e-9) + 1e-12
    assert ours <= most * (1.0 + 1e-9) + 1e-12


@given(terms(), st.randoms(use_true_random=False))
def test_order_does_not_matter(case: tuple[list[Block], Sum], random: object) -> None:
    placed, total = case
    order = list(range(len(placed)))
    random.shuffle(order)  # type: ignore[attr-defined]
    turned = Sum(
        total.seconds[order],
        total.own_log_sd[order],
        tuple(total.shared[i] for i in order),
        total.tiers[order],
        total.host_s,
    )
    other = error([placed[i] for i in order], turned)
    assert other.log_sd == pytest.approx(error(placed, total).log_sd, rel=1e-9, abs=1e-12)


@given(terms())
def test_a_part_cut_into_two_halves_is_the_same_part(case: tuple[list[Block], Sum]) -> None:
    placed, total = case
    halves = total.seconds.copy()
    halves[0] /= 2.0
    cut = Sum(
        np.append(halves, halves[0]),
        np.append(total.own_log_sd, total.own_log_sd[0]),
        (*total.shared, total.shared[0]),
        np.append(total.tiers, total.tiers[0]),
        total.host_s,
    )
    twice = error([*placed, replace(placed[0], name="again")], cut)
    once = error(placed, total)
    assert twice.log_sd == pytest.approx(once.log_sd, rel=1e-9, abs=1e-12)
    assert twice.shares().keys() == once.shares().keys()


@given(terms(), st.floats(1.0, 3.0))
def test_larger_errors_of_parts_never_make_a_smaller_one(
    case: tuple[list[Block], Sum], factor: float
) -> None:
    placed, total = case
    before = error(placed, total).variance
    wider = Sum(total.seconds, total.own_log_sd * factor, total.shared, total.tiers, total.host_s)
    assert error(placed, wider).variance >= before * (1.0 - 1e-9)
    louder: dict[int, dict[str, float]] = {}
    for each in total.shared:
        louder.setdefault(id(each), {name: value * factor for name, value in each.items()})
    shared = tuple(louder[id(each)] for each in total.shared)
    assert error(placed, structs.replace(total, shared=shared)).variance >= before * (1.0 - 1e-9)


@given(terms())
def test_shares_of_the_variance_add_up(case: tuple[list[Block], Sum]) -> None:
    result = error(*case)
    shares = result.shares()
    assert math.fsum(shares.values()) == pytest.approx(1.0)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)


@given(terms())
def test_measurements_only_narrow(case: tuple[list[Block], Sum]) -> None:
    placed, total = case
    model = uncertainty(placed)
    now = model.factors(total)
    narrowed = model.narrowed(total)
    assert all(left.variance < now.variance for left in narrowed.values())
    assert [e.variance for e in narrowed.values()] == sorted(e.variance for e in narrowed.values())
    if HOST in narrowed:
        assert narrowed[HOST].loadings[HOST] < now.loadings[HOST]
    if ALL_KERNELS in narrowed:
        assert narrowed[ALL_KERNELS].variance <= min(
            left.variance * (1.0 + 1e-9) for name, left in narrowed.items() if name in FAMILIES
        )


@given(terms(), terms())
def test_narrowed_errors_of_a_sum_are_below_its_own(
    a: tuple[list[Block], Sum], b: tuple[list[Block], Sum]
) -> None:
    parts = []
    for placed, total in (a, b):
        model = uncertainty(placed)
        parts.append((float(total.seconds.sum()), model.factors(total), model.narrowed(total)))
    whole = ErrorFactors.of_sum([(time, item) for time, item, _ in parts])
    for left in narrowed_sum(parts).values():
        assert left.variance <= whole.variance * (1.0 + 1e-9)


@given(
    st.lists(st.tuples(st.integers(1, 1 << 20), st.integers(1, 1 << 20)), min_size=1, max_size=9)
)
def test_correlations_are_those_of_some_field(sizes: list[tuple[int, int]]) -> None:
    ops = [Op.make("gemm", m=m, n=n) for m, n in dict.fromkeys(sizes)]
    nodes = [StageNode(0, "b", str(i), 1, op) for i, op in enumerate(ops)]
    apart = distances([op.dims for op in ops])
    assert np.array_equal(apart, apart.T)
    for knowledge in KNOWLEDGE:
        pairs = Pairs.from_nodes(nodes)
        table = pairs.correlation([knowledge]).reshape(len(nodes), len(nodes))
        assert np.allclose(np.diag(table), 1.0)
        assert np.linalg.eigvalsh(table).min() > -1e-9  # else some sum would have no variance


@given(terms(), st.lists(st.floats(0.1, 10.0), min_size=2, max_size=4))
@examples(deadline=None)
def test_errors_of_a_sum_are_the_same_in_any_company(
    case: tuple[list[Block], Sum], scales: list[float]
) -> None:
    placed, total = case
    model = uncertainty(placed)
    totals = [structs.replace(total, seconds=total.seconds * scale) for scale in scales]
    together = model.factors_of(totals)
    assert together == [uncertainty(placed).factors(each) for each in totals]
    narrowed = model.narrowed_of(totals, together)
    for each, left in zip(totals, narrowed, strict=True):
        alone = uncertainty(placed).narrowed(each)
        assert (left, list(left)) == (alone, list(alone))
