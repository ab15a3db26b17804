"""Networks in answers: what the engine leaves to the switch, what joins the devices."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.hardware.index import DEVICES
from silicast.report.reasons.why import cause_of
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
    requested = answered(LONG_SUM, engine={"name": "sglang", "options": {"nvls": True}})
    assert requested.why["algorithm"] == "nvls"


BATCH: dict[str, Any] = {
    "task": "inference",
    "device": "L40S",
    "model": "Llama-3.1-8B",
    "engine": "vllm",
    "workload": {"batch": 1, "input_len": 512, "output_len": 2},
}


def told(message: str, **fields: Any) -> bool:
    return any(message in line for line in answered(BATCH, **fields).warnings)


def test_what_is_not_known_of_a_network_reaches_whole_models() -> None:
    four, eight = {"parallel": {"tp": 4}}, {"parallel": {"tp": 8}}
    assert told("hosts differ", **four)
    assert not told("hosts differ", **four, cluster={"pcie_paths": "own"})
    assert not told("hosts differ")
    assert told("no measured collectives", **four, device="RTX 5090")
    assert not told("no measured collectives", **eight, device="H100")


def test_a_network_that_nobody_stated_is_named() -> None:
    loads = tomllib.loads((DEVICES / "nvidia-l40s.toml").read_text(encoding="utf-8"))
    loads |= {"name": "own board", "aliases": []}
    fields = {"device": loads, "parallel": {"tp": 8}}
    assert told("network between nodes not stated", **fields, cluster={"gpus_per_node": 4})
    assert not told("between nodes", **fields, cluster={"gpus_per_node": 8})
    stated = {"gpus_per_node": 4, "inter_node": "infiniband-ndr"}
    assert not told("between nodes", **fields, cluster=stated)


def test_the_host_decides_what_many_devices_reach_over_pcie() -> None:
    def prefill(paths: str) -> float:
        fields = {"parallel": {"tp": 8}, "cluster": {"pcie_paths": paths} if paths else {}}
        return answered(BATCH, **fields).metrics["prefill_ms"].estimate

    assert prefill("own") < 0.7 * prefill("") < 0.5 * prefill("shared")


@pytest.mark.parametrize(
    ("device", "cluster", "gpus", "slower"),
    [
        ("A100", {"gpus_per_node": 4}, 2, 2.5),  # a third of the links reaches one peer
        ("H100", {"gpus_per_node": 4}, 2, 2.5),
        ("H100", {"gpus_per_node": 4}, 4, 1.0),  # all of them reach three
        ("H100", {"intra_node": "mesh"}, 4, 2.0),
        ("H100", {"intra_node": "pcie"}, 8, 10.0),
        ("H100", {"gpus_per_node": 4, "intra_node": "nvswitch"}, 2, 1.0),
    ],
)
def test_what_joins_a_node_counts(
    device: str, cluster: dict[str, Any], gpus: int, slower: float
) -> None:
    case = {**LONG_SUM, "device": device, "workload": {**LONG_SUM["workload"], "gpus": gpus}}
    usual, other = (answered(case, cluster=each) for each in ({}, cluster))
    ratio = other.metrics["latency_us"].estimate / usual.metrics["latency_us"].estimate
    assert 0.98 * slower <= ratio <= max(2.0 * slower, 1.05)


@pytest.mark.parametrize(
    ("device", "pair", "four"),
    [("A40", 1.5, 1.0), ("RTX A6000", 1.5, 1.0), ("H100 NVL", 4, 1.0), ("H200 NVL", 1.5, 4)],
)
def test_a_bridge_helps_those_that_it_joins(device: str, pair: float, four: float) -> None:
    def seconds(gpus: int, link: str) -> float:
        case = {**LONG_SUM, "device": device, "workload": {**LONG_SUM["workload"], "gpus": gpus}}
        return answered(case, cluster={"intra_node": link}).metrics["latency_us"].estimate

    assert seconds(2, "pcie") >= pair * seconds(2, "nvlink_bridge")
    assert seconds(4, "pcie") >= four * seconds(4, "nvlink_bridge")


def test_a_described_link_keeps_what_the_boards_own_can() -> None:
    table = {"kind": "nvlink", "bandwidth_gb_per_s": 450}
    assert answered(LONG_SUM, cluster={"intra_node": table}).why["algorithm"] == "nvls"
    half = answered(LONG_SUM, cluster={"intra_node": {**table, "bandwidth_gb_per_s": 225}})
    assert half.metrics["latency_us"].estimate > answered(LONG_SUM).metrics["latency_us"].estimate


def test_a_switch_that_a_board_has_not_is_refused() -> None:
    with pytest.raises(SilicastError, match="no link 'nvswitch'") as caught:
        answered(LONG_SUM, device="A40", cluster={"intra_node": "nvswitch"})
    assert caught.value.field == "cluster.intra_node"
    assert "nvlink_bridge" in caught.value.hint


def test_a_long_sum_is_never_too_short_for_its_links() -> None:
    case = {**LONG_SUM, "workload": {**LONG_SUM["workload"], "bytes": 512 << 20}}
    for device in ("L40S", "RTX 4090", "H100"):
        result = answered(case, device=device, cluster={"pcie_paths": "shared"})
        assert cause_of(result.why) == "link"
