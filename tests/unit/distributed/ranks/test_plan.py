"""Rank groups of training plans."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.core.errors import SilicastError
from silicast.distributed.ranks.plan import Axis, TrainingPlan

AXES: tuple[Axis, ...] = (
    "tp", "cp", "dp", "pp", "dp_cp", "etp", "ep", "edp", "edp_shard", "shard", "replicate",
)  # fmt: skip


@st.composite
def plans(draw: st.DrawFn) -> TrainingPlan:
    tp, cp, dp, pp = (draw(st.sampled_from((1, 2, 3, 4))) for _ in range(4))
    ranks = tp * cp * dp
    ep = draw(st.sampled_from([d for d in range(1, ranks + 1) if ranks % d == 0]))
    etp = draw(st.sampled_from([d for d in range(1, ranks // ep + 1) if ranks // ep % d == 0]))
    shard = draw(st.sampled_from([d for d in range(1, dp * cp + 1) if dp * cp % d == 0]))
    return TrainingPlan(tp=tp, cp=cp, dp=dp, pp=pp, ep=ep, etp=etp, shard=shard)


@given(plans(), st.sampled_from(AXES))
def test_groups_of_an_axis_hold_every_rank_once(plan: TrainingPlan, axis: Axis) -> None:
    groups = {plan.members(axis, rank) for rank in range(plan.gpus)}
    assert sorted(rank for group in groups for rank in group) == list(range(plan.gpus))
    assert {len(group) for group in groups} == {plan.group(axis).size}


@given(plans())
def test_axes_make_up_the_ranks_of_a_stage(plan: TrainingPlan) -> None:
    def product(*axes: Axis) -> int:
        sizes = 1
        for axis in axes:
            sizes *= plan.group(axis).size
        return sizes

    assert product("tp", "cp", "dp") == product("etp", "ep", "edp") == plan.stage_ranks
    assert product("shard", "replicate") == product("cp", "dp") == product("dp_cp")
    assert plan.gpus == plan.stage_ranks * plan.pp


def test_copies_of_experts_share_states_within_a_group_of_sharded_ranks() -> None:
    """Megatron-Core's instances of the distributed optimizer (parallel_state.py): 8 GPUs of tp 2,
    ep 2, etp 2 hold each expert twice; two instances leave each copy its own states.
    """

    def sharing(shard: int, **degrees: Any) -> int:
        return TrainingPlan(tp=2, dp=4, zero=1, shard=shard, **degrees).group("edp_shard").size

    assert [sharing(shard, ep=2, etp=2) for shard in (0, 2, 1)] == [2, 1, 1]
    assert [sharing(shard, ep=2) for shard in (0, 2, 1)] == [4, 2, 1]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"dp": 3, "ep": 2}, "parallel.ep"), ({"dp": 4, "shard": 3}, "parallel.shard"),
        ({"virtual_stages": 2}, "parallel.virtual_stages"), ({"tp": 0}, "parallel.tp"),
    ],
)  # fmt: skip
def test_degrees_that_do_not_fit_are_named(fields: dict[str, int], field: str) -> None:
    with pytest.raises(SilicastError) as caught:
        TrainingPlan(**fields)  # type: ignore[arg-type]
    assert caught.value.field == field
