"""The why tree as text."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console, RenderableType

from silicast.core.prediction import Part
from silicast.report.reasons.why import (
    find_part,
    time_by_cause,
    verdict,
    waits,
    waits_table,
    why_table,
)
from silicast.scenario.answer import why_tree

TREE = why_tree(
    Part.group(
        "total",
        (
            Part("prefill", 6_000_000_000, bound_ps=4_000_000_000, bound_by="tensor"),
            Part.group(
                "decode",
                (
                    Part(
                        "gate_up", 3_900_000_000, bound_ps=3_000_000_000, bound_by="dram", count=32
                    ),
                    Part("sampling", 100_000_000, bound_ps=1_000_000, bound_by="xu"),
                    Part("norm", 0, hidden_ps=5_000_000, bound_by="dram"),
                ),
            ),
        ),
    )
)


def text(renderable: RenderableType) -> str:
    """A rendered table as plain text."""
    console = Console(file=io.StringIO(), width=100, no_color=True)
    console.print(renderable)
    file: Any = console.file
    return str(file.getvalue())


def test_shares_by_cause_add_up_to_one() -> None:
    shares = time_by_cause(TREE)
    assert shares[0] == ("tensor", 0.6)
    assert abs(sum(share for _, share in shares) - 1.0) < 1e-12


def test_the_tree_shows_time_bound_and_distance() -> None:
    lines = text(why_table(TREE)).splitlines()
    gate_up = next(line for line in lines if "gate_up" in line)
    for words in ("3.90 ms", "39 %", "32", "77 %", "memory"):
        assert words in gate_up
    assert "5.00 µs" in next(line for line in lines if "norm" in line)


def test_small_parts_are_summed_up_and_none_is_lost() -> None:
    shown = text(why_table(TREE, least=0.05))
    assert "2 smaller parts" in shown
    assert "sampling" not in shown


def test_depth_limits_the_tree() -> None:
    assert "gate_up" not in text(why_table(TREE, depth=1))


def test_verdict_names_the_largest_share_first() -> None:
    decode = find_part(TREE, "decode")
    assert decode is not None
    assert verdict(decode).startswith("decode is bound by memory bandwidth (98 %)")
    assert find_part(TREE, "no such part") is None


FULL = why_tree(
    Part.group(
        "e2e",
        (
            Part.group(
                "layer",
                (
                    Part(
                        "qkv",
                        8_000_000_000,
                        bound_ps=6_000_000_000,
                        bound_by="dram",
                        children=(
                            Part("dram", 6_000_000_000, kind="pipe", work=2e10),
                            Part("inefficiency", 1_000_000_000, kind="pipe"),
                            Part("launch", 1_000_000_000, kind="pipe"),
                            Part("tensor", 0, 2_000_000_000, kind="pipe"),
                        ),
                    ),
                ),
                count=4,
            ),
            Part("host", 2_000_000_000, bound_by="host", kind="host"),
        ),
    )
)


def test_what_a_tree_waits_for_adds_up_and_counts_pipes_not_kernels() -> None:
    table = dict(waits(FULL))
    assert table == {"dram": 0.6, "host": 0.2, "inefficiency": 0.1, "launch": 0.1}
    assert dict(time_by_cause(FULL)) == {"dram": 0.8, "host": 0.2}


def test_pipes_have_lines_only_where_they_are_asked_for() -> None:
    short, full = text(why_table(FULL)), text(why_table(FULL, depth=2, pipes=True))
    assert "inefficiency" not in short
    for words in ("inefficiency", "20.0 GB", "2.00 ms"):
        assert words in full


def test_an_only_part_that_is_all_of_its_parent_is_not_said_again() -> None:
    lines = text(why_table(FULL)).splitlines()
    assert any("layer" in line for line in lines)
    assert not any("qkv" in line for line in lines)


def test_the_table_of_waits_leaves_out_what_nothing_waits_for() -> None:
    table = waits_table(FULL)
    assert table is not None
    shown = text(table)
    assert "memory" in shown
    assert "links" not in shown
    assert waits_table(TREE) is None


def test_a_kernel_that_many_steps_run_is_as_short_as_in_one() -> None:
    """3.2 us, 32 times in each of 100 steps, far from its bound: latency, not bandwidth."""
    norm = Part("norm", 10_240_000_000, bound_ps=100_000_000, bound_by="l2", count=32)
    step = Part.group("decode", (Part.group("layer", (norm,), count=32),), count=100)
    assert time_by_cause(why_tree(step)) == [("latency", 1.0)]
    long = Part("norm", 1_024_000_000_000, bound_ps=100_000_000, bound_by="l2", count=32)
    step = Part.group("decode", (Part.group("layer", (long,), count=32),), count=100)
    assert time_by_cause(why_tree(step)) == [("l2", 1.0)]


def test_collectives_and_short_kernels_have_latencies_of_their_own() -> None:
    short = {"name": "norm", "exposed_ms": 0.01, "share": 0.1, "of_bound": 0.01, "bound_by": "l2"}
    sent = {"name": "all_reduce", "exposed_ms": 0.06, "share": 0.6, "of_bound": 0.05}
    tree = {
        "name": "decode", "exposed_ms": 0.1, "share": 1.0, "parts": [
            short, {**sent, "bound_by": "latency"},
            {"name": "pipeline_bubble", "exposed_ms": 0.03, "share": 0.3, "bound_by": "pipeline"},
        ],
    }  # fmt: skip
    assert verdict(tree) == (
        "decode is bound by latency of collectives (60 %), then the pipeline's bubble (30 %), "
        "short kernels' latency (10 %)"
    )
