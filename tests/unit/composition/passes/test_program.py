"""Programs: unrolled, timed, and their memory, against sums and lifetimes by hand."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from silicast.composition.engines.engine import find_engine
from silicast.composition.memory.activation_memory import GRANULE, peak_bytes
from silicast.composition.passes.program import predict_program, program_model
from silicast.composition.step.executions import Executions
from silicast.composition.step.machine import Machine
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.op import Op, Variant
from silicast.workload.training.backward import Training, training_graph


def machine(device: str = "H100", dispatch_us: float = 5.0, launch: str = "stream") -> Machine:
    engine = find_engine("torch-eager")
    host = msgspec.structs.replace(
        engine.host, dispatch_us=dispatch_us, between_us=0.0, step_us=0.0
    )
    table = msgspec.structs.replace(engine.launch, prefill=launch)
    engine = msgspec.structs.replace(engine, host=host, launch=table)
    return Machine(find_device(device), engine)


def gemm(name: str, m: int, *inputs: str, n: int = 4096, k: int = 4096) -> Node:
    op = Op.make("gemm", m=m, n=n, k=k)
    return Node(name, op, inputs, output_bytes=2 * m * n, parameter_bytes=2 * n * k)


def unknown(name: str, *inputs: str, size: int = 1 << 20) -> Node:
    variant = Variant(flags=(("unmodelled", True),))
    op = Op.make("data_movement", variant, read_bytes=size, written_bytes=size)
    return Node(name, op, inputs, output_bytes=size, source="custom::op")


def chain(count: int, m: int) -> Graph:
    nodes = [gemm("g0", m)]
    nodes += [gemm(f"g{i}", m, f"g{i - 1}") for i in range(1, count)]
    return Graph("chain", (Block("forward", tuple(nodes)),))


def test_long_kernels_hide_the_host_and_short_ones_wait_for_it() -> None:
    for m, waits in ((8192, False), (1, True)):
        program = predict_program(machine(dispatch_us=100.0 if waits else 5.0), chain(10, m))
        line = program.timeline
        kernel = float(program.times.nodes.time_s[0, 0])
        step = 100e-6 if waits else 5e-6
        expected = 10 * step + kernel if waits else step + 10 * kernel
        assert line.total_s == pytest.approx(expected, rel=1e-9)
        assert (line.idle_s > 5 * step) is waits


def test_a_graph_launch_has_no_gaps() -> None:
    program = predict_program(machine(launch="graph", dispatch_us=100.0), chain(10, 1))
    assert program.timeline.idle_s == 0.0


def test_equal_work_is_timed_once_and_counted_as_often_as_it_runs() -> None:
    layer = Block("layer", (gemm("up", 64), gemm("down", 64, "up")), layers=tuple(range(12)))
    program = predict_program(machine(), Graph("model", (layer,)))
    assert len(program.model.graph.nodes) == 2
    assert [node.count for node in program.model.graph.nodes] == [12, 12]
    (block, *_) = program.total.part.children
    assert block.name == "layer"
    assert block.count == 12
    assert sum(c.exposed_ps for c in program.total.part.children) == program.total.part.exposed_ps


def test_unrolling_a_block_changes_nothing() -> None:
    once = Graph("a", (Block("layer", (gemm("up", 64), gemm("down", 64, "up")), times=3),))
    nodes = [
        replace(node, name=f"{node.name}{i}", inputs=tuple(f"{x}{i}" for x in node.inputs))
        for i in range(3)
        for node in once.blocks[0].nodes
    ]
    flat = Graph("b", (Block("forward", tuple(nodes)),))
    first, second = (predict_program(machine(), graph) for graph in (once, flat))
    assert first.timeline.total_s == second.timeline.total_s
    # each part is rounded to whole picoseconds: one of three times once, three of one each
    assert first.total.seconds == pytest.approx(second.total.seconds, abs=len(nodes) * 1e-12)


def test_no_operation_costs_nothing_and_unknown_ones_are_named() -> None:
    graph = Graph("g", (Block("forward", (gemm("a", 512), unknown("b", "a"))),))
    program = predict_program(machine(), graph)
    assert program.coverage.unmodelled == {"custom::op": 1}
    assert (program.coverage.operations, program.coverage.modelled) == (2, 1)
    assert 0.0 < program.coverage.time_share < 1.0
    assert any("custom::op" in line for line in program.total.warnings)
    assert (program.times.nodes.time_s > 0.0).all()


def test_what_is_mostly_unknown_is_out_of_the_domain() -> None:
    nodes = tuple(unknown(f"u{i}", size=1 << 26) for i in range(4))
    program = predict_program(machine(), Graph("g", (Block("forward", nodes),)))
    assert program.total.domain == "out"


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (Node("x", Op.make("warp", m=1)), "no model of 'warp'"),
        (Node("x", Op.make("gemm", m=1, n=8, kk=8)), "gemm has no size 'kk'"),
        (Node("x", Op.make("gemm", m=0, n=8, k=8)), "m = 0 is not between"),
    ],
)
def test_what_no_model_takes_names_the_node(node: Node, message: str) -> None:
    with pytest.raises(SilicastError, match=message) as error:
        program_model(machine(), Graph("g", (Block("forward", (node,)),)))
    assert "'x' of g" in error.value.message


@pytest.mark.parametrize("dtype", ["fp8_block", "w4a16_mxfp4", "nvfp4", "int8", "fp32"])
def test_the_clock_of_a_program_is_that_of_what_it_computes_in(dtype: str) -> None:
    op = Op.make("gemm", Variant(dtype=dtype), m=512, n=4096, k=4096)
    program = predict_program(machine(), Graph("g", (Block("forward", (Node("x", op),)),)))
    assert program.total.seconds > 0.0


def test_a_program_without_products_has_a_clock() -> None:
    op = Op.make("data_movement", Variant(dtype="int64"), read_bytes=64, written_bytes=64)
    assert predict_program(machine(), Graph("g", (Block("forward", (Node("x", op),)),))).clock_hz


def test_directions_do_not_overlap_on_any_stream() -> None:
    long = gemm("long", 8192, n=8192, k=8192)
    moved = Op.make("data_movement", read_bytes=1 << 30, written_bytes=1 << 30)
    graph = Graph("g", (Block("forward", (long, Node("moved", moved, stream=1))),))
    free = replace(machine(), device=replace(find_device("H100"), power_cap_w=None))
    alone = predict_program(free, graph).directions["forward"].seconds
    trained = predict_program(free, training_graph(graph))
    assert trained.directions["forward"].seconds == pytest.approx(alone, rel=1e-6)


def test_a_million_operations_is_the_limit() -> None:
    block = Block("forward", (gemm("x", 8),), times=1_000_000_000)
    with pytest.raises(SilicastError, match="at most 1000000 are unrolled"):
        predict_program(machine(), Graph("g", (block,)))


def test_a_missing_size_is_an_error() -> None:
    node = Node("x", Op.make("gemm", m=8, n=8))
    with pytest.raises(SilicastError, match="lacks the size"):
        predict_program(machine(), Graph("g", (Block("forward", (node,)),)))


def test_streams_overlap_what_does_not_fill_the_device() -> None:
    side = replace(gemm("side", 8, n=512, k=8192), stream=1)
    main = gemm("main", 8, n=512, k=8192)
    apart = Graph("g", (Block("forward", (main, side)),))
    program = predict_program(machine(launch="graph"), apart)
    alone = Graph("g", (Block("forward", (main, replace(side, stream=0))),))
    serial = predict_program(machine(launch="graph"), alone)
    assert program.timeline.total_s < 0.75 * serial.timeline.total_s
    assert program.total.part.children[0].hidden_ps > 0


def test_peak_memory_by_hand() -> None:
    size = 10 * GRANULE
    a = replace(gemm("a", 8), output_bytes=size)
    b = replace(gemm("b", 8, "a"), output_bytes=3 * size)
    c = replace(gemm("c", 8, "b"), output_bytes=size)
    d = replace(gemm("d", 8, "a", "c"), output_bytes=size)
    peak, where = peak_bytes(Executions.from_graph(Graph("g", (Block("forward", (a, b, c, d)),))))
    assert (peak, where) == (5 * size, "c")  # a, b and c; b goes after c
    two = Executions.from_graph(Graph("g", (Block("forward", (a, b)),)))
    assert peak_bytes(two)[0] == 4 * size


def test_training_keeps_activations_until_their_gradients_and_recompute_does_not() -> None:
    layer = Block("layer", (gemm("up", 512), gemm("down", 512, "up")), layers=tuple(range(16)))
    graph = Graph("model", (layer,))
    each = 2 * 512 * 4096
    forward = peak_bytes(Executions.from_graph(graph))[0]
    remaining = peak_bytes(Executions.from_graph(training_graph(graph)))[0]
    again = peak_bytes(Executions.from_graph(training_graph(graph, Training(recompute="full"))))[0]
    assert forward == 2 * each
    assert remaining >= 16 * 2 * each
    assert 16 * each <= again < 0.75 * remaining


def test_backward_layers_run_from_the_last_one() -> None:
    layer = Block("layer", (gemm("up", 64),), layers=(0, 1, 2))
    order = Executions.from_graph(training_graph(Graph("m", (layer,)))).sequence
    backward = [each.repeat for each in order if each.block.direction == "backward"]
    assert backward == sorted(backward, reverse=True)
    assert set(backward) == {0, 1, 2}


def test_directions_are_predicted_apart_and_add_up() -> None:
    program = predict_program(machine(), training_graph(chain(4, 2048)))
    parts = [program.directions[name].part.exposed_ps for name in ("forward", "backward")]
    between = program.total.part.children[-1].exposed_ps
    assert sum(parts) + between == program.total.part.exposed_ps
    assert 1.5 < parts[1] / parts[0] < 3.0


def test_power_lowers_the_clock_of_a_program() -> None:
    weak = replace(machine("L4"), device=replace(find_device("L4"), power_cap_w=30.0))
    slow, quick = (
        predict_program(weak, chain(8, 8192)),
        predict_program(machine("L4"), chain(8, 8192)),
    )
    assert slow.clock_hz < quick.clock_hz
    assert slow.total.seconds > quick.total.seconds


def test_sizes_of_results_follow_from_sizes_of_operations() -> None:
    stated = chain(3, 256)
    nodes = tuple(replace(node, output_bytes=0) for node in stated.blocks[0].nodes)
    silent = Graph("chain", (Block("forward", nodes),))
    assert np.array_equal(
        Executions.from_graph(stated).result_bytes, Executions.from_graph(silent).result_bytes
    )
