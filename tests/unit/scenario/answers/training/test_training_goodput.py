"""What slow devices and failures make of a training step."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.core.errors import SilicastError
from silicast.core.plain_data import read_scenario_file
from silicast.core.prediction import Quantity
from silicast.distributed.ranks.dispersion import Dispersion
from silicast.distributed.step.reliability import best_interval_s, experience
from silicast.scenario.answer import Answer, encode
from silicast.scenario.answerer import answerer_for
from silicast.scenario.answers.training.training_goodput import lost
from silicast.scenario.answers.training.training_runs import TrainingRun, prepared, run_of
from silicast.scenario.decode import Scenario, decode
from silicast.scenario.run import reply_to
from silicast.scenario.workloads import TrainingWorkload
from tests.sampling import examples

X4 = Path(__file__).parents[4] / "scenarios" / "x4.toml"
STEP = Quantity(1.0, 0.8, 1.3)
OWN = {"step_time_slowed_s", "goodput", "checkpoint_interval_s", "tokens_per_s_with_failures"}


def scenario(parallel: dict[str, Any], seed: int = 0, **cluster: Any) -> Scenario:
    return decode({
        "format": 1, "task": "training", "model": "Llama-3.2-1B", "device": "H100", "seed": seed,
        "parallel": parallel, "cluster": {"gpus": 8, **cluster},
        "workload": {"seq_len": 2048, "micro_batch": 1, "global_batch": 16},
    })  # fmt: skip


@cache
def run(pp: int) -> TrainingRun:
    return run_of(scenario({"tp": 2, "pp": pp}))


def answered(pp: int = 2, seed: int = 0, **cluster: Any) -> dict[str, Quantity]:
    return dict(lost(scenario({"tp": 2, "pp": pp}, seed, **cluster), run(pp), STEP).metrics)


def test_unlike_boards_are_those_published_or_as_stated() -> None:
    """16 devices of log sd 0.015 wait 2.7 % of their clocked time; of 0 none at all."""

    def waits(**cluster: Any) -> float:
        parts = run_of(scenario({"tp": 2, "pp": 2}, **cluster)).step.part.children
        return sum(part.exposed_ps for part in parts if part.name == "slowest_device")

    assert waits(gpu_log_sd=0.0) == 0.0 < waits(gpu_log_sd=0.01) < waits()
    assert waits() == waits(gpu_log_sd=0.015)


@pytest.mark.parametrize(
    ("changes", "published"),
    [
        ({"device": "H100"}, True),
        ({"device": "MI300X"}, True),
        ({"device": "H100", "limits": {"power_w": 500}}, True),
        ({"device": "H100", "limits": {"clock_mhz": 1000}}, False),
        ({"device": "H100", "limits": {"clock_mhz": 1900}}, False),  # above boost, below largest
        ({"device": "H100", "limits": {"clock_mhz": 5000}}, True),  # changes nothing
        ({"device": "TPU v5p"}, False),
        ({"device": "EPYC 9654"}, False),
    ],
)
def test_the_published_spread_is_of_clocks_that_power_governs(
    changes: dict[str, Any], published: bool
) -> None:
    """A stated spread counts on every device, the published one where its cause is."""

    def boards(**cluster: Any) -> Dispersion:
        tree = {
            "format": 1, "task": "training", "model": "Llama-3.2-1B", **changes,
            "parallel": {"dp": 8}, "cluster": {"gpus": 8, **cluster},
            "workload": {"seq_len": 2048, "micro_batch": 1, "global_batch": 16},
        }  # fmt: skip
        asked = decode(tree)
        assert isinstance(asked.workload, TrainingWorkload)
        return prepared(asked, asked.workload).rank.boards

    assert boards() == (experience().gpus if published else Dispersion(0.0))
    assert boards(gpu_log_sd=0.02) == Dispersion(0.02)


def test_x4_answers_every_metric_of_its_file() -> None:
    tree = read_scenario_file(X4)
    reply = reply_to(tree)
    assert isinstance(reply, Answer), reply
    assert set(reply.metrics) >= OWN | {"step_time_s", "mfu", "memory_gb"}
    step, slowed = reply.metrics["step_time_s"], reply.metrics["step_time_slowed_s"]
    assert step.estimate < slowed.estimate < 1.15 * step.estimate
    assert reply.metrics["checkpoint_interval_s"].estimate == 1800.0
    # without a failure 30 s of every 1830 are checkpoints
    assert 0.97 < reply.metrics["goodput"].estimate < 1800 / 1830
    result = reply.why["goodput"]
    assert result["goodput"]["p05"] < result["goodput"]["p50"] < result["goodput"]["p95"] <= 1.0
    assert result["step_time_slowed_s"]["p05"] < result["step_time_slowed_s"]["p95"]
    assert sum(result["shares_of_time"].values()) == pytest.approx(1.0)
    assert encode(reply_to(tree)) == encode(reply)
    other = reply_to(tree | {"seed": 2})
    assert isinstance(other, Answer)
    assert other.why["goodput"]["goodput"] != result["goodput"]


def test_nothing_is_said_where_nothing_is_stated() -> None:
    result = lost(scenario({"tp": 2}), run(1), STEP)
    assert not result.metrics
    assert not result.why


def test_the_best_interval_is_taken_where_none_is_stated() -> None:
    failing = {"mtbf_hours_per_gpu": 400.0, "checkpoint_s": 20.0, "restart_s": 300.0}
    best = answered(failures=failing)
    interval = best["checkpoint_interval_s"].estimate
    assert interval == best_interval_s(20.0, 400.0 * 3600 / 8)
    for factor in (0.5, 0.8, 1.25, 2.0):
        other = answered(failures=failing | {"checkpoint_interval_s": factor * interval})
        assert other["goodput"].estimate < best["goodput"].estimate


def test_checkpoints_without_a_time_have_no_best_interval() -> None:
    with pytest.raises(SilicastError, match="no best interval") as refused:
        answered(failures={"mtbf_hours_per_gpu": 400.0})
    assert refused.value.field == "cluster.failures.checkpoint_s"


@pytest.mark.parametrize("pp", [1, 2])
def test_all_devices_slow_is_as_slow_as_they_are(pp: int) -> None:
    none = answered(pp, slow_gpus={"fraction": 0.0, "slowdown": 2.0})["step_time_slowed_s"]
    assert none == STEP
    every = answered(pp, slow_gpus={"fraction": 1.0, "slowdown": 2.0})["step_time_slowed_s"]
    if pp == 1:
        assert every.estimate == pytest.approx(2.0)
    else:  # what is left of the transfers is as quick as before
        assert 1.9 < every.estimate < 2.0


def test_a_search_answers_them_too() -> None:
    reply = answerer_for("plan").answer(decode({
        "format": 1, "task": "plan", "model": "Llama-3.2-1B", "device": "H100",
        "cluster": {
            "gpus": 2, "failures": {"mtbf_hours_per_gpu": 5e4, "checkpoint_s": 5.0},
            "slow_gpus": {"fraction": 0.1, "slowdown": 1.2},
        },
        "workload": {
            "objective": "step_time", "training": {"seq_len": 2048, "global_batch": 8},
        },
    }))  # fmt: skip
    assert set(reply.metrics) >= OWN


@examples(40)
@given(
    st.floats(1.0, 1e7), st.floats(1.1, 50.0), st.floats(0.0, 600.0), st.floats(0.0, 3600.0),
    st.floats(60.0, 1e5), st.integers(0, 3),
)  # fmt: skip
def test_goodput_falls_with_failures(
    hours: float, fewer: float, write: float, restart: float, interval: float, seed: int
) -> None:
    def at(mtbf: float) -> dict[str, Quantity]:
        failing = {
            "mtbf_hours_per_gpu": mtbf, "checkpoint_s": write, "restart_s": restart,
            "checkpoint_interval_s": interval,
        }  # fmt: skip
        return answered(seed=seed, failures=failing)

    often, seldom = at(hours), at(hours * fewer)
    for items in (often, seldom):
        goodput = items["goodput"]
        assert 0.0 <= goodput.p05 <= goodput.estimate <= goodput.p95 <= 1.0
        assert goodput.estimate <= interval / (interval + write)
        rate = items["tokens_per_s_with_failures"]
        assert rate.p05 <= rate.estimate <= rate.p95
    assert often["goodput"].estimate <= seldom["goodput"].estimate
    never = at(1e12)["goodput"]
    assert never.estimate == pytest.approx(interval / (interval + write), rel=1e-5)


def test_without_failures_and_checkpoints_all_time_is_useful() -> None:
    free = {"mtbf_hours_per_gpu": 1e15, "checkpoint_s": 0.0, "checkpoint_interval_s": 3600.0}
    assert answered(failures=free)["goodput"].estimate == pytest.approx(1.0, abs=1e-9)


@examples(25)
@given(
    st.sampled_from([1, 2]), st.floats(0.0, 1.0), st.floats(1.0, 10.0), st.floats(1.0, 2.0),
)  # fmt: skip
def test_a_slower_device_makes_no_step_shorter(
    pp: int, fraction: float, slowdown: float, more: float
) -> None:
    def at(factor: float) -> Quantity:
        slow = {"fraction": fraction, "slowdown": factor}
        return answered(pp, slow_gpus=slow)["step_time_slowed_s"]

    result, slower = at(slowdown), at(slowdown * more)
    assert result.p05 <= result.estimate <= result.p95
    assert STEP.estimate * (1 - 1e-12) <= result.estimate <= slowdown * STEP.estimate * (1 + 1e-9)
    assert result.estimate <= slower.estimate * (1 + 1e-9)


def test_a_published_rate_is_taken_by_its_name_with_its_source() -> None:
    failing = {"checkpoint_s": 20.0}
    named = lost(
        scenario({"tp": 2, "pp": 2}, failures={"mtbf_hours_per_gpu": "rsc-1", **failing}),
        run(2),
        STEP,
    )
    stated = answered(failures={"mtbf_hours_per_gpu": 8000 * 24 / 6.5, **failing})
    assert dict(named.metrics) == stated
    assert "2410.21680" in named.why["goodput"]["mtbf_source"]
    with pytest.raises(SilicastError, match="unknown run 'x'") as refused:
        answered(failures={"mtbf_hours_per_gpu": "x", **failing})
    assert refused.value.field == "cluster.failures.mtbf_hours_per_gpu"


def test_a_run_goes_on_without_a_replica() -> None:
    failing = {"mtbf_hours_per_gpu": 80.0, "checkpoint_s": 20.0, "restart_s": 300.0}
    plain = answered(failures=failing)["goodput"].estimate
    at_once = answered(failures={**failing, "repair_s": 0.0})["goodput"].estimate
    away = answered(failures={**failing, "repair_s": 1800.0})["goodput"].estimate
    # 8 devices fail every 10 hours; one of two replicas is away for half an hour
    assert at_once == plain
    assert away == pytest.approx(plain * (1 - 0.05 / 2))
    with pytest.raises(SilicastError, match="no other replica"):
        lost(
            scenario({"tp": 8}, failures={**failing, "repair_s": 60.0}),
            run_of(scenario({"tp": 8})),
            STEP,
        )
