"""One power law: a kernel alone, in a program and in an engine's step slows down alike."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.program import predict_program
from silicast.composition.step.machine import Machine
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import StepModel
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.implementation import Implementation
from silicast.kernels.physics import power
from silicast.kernels.physics.held_clock import Slowing
from silicast.kernels.registry import implementation_for
from silicast.learning.dispatch import time_of
from silicast.learning.tiers import kernel_times
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.op import Op, OpBatch, Variant
from silicast.workload.models.lookup import find_model
from silicast.workload.models.precision import Precision
from silicast.workload.transformers.plan import Plan
from tests.sampling import examples

FEW = examples(60)
BOARDS = {
    **{name: find_device(name) for name in ("L4", "L40S", "T4", "P4", "A40", "H100")},
    "H100 under a limit": replace(find_device("H100"), power_cap_w=350.0),
}
SIXTEEN = {"T4": "fp16", "P4": "fp16"}
"""Formats of boards that have no bf16."""


@lru_cache(maxsize=64)
def machine(board: str) -> Machine:
    """The board under an engine whose host takes no time."""
    engine = find_engine("torch-eager")
    host = msgspec.structs.replace(
        engine.host, dispatch_us=0.0, between_us=0.0, step_us=0.0, gap_us=0.0
    )
    table = msgspec.structs.replace(engine.launch, prefill="graph", decode="graph")
    return Machine(BOARDS[board], msgspec.structs.replace(engine, host=host, launch=table))


@st.composite
def ops(draw: st.DrawFn, sixteen: str) -> Op:
    """Kernels that take long enough to heat a board."""
    size = st.integers(2048, 16384)
    kind = draw(st.sampled_from(("product", "product fp32", "prefill", "decode", "norm")))
    if kind.startswith("product"):
        dtype = "fp32" if kind.endswith("fp32") else sixteen
        return Op.make("gemm", Variant(dtype), m=draw(size), n=draw(size), k=draw(size), batch=1)
    heads = {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128}
    if kind == "prefill":
        length = draw(size)
        variant = Variant(sixteen, flags=(("causal", True),))
        return Op.make("attention_prefill", variant, q_len=(length,), kv_len=(length,), **heads)
    if kind == "decode":
        length = draw(size)
        return Op.make("attention_decode", Variant(sixteen), kv_len=length, batch=64, **heads)
    return Op.make("rmsnorm", Variant(sixteen), tokens=draw(size), hidden=8192, residual=0)


@st.composite
def kernels(draw: st.DrawFn) -> tuple[str, Op]:
    board = draw(st.sampled_from(sorted(BOARDS)))
    return board, draw(ops(SIXTEEN.get(board, "bf16")))


def alone(op: Op, device: Device) -> float:
    return time_of(op, device).estimate_s


@given(kernels())
@FEW
def test_a_kernel_takes_as_long_in_a_program_as_on_a_hot_board(drawn: tuple[str, Op]) -> None:
    board, op = drawn
    nodes = tuple(Node(f"n{i}", op, output_bytes=1 << 20) for i in range(3))
    program = predict_program(machine(board), Graph("same", (Block("forward", nodes),)))
    inside, run = program.times.nodes.time_s[0, 0], program.model.graph.nodes[0].op
    # a kernel holds its clock by its modelled time, a program by times that are corrected
    assert inside == pytest.approx(alone(run, BOARDS[board].in_state("hot")), rel=1e-2)


@given(kernels())
@FEW
def test_boost_is_quickest_and_a_hot_board_slowest(drawn: tuple[str, Op]) -> None:
    board, op = drawn
    boost, cool, hot = (
        alone(op, BOARDS[board].in_state(state)) for state in ("boost", "cool", "hot")
    )
    assert boost <= cool <= hot * (1.0 + 1e-12)
    assert hot <= boost / power.MIN_CLOCK_SHARE


@given(kernels(), st.floats(0.4, 1.0))
@FEW
def test_a_lower_limit_never_makes_a_kernel_quicker(drawn: tuple[str, Op], share: float) -> None:
    board, op = drawn
    device = BOARDS[board].in_state("hot")
    assert device.power_cap_w is not None
    weak = replace(device, power_cap_w=share * device.power_cap_w)
    assert alone(op, weak) >= alone(op, device) * (1.0 - 1e-12)


@given(st.lists(kernels(), min_size=2, max_size=6))
@FEW
def test_a_kernel_is_slowed_alike_alone_and_in_a_batch(drawn: list[tuple[str, Op]]) -> None:
    board = drawn[0][0]
    groups: dict[tuple[str, Variant], list[Op]] = {}
    for _, op in (each for each in drawn if SIXTEEN.get(each[0]) == SIXTEEN.get(board)):
        groups.setdefault((op.family, op.variant), []).append(op)
    for (family, _), same in groups.items():
        model = implementation_for(family, "simt")
        assert model is not None
        for state in ("cool", "hot"):
            device = BOARDS[board].in_state(state)
            many = kernel_times(model, OpBatch.from_ops(same), device)
            for row, op in enumerate(same):
                one = kernel_times(model, OpBatch.single(op), device)
                assert many.estimate_s[row] == one.estimate_s


@pytest.mark.parametrize("board", ["L4", "L40S", "A40", "H100", "H100 under a limit"])
def test_every_kernel_of_a_step_is_slowed_by_the_law_of_kernels(board: str) -> None:
    deployment = Deployment.from_model(
        model=find_model("Llama-3.1-8B"), device=BOARDS[board], engine=find_engine("vllm"),
        plan=Plan(), precision=Precision.from_formats(recipe="bf16"),
    )  # fmt: skip
    model = StepModel.from_deployment(deployment)
    states = BatchStates.prefill([8192])
    boosted = model.steps(states)
    hz = model.held_clock(boosted, states, 0)
    held = model.at_clock(boosted, states, hz, np.zeros(1, dtype=np.int64))
    device = model.machine.boosted_device
    share = hz / power.top_hz(device)
    work = model.work(boosted, np.zeros(1, dtype=np.int64))
    joules = float(work.core_j[0] + work.memory_j[0])
    assert share < 1.0 or joules / float(boosted.total_s[0]) < BOARDS[board].power_cap_w  # type: ignore[operator]
    checked = 0
    for call in boosted.nodes.calls:
        if call.batch is None or share == 1.0:
            continue
        implementation = implementation_for(call.batch.family, "simt")
        assert implementation is not None
        batch, analysis_s = call.batch, call.times.analysis.time_s  # type: ignore[union-attr]

        def at(rows: OpBatch, slow: Device, model: Implementation = implementation) -> F64:
            return model.times(rows, slow).analysis.time_s

        slowing = Slowing(batch, device, analysis_s, at)
        factor = slowing.at_shares(np.full(len(batch), share))
        for position, index in enumerate(call.members):
            current = np.ravel(factor)[int(call.ops[position]) * call.count]
            assert held.nodes.time_s[index, 0] == pytest.approx(
                boosted.nodes.time_s[index, 0] * current, rel=5e-3
            )
            checked += 1
    assert checked > 5 or share == 1.0


@FEW
@given(
    st.sampled_from(["H100", "A100", "B200", "L40S", "MI300X"]),
    st.floats(0.25, 1.0),
    st.integers(12, 17),
)
def test_a_limit_slows_streams_about_in_proportion(name: str, share: float, rows: int) -> None:
    """If all slows alike, so does the power: at least half of that clock is held."""
    device = find_device(name)
    assert device.power_cap_w is not None
    known = power.board(device, "bf16")
    limit_w = max(share * device.power_cap_w, 1.2 * known.idle_w)
    limited = replace(device, power_cap_w=limit_w, idle_power_w=known.idle_w)
    op = Op.make("rmsnorm", Variant("bf16"), tokens=1 << rows, hidden=8192, residual=0)
    model = implementation_for("rmsnorm", "simt")
    assert model is not None
    batch = OpBatch.single(op)
    free, held = (
        float(kernel_times(model, batch, each.in_state("hot")).estimate_s)
        for each in (device, limited)
    )
    budget = (device.power_cap_w - known.idle_w) / (limit_w - known.idle_w)
    assert free * (1 - 1e-9) <= held <= 2.0 * free * max(budget, 1.0) * 1.02


@FEW
@given(
    name=st.sampled_from(("L4", "L40S", "MI300X", "H100", "A100-SXM-80GB")),
    dtype=st.sampled_from(("nvfp4", "mxfp4")),
    size=st.integers(2048, 16384),
)
def test_what_computes_a_format_draws_the_power(name: str, dtype: str, size: int) -> None:
    """4-bit operands on a board without units for them take what 4-bit weights that are widened
    on the way to the same units do, a few bytes of scales aside.
    """
    device = find_device(name)
    assert power.board(device, dtype) == power.board(device, "bf16")
    fallback, widened = (
        time_of(Op.make("gemm", Variant(x), m=size, n=14336, k=4096), device)
        for x in (dtype, "w4a16_mxfp4")
    )
    assert fallback.estimate_s == pytest.approx(widened.estimate_s, rel=0.01)
    assert fallback.energy_j is not None
    assert widened.energy_j is not None
    assert fallback.energy_j.estimate == pytest.approx(widened.energy_j.estimate, rel=0.01)
