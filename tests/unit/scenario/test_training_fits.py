"""Task ``fits`` of training: what fits, and with which largest batch and length."""

from __future__ import annotations

from typing import Any

import pytest

import silicast
from silicast.core.errors import SilicastError

CARD, MODEL = "RTX 4090", "Llama-3.1-8B"


@pytest.fixture(scope="module")
def ways() -> dict[str, dict[str, Any]]:
    answer = silicast.fits(model=MODEL.lower(), device=CARD.lower(), context=2048, train=True)
    return {row["way"]: row for row in answer.why["trains"]}


def as_run(way: str, seq_len: int, micro_batch: int) -> float:
    """GB that task ``training`` says the same run needs."""
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    answer = silicast.predict(
        task="training",
        model=MODEL,
        device=CARD,
        engine="fsdp",
        precision={"weights": "nf4"} if way == "qlora" else None,
        lora={"rank": 16, "targets": targets} if way != "full" else None,
        workload={
            "seq_len": seq_len,
            "micro_batch": micro_batch,
            "global_batch": micro_batch,
            "task": "lora" if way != "full" else "sft",
            "recompute": "full",
        },
    )
    return float(answer.metrics["memory_gb"].estimate)


def test_fewer_bits_and_fewer_trained_weights_need_less(ways: dict[str, dict[str, Any]]) -> None:
    assert list(ways) == ["full", "lora", "qlora"]
    assert {(row["model"], row["device"]) for row in ways.values()} == {(MODEL, CARD)}
    assert [row["fits"] for row in ways.values()] == [False, True, True]
    assert ways["full"]["batch"] == ways["full"]["context"] == 0
    assert 0 < ways["lora"]["batch"] < ways["qlora"]["batch"]
    assert 2048 <= ways["lora"]["context"] < ways["qlora"]["context"]
    # 16 bytes a parameter and more do not fit into 24 GB by far
    assert ways["full"]["memory_gb"] > 16 * 8.0


def test_a_card_without_bf16_trains_in_fp16() -> None:
    """QLoRA of 7 billion parameters on a T4, as people run it: 4 bits a weight are 3.6 GB."""
    answer = silicast.fits(model="Mistral-7B-v0.1", device="T4", context=1024, train=True)
    ways = {row["way"]: row for row in answer.why["trains"]}
    assert [ways[way]["fits"] for way in ("full", "lora", "qlora")] == [False, False, True]
    assert 3.6 + 0.5 < ways["qlora"]["memory_gb"] < 15


@pytest.mark.parametrize("way", ["lora", "qlora"])
def test_the_largest_is_the_last_that_task_training_fits(
    ways: dict[str, dict[str, Any]], way: str
) -> None:
    row = ways[way]
    usable, batch, context = row["usable_gb"], row["batch"], row["context"]
    assert as_run(way, 2048, batch) <= usable + 0.01
    assert as_run(way, 2048, batch + 1) > usable
    assert as_run(way, context, 1) <= usable + 0.01
    assert as_run(way, context + 1, 1) > usable - 0.01


def test_more_devices_share_what_one_cannot_hold() -> None:
    alone: dict[str, Any] = {"model": MODEL, "device": "h100", "context": 4096, "train": True}
    one = silicast.fits(**alone).why["trains"][0]
    eight = silicast.fits(**alone, gpus=8).why["trains"][0]
    assert (one["fits"], eight["fits"]) == (False, True)


def test_nothing_that_fits_says_what_is_missing() -> None:
    with pytest.raises(SilicastError, match=r"qlora with recompute full needs \d+\.\d GB"):
        silicast.fits(model="Llama-3.1-70B", device=CARD, context=2048, train=True)


def test_models_of_a_device_are_the_largest_that_fit() -> None:
    rows = silicast.fits(device="RTX 3060", context=1024, train=True, most=3).why["trains"]
    sizes = [row["parameters_b"] for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    assert all(row["fits"] and row["memory_gb"] <= row["usable_gb"] for row in rows)


@pytest.mark.parametrize(
    "scenario",
    [
        {"task": "fits", "workload": {"context": 1024, "train": True}},
        {"task": "graph", "workload": {"graph": "resnet50", "mode": "training"}},
        {
            "task": "training",
            "model": "Qwen2.5-0.5B",
            "workload": {"seq_len": 64, "global_batch": 1, "micro_batch": 1},
        },
    ],
    ids=lambda scenario: scenario["task"],
)
def test_nothing_trains_on_an_npu(scenario: dict[str, Any]) -> None:
    with pytest.raises(SilicastError, match="nothing trains on hexagon-v68"):
        silicast.predict(device="hexagon-v68", **scenario)
