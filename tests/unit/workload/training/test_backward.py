"""Backward passes: the kernels that autograd launches, in its order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.core.errors import SilicastError
from silicast.kernels.registry import implementation_for
from silicast.workload.frameworks.eager import Framework, PassShape, framework_graph
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.op import Op, Variant
from silicast.workload.models.counting import op_flops
from silicast.workload.models.lookup import find_model
from silicast.workload.training.backward import Training, backward_graph, training_graph
from silicast.workload.training.gradients import gradients
from silicast.workload.transformers.decoder import build_graph
from tests.sampling import examples

BATCH, LENGTH = 2, 128


def trained(name: str, training: Training = Training(), *, compiled: bool = False) -> Graph:
    model = find_model(name)
    framework = Framework(compiled=compiled, training=training)
    return framework_graph(build_graph(model), model, PassShape(BATCH, LENGTH), framework)


def flops(graph: Graph, direction: str) -> int:
    return sum(
        block.count * op_flops(node.op)
        for block, node in graph.nodes()
        if block.direction == direction and node.op.family == "gemm"
    )


def passes(kind: str, inputs: int = 1) -> Op:
    return Op.make("elementwise", Variant(flags=((kind, True),)), elements=4096, inputs=inputs)


def kernels(op: Op, name: str = "node") -> list[str]:
    return [suffix for suffix, _ in gradients(Node(name, op, ("x",)))]


@pytest.mark.parametrize("name", ["GPT-2", "OPT-1.3B", "Llama-3.1-8B", "bert_large", "switchxl4"])
@pytest.mark.parametrize("compiled", [False, True])
def test_products_of_backward_are_twice_those_of_forward(name: str, compiled: bool) -> None:
    graph = trained(name, compiled=compiled)
    assert flops(graph, "backward") == 2 * flops(graph, "forward")


@given(m=st.integers(1, 4096), n=st.integers(1, 4096), k=st.integers(1, 4096))
def test_a_linear_layer_has_two_products_of_its_size(m: int, n: int, k: int) -> None:
    node = Node("up", Op.make("gemm", m=m, n=n, k=k), ("x",), parameter_bytes=2 * n * k)
    first, second = (op for _, op in gradients(node))
    assert dict(first.dims) == {"m": m, "n": k, "k": n}
    assert dict(second.dims) == {"m": n, "n": k, "k": m}


def test_a_bias_sums_the_gradient_over_its_rows() -> None:
    product = Op.make("gemm", Variant(dtype="fp32"), m=512, n=1024, k=256)
    biased = Node("up", product, ("x",), parameter_bytes=4 * (1024 * 256 + 1024))
    (*_, (suffix, op)) = gradients(biased)
    assert suffix == "bias"
    assert op.dim("read_bytes") == 4 * 512 * 1024
    assert op.dim("written_bytes") == 4 * 1024


def test_rules_by_hand() -> None:
    assert kernels(passes("add", 2)) == []
    assert kernels(passes("add"), "scores_2_where") == ["choice_1"]
    assert len(kernels(passes("add"), "scores_2_max")) == 5
    assert kernels(passes("mul")) == ["input"]
    assert kernels(passes("mul", 2)) == ["input", "values"]
    assert kernels(passes("tanh")) == ["input"]
    assert kernels(passes("pow")) == ["power", "factor", "input"]
    assert kernels(Op.make("softmax", rows=64, cols=64)) == ["product", "input"]
    assert kernels(Op.make("layernorm", Variant("fp32"), tokens=64, hidden=64)) == [
        "input",
        "weight",
    ]
    assert kernels(Op.make("embedding", tokens=64, hidden=64, vocab=99)) == ["zeros", "weight"]
    assert kernels(Op.make("sampling", rows=1, vocab=99)) == []


def test_norms_of_16_bits_have_gradients_in_one_call() -> None:
    op = Op.make("layernorm", Variant("bf16"), tokens=64, hidden=32, residual=1)
    ((_, back),) = gradients(Node("norm", op))
    assert (back.family, back.dims) == ("norm_backward", (("hidden", 32), ("tokens", 64)))


def test_fused_attention_costs_two_and_a_half_times_its_forward() -> None:
    op = Op.make(
        "attention_prefill", batch=2, q_len=64, kv_len=64, num_heads=32, num_kv_heads=8, head_dim=64
    )
    ((_, back),) = gradients(Node("attention", op))
    forward = implementation_for(op.family, "simt")
    backward = implementation_for(back.family, "simt")
    assert forward is not None
    assert backward is not None
    assert 2 * backward.flops(back) == 5 * forward.flops(op)


def test_blocks_and_nodes_run_in_reverse() -> None:
    graph = trained("GPT-2")
    ways = [block.direction for block in graph.blocks]
    assert ways == sorted(ways, reverse=True), "forward blocks come first"
    names = [block.name for block in graph.blocks]
    half = len(names) // 2
    assert [f"{name}_backward" for name in names[:half]] == names[half:][::-1]
    assert [block.count for block in graph.blocks[:half]] == [
        block.count for block in graph.blocks[half:]
    ][::-1]
    assert graph.phase == "training"


def test_a_tensor_read_twice_has_two_gradients_that_are_summed() -> None:
    product = Op.make("gemm", m=64, n=64, k=64)
    nodes = (Node("x", product), Node("a", passes("mul"), ("x",)), Node("b", passes("mul"), ("x",)))
    (block,) = backward_graph(Graph("toy", (Block("forward", nodes),))).blocks
    names = [node.name for node in block.nodes]
    assert names == ["b_grad_input", "a_grad_input", "x_grad_sum_1", "x_grad_input",
                     "x_grad_weight"]  # fmt: skip
    summed = block.nodes[2]
    assert summed.op.dim("elements") == 64 * 64
    assert set(summed.inputs) == {"a_grad_input", "b_grad_input"}


def test_weights_accumulate_where_gradients_are_there() -> None:
    def accumulated(training: Training) -> int:
        return sum(n.name.endswith("accumulated") for _, n in trained("GPT-2", training).nodes())

    assert accumulated(Training()) > 0
    assert accumulated(Training(accumulates=False)) == 0


def test_a_rank_adds_to_the_gradients_of_all_of_its_experts() -> None:
    sizes = {"experts": 64, "topk": 8, "hidden": 512, "intermediate": 256, "ep": 4, "tp": 2}
    for gated, parts in ((True, 3), (False, 2)):
        op = Op.make("moe", Variant(flags=(("gated", gated),)), tokens=32, **sizes)
        graph = Graph("experts", (Block("forward", (Node("experts", op, ("x",)),)),))
        (added,) = (
            node.op for _, node in backward_graph(graph).nodes() if "accumulated" in node.name
        )
        assert added.dim("elements") == 64 // 4 * parts * 512 * (256 // 2)
        assert added.dim("inputs") == 2


def test_gradients_of_latent_attention_are_those_of_its_heads_as_they_are_made() -> None:
    sizes = {"num_heads": 16, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
    lengths = (LENGTH,) * BATCH
    op = Op.make("mla_prefill", Variant(), q_len=lengths, kv_len=lengths, kv_lora_rank=512, **sizes)
    ((suffix, gradient),) = gradients(Node("attention", op, ("kv_b",)))
    assert (suffix, gradient.family) == ("input", "attention_backward")
    names = ("num_heads", "num_kv_heads", "head_dim", "value_dim")
    assert [gradient.dim(name) for name in names] == [16, 16, 128 + 64, 128]
    scores = BATCH * LENGTH * (LENGTH + 1) // 2  # a query sees itself and what is before it
    kernel = implementation_for(gradient.family, "simt")
    assert kernel is not None
    assert kernel.flops(gradient) == 2 * 16 * (3 * 192 + 2 * 128) * scores


def test_dropout_and_loss_run_where_asked() -> None:
    names = [node.name for _, node in trained("GPT-2").nodes()]
    assert {"loss", "loss_grad_input"} <= set(names)
    sources = [node.source for _, node in trained("GPT-2").nodes()]
    assert "dropout" in sources
    plain = trained("GPT-2", Training(loss=False, dropout=False))
    assert not {"loss", "dropout"} & {n.source or n.name for _, n in plain.nodes()}
    assert "dropout" not in [node.source for _, node in trained("Llama-3.1-8B").nodes()]


def test_an_encoder_trains_on_masked_words() -> None:
    names = [node.name for _, node in trained("bert_large").nodes()]
    assert {"transform", "transform_norm", "prediction", "loss"} <= set(names)


@pytest.mark.parametrize(("recompute", "again"), [("none", 0), ("selective", 5), ("full", 21)])
def test_recomputation_runs_forward_nodes_again(recompute: str, again: int) -> None:
    graph = trained("GPT-2", Training(dropout=False, recompute=recompute))
    layer = next(block for block in graph.blocks if block.name == "layer_backward")
    items = [node.name for node in layer.nodes if node.name.endswith("_again")]
    forward = next(block for block in graph.blocks if block.name == "layer")
    assert len(items) == (len(forward.nodes) if recompute == "full" else again)
    assert len({node.name for node in layer.nodes}) == len(layer.nodes)


def test_names_are_unique_and_inputs_are_there() -> None:
    for name in ("GPT-2", "bert_large", "switchxl4", "Qwen3-30B-A3B"):
        for block in trained(name).blocks:
            names = [node.name for node in block.nodes]
            assert len(names) == len(set(names)), block.name
            if block.direction == "forward":
                known: set[str] = set()
                for node in block.nodes:
                    assert set(node.inputs) <= known, node
                    known.add(node.name)


def test_any_program_trains() -> None:
    conv = Op.make("conv2d", batch=8, in_channels=3, out_channels=64, height=32, width=32,
                   kernel=3, stride=1, padding=1)  # fmt: skip
    moved = Op.make("data_movement", read_bytes=4096, written_bytes=1024)
    odd = Op.make("gdn", tokens=128, hidden=64)
    nodes = (Node("conv", conv), Node("pool", moved, ("conv",)), Node("odd", odd, ("pool",)))
    graph = training_graph(Graph("net", (Block("forward", nodes),)))
    result = [(node.name, node.op) for _, node in graph.nodes()][3:]
    assert [name for name, _ in result] == [
        "odd_grad_input", "odd_grad_weight", "pool_grad_input", "conv_grad_input",
        "conv_grad_weight",
    ]  # fmt: skip
    assert (result[2][1].dim("read_bytes"), result[2][1].dim("written_bytes")) == (1024, 4096)


def test_sizes_that_are_symbols_are_named() -> None:
    node = Node("loss", Op.make("cross_entropy", rows="tokens", vocab=100), ("x",))
    with pytest.raises(SilicastError, match="needs a number for rows"):
        gradients(node)


@examples(25)
@given(batch=st.integers(1, 8), length=st.integers(16, 512))
def test_backward_moves_at_least_what_the_weights_are(batch: int, length: int) -> None:
    model = find_model("GPT-2")
    framework = Framework(training=Training())
    graph = framework_graph(build_graph(model), model, PassShape(batch, length), framework)
    kinds = {block.direction for block, _ in graph.nodes()}
    assert kinds == {"forward", "backward"}
    for _, node in graph.nodes():
        for name, size in node.op.dims:
            assert isinstance(size, int), (node.name, name)
            assert size >= (0 if name in {"residual", "read_bytes", "operations"} else 1)


def test_the_same_block_has_the_gradients_that_the_pass_asks_for() -> None:
    nodes = (
        Node("up", Op.make("gemm", m=512, n=4096, k=1024)),
        Node("act", passes("gelu"), ("up",)),
    )
    graph = Graph("one layer", (Block("layer", nodes, layers=(0,)),))
    names = {
        recompute: [
            node.name for _, node in backward_graph(graph, Training(recompute=recompute)).nodes()
        ]
        for recompute in ("none", "full", "none")
    }
    assert "up_again" in names["full"]
    assert "up_again" not in names["none"]
    head = Graph("head", (Block("head", nodes),))
    assert "up_again" not in [
        node.name for _, node in backward_graph(head, Training(recompute="full")).nodes()
    ]
