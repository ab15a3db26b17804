"""What a board is given more of makes nothing slower: clock, power limit, bandwidth, cores."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import silicast
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import device_from, device_index
from silicast.hardware.device import Device, PowerState
from silicast.kernels.physics.energy import applies_to, dynamic_w, most_w, waiting_w
from silicast.kernels.physics.held_clock import growth_at
from silicast.kernels.physics.power import MIN_CLOCK_SHARE, board, drawn, top_hz
from silicast.kernels.registry import implementation_for
from silicast.learning.dispatch import time_of
from silicast.learning.tiers import kernel_times
from silicast.workload.graphs.op import Op, OpBatch, Variant
from tests.sampling import examples

SLOWER = 1.01
"""How much longer than before counts as slower: times are evaluated at some clocks only."""
FEW = examples(60)
FULL = examples(10_000)
KINDS = ("product", "prefill", "decode", "experts", "sum", "norm")
STATES: tuple[PowerState, ...] = ("cool", "hot", "boost")


@lru_cache(maxsize=1)
def boards() -> dict[str, Device]:
    """Every board of the catalog that has a law of power."""
    index = device_index()
    devices = (index.get(name) for name in index.names)
    return {device.name: device for device in devices if device.execution_model == "simt"}


def sixteen_bit(device: Device) -> str:
    """A format that its products are in."""
    for dtype in ("bf16", "fp16"):
        if any(device.rate_per_core(pipe, dtype) > 0.0 for pipe in device.matrix_pipes):
            return dtype
    return "fp32"


@st.composite
def ops(draw: st.DrawFn, dtype: str) -> Op:
    """A kernel from one row to the largest."""

    def size(low: float, high: float) -> int:
        return int(2.0 ** draw(st.floats(low, high)))

    kind = draw(st.sampled_from(KINDS))
    heads = {"num_heads": 32, "num_kv_heads": draw(st.sampled_from((8, 32))), "head_dim": 128}
    if kind == "product":
        sizes = {"m": size(0, 14), "n": size(7, 14), "k": size(7, 14)}
        return Op.make("gemm", Variant(dtype), **sizes, batch=1)
    if kind == "prefill":
        length = size(6, 14)
        variant = Variant(dtype, flags=(("causal", True),))
        return Op.make("attention_prefill", variant, q_len=(length,), kv_len=(length,), **heads)
    if kind == "decode":
        sizes = {"kv_len": size(6, 15), "batch": size(0, 8)}
        return Op.make("attention_decode", Variant(dtype), **sizes, **heads)
    if kind == "experts":
        return Op.make(
            "moe", Variant(dtype), tokens=size(0, 14), experts=64, topk=8, hidden=4096,
            intermediate=1536, ep=1, tp=1,
        )  # fmt: skip
    if kind == "sum":
        return Op.make("elementwise", Variant(dtype, kernel="add"), elements=size(10, 28), inputs=2)
    return Op.make("rmsnorm", Variant(dtype), tokens=size(0, 16), hidden=8192, residual=0)


@dataclass(frozen=True)
class Step:
    """The same kernel on a board and on one that is given more of one thing."""

    op: Op
    less: Device
    more: Device


def changed(device: Device, clock: float, limit_w: float | None, bandwidth: float) -> Device:
    """A board as a user describes it by changes of one of the catalog.

    Raises:
        SilicastError: its numbers cannot be true.
    """
    clocks = device.clocks
    mhz = {"boost_mhz": clock * clocks.boost_hz / 1e6, "max_mhz": clock * clocks.max_hz / 1e6}
    if clocks.base_hz:
        mhz["base_mhz"] = min(clocks.base_hz, clock * clocks.boost_hz) / 1e6
    table: dict[str, Any] = {"base": device.name}
    if clock != 1.0:
        table["clocks"] = mhz
    if bandwidth != 1.0:
        rate = bandwidth * device.dram.bandwidth_bytes_per_s / 1e9
        table["memory"] = {"dram": {"bandwidth_gb_per_s": rate}}
    result = device if len(table) == 1 else device_from(table)
    if limit_w is None:
        return result
    return replace(result, power_cap_w=limit_w, idle_power_w=board(device, "fp32").idle_w)


@st.composite
def steps(draw: st.DrawFn) -> Step | None:
    """One more of something; None where no such board can be."""
    device = boards()[draw(st.sampled_from(sorted(boards())))]
    op, state = draw(ops(sixteen_bit(device))), draw(st.sampled_from(STATES))
    factors = st.one_of(st.just(1.0), st.floats(0.6, 2.0))
    clock, limits = draw(factors), st.none()
    if device.power_cap_w is not None:
        idle_w = board(device, "fp32").idle_w
        watts = st.floats(1.02 * idle_w, 2.0 * device.power_cap_w)
        limits = st.one_of(st.none(), watts)
    limit_w, bandwidth = draw(limits), draw(st.one_of(st.just(1.0), st.floats(0.7, 1.5)))
    drawn: dict[str, Any] = {"clock": clock, "limit_w": limit_w, "bandwidth": bandwidth}
    grown = draw(st.sampled_from(("clock", "bandwidth", "limit_w")))
    if grown == "limit_w":
        if limit_w is None or device.power_cap_w is None:
            return None
        other = draw(st.floats(1.02 * board(device, "fp32").idle_w, 2.0 * device.power_cap_w))
    else:
        other = draw(factors)
    less, more = sorted((drawn[grown], other))
    try:
        pair = [changed(device, **{**drawn, grown: each}).in_state(state) for each in (less, more)]
    except SilicastError:
        return None
    return Step(op, *pair)


@st.composite
def steps_of_cores(draw: st.DrawFn) -> Step:
    """A board of the catalog, and the same with more or fewer cores and the limit of that board."""
    device = boards()[draw(st.sampled_from(sorted(boards())))]
    cores = max(round(device.cores * draw(st.floats(0.4, 2.5))), 1)
    other = replace(device.with_cores(cores), base=device.name, name="changed")
    op, state = draw(ops(sixteen_bit(device))), draw(st.sampled_from(STATES))
    less, more = sorted((device, other), key=lambda board_: board_.cores)
    return Step(op, less.in_state(state), more.in_state(state))


def is_not_slower(step: Step | None) -> None:
    if step is None:
        return
    less, more = (time_of(step.op, device).estimate_s for device in (step.less, step.more))
    assert more <= less * SLOWER


@FEW
@given(steps())
def test_more_of_anything_never_makes_a_kernel_slower(step: Step | None) -> None:
    is_not_slower(step)


@pytest.mark.full
@FULL
@given(steps())
def test_more_of_anything_never_makes_a_kernel_slower_in_full(step: Step | None) -> None:
    is_not_slower(step)


@FEW
@given(steps_of_cores())
def test_more_cores_never_make_a_kernel_slower(step: Step) -> None:
    is_not_slower(step)


@pytest.mark.full
@FULL
@given(steps_of_cores())
def test_more_cores_never_make_a_kernel_slower_in_full(step: Step) -> None:
    is_not_slower(step)


@pytest.mark.parametrize(
    ("name", "family", "variant", "sizes"),
    [
        ("RTX 3080 Ti", "gemm", Variant("int8", library="torch"), {"m": 12, "n": 1920, "k": 2112}),
        ("RTX 4070 SUPER", "gemm", Variant("int8"), {"m": 6, "n": 7936, "k": 3648}),
        (
            "GB200", "mla_decode", Variant("bf16"),
            {
                "batch": 85, "kv_len": 1547, "q_len": 1, "num_heads": 16, "kv_lora_rank": 512,
                "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
            },
        ),
    ],
)  # fmt: skip
def test_kernels_that_split_work_by_cores_leave_some_idle(
    name: str, family: str, variant: Variant, sizes: dict[str, int]
) -> None:
    """Each took up to 8 % longer on more cores, since more parts are then put together."""
    device = boards()[device_index().canonical(name)]
    op = Op.make(family, variant, **sizes, **({"batch": 1} if family == "gemm" else {}))
    factors = (0.5, 0.7, 0.9, 1.0, 1.2, 1.5, 2.0)
    counts = [round(device.cores * factor) for factor in factors]
    changed_boards = [replace(device.with_cores(count), base=device.name) for count in counts]
    times = [time_of(op, changed_board).estimate_s for changed_board in changed_boards]
    built = times[factors.index(1.0)]
    assert min(times[:3]) >= built >= max(times[4:])
    assert time_of(op, device).estimate_s == built


@pytest.mark.parametrize(
    ("name", "limit_w", "variant", "sizes"),
    [
        ("RTX 4070 SUPER", 110.0, Variant("fp16"), {"m": 305, "n": 2266, "k": 2301}),
        ("RTX 4090", 225.0, Variant("int8", library="trtllm"), {"m": 6599, "n": 303, "k": 6832}),
        ("L40S", 245.0, Variant("fp16", library="vllm"), {"m": 346, "n": 4737, "k": 3471}),
    ],
)
def test_kernels_leave_cores_idle_at_the_clock_of_a_limit_too(
    name: str, limit_w: float, variant: Variant, sizes: dict[str, int]
) -> None:
    """Each took up to 0.8 % longer, since at slower clocks a library's choice was not held."""
    built = boards()[device_index().canonical(name)]
    board_ = replace(built, power_cap_w=limit_w, base=built.name, name="changed")
    op = Op.make("gemm", variant, batch=1, **sizes)
    counts = [round(board_.cores * factor) for factor in (0.6, 0.8, 1.0, 1.1, 1.3, 1.6, 2.0)]
    fewer, less, time_s, *more = (
        time_of(op, board_.with_cores(count)).estimate_s for count in counts
    )
    assert min(fewer, less) >= time_s * (1.0 - 1e-3)
    assert max(more) <= time_s * (1.0 + 1e-3)


