"""Traced kernels at another batch and on one of several GPUs, by hand."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from silicast.app.cli import main
from silicast.core.errors import SilicastError
from silicast.core.prediction import Quantity
from silicast.measurement.what_if.changed_run import (
    ParallelPlan,
    TracedSizes,
    at_batch,
    batch_ratio,
    shard,
)
from silicast.measurement.what_if.scaled_trace import (
    BACKWARD_SHARE,
    ScaledOp,
    ScaledTrace,
    inserted,
    scaled_trace,
)
from silicast.scenario.answer import Answer
from silicast.scenario.run import reply_to
from tests.unit.measurement.importers import samples as s

NORM = {"op": "rmsnorm", "tokens": 256, "hidden": 512, "dtype": "bf16"}
UP = {"op": "gemm", "m": 256, "n": 2048, "k": 512, "dtype": "bf16"}
DOWN = {"op": "gemm", "m": 256, "n": 512, "k": 2048, "dtype": "bf16"}
UP_GRADIENT = {"op": "gemm", "m": 2048, "n": 512, "k": 256, "dtype": "bf16"}
SCORES = {"op": "gemm", "batch": 16, "m": 128, "n": 128, "k": 64, "dtype": "bf16"}
ATTENTION = {
    "op": "attention_prefill",
    "batch": 2,
    "q_len": 128,
    "kv_len": 128,
    "num_heads": 8,
    "num_kv_heads": 2,
    "head_dim": 64,
    "dtype": "bf16",
}
GELU = {"op": "elementwise", "kind": "gelu", "elements": 256 * 2048, "dtype": "bf16"}
RESIDUAL = {"op": "elementwise", "kind": "add", "elements": 256 * 512, "dtype": "bf16"}
SIZES = TracedSizes.from_kernels([(NORM, 9), (ATTENTION, 4), (UP, 4)])


def test_a_trace_says_its_tokens_width_and_layers() -> None:
    assert TracedSizes(frozenset({256}), 512, 4, 0) == SIZES
    trained = [(NORM, 2), ({"op": "softmax", "rows": 4, "cols": 4}, 3)]
    assert TracedSizes.from_kernels(trained).layers == 3
    assert TracedSizes.from_kernels([(UP, 1)]) == TracedSizes(frozenset(), 0, 0, 0)


@pytest.mark.parametrize(
    ("kernel", "grown"),
    [
        (UP, {"m": 768}),
        (UP_GRADIENT, {"k": 768}),
        (SCORES, {"batch": 48}),
        (NORM, {"tokens": 768}),
        (GELU, {"elements": 3 * 256 * 2048}),
        (ATTENTION, {"batch": 6}),
        ({"op": "attention_prefill", "q_lens": [5, 7]}, {"q_lens": [5, 7] * 3}),
        ({"op": "optimizer", "elements": 9}, {}),
    ],
)
def test_a_batch_grows_tokens_and_leaves_weights(
    kernel: dict[str, Any], grown: dict[str, Any]
) -> None:
    assert at_batch(kernel, Fraction(3), SIZES) == kernel | grown


def test_a_part_of_a_sequence_is_named() -> None:
    assert "m = 256 is not of whole" in str(at_batch(UP, Fraction(1, 3), SIZES))
    assert "listed lengths" in str(at_batch({"op": "x", "q_lens": [3]}, Fraction(1, 3), SIZES))
    assert "no size of it" in str(at_batch({"op": "mystery"}, Fraction(2), SIZES))


@pytest.mark.parametrize(
    ("kernel", "cut"),
    [
        (UP, {"n": 1024}),
        (DOWN, {"k": 1024}),
        (UP_GRADIENT, {"m": 1024}),
        (SCORES, {"batch": 8}),
        ({**UP_GRADIENT, "m": 512, "n": 2048}, {"n": 1024}),
        (NORM, {}),
        (RESIDUAL, {}),
        (GELU, {"elements": 256 * 1024}),
        (ATTENTION, {"num_heads": 4, "num_kv_heads": 1}),
        ({"op": "moe", "tokens": 8}, {"tp": 2}),
        ({"op": "silu_mul", "width": 8}, {"width": 4}),
        ({"op": "optimizer", "elements": 9}, {"elements": 5}),
    ],
)
def test_a_tensor_rank_has_its_share_of_heads_and_widths(
    kernel: dict[str, Any], cut: dict[str, Any]
) -> None:
    assert shard(kernel, 2, SIZES) == kernel | cut
    assert shard(kernel, 1, SIZES) == kernel


def test_key_heads_are_copied_where_ranks_are_more() -> None:
    assert shard(ATTENTION, 8, SIZES)["num_kv_heads"] == 1
    with pytest.raises(SilicastError, match="tp = 3 does not divide num_heads = 8"):
        shard(ATTENTION, 3, SIZES)


@pytest.mark.parametrize("text", ["tp=0", "ep=2", "tp", "tp=2,tp=2", "tp=-1", "tp=1.5"])
def test_a_wrong_plan_is_refused(text: str) -> None:
    with pytest.raises(SilicastError, match="micro_batches=N"):
        ParallelPlan.parse(text)


@pytest.mark.parametrize("text", ["8", "0:4", "4:0", "a:b", "4:-8", ":"])
def test_a_wrong_batch_is_refused(text: str) -> None:
    with pytest.raises(SilicastError, match="found"):
        batch_ratio(text)


def collective_us(op: str, size: int, gpus: int) -> float:
    workload = {"op": op, "bytes": size, "gpus": gpus}
    reply = reply_to({"task": "collective", "device": "H100", "workload": workload})
    assert isinstance(reply, Answer)
    return reply.metrics["latency_us"].estimate


def test_tensor_ranks_sum_twice_a_layer_and_direction() -> None:
    sizes = TracedSizes(frozenset({256}), 512, 4, 4)
    (sums,) = inserted(ParallelPlan(tp=2), sizes, "H100", 0, {"bf16"}, 1e3)
    assert (sums.bytes, sums.launches) == (256 * 512 * 2, 16)
    assert sums.exposed_us.estimate == pytest.approx(16 * collective_us("all_reduce", 262144, 2))


def test_stages_hand_on_all_but_the_last_turn() -> None:
    plan = ParallelPlan(pp=4, micro_batches=8)
    (sent,) = inserted(plan, SIZES, "H100", 0, {"fp32"}, 1e3)
    assert (sent.bytes, sent.launches, sent.gpus) == (256 * 512 * 4, 10, 2)


def test_gradients_hide_behind_the_backward_pass_but_for_the_last_bucket() -> None:
    size, last = 1 << 30, 25 << 20
    for kernels_us in (0.0, 3000.0, 1e9):
        (sums,) = inserted(ParallelPlan(dp=8), SIZES, "H100", size, {"bf16"}, kernels_us)
        whole = collective_us("all_reduce", size, 8) - BACKWARD_SHARE * kernels_us
        expected = max(whole, collective_us("all_reduce", last, 8))
        assert sums.exposed_us.estimate == pytest.approx(expected)
    assert inserted(ParallelPlan(dp=8), SIZES, "H100", 0, {"bf16"}, 1.0) == ()
    plan = ParallelPlan(dp=8, tp=2, pp=4, micro_batches=8)
    *_, shared = inserted(plan, SIZES, "H100", size, {"bf16"}, 1e3)
    assert shared.bytes == size // 8, "ranks of tensors and stages hold a part each"
    assert SIZES.gradient_bytes(UP_GRADIENT) == 2048 * 512 * 2
    assert SIZES.gradient_bytes(UP) == 0


def test_a_plan_needs_what_its_gpus_send() -> None:
    with pytest.raises(SilicastError, match="what GPUs send is not known"):
        inserted(ParallelPlan(tp=2), TracedSizes(frozenset(), 0, 0, 0), "H100", 0, (), 1.0)


def test_the_same_batch_and_one_gpu_change_nothing(tmp_path: Path) -> None:
    trace = s.written(tmp_path, "trace.json", s.gpu_trace())
    plain = scaled_trace(trace, "A100")
    assert scaled_trace(trace, "A100", batch="7:7", plan="tp=1") == plain
    twice = scaled_trace(trace, "H100", batch="1:2")
    assert twice.scaled_us.estimate > plain.measured_us


def test_a_pipeline_fills_and_drains(tmp_path: Path) -> None:
    """Stages of a quarter each: (m + 3) / 4 of the whole, for m micro-batches."""
    from dataclasses import replace

    trace = s.written(tmp_path, "trace.json", s.gpu_trace())
    one = scaled_trace(trace, "H100")
    four = replace(one, plan=ParallelPlan(pp=4, micro_batches=5))
    assert one.wall_us is not None
    assert four.wall_us is not None
    assert four.wall_us[1].estimate == pytest.approx(2.0 * one.wall_us[1].estimate)


@pytest.mark.parametrize(
    ("pp", "micro_batches", "wall_us"),
    [
        (1, 1, 20.0 + 0.5 * 80.0 + 0.5 * 40.0),
        (1, 8, 8 * (20.0 + 0.5 * 80.0) + 0.5 * 40.0),
        (4, 5, 2 * (20.0 + 0.5 * 80.0) + 0.5 * 10.0),
    ],
)
def test_an_optimizer_steps_once_on_the_weights_of_a_stage(
    pp: int, micro_batches: int, wall_us: float
) -> None:
    """20 us without kernels, 80 us of products and 40 us of an update, of which half overlap."""
    ops = tuple(
        ScaledOp(op, 1, us, Quantity(us, us, us)) for op, us in (("gemm", 80.0), ("optimizer", 40))
    )
    plan = ParallelPlan(pp=pp, micro_batches=micro_batches)
    run = ScaledTrace("A100", "A100", ops, (), 120.0, Quantity(120, 120, 120), 20.0, 0.5, plan)
    assert run.wall_us is not None
    assert run.wall_us[0] == 80.0
    assert run.wall_us[1].estimate == pytest.approx(wall_us)


def test_the_command_takes_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(s.written(tmp_path, "trace.json", s.gpu_trace()))
    options = ["--device", "A100", "--batch", "1:4", "--plan", "dp=2", "--json"]
    assert main(["whatif", trace, *options]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["gpus"], answer["collectives"]) == (2, [])
    assert main(["whatif", trace, "--device", "A100", "--plan", "tp=x"]) == 2
    assert "plan: expected tp=N" in capsys.readouterr().err


def test_rows_that_nothing_tells_are_said_to_be_tokens(tmp_path: Path) -> None:
    """The trace has products and attention, and no norm, lookup or rotation."""
    trace = s.written(tmp_path, "trace.json", s.gpu_trace())
    assert scaled_trace(trace, "a100", batch="1:2").rows_assumed
    assert not scaled_trace(trace, "a100").rows_assumed
