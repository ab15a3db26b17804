"""Laws of what data ranks exchange beside a training step: overlap and hybrid sharding."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer
from silicast.scenario.decode import decode
from silicast.scenario.run import run
from tests.sampling import examples

NODE = 8
SLOW = {"bandwidth_gb_per_s": 3.0, "latency_us": 5.0}


def asked(
    overlap: Any = None,
    *,
    gpus: int = 32,
    network: dict[str, float] | None = None,
    options: dict[str, Any] | None = None,
    work: dict[str, Any] | None = None,
    **parallel: int,
) -> Answer:
    workload = {"seq_len": 2048, "micro_batch": 1, "global_batch": gpus, "recompute": "none"}
    return run(
        decode(
            {
                "format": 1,
                "task": "training",
                "model": "Llama-3.2-1B",
                "device": "A100",
                "engine": {"name": "fsdp", "options": options or {}},
                "parallel": {"dp": gpus, "zero": 3, **parallel},
                "cluster": {"gpus": gpus, "gpus_per_node": NODE, "inter_node": network or SLOW},
                "workload": {**workload, "overlap": overlap, **(work or {})},
            }
        )
    )


def step_s(answer: Answer) -> float:
    return answer.metrics["step_time_s"].estimate


networks = st.builds(
    lambda rate: {"bandwidth_gb_per_s": rate, "latency_us": 5.0}, st.floats(1.0, 50.0)
)
plans = st.sampled_from(
    [{"zero": 3}, {"zero": 3, "shard": NODE}, {"zero": 1}, {"zero": 2}, {"zero": 0}]
)


@examples(6)
@given(networks, plans, st.sampled_from([1, 2]))
def test_overlap_never_costs_time(
    network: dict[str, float], plan: dict[str, Any], passes: int
) -> None:
    work: dict[str, Any] = {"global_batch": 32 * passes}
    together, none = (
        step_s(asked(overlap, network=network, work=work, **plan)) for overlap in (True, False)
    )
    assert together <= none


def test_of_sharded_weights_each_overlap_matters() -> None:
    together, gradients, weights, none = (
        step_s(asked(overlap)) for overlap in (True, ["gradients"], ["weights"], False)
    )
    assert together < weights < none
    assert gradients == none, "a gather that is not ahead stands behind the sum on its communicator"
    replicas, alone = (step_s(asked(overlap, shard=NODE)) for overlap in (["gradients"], False))
    assert replicas < alone, "sums over replicas have a communicator of their own"


def test_copies_of_weights_and_gradients_take_the_time_of_memory() -> None:
    """Engine fsdp copies weights out before either pass of a layer, and gradients in once."""
    wide, narrow = (asked(options={"gradient_format": name}) for name in ("fp32", "bf16"))
    for answer in (wide, narrow):
        assert "weights_all_gather_copied" in str(answer.why)
        assert "weights_all_gather_again_copied" in str(answer.why)
    assert "gradients_copied" in str(narrow.why)
    assert "gradients_copied" not in str(asked(gpus=1, dp=1).why)


def test_a_compiler_takes_away_what_eager_layers_launch() -> None:
    eager, compiled = (
        asked(options={"compile": chosen}, work={"seq_len": 8192}) for chosen in (False, True)
    )
    assert step_s(compiled) < step_s(eager)
    assert "input_norm_square" in str(eager.why)
    assert "input_norm_square" not in str(compiled.why)


@examples(4)
@given(st.floats(0.5, 4.0), st.sampled_from([16, 32, 64]))
def test_hybrid_sharding_is_quicker_where_links_between_nodes_limit(rate: float, gpus: int) -> None:
    network = {"bandwidth_gb_per_s": rate, "latency_us": 5.0}
    full = asked(gpus=gpus, network=network)
    hybrid = asked(gpus=gpus, network=network, shard=NODE)
    assert step_s(hybrid) <= step_s(full)


def test_replicas_sum_behind_the_ranks_that_share() -> None:
    """The sum over replicas is of a shard: one node's ranks have nothing to add."""
    one = asked(gpus=NODE, shard=NODE)
    assert "gradients_replicas" not in str(one.why)
    assert "gradients_replicas" in str(asked(shard=NODE).why)


def test_weights_that_stay_are_gathered_once_and_take_memory() -> None:
    again, stay = asked(), asked(options={"reshard_after_forward": False})
    assert step_s(stay) < step_s(again)
    more = stay.metrics["memory_gb"].estimate - again.metrics["memory_gb"].estimate
    assert 1.5 < more < 2.5, "1.24 billion parameters in 16 bits, less two layers"
    assert "weights_all_gather_again" not in str(stay.why)


def test_sums_in_32_bits_move_twice_as_much() -> None:
    narrow, wide = (asked(False, options={"gradient_format": name}) for name in ("bf16", "fp32"))
    assert step_s(wide) > step_s(narrow)
    with pytest.raises(SilicastError) as error:
        asked(options={"gradient_format": "fp8"})
    assert error.value.field == "engine.options.gradient_format"


def test_every_second_layer_is_between_none_and_all() -> None:
    none, second, every = (asked(work={"recompute": name}) for name in ("none", "full:2", "full"))
    assert step_s(second) == pytest.approx((step_s(none) + step_s(every)) / 2.0, rel=1e-6)
    assert second.why["recompute_share"] == 0.5
    alone = [
        asked(gpus=1, work={"recompute": name}).metrics["memory_gb"].estimate
        for name in ("none", "full:2", "full")
    ]
    assert alone[0] > alone[1] > alone[2]
    assert step_s(asked(work={"recompute": "full:1"})) == step_s(every)
    with pytest.raises(SilicastError):
        asked(work={"recompute": "full:0"})
