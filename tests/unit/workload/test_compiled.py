"""What a compiler fuses, and what it does not."""

from hypothesis import given
from hypothesis import strategies as st

from silicast.workload.backward import Training
from silicast.workload.compiled import fused_graph
from silicast.workload.decoder import build_graph
from silicast.workload.eager import Framework, PassShape, framework_graph
from silicast.workload.graph import Block, Graph, Node
from silicast.workload.models import find_model
from silicast.workload.op import Op, Variant

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


def test_other_sizes_are_other_kernels() -> None:
    assert len(fused(passed("a"), passed("b", "a", size=2 * SIZE))) == 2


def test_a_reduction_takes_passes_before_and_behind_it() -> None:
    softmax = Node("s", Op.make("softmax", rows=64, cols=64), ("a",))
    (one,) = fused(passed("a"), softmax, passed("b", "s"))
    assert (one.name, one.op.family) == ("b", "softmax")
    two = fused(softmax, Node("t", softmax.op, ("s",)))
    assert len(two) == 2, "one reduction a kernel"


def test_products_take_passes_only_where_asked() -> None:
    product = Node("p", Op.make("gemm", m=64, n=64, k=64))
    assert len(fused(product, passed("a", "p"))) == 2
    (one,) = fused(product, passed("a", "p"), epilogues=True)
    assert (one.name, one.op) == ("a", product.op)


def test_a_sum_and_its_norm_are_one_kernel_that_writes_both() -> None:
    norm = Node("n", Op.make("layernorm", tokens=64, hidden=64, residual=0), ("r",))
    later = passed("r2", "n", "r", kind="add")
    product = Node("p", Op.make("gemm", m=64, n=8, k=64), ("n",))
    nodes = fused(passed("r", reads=2, kind="add"), norm, product, later)
    assert nodes[0].name == "n"
    assert nodes[0].op.dim("residual") == 1


@given(st.integers(1, 6), st.integers(0, 5))
def test_fusing_never_adds_bytes(length: int, skip: int) -> None:
    nodes = [passed("n0")]
    for number in range(1, length + 1):
        inputs = {f"n{number - 1}", f"n{max(number - skip, 0)}"}
        nodes.append(passed(f"n{number}", *sorted(inputs)))

    def moved(found: list[Node]) -> int:
        reads = [node.op.dim("inputs") for node in found]
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
