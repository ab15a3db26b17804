"""The update of weights behind a backward pass."""

from dataclasses import replace

from silicast.workload.graphs.graph import Block, Graph, Node, TensorValue, parameter_bytes_of
from silicast.workload.graphs.op import Op, Variant
from silicast.workload.training.gradient_buckets import format_of_weights, with_update

WEIGHT = TensorValue((64, 64), "fp32", 4 * 64 * 64, parameter=True)
NARROW = TensorValue((8,), "bf16", 16, parameter=True)
PRODUCT = Op.make("gemm", Variant("fp16"), m=8, n=64, k=64)


def program(*weights: TensorValue) -> Graph:
    read = sum(weight.nbytes for weight in weights)
    node = Node("linear", PRODUCT, parameter_bytes=read, reads=weights)
    return Graph("toy", (Block("forward", (node,)),))


def test_every_weight_is_updated_once_in_its_own_format() -> None:
    """Products under autocast are in 16 bits, the weights that they read in 32."""
    graph = with_update(program(WEIGHT, NARROW), "sgd_momentum")
    update = graph.blocks[-1].nodes[0].op
    assert graph.blocks[-1].direction == "optimizer"
    assert update.variant.dtype == "fp32"
    assert update.variant.flag("sgd_momentum")
    assert dict(update.dims)["elements"] == (WEIGHT.nbytes + NARROW.nbytes) // 4
    assert parameter_bytes_of(graph) == WEIGHT.nbytes + NARROW.nbytes


def test_without_stated_tensors_the_operations_tell_the_format() -> None:
    unstated = program(replace(WEIGHT, parameter=False))
    assert format_of_weights(unstated) == "fp16"


def test_a_program_without_weights_is_as_it_was() -> None:
    graph = program()
    assert with_update(graph, "adamw") is graph
