"""Timelines of training steps on several devices."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.composition.timeline.trace_events import PredictedTimeline
from silicast.report.drawing.trace import trace_document
from silicast.scenario.answerer import answerer_for
from silicast.scenario.answers.training.training_runs import run_of
from silicast.scenario.decode import decode
from tests.unit.report.trace_format import check_trace


def traced(global_batch: int = 16, **parallel: Any) -> tuple[PredictedTimeline, int]:
    """A timeline, and the step in picoseconds."""
    requested = decode({
        "format": 1, "task": "training", "model": "Llama-3.2-1B", "device": "H100",
        "parallel": parallel, "cluster": {"gpus": 8},
        "workload": {"seq_len": 2048, "micro_batch": 1, "global_batch": global_batch},
    })  # fmt: skip
    trace = answerer_for("training").trace(requested)
    check_trace(trace_document(trace))
    return trace, run_of(requested).step.part.exposed_ps


@pytest.mark.parametrize(
    ("parallel", "each"),
    [
        ({"tp": 2, "pp": 2}, ("forward 0", "backward 7")),
        ({"tp": 2, "pp": 2, "schedule": "zb_h1"}, ("input gradient 3", "weight gradient 3")),
        ({"pp": 4, "virtual_stages": 2}, ("forward 0 of chunk 1", "backward 7 of chunk 0")),
    ],
)
def test_ranks_of_a_pipeline_have_tracks_and_name_what_they_send(
    parallel: dict[str, Any], each: tuple[str, str]
) -> None:
    trace, step_ps = traced(**parallel)
    ranks, micro_batches = parallel["pp"], 8
    assert len({one.track for one in trace.slices}) == ranks
    assert trace.total_ps == step_ps
    for rank in range(ranks):
        names = [one.name for one in trace.slices if one.track.thread == f"rank {rank}"]
        assert set(each) <= set(names)
        assert names[-1] == "update"
    stages = ranks * parallel.get("virtual_stages", 1)
    assert len(trace.arrows) == 2 * micro_batches * (stages - 1)
    for arrow in trace.arrows:
        what, number = arrow.name.split()
        assert what == ("activations" if arrow.target.name.startswith("forward") else "gradients")
        assert arrow.source.args["micro_batch"] == arrow.target.args["micro_batch"] == int(number)
        assert arrow.source.track != arrow.target.track
        assert arrow.source.end_ps <= arrow.target.start_ps
    flows = [e for e in trace_document(trace)["traceEvents"] if e["ph"] == "s"]
    assert {event["cat"] for event in flows} == {"activations", "gradients"}


def test_a_stage_shows_kernels_and_collectives_of_the_first_and_last_micro_batches() -> None:
    trace, step_ps = traced(32, tp=2)
    assert trace.about["micro_batches_shown"] < trace.about["micro_batches"] == 8
    assert trace.total_ps < step_ps
    sums = [one for one in trace.slices if one.name == "gradients_reduce_scatter"]
    assert sums
    assert all(one.track.thread.startswith("communication (") for one in sums)
    last = max(one.start_ps for one in trace.slices if one.name == "embedding")
    assert min(one.start_ps for one in sums) > last  # beside the last one alone


@pytest.mark.parametrize("zero", [1, 3])
def test_a_step_of_few_micro_batches_is_there_whole(zero: int) -> None:
    trace, step_ps = traced(8 * 2, zero=zero)
    assert trace.total_ps == step_ps
    assert "micro_batches" not in trace.about


@pytest.mark.parametrize("parallel", [{"tp": 2}, {"pp": 4}])
def test_where_some_layers_run_again_the_timeline_is_that_of_the_step(
    parallel: dict[str, Any],
) -> None:
    requested = decode({
        "format": 1, "task": "training", "model": "Llama-3-8B", "device": "H100",
        "parallel": parallel, "cluster": {"gpus": 8},
        "workload": {"seq_len": 8192, "micro_batch": 2, "global_batch": 24},
    })  # fmt: skip
    result = run_of(requested)
    assert 0.0 < result.again_share < 1.0
    trace = answerer_for("training").trace(requested)
    check_trace(trace_document(trace))
    if "pp" in parallel:
        assert result.many is not None
        assert result.many.run is not None
        ends = max(one.end_ps for one in trace.slices)
        assert ends == trace.total_ps == result.step.part.exposed_ps
        assert result.many.run.makespan < trace.total_ps
    else:
        assert trace.about["share_of_layers_run_again"] == result.again_share
