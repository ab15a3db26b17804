"""NeuSight's op graphs as programs."""

from pathlib import Path

import pytest

from lab.scorecard.neusight_graph import read_neusight_graph
from silicast.core.errors import SilicastError

HEADER = "name,op,fw_ops,bw_ops,acc_ops,prev,next,in_shapes,out_shape\n"
LINEAR = {"name": "fc", "op": "Linear", "fw_ops": "[['Linear', (512, 1024, 4096)]]",
          "bw_ops": "[['Linear', (512, 4096, 1024)], ['Linear', (4096, 512, 1024)]]",
          "acc_ops": "[['VECadd', [1, 4194304]]]", "prev": "x", "next": "act",
          "in_shapes": "[(512, 1024)]", "out_shape": "(512, 4096)"}  # fmt: skip
RELU = {"name": "act", "op": "VECrelu", "fw_ops": "[['VECrelu', (512, 4096)]]", "bw_ops": "[]",
        "acc_ops": "[]", "prev": "fc", "in_shapes": "[]", "out_shape": "(1,)"}  # fmt: skip


def test_operations_and_sizes() -> None:
    graph = read_neusight_graph([LINEAR, RELU])
    forward, backward = graph.blocks
    assert [(n.name, n.op.family) for n in forward.nodes] == [
        ("fc", "gemm"),
        ("act", "elementwise"),
    ]
    assert dict(forward.nodes[0].op.dims) == {"batch": 1, "m": 512, "k": 1024, "n": 4096}
    assert forward.nodes[1].inputs == ("fc",)
    assert [n.op.family for n in backward.nodes] == ["gemm", "gemm", "elementwise"]
    assert backward.direction == "backward"
    assert backward.nodes[2].op.dim("inputs") == 2
    assert graph.phase == "training"


@pytest.mark.parametrize(
    ("cell", "family", "sizes"),
    [
        ("[['BMM', (8, 64, 32, 16)]]", "gemm", {"batch": 8, "m": 64, "k": 32, "n": 16}),
        ("[['VECsoftmax', (64, 32)]]", "softmax", {"rows": 64, "cols": 32}),
        ("[['VECln', (64, 32)]]", "layernorm", {"tokens": 64, "hidden": 32, "residual": 0}),
        ("[['VECaddu', (64, 32)]]", "elementwise", {"elements": 2048, "inputs": 1}),
        ("[['VECmul', (64, 32)]]", "elementwise", {"elements": 2048, "inputs": 2}),
        ("[['MEM', ((64, 2), (32,))]]", "data_movement",
         {"read_bytes": 512, "written_bytes": 128, "operations": 0}),
        ("[['ALLREDUCE', (1024,)]]", "all_reduce", {"bytes": 4096, "gpus": 4}),
        ("[['SENDRECV', (1024,)]]", "send_recv", {"bytes": 4096, "gpus": 2}),
    ],
)  # fmt: skip
def test_kinds(cell: str, family: str, sizes: dict[str, int]) -> None:
    (block,) = read_neusight_graph([{"name": "n", "fw_ops": cell}]).blocks
    assert block.nodes[0].op.family == family
    assert dict(block.nodes[0].op.dims) == sizes


def test_sums_beside_the_computation_have_a_stream_of_their_own() -> None:
    rows = [{"name": "n", "fw_ops": "[['ALLREDUCE_ASYNC', (1024,)]]"}]
    (block,) = read_neusight_graph(rows).blocks
    assert block.nodes[0].stream == 1
    assert block.nodes[0].op.variant.flags == ()


def test_a_layer_repeats() -> None:
    names = ["wte", "transformer_h_0_ln_1", "addmm", "add_15", "lm_head"]
    rows = [LINEAR | {"name": name} for name in names]
    blocks = read_neusight_graph(rows, layers=36).blocks
    assert [(b.name, b.count, len(b.nodes)) for b in blocks] == [
        ("before", 1, 1), ("layer", 36, 3), ("after", 1, 1),
        ("after_backward", 1, 3), ("layer_backward", 36, 9), ("before_backward", 1, 3),
    ]  # fmt: skip
    with pytest.raises(SilicastError, match="no layer of a known family"):
        read_neusight_graph([LINEAR], layers=2)


def test_a_kernel_that_neusight_loses_costs_its_bytes() -> None:
    lost = {"name": "max_1", "op": "misc", "fw_ops": "[]", "in_shapes": "[(64, 64), (1,)]",
            "out_shape": "(64, 64)"}  # fmt: skip
    free = lost | {"name": "view_3"}
    (block,) = read_neusight_graph([lost, free]).blocks
    (node,) = block.nodes
    assert node.op.variant.flag("unmodelled")
    assert node.op.dim("written_bytes") == 4 * 64 * 64


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "net.csv"
    path.write_text(HEADER + 'fc,Linear,"[[\'Linear\', (8, 8, 8)]]",[],[],,,[],"(8, 8)"\n')
    graph = read_neusight_graph(path)
    assert graph.name == "net"
    assert [node.name for _, node in graph.nodes()] == ["fc"]


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("__import__('os').getcwd()", "not a list of operations"),
        ("[['Linear', (8, 8)]]", "expected \\[kind, sizes\\]"),
        ("[['GELU', (8, 8)]]", "expected \\[kind, sizes\\]"),
        ("[['VECwave', (8, 8)]]", "expected \\[kind, sizes\\]"),
        ("[" * 100_000, "not a list of operations"),
        ("[]", "no row of the op graph"),
    ],
)
def test_bad_cells(cell: str, said: str) -> None:
    with pytest.raises(SilicastError, match=said):
        read_neusight_graph([{"name": "bad", "fw_ops": cell}])


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(SilicastError, match="cannot read"):
        read_neusight_graph(tmp_path / "none.csv")
