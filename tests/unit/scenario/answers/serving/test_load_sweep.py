"""Loads of a sweep as a user writes them, and the curve that they give."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer, Belief
from silicast.scenario.answers.serving.load_sweep import MOST, LoadCurve, SweptLoads, spanning


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("rate=1..20", range(1, 21)),
        ("rate=0.5", [0.5]),
        ("rate=1,1.5,7", [1, 1.5, 7]),
        ("rate=1,3..8", [1, 3, 5, 7, 8]),
        ("concurrency=1,2,4..256", [1, 2, 4, 8, 16, 32, 64, 128, 256]),
        ("concurrency=1,2,4..100", [1, 2, 4, 8, 16, 32, 64, 100]),
        ("concurrency=1, 2, 3..5", [1, 2, 3, 4, 5]),
    ],
)
def test_loads_go_on_as_they_began(text: str, values: list[float]) -> None:
    assert list(SweptLoads.parse(text).values) == list(values)


@given(st.text("0123456789.,=rateconcurrency ", max_size=24))
def test_any_text_is_loads_or_an_error_with_an_example(text: str) -> None:
    loads: SweptLoads | SilicastError
    try:
        loads = SweptLoads.parse(text)
    except SilicastError as error:
        loads = error
    if isinstance(loads, SweptLoads):
        assert bool(loads.values) == ("=" in text)
        assert len(loads.values) <= MOST
        assert list(loads.values) == sorted(set(loads.values))
    else:
        assert loads.field == "--sweep"
        assert loads.hint


def answer(rate: float, wait_ms: float, growth: float = 0.0, *, pools: int = 1) -> Answer:
    metrics = {"requests_per_s": rate, "e2e_mean_ms": wait_ms}
    why: dict[str, object] = {"requests": {"queue_growth": growth}}
    if pools == 1:
        why["knee"] = {"most_per_s": 9.0, "rate_per_s": 4.0, "concurrency": 8}
    beliefs = {name: Belief(value, value, value) for name, value in metrics.items()}
    return Answer(None, True, beliefs, {}, "analytic", "in", [], why)


def test_the_knee_is_inside_and_a_load_that_is_not_answered_is_full() -> None:
    loads = [2.0, 4.0, 6.0, 8.0]
    queue = [answer(r, 1e3 / (1 - r / 10)) for r in loads]
    curve = LoadCurve(
        "rate", (*zip(loads, queue, strict=True), (9.0, answer(8.1, 9e4, growth=0.1)))
    )
    assert curve.knee is not None
    assert curve.answered[curve.knee][0] == 4.0
    assert curve.saturated == 4
    assert LoadCurve("rate", curve.points[:2]).knee is None
    assert LoadCurve("rate", curve.points[2:4]).saturated is None
    above = LoadCurve("rate", ((9.5, answer(9.5, 1e3)),))
    assert above.saturated == 0
    assert LoadCurve("concurrency", above.points).saturated is None


def test_of_several_pools_the_knee_is_that_of_the_curve() -> None:
    loads = [2.0, 4.0, 6.0, 8.0, 9.9]
    answers = [answer(r, 1e3 / (1 - r / 12), pools=2) for r in loads]
    curve = LoadCurve("rate", tuple(zip(loads, answers, strict=True)))
    assert curve.knee is not None
    assert curve.answered[curve.knee][0] == 6.0  # r (12 - r) is largest
    assert curve.saturated is None


SERVED: dict[str, Any] = {
    "task": "serving",
    "model": "Llama-3.2-1B",
    "device": "h100",
    "workload": {
        "arrival": {"kind": "poisson", "rate_per_s": 1.0},
        "input_len": 64,
        "output_len": 4,
    },
}


def test_loads_that_are_left_open_go_up_to_what_is_answered() -> None:
    rates = spanning(SERVED, SweptLoads.parse("rate")).values
    assert list(rates) == sorted(set(rates))
    assert rates[-1] == pytest.approx(10 * rates[0], rel=0.05)
    longer = {**SERVED, "workload": {**SERVED["workload"], "output_len": 256}}
    clients = spanning(longer, SweptLoads.parse("concurrency")).values
    assert clients[:3] == (1, 2, 4)
    stated = SweptLoads.parse("rate=1,2")
    assert spanning(SERVED, stated) == stated


def test_loads_of_several_pools_must_be_stated() -> None:
    pools = {"prefill": {"role": "prefill"}, "decode": {"role": "decode"}}
    with pytest.raises(SilicastError, match="state them"):
        spanning({**SERVED, "pools": pools}, SweptLoads.parse("rate"))
