"""Copies of experts: what ranks hold, and what engines' options say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from silicast.composition.engines.engine import Engine, find_engine
from silicast.composition.engines.engine_options import with_options
from silicast.composition.passes.deployment import with_copies, without_copies
from silicast.core.errors import SilicastError
from silicast.kernels.experts.routing import busiest_loads
from silicast.workload.models.counting import weight_bytes
from silicast.workload.models.lookup import find_model
from silicast.workload.models.model import ModelConfig
from silicast.workload.transformers.plan import Plan

MODEL = find_model("DeepSeek-V3")


def wide(ranks: int) -> Plan:
    return Plan(attention_dp=ranks, ep=ranks)


def held(engine: str, options: dict[str, int], plan: Plan, model: ModelConfig = MODEL) -> int:
    result, _ = with_copies(model, plan, with_options(find_engine(engine), options))
    assert result.moe is not None
    return result.moe.held


@pytest.mark.parametrize(
    ("engine", "option", "value"),
    [("vllm", "num_redundant_experts", 32), ("sglang", "ep_num_redundant_experts", 32),
     ("trtllm", "num_slots", 288)],
)  # fmt: skip
def test_each_engine_says_it_by_its_own_flag(engine: str, option: str, value: int) -> None:
    assert held(engine, {option: value}, wide(48)) == 288
    assert held(engine, {option: value}, wide(32)) == 288


@pytest.mark.parametrize("ranks", [3, 8, 48, 72, 320])
def test_without_options_the_fewest_that_ranks_share_evenly(ranks: int) -> None:
    engine = find_engine("sglang")
    result, remark = with_copies(MODEL, wide(ranks), engine)
    assert result.moe is not None
    assert result.moe.held % ranks == 0
    assert result.moe.copies < ranks
    assert bool(remark) == bool(result.moe.copies)
    assert without_copies(result) == MODEL


def test_copies_take_memory_of_every_rank() -> None:
    def held_bytes(copies: int) -> float:
        assert MODEL.moe is not None
        model = replace(MODEL, moe=replace(MODEL.moe, copies=copies))
        return weight_bytes(model, wide(32), model.default_precision)

    one, two = held_bytes(32) - held_bytes(0), held_bytes(64) - held_bytes(0)
    assert one > 0.0
    assert two == pytest.approx(2.0 * one)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"num_slots": 255}, "255 places for 256"), ({"num_slots": 300}, "evenly"),
     ({"num_redundant_experts": 5}, "evenly")],
)  # fmt: skip
def test_numbers_that_cannot_be_are_refused(options: dict[str, int], said: str) -> None:
    with pytest.raises(SilicastError, match=said):
        held("trtllm", options, wide(48))


def test_the_busiest_rank_of_popular_experts_gets_fewer_tokens() -> None:
    popular = find_model("gpt-oss-120b")
    assert popular.moe is not None
    shares = []
    for copies in (0, 8):
        moe = replace(popular.moe, copies=copies)
        sizes = [np.array([n]) for n in (4096, moe.held, moe.topk, 8)]
        shares.append(float(busiest_loads(moe.spread, *sizes).tokens()[0]))
    assert 4096 * popular.moe.topk / 8 <= shares[1] < 0.9 * shares[0]


def test_a_model_without_experts_has_none_to_copy() -> None:
    engine: Engine = with_options(find_engine("vllm"), {"num_redundant_experts": 8})
    dense = find_model("Llama-3.1-8B")
    assert with_copies(dense, Plan(), engine) == (
        dense, ["engine.options: Llama-3.1-8B has no experts to copy"],
    )  # fmt: skip
