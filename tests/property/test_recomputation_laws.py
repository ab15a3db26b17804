"""Modules that run again: a step takes longer by them, never as much as by everything."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.scenario.answers.training.training_runs import run_of
from silicast.scenario.decode import decode
from silicast.workload.training.recomputation import MODULES
from tests.sampling import examples


@cache
def step(model: str, recompute: str) -> tuple[int, float]:
    """Picoseconds of a step on one micro-batch, and bytes of the rank that needs most."""
    result = run_of(decode({
        "format": 1, "task": "training", "model": model, "device": "H100",
        "cluster": {"gpus": 8}, "parallel": {"tp": 2, "ep": 4} if "x" in model else {"tp": 2},
        "workload": {
            "seq_len": 2048, "micro_batch": 1, "global_batch": 4, "recompute": recompute,
        },
    }))  # fmt: skip
    assert result.recompute == recompute
    return result.step.part.exposed_ps, result.memory.quantity.estimate


@pytest.mark.parametrize("model", ["Llama-3.2-1B", "Mixtral-8x7B"])
@examples(12)
@given(
    modules=st.lists(st.sampled_from(sorted(MODULES)), min_size=1, max_size=4, unique=True),
    more=st.sampled_from(sorted(MODULES)),
)
def test_a_module_lies_between_nothing_and_everything(
    model: str, modules: list[str], more: str
) -> None:
    none, full = step(model, "none"), step(model, "full")
    some = step(model, f"selective:{'+'.join(modules)}")
    wider = step(model, f"selective:{'+'.join(dict.fromkeys((*modules, more)))}")
    assert none[0] <= some[0] <= wider[0] <= full[0]
    assert none[1] >= some[1] >= wider[1] >= full[1]


@pytest.mark.parametrize(
    ("model", "module"),
    [
        ("Llama-3.2-1B", "core_attn"), ("Llama-3.2-1B", "layernorm"), ("Llama-3.2-1B", "mlp"),
        ("Mixtral-8x7B", "moe_act"), ("Mixtral-8x7B", "moe"),
    ],
)  # fmt: skip
def test_a_module_of_the_model_costs_time_and_saves_memory(model: str, module: str) -> None:
    none, some = step(model, "none"), step(model, f"selective:{module}")
    assert none[0] < some[0] < step(model, "full")[0]
    assert none[1] > some[1]


def test_selective_is_the_core_of_attention() -> None:
    assert step("Llama-3.2-1B", "selective") == step("Llama-3.2-1B", "selective:core_attn")