@FEW
@given(st.data())
def test_a_limit_that_binds_is_drawn_whole(data: st.DataObject) -> None:
    """At the clock that is held: energy at its voltage over the time that the kernel then takes."""
    name = data.draw(st.sampled_from(("L4", "RTX 3090", "A100", "H100", "B200", "MI300X")))
    device, share = boards()[device_index().canonical(name)], data.draw(st.floats(0.3, 1.0))
    assert device.power_cap_w is not None
    idle_w = board(device, "bf16").idle_w
    limit_w = idle_w + share * (device.power_cap_w - idle_w)
    weak = replace(device, power_cap_w=limit_w, idle_power_w=idle_w).in_state("hot")
    op = data.draw(ops("bf16"))
    model = implementation_for(op.family, "simt")
    assert model is not None
    batch = OpBatch.from_ops([op])
    free = model.estimates(batch, weak.in_state("boost"))
    held = model.estimates(batch, weak)
    assert held.clock_share is not None
    clock = float(held.clock_share[0])
    clock_hz = model.clock_hz(weak)
    watts = drawn(free.analysis, "bf16", weak, free.estimate_s, clock_hz)
    current = board(weak, "bf16", clock_hz)
    longer = float(held.estimate_s[0] / free.estimate_s[0])
    cores = float(watts.core_w[0]) * float(growth_at(held.clock_share, current.floor)[0])
    power_w = idle_w + (cores + float(watts.memory_w[0])) / longer
    seconds, slow = held.estimate_s, weak.at_clock(clock * clock_hz)
    full, least = (
        float(dynamic_w(free.analysis, batch, each, each_s)[0])
        for each, each_s in ((weak, free.estimate_s), (slow, seconds))
    )
    room_w = most_w(device) - waiting_w(device)
    used = (waiting_w(weak) + least * min(room_w / full, 1.0)) / most_w(weak)
    if clock > MIN_CLOCK_SHARE:
        assert power_w <= limit_w * 1.001
        assert used <= 1.01
    if MIN_CLOCK_SHARE < clock < 1.0:
        assert math.isclose(max(power_w / limit_w, used), 1.0, rel_tol=1e-2)


