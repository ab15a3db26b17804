"""Pruned sweeps answer fewer points and keep the best one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from silicast.core.errors import SilicastError
from silicast.exploration.scenario_space import read_scenario_space
from silicast.runner import pruning
from silicast.runner.points import PointCase
from silicast.runner.pruning import point_bound, pruned
from silicast.runner.results import stored_rows
from silicast.runner.store import AnswerStore
from silicast.runner.sweep import Sweep
from silicast.scenario.set_fields import with_fields

pytest.importorskip("pyarrow")

SPACE = """
[scenario]
task = "serving"
model = "Llama-3.2-1B"
[scenario.workload]
arrival = { kind = "closed", concurrency = 2 }
input_len = 64
output_len = 6
requests = 8
[[axis]]
field = "device"
values = ["h200", "l4", "a10", "no such device"]
[[axis]]
field = "workload.arrival.concurrency"
values = [1, 4]
"""


@pytest.fixture
def swept(tmp_path: Path) -> Sweep:
    path = tmp_path / "space.toml"
    path.write_text(SPACE, encoding="utf-8")
    return Sweep(read_scenario_space(path), tmp_path)


@pytest.mark.parametrize(
    ("metric", "best"), [("tpot_p50_ms", min), ("output_tokens_per_s_per_gpu", max)]
)
def test_the_best_of_all_points_is_kept(
    swept: Sweep, tmp_path: Path, metric: str, best: type
) -> None:
    everything = AnswerStore.begun(tmp_path / "all")
    swept.run(everything)
    rows = [row for row in stored_rows(everything).rows if row["ok"]]
    for row in rows:  # no answer is better than what was known before it
        fields = {name: row[name] for name in ("device", "workload.arrival.concurrency")}
        tree = with_fields(swept.space.base, fields)
        for name in ("ttft_p50_ms", "tpot_p50_ms", "e2e_p99_ms"):
            bound = point_bound(tree, tmp_path, name)
            assert bound is not None
            assert 0.0 < bound <= row[f"{name}_p05"] <= row[name]
        most = point_bound(tree, tmp_path, "output_tokens_per_s")
        assert most is not None
        assert most >= row["output_tokens_per_s"]
    store = AnswerStore.begun(tmp_path / "store")
    answered: list[PointCase] = []

    def answer(cases: Iterator[PointCase]) -> None:
        some = list(cases)
        answered.extend(some)
        swept.run(store, cases=iter(some))

    run = pruned(swept, store, metric, answer)
    assert run.values[0] == best(row[metric] for row in rows)
    assert run.points[0].fields["device"] == "h200"
    assert len(answered) + run.pruned == 8
    assert run.pruned >= 2
    assert run.unbounded == 2  # no such device: its answers say so
    assert run.values[-1] is None


def test_tasks_without_a_cheap_bound_and_metrics_that_nothing_has(
    swept: Sweep, tmp_path: Path
) -> None:
    kernel = {"task": "kernel", "device": "h100", "kernel": {"op": "gemm", "m": 1, "n": 8, "k": 8}}
    assert point_bound(kernel, tmp_path, "latency_us") is None
    colocated = with_fields(
        swept.space.base,
        {
            "device": "h100",
            "pools": {"a": {"count": 1}, "b": {"count": 1}},
            "colocation": {"mode": "time_slice"},
        },
    )
    assert point_bound(colocated, tmp_path, "tpot_p50_ms") is None
    store = AnswerStore.begun(tmp_path / "store")
    with pytest.raises(SilicastError, match="no point that fits has prefill_ms"):
        pruned(swept, store, "prefill_ms", lambda cases: swept.run(store, cases=cases))


@pytest.mark.parametrize("metric", ["tpot_p50_s", "tpot_p50_m_p95", "ttft", "tokens_x_us"])
def test_an_unknown_metric_is_refused_before_anything_is_answered(
    swept: Sweep, tmp_path: Path, metric: str
) -> None:
    def answer(cases: Iterator[PointCase]) -> None:
        raise AssertionError("answered")

    store = AnswerStore.begun(tmp_path / "store")
    with pytest.raises(SilicastError, match=f"unknown metric '{metric}'") as caught:
        pruned(swept, store, metric, answer)
    assert caught.value.field == "--prune"
    assert "tpot_p50_ms" in caught.value.hint or not metric.startswith("tpot")
    for known in ("tpot_p50_ms_p95", "chat.requests_per_s", "tokens_64_us"):
        pruning._check_name(known)
