"""Candidates side by side."""

from __future__ import annotations

import csv
import datetime
import io
import re
from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.exploration.prices import PriceList, price_list
from silicast.report.tasks.comparison import (
    comparison_report,
    in_order,
    plain,
    sort_word,
    write_csv,
    write_plot,
)
from silicast.scenario.answer import Answer
from silicast.scenario.answers.inference.comparison import Candidate, carrying, compared
from tests.unit.report.reasons.test_why import text

TODAY = datetime.date(2026, 12, 1)
BATCH: dict[str, Any] = {
    "format": 1, "task": "inference", "model": "Llama-3.1-70B",
    "workload": {"batch": 8, "input_len": 512, "output_len": 64},
}  # fmt: skip
DEVICES = ["h100", "l4", "h200", "h1000"]
PRICES = ["h100=2.5,h200=1.0"]


@pytest.fixture(scope="module")
def candidates() -> list[Candidate]:
    return list(compared(BATCH, DEVICES, prices=price_list(PRICES)))


def reported(candidates: list[Candidate], word: str | None = None) -> str:
    chosen = sort_word(word, candidates)
    return text(comparison_report("head", in_order(candidates, chosen), chosen, TODAY))


def test_each_device_gets_the_smallest_plan_that_fits(candidates: list[Candidate]) -> None:
    assert [one.plan for one in candidates] == [{"tp": 2}, {"tp": 8}, {"tp": 2}, {}]
    assert [one.label for one in candidates] == ["h100 tp=2", "l4 tp=8", "h200 tp=2", "h1000"]
    for one in candidates[:3]:
        assert one.fits
        smaller = {**one.scenario, "parallel": {"tp": one.plan["tp"] // 2}}
        (less,) = compared(smaller, [one.scenario["device"]], [{"tp": one.plan["tp"] // 2}])
        assert not less.fits


def test_the_cheapest_is_first_where_prices_are_known(candidates: list[Candidate]) -> None:
    shown = reported(candidates)
    assert shown.index("\nh200") < shown.index("\nh100") < shown.index("\nl4")
    assert "h1000: unknown device" in shown
    assert "no price, no cost: l4" in shown
    (row,) = (line for line in shown.splitlines() if line.startswith("l4"))
    assert re.search(r"batch [\d,.]+ – [\d,.]+ (m?s|µs)$", row.strip())  # of its time, named
    assert "USD/M" in shown


def test_what_does_not_fit_comes_after_what_does_with_the_reason() -> None:
    candidates = list(compared(BATCH, ["h100"], [{"tp": 1}, {"tp": 2}]))
    assert [one.fits for one in candidates] == [False, True]
    shown = reported(candidates)
    assert shown.index("\nh100 tp=2") < shown.index("h100 tp=1: does not fit by")
    assert "USD" not in shown


def test_cost_is_price_over_throughput(candidates: list[Candidate]) -> None:
    reply = candidates[0].reply
    assert isinstance(reply, Answer)
    rate = reply.metrics["output_tokens_per_s"].estimate
    cost = reply.metrics["cost_per_million_output_tokens"].estimate
    assert cost == pytest.approx(2 * 2.5 / 3600 / rate * 1e6)
    unpriced = candidates[1].reply
    assert isinstance(unpriced, Answer)
    assert "cost_per_million_output_tokens" not in unpriced.metrics


@pytest.mark.parametrize("word", ["throughput", "throughput-per-gpu", "time", "tpot", "energy"])
def test_every_order_is_one(word: str, candidates: list[Candidate]) -> None:
    ordered = [one for one in in_order(candidates, word) if one.fits]
    name = {
        "throughput": "output_tokens_per_s", "throughput-per-gpu": "output_tokens_per_s_per_gpu",
        "time": "total_ms", "tpot": "decode_step_ms", "energy": "energy_per_output_token_j",
    }[word]  # fmt: skip
    values = [one.reply.metrics[name].estimate for one in ordered if isinstance(one.reply, Answer)]
    assert values == sorted(values, reverse=word.startswith("throughput"))


def test_orders_that_are_none_are_refused(candidates: list[Candidate]) -> None:
    with pytest.raises(SilicastError, match="unknown: 'beauty'"):
        sort_word("beauty", candidates)
    with pytest.raises(SilicastError, match="no candidate has gpus"):
        sort_word("gpus", candidates)
    with pytest.raises(SilicastError, match="--price"):
        sort_word("cost", list(compared(BATCH, ["h200"])))


def test_old_prices_warn(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("device,price_per_hour,currency,date\nh200,3,USD,2026-01-01\nh100,2,USD,\n")
    prices: PriceList = price_list([str(path)])
    shown = " ".join(reported(list(compared(BATCH, ["h200", "h100"], prices=prices))).split())
    assert "h200 tp=2: its price is 334 days old" in shown
    assert "h100 tp=2: its price has no date" in shown


def test_a_table_for_programs_has_every_metric(candidates: list[Candidate], tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    write_csv(path, candidates)
    rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
    assert [row["case"] for row in rows] == [one.label for one in candidates]
    assert float(rows[0]["prefill_ms_p05"]) <= float(rows[0]["prefill_ms"])
    assert (rows[0]["currency"], rows[0]["plan"], rows[0]["devices"]) == ("USD", "tp=2", "2")
    assert rows[3]["prefill_ms"] == ""
    assert "unknown device" in rows[3]["reason"]
    tree = plain(candidates)[0]
    assert (tree["case"], tree["fits"], tree["plan"]) == ("h100 tp=2", True, {"tp": 2})


def test_a_drawing(candidates: list[Candidate], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "plot.svg"
    write_plot(path, candidates, "head")
    assert path.read_text(encoding="utf-8").lstrip().startswith("<?xml")
    with pytest.raises(SilicastError, match="nothing to draw"):
        write_plot(path, candidates[3:], "head")


def test_users_get_their_speed_at_the_least_cost() -> None:
    candidates = list(carrying(BATCH, ["h100", "l4", "h200"], 100, 20.0, prices=price_list(PRICES)))
    for one in candidates:
        if isinstance(one.reply, Answer):
            assert one.reply.metrics["tpot_mean_ms"].estimate <= 50.0
            whole = one.reply.metrics["gpus"].estimate
            assert one.reply.why["users"]["replicas"] * _gpus(one) == whole
    shown = reported(candidates)
    assert shown.index("\nh200") < shown.index("\nh100")
    impossible = list(carrying(BATCH, ["h100"], 100, 2000.0))
    assert "one user alone has" in impossible[0].reason


def _gpus(one: Candidate) -> int:
    return one.plan.get("tp", 1) * one.plan.get("pp", 1)


SMALL: dict[str, Any] = {**BATCH, "model": "Llama-3.2-1B"}


def quickest(device: str, plans: list[dict[str, int]]) -> float:
    every = compared(SMALL, [device], plans)
    return min(one.reply.metrics["total_ms"].estimate for one in every if one.reply.ok)  # type: ignore[union-attr]


@pytest.mark.parametrize("device", ["h100", "l40s"])
def test_one_node_each_is_the_quickest_plan_of_a_node(device: str) -> None:
    (one,) = compared(SMALL, [device], gpus="node")
    assert isinstance(one.reply, Answer)
    assert one.reply.why["deployment"]["devices"] == 8
    plans = [{"tp": tp, "pp": 8 // tp} for tp in (1, 2, 4, 8)]
    assert one.reply.metrics["total_ms"].estimate == quickest(device, plans)


def test_as_many_of_each_are_as_many(candidates: list[Candidate]) -> None:
    for one in compared(SMALL, ["h100", "l4"], gpus=2):
        assert isinstance(one.reply, Answer)
        assert one.reply.why["deployment"]["devices"] == 2
    with pytest.raises(SilicastError, match="no plan has 3 devices"):
        list(compared(SMALL, ["h100"], gpus=3))


def test_the_best_plan_of_each_has_the_most_throughput_a_device() -> None:
    (one,) = compared(SMALL, ["h100"], gpus="best")
    plans = [{"tp": tp, "pp": pp} for tp in (1, 2, 4) for pp in (1, 2)]
    name = "output_tokens_per_s_per_gpu"
    rates = [each.reply.metrics[name].estimate for each in compared(SMALL, ["h100"], plans)]  # type: ignore[union-attr]
    assert isinstance(one.reply, Answer)
    assert one.reply.metrics[name].estimate == max(rates)


def test_what_takes_many_times_the_devices_is_hardly_built() -> None:
    devices = ["h100", "l40s"]
    shown = reported(list(carrying({**BATCH, "workload": LONG}, devices, 500, 20.0)))
    assert re.search(r"l40s tp=8: \d+ times the devices of h100 tp=4: hardly to be built", shown)
    assert "hardly" not in reported(list(carrying(SMALL, ["h100", "l4"], 10, 20.0)))


LONG = {"batch": 1, "input_len": 1024, "output_len": 128}
