"""Task plan with a traffic: the plan that is recommended, and its record of the others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from silicast.core.errors import SilicastError
from silicast.report.tasks.recommendation import recommendation_lines
from silicast.scenario.answer import Answer
from silicast.scenario.answers.plan import serving_plans
from silicast.scenario.decode import decode
from silicast.scenario.run import run

SERVING = {
    "arrival": {"kind": "poisson", "rate_per_s": 40.0},
    "input_len": 64,
    "output_len": 8,
    "slo": {"ttft_p99_ms": 500.0, "tpot_p99_ms": 4.0},
}
TREE: dict[str, Any] = {
    "task": "plan",
    "model": "Llama-3.2-1B",
    "device": "h100",
    "cluster": {"gpus": 2},
    "workload": {"objective": "cost", "serving": SERVING},
}


@pytest.fixture(scope="module")
def answer() -> Answer:
    return run(decode(TREE))


def test_the_recommended_scenario_is_what_the_metrics_are_of(answer: Answer) -> None:
    best = answer.why["recommendation"]["best"]
    assert answer.metrics["gpus"].estimate == best["gpus"] == 1
    for name in ("ttft_p99_ms", "tpot_p99_ms"):
        assert best["statistics"][name] == pytest.approx(answer.metrics[name].estimate)
    again = decode({**best["scenario"], "workload": {**SERVING, "requests": 20}})
    assert again.raw.task == "serving"
    assert run(again).metrics["tpot_p99_ms"].estimate < 4.0


def test_every_plan_has_its_fidelity_and_a_reason_why_it_lost(answer: Answer) -> None:
    search = answer.why["recommendation"]
    first, *others = search["candidates"]
    assert first["why_not"] == ""
    assert all(row["why_not"] for row in others)
    assert all(
        0.0 <= row["confidence"] <= 1.0 for row in search["candidates"] if "confidence" in row
    )
    intervals = [row for row in search["candidates"] if row["fidelity"].endswith("intervals")]
    assert all("on_front" in row for row in intervals)
    assert search["simulated"] <= len(search["candidates"])
    assert search["fewer_devices"] is None  # than one
    assert any("prefill" in row["plan"] for row in search["candidates"])


def test_it_is_improbable_that_half_the_devices_answer_what_two_are_needed_for() -> None:
    """One device answers 240 requests/s, so that 400 requests within 0.7 s wait up to a second."""
    arrival = {"kind": "poisson", "rate_per_s": 600.0}
    serving = {**SERVING, "arrival": arrival, "requests": 400}
    vary = {"engine.options.max_num_seqs": [256]}
    work = {"objective": "cost", "serving": serving, "search": {"vary": vary}}
    tree = {**TREE, "workload": work}
    search = run(decode(tree)).why["recommendation"]
    assert search["best"]["gpus"] == 2
    assert search["best"]["plan"].startswith("max_num_seqs 256, ")
    assert search["best"]["scenario"]["engine"]["options"] == {"max_num_seqs": 256}
    assert search["fewer_devices"]["gpus"] == 1
    assert search["fewer_devices"]["plan_at_most"] <= search["fewer_devices"]["at_most"] < 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slo": None}, "workload.serving.slo: is missing"),
        ({"arrival": {"kind": "closed", "concurrency": 4}}, "clients that wait have no rate"),
        ({"slo": {"ttft_ms": 500.0, "quantile": 0.123}}, "slo.quantile"),
    ],
)
def test_what_has_no_answer_is_refused(changes: dict[str, Any], message: str) -> None:
    serving = {n: v for n, v in (SERVING | changes).items() if v is not None}
    tree = {**TREE, "workload": {"objective": "cost", "serving": serving}}
    with pytest.raises(SilicastError) as error:
        run(decode(tree))
    assert message in str(error.value)


def test_an_objective_that_nothing_keeps_says_so() -> None:
    serving = {**SERVING, "slo": {"tpot_p99_ms": 0.01}}
    tree = {**TREE, "cluster": {"gpus": 1}, "workload": {"objective": "cost", "serving": serving}}
    search = run(decode(tree)).why["recommendation"]
    assert search["best"]["confidence"] == 0.0
    assert all("tpot" in row["why_not"] for row in search["candidates"])


def test_where_nothing_keeps_the_objective_the_nearest_comes_first() -> None:
    """One device would be nearest by devices, and two by what they miss."""
    serving = {**SERVING, "slo": {"tpot_p99_ms": 0.01}}
    tree = {**TREE, "workload": {"objective": "cost", "serving": serving}}
    answer = run(decode(tree))
    search = answer.why["recommendation"]
    rows = [row["statistics"]["tpot_p99_ms"] for row in search["candidates"] if row["statistics"]]
    assert search["best"]["gpus"] == 2
    assert rows[0] <= min(rows) * 1.05  # of more requests than those of the others
    assert recommendation_lines(msgspec.to_builtins(answer))[0].startswith(
        "no plan keeps the objective"
    )


@pytest.mark.parametrize(
    ("vary", "field", "text"),
    [
        ({"workload.input_len": [10, 20]}, "workload.input_len", "no field of a plan"),
        ({"engine.options.max_num_seqs": [64, "x"]}, "engine.options.max_num_seqs", "found 'x'"),
        ({"engine.options.max_num_seqs": [-1]}, "engine.options.max_num_seqs", "found -1"),
        ({"engine.options.max_numseqs": [8]}, "engine.options.max_numseqs", "not modelled"),
        ({"model": ["Llama-3.2-1B", "b"]}, "model", "unknown model 'b'"),
        ({"precision.recipe": ["bf16", "fp9"]}, "precision.recipe", "fp9"),
    ],
)
def test_what_no_plan_can_have_is_refused_before_the_search_by_its_field(
    vary: dict[str, list[Any]], field: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def searched(*_: object, **__: object) -> None:
        pytest.fail("a plan was judged")

    monkeypatch.setattr(serving_plans, "PlanCurve", searched)
    work = {"objective": "cost", "serving": SERVING, "search": {"vary": vary}}
    with pytest.raises(SilicastError) as caught:
        run(decode({**TREE, "workload": work}))
    assert caught.value.field == field
    assert text in str(caught.value)


def test_an_option_of_one_engine_alone_may_vary_with_the_engine() -> None:
    """TensorRT-LLM leaves no weights to the host: those combinations cannot run, others do."""
    vary = {"engine.name": ["trtllm", "vllm"], "engine.options.cpu_offload_gb": [0]}
    work = {"objective": "cost", "serving": SERVING, "search": {"vary": vary}}
    search = run(decode({**TREE, "cluster": {"gpus": 1}, "workload": work})).why["recommendation"]
    assert any("keeps no weights" in reason for reason in search["cannot_run"])
    assert search["best"]["fields"]["engine.name"] == "vllm"
