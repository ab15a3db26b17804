"""What a simulation used of its devices, against sums over every token of every request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import silicast
from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.core.prediction import Z90
from silicast.hardware.catalog import find_device
from silicast.scenario.answers.serving.answerer import prepared
from silicast.scenario.decode import decode
from silicast.serving.statistics.use import (
    device_use,
    first_token_parts,
    model_flops,
    room_leverage,
    step_shares,
)
from silicast.workload.models.counting import (
    attention_flops,
    head_flops_per_row,
    linear_flops_per_token,
)
from silicast.workload.models.lookup import find_model
from tests.unit.serving.statistics.test_metrics import MS, _row, records_of

LLAMA = find_model("Llama-3.1-8B")


def test_flops_of_requests_are_those_of_their_tokens() -> None:
    prompt, outputs, reused = 200, (7, 1, 90), (0, 50, 199)
    records = records_of([(0, 0, 0, 10, 30, count) for count in outputs], prompt)
    records.reused[:] = np.array([0, 50, 900])  # the last token of a prompt is always computed
    spent = 0.0
    for count, held in zip(outputs, reused, strict=True):
        spent += (prompt - held + count - 1) * linear_flops_per_token(LLAMA)
        spent += count * head_flops_per_row(LLAMA)
        spent += attention_flops(LLAMA, [(prompt, prompt)])
        spent -= attention_flops(LLAMA, [(held, held)]) if held else 0
        spent += sum(attention_flops(LLAMA, (), [prompt + n]) for n in range(count - 1))
    deployment: Any = SimpleNamespace(model=LLAMA)
    assert model_flops(records, deployment) == pytest.approx(spent, rel=2e-4)


def test_shares_of_steps_by_hand() -> None:
    """Two replicas, 30 ms: 10 and 20 ms of steps, 5 of them with prompts."""
    records = records_of([(0, 0, 0, 10, 30, 3)])
    records.log.add(*_row(0, 5 * MS, running=4, prefill_tokens=1))
    records.log.add(*_row(10 * MS, 15 * MS, running=2))
    records.log.add(*_row(0, 20 * MS, running=3, replica=1))
    shares = step_shares(records)
    assert shares["running_mean"] == pytest.approx((4 * 5 + 2 * 5 + 3 * 20) / 30)
    assert shares["idle"] == pytest.approx(1 - 30 / 60)
    assert shares["prefill"] == pytest.approx(5 / 30)


def test_bandwidth_is_weights_of_each_step_and_keys_of_each_token() -> None:
    """One request of 100 tokens and 11 more in eleven steps, on one H100 in 16 bits."""
    deployment = Deployment.from_model(LLAMA, find_device("H100"), find_engine("vllm"))
    records = records_of([(0, 0, 0, 10, 1010, 11)], 100)
    for step in range(11):
        records.log.add(*_row(step * MS, (step + 1) * MS, prefill_tokens=100 if step == 0 else 0))
    pool = SimpleNamespace(deployment=deployment, gpus=1, count=1)
    fleet: Any = SimpleNamespace(pools=[pool])
    weights = 11 * 2 * 8_030_261_248
    keys = sum(100 + n for n in range(1, 11)) * 32 * 8 * 128 * 2 * 2
    bandwidth = deployment.device.dram.bandwidth_bytes_per_s
    use = device_use(records, fleet)
    assert use["memory_bandwidth_utilisation"] == pytest.approx(
        (weights + keys) / (1.01 * bandwidth), rel=1e-3
    )
    assert use["mfu"] == pytest.approx(
        model_flops(records, deployment) / (1.01 * 989.4e12), rel=1e-3
    )


def test_a_step_reads_the_experts_that_its_tokens_reach() -> None:
    """Of eight experts a token goes to two: three tokens miss one with (3/4) ** 3."""
    model = find_model("Mixtral-8x7B")
    deployment = Deployment.from_model(model, find_device("H200"), find_engine("vllm"))
    records = records_of([(0, 0, 0, 10, 20, 2)], 1)
    records.log.add(*_row(0, MS, decoding=3))
    pool = SimpleNamespace(deployment=deployment, gpus=1, count=1)
    fleet: Any = SimpleNamespace(pools=[pool])
    experts = 32 * 8 * 3 * 4096 * 14336
    read = 2 * (46_702_792_704 - experts * 0.75**3)
    use = device_use(records, fleet)["memory_bandwidth_utilisation"]
    bandwidth = deployment.device.dram.bandwidth_bytes_per_s
    assert use == pytest.approx(read / (0.02 * bandwidth), rel=5e-3)  # embeddings count as layers


def test_a_first_token_behind_a_full_cache_moves_with_its_room() -> None:
    """32 clients and blocks for about 12: 8 % more of them against the closed form's first order;
    with room for all nothing waits for the cache.
    """

    def run(blocks: int) -> tuple[Any, Any]:
        scenario = {
            "task": "serving",
            "device": "h100",
            "model": "Llama-3.1-8B",
            "engine": {"name": "vllm", "options": {"num_gpu_blocks": blocks}},
            "workload": {
                "requests": 320,
                "input_len": 512,
                "output_len": 256,
                "arrival": {"kind": "closed", "concurrency": 32},
            },
        }
        served = prepared(decode(scenario)).served
        return served.simulate(served.fleet.specs), served.spec

    few, more, ample = run(600), run(648), run(4000)
    first, later = (records.ttft_s().mean() for records, _ in (few, more))
    leverage = room_leverage(*few)
    assert 1.2 < leverage < 2.5  # two thirds of an answer's time are waited for
    assert np.log(first / later) == pytest.approx(leverage * np.log(1.08), rel=0.25)
    assert room_leverage(*ample) == 0.0


def test_a_cache_of_unsure_size_makes_first_tokens_behind_it_unsure() -> None:
    """A server that leaves 2.9 GiB for its cache, by an estimate of what it sets aside that is off
    by 0.9: the same cache, stated, has only the error of steps and of clients.
    """

    def answered(**options: int) -> Any:
        scenario = {
            "task": "serving",
            "device": "rtx3090",
            "model": "Llama-3.1-8B",
            "engine": {
                "name": "vllm",
                "version": "0.6.4",
                "options": {"max_num_batched_tokens": 29000} | options,
            },
            "workload": {
                "requests": 192,
                "input_len": 768,
                "output_len": 128,
                "arrival": {"kind": "closed", "concurrency": 64},
            },
        }
        task = prepared(decode(scenario))
        return task.answer(), task.served

    (left, served), (stated, _) = answered(), answered(num_gpu_blocks=1483)
    cache = left.metrics["kv_cache_tokens"]
    unsure = (cache.p95 / cache.estimate - 1.0) / Z90
    leverage = room_leverage(served.simulate(served.fleet.specs), served.spec)
    assert cache.estimate == 1483 * 16
    assert leverage > 0.5
    assert unsure > 0.1
    widths = [
        np.log(each.metrics["ttft_mean_ms"].p95 / each.metrics["ttft_mean_ms"].estimate) / Z90
        for each in (left, stated)
    ]
    further = np.sqrt(widths[0] ** 2 - widths[1] ** 2)
    assert further == pytest.approx(leverage * unsure, rel=0.1)


def test_parts_of_the_first_token_by_hand() -> None:
    """Prompts of 10 tokens, 0.2 ms each; 1 ms of HTTP; 3 ms until the client has a token. The
    second request waits 3 ms in the front, and its cache is 4 ms on the way.
    """
    records = records_of([(0, 3, 5, 20, 30, 3), (0, 6, 9, 31, 40, 3)])
    records.moving_ns[:] = np.array([-1, 4 * MS])
    spec: Any = SimpleNamespace(front_ns=MS, front_token_ns=MS // 5, back_ns=3 * MS)
    parts = first_token_parts(records, [spec])
    assert parts == pytest.approx(
        {
            "http": 1.0,
            "tokenise": 2.0,
            "front_queue": 1.5,
            "queue": (2 + 3) / 2,
            "prefill": (12 + 15) / 2,
            "transfer": 2.0,
            "response": 3.0,
        }
    )
    assert sum(parts.values()) == pytest.approx((20 + 31) / 2)


def test_parts_of_an_answer_are_its_first_token() -> None:
    pools = {name: {"role": name, "count": 1} for name in ("prefill", "decode")}
    work = {"arrival": {"kind": "closed", "concurrency": 4}, "requests": 8, "input_len": 500}
    case = {
        "task": "serving",
        "device": "h100",
        "model": "Llama-3.1-8B",
        "engine": "sglang",
        "workload": {**work, "output_len": 8},
        "pools": pools,
    }
    result = silicast.predict(case)
    parts = result.why["ttft_ms"]
    assert sum(parts.values()) == pytest.approx(result["ttft_mean_ms"].estimate, rel=1e-5)
    assert parts["transfer"] > 0.0
    inside = {"name": "sglang", "options": {"http_server": False}}
    parts = silicast.predict({**case, "engine": inside}).why["ttft_ms"]
    assert not parts.keys() & {"http", "tokenise", "front_queue", "response"}


def test_a_queue_that_grows_uses_no_more_than_it_answers() -> None:
    """Requests sent in the window are answered long after it: their work is not the window's."""
    metrics = silicast.serve(
        model="Llama-3.1-8B", device="h100", rate=400.0, input_len=1024, output_len=128
    ).answer.metrics
    watts, joules = metrics["power_w"].estimate, metrics["energy_per_output_token_j"].estimate
    assert joules * metrics["output_tokens_per_s"].estimate == pytest.approx(watts, rel=0.02)
    assert 0.0 < metrics["mfu"].estimate < 0.9
    assert 0.0 < metrics["memory_bandwidth_utilisation"].estimate < 0.9
