"""Defects of Chakra traces, by rank and node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.formats.chakra.check import cycle_of, defects_of, summarised
from silicast.formats.chakra.files import ChakraTrace
from silicast.formats.chakra.schema import ChakraNode, RankTrace
from tests.unit.formats.chakra.traces import collective, compute, message, trace


def test_a_sound_trace_has_none() -> None:
    ranks = [
        [compute(0), collective(1, 0), message(2, 0, 1, 1, sends=rank == 0)] for rank in (0, 1)
    ]
    assert defects_of(trace(*ranks)) == []


@pytest.mark.parametrize(
    ("made", "kind", "words"),
    [
        (trace([compute(0, 1), compute(1, 0)]), "cycle", ["rank 0", "compute 0", "compute 1"]),
        (trace([compute(3, 9)]), "missing parent", ["'compute 3' (node 3)", "node 9"]),
        (trace([compute(0), compute(0)]), "id given twice", ["rank 0", "2 nodes 0"]),
        (trace([ChakraNode(4, "x", 12)]), "unknown type", ["(node 4)", "type 12"]),
        (
            trace([message(0, 0, 1, sends=True)], []),
            "unmatched", ["rank 0 'send 0'", "rank 1 has no receive"],
        ),
        (
            trace([], [message(0, 0, 1, sends=False)]),
            "unmatched", ["rank 1 'receive 0'", "rank 0 has no send"],
        ),
        (
            trace([message(0, 0, 1, sends=True)], [message(0, 0, 1, sends=False, size=7)]),
            "mismatch", ["sends 1048576 bytes", "takes 7"],
        ),
        (
            trace([collective(0)], [collective(0, kind=2)]),
            "mismatch", ["comm_type 0", "rank 1", "2"],
        ),
        (trace([collective(0)], [compute(0)]), "unmatched", ["waits for rank 1"]),
        (
            trace([collective(0, group="g")], [collective(0, group="g")], groups={"g": (0, 2)}),
            "outside its group", ["rank 1", "ranks 0, 2"],
        ),
        (trace([collective(0, size=-1)]), "no size", ["rank 0", "comm_size"]),
        (
            ChakraTrace("x", {0: RankTrace((compute(0),), skipped=3)}),
            "unknown fields", ["rank 0 has 3"],
        ),
    ],
)  # fmt: skip
def test_each_defect_is_named(made: ChakraTrace, kind: str, words: list[str]) -> None:
    (items, *_) = [each for each in defects_of(made) if each.kind == kind]
    assert all(word in items.text for word in words), items.text


def test_ranks_without_a_file_are_not_missed() -> None:
    made = trace([collective(0, group="g"), message(1, 0, 3, sends=True)], groups={"g": (0, 1)})
    assert defects_of(made) == []


def test_many_defects_are_summed_up() -> None:
    made = trace([compute(n, 1000 + n) for n in range(20)])
    remark = summarised(defects_of(made), 2)
    assert len(remark) == 3
    assert remark[-1] == "missing parent: and 18 more"


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=25))
def test_a_cycle_is_found_where_there_is_one(edges: list[tuple[int, int]]) -> None:
    """Against repeated removal of nodes that wait for nothing."""
    waits = {n: {b for a, b in edges if a == n} for n in range(10)}
    rank_trace = RankTrace(tuple(compute(n, *sorted(waits[n])) for n in range(10)))
    left = set(waits)
    while free := {n for n in left if not waits[n] & left}:
        left -= free
    items = [node.id for node in cycle_of(rank_trace)]
    assert bool(items) == bool(left)
    for number, following in zip(items, items[1:] + items[:1], strict=True):
        assert following in waits[number]
