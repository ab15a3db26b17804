"""TFLite files written here byte by byte: what is read of them, and damage that is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.learning.board_networks import counted
from silicast.measurement.runtimes.flat_file import flat
from silicast.workload.front_ends import read_program
from silicast.workload.graphs.graph import Graph
from tests.tflite_file import CONV, CUSTOM, DENSE, FP32, INT8, SMALL, TRANSPOSED, model


def read(tmp_path: Path, content: bytes) -> Graph:
    path = tmp_path / "m.tflite"
    path.write_bytes(content)
    return read_program(path)


def test_operators_become_kernels_in_order(tmp_path: Path) -> None:
    nodes = [node for _, node in read(tmp_path, SMALL).nodes()]
    assert [node.name for node in nodes] == ["conv", "conv_2", "gemm", "softmax"]
    assert nodes[2].inputs == ("conv_2",)  # a reshape is none
    first, deep, dense = (dict(node.op.dims) for node in nodes[:3])
    assert (first["in_channels"], first["out_channels"], first["stride"]) == (3, 16, 2)
    assert (first["height"], first["kernel"], first["groups"]) == (32, 3, 1)
    assert (deep["groups"], deep["kernel"], deep["height"]) == (16, 5, 16)
    assert (dense["m"], dense["n"], dense["k"]) == (1, 10, 4096)
    assert {node.op.variant.dtype for node in nodes[:3]} == {"int8"}


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        ((CONV, (), (2,), {}), "reads 0 tensors, needs 2"),
        ((CONV, (0, 1), (5,), {}), "other than four axes"),
        ((TRANSPOSED, (0, 1), (2,), {}), "reads 2 tensors, needs 3"),
        ((DENSE, (0,), (7,), {}), "reads 1 tensors, needs 2"),
    ],
)
def test_operators_with_too_little_are_named(
    tmp_path: Path,
    operator: tuple[int, tuple[int, ...], tuple[int, ...], dict[int, Any]],
    message: str,
) -> None:
    tensors = [
        ((1, 32, 32, 3), INT8, False),
        ((16, 3, 3, 3), INT8, True),
        ((1, 16, 16, 16), INT8, False),
        *[((1, 4096), INT8, False)] * 5,
    ]
    with pytest.raises(SilicastError, match=message):
        read(tmp_path, model(tensors, [operator]))


def test_weights_are_counted_once_in_their_format(tmp_path: Path) -> None:
    graph = read(tmp_path, SMALL)
    assert graph.parameter_bytes == 16 * 27 + 25 * 16 + 10 * 4096


def test_weights_that_are_unpacked_first_are_no_operator(tmp_path: Path) -> None:
    """Files with weights in half precision widen each before it is used: runtimes do so once."""
    tensors: list[tuple[tuple[int, ...], int, bool]] = [
        ((1, 32, 32, 3), FP32, False),
        ((16, 3, 3, 3), 1, True),
        ((16, 3, 3, 3), FP32, False),
        ((1, 32, 32, 16), FP32, False),
    ]
    operators: list[tuple[int, tuple[int, ...], tuple[int, ...], dict[int, Any]]] = [
        (6, (1,), (2,), {}),
        (CONV, (0, 2), (3,), {1: 1, 2: 1}),
    ]
    graph = read(tmp_path, model(tensors, operators))
    (node,) = (node for _, node in graph.nodes())
    assert node.inputs == ()
    assert node.parameter_bytes == graph.parameter_bytes == 2 * 16 * 27
    network = counted(graph)
    assert (network.operators, network.mparams) == (1, 16 * 27 / 1e6)


def test_a_transposed_convolution_doubles_the_image(tmp_path: Path) -> None:
    content = model(
        [
            ((1, 8, 8, 32), FP32, False),
            ((4,), 2, True),
            ((16, 2, 2, 32), FP32, True),
            ((1, 16, 16, 16), FP32, False),
        ],
        [(TRANSPOSED, (1, 2, 0), (3,), {0: 1, 1: 2, 2: 2})],
    )
    (node,) = (node for _, node in read(tmp_path, content).nodes())
    sizes = dict(node.op.dims)
    assert node.op.variant.flag("backward_data")
    assert (sizes["height"], sizes["in_channels"], sizes["out_channels"]) == (16, 16, 32)


def test_a_custom_operator_is_named_and_has_no_model(tmp_path: Path) -> None:
    content = model(
        [((1, 64), FP32, False), ((1, 64), FP32, False)], [(CUSTOM, (0,), (1,), {})], "MyOp"
    )
    (node,) = (node for _, node in read(tmp_path, content).nodes())
    assert node.source == "tflite.MyOp"
    assert node.op.variant.flag("unmodelled")


CYCLE = model(
    [((1, 4), FP32, False)] * 3, [(0, (0, 2), (1,), {}), (0, (1, 0), (2,), {})]
)  # ADD of what the next ADD makes


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"PK\3\4" * 9, "is not a TFLite file"),
        (SMALL[: len(SMALL) // 2], "which it does not have"),
        (SMALL[:9], "which it does not have"),
        (CYCLE, "operator 0 reads tensor 2, which nothing before it makes"),
        (model([((1, 4), FP32, False)], [(0, (0, 7), (0,), {})]), "names tensor 7, of 1"),
        (flat({0: 3, 1: [], 2: []}), "holds no operators"),
    ],
)
def test_damage_is_named(tmp_path: Path, content: bytes, part: str) -> None:
    with pytest.raises(SilicastError, match=part) as caught:
        read(tmp_path, content)
    assert "m.tflite" in str(caught.value)


def test_every_cut_ends_in_an_error(tmp_path: Path) -> None:
    """Or in the same graph, where nothing is missing but padding."""
    for end in range(8, len(SMALL), 97):
        with pytest.raises(SilicastError):
            read(tmp_path, SMALL[:end])


LSTM, RNN = 44, 35
LEFT_OUT = -1


def sequence(weights: tuple[int, ...], *, operands: tuple[int, ...] = (0, LEFT_OUT, 1)) -> bytes:
    tensors = [((2, 10, 7), FP32, False), (weights, FP32, True), ((2, 10, 5), FP32, False)]
    return model(tensors, [(LSTM, operands, (2,), {})])


def test_a_layer_of_an_lstm_is_one_call(tmp_path: Path) -> None:
    """Weights of the input gate may be left out, those of the forget gate never are."""
    ((_, node),) = read(tmp_path, sequence((5, 7))).nodes()
    assert node.op.family == "lstm"
    assert dict(node.op.dims) == {"batch": 2, "steps": 10, "hidden": 5, "input": 7}
    first = [((10, 2, 7), FP32, False), ((5, 7), FP32, True), ((10, 2, 5), FP32, False)]
    steps_first = model(first, [(RNN, (0, 1), (2,), {0: 1})])
    ((_, node),) = read(tmp_path, steps_first).nodes()
    assert node.op.family == "rnn"
    assert dict(node.op.dims)["steps"] == 10


@pytest.mark.parametrize(
    "content",
    [sequence((5, 7), operands=(0,)), sequence((5, 7, 1)), sequence((5, 7), operands=(1, 0, 1))],
)
def test_a_damaged_layer_is_named(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(SilicastError, match="operator LSTM has no sequence"):
        read(tmp_path, content)
