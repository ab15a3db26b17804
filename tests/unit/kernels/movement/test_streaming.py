"""The shared model of streaming kernels: closed forms, cache states and launch protocols."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.implementation import Implementation, KernelTimes
from silicast.kernels.movement.elementwise import KINDS, kind_of
from silicast.kernels.movement.streaming import Stream, analyse_stream, element_bytes
from silicast.kernels.movement.streaming_rates import StreamingRates, memory_latency_s
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op import Op, OpBatch, Variant
from tests.elementwise import elementwise_op

H100 = find_device("H100")


def model(op: Op) -> Implementation:
    implementation = implementation_for(op.family, "simt")
    assert implementation is not None
    return implementation


def predict(op: Op, device: Device = H100) -> KernelTimes:
    return model(op).times(OpBatch.from_ops([op]), device)


def estimate(op: Op, device: Device = H100) -> float:
    return float(predict(op, device).estimate_s[0])


@pytest.mark.parametrize(
    ("op", "moved"),
    [
        (Op.make("rmsnorm", tokens=3, hidden=10), 3 * 10 * 4 + 10 * 2),
        (Op.make("rmsnorm", tokens=3, hidden=10, residual=1), 3 * 10 * 8 + 10 * 2),
        (Op.make("layernorm", Variant("fp32"), tokens=2, hidden=8), 2 * 8 * 8 + 2 * 8 * 4),
        (Op.make("softmax", Variant("fp32"), rows=5, cols=7), 5 * 7 * 8),
        (Op.make("elementwise", Variant("fp32"), elements=100, inputs=2), 1200),
        (Op.make("elementwise", Variant("fp32"), elements=100, inputs=1), 800),
        (Op.make("silu_mul", tokens=4, width=20), 4 * 20 * 2 + 4 * 10 * 2),
        (Op.make("embedding", tokens=4, hidden=16), 4 * 16 * 4 + 4 * 8),
        (Op.make("embedding", tokens=4, hidden=16, vocab=3), 3 * 16 * 2 + 4 * 16 * 2 + 4 * 8),
        (Op.make("embedding", tokens=4, hidden=16, vocab=9), 4 * 16 * 4 + 4 * 8),
        (
            Op.make("rope", tokens=2, num_heads=4, num_kv_heads=2, head_dim=8),
            2 * 6 * 8 * 4 + 2 * (8 * 2 + 8),
        ),
        (Op.make("sampling", rows=2, vocab=50), 2 * 50 * (2 + 4) + 2 * 8),
        (Op.make("sampling", Variant("fp32"), rows=2, vocab=50), 2 * 50 * 4 + 2 * 8),
        (Op.make("quantize", Variant("fp8"), tokens=2, hidden=256), 2 * 256 * 3 + 2 * 4),
        (
            Op.make("quantize", Variant("fp8", flags=(("grouped", True),)), tokens=2, hidden=257),
            2 * 257 * 3 + 2 * 3 * 4,
        ),
        (
            Op.make("quantize", Variant("fp8", flags=(("static", True),)), tokens=2, hidden=256),
            2 * 256 * 3,
        ),
        (
            Op.make("quantize", Variant("fp8"), tokens=2, hidden=256, group_size=64),
            2 * 256 * 3 + 2 * 4 * 4,
        ),
        (Op.make("kv_copy", tokens=3, num_kv_heads=2, head_dim=4), 3 * 2 * 4 * 2 * 4 + 3 * 8),
        (
            Op.make("kv_copy", Variant(kv_dtype="fp8"), tokens=3, num_kv_heads=2, head_dim=4),
            3 * 2 * 4 * 2 * 3 + 3 * 8,
        ),
    ],
)
def test_compulsory_bytes_by_hand(op: Op, moved: int) -> None:
    assert model(op).compulsory_bytes(op) == moved


def test_counts_are_exact_beyond_64_bit_floats() -> None:
    op = Op.make("elementwise", elements=2**33 + 1, inputs=8)
    assert model(op).compulsory_bytes(op) == (2**33 + 1) * 18
    assert model(op).flops(op) == 2**33 + 1


def test_a_huge_copy_runs_at_the_measured_share_of_memory_bandwidth() -> None:
    fraction = load_physics("streaming").constants("hopper")["dram_fraction"]
    elements = 2**31
    seconds = elements * 4 / (H100.dram.bandwidth_bytes_per_s * fraction)
    assert estimate(elementwise_op("copy", elements)) == pytest.approx(seconds, rel=0.02)


def test_bound_is_peak_bandwidth_for_what_cannot_be_in_the_cache() -> None:
    op = elementwise_op("copy", 2**30)
    moved, cached = 2**32, H100.l2.capacity_bytes
    bound = float(predict(op).bound_s[0])
    assert bound == pytest.approx((moved - cached) / H100.dram.bandwidth_bytes_per_s, rel=1e-12)
    cold = Op(op.family, op.dims, replace(op.variant, cache="cold"))
    assert float(predict(cold).bound_s[0]) == pytest.approx(
        max(moved // 2, moved - cached) / H100.dram.bandwidth_bytes_per_s, rel=1e-12
    )


@pytest.mark.parametrize("elements", [2**10, 2**18, 2**22, 2**24, 2**28])
def test_cold_reads_are_never_faster(elements: int) -> None:
    warm, cold = (Variant(flags=(("add", True),), cache=cache) for cache in ("warm", "cold"))
    times = [estimate(Op.make("elementwise", v, elements=elements, inputs=2)) for v in (warm, cold)]
    assert times[0] <= times[1]


def test_cache_resident_copy_beats_memory_bandwidth_and_a_cold_one_does_not() -> None:
    elements = 2**20
    warm = Op.make("elementwise", Variant(cache="warm"), elements=elements, inputs=4)
    cold = Op.make("elementwise", Variant(cache="cold"), elements=elements, inputs=4)
    floor = estimate(Op.make("elementwise", elements=1, inputs=4))
    read_s = elements * 8 / H100.dram.bandwidth_bytes_per_s
    assert estimate(warm) - floor < read_s < estimate(cold)


def test_launch_protocols_in_order() -> None:
    def at(launch: str) -> float:
        return estimate(Op.make("rmsnorm", Variant(launch=launch), tokens=8, hidden=4096))

    assert at("") == at("graph")
    assert at("profiler") < at("graph") < at("stream")
    assert 1e-6 < at("profiler") < 6e-6
    assert 20e-6 < at("stream") < 70e-6


def test_eager_kernel_hides_behind_the_host_until_it_is_long() -> None:
    small = [Op.make("softmax", Variant("fp32", launch="stream"), rows=r, cols=64) for r in (1, 64)]
    assert estimate(small[1]) < 1.05 * estimate(small[0])


def test_rows_fill_cores_in_whole_rounds() -> None:
    """One row more than cores costs a second round; the same bytes spread evenly do not."""

    def at(rows: int) -> float:
        return estimate(Op.make("rmsnorm", tokens=rows, hidden=16384, residual=1))

    assert at(H100.cores) == pytest.approx(at(H100.cores - 20), rel=0.05)
    assert at(H100.cores + 1) > 1.2 * at(H100.cores)


def test_sweeps_find_in_the_cache_what_the_one_before_left() -> None:
    """Two sweeps again over a row hold no more in the cache than one does."""
    constants = load_physics("streaming").constants("volta")
    machine = StreamingRates.from_device(find_device("V100-PCIE-32GB"), "softmax", constants)
    rows, cols = np.array([100_000]), 3000
    moved = rows * cols * 4
    first = Stream(moved, moved, flops=rows, fma=rows, xu=rows, tasks=rows, blocks_per_core=1.0)
    once = structs.replace(first, reread_bytes=moved)
    twice = structs.replace(first, reread_bytes=2 * moved, rereads=2.0)
    dram = [
        float(analyse_stream(s, Variant(), machine).demand.level_bytes["dram"][0] - 2 * moved[0])
        for s in (once, twice)
    ]
    assert dram[1] == pytest.approx(2.0 * dram[0])


def test_products_between_sweeps_add_their_time() -> None:
    machine = StreamingRates.from_device(
        H100, "optimizer", load_physics("streaming").constants("hopper")
    )
    elements = np.array([10**8])
    plain = Stream(elements, elements, flops=elements, fma=elements, xu=elements, tasks=elements)
    products = structs.replace(plain, matrix=np.array([10**15]))
    seconds = [float(analyse_stream(s, Variant(), machine).time_s[0]) for s in (plain, products)]
    peak = H100.peak_per_s("tensor", "bf16")
    assert 1.0 < (seconds[1] - seconds[0]) / (1e15 / peak) < 2.0


def test_boards_with_other_memory_than_their_architecture_have_a_share_of_their_own() -> None:
    table = {**load_physics("streaming").constants("pascal"), "gddr.dram_fraction": 0.5}
    plain = {**table, "gddr.dram_fraction": 1.0}
    rates = []
    for device in (find_device("P4"), find_device("P100")):
        held, free = (StreamingRates.from_device(device, "elementwise", t) for t in (table, plain))
        rates.append(held.dram_per_s / free.dram_per_s)
    assert rates == [0.5, 1.0]


def test_reread_bytes_count_where_the_rows_in_flight_exceed_the_cache() -> None:
    constants = load_physics("streaming").constants("volta")
    machine = StreamingRates.from_device(find_device("V100-PCIE-32GB"), "layernorm", constants)
    rows, row_bytes = np.array([100_000]), 8 * 16384
    moved = rows * row_bytes
    once = Stream(moved, moved, flops=rows, fma=rows, xu=rows, tasks=rows)
    twice = structs.replace(once, reread_bytes=moved, blocks_per_core=8.0)
    single, double = (analyse_stream(s, Variant(), machine).time_s for s in (once, twice))
    assert float(double[0] / single[0]) == pytest.approx(1.5, rel=0.05)


def test_a_chain_of_eager_kernels_moves_its_copies_too() -> None:
    """Four eager kernels quantise a large tensor at 27 bytes an element instead of 3."""
    fused, eager = (
        Op.make("quantize", Variant("fp8", library=name), tokens=32768, hidden=65536)
        for name in ("trtllm", "sglang")
    )
    fused = replace(fused, variant=replace(fused.variant, flags=(("static", True),)))
    assert estimate(eager) / estimate(fused) == pytest.approx(9.0, rel=0.02)
    assert model(eager).compulsory_bytes(eager) == pytest.approx(3 * 2**31, rel=1e-4)


def test_an_index_before_the_row_costs_a_round_trip() -> None:
    constants = load_physics("streaming").constants("hopper")
    trip_s = constants["trip_cycles"] / H100.clocks.boost_hz
    embedding = estimate(Op.make("embedding", tokens=1, hidden=64))
    silu_mul = estimate(Op.make("silu_mul", tokens=1, width=64))
    assert embedding - silu_mul == pytest.approx(trip_s, rel=0.05)


def test_an_architecture_without_data_borrows_and_widens() -> None:
    physics = load_physics("streaming")
    op = Op.make("rmsnorm", tokens=64, hidden=4096)
    unmeasured = find_device("Jetson AGX Orin 64GB")
    assert not physics.is_measured(unmeasured.architecture)
    batch = OpBatch.from_ops([op])
    wide, narrow = (model(op).times(batch, device) for device in (unmeasured, H100))
    assert wide.p95_s / wide.estimate_s > narrow.p95_s / narrow.estimate_s
    assert set(narrow.shared_log_sd) == {"device:H100-SXM-80GB", "family:rmsnorm"}


def test_slower_clock_lengthens_waiting_but_not_memory() -> None:
    slow = H100.at_clock(H100.clocks.boost_hz * 0.75)
    tiny, huge = Op.make("rmsnorm", tokens=1, hidden=1024), elementwise_op("copy", 2**30)
    assert estimate(tiny, slow) > 1.2 * estimate(tiny)
    assert estimate(huge, slow) < 1.02 * estimate(huge)


def test_kinds_of_elementwise_ops() -> None:
    assert [kind_of(elementwise_op(kind, 8).variant) for kind in KINDS] == list(KINDS)
    assert kind_of(Variant()) == "add"
    with pytest.raises(SilicastError, match="elementwise kind 'sine'") as caught:
        elementwise_op("sine", 8)
    assert caught.value.field == "kind"
    assert "tanh" in caught.value.hint


def test_transcendental_kinds_are_bound_by_their_pipe_where_memory_is_fast() -> None:
    memory = {
        name: replace(level, bandwidth_bytes_per_s=level.bandwidth_bytes_per_s * 1e3)
        for name, level in H100.memory.items()
    }
    op = Op.make("elementwise", Variant("fp16", flags=(("tanh", True),)), elements=2**30)
    assert predict(op, replace(H100, name="fast", memory=memory)).bound_by() == ["xu"]


def test_formats_that_hold_no_activations_are_refused() -> None:
    assert element_bytes("fp8") == 2
    with pytest.raises(SilicastError) as caught:
        element_bytes("int4")
    assert caught.value.field == "dtype"


def test_what_is_written_in_place_takes_no_room_of_its_own() -> None:
    """Twice the cache's bytes moved in place are one working set of its size."""
    hidden = 8192
    tokens = int(H100.l2.capacity_bytes * 0.4) // (hidden * 4)
    fused = Op.make("rmsnorm", tokens=tokens, hidden=hidden, residual=1)
    copied = elementwise_op("copy", 2 * tokens * hidden)
    apart = [float(predict(op).analysis.demand.level_bytes["dram"][0]) for op in (fused, copied)]
    assert apart[0] < apart[1]
    assert model(fused).compulsory_bytes(fused) == pytest.approx(tokens * hidden * 8, rel=1e-3)


