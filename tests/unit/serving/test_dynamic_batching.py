"""Batches of a static graph: who waits, for whom, and how long."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer, Refusal
from silicast.scenario.run import reply_to
from silicast.serving.simulation.scheduler import Limits
from silicast.serving.statistics.records import Records
from silicast.serving.traffic.requests import Requests
from tests.property.serving_cases import PlainPrices, ServingCase
from tests.sampling import examples

STEP_NS = 10_000_000
PRICES = PlainPrices(
    step_s=STEP_NS * 1e-9, token_s=0.0, cached_s=0.0, work_s=0.0, gap_s=0.0, asynchronous=False
)


def served(arrivals_ns: list[int], most: int = 8, concurrency: int = 0, **options: Any) -> Records:
    ones = np.ones(len(arrivals_ns), dtype=np.int64)
    requests = Requests.from_arrays(np.array(arrivals_ns), 5 * ones, ones, concurrency)
    limits = Limits(most, 1 << 20, 1 << 20, options=options)
    return ServingCase(requests, PRICES, limits, policy="dynamic-batching").run()


def batches(records: Records) -> list[int]:
    batches: list[int] = records.log.columns()["prompts"].tolist()
    return batches


def test_whoever_waits_when_a_pass_ends_forms_the_next() -> None:
    result = served([0, 1, 2, 3, 4, 5], most=4)
    assert batches(result) == [1, 4, 1]
    assert result.done_ns.tolist() == [STEP_NS, *[2 * STEP_NS] * 4, 3 * STEP_NS]


def test_the_largest_preferred_batch_runs_at_once() -> None:
    assert batches(served([0] * 7, preferred_batch_size="2,4")) == [4, 2, 1]
    assert batches(served([0] * 7, preferred_batch_size=4)) == [4, 3]


def test_a_batch_waits_until_its_oldest_request_has_waited_its_time() -> None:
    result = served([0, 500_000, 3_000_000], max_queue_delay_us=1000)
    assert batches(result) == [2, 1]
    assert result.done_ns.tolist()[:2] == [1_000_000 + STEP_NS] * 2
    assert result.done_ns.tolist()[2] == 1_000_000 + 2 * STEP_NS, "it waited while the pass ran"


def test_a_full_batch_waits_for_nobody() -> None:
    result = served([0, 10, 20], most=2, max_queue_delay_us=5000)
    assert result.done_ns.tolist() == [10 + STEP_NS, 10 + STEP_NS, 10 + 2 * STEP_NS]


def test_a_preferred_batch_that_comes_to_be_ends_the_wait() -> None:
    result = served([0, 10, 20], preferred_batch_size="3", max_queue_delay_us=5000)
    assert result.done_ns.tolist() == [20 + STEP_NS] * 3


@given(
    st.lists(st.integers(0, 100_000_000), min_size=1, max_size=40),
    st.integers(1, 9), st.integers(0, 30_000), st.sampled_from(["", "1", "2"]),
)  # fmt: skip
@examples(80)
def test_laws(arrivals: list[int], most: int, delay_us: int, preferred: str) -> None:
    if preferred and int(preferred) > most:
        return
    arrivals = sorted(arrivals)
    result = served(arrivals, most, max_queue_delay_us=delay_us, preferred_batch_size=preferred)
    sizes, came = batches(result), np.array(arrivals)
    assert sum(sizes) == len(arrivals)
    assert max(sizes) <= most
    assert (np.diff(result.done_ns) >= 0).all(), "first come, first served"
    starts, ends = (result.log.columns()[name] for name in ("start_ns", "end_ns"))
    assert (starts[1:] >= ends[:-1]).all(), "one pass at a time"
    first = np.cumsum([0, *sizes[:-1]])
    idle_from = np.concatenate(([0], ends[:-1]))
    waited = starts - np.maximum(idle_from, came[first])
    assert (waited <= delay_us * 1000).all(), "nobody waits beside an idle device for longer"


def test_a_closed_loop_fills_batches_of_all_clients() -> None:
    result = served([0] * 64, most=8, concurrency=8)
    assert set(batches(result)) == {8}


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"preferred_batch_size": "9"}, "engine.options.preferred_batch_size"),
        ({"preferred_batch_size": "two"}, "engine.options.preferred_batch_size"),
        ({"max_queue_delay_us": "long"}, "engine.options.max_queue_delay_us"),
        ({"instance_count": 2}, "engine.options.instance_count"),
    ],
)
def test_options_are_checked(options: dict[str, Any], field: str) -> None:
    with pytest.raises(SilicastError) as caught:
        served([0], **options)
    assert caught.value.field == field


SCENARIO = {
    "task": "serving", "device": "A100", "model": "bert_large",
    "engine": {"name": "triton-server", "options": {"max_batch_size": 16}},
    "workload": {
        "requests": 64, "arrival": {"kind": "closed", "concurrency": 16},
        "input_len": 128, "output_len": 1,
    },
}  # fmt: skip


def test_a_pass_is_what_the_task_graph_says() -> None:
    options = {"max_batch_size": 16, "preferred_batch_size": 16, "max_queue_delay_us": 1e6}
    reply = reply_to(SCENARIO | {"engine": {"name": "triton-server", "options": options}})
    assert isinstance(reply, Answer), reply
    work = {"mode": "inference", "batch": 16, "seq_len": 128}
    once = reply_to(SCENARIO | {"task": "graph", "engine": "triton-server", "workload": work})
    assert isinstance(once, Answer), once
    # the task has results of all tokens, a server those of one; front and back come on top
    value, whole = reply.metrics["e2e_p50_ms"], once.metrics["e2e_ms"]
    assert 0.75 * whole.estimate < value.estimate < whole.estimate + 2.0
    assert value.p05 <= value.estimate <= value.p95
    assert any("back end of the server" in text for text in reply.warnings)


@pytest.mark.parametrize("engine", ["triton-server", "vllm"])
def test_nothing_is_generated_in_one_pass(engine: str) -> None:
    work = {**SCENARIO["workload"], "output_len": 8}  # type: ignore[dict-item]
    reply = reply_to(SCENARIO | {"engine": engine, "workload": work})
    assert isinstance(reply, Refusal)
    assert reply.error.field == "workload.output_len"


def test_an_encoder_is_served_by_an_engine_of_language_models() -> None:
    reply = reply_to(replace_engine("vllm"))
    assert isinstance(reply, Answer), reply
    assert reply.metrics["kv_utilisation"].estimate == 0.0


def replace_engine(name: str) -> dict[str, Any]:
    return {**SCENARIO, "engine": name}


@pytest.mark.parametrize(
    ("field", "value"),
    [("speculative", {"method": "ngram", "k": 2, "acceptance": 0.5}),
     ("lora", {"rank": 8, "adapters": 2})],
)  # fmt: skip
def test_what_belongs_to_generating_is_refused(field: str, value: dict[str, Any]) -> None:
    reply = reply_to(
        {
            "task": "serving", "model": "BERT-base", "device": "A100", "engine": "triton-server",
            field: value,
            "workload": {"arrival": {"kind": "poisson", "rate_per_s": 4.0}, "requests": 4,
                         "input_len": 128, "output_len": 1},
        }
    )  # fmt: skip
    assert isinstance(reply, Refusal)
    assert (reply.error.kind, reply.error.field) == ("unsupported", field)
