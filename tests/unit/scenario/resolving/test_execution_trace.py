"""Task ``graph`` of a Chakra trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from silicast.composition.timeline.trace_events import Slice
from silicast.core.errors import SilicastError
from silicast.distributed.traces.trace_export import chakra_of
from silicast.formats.chakra.check import defects_of
from silicast.formats.chakra.files import ChakraTrace, write_chakra
from silicast.formats.chakra.schema import Attribute, ChakraNode
from silicast.scenario.answer import Answer
from silicast.scenario.answerer import answerer_for
from silicast.scenario.answers.graph.answerer import pass_of
from silicast.scenario.decode import decode
from tests.unit.formats.chakra.traces import collective, compute, message, trace


def asked(made: ChakraTrace, folder: Path, **more: Any) -> dict[str, Any]:
    write_chakra(made, folder)
    work = {"graph": str(folder)}
    return {"task": "graph", "device": "h100", "workload": work, **more}


def answered(made: ChakraTrace, folder: Path, **more: Any) -> Answer:
    return answerer_for("graph").answer(decode(asked(made, folder, **more)))


def test_times_and_where_they_go(tmp_path: Path) -> None:
    ranks = [[compute(0), collective(1, 0, size=1 << 28), compute(2, 1)] for _ in range(4)]
    result = answered(trace(*ranks), tmp_path)
    belief = result.metrics["e2e_ms"]
    assert result.bound["e2e_ms"] <= belief.p05 <= belief.estimate <= belief.p95
    parts = {part["name"]: part["exposed_ms"] for part in result.why["parts"]}
    assert set(parts) == {"compute", "communication"}
    assert sum(parts.values()) == pytest.approx(belief.estimate, rel=1e-9)
    assert parts["compute"] > 2 * 1e12 / 989.4e12 * 1e3
    (call,) = [
        answerer_for("collective").answer(
            decode({"task": "collective", "device": "h100",
                    "workload": {"op": "all_reduce", "bytes": 1 << 28, "gpus": 4}})
        )
    ]  # fmt: skip
    assert parts["communication"] == pytest.approx(
        call.metrics["latency_us"].estimate / 1e3, rel=1e-6
    )


def test_gathers_count_each_rank_s_part(tmp_path: Path) -> None:
    """A gather's ``comm_size`` is of a rank: it takes as long as one of their sum."""
    result = answered(trace(*([[collective(0, kind=2, size=1 << 24)]] * 8)), tmp_path)
    call = answerer_for("collective").answer(
        decode({"task": "collective", "device": "h100",
                "workload": {"op": "all_gather", "bytes": 1 << 27, "gpus": 8}})
    )  # fmt: skip
    assert result.metrics["e2e_ms"].estimate == pytest.approx(
        call.metrics["latency_us"].estimate / 1e3, rel=1e-6
    )


def test_recorded_times_and_hosts_count(tmp_path: Path) -> None:
    host = ChakraNode(1, "host", 4, data_deps=(0,), duration_us=300,
                      attributes=(Attribute("is_cpu_op", "bool", True),))  # fmt: skip
    result = answered(trace([compute(0, operations=0, size=0, us=500), host]), tmp_path)
    assert result.metrics["e2e_ms"].estimate == pytest.approx(0.8)
    assert result.why["operations"] == {"counted": 0, "recorded": 2, "free": 0}


def test_groups_across_nodes_take_the_network(tmp_path: Path) -> None:
    """Ranks 0 and 8 are in two nodes, ranks 0 and 1 in one."""
    times = []
    for other in (1, 8):
        ranks = {rank: [collective(0, group="g", size=1 << 28)] for rank in (0, other)}
        lists = [ranks.get(rank, []) for rank in range(9)]
        made = trace(*lists, groups={"g": (0, other)})
        result = answered(made, tmp_path / str(other), cluster={"gpus_per_node": 8})
        times.append(result.metrics["e2e_ms"].estimate)
    assert times[1] > 2 * times[0]


def test_one_rank_of_many(tmp_path: Path) -> None:
    result = answered(trace([collective(0)]), tmp_path, cluster={"gpus": 16, "gpus_per_node": 8})
    assert "15 ranks have no file: they are taken to be there when others are" in result.warnings


def test_a_timeline_with_arrows(tmp_path: Path) -> None:
    made = trace([compute(0), message(1, 0, 1, 0, sends=True)], [message(0, 0, 1, sends=False)])
    drawn = answerer_for("graph").trace(decode(asked(made, tmp_path)))
    assert {each.track.process for each in drawn.slices} == {"rank 0", "rank 1"}
    (arrow,) = drawn.arrows
    assert isinstance(arrow.source, Slice)
    assert (arrow.source.name, arrow.target.name) == ("send 1", "receive 0")
    assert max(each.end_ps for each in drawn.slices) == drawn.total_ps


@pytest.mark.parametrize(
    ("made", "more", "said"),
    [
        (trace([compute(0, 1), compute(1, 0)]), {}, "cycle"),
        (trace([ChakraNode(0, "x", 1)]), {}, "nothing in the trace takes time"),
        (trace([compute(0)]), {"model": "Llama-3.1-8B"}, "leave one out"),
    ],
)
def test_what_cannot_be_answered_says_why(
    tmp_path: Path, made: ChakraTrace, more: dict[str, Any], said: str
) -> None:
    with pytest.raises(SilicastError, match=said):
        answered(made, tmp_path, **more)


def test_defects_that_do_not_matter_are_told(tmp_path: Path) -> None:
    result = answered(trace([compute(0, 99)]), tmp_path)
    assert "missing parent: rank 0 'compute 0' (node 0) waits for node 99, not there" in (
        result.warnings
    )


@pytest.mark.parametrize("tp", [1, 4])
def test_a_predicted_pass_is_written_and_read_again(tmp_path: Path, tp: int) -> None:
    scenario = decode({
        "task": "graph", "device": "h100", "model": "Llama-3.1-8B", "parallel": {"tp": tp},
        "workload": {"batch": 1, "seq_len": 2048},
    })  # fmt: skip
    predicted = pass_of(scenario).program
    made = chakra_of(predicted)
    assert len(made.ranks) == tp
    assert defects_of(made) == []
    calls = [node for node in made.ranks[0].nodes if node.type == 7]
    assert len(calls) == (0 if tp == 1 else sum(
        "all_reduce" in e.node.op.family or "all_gather" in e.node.op.family
        for e in predicted.model.graph.executions.sequence
    ))  # fmt: skip
    result = answered(made, tmp_path)
    assert result.metrics["e2e_ms"].estimate == pytest.approx(
        1e3 * predicted.total.seconds, rel=0.3
    )
