"""What notebooks call: defaults of the commands, tables, beliefs as numbers."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
from typing import Any

import numpy as np
import pytest

import silicast
from silicast.app.flags import BatchFlags, Degrees, inference_scenario
from silicast.app.serve_flags import ServeFlags
from silicast.app.train_flags import TrainDegrees, TrainFlags
from silicast.core.errors import SilicastError
from silicast.scenario.answer import Belief

SMALL: dict[str, Any] = {"model": "Llama-3.1-8B", "input_len": 64, "output_len": 2}


@pytest.mark.parametrize(
    ("function", "tables"),
    [
        (silicast.serve, (ServeFlags, Degrees)),
        (silicast.train, (TrainFlags, TrainDegrees)),
        (silicast.explain, (BatchFlags, Degrees)),
        (silicast.compare, (BatchFlags, Degrees)),
    ],
)
def test_defaults_are_those_of_the_command(function: Any, tables: tuple[Any, ...]) -> None:
    known = {field.name: field.default for table in tables for field in dataclasses.fields(table)}
    shared = 0
    for name, parameter in inspect.signature(function).parameters.items():
        if name in known and parameter.default is not inspect.Parameter.empty:
            assert parameter.default == known[name], name
            shared += 1
    assert shared >= 5
    assert function.__doc__
    assert ">>>" in function.__doc__


def test_a_batch_without_sizes_is_that_of_the_command() -> None:
    flags = BatchFlags(model="Llama-3.1-8B")
    result = silicast.infer(model="Llama-3.1-8B", device="h100")
    assert result.predicted == silicast.predict(inference_scenario(flags, {}, "h100"))


@pytest.mark.parametrize("batches", [np.arange(1, 3), (1, 2), range(1, 3), [1, 2]])
def test_whatever_holds_several_values_is_swept(batches: Any) -> None:
    sweep = silicast.sweep(device="h100", batch=batches, **SMALL)
    assert [row.fields for row in sweep] == [{"batch": 1}, {"batch": 2}]
    assert all(row.predicted for row in sweep)


def test_a_lone_row_without_an_answer_says_why_without_a_label() -> None:
    shown = repr(silicast.sweep(device="h100", batch=0, **SMALL))
    assert "0 answered; workload.batch: " in shown


@pytest.mark.parametrize(
    ("function", "typed", "meant"),
    [
        (silicast.infer, "bacth", "batch"), (silicast.explain, "bacth", "batch"),
        (silicast.compare, "bacth", "batch"), (silicast.serve, "concurency", "concurrency"),
        (silicast.train, "global_bacth", "global_batch"), (silicast.infer, "limit", "limits"),
    ],
)  # fmt: skip
def test_a_misspelt_argument_is_told_from_the_nearest(
    function: Any, typed: str, meant: str
) -> None:
    with pytest.raises(SilicastError, match=r"unknown argument") as raises:
        function(model="gpt2", device="h100", **{typed: 8})
    assert (raises.value.field, raises.value.kind) == (typed, "unknown_name")
    assert raises.value.hint.startswith(f"did you mean {meant}")


def test_all_names_are_offered() -> None:
    assert set(silicast.__all__) <= set(dir(silicast))
    for name in silicast.__all__:
        assert getattr(silicast, name)


def test_a_belief_is_like_a_number() -> None:
    belief = Belief(10.0, 8.0, 13.0)
    assert float(belief) == 10.0
    assert f"{belief:.1f} {belief:>6.0f}|{belief}" == "10.0     10|10 [8, 13]"
    assert belief == 10
    assert belief != 11
    assert belief != Belief(10.0, 8.0, 14.0)
    assert belief == Belief(10.0, 8.0, 13.0)
    assert 9 < belief < 11.5
    assert belief.p05 <= belief <= belief.p95
    assert Belief(9.0, 1.0, 20.0) < belief
    assert max(belief, Belief(12.0, 1.0, 20.0)).estimate == 12.0
    assert sorted([belief, Belief(9.0, 1.0, 20.0)])[0].estimate == 9.0
    assert math.log10(belief) == 1.0
    assert round(Belief(3.456, 1.0, 4.0), 1) == 3.5
    assert len({belief, Belief(10.0, 8.0, 13.0)}) == 1
    assert belief != "10"


def test_an_answer_shows_itself() -> None:
    result = silicast.infer(device="h100", **SMALL)
    plain = result.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["metrics"]["total_ms"]["estimate"] == result.total_ms
    html = result._repr_html_()
    assert "<td>total_ms</td>" in html
    assert f"<td>{result.total_ms:.4g}</td>" in html


def test_drawings() -> None:
    pytest.importorskip("matplotlib")
    result = silicast.infer(device="h100", **SMALL)
    assert len(result.plot().figure.axes[0].get_yticklabels()) == len(result.predicted.metrics)
    table = silicast.compare(device=["h100", "a100"], **SMALL)
    assert table.plot().figure.axes
    with pytest.raises(SilicastError, match="no row has"):
        table.plot("nothing", "total_ms")


def test_frames() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed: frames are not tried")
    one = silicast.infer(device="h100", **SMALL)
    result = one.to_pandas()
    assert isinstance(result, pandas.DataFrame)
    by_metric = result.set_index("metric")
    assert by_metric.loc["total_ms", "estimate"] == one.total_ms.estimate
    assert (result["p05"] <= result["estimate"]).all()
    assert (result["estimate"] <= result["p95"]).all()
    assert pandas.isna(by_metric.loc["memory_gb", "bound"])
    many = silicast.sweep(device=["h100", "nowhere"], batch=[1, 2], **SMALL).to_pandas()
    assert list(many["device"]) == ["h100", "h100", "nowhere", "nowhere"]
    assert many["total_ms"].notna().tolist() == [True, True, False, False]
    assert many["reason"].str.contains("unknown device").tolist() == [False, False, True, True]


def test_without_pandas_an_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(SilicastError, match="pandas is not installed") as caught:
        silicast.infer(device="h100", **SMALL).to_pandas()
    assert "to_dict" in caught.value.hint


def test_a_comparison_puts_what_fits_first() -> None:
    compare = silicast.compare(model="Llama-3.1-70B", device="l4,b200", tp=1, output_len=2)
    assert [row.label for row in compare] == ["b200", "l4"]
    assert compare[0].reason == ""
    assert "does not fit" in compare[1].reason
    assert "does not fit" in compare._repr_html_()
    with pytest.raises(SilicastError, match="names no device"):
        silicast.compare(device=[], **SMALL)


def test_a_sweep_answers_every_combination() -> None:
    sweep = silicast.sweep(device=["h100", "nowhere"], batch=[1, 2], tp=[1, 2], **SMALL)
    assert len(sweep) == 8
    assert [row.fields["device"] for row in sweep] == ["h100"] * 4 + ["nowhere"] * 4
    assert all(row.predicted for row in sweep[:4])
    assert all("unknown device" in row.reason for row in sweep[4:])
    alone = silicast.infer(device="h100", batch=2, tp=2, **SMALL)
    assert sweep[3].predicted == alone.predicted
    assert sweep.to_dict()[3]["total_ms"] == alone.total_ms
    assert len(silicast.sweep(device="h100", **SMALL)) == 1


def test_serving_and_training_take_the_words_of_the_commands() -> None:
    result = silicast.serve(
        model="Llama-3.1-8B", device="h100", rate=2.0, requests=8, input_len=64, output_len=4,
        slo="ttft_p99=1s",
    )  # fmt: skip
    assert result["ttft_p50_ms"] <= result["ttft_p99_ms"]
    with pytest.raises(SilicastError):
        silicast.serve(model="Llama-3.1-8B", device="h100")


def test_a_sweep_has_the_sizes_of_the_command_too() -> None:
    sweep = silicast.sweep(model="Llama-3.1-8B", device=["h100"], batch=[2])
    alone = silicast.infer(model="Llama-3.1-8B", device="h100", batch=2)
    assert sweep[0].predicted["total_ms"] == alone.total_ms


def test_a_table_says_why_the_first_row_has_no_answer() -> None:
    sweep = silicast.sweep(device=["h100", "nowhere"], **SMALL)
    assert "1 answered; device nowhere: " in repr(sweep)


def test_users_and_prices_are_compared_from_python() -> None:
    requested: dict[str, Any] = {**SMALL, "device": ["h100"]}
    predicted = silicast.compare(**requested, users=4, price={"h100": 2.5})[0].predicted
    same = silicast.compare(**requested, users=4, price="h100=2.5")[0].predicted
    assert predicted["cost_per_million_output_tokens"] == same["cost_per_million_output_tokens"]
    with pytest.raises(SilicastError, match="in place of one batch"):
        silicast.compare(**requested, users=4, batch=2)
    with pytest.raises(SilicastError, match="unknown argument 'btch'"):
        silicast.compare(**requested, btch=2)


def test_a_served_token_costs_what_the_device_does() -> None:
    requested: dict[str, Any] = {"model": "Llama-3.1-8B", "device": "h100", "concurrency": 2}
    result = silicast.serve(**requested, requests=4, input_len=64, output_len=8, price=2.5)
    cost = result["cost_per_million_output_tokens"].estimate
    rate = result["output_tokens_per_s"].estimate
    assert cost == pytest.approx(2.5e6 / 3600.0 / rate, rel=0.01)
