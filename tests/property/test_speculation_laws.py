"""Laws of speculative decoding, on random traffic, limits and engines."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from silicast.composition.prices.stepper import Pace, PacedPrices
from silicast.composition.step.states import BatchStates
from silicast.serving.simulation.drafting import SpeculativePrices
from silicast.serving.simulation.scheduler import Limits
from silicast.serving.simulation.speculation import Acceptance
from silicast.serving.statistics.records import Records
from silicast.serving.statistics.step_mix import Mix
from silicast.serving.traffic.requests import Requests
from tests.property.serving_cases import PlainPrices, ServingCase, random_case
from tests.property.test_serving_laws import single_steps

FEW, MANY = 100, 5_000
POLICIES = ("vllm-v1", "vllm-v0", "sarathi", "sglang", "orca")
DRAFTER = PlainPrices(step_s=2e-4, token_s=1e-6, cached_s=0.0, work_s=0.0, gap_s=1e-5)


def drafting(case: ServingCase, rates: tuple[float, ...], seed: int = 0) -> ServingCase:
    """The same case with drafts, and room for them."""
    drafts = len(rates)
    limits = replace(case.limits, drafted=drafts, blocks=case.limits.blocks + 2)
    prices = SpeculativePrices(case.prices, DRAFTER, drafts, drafts + 1, 1.0 / (drafts + 1))
    return replace(
        case, prices=cast("PlainPrices", prices), limits=limits, accepted=Acceptance(rates, seed)
    )


def random_drafting(seed: int) -> ServingCase:
    rng = np.random.default_rng(seed + 1_000_000)
    rates = tuple(rng.uniform(0.0, 1.0, int(rng.integers(1, 6))).tolist())
    case = random_case(seed, POLICIES)
    if case.policy == "sglang":  # its sequences that lost their blocks need a replica that prefills
        case = replace(case, decoders=0)
    return drafting(case, rates, seed)


def test_passes_of_drafter_and_target_by_hand() -> None:
    """Three drafts of sequences with 90 and 31 tokens in one step, with 60 beside a prompt of 40
    in another: a drafter goes on twice, over the mean of what its sequences have.
    """
    prices = SpeculativePrices(PlainPrices(), DRAFTER, 3, 4, 1.0 / 4)
    states = BatchStates(
        np.array([40]), np.array([40]), np.array([0, 0, 1]), np.array([90, 31, 60]),
        np.array([0, 2, 3]),
    )  # fmt: skip
    later = prices.drafting(Mix(states, np.array([5.0, 7.0])))
    assert later.states.decode_offsets.tolist() == [0, 2, 4]
    assert later.states.decode_kv.tolist() == [60, 60, 50, 50]
    assert later.states.prefill_sequences.tolist() == [0, 0]
    assert later.weights.tolist() == [10.0, 14.0]
    wider = prices.verifying(Mix(states, np.array([5.0, 7.0])))
    assert wider.states.decode_offsets.tolist() == [0, 8, 12]
    assert wider.states.decode_kv.tolist() == [23] * 4 + [8] * 4 + [15] * 4  # a quarter, up
    assert wider.states.prefill_q.tolist() == [40]
    # 2 + 1 sequences: twelve queries and a prompt of 40 at once, then three sequences twice
    first = 2e-4 + (40 + 2 * 4) * 1e-6 + 1e-5
    again = 2e-4 + (2 + 1) * 1e-6 + 1e-5
    assert prices.drafting_s([(40, 40)], np.array([90, 31])) == pytest.approx(first + 2 * again)
    # new tokens of other groups: as many in verification, a quarter of them in later passes
    for elsewhere, quarter in ((1, 0), (9, 2)):
        more = (elsewhere + 2 * quarter) * 1e-6
        assert prices.drafting_s([(40, 40)], np.array([90, 31]), elsewhere) == pytest.approx(
            first + 2 * again + more
        )


def times(records: Records) -> np.ndarray:
    return np.stack([records.scheduled_ns, records.first_ns, records.done_ns])


def check_conserved(seed: int) -> None:
    case = random_drafting(seed)
    simulation = case.simulation()
    records = simulation.run()
    sequences, output = records.sequences, case.requests.output_tokens
    assert (sequences.made == output).all()
    assert (sequences.held == 0).all(), "every block is given back"
    for replica in simulation.replicas:
        for group in replica.groups:
            assert group.free == case.limits.blocks
            left = (group.waiting, group.running, group.filling, group.flying)
            assert not any(left)
    several = output > 1
    assert (records.first_ns[several] < records.done_ns[several]).all()
    gaps, counts = records.gaps.table()
    chunks = int(counts.sum())
    assert records.verified <= chunks <= int((output - 1).sum())
    assert int((gaps * counts).sum()) == int((records.done_ns - records.first_ns).sum())
    assert case.accepted is not None
    most = len(case.accepted.rates) + 1
    assert records.verified <= records.accepted <= most * records.verified
    table = records.log.table()
    assert (table[:, 8] <= case.limits.blocks * case.groups).all()


def test_requests_tokens_and_blocks_are_conserved() -> None:
    for seed in range(FEW):
        check_conserved(seed)


@pytest.mark.full
def test_they_are_in_thousands_of_cases() -> None:
    for seed in range(FEW, FEW + MANY):
        check_conserved(seed)


def test_drafts_that_are_never_kept_cost_their_time_and_change_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    single_steps(monkeypatch)
    for seed in range(40):
        none = drafting(random_case(seed, POLICIES), (0.0, 0.0))
        plain = replace(none, accepted=None)
        assert (times(none.run()) == times(plain.run())).all(), seed


def test_drafts_that_are_always_kept_bring_as_many_tokens_a_step() -> None:
    for seed in range(40):
        case = drafting(random_case(seed, ("vllm-v1",)), (1.0, 1.0, 1.0))
        records = case.run()
        if records.sequences.preemptions.any():  # a prompt again brings one
            continue
        steps = -(-(case.requests.output_tokens - 1) // 4)
        assert records.verified == int(steps.sum())
        assert records.accepted == 4 * records.verified


def test_a_client_alone_waits_less_the_more_is_kept() -> None:
    requests = Requests.closed(1, [100] * 10, [64] * 10)
    case = ServingCase(requests, PlainPrices(), Limits(4, 512, 100))
    rates = np.linspace(0.0, 1.0, 11).tolist()
    ends = [drafting(case, (rate,) * 3).run().end_ns for rate in rates]
    assert ends == sorted(ends, reverse=True)
    assert ends[-1] < 0.5 * ends[0]


def test_what_is_kept_does_not_depend_on_the_pace_nor_on_what_runs_beside() -> None:
    requests = Requests.closed(8, [100] * 40, [64] * 40)
    case = drafting(ServingCase(requests, PlainPrices(), Limits(8, 512, 400)), (0.7, 0.6), 3)
    paced = PacedPrices(case.prices, Pace(decode=2.0, prefill=3.0))
    slow = replace(case, prices=cast("PlainPrices", paced))
    alone = replace(case, limits=replace(case.limits, sequences=1))
    base = case.run()
    for other in (slow.run(), alone.run()):
        assert (other.accepted, other.verified) == (base.accepted, base.verified)
        assert other.end_ns > base.end_ns


def test_host_drafts_leave_no_work_beside_the_device() -> None:
    prices = SpeculativePrices(PlainPrices(), None, 2, 3, 1.0 / 3)
    assert PlainPrices().asynchronous
    assert not prices.asynchronous
    none = np.zeros(0, dtype=np.int64)
    assert prices.drafting_s([(10, 10)], none) == 0.0
