"""Chips and layers of other tools' files, written here in their formats; what is wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from silicast.accelerator.counting.einsum import conv2d
from silicast.accelerator.counting.layer_table import mapped_layers, workload_of
from silicast.accelerator.design.architecture import FanOut, Memory
from silicast.accelerator.design.architecture_file import read_design
from silicast.accelerator.design.architecture_text import text_of
from silicast.accelerator.foreign.reader import read_hardware, read_workload
from silicast.accelerator.mapper.task import Task, mapped, task_of
from silicast.app.cli import main
from silicast.core.catalog import CATALOG
from silicast.core.errors import SilicastError

SCALE = """[general]
run_name = small
[architecture_presets]
ArrayHeight: 8
ArrayWidth: 4
IfmapSramSzkB: 64
FilterSramSzkB: 32
OfmapSramSzkB: 16
Bandwidth: 10
Dataflow: ws
[run_presets]
InterfaceBandwidth: USER
"""
TOPOLOGY = """Layer, IFMAP Height, IFMAP Width, Filter Height, Width, Channels, Filters, Strides,
Conv1, 30, 30, 3, 3, 16, 32, 1,
Conv1b, 30, 30, 3, 3, 16, 32, 1,
Conv2DP, 16, 15, 3, 3, 32, 1, 2,
"""
ZIGZAG = """name: small
memories:
  rf:
    size: 64
    r_cost: 0.1
    w_cost: 0.2
    area: 3
    latency: 1
    operands: [I2]
    ports:
      - name: r_port_1
        type: read
        bandwidth_min: 8
        bandwidth_max: 8
        allocation:
          - I2, tl
      - name: w_port_1
        type: write
        bandwidth_min: 8
        bandwidth_max: 8
        allocation:
          - I2, fh
    served_dimensions: [D2]
  dram:
    size: 10000000
    r_cost: 100
    w_cost: 110
    latency: 1
    operands: [I1, I2, O]
    ports:
      - name: rw_port_1
        type: read_write
        bandwidth_min: 64
        bandwidth_max: 64
        allocation:
          - I1, tl
          - I2, tl
          - O, tl
          - O, fl
          - O, th
    served_dimensions: [D1, D2]
operational_array:
  unit_energy: 0.5
  unit_area: 1
  dimensions: [D1, D2]
  sizes: [4, 2]
dataflows:
  D1:
    - K, 4
  D2:
    - OX, 2
"""
ZIGZAG_LAYERS = """- id: 0
  name: conv
  operator_type: Conv
  equation: O[b][k][oy][ox]+=W[k][c][fy][fx]*I[b][c][iy][ix]
  dimension_relations: [ix=2*ox+1*fx, iy=2*oy+1*fy]
  loop_dims: [B, K, C, OY, OX, FY, FX]
  loop_sizes: [1, 8, 4, 6, 6, 3, 3]
- id: 1
  operator_type: Add
  equation: O[b][g][oy][ox]=W[b][g][oy][ox]+I[b][g][oy][ox]
  loop_dims: [B, G, OY, OX]
  loop_sizes: [1, 8, 6, 6]
