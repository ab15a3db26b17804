"""Laws of models that share a device, on random traffic and engines."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.composition.prices.step_price import Needs, StepNeeds
from silicast.serving.simulation.colocation import Colocation, Tenant
from silicast.serving.simulation.sharing import UNIT, DeviceLoad, Law, TimeSlicing, Together, rates
from silicast.serving.statistics.records import Records
from silicast.serving.traffic.requests import Requests
from tests.property.serving_cases import PlainPrices, ServingCase, random_case
from tests.sampling import examples, seeds

HALVES = (1.0, 1.0)
NS = 20
"""Nanoseconds by which rounding of rates and ends may move a time, a step."""

shares = st.floats(0.0, 1.0)
loads = st.lists(
    st.builds(DeviceLoad, shares, st.tuples(shares, shares, shares)), min_size=2, max_size=4
)


def plain_case(seed: int) -> ServingCase:
    """A random case that can share a device: one replica, one stage."""
    case = random_case(seed)
    return replace(case, prices=replace(case.prices, stages=1), replicas=1, decoders=0)


def busy_case(seed: int) -> ServingCase:
    """All requests are there at once and the host takes no time: the device never idles."""
    case = plain_case(seed)
    requests = replace(case.requests, arrival_ns=np.zeros_like(case.requests.arrival_ns))
    prices = PlainPrices(work_s=0.0, gap_s=0.0, asynchronous=False)
    return replace(case, requests=requests, prices=prices, front_ns=0, back_ns=0, groups=1)


def needs(of: Needs) -> StepNeeds:
    return cast("StepNeeds", SimpleNamespace(needs=lambda *_: of))


def together(law: Law, *cases: ServingCase, each: list[Needs] | None = None) -> list[Records]:
    tenants: list[Any] = [
        Tenant(case.simulation(), needs(each[index]) if each else None)
        for index, case in enumerate(cases)
    ]
    return Colocation(tenants, law).run()


def rounding(records: Records) -> int:
    return NS * int(records.log.columns()["steps"].sum()) + int(records.end_ns * 2e-4)


@pytest.mark.parametrize("seed", seeds(40))
@pytest.mark.parametrize("law", [TimeSlicing(HALVES, 0.02), Together()])
def test_a_model_alone_is_as_without_sharing(seed: int, law: Law) -> None:
    case = plain_case(seed)
    alone = case.run()
    late = np.array([int(alone.end_ns) + 10**12])
    other = replace(case, requests=Requests.from_arrays(late, np.array([5]), np.array([5]), 0))
    beside, _ = together(law, case, other)
    assert (beside.done_ns == alone.done_ns).all()
    assert (beside.first_ns == alone.first_ns).all()
    assert (beside.log.table() == alone.log.table()).all()


@pytest.mark.parametrize("seed", seeds(40))
def test_two_alike_take_twice_as_long_in_turns(seed: int) -> None:
    case = busy_case(seed)
    alone = case.run()
    for one in together(TimeSlicing(HALVES), case, case):
        assert np.abs(one.done_ns - 2 * alone.done_ns).max() <= rounding(alone)


@pytest.mark.parametrize("seed", seeds(40))
def test_turns_conserve_work(seed: int) -> None:
    one, other = busy_case(seed), busy_case(seed + 1000)
    alone = [case.run() for case in (one, other)]
    result = together(TimeSlicing((1.0, 3.0)), one, other)
    work = sum(each.end_ns for each in alone)
    assert abs(max(each.end_ns for each in result) - work) <= sum(map(rounding, alone))


@pytest.mark.parametrize("seed", seeds(40))
def test_at_once_lies_between_alone_and_one_after_the_other(seed: int) -> None:
    cases = busy_case(seed), busy_case(seed + 1000)
    alone = [case.run() for case in cases]
    rng = np.random.default_rng(seed)
    each = [cast("Needs", tuple(rng.uniform(0.0, 1.0, 3).tolist())) for _ in cases]
    result = together(Together(), *cases, each=each)
    allowed = sum(map(rounding, alone))
    for one, before in zip(result, alone, strict=True):
        assert (one.done_ns >= before.done_ns - allowed).all()
    assert max(r.end_ns for r in result) <= sum(r.end_ns for r in alone) + allowed


@pytest.mark.parametrize("seed", seeds(40))
def test_every_request_is_answered_and_every_block_given_back(seed: int) -> None:
    cases = [plain_case(seed), plain_case(seed + 2000), plain_case(seed + 4000)]
    tenants = [Tenant(case.simulation()) for case in cases]
    result = Colocation(tenants, TimeSlicing((1.0, 2.0, 1.0), 0.02)).run()
    again = together(TimeSlicing((1.0, 2.0, 1.0), 0.02), *cases)
    for one, tenant, case, same in zip(result, tenants, cases, again, strict=True):
        assert (one.done_ns > 0).all()
        assert (one.first_ns <= one.done_ns).all()
        assert (one.sequences.made == case.requests.output_tokens).all()
        assert all(g.free == case.limits.blocks for g in tenant.simulation.replicas[0].groups)
        assert (one.done_ns == same.done_ns).all(), "the same inputs give the same times"
        starts = one.log.columns()["start_ns"]
        assert (np.diff(starts) >= 0).all(), "the clock never goes back"


@given(loads, st.floats(0.0, 0.5))
@examples(200)
def test_nothing_is_quicker_beside_others(found: list[DeviceLoad], overhead: float) -> None:
    for law in (TimeSlicing((1.0,) * len(found), overhead), Together()):
        assert all(1 <= rate <= UNIT for rate in rates(law, found))


@given(loads)
@examples(200)
def test_at_once_is_no_slower_than_in_turns(found: list[DeviceLoad]) -> None:
    turns = rates(TimeSlicing((1.0,) * len(found)), found)
    assert all(item >= turn - 1 for item, turn in zip(rates(Together(), found), turns, strict=True))


@given(loads, shares)
@examples(100)
def test_a_busier_neighbour_is_no_help(found: list[DeviceLoad], busy: float) -> None:
    more = [found[0], *(replace(each, busy=max(each.busy, busy)) for each in found[1:])]
    for law in (TimeSlicing((1.0,) * len(found)), Together()):
        assert rates(law, more)[0] <= rates(law, found)[0] + 1


def test_stages_in_flight_cannot_share() -> None:
    case = plain_case(1)
    piped = replace(case, prices=PlainPrices(stages=2))
    with pytest.raises(ValueError, match="one stage"):
        together(TimeSlicing(HALVES), case, piped)
