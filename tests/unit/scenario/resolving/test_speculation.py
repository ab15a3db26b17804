"""Speculative decoding as scenarios state it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.scenario.answerer import answerer_for
from silicast.scenario.decode import decode
from silicast.scenario.resolving.fleets import fleet_of
from silicast.serving.simulation.launch import Expected

BASE: dict[str, Any] = {
    "task": "serving", "device": "H100", "model": "Llama-3.1-8B", "engine": "vllm", "seed": 3,
    "workload": {
        "arrival": {"kind": "closed", "concurrency": 4}, "requests": 12, "input_len": 200,
        "output_len": 40,
    },
}  # fmt: skip


def scenario(**table: Any) -> Any:
    return decode({**BASE, "speculative": table})


@pytest.mark.parametrize(
    ("table", "field", "text"),
    [
        ({"method": "draft", "k": 2, "acceptance": 0.5}, "speculative.draft", "is missing"),
        ({"method": "mtp", "k": 2, "draft": "Llama-3.2-1B"}, "speculative.draft", "no model"),
        ({"method": "ngram", "k": 2}, "speculative.acceptance", "none was measured"),
        (
            {"method": "draft", "k": 2, "draft": "Llama-3.2-1B"},
            "speculative.acceptance",
            "none was measured",
        ),
        ({"method": "mtp", "k": 3, "tree": 3}, "speculative.tree", "no branch of 3"),
        ({"method": "eagle", "k": 2, "acceptance": [0.5]}, "speculative.acceptance", "1 rates"),
        (
            {"method": "draft", "k": 2, "draft": "no-such", "acceptance": 0.5},
            "speculative.draft.model",
            "no-such",
        ),
        (
            {"method": "draft", "k": 2, "draft": "Llama-3.1-70B", "acceptance": 0.5},
            "speculative",
            "no room",
        ),
    ],
)
def test_what_cannot_draft_is_refused(table: dict[str, Any], field: str, text: str) -> None:
    with pytest.raises(SilicastError, match=text) as caught:
        fleet_of(scenario(**table), Expected(500))
    assert caught.value.field == field


def test_an_answer_says_what_drafts_gain() -> None:
    answer = answerer_for("serving").answer(scenario(method="mtp", k=2))
    result = answer.why["speculation"]
    length = answer.metrics["acceptance_length"]
    assert length.p05 < length.estimate < length.p95 <= 3.0
    assert abs(length.estimate - result["acceptance_length_expected"]) < 0.3
    tpot = answer.metrics["tpot_mean_ms"]
    assert result["tpot_without_mean_ms"] > tpot.estimate
    assert result["tpot_speedup"]["p10"] <= result["tpot_speedup"]["p90"] < length.p95
    assert answer.bound["tpot_mean_ms"] < tpot.p05
    assert "drafting" in [part["name"] for part in answer.why["parts"]]
    shares = {part["name"]: part["share"] for part in answer.why["parts"]}
    assert shares.get("idle", 0.0) < 0.15, "parts explain the time"
    assert any("speculative.acceptance" in each for each in answer.warnings)


def test_stated_acceptance_is_certain_and_other_tasks_refuse() -> None:
    answer = answerer_for("serving").answer(scenario(method="ngram", k=2, acceptance=[0.6, 0.5]))
    length = answer.metrics["acceptance_length"]
    assert length.p05 == length.estimate == length.p95
    one_pass = {
        **BASE, "task": "graph", "speculative": {"method": "ngram", "k": 2},
        "workload": {"batch": 1, "seq_len": 8},
    }  # fmt: skip
    with pytest.raises(SilicastError) as caught:
        answerer_for("graph").answer(decode(one_pass))
    assert (caught.value.kind, caught.value.field) == ("not_yet", "speculative")


@pytest.mark.parametrize("stated", [0.0, 0.25])
def test_a_stated_spread_moves_tails_and_not_the_mean(stated: float) -> None:
    """Steps a token are inverse to a request's acceptance length: of log-normal lengths the 90th
    percentile is the median's times exp(1.28 sd), and their mean is what is stated.
    """
    table = {"method": "ngram", "k": 7, "acceptance": 0.7, "acceptance_spread": stated}
    fleet, _ = fleet_of(scenario(**table), Expected(500))
    law = fleet.specs[0].accepted
    assert law is not None
    requests, made = np.arange(400), np.ones(400, dtype=np.int64)
    steps = np.zeros(400)
    while (made < 1500).any():
        steps += made < 1500
        made += law.tokens(requests, made)
    a_token = steps / 1499
    assert a_token.mean() == pytest.approx(1.0 / law.mean, rel=0.03)
    ratio = np.quantile(a_token, 0.9) / np.median(a_token)
    assert ratio == pytest.approx(np.exp(1.28 * np.hypot(stated, 0.03)), rel=0.06)