"""
MAESTRO = """num_pes: 16
l1_size_cstr: 128
l2_size_cstr: 4096
noc_bw_cstr: 16
offchip_bw_cstr: 4
"""
NETWORK = """// a comment
Network small {
  Layer CONV1 {
    Type: CONV
    Stride { X: 2, Y: 2 }
    Dimensions { K: 8, C: 3, R: 3, S: 3, Y: 17, X: 17 }
    Dataflow { SpatialMap(1,1) K; Cluster(4, P); }
  }
  Layer DW { Type: DSCONV Dimensions { K: 1, C: 8, R: 3, S: 3, Y: 10, X: 10 } }
  Layer POOL1 { Type: POOL Dimensions { K: 8, C: 8, R: 2, S: 2, Y: 8, X: 8 } }
}
"""


def written(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_scale_sim(tmp_path: Path) -> None:
    hardware = read_hardware(written(tmp_path, "small.cfg", SCALE))
    chip = hardware.architecture
    array = next(node for node in chip.nodes if isinstance(node, FanOut))
    assert (array.mesh, array.systolic, chip.name) == ((8, 4), "Weights", "small")
    assert [m.usable_words for m in chip.memories[1:4]] == [32768, 16384, 8192]
    work = read_workload(written(tmp_path, "net.csv", TOPOLOGY))
    assert [layer.count for layer in work.layers] == [2, 1]
    first, second = (layer.einsum for layer in work.layers)
    assert first.points == 28 * 28 * 3 * 3 * 16 * 32
    assert dict(second.bounds) == {"G": 32, "C": 1, "M": 1, "R": 3, "S": 3, "N": 1, "P": 8, "Q": 7}
    products = written(tmp_path, "mm.csv", "Layer, M, N, K,\nfc, 16, 32, 64,\n")
    assert read_workload(products).layers[0].einsum.points == 16 * 32 * 64


def test_zigzag(tmp_path: Path) -> None:
    hardware = read_hardware(written(tmp_path, "chip.yaml", ZIGZAG))
    chip = hardware.architecture
    assert [node.name for node in chip.nodes] == ["dram", "D1", "rf", "D2"]
    rf = chip.nodes[2]
    assert isinstance(rf, Memory)
    assert (rf.capacity_words, rf.keeps, rf.read_pj, rf.fill_pj) == (8, ("Weights",), 0.1, 0.2)
    assert [port.actions for port in rf.ports] == [("read",), ("fill",)]
    assert chip.memories[0].ports[0].words_per_cycle == 8
    assert hardware.constraints.rules["D2", 0].most["Q"] == 2
    work = read_workload(written(tmp_path, "layers.yaml", ZIGZAG_LAYERS))
    assert work.left == {"Add": 1}
    einsum = work.layers[0].einsum
    assert einsum.points == 8 * 4 * 36 * 9
    assert einsum.tensor("Inputs").size(einsum.bounds) == 4 * 13 * 13
    answer = mapped_layers(str(tmp_path / "chip.yaml"), work, "latency")
    assert answer.cycles >= einsum.points / 8


def shared_register(served_by_sums: str = "[D2]") -> str:
    """ZIGZAG with a register of sums that serves one dimension, and one of weights the other."""
    head, array = ZIGZAG.split("operational_array")
    memories = head.replace("served_dimensions: [D2]", "served_dimensions: [D1]")
    sums = f"""
  sums: {{size: 32, r_cost: 0.1, w_cost: 0.1, area: 0, operands: [O],
         served_dimensions: {served_by_sums}, ports: [{{name: p, type: read_write,
         bandwidth_max: 8, allocation: ["O, tl", "O, fl"]}}]}}
"""
    array = array.partition("dataflows")[0]
    return memories.replace("memories:\n", f"memories:{sums}") + "operational_array" + array


def test_zigzags_memories_beside_each_other(tmp_path: Path) -> None:
    """Four units along D1 share a register of weights, two along D2 add into one of sums: no chain
    holds both, so that the four are one wide access of equal words.
    """
    hardware = read_hardware(written(tmp_path, "chip.yaml", shared_register()))
    chip = hardware.architecture
    assert [node.name for node in chip.nodes] == ["dram", "D1", "sums", "D2", "rf"]
    register = chip.nodes[-1]
    assert isinstance(register, Memory)
    assert (register.cluster, register.keeps) == (4, ("Weights",))
    assert set(hardware.constraints.rules["D1", 0].indexing) == {"Inputs", "Outputs"}
    einsum = conv2d(c=2, m=1, p=2, q=2, r=1, s=1)
    cost = mapped(Task(einsum, chip, hardware.constraints), "energy").cost
    reads = cost.access_pj[chip.memories.index(register), einsum.names.index("Weights"), 0]
    fills = 2 * 0.2  # both words, into all four at once
    assert reads == pytest.approx(8 / 4 * 0.1 + fills)  # 8 products; four units share a read


def test_keys_that_zigzag_repeats_count_as_there(tmp_path: Path) -> None:
    text = ZIGZAG.replace("name: small", "name: other\nname: small")
    hardware = read_hardware(written(tmp_path, "chip.yaml", text))
    assert hardware.architecture.name == "small"
    assert "line 2 gives name a second time: the last counts, as there" in hardware.notes


ACCELFORGE = """arch:
  nodes:
  - !Memory
    name: MainMemory
    size: inf
    leak_power: 0
    tensors: {keep: ~Intermediates, may_keep: All}
    actions:
    - {name: read, energy: 2e-12, throughput: 8 * 4e9}
    - {name: write, energy: 3e-12, throughput: inf}
  - !Memory
    name: Buffer
    size: 1024*8
    tensors: {keep: input | output, may_keep: All}
    actions:
    - {name: read, energy: 1e-12, throughput: inf, bits_per_action: 64}
    - {name: write, energy: 1e-12, throughput: inf, bits_per_action: 64}
  - !Container
    name: Array
    spatial:
    - {name: rows, fanout: 4, reuse: weight, min_usage: 1}
  - !Memory
    name: Register
    size: weight.bits_per_value if weight else 0
    tensors: {keep: weight}
    actions: [{name: read, energy: 0}, {name: write, energy: 0}]
  - !Compute
    name: MAC
    leak_power: 0.5
    actions: [{name: compute, energy: 0.1e-12, throughput: 2e9 / (1 + 1)}]
