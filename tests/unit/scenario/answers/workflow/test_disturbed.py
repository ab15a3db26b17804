"""Slow devices and failures of workflows against closed forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from silicast.scenario.answer import Answer
from silicast.scenario.answers.workflow.pools import Disturbances
from silicast.scenario.run import reply_to
from silicast.scenario.schema import FailureTable, SlowTable

POOL = {"device": "H100", "count": 8, "model": "Llama-3.2-1B", "engine": "vllm"}
ASK = {"work": "generate", "pool": "chat", "batch": 8, "input_len": 128, "output_len": 16}


@pytest.mark.parametrize(("saved", "writes"), [(None, 0.0), (100.0, 5.0)])
def test_jobs_with_failures_take_dalys_mean(saved: float | None, writes: float) -> None:
    """8 devices of 1 hour between failures each: m = 450 s; jobs of 600 s, a restart of 20 s."""
    failing = FailureTable(
        mtbf_hours_per_gpu=1.0, restart_s=20.0, checkpoint_interval_s=saved, checkpoint_s=writes
    )
    seconds = np.full(60_000, 600.0)
    took = Disturbances(None, failing, 0).with_failures(seconds, 8, np.random.default_rng(1))
    piece = 600.0 if saved is None else saved + writes
    mean = 600.0 / (saved or 600.0) * (math.exp(piece / 450.0) - 1.0) * (450.0 + 20.0)
    assert took.mean() == pytest.approx(mean, rel=0.01)
    assert took.min() == pytest.approx(600.0 + (6 * writes if saved else 0.0))


def test_a_replica_is_slow_where_any_of_its_devices_is() -> None:
    disturbances = Disturbances(SlowTable(0.1, 1.5), None, 3)
    paces = np.array(disturbances.paces(0, 40_000, 4))
    assert set(paces) == {1.0, 1.5}
    assert (paces > 1.0).mean() == pytest.approx(1.0 - 0.9**4, abs=0.01)
    assert disturbances.paces(0, 5, 4) == disturbances.paces(0, 5, 4)


def asked(cluster: dict[str, Any] | None) -> Answer:
    tree = {"task": "workflow", "seed": 5, "pools": {"chat": POOL}}
    tree["workload"] = {"requests": 3, "stages": {"ask": ASK}}
    reply = reply_to(tree if cluster is None else tree | {"cluster": cluster})
    assert isinstance(reply, Answer), reply
    return reply


def test_slow_replicas_hold_up_the_items_that_wait_for_all() -> None:
    """All slow: 1.5 times the steps. Some slow: an item waits for its last copy, so as long."""
    plain = asked(None)
    some = asked({"slow_gpus": {"fraction": 0.5, "slowdown": 1.5}})
    whole = asked({"slow_gpus": {"fraction": 1.0, "slowdown": 1.5}})
    one, two, three = (each.metrics["e2e_mean_ms"].estimate for each in (plain, some, whole))
    assert 1.2 * one < two <= three <= 1.5 * one
    assert any("8 of 8 are slow" in text for text in whole.warnings)


def test_jobs_of_a_cluster_fail_too() -> None:
    failures = {"mtbf_hours_per_gpu": 0.5, "restart_s": 0.0}
    stages = {"build": {"work": "job", "duration_ms": 1_800_000}}
    work = {"requests": 1000, "stages": stages}
    work |= {"arrival": {"kind": "closed", "concurrency": 1000}}
    pools = {"all": {"device": "A100", "count": 1000, "model": "Llama-3.2-1B"}}
    tree = {"task": "workflow", "pools": pools, "workload": work, "cluster": {"failures": failures}}
    reply = reply_to(tree)
    assert isinstance(reply, Answer), reply
    mean = reply.metrics["e2e_mean_ms"].estimate
    assert mean == pytest.approx(1.8e6 * (math.e - 1.0), rel=0.06)
