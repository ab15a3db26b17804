"""Why two answers differ: changes sum exactly, causes mirror, shared errors cancel."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from silicast.core.errors import SilicastError
from silicast.core.prediction import Part
from silicast.report.reasons.causes import Side, kernel_causes
from silicast.report.reasons.difference import difference
from silicast.report.reasons.difference_text import (
    difference_markdown,
    difference_report,
    difference_tables,
    waterfall,
)
from silicast.scenario.answer import why_tree

MS = 1_000_000_000


def kernel(
    name: str,
    *,
    dram: int,
    rest: int,
    launch: int = 0,
    tensor: int = 0,
    count: int = 1,
    work: float = 1.0,
) -> Part:
    """A kernel limited by memory."""
    pipes = (
        Part("dram", dram, kind="pipe", work=work),
        Part("inefficiency", rest, kind="pipe"),
        Part("launch", launch, kind="pipe"),
        Part("tensor", 0, tensor, kind="pipe", work=1.0),
    )
    return Part(name, dram + rest + launch, children=pipes, count=count, bound_ps=dram)


def answer(*blocks: Part, device: str = "H100", host: int = 0) -> dict[str, Any]:
    """An answer with a tree of one phase."""
    children = (*blocks, Part("host", host, kind="host", bound_by="host"))
    tree = Part.group("total", (Part.group("decode", children, count=10),))
    total = tree.exposed_ps / MS
    return {
        "ok": True,
        "metrics": {"total_ms": {"estimate": total, "p05": total, "p95": total}},
        "why": {
            **why_tree(tree),
            "uncertainty": {
                "total_ms": {
                    "factors": [
                        {"name": "device", "log_sd": 0.1},
                        {"name": "shapes:gemm", "log_sd": 0.02},
                    ]
                }
            },
            "deployment": {"device": device, "engine": "vllm", "model": "m"},
        },
    }


def block(*kernels: Part) -> Part:
    return Part.group("layer", kernels, count=kernels[0].count)


PICOSECONDS = st.integers(0, 10**10)
SIDES = st.builds(
    lambda bound, rest, serial, clock, hidden, work, runs: Side(
        time=bound + rest + serial + clock,
        runs=float(runs),
        needs={"dram": float(bound), "tensor": float(min(hidden, bound))},
        work={"dram": work, "tensor": 1.0},
        bound=float(bound),
        serial=float(serial),
        clock=float(clock),
    ),
    PICOSECONDS, PICOSECONDS, PICOSECONDS, PICOSECONDS, PICOSECONDS,
    st.floats(0.0, 1e12), st.integers(1, 5000),
)  # fmt: skip


@given(SIDES, SIDES)
def test_causes_sum_to_the_change_and_mirror(a: Side, b: Side) -> None:
    there, back = kernel_causes(a, b), kernel_causes(b, a)
    assert sum(there.values()) == b.time - a.time
    assert sum(back.values()) == a.time - b.time
    if a.limit == b.limit:
        for name in {**there, **back}:
            assert abs(there.get(name, 0) + back.get(name, 0)) <= 16 + 1e-9 * (a.time + b.time)


def test_twice_the_bandwidth_is_the_devices_doing() -> None:
    a = answer(block(kernel("qkv", dram=8 * MS, rest=2 * MS)))
    b = answer(block(kernel("qkv", dram=4 * MS, rest=1 * MS)), device="H300")
    result = difference(a, b)
    assert result.causes() == {"rate": -5 * MS}


def test_twice_the_bytes_are_work() -> None:
    a = answer(block(kernel("qkv", dram=4 * MS, rest=1 * MS)))
    b = answer(block(kernel("qkv", dram=8 * MS, rest=2 * MS, work=2.0)))
    assert difference(a, b).causes() == {"work": 5 * MS}


def test_twice_the_layers_are_runs() -> None:
    a = answer(block(kernel("qkv", dram=4 * MS, rest=1 * MS, launch=MS, count=4)))
    b = answer(block(kernel("qkv", dram=8 * MS, rest=2 * MS, launch=2 * MS, count=8, work=2.0)))
    assert difference(a, b).causes() == {"runs": 6 * MS}


def test_half_the_runs_of_twice_the_work_are_no_change() -> None:
    """Twice the data ranks and half the tensor ranks: fewer micro-batches, each with more work."""
    a = answer(block(kernel("qkv", dram=8 * MS, rest=0, count=8, work=2.0)))
    b = answer(block(kernel("qkv", dram=8 * MS, rest=0, count=4, work=2.0)))
    assert difference(a, b).causes() == {}
    c = answer(block(kernel("qkv", dram=9 * MS, rest=0, count=4, work=2.25)))
    assert difference(a, c).causes() == {"work": MS}  # that of one run grew by more


def test_collectives_that_run_less_often_are_links_and_a_bubble_is_the_pipelines() -> None:
    def sent(time: int, count: int) -> Part:
        pipes = (
            Part("link", time, kind="pipe", work=1.0), Part("latency", 0, kind="pipe", work=1.0),
        )  # fmt: skip
        return Part("all_gather", time, children=pipes, count=count, bound_ps=time)

    first = (block(sent(8 * MS, 8)), Part("pipeline_bubble", MS, bound_by="pipeline"))
    second = (block(sent(5 * MS, 4)), Part("pipeline_bubble", 3 * MS, bound_by="pipeline"))
    causes = difference(answer(*first), answer(*second)).causes()
    assert causes == {"communication": -3 * MS, "pipeline": 2 * MS}


def test_the_same_work_done_worse_is_efficiency_and_a_short_kernel_has_latency() -> None:
    a = answer(block(kernel("qkv", dram=4 * MS, rest=1 * MS), kernel("norm", dram=10, rest=MS)))
    b = answer(block(kernel("qkv", dram=4 * MS, rest=2 * MS), kernel("norm", dram=10, rest=2 * MS)))
    assert difference(a, b).causes() == {"efficiency": MS, "latency": MS}


def test_parts_of_one_side_and_the_host_are_named() -> None:
    a = answer(block(kernel("qkv", dram=MS, rest=0), kernel("old", dram=MS, rest=0)), host=MS)
    b = answer(block(kernel("qkv", dram=MS, rest=0), kernel("new", dram=MS, rest=0)), host=3 * MS)
    result = difference(a, b)
    assert result.causes() == {"host": 2 * MS, "only_in_a": -MS, "only_in_b": MS}
    assert sum(part.change for part in result.parts) == result.change == 2 * MS


def test_an_answer_does_not_differ_from_itself() -> None:
    a = answer(block(kernel("qkv", dram=8 * MS, rest=2 * MS)), host=MS)
    result = difference(a, a)
    assert (result.change, result.causes()) == (0, {})
    ratio = result.metrics["total_ms"]
    assert (ratio.ratio, ratio.p05, ratio.p95, ratio.is_certain) == (1.0, 1.0, 1.0, False)


def test_errors_of_one_device_cancel_and_those_of_two_do_not() -> None:
    a = answer(block(kernel("qkv", dram=8 * MS, rest=2 * MS)))
    b = answer(block(kernel("qkv", dram=7 * MS, rest=2 * MS)))
    here, there = difference(a, b).metrics["total_ms"], _compare_devices(a)
    assert here.p95 is not None
    assert there.p95 is not None
    assert math.log(here.p95 / here.ratio) == pytest.approx(1.6449 * 0.02 * math.sqrt(2), rel=1e-3)
    assert here.is_certain
    assert math.log(there.p95 / there.ratio) == pytest.approx(
        1.6449 * math.hypot(0.1, 0.02) * math.sqrt(2), rel=1e-3
    )
    assert not there.is_certain


def _compare_devices(a: dict[str, Any]) -> Any:
    b = answer(block(kernel("qkv", dram=7 * MS, rest=2 * MS)), device="H300")
    return difference(a, b).metrics["total_ms"]


def test_answers_without_pipes_are_compared_by_part_alone() -> None:
    a = answer(Part("layer", 4 * MS))
    b = answer(Part("layer", 6 * MS))
    result = difference(a, b)
    assert not result.detailed
    assert result.causes() == {"other": 2 * MS}


def test_a_part_that_is_not_there_is_named_with_those_that_are() -> None:
    a = answer(block(kernel("qkv", dram=8 * MS, rest=2 * MS)))
    with pytest.raises(SilicastError, match="prefill") as caught:
        difference(a, a, of="prefill")
    assert "decode" in caught.value.hint


def test_answers_of_two_tasks_cannot_be_compared() -> None:
    a = answer(block(kernel("qkv", dram=8 * MS, rest=2 * MS)))
    with pytest.raises(SilicastError, match="no metric in common"):
        difference(a, {**a, "metrics": {"latency_us": {}}})


def test_text_markdown_and_json_say_the_same() -> None:
    a = answer(block(kernel("qkv", dram=8 * MS, rest=2 * MS)), host=MS)
    b = answer(block(kernel("qkv", dram=4 * MS, rest=MS)), host=2 * MS, device="H300")
    result = difference(a, b)
    changed = {"device": ("h100", "h300")}
    file = io.StringIO()
    Console(file=file, width=120).print(difference_report(result, changed))
    shown, markdown = file.getvalue(), difference_markdown(result, changed)
    for words in ("device: h100 → h300", "4.00 ms shorter", "the device's rates", "layer / qkv"):
        assert words in shown
        assert words in markdown
    tables = difference_tables(result, changed)
    assert sum(tables["causes_ms"].values()) == pytest.approx(tables["change_ms"], abs=1e-12)
    assert sum(part["change_ms"] for part in tables["parts"]) == pytest.approx(-4.0)


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=12))
def test_bars_of_a_waterfall_stay_inside(steps: list[int]) -> None:
    bars = waterfall(steps)
    assert len(bars) == len(steps)
    assert all("█" in bar and len(bar) <= 25 for bar in bars)
