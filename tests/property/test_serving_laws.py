"""Laws of the event core, on random traffic, limits and engines."""

from __future__ import annotations

from types import FunctionType

import numpy as np
import pytest

from silicast.core.numerics import I64
from silicast.serving.simulation.replica import Replica
from silicast.serving.simulation.scheduler import Limits
from silicast.serving.statistics.metrics import kv_use, span_s
from silicast.serving.statistics.records import NANO, Records
from silicast.serving.statistics.use import step_shares
from silicast.serving.traffic.requests import Requests
from tests.property.serving_cases import PlainPrices, ServingCase, random_case

FEW, MANY = 150, 10_000


def times(records: Records) -> list[I64]:
    return [records.sent_ns, records.scheduled_ns, records.first_ns, records.done_ns]


def single_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches of decode are run one step at a time."""

    def stretch(self: Replica, plans: list, until_ns: int) -> object:
        return self._step(plans, 0)

    if not isinstance(Replica._stretch, FunctionType):
        pytest.skip("the compiled core runs, whose classes are sealed")
    monkeypatch.setattr(Replica, "_stretch", stretch)


def check_stretches(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in seeds:
        case = random_case(seed)
        long = case.run()
        with monkeypatch.context() as patched:
            single_steps(patched)
            short = case.run()
        for one, other in zip(times(long), times(short), strict=True):
            assert (one == other).all(), seed
        assert (long.sequences.preemptions == short.sequences.preemptions).all(), seed
        for one, other in zip(long.gaps.table(), short.gaps.table(), strict=True):
            assert (one == other).all(), seed


def test_a_stretch_is_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    check_stretches(range(FEW), monkeypatch)


def test_an_end_in_one_group_lets_prompts_of_another_start(monkeypatch: pytest.MonkeyPatch) -> None:
    check_stretches(range(4104, 4105), monkeypatch)


@pytest.mark.full
def test_ten_thousand_stretches_are_their_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    check_stretches(range(FEW, FEW + MANY), monkeypatch)


def check_conserved(case: ServingCase) -> None:
    simulation = case.simulation()
    records = simulation.run()
    sequences, requests = records.sequences, case.requests
    assert (sequences.made == requests.output_tokens).all()
    assert (sequences.held == 0).all(), "every block is given back"
    for replica in simulation.replicas:
        for group in replica.groups:
            assert group.free == case.limits.blocks
            assert not any((group.waiting, group.running, group.filling, group.flying))
    sent, scheduled, first, done = times(records)
    assert (requests.arrival_ns <= sent).all()
    assert (sent + case.front_ns < scheduled).all()
    assert (scheduled + case.back_ns < first).all()
    assert (first <= done).all()
    several = requests.output_tokens > 1
    assert (first[several] < done[several]).all()
    _, counts = records.gaps.table()
    assert int(counts.sum()) == int((requests.output_tokens - 1).sum())
    gaps, _ = records.gaps.table()
    total = int((gaps * counts).sum())
    assert total == int((done - first).sum()), "the gaps of a request are its time after the first"


def test_requests_tokens_and_blocks_are_conserved() -> None:
    for seed in range(FEW):
        check_conserved(random_case(seed))


def test_steps_of_a_replica_do_not_overlap_and_hold_what_they_may() -> None:
    for seed in range(FEW):
        case = random_case(seed)
        records = case.run()
        table, log = records.log.table(), records.log.columns()
        assert (log["blocks_end"] <= case.limits.blocks * case.groups).all()
        assert (log["running"] <= case.limits.sequences * case.groups).all()
        tokens = log["decoding"] + log["prefill_tokens"]
        # prompts that are not cut may be longer than the budget
        alone = log["prompts"] <= case.groups
        assert (alone | (tokens <= case.limits.step_tokens * case.groups)).all()
        if case.prices.stages == 1:
            for number in range(case.replicas):
                rows = table[table[:, 0] == number]
                assert (rows[1:, 1] >= rows[:-1, 1]).all()


def test_the_same_seed_gives_the_same_times() -> None:
    for seed in range(20):
        one, other = random_case(seed).run(), random_case(seed).run()
        assert all((a == b).all() for a, b in zip(times(one), times(other), strict=True))


def test_clients_keep_their_number_in_flight() -> None:
    for seed in range(FEW):
        case = random_case(seed)
        limit = case.requests.concurrency
        if not limit:
            continue
        records = case.run()
        moments = np.concatenate((records.sent_ns, records.done_ns))
        change = np.concatenate((np.ones(len(records.sent_ns)), -np.ones(len(records.done_ns))))
        order = np.lexsort((change, moments))  # an answer frees its client first
        assert np.cumsum(change[order]).max() <= limit


def test_blocks_in_use_are_those_of_the_tokens() -> None:
    """One sequence of 1,000 tokens grows to 3,999 in blocks of 16, over stretches of any length."""
    case = ServingCase(
        Requests.from_arrays(np.zeros(1, dtype=np.int64), np.array([1000]), np.array([3000])),
        PlainPrices(cached_s=0.0), Limits(8, 8192, 1000),
    )  # fmt: skip
    result = kv_use(case.simulation().run(), [1000], [16])
    assert result["kv_utilisation_max"] == pytest.approx(250 / 1000)
    assert result["kv_utilisation"] == pytest.approx(0.5 * (63 + 250) / 1000, rel=0.01)


def test_what_has_ended_runs_no_more() -> None:
    """Little's law: of two sequences the short one is gone when the long one goes on."""
    case = ServingCase(
        Requests.from_arrays(np.zeros(2, dtype=np.int64), np.array([100, 100]), np.array([5,
        1000])),
        PlainPrices(), Limits(8, 8192, 1000),
    )  # fmt: skip
    records = case.simulation().run()
    inside = (records.done_ns - records.scheduled_ns).sum() * NANO / span_s(records)
    assert step_shares(records)["running_mean"] == pytest.approx(inside, rel=0.02)
