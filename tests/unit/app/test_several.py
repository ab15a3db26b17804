"""`--device a,b` of `capacity` and `train`: answers side by side, those of each device alone."""

from __future__ import annotations

import json

import pytest

from silicast.app.cli import main
from silicast.report.tasks.side_by_side import SHAPES, rank

TRAIN = "train --model Llama-3.2-1B --gpus 2 --dp 2 --global-batch 4 --seq-len 512"
CAPACITY = (
    "capacity --model Llama-3.2-1B --requests 20 --input-len 64 --output-len 4 --slo ttft_p90=90ms"
)


@pytest.mark.parametrize("asked", [TRAIN, CAPACITY])
def test_each_device_has_the_answer_that_it_has_alone(
    asked: str, capsys: pytest.CaptureFixture[str]
) -> None:
    replies = {}
    for devices in ("h100,l4", "h100", "l4"):
        assert main([*asked.split(), "--device", devices, "--json"]) == 0
        replies[devices] = json.loads(capsys.readouterr().out)
    for each in replies["h100,l4"]:
        assert each["metrics"] == replies[each["device"]]["metrics"]
    assert main([*asked.split(), "--device", "l4,h100"]) == 0
    words = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [each[0] for each in words if each[:1] in (["h100"], ["l4"])] == [
        "h100",
        "l4",
    ]  # best first
    assert (words[2][-1:] == ["plan"]) == (asked == TRAIN)  # one device each has no degrees


def test_one_that_cannot_answer_says_why_beside_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = "train --model Llama-3.1-70B --gpus 2 --dp 2 --global-batch 4 --device h100,nosuch"
    assert main(asked.split()) == 3
    assert "nosuch: unknown device" in capsys.readouterr().out


def test_a_whole_run_has_days_and_costs_of_each_device(capsys: pytest.CaptureFixture[str]) -> None:
    """At the same price an hour the quicker is cheaper; dear enough, it is not."""
    asked = [*TRAIN.split(), "--device", "h100,l4", "--tokens", "1B", "--price"]
    first = {}
    for price in ("2", "h100=1000,l4=0.1"):
        assert main([*asked, price]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert {"days", "cost"} <= set(lines[2].split())
        first[price] = lines[4].split()[0]
    assert first == {"2": "h100", "h100=1000,l4=0.1": "l4"}
    alone = [*TRAIN.split(), "--device", "l4", "--tokens", "1B", "--price", "0.1"]
    assert main(alone) == 0
    sentence = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("1B tokens"))
    assert any(line.startswith(f"l4: {sentence[:40]}") for line in lines)


def test_a_price_without_tokens_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TRAIN.split(), "--device", "h100,l4", "--price", "2"]) == 2
    assert "--tokens: is missing" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--html x.html", "--trace x.json"])
def test_what_is_of_one_device_is_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TRAIN.split(), "--device", "h100,l4", *flag.split()]) == 2
    assert f"{flag.split(maxsplit=1)[0]}: is of one device" in capsys.readouterr().err


def test_the_price_of_an_api_is_of_one_device(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--device", "h100,l4", "--price", "2", "--api-price", "1"]
    assert main([*CAPACITY.split(), *flags]) == 2
    assert "--api-price: is of one device" in capsys.readouterr().err


@pytest.mark.parametrize("asked", [TRAIN, CAPACITY])
def test_one_name_given_twice_is_one_device(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*asked.split(), "--device", "l4,l4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"]


def test_a_count_of_devices_has_no_interval(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CAPACITY.split(), "--device", "h100,l4", "--rate", "1"]) == 0
    assert "exact" not in capsys.readouterr().out


def test_a_priced_answer_ranks_by_its_cost() -> None:
    def carried(load: float, gpus: float, cost: float | None = None) -> dict[str, object]:
        values = {"max_rate_per_s": load, "gpus": gpus}
        if cost is not None:
            values["cost_per_million_output_tokens"] = cost
        return {"metrics": {name: {"estimate": value} for name, value in values.items()}}

    shape = SHAPES["capacity"]
    assert rank(shape, carried(30.0, 2.0)) < rank(shape, carried(40.0, 4.0))
    assert rank(shape, carried(10.0, 1.0, 0.1)) < rank(shape, carried(40.0, 1.0, 0.2))
    assert rank(shape, carried(0.0, 1.0, 0.1)) > rank(shape, carried(1.0, 8.0, 9.0))


def test_compare_shows_one_name_given_twice_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--model", "Llama-3.2-1B", "--device", "h100,l4,h100"]) == 0
    words = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [each[0] for each in words if each[:1] in (["h100"], ["l4"])] == ["h100", "l4"]
