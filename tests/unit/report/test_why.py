"""The why tree as text."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console, RenderableType

from silicast.core.prediction import Part
from silicast.report.why import find_part, time_by_cause, verdict, why_table
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
    for words in ("3.90 ms", "39 %", "32", "77 %", "memory bandwidth"):
        assert words in gate_up
    assert "hidden" in next(line for line in lines if "norm" in line)


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
