"""Op-graph files: written and read again, and everything that can be wrong with one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.core.errors import SilicastError
from silicast.workload.graphs.graph import Block, Direction, Graph, Node
from silicast.workload.graphs.op import Op, Variant
from silicast.workload.graphs.op_graph import read_op_graph, write_op_graph

names = st.text("abcdefgh_", min_size=1, max_size=8)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    count = draw(st.integers(1, 8))
    nodes: list[Node] = []
    for index in range(count):
        before = [node.name for node in nodes]
        chosen = draw(st.lists(st.sampled_from(before), unique=True, max_size=3)) if before else []
        variant = Variant(
            dtype=draw(st.sampled_from(["bf16", "fp32", "fp8"])),
            library=draw(st.sampled_from(["", "cublas"])),
            flags=(("causal", draw(st.booleans())),) if draw(st.booleans()) else (),
        )
        op = Op.make(
            draw(st.sampled_from(["gemm", "softmax", "data_movement"])),
            variant,
            m=draw(st.integers(0, 1 << 40)),
            kv_len=draw(
                st.one_of(st.integers(1, 9), st.lists(st.integers(1, 9), min_size=1).map(tuple))
            ),
        )
        nodes.append(
            Node(
                f"n{index}", op, tuple(chosen), draw(st.integers(0, 2)), draw(st.integers(0, 99)),
                draw(st.integers(0, 99)), draw(names),
            )
        )  # fmt: skip
    cut = draw(st.integers(1, count))
    blocks = [Block("forward", tuple(nodes[:cut]))]
    if nodes[cut:]:
        direction: Direction = draw(st.sampled_from(["forward", "backward"]))
        blocks.append(Block("rest", tuple(nodes[cut:]), times=2, direction=direction))
    phase = "training" if any(b.direction == "backward" for b in blocks) else "inference"
    return Graph("drawn", tuple(blocks), phase, parameter_bytes=draw(st.integers(0, 1 << 40)))


@given(graphs())
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, graph: Graph
) -> None:
    path = tmp_path_factory.mktemp("graph") / "g.json"
    write_op_graph(graph, path)
    assert read_op_graph(path) == graph


NODE: dict[str, Any] = {"name": "a", "op": "gemm", "dims": {"m": 8, "n": 8, "k": 8}}


def read(tmp_path: Path, tree: object, **symbols: int) -> Graph:
    path = tmp_path / "g.json"
    path.write_text(tree if isinstance(tree, str) else json.dumps(tree))
    return read_op_graph(path, symbols)


def graph(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"format": 1, "nodes": list(nodes), **more}


def test_sizes_that_are_open_take_the_values_given(tmp_path: Path) -> None:
    node = {**NODE, "dims": {"m": {"symbol": "batch", "factor": 128, "constant": 1}, "n": "width"}}
    tree = graph(node, symbols={"batch": 2, "width": None})
    result = read(tmp_path, tree, width=7)
    assert dict(result.blocks[0].nodes[0].op.dims) == {"m": 257, "n": 7}
    assert dict(read(tmp_path, tree, width=7, batch=4).blocks[0].nodes[0].op.dims)["m"] == 513


def test_a_size_that_is_not_open_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SilicastError, match="leaves no size 'seq_len' open"):
        read(tmp_path, graph(NODE, symbols={"batch": 2}), seq_len=9)


def test_nodes_in_any_order_are_put_behind_their_inputs(tmp_path: Path) -> None:
    result = read(tmp_path, graph({**NODE, "name": "b", "inputs": ["a"]}, NODE))
    assert [node.name for node in result.blocks[0].nodes] == ["a", "b"]


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "expected a table, found a list"),
        ({"format": 2, "nodes": [NODE]}, "expected 1, found 2"),
        ({"format": 1}, "expected either nodes or blocks"),
        (graph(), "holds no operation"),
        (graph(NODE, colour=1), "colour"),
        (graph({**NODE, "dims": {}}), "'a' has no sizes"),
        (graph({**NODE, "dims": {"m": -1}}), "m = -1 is below 0"),
        (graph({**NODE, "dims": {"m": 1.5}}), "dims"),
        (graph({**NODE, "output_bytes": -1}), "output_bytes is below 0"),
        (graph({**NODE, "dims": {"m": 10**40}}), "m is beyond 2^50"),
        (graph({**NODE, "dims": {"m": "(2**8)**8"}}), "m is beyond 2^50"),
        (graph({**NODE, "output_bytes": 10**40}), "output_bytes is beyond 2^50"),
        (graph(NODE, parameter_bytes=10**40), "parameter_bytes is beyond 2^50"),
        (graph({**NODE, "stream": 10**40}), "stream"),
        (graph({**NODE, "dims": {"q_len": []}}), "q_len is empty (only q_len and kv_len"),
        (graph({**NODE, "dims": {"m": [1, 2]}}), "m is a list (only q_len and kv_len"),
        (graph({**NODE, "dims": {"q_len": [1], "kv_len": [1, 2]}}), "of different lengths"),
        (graph({**NODE, "dims": {"m": "batch"}}), "'a': m is 'batch', which `symbols` does not"),
        (graph({**NODE, "dims": {"m": "batch"}}, symbols={"batch": None}), "has no value"),
        (graph(NODE, NODE), "two nodes are called 'a'"),
        (graph({**NODE, "inputs": ["zz"]}), "'a' waits for 'zz', which is no node"),
        (graph({**NODE, "inputs": ["a"]}), "in a cycle: 'a'"),
        (
            graph({**NODE, "inputs": ["b"]}, {**NODE, "name": "b", "inputs": ["a"]}),
            "in a cycle: 'a', 'b'",
        ),
        ({"format": 1, "blocks": [{"name": "x", "times": 0, "nodes": [NODE]}]}, "runs 0 times"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, tree: object, message: str) -> None:
    with pytest.raises(SilicastError) as error:
        read(tmp_path, tree)
    assert message in str(error.value)
    assert error.value.file.endswith("g.json")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SilicastError, match="cannot read"):
        read_op_graph(tmp_path / "none.json")
