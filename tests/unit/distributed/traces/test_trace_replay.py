"""Chakra traces that run, wait and deadlock."""

from __future__ import annotations

import pytest

from silicast.core.errors import SilicastError
from silicast.distributed.traces.trace_replay import Replay, program_of, replayed
from silicast.formats.chakra.calls import TracedCall
from silicast.formats.chakra.files import ChakraTrace
from tests.unit.formats.chakra.traces import collective, compute, message, trace


def _replay(made: ChakraTrace, call_s: float = 1.0, **compute_s: float) -> Replay:
    """Operations take what is stated by rank ("r0"), else a second."""
    program = program_of(made)
    seconds = [
        call_s if isinstance(work, TracedCall) else compute_s.get(f"r{work.rank}", 1.0)
        for work in program.work
    ]
    return replayed(program, seconds)


def test_a_collective_waits_for_its_slowest_rank() -> None:
    replay = _replay(trace(*([[compute(0), collective(1, 0)]] * 3)), 2.0, r0=1.0, r1=5.0, r2=3.0)
    assert replay.total_s == 7.0
    assert replay.shares_s(0) == {
        "compute": 1.0, "host": 0.0, "communication": 2.0, "waiting": 4.0,
    }  # fmt: skip
    assert replay.last_rank == 0


def test_communication_runs_beside_computation() -> None:
    replay = _replay(trace(*([[compute(0), collective(1, 0), compute(2, 0)]] * 2)), 4.0)
    assert replay.total_s == 5.0
    assert replay.shares_s(1)["communication"] == 3.0


def test_groups_talk_at_the_same_time() -> None:
    groups = {"a": (0, 1), "b": (2, 3)}
    ranks = [[collective(0, group=name)] for name in "aabb"]
    assert _replay(trace(*ranks, groups=groups), 2.0).total_s == 2.0
    twice = [[collective(0, group=name), collective(1, group=name)] for name in "aabb"]
    assert _replay(trace(*twice, groups=groups), 2.0).total_s == 4.0


def test_a_pipeline_of_messages() -> None:
    """Each stage computes and sends on: three computations and two messages in a row."""
    made = trace(
        [compute(0), message(1, 0, 1, 0, sends=True)],
        [message(0, 0, 1, sends=False), compute(1, 0), message(2, 1, 2, 1, sends=True)],
        [message(0, 1, 2, sends=False), compute(1, 0)],
    )
    assert _replay(made, 0.5).total_s == 4.0


def test_a_deadlock_names_ranks_and_messages() -> None:
    made = trace(
        [message(0, 0, 1, sends=True), message(1, 1, 0, 0, sends=False)],
        [message(0, 1, 0, sends=True), message(1, 0, 1, 0, sends=False)],
    )
    with pytest.raises(SilicastError, match="deadlock of ranks 0, 1") as caught:
        _replay(made)
    for words in (
        "rank 0 'send 0' (node 0) waits for rank 1 'receive 1' (node 1)",
        "rank 1 'send 0' (node 0) waits for rank 0 'receive 1' (node 1)", "1048576 bytes",
    ):  # fmt: skip
        assert words in caught.value.message


def test_crossed_collectives_deadlock() -> None:
    groups = {"a": (0, 1), "b": (0, 1)}
    made = trace(
        [collective(0, group="a"), collective(1, 0, group="b")],
        [collective(0, group="b"), collective(1, 0, group="a")], groups=groups,
    )  # fmt: skip
    with pytest.raises(SilicastError, match="deadlock of ranks 0, 1: all_reduce"):
        _replay(made)


def test_a_message_to_itself_is_a_deadlock_or_runs() -> None:
    """Sent and received beside each other it runs; one after the other it cannot."""
    assert _replay(
        trace([message(0, 0, 0, sends=True), message(1, 0, 0, sends=False)])
    ).total_s == 1.0  # fmt: skip
    with pytest.raises(SilicastError, match="deadlock"):
        _replay(trace([message(0, 0, 0, sends=True), message(1, 0, 0, 0, sends=False)]))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (trace([compute(0, 1), compute(1, 0)]), "cycle: rank 0"),
        (trace([message(0, 0, 1, sends=True)], [compute(0)]), "rank 1 has no receive"),
        (trace([collective(0)], [collective(0, size=3)]), "mismatch"),
    ],
)
def test_a_trace_that_cannot_run_says_why(made: ChakraTrace, said: str) -> None:
    with pytest.raises(SilicastError, match=said):
        program_of(made)


def test_a_missing_parent_is_only_told() -> None:
    program = program_of(trace([compute(0, 77)]))
    assert [each.kind for each in program.defects] == ["missing parent"]
    assert replayed(program, [2.0]).total_s == 2.0


def test_one_rank_stands_for_a_world() -> None:
    program = program_of(trace([collective(0)]), world=16)
    (work,) = program.work
    assert isinstance(work, TracedCall)
    assert work.ranks == tuple(range(16))