@FEW
@given(st.floats(1.0, 2.0), st.floats(0.5, 0.9), st.integers(2048, 8192))
def test_what_the_clock_may_be_does_not_change_the_one_that_is_held(
    clock: float, share: float, size: int
) -> None:
    """Cores have the voltage of their clock, whatever the largest clock of the board is."""
    device = boards()[device_index().canonical("L4")]
    assert device.power_cap_w is not None
    op, model = (
        Op.make("gemm", Variant("bf16"), m=size, n=size, k=size),
        implementation_for("gemm", "simt"),
    )
    assert model is not None
    held = []
    for factor in (1.0, clock):
        one = changed(device, factor, share * device.power_cap_w, 1.0).in_state("hot")
        times = kernel_times(model, OpBatch.from_ops([op]), one)
        assert times.clock_share is not None
        assert times.clock_share[0] < 1.0
        held.append((float(times.clock_share[0]) * top_hz(one), times.estimate_s[0]))
    assert held[1] == pytest.approx(held[0], rel=2e-3)


@pytest.mark.parametrize("name", ["L4", "RTX 3090", "H100", "MI355X"])
def test_more_of_anything_never_makes_a_whole_model_slower(name: str) -> None:
    board_ = boards()[device_index().canonical(name)]
    assert applies_to(board_)
    assert board_.power_cap_w is not None
    case = {
        "task": "inference", "model": "Llama-2-7B",
        "workload": {"batch": 4, "input_len": 700, "output_len": 20},
    }  # fmt: skip

    def total_ms(clock: float, share: float) -> float:
        mhz = clock * board_.clocks.boost_hz / 1e6
        clocks = {"boost_mhz": mhz, "max_mhz": clock * board_.clocks.max_hz / 1e6}
        device = {"base": name, "clocks": clocks} if clock != 1.0 else name
        limits = {"power_w": share * board_.power_cap_w}  # type: ignore[operator]
        return silicast.predict(case, device=device, limits=limits)["total_ms"].estimate

    for share in (0.35, 0.6, 1.0):
        times = [total_ms(clock, share) for clock in (0.9, 1.0, 1.5, 2.0)]
        assert all(b <= a * SLOWER for a, b in pairwise(times))
    times = [total_ms(1.0, share) for share in (0.3, 0.4, 0.55, 0.7, 0.85, 1.0)]
    assert all(b <= a * SLOWER for a, b in pairwise(times))


