"""Each scheduling policy, by the laws of all and by what its engine is known for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.composition.engines.engine_options import POLICY_SWITCHES
from silicast.core.errors import SilicastError
from silicast.serving.kv.kv_pool import KvLayout
from silicast.serving.simulation.scheduler import (
    Limits,
    QueueGroup,
    Scheduler,
    SimulatedRequests,
    StepPlan,
    policies,
    scheduler_named,
    unread,
)
from silicast.serving.traffic.requests import Requests
from tests.property.serving_cases import PlainPrices, ServingCase
from tests.sampling import examples
from tests.unit.serving.scheduler_laws import Engine, check_scheduler

POLICIES = [name for name in policies() if not scheduler_named(name).one_pass]
"""What answers in one pass has laws of its own, in test_dynamic_batching.py."""


@pytest.mark.parametrize("policy", POLICIES)
@given(seed=st.integers(0, 1 << 30))
@examples(60)
def test_laws_of_schedulers(policy: str, seed: int) -> None:
    check_scheduler(policy, seed)


@pytest.mark.parametrize("policy", POLICIES)
@given(seed=st.integers(0, 1 << 30))
@examples(15)
def test_no_policy_knows_when_an_output_ends(policy: str, seed: int) -> None:
    """Until the first end, plans are the same whenever outputs will end."""
    early, late = Engine(policy, seed), Engine(policy, seed)
    late.goal = late.goal + 50
    until = _first_end(Engine(policy, seed))
    assert _plans(early, until) == _plans(late, until)


def _first_end(engine: Engine) -> int:
    """Steps until a sequence ends."""
    for step in range(1, 10_000):
        _plans(engine, 1)
        if engine.ended:
            return step
    raise AssertionError("nothing ends")


def _plans(engine: Engine, steps: int) -> list[object]:
    plans: list[object] = []
    for _ in range(steps):
        for _ in range(int(engine.rng.integers(0, 4))):
            if engine.left:
                engine.group.waiting.append(engine.left.pop(0))
        plan = engine.scheduler.schedule()
        plans.append((tuple(plan.prefill), tuple(plan.decode)))
        engine.apply(plan)
    return plans


def _scheduler(
    policy: str, prompts: list[int], limits: Limits, outputs: int = 100, block: int = 16
) -> Scheduler:
    prompt = np.array(prompts)
    sequences = SimulatedRequests(prompt, np.full(len(prompts), outputs))
    group = QueueGroup(sequences, KvLayout.plain(block), limits)
    group.waiting.extend(range(len(prompts)))
    return scheduler_named(policy)(group)


def test_vllm_v1_fills_its_budget_beside_decodes() -> None:
    scheduler = _scheduler("vllm-v1", [100, 100, 100], Limits(8, 150, 1000))
    plan = scheduler.schedule()
    assert plan.prefill == [(0, 100), (1, 50)]
    _run(scheduler, plan)
    plan = scheduler.schedule()
    assert (plan.decode, plan.prefill) == ([0], [(1, 50), (2, 99)])


def test_vllm_v1_lets_no_prompt_in_that_does_not_fit_as_a_whole() -> None:
    limits = Limits(8, 64, 8)  # 128 tokens
    assert _scheduler("vllm-v1", [200], limits).schedule().prefill == []
    limits = Limits(8, 64, 8, options={"reserve_full_isl": 0})
    assert _scheduler("vllm-v1", [200], limits).schedule().prefill == [(0, 64)]


def test_long_prompts_of_vllm_v1_share_a_step_below_the_threshold() -> None:
    limits = Limits(8, 1000, 1000, options={"long_prefill_token_threshold": 40})
    scheduler = _scheduler("vllm-v1", [100, 100], limits)
    assert scheduler.schedule().prefill == [(0, 40), (1, 40)]


def test_vllm_v0_runs_prompts_alone_and_whole() -> None:
    scheduler = _scheduler("vllm-v0", [100, 100, 100], Limits(8, 250, 1000))
    plan = scheduler.schedule()
    assert (plan.prefill, plan.decode) == ([(0, 100), (1, 100)], [])
    _run(scheduler, plan)
    assert scheduler.schedule().prefill == [(2, 100)]


def test_sarathi_decodes_first_and_takes_a_prompts_blocks_at_once() -> None:
    scheduler = _scheduler("sarathi", [100, 300], Limits(8, 128, 1000))
    plan = scheduler.schedule()
    assert plan.prefill == [(0, 100), (1, 28)]
    assert scheduler.group.sequences.held[1] == 19
    _run(scheduler, plan)
    plan = scheduler.schedule()
    assert (plan.decode, plan.prefill) == ([0], [(1, 127)])


def test_sglang_cuts_one_prompt_and_decodes_when_no_prompt_waits() -> None:
    scheduler = _scheduler("sglang", [100, 100], Limits(8, 128, 10_000), block=1)
    plan = scheduler.schedule()
    assert plan.prefill == [(0, 100), (1, 28)]
    _run(scheduler, plan)
    plan = scheduler.schedule()
    assert (plan.prefill, plan.decode) == ([(1, 72)], [])
    _run(scheduler, plan)
    assert scheduler.schedule().decode == [0, 1]


def test_sglang_reckons_with_a_share_of_what_may_come() -> None:
    """Of what one that runs may generate all is reckoned with where ends are ignored, else 70 %."""

    def joins(ignore_eos: float) -> bool:
        limits = Limits(8, 4096, 400, options={"ignore_eos": ignore_eos})
        scheduler = _scheduler("sglang", [10, 10], limits, outputs=200, block=1)
        second = scheduler.group.waiting.pop()
        _run(scheduler, scheduler.schedule())
        scheduler.group.waiting.append(second)
        return bool(scheduler.schedule().prefill)

    assert joins(0)
    assert not joins(1)


def test_sglang_retracts_who_generated_least_and_puts_it_last() -> None:
    limits = Limits(8, 4096, 300, options={"ignore_eos": 0, "schedule_conservativeness": 0.1})
    scheduler = _scheduler("sglang", [30, 40], limits, outputs=90, block=1)
    sequences, group = scheduler.group.sequences, scheduler.group
    sequences.prompt[1] = sequences.todo[1] = 40
    group.waiting.clear()
    group.waiting.append(0)
    _run(scheduler, scheduler.schedule())
    _run(scheduler, scheduler.schedule())
    group.waiting.append(1)
    limit = group.limits.blocks
    while not sequences.preemptions.any():
        plan = scheduler.schedule()
        _run(scheduler, plan)
        assert group.free >= 0, limit
        if sequences.made[0] > 200:
            break
    assert sequences.preemptions.tolist() == [0, 1]
    assert list(group.waiting) == [1]
    assert sequences.todo[1] == 40 + sequences.made[1]


def test_trtllm_guarantees_room_unless_told_to_use_it_up() -> None:
    def first(policy: str) -> int:
        limits = Limits(8, 8192, 20, options={"capacity_scheduler_policy": policy})
        return len(_scheduler("trtllm", [64] * 4, limits, outputs=64).schedule().prefill)

    assert first("GUARANTEED_NO_EVICT") == 2  # 8 blocks each
    assert first("MAX_UTILIZATION") == 4  # 4 blocks each, and one ahead


def test_trtllm_cuts_contexts_at_block_ends() -> None:
    limits = Limits(8, 100, 1000, options={"enable_chunked_prefill": 1})
    assert _scheduler("trtllm", [90, 90], limits, block=32).schedule().prefill == [(0, 90)]
    assert _scheduler("trtllm", [300], limits, block=32).schedule().prefill == [(0, 96)]


@pytest.mark.parametrize(("iterations", "held"), [(0, 0), (1, 0), (2, 1), (50, 49)])
def test_trtllm_holds_prompts_one_step_less_than_the_timeout(iterations: int, held: int) -> None:
    options = {"enable_balance": 1, "timeout_iters": iterations}
    scheduler = _scheduler("trtllm", [64], Limits(8, 8192, 100, options=options))
    lockstep = scheduler.together(2)
    assert (lockstep.steady([scheduler.group]) if lockstep is not None else 0) == held


def test_orca_takes_the_room_of_the_longest_output() -> None:
    scheduler = _scheduler("orca", [64] * 4, Limits(8, 8192, 20), outputs=64)
    assert len(scheduler.schedule().prefill) == 2
    assert scheduler.group.free == 20 - 16


def test_a_static_batch_ends_before_the_next_begins() -> None:
    scheduler = _scheduler("static", [10] * 4, Limits(2, 8192, 1000))
    _run(scheduler, scheduler.schedule())
    for _ in range(5):
        plan = scheduler.schedule()
        assert (plan.prefill, plan.decode) == ([], [0, 1])
        _run(scheduler, plan)


def test_lightllm_looks_at_its_queue_every_ten_steps() -> None:
    scheduler = _scheduler("lightllm", [10, 10], Limits(8, 8192, 1000), block=1)
    scheduler.group.waiting.pop()
    _run(scheduler, scheduler.schedule())
    scheduler.group.waiting.append(1)
    plans = []
    for _ in range(11):
        plan = scheduler.schedule()
        plans.append((plan.prefill, plan.decode, scheduler.steady(plan)))
        _run(scheduler, plan)
    assert plans[:10] == [([], [0], 9 - step) for step in range(10)]
    assert plans[10][0] == [(1, 10)]


def test_words_and_numbers_of_options_are_checked() -> None:
    with pytest.raises(SilicastError, match="expected fcfs or lpm, found 'random'"):
        _scheduler("sglang", [1], Limits(1, 16, 9, options={"schedule_policy": "random"}))
    with pytest.raises(SilicastError, match="expected a number, found 'yes'"):
        _scheduler("vllm-v1", [1], Limits(1, 16, 9, options={"reserve_full_isl": "yes"}))


def test_a_policy_reads_what_it_says_alone() -> None:
    scheduler = _scheduler("vllm-v1", [1], Limits(1, 16, 9))
    with pytest.raises(KeyError):
        scheduler.number("watermark")


def test_every_switch_is_read_by_some_policy() -> None:
    read = {option for name in policies() for option in scheduler_named(name).switches}
    assert read >= set(POLICY_SWITCHES)


def test_values_are_checked_also_where_a_policy_does_not_read_them() -> None:
    assert unread("vllm-v1", {"schedule_policy": "lpm", "reserve_full_isl": 0.0}) == [
        "schedule_policy"
    ]
    with pytest.raises(SilicastError, match="expected fcfs or lpm, found 'random'") as caught:
        unread("vllm-v1", {"schedule_policy": "random"})
    assert caught.value.field == "engine.options.schedule_policy"


def _run(scheduler: Scheduler, plan: StepPlan) -> None:
    """A step has been run; nothing ends."""
    sequences, group = scheduler.group.sequences, scheduler.group
    for request, new in plan.prefill:
        sequences.cached[request] += new
        if sequences.cached[request] == sequences.todo[request]:
            group.filling.remove(request)
            sequences.made[request] += 1
    for request in plan.decode:
        sequences.cached[request] += 1
        sequences.made[request] += 1


def waits_ms(policy: str, groups: int, **options: float) -> list[float]:
    """What a last request waits that comes while one decodes in each group, of ten moments."""
    waits_ms = []
    for moment in range(10):
        arrival = np.array([0] * groups + [40_000_000 + 5_000_000 * moment])
        case = ServingCase(
            Requests.from_arrays(arrival, np.full(groups + 1, 8), np.array([400] * groups + [4])),
            PlainPrices(token_s=0.0, cached_s=0.0, work_s=0.0, gap_s=0.0, asynchronous=False),
            Limits(8, 512, 200, options=options), policy=policy, groups=groups,
        )  # fmt: skip
        records = case.run()
        waits_ms.append(float(records.scheduled_ns[-1] - records.arrived_ns[-1]) * 1e-6)
    return waits_ms


@pytest.mark.parametrize(
    ("policy", "groups", "options"),
    [("sglang", 1, {"scheduler_recv_interval": 10}),
     ("trtllm", 2, {"enable_balance": 1, "timeout_iters": 11})],
)  # fmt: skip
def test_prompts_are_held_for_so_many_steps(
    policy: str, groups: int, options: dict[str, float]
) -> None:
    """Steps take 5 ms; looks at prompts are ten steps apart."""
    assert max(waits_ms(policy, groups)) <= 5.0
    waits = waits_ms(policy, groups, **options)
    assert 40.0 <= max(waits) <= 50.0
    assert min(waits) < 10.0


def test_one_group_waits_for_no_other() -> None:
    assert max(waits_ms("trtllm", 1, enable_balance=1, timeout_iters=11)) <= 5.0