"""


def test_accelforge(tmp_path: Path) -> None:
    """Energies of bits become those of words, bits a second words a cycle, watts pJ a cycle."""
    hardware = read_hardware(written(tmp_path, "chip.yaml", ACCELFORGE))
    chip = hardware.architecture
    assert [node.name for node in chip.nodes] == ["MainMemory", "Buffer", "Array", "Register"]
    main, buffer, register = chip.memories
    assert main.read_pj == pytest.approx(16.0)
    assert main.fill_pj == pytest.approx(24.0)
    assert [(port.name, port.words_per_cycle) for port in main.ports] == [("read", 4.0)]
    assert (buffer.capacity_words, buffer.block_words, buffer.read_pj) == (1024, 8, 1.0)
    assert buffer.may_bypass == ("Weights",)
    assert (register.capacity_words, register.keeps) == (1, ("Weights",))
    assert hardware.constraints.rules["Array", 0].indexing == ("Inputs", "Outputs")
    assert chip.compute.leak_pj_per_cycle == pytest.approx(500.0)
    answer = mapped(Task(conv2d(c=2, m=1, p=2, q=2, r=1, s=1), chip, hardware.constraints))
    assert answer.cost.traffic.units[0] == 4  # four results side by side share a weight


def test_maestro(tmp_path: Path) -> None:
    chip = read_hardware(written(tmp_path, "chip.m", MAESTRO)).architecture
    assert chip.units == 16
    assert [m.usable_words for m in chip.memories[1:]] == [2048, 64]
    work = read_workload(written(tmp_path, "net.m", NETWORK))
    assert work.left == {"POOL": 1}
    assert [layer.einsum.points for layer in work.layers] == [8 * 3 * 9 * 8 * 8, 8 * 9 * 8 * 8]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.cfg", SCALE.replace("ws", "rs"), "unknown dataflow 'rs'"),
        ("a.cfg", SCALE.replace("ArrayHeight: 8", "ArrayHeight: 0"), "ArrayHeight"),
        ("a.cfg", SCALE.replace("Bandwidth: 10", "Bandwidth: 0"), "words a cycle, found '0'"),
        ("a.cfg", "x", "is no configuration"),
        ("a.cfg", "[general]\n", "no section"),
        (
            "a.yaml",
            ZIGZAG.replace("bandwidth_max: 64", "bandwidth_max: 0"),
            "bandwidth_max: expected more than 0",
        ),
        ("a.yaml", ZIGZAG.replace("[D2]", "[D3]"), "no dimension 'D3'"),
        ("a.yaml", ZIGZAG.replace("[I2]\n", "[I3]\n"), "operands: no 'I3'"),
        ("a.yaml", ZIGZAG.replace("sizes: [4, 2]", "sizes: [4]"), "2 dimensions and 1 sizes"),
        ("a.yaml", ZIGZAG.replace("name: small", "name: {{ x }}"), "is a template"),
        ("a.yaml", ZIGZAG.replace("name: small", "name: *x"), "repeats 'x'"),
        ("a.yaml", ACCELFORGE.replace("1024*8", "two"), "size: cannot read 'two'"),
        ("a.yaml", ACCELFORGE.replace("input | output", "x"), "keep: cannot read 'x'"),
        ("a.m", MAESTRO.replace("16\n", "0\n", 1), "num_pes"),
        ("a.m", "num_pes 3", "expected num_pes: 256"),
        ("a.txt", "", "no file of a tool that we know"),
    ],
)
def test_wrong_chips_are_refused_by_field(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(SilicastError) as error:
        read_hardware(written(tmp_path, name, text))
    assert said in str(error.value)
    assert name in str(error.value)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "head\n", "no layer"),
        ("a.csv", TOPOLOGY.replace("30, 30, 3, 3", "2, 30, 3, 3"), "larger than its input"),
        ("a.csv", TOPOLOGY.replace("16, 32, 1,", "16, x, 1,"), "line 2, filters"),
        ("a.yaml", ZIGZAG_LAYERS.replace("ix=2*ox+1*fx", "ix:ox"), "dimension_relations"),
        ("a.yaml", ZIGZAG_LAYERS.replace("[1, 8, 4, 6, 6, 3, 3]", "[1]"), "1 loop_sizes"),
        ("a.m", NETWORK.replace("R: 3", "R: 30", 1), "larger than its input"),
        ("a.m", NETWORK.replace("K: 8, C: 3", "C: 3"), "has no K"),
        ("a.m", NETWORK.rstrip()[:-3], "ends inside a brace"),
    ],
)  # fmt: skip
def test_wrong_layers_are_refused_by_field(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(SilicastError) as error:
        read_workload(written(tmp_path, name, text))
    assert said in str(error.value)


@pytest.mark.parametrize("name", ["eyeriss", "systolic-128"])
def test_what_is_written_is_read_as_the_same_design(tmp_path: Path, name: str) -> None:
    design = read_design(CATALOG / "designs" / f"{name}.toml")
    path = written(tmp_path, "again.toml", text_of(design.architecture, design.constraints))
    again = read_design(path)
    assert again.architecture == design.architecture
    assert again.constraints == design.constraints


def test_importing_and_mapping_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chip, net = written(tmp_path, "chip.yaml", ZIGZAG), written(tmp_path, "net.csv", TOPOLOGY)
    target = tmp_path / "chip.toml"
    assert main(["design", "import", str(chip), "-o", str(target)]) == 0
    assert main(["design", "map", str(target), str(net), "--effort", "1", "--json"]) == 0
    assert '"count": 2' in capsys.readouterr().out
    assert task_of(str(target), "matmul", ["m=2", "n=2", "k=2"]).architecture.units == 8


def test_a_graph_of_ours_is_layers(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="needs onnx: pip install 'silicast[onnx]'")
    import onnx
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes, "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 8, 8])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 6, 8, 8])],
        [helper.make_tensor("w", TensorProto.FLOAT, [6, 4, 3, 3], [0.0] * 216)],
    )  # fmt: skip
    path = tmp_path / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(path))
    workload = workload_of(path, {})
    assert [layer.einsum.points for layer in workload.layers] == [64 * 6 * 4 * 9]
    assert sum(workload.left.values()) == 1


OP_GRAPH = """{"format": 1, "name": "mlp", "symbols": {"batch": 4}, "nodes": [
  {"name": "up", "op": "gemm", "dims": {"m": "batch", "n": 8, "k": 4}},
  {"name": "act", "op": "elementwise", "flags": {"gelu": true}, "inputs": ["up"],
   "dims": {"elements": {"symbol": "batch", "factor": 8}, "inputs": 1}},
  {"name": "down", "op": "gemm", "dims": {"m": "batch", "n": 4, "k": 8}, "inputs": ["act"]},
  {"name": "next", "op": "gemm", "dims": {"m": "batch", "n": 4, "k": 4}, "inputs": ["down"]},
  {"name": "add", "op": "elementwise", "flags": {"add": true}, "inputs": ["next", "down"],
   "dims": {"elements": {"symbol": "batch", "factor": 4}, "inputs": 2}}]}"""


def test_neighbours_of_an_op_graph_run_tile_by_tile(tmp_path: Path) -> None:
    """What others need too - here an addition - does not stay on the chip."""
    path = written(tmp_path, "mlp.json", OP_GRAPH)
    workload = workload_of(path, {})
    assert [feed.names for feed in workload.feeds] == [("up", "down")]
    plain = mapped_layers("systolic-128", workload)
    result = mapped_layers("systolic-128", workload, fuse=True)
    assert [each.feed.names for each in result.fused] == [("up", "down")]
    saved = result.fused[0].saved_pj
    assert saved > 0
    assert result.energy_pj == pytest.approx(plain.energy_pj - saved)


def test_precisions_of_layers_are_named(tmp_path: Path) -> None:
    given = "  operator_type: Conv\n  operand_precision: {O: 16, O_final: 8, W: 4, I: 8}\n"
    layers = ZIGZAG_LAYERS.replace("  operator_type: Conv\n", given)
    (note,) = read_workload(written(tmp_path, "net.yaml", layers)).notes
    assert note.startswith("operand_precision (O 16, W 4) is not used")
    assert read_workload(written(tmp_path, "net.yaml", ZIGZAG_LAYERS)).notes == ()


def test_a_file_of_the_other_kind_is_named(tmp_path: Path) -> None:
    with pytest.raises(SilicastError, match="holds layers of zigzag, no chip"):
        read_hardware(written(tmp_path, "net.yaml", ZIGZAG_LAYERS))
    with pytest.raises(SilicastError, match="holds a chip of maestro, no layers"):
        read_workload(written(tmp_path, "chip.m", MAESTRO))


def test_a_size_below_0_is_told_as_it_stands(tmp_path: Path) -> None:
    with pytest.raises(SilicastError, match=r"memories.rf.size: expected more than 0, found -5"):
        read_hardware(written(tmp_path, "chip.yaml", ZIGZAG.replace("size: 64", "size: -5")))