@pytest.mark.parametrize(
    ("name", "limit_w"), [("H100", 250.0), ("A100", 150.0), ("L40S", 120.0), ("L4", 40.0)]
)
def test_a_pass_whose_clock_a_limit_lowers_draws_nearly_that_limit(
    name: str, limit_w: float
) -> None:
    """Kernels above the limit make up for those below it; gaps between kernels draw less."""
    case = {
        "task": "inference", "model": "Llama-3.1-8B", "device": name,
        "workload": {"batch": 32, "input_len": 1024, "output_len": 64},
        "limits": {"power_w": limit_w},
    }  # fmt: skip
    power_w = silicast.predict(case)["power_w"].estimate
    assert 0.95 * limit_w <= power_w <= limit_w


@pytest.mark.parametrize(
    ("name", "m", "n", "k"),
    [
        ("RTX 4090", 14, 291, 1024), ("RTX 4090", 1, 131, 962), ("RTX 3090", 2, 443, 944),
        ("L40S", 14, 291, 1024), ("H100", 14, 291, 1024), ("MI300X", 2, 443, 944),
    ],
)  # fmt: skip
def test_a_limit_of_the_clock_that_rises_never_makes_a_small_product_slower(
    name: str, m: int, n: int, k: int
) -> None:
    """Libraries choose tiles and splits of k whatever the clock: only their times follow it."""
    clocks = boards()[device_index().canonical(name)].clocks
    case = {"task": "kernel", "workload": {"op": "gemm", "m": m, "n": n, "k": k}}

    def latency_us(mhz: float) -> float:
        return silicast.predict(case, device=name, limits={"clock_mhz": mhz})["latency_us"].estimate

    free = silicast.predict(case, device=name)["latency_us"].estimate
    most = clocks.max_hz / 1e6
    times = [latency_us(share / 40.0 * most) for share in range(8, 41)]
    assert all(later <= before * (1.0 + 1e-12) for before, later in pairwise(times))
    assert times[0] > times[-1] == free