def test_bound_of_a_kernel_in_place_counts_what_is_read_and_written_back() -> None:
    hidden = 8192
    tokens = 4 * int(H100.l2.capacity_bytes) // (hidden * 4)
    op = Op.make("rmsnorm", tokens=tokens, hidden=hidden, residual=1)
    working_set = tokens * hidden * 4 + hidden * 2
    least = working_set - H100.l2.capacity_bytes + tokens * hidden * 4 - H100.l2.capacity_bytes
    bound = float(predict(op).bound_s[0])
    assert bound == pytest.approx(least / H100.dram.bandwidth_bytes_per_s, rel=1e-9)


@pytest.mark.parametrize("family", ["rmsnorm", "silu_mul"])
def test_other_kernels_of_a_pass_leave_less_in_the_cache(family: str) -> None:
    wide = {"rmsnorm": "hidden", "silu_mul": "width"}[family]
    for tokens in (256, 512, 1024):
        size = {"tokens": tokens, wide: 8192}
        replayed, between = (
            estimate(Op.make(family, Variant(cache=cache), **size)) for cache in ("", "between")
        )
        assert replayed <= between
    size = {"tokens": 256, wide: 8192}
    warm = Op.make(family, Variant(cache="warm"), **size)
    assert estimate(warm) == estimate(Op.make(family, Variant(), **size))


