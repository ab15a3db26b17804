"""Losses that need more than a model: pairs, a reference, a teacher; weights of few bits."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer
from silicast.scenario.answers.training.answerer import TrainingAnswerer
from silicast.scenario.decode import decode

ADAPTERS = {"rank": 16, "targets": ["q_proj", "v_proj"]}
MODEL = "Llama-3.2-1B"
USUAL = {"seq_len": 2048, "global_batch": 8, "micro_batch": 1, "recompute": "full"}


def asked(work: dict[str, Any] | None = None, **fields: Any) -> Answer:
    scenario = {
        "task": "training",
        "device": "h100",
        "model": MODEL,
        "cluster": {"gpus": 4},
        "engine": "fsdp",
        **fields,
        "workload": {**USUAL, **(work or {})},
    }
    return TrainingAnswerer().answer(decode(scenario))


@cache
def plain() -> Answer:
    return asked({"task": "sft", "micro_batch": 2, "global_batch": 16})


def step(answer: Answer) -> float:
    return answer.metrics["step_time_s"].estimate


@pytest.mark.parametrize("task", ["dpo", "reward"])
def test_pairs_without_a_reference_are_twice_the_sequences_to_the_bit(task: str) -> None:
    work = {"task": task} | ({"reference": False} if task == "dpo" else {})
    assert asked(work).metrics == plain().metrics


def test_a_reference_is_one_forward_pass_of_the_same_tokens() -> None:
    """Forward is between a fifth and a third of forward, again, and backward; its weights, two
    bytes a parameter, are shared by all ranks."""
    with_it = asked({"task": "dpo"})
    share = (step(with_it) - step(plain())) / step(plain())
    assert 0.17 < share < 0.34
    more = with_it.metrics["memory_allocated_gb"].estimate
    more -= plain().metrics["memory_allocated_gb"].estimate
    assert more == pytest.approx(2 * 1.236 / 4, rel=0.01)


def test_adapters_leave_the_reference_in_the_same_weights() -> None:
    without = asked({"task": "dpo", "reference": False}, lora=ADAPTERS)
    beside = asked({"task": "dpo"}, lora=ADAPTERS)
    assert beside.metrics["memory_gb"] == without.metrics["memory_gb"]
    assert step(beside) > step(without)


def test_a_pipeline_fills_and_drains_once() -> None:
    pipeline = {"parallel": {"pp": 2, "dp": 2}, "engine": "megatron"}
    few = asked({"task": "dpo", "global_batch": 8}, **pipeline)
    none = asked({"task": "dpo", "global_batch": 8, "reference": False}, **pipeline)
    many = asked({"task": "dpo", "global_batch": 16}, **pipeline)
    nothing = asked({"task": "dpo", "global_batch": 16, "reference": False}, **pipeline)
    # (m + 1) passes of the slowest stage: 4 + 1 and 8 + 1
    assert (step(many) - step(nothing)) / (step(few) - step(none)) == pytest.approx(9 / 5, rel=0.01)


def test_a_larger_teacher_costs_more_than_a_smaller_one() -> None:
    small, large = (
        asked({"task": "distillation", "reference": name}) for name in (MODEL, "Llama-3.1-8B")
    )
    assert step(large) > step(small)
    more = large.metrics["memory_gb"].estimate - small.metrics["memory_gb"].estimate
    assert more == pytest.approx(2 * (8.03 - 1.236) / 4, rel=0.02)


@pytest.mark.parametrize(
    ("work", "said"),
    [
        ({"task": "distillation"}, "names no teacher"),
        ({"task": "sft", "reference": True}, "has no reference"),
        ({"task": "dpo", "reference": "no such model"}, "workload.reference"),
    ],
)
def test_a_reference_that_cannot_be_is_refused(work: dict[str, Any], said: str) -> None:
    with pytest.raises(SilicastError, match=said):
        asked(work)


def test_weights_of_few_bits_under_adapters_are_held_so_and_made_wide() -> None:
    one = {"cluster": {"gpus": 1}, "lora": ADAPTERS}
    wide = asked({"task": "lora", "global_batch": 1}, **one)
    packed = asked({"task": "lora", "global_batch": 1}, precision={"weights": "nf4"}, **one)
    less = wide.why["memory_gb"]["weights"] - packed.why["memory_gb"]["weights"]
    # 16 layers of 60,817,408 parameters in products, at 4 bits and 8 of scale for each 64
    assert less == pytest.approx(16 * 60_817_408 * (16 - 4.125) / 8 / 1e9, rel=1e-3)
    assert step(packed) > step(wide)


def test_weights_of_few_bits_are_not_trained() -> None:
    with pytest.raises(SilicastError, match="are not trained"):
        asked({"task": "sft"}, precision={"weights": "nf4"})


def test_documents_as_long_as_a_row_are_the_plain_run_to_the_bit() -> None:
    alone = asked({"task": "sft", "micro_batch": 2, "global_batch": 16, "lengths": 2048})
    assert alone.metrics.pop("padded_share").estimate == 0.0
    assert alone.metrics == plain().metrics


def test_documents_of_one_length_are_a_run_of_that_length_to_the_bit() -> None:
    rows = asked({"task": "sft", "lengths": 512})
    short = asked({"task": "sft", "seq_len": 512, "micro_batch": 4, "global_batch": 32})
    rows.metrics.pop("padded_share")
    assert rows.metrics == short.metrics


def test_padding_costs_more_than_packing_and_wastes_more() -> None:
    spread = {"kind": "lognormal", "median": 400, "sigma": 1.0, "max": 2048}
    work = {"task": "sft", "lengths": spread, "global_batch": 32, "micro_batch": 4}
    packs = asked(work)
    pads = asked({**work, "packing": "padded"})
    assert packs.metrics["padded_share"].estimate < 0.02
    assert pads.metrics["padded_share"].estimate > 0.3
    per_token = [
        (1 - each.metrics["padded_share"].estimate) * each.metrics["tokens_per_s_per_gpu"].estimate
        for each in (packs, pads)
    ]
    assert per_token[0] > 1.3 * per_token[1]
    assert pads.why["lengths"]["slowest_rank"] > packs.why["lengths"]["slowest_rank"]
    # memory holds the longest micro-batch
    longest = asked({"task": "sft", "global_batch": 32, "micro_batch": 4})
    assert pads.metrics["memory_gb"] == longest.metrics["memory_gb"]


def test_packing_without_lengths_is_refused() -> None:
    with pytest.raises(SilicastError, match=r"means nothing without workload\.lengths"):
        asked({"packing": "packed"})


def test_an_allocator_that_grows_in_pages_loses_little() -> None:
    usual, paged = (
        asked(engine={"name": "fsdp", "options": {"expandable_segments": on}}).metrics
        for on in (False, True)
    )
    assert paged["memory_allocated_gb"] == usual["memory_allocated_gb"]
    lost = (paged["memory_reserved_gb"].estimate - paged["memory_allocated_gb"].estimate) * 1e9
    assert 0 < lost <= 2 * 22 * 2**20 + 1
    assert paged["memory_reserved_gb"].estimate < usual["memory_reserved_gb"].estimate


def test_a_loss_that_holds_another_copy_of_its_logits() -> None:
    one, two = (
        asked(
            {"micro_batch": 4, "global_batch": 16},
            engine={"name": "fsdp", "options": {"loss_copies": copies}},
        )
        for copies in (1, 2)
    )
    more = two.metrics["memory_allocated_gb"].estimate - one.metrics["memory_allocated_gb"].estimate
    assert more == pytest.approx(4 * 2048 * 128_256 * 4 / 1e9, rel=1e-6)
