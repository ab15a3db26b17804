"""Networks in answers: what the engine leaves to the switch, what joins the devices."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.scenario.answer import Answer
from silicast.scenario.decode import decode
from silicast.scenario.run import run

PREFILL: dict[str, Any] = {
    "task": "inference",
    "device": "H100",
    "model": "Llama-3.1-70B",
    "parallel": {"tp": 8},
    "workload": {"batch": 4, "input_len": 2048, "output_len": 2},
}
LONG_SUM: dict[str, Any] = {
    "task": "collective",
    "device": "H100",
    "workload": {"op": "all_reduce", "bytes": 128 << 20, "gpus": 8},
}


def answered(case: dict[str, Any], **fields: Any) -> Answer:
    return run(decode({**case, **fields}))


def prefill_ms(engine: dict[str, Any], **fields: Any) -> float:
    return answered(PREFILL, engine=engine, **fields).metrics["prefill_ms"].estimate


def test_sglang_reduces_in_the_switch_only_when_asked() -> None:
    usual = prefill_ms({"name": "sglang"})
    assert usual == prefill_ms({"name": "sglang", "options": {"nvls": False}})
    assert prefill_ms({"name": "sglang", "options": {"nvls": True}}) < 0.99 * usual


def test_vllm_does_since_a_version() -> None:
    usual = prefill_ms({"name": "vllm", "version": "0.11"})
    assert usual == prefill_ms({"name": "vllm", "version": "0.11", "options": {"nvls": True}})
    assert prefill_ms({"name": "vllm", "version": "0.10.1"}) > 1.01 * usual


@pytest.mark.parametrize("fields", [{"device": "A100"}, {"parallel": {"tp": 4}}])
def test_without_such_a_switch_or_with_few_devices_the_option_changes_nothing(
    fields: dict[str, Any],
) -> None:
    on, off = (
        prefill_ms({"name": "vllm", "options": {"nvls": x}}, **fields) for x in (True, False)
    )
    assert on == off


def test_a_collective_follows_a_stated_engine() -> None:
    unstated = answered(LONG_SUM)
    assert unstated.why["algorithm"] == "nvls"
    assert answered(LONG_SUM, engine="sglang").why["algorithm"] == "ring"
    asked = answered(LONG_SUM, engine={"name": "sglang", "options": {"nvls": True}})
    assert asked.why["algorithm"] == "nvls"
