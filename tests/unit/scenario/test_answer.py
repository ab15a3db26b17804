"""The answer format, to the byte."""

from __future__ import annotations

import json

import pytest

from silicast.core.errors import SilicastError
from silicast.core.prediction import Part, Quantity
from silicast.scenario.answer import MAX_CHILDREN, answer, encode, refusal, why_tree, with_id


def test_an_answer_is_exactly_the_contracts() -> None:
    reply = answer(
        metrics={"latency_us": Quantity(2.0, 1.5, 3.0)},
        bound={"latency_us": 1.0},
        tier="analytic",
        domain="in",
        warnings=["w"],
        why={"name": "gemm"},
    )
    assert encode(with_id(reply, "a")) == (
        b'{"id":"a","ok":true,"metrics":{"latency_us":{"estimate":2.0,"p05":1.5,"p95":3.0}},'
        b'"bound":{"latency_us":1.0},"tier":"analytic","domain":"in","warnings":["w"],'
        b'"why":{"name":"gemm","coverage":{"time_share":{"analytic":1.0}}}}'
    )


def test_a_refusal_is_exactly_the_contracts() -> None:
    error = SilicastError("no", kind="limit", field="a.b", hint="less", file="s.toml")
    assert json.loads(encode(refusal(error, 7))) == {
        "id": 7,
        "ok": False,
        "error": {"kind": "limit", "message": "s.toml: no", "field": "a.b", "hint": "less"},
    }


def test_an_answer_below_its_bound_is_a_defect() -> None:
    with pytest.raises(SilicastError) as caught:
        answer(
            metrics={"latency_us": Quantity(2.0, 0.5, 3.0)},
            bound={"latency_us": 1.0},
            tier="analytic",
            domain="in",
        )
    assert caught.value.kind == "internal"


def test_a_negative_answer_is_a_defect() -> None:
    with pytest.raises(SilicastError):
        answer(metrics={"x_ms": Quantity(1.0, -1.0, 2.0)}, bound={}, tier="bound", domain="in")


def test_the_why_tree_shares_sum_to_one() -> None:
    parts = [Part(f"p{i}", 10**9 * (i + 1), bound_ps=10**8, bound_by="dram") for i in range(3)]
    tree = why_tree(Part.group("total", parts))
    assert tree["exposed_ms"] == 6.0
    assert [part["share"] for part in tree["parts"]] == [0.166667, 0.333333, 0.5]
    assert tree["parts"][0]["of_bound"] == 0.1


def test_many_parts_are_summed_up_without_losing_time() -> None:
    parts = [Part(f"p{i}", 10**9) for i in range(MAX_CHILDREN + 40)]
    tree = why_tree(Part.group("total", parts))
    assert len(tree["parts"]) == MAX_CHILDREN
    assert sum(part["exposed_ms"] for part in tree["parts"]) == tree["exposed_ms"]