@pytest.mark.parametrize(
    "op",
    [
        Op.make("rmsnorm", Variant("fp16"), tokens=2048, hidden=8192),
        Op.make("silu_mul", Variant("fp16"), tokens=2048, width=16384),
        Op.make("embedding", Variant("fp16"), tokens=2048, hidden=8192),
        Op.make("rope", Variant("fp16"), tokens=2048, num_heads=64, num_kv_heads=8, head_dim=128),
    ],
)
def test_scalar_kernels_are_slower_and_a_style_of_their_own(op: Op) -> None:
    old = replace(op, variant=replace(op.variant, library="sarathi"))
    assert estimate(old) > (1.2 if op.family != "rope" else 0.999) * estimate(op)
    styles = [model(each).style(each.variant, H100) for each in (op, old)]
    assert styles == ["vectorised", "scalar"]


def test_rows_off_vector_boundaries_are_dearer() -> None:
    aligned, odd = (
        estimate(Op.make("softmax", Variant("fp32"), rows=2**18, cols=cols)) for cols in (900, 901)
    )
    assert 1.02 < odd / aligned < 1.3


def test_the_middle_of_the_measured_stands_for_what_nobody_measured() -> None:
    physics = load_physics("streaming")
    shares = sorted(
        min(table["dram_fraction"], 1.0)
        for name, table in physics.architectures.items()
        if name in {"ampere", "blackwell", "hopper", "pascal", "volta"}
    )
    assert physics.default["dram_fraction"] == pytest.approx(shares[2], rel=1e-3)
    assert physics.default["dram_fraction"] * physics.default["gddr.dram_fraction"] <= 1.0


