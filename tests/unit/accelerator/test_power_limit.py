"""The power limit of a design makes its kernels slower; what their actions take stays."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import device_from
from silicast.learning.dispatch import time_of
from silicast.scenario.answer import Answer
from silicast.scenario.run import reply_to
from silicast.workload.graphs.op import Op, Variant

PRODUCT = Op.make("gemm", Variant("bf16"), m=64, n=64, k=64)
STREAM = Op.make("rmsnorm", Variant("bf16"), tokens=64, hidden=64)
ENERGY = {"read": 40.0, "fill": 40.0, "update": 40.0}
FREE = 1e6


def chip(power_w: float, idle_w: float = 0.5) -> dict[str, Any]:
    """A chip whose kernels draw some watts."""
    main = {"name": "main", "word_bits": 16, "energy_pj": ENERGY, "port": [{"words_per_cycle": 64}]}
    return {
        "name": "held", "level": [main, {"name": "array", "mesh": [8, 8]}],
        "compute": {"energy_pj": 10.0}, "vector": {"per_cycle": 64, "energy_pj": 10.0},
        "system": {"memory_gb": 64.0, "power_w": power_w, "idle_w": idle_w, "launch_us": 0.0},
    }  # fmt: skip


def answered(limit_w: float, **limits: float) -> Answer:
    answer = reply_to({
        "task": "inference", "model": {"base": "Llama-3.2-1B", "num_hidden_layers": 2},
        "device": chip(limit_w), "workload": {"batch": 1, "input_len": 16, "output_len": 2},
        "limits": limits,
    })  # fmt: skip
    assert isinstance(answer, Answer), answer
    return answer


@pytest.mark.parametrize("op", [PRODUCT, STREAM], ids=lambda op: op.family)
def test_actions_take_what_they_take_in_a_longer_time(op: Op) -> None:
    free = time_of(op, device_from(chip(FREE)))
    assert free.energy_j is not None
    actions_j = free.energy_j.estimate - 0.5 * free.estimate_s
    for share in (0.5, 0.1):
        limit_w = 0.5 + share * actions_j / free.estimate_s
        held = time_of(op, device_from(chip(limit_w)))
        assert held.estimate_s == pytest.approx(free.estimate_s / share)
        assert held.energy_j is not None
        assert held.energy_j.estimate == pytest.approx(limit_w * held.estimate_s)
        assert held.energy_j.estimate - 0.5 * held.estimate_s == pytest.approx(actions_j)
        assert held.bound_s == free.bound_s
        assert held.bound_by == "power" != free.bound_by


def test_a_whole_model_keeps_its_energy_and_its_limit() -> None:
    free = answered(FREE)
    half_w = 0.5 * free.metrics["power_w"].estimate
    held, requested = answered(half_w), answered(FREE, power_w=half_w)
    assert held.metrics == requested.metrics
    for items, limit_w in ((free, FREE), (held, half_w)):
        energy, power, time = (items.metrics[name] for name in ("energy_j", "power_w", "total_ms"))
        assert energy.estimate == pytest.approx(power.estimate * time.estimate * 1e-3)
        assert 0.0 < energy.p05 < energy.estimate < energy.p95
        assert 0.5 <= power.p05 < power.estimate <= power.p95 <= limit_w
        assert any("power limit" in text for text in items.warnings)
    grown_j = 0.5e-3 * (held.metrics["total_ms"].estimate - free.metrics["total_ms"].estimate)
    current = [items.metrics["energy_j"].estimate for items in (free, held)]
    assert current[1] - current[0] == pytest.approx(grown_j, rel=1e-6)


def test_a_lower_limit_is_never_quicker() -> None:
    times = [time_of(PRODUCT, device_from(chip(w))).estimate_s for w in (FREE, 5.0, 1.0, 0.6)]
    assert all(more >= less for less, more in itertools.pairwise(times))
    assert times[-1] > times[0]


def test_a_limit_below_what_it_takes_without_work_is_refused() -> None:
    with pytest.raises(SilicastError, match=r"more than the 0.5 W .* found 0.4 W"):
        device_from(chip(0.4), file="chip.toml")
    reply = reply_to({
        "task": "kernel", "device": chip(FREE), "limits": {"power_w": 0.4},
        "kernel": {"op": "gemm", "m": 64, "n": 64, "k": 64},
    })  # fmt: skip
    assert not isinstance(reply, Answer)
    assert reply.error.field == "limits.power_w"


@pytest.mark.full
def test_served_joules_may_be_more_than_the_limit_times_the_predicted_time() -> None:
    reply = reply_to({
        "task": "serving", "model": {"base": "Llama-3.2-1B", "num_hidden_layers": 1},
        "device": chip(5.0),
        "workload": {
            "arrival": {"kind": "closed", "concurrency": 1}, "requests": 2, "input_len": 16,
            "output_len": 2,
        },
    })  # fmt: skip
    assert isinstance(reply, Answer), reply
    energy, power = (reply.metrics[name] for name in ("energy_per_request_j", "power_w"))
    assert power.estimate <= power.p95 <= 5.0
    assert energy.p95 > 2.0 * energy.estimate
