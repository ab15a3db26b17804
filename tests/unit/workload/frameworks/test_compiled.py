"""What a compiler fuses, and what it does not."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from silicast.workload.frameworks.compiled import fused_graph
from silicast.workload.frameworks.eager import Framework, PassShape, framework_graph
from silicast.workload.graphs.graph import Block, Graph, Loops, Node, TensorValue
from silicast.workload.graphs.op import Op, Variant
from silicast.workload.models.lookup import find_model
from silicast.workload.training.backward import Training
from silicast.workload.transformers.decoder import build_graph

SIZE = 4096


def passed(name: str, *inputs: str, kind: str = "mul", reads: int = 0, size: int = SIZE) -> Node:
    count = reads or max(len(inputs), 1)
    op = Op.make("elementwise", Variant(flags=((kind, True),)), elements=size, inputs=count)
    return Node(name, op, inputs)


def fused(*nodes: Node, epilogues: bool = False) -> list[Node]:
    graph = fused_graph(Graph("toy", (Block("forward", nodes),)), epilogues=epilogues)
    return list(graph.blocks[0].nodes)


def test_a_chain_is_one_kernel_of_its_dearest_kind() -> None:
    (one,) = fused(passed("a"), passed("b", "a", kind="tanh"), passed("c", "b", "a"))
    assert one.name == "c"
    assert dict(one.op.dims) == {"elements": SIZE, "inputs": 1}
    assert one.op.variant.flag("tanh")


def test_a_result_that_others_read_is_written() -> None:
    product = Op.make("gemm", m=64, n=8, k=64)
    one, other = fused(passed("a"), passed("b", "a"), Node("p", product, ("a",)))
    assert (one.name, other.name) == ("b", "p")
    assert one.op.dim("written_bytes") == 2 * one.op.dim("read_bytes")  # type: ignore[operator]
    assert other.inputs == ("b",), "whoever read a member reads the fused kernel"


def test_a_reader_in_between_keeps_its_producer() -> None:
    product = Op.make("gemm", m=64, n=64, k=64)
    nodes = fused(passed("a"), Node("p", product, ("a",)), passed("b", "a", "p"))
    assert [node.name for node in nodes] == ["a", "p", "b"]


def test_a_result_of_another_size_is_computed_where_it_is_read() -> None:
    (one,) = fused(passed("a"), passed("b", "a", size=2 * SIZE))
    assert one.op.dim("read_bytes") == 2 * SIZE, "what a read, not what it made"
    product = Op.make("gemm", m=64, n=64, k=64)
    nodes = fused(passed("a"), passed("b", "a", size=2 * SIZE), Node("p", product, ("a",)))
    assert len(nodes) == 3, "a library's kernel reads it: it is stored, and loops differ"


def test_a_reduction_takes_passes_before_and_behind_it() -> None:
    softmax = Node("s", Op.make("softmax", rows=64, cols=64), ("a",))
    (one,) = fused(passed("a"), softmax, passed("b", "s"))
    assert (one.name, one.op.family) == ("b", "softmax")
    other = Op.make("softmax", rows=32, cols=128)
    assert len(fused(softmax, Node("t", softmax.op, ("s",)))) == 1, "sums over the same rows"
    assert len(fused(softmax, Node("t", other, ("s",)))) == 2, "sums over other rows"


def test_products_take_passes_only_where_asked() -> None:
    product = Node("p", Op.make("gemm", m=64, n=64, k=64))
    assert len(fused(product, passed("a", "p"))) == 2
    (one,) = fused(product, passed("a", "p"), epilogues=True)
    assert (one.name, one.op) == ("a", product.op)


def test_a_sum_and_its_norm_are_one_kernel_that_writes_both() -> None:
    norm = Node("n", Op.make("layernorm", tokens=64, hidden=64, residual=0), ("r",))
    later = passed("r2", "p", "r", kind="add")
    product = Node("p", Op.make("gemm", m=64, n=64, k=64), ("n",))
    nodes = fused(passed("r", reads=2, kind="add"), norm, product, later)
    assert nodes[0].name == "n"
    assert nodes[0].op.dim("residual") == 1


@given(st.integers(1, 6), st.integers(0, 5))
def test_fusing_never_adds_bytes(length: int, skip: int) -> None:
    nodes = [passed("n0")]
    for number in range(1, length + 1):
        inputs = {f"n{number - 1}", f"n{max(number - skip, 0)}"}
        nodes.append(passed(f"n{number}", *sorted(inputs)))

    def moved(result: list[Node]) -> int:
        reads = [node.op.dim("inputs") for node in result]
        return sum(SIZE * (count + 1) for count in reads if isinstance(count, int))

    assert moved(fused(*nodes)) <= moved(nodes)


def test_models_run_fewer_kernels_and_the_same_products() -> None:
    model = find_model("GPT-2")
    for training in (None, Training()):
        eager, compiled = (
            framework_graph(
                build_graph(model),
                model,
                PassShape(2, 128),
                Framework(compiled=compiled, training=training),
            )
            for compiled in (False, True)
        )
        counts = [sum(block.count for block, _ in graph.nodes()) for graph in (eager, compiled)]
        assert counts[1] < 0.8 * counts[0]
        products = [
            sorted(node.op.dims for _, node in graph.nodes() if node.op.family == "gemm")
            for graph in (eager, compiled)
        ]
        assert products[0] == products[1]


def tensor(name: str, elements: int = SIZE, dtype: str = "fp16") -> TensorValue:
    size = {"fp16": 2, "fp32": 4}[dtype]
    return TensorValue((elements,), dtype, size * elements, name=name)


def loop(name: str, *reads: TensorValue, dtype: str = "fp16", loops: Loops = "pointwise") -> Node:
    elements = max(value.elements for value in reads)
    op = Op.make("data_movement", read_bytes=1, written_bytes=1)
    writes = (tensor(name, elements, dtype),)
    return Node(name, op, tuple(v.name for v in reads), reads=reads, writes=writes, loops=loops)


def library(name: str, *reads: TensorValue, dtype: str = "fp16") -> Node:
    return loop(name, *reads, dtype=dtype, loops="")


def moved(node: Node) -> tuple[int, int]:
    """Bytes that a fused kernel reads and writes, by its tensors."""
    return sum(v.nbytes for v in node.reads), sum(v.nbytes for v in node.writes)


def test_each_tensor_counts_in_its_own_format() -> None:
    wide = loop("wide", tensor("x"), tensor("bias", 64, "fp32"), dtype="fp32")
    narrow = loop("narrow", tensor("wide", dtype="fp32"))
    (one,) = fused(wide, narrow)
    assert moved(one) == (2 * SIZE + 4 * 64, 2 * SIZE), "what is in between is not stored"


def test_a_cast_is_part_of_its_reader_but_not_of_a_library() -> None:
    cast = loop("cast", tensor("x", dtype="fp32"))
    assert len(fused(cast, loop("gelu", tensor("cast")))) == 1
    assert len(fused(cast, library("product", tensor("cast")))) == 2


def test_a_result_in_place_is_one_tensor() -> None:
    first = library("conv", tensor("x"))
    second = loop("relu", tensor("conv"))  # its storage is that of "conv"
    third = replace(loop("add", tensor("relu"), tensor("y")), inputs=("conv", "relu"))
    nodes = fused(first, second, third)
    assert [node.name for node in nodes] == ["conv", "add"]
    assert moved(nodes[1]) == (4 * SIZE, 2 * SIZE)


def test_much_that_several_read_is_stored() -> None:
    norm = loop("norm", *(tensor(f"x{number}") for number in range(5)))
    readers = [library("p", tensor("q")), loop("a", tensor("norm")), loop("b", tensor("norm"))]
    nodes = fused(norm, *readers)
    assert {name for node in nodes for name in (v.name for v in node.writes)} >= {"a", "b"}
    assert sum("x0" in [v.name for v in node.reads] for node in nodes) == 1, "read once"


def test_the_rest_of_an_operator_goes_with_its_loop() -> None:
    sums = replace(loop("statistics", tensor("x"), loops="rows"), op=row_op())
    remaining = Node("apply", Op.make("data_movement", read_bytes=1, written_bytes=1),
                ("statistics",), loops="joined")  # fmt: skip
    (one,) = fused(sums, remaining)
    assert one.name == "apply"
    assert moved(one) == (2 * SIZE, 2 * SIZE)


def row_op() -> Op:
    return Op.make("data_movement", read_bytes=2, written_bytes=2)


def test_sums_over_few_long_rows_are_complete_only_in_a_second_kernel() -> None:
    few = TensorValue((4,), "fp32", 16, name="sum")
    images = TensorValue((4, 1 << 16), "fp16", 1 << 19, name="images")
    total = Node("sum", row_op(), ("images",), reads=(images,), writes=(few,), loops="sums")
    after = Node("after", row_op(), ("sum",), reads=(few, images),
                 writes=(replace(images, name="after"),), loops="pointwise")  # fmt: skip
    assert len(fused(total, after)) == 2


@given(st.data())
def test_no_kernel_waits_for_itself_and_no_byte_is_added(data: st.DataObject) -> None:
    nodes: list[Node] = []
    for number in range(data.draw(st.integers(1, 12))):
        names = ["x"] + [node.name for node in nodes]
        reads = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
        kind: Loops = data.draw(st.sampled_from(["pointwise", "pointwise", "rows", ""]))
        nodes.append(loop(f"n{number}", *(tensor(name) for name in reads), loops=kind))
    result = fused(*nodes)  # in_order raises on a cycle
    assert {n.name for n in nodes if not n.loops} <= {n.name for n in result}
    before, after = (sum(sum(moved(node)) for node in some) for some in (nodes, result))
    assert after <= before
    unread = {n.name for n in nodes} - {v.name for n in nodes for v in n.reads}
    assert unread <= {v.name for node in result for v in node.writes}, "results are written"


def test_halves_of_a_result_are_two_reads() -> None:
    made = loop("relu", tensor("x"))
    halves = [
        replace(tensor("relu", SIZE // 2), offset=offset) for offset in (0, SIZE // 2)
    ]  # fmt: skip
    (one,) = fused(made, loop("mul", *halves))
    assert moved(one) == (2 * SIZE, SIZE)


def test_weights_of_inlined_nodes_count() -> None:
    bias = replace(tensor("bias"), parameter=True)
    added = replace(loop("add", tensor("x"), bias), parameter_bytes=2 * SIZE)
    (one,) = fused(added, loop("relu", tensor("add")))
    assert one.parameter_bytes == 2 * SIZE


def test_layers_with_the_same_names_fuse_alike() -> None:
    nodes = (passed("a"), passed("b", "a"), passed("c", "b"))
    graph = Graph("toy", tuple(Block(f"layer{number}", nodes) for number in range(3)))
    assert [[n.name for n in block.nodes] for block in fused_graph(graph).blocks] == [["c"]] * 3


def test_what_the_backward_pass_reads_is_written_and_waited_for() -> None:
    forward = (library("conv", tensor("x")), loop("relu", tensor("conv")),
               loop("out", tensor("relu")))  # fmt: skip
    gradient = loop("mask", tensor("relu"), tensor("g"))
    backward = (gradient, library("grad", tensor("mask")))
    graph = fused_graph(
        Graph("toy", (Block("forward", forward), Block("b", backward, direction="backward")))
    )
    written = {value.name for value in graph.blocks[0].nodes[-1].writes}
    assert written == {"relu", "out"}
    assert "out" in graph.blocks[1].nodes[0].inputs, "the kernel that wrote it"


def test_parts_that_overlap_are_no_more_than_their_tensor() -> None:
    whole = library("q", tensor("x"))
    part = replace(tensor("q", SIZE - 64), offset=64)
    kernel = fused(whole, loop("r", tensor("q"), part), loop("s", tensor("r")))[1]
    assert moved(kernel) == (2 * SIZE, 2 * SIZE)
    halves = (tensor("q", SIZE // 2), replace(tensor("q", SIZE // 2), offset=SIZE // 2))
    other = fused(whole, loop("r", *halves), loop("s", tensor("r", SIZE // 2)))[1]
    assert moved(other) == (2 * SIZE, SIZE), "parts that do not overlap count in full"


def test_the_rest_of_an_operator_goes_with_its_first_node() -> None:
    first = loop("mean", tensor("x"), loops="rows")
    other = library("other", tensor("y"))
    remaining = [replace(loop(name, tensor("x")), loops="joined") for name in ("scale", "shift")]
    nodes = fused(first, *remaining, loop("behind", tensor("mean")), other)
    assert [node.name for node in nodes] == ["behind", "other"]


def test_the_same_nodes_write_what_others_read() -> None:
    nodes = (passed("a"), passed("b", "a"))
    alone = Graph("toy", (Block("first", nodes),))
    read = Graph("toy", (*alone.blocks, Block("second", (passed("c", "a"),))))
    written = [
        {value.name for node in fused_graph(graph).blocks[0].nodes for value in node.writes}
        for graph in (alone, read, alone)
    ]
    assert written == [{"b"}, {"a", "b"}, {"b"}]


def test_the_same_nodes_fuse_by_the_mode() -> None:
    nodes = (library("product", tensor("x")), loop("relu", tensor("product")))
    product = replace(nodes[0], op=Op.make("gemm", m=64, n=64, k=64))
    counts = [len(fused(product, nodes[1], epilogues=mode)) for mode in (False, True, False)]
    assert counts == [2, 1, 2]