def moving(device: Device, flags: tuple[tuple[str, bool], ...], sizes: dict[str, int]) -> float:
    return estimate(Op.make("data_movement", Variant("fp32", flags=flags), **sizes), device)


def test_a_loop_over_memory_takes_a_latency_a_trip_however_few_bytes() -> None:
    sizes = {"read_bytes": 1 << 20, "written_bytes": 1 << 22}
    latency_s = H100.dram.latency_s
    none, one, short, long = (
        moving(H100, (), {**sizes, **({"looped_trips": trips} if trips else {})})
        for trips in (0, 1, 100_000, 200_000)
    )
    assert long - short == pytest.approx(100_000 * latency_s, rel=0.01)
    assert one == none, "what streams meanwhile hides it"


@pytest.mark.parametrize("name", ["A100-SXM-80GB", "RTX 3090", "MI300X", "Gaudi 3"])
def test_a_device_without_stated_latency_has_that_of_its_trips(name: str) -> None:
    device = find_device(name)
    assert 1e-7 < memory_latency_s(device, device.clocks.boost_hz) < 2e-6


def test_norms_over_a_batch_have_rates_of_their_own() -> None:
    sizes = {"read_bytes": 1 << 30, "written_bytes": 1 << 29}
    board = find_device("RTX 3090")
    plain, fixed, trained = (
        moving(board, flags, sizes)
        for flags in ((), (("batch_norm", True),), (("batch_statistics", True),))
    )
    assert plain < fixed < trained
