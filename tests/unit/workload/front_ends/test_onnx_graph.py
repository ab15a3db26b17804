"""ONNX files as graphs, each model written by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

onnx = pytest.importorskip("onnx")

from silicast.app.predict import predicted  # noqa: E402
from silicast.core.errors import SilicastError  # noqa: E402
from silicast.hardware.catalog import find_device  # noqa: E402
from silicast.learning.dispatch import time_of  # noqa: E402
from silicast.workload.front_ends import read_program  # noqa: E402
from silicast.workload.graphs.graph import Graph, Node  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

FLOAT, INT64, INT8 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.INT8
UINT8 = onnx.TensorProto.UINT8


def node(kind: str, inputs: str, outputs: str, domain: str = "", **attributes: Any) -> Any:
    """A node from words; "_" is an input left out."""
    names = ["" if name == "_" else name for name in inputs.split()]
    return onnx.helper.make_node(
        kind, names, outputs.split(), name=f"{kind}_{outputs.split(maxsplit=1)[0]}", domain=domain,
        **attributes,
    )  # fmt: skip


def tensor(name: str, *dims: int, kind: int = FLOAT, values: Sequence[float] | None = None) -> Any:
    """An initializer, of zeros where no values are given."""
    held = values if values is not None else [0] * math.prod(dims)
    return onnx.helper.make_tensor(name, kind, dims, held)


def save(
    folder: Path,
    nodes: Sequence[Any],
    inputs: Mapping[str, Sequence[int | str | None]],
    outputs: Sequence[str] = ("y",),
    weights: Sequence[Any] = (),
    opset: int = 21,
    kinds: Mapping[str, int] | None = None,
) -> Path:
    """A file with such a model."""
    kinds = kinds or {}
    graph = onnx.helper.make_graph(
        nodes, "model",
        [onnx.helper.make_tensor_value_info(n, kinds.get(n, FLOAT), d) for n, d in inputs.items()],
        [onnx.helper.make_tensor_value_info(n, kinds.get(n, FLOAT), None) for n in outputs],
        weights,
    )  # fmt: skip
    imports = [onnx.helper.make_opsetid("", opset), onnx.helper.make_opsetid("com.microsoft", 1)]
    path = folder / "model.onnx"
    model = onnx.helper.make_model(graph, opset_imports=imports)
    path.write_bytes(model.SerializeToString())
    return path


def nodes_of(path: Path, sizes: Mapping[str, int] | None = None) -> list[Node]:
    graph: Graph = read_program(path, sizes)
    return [each for _, each in graph.nodes()]


def dims(result: Node) -> dict[str, Any]:
    return dict(result.op.dims)


class TestOperators:
    def test_products(self, tmp_path: Path) -> None:
        path = save(
            tmp_path,
            [
                node("MatMul", "x w", "a"),
                node("Gemm", "b v c", "y", transB=1),
                node("Reshape", "a shape", "b"),
            ],
            {"x": (2, 3, 8)},
            weights=[
                tensor("w", 8, 16), tensor("v", 4, 16), tensor("c", 4),
                tensor("shape", 2, kind=INT64, values=[6, 16]),
            ],
        )  # fmt: skip
        first, second = nodes_of(path)
        assert dims(first) == {"batch": 1, "m": 6, "n": 16, "k": 8}
        assert dims(second) == {"batch": 1, "m": 6, "n": 4, "k": 16}
        assert second.inputs == (first.name,)
        assert first.output_bytes == 2 * 3 * 16 * 4
        assert second.parameter_bytes == (64 + 4) * 4
        assert (first.name, first.source) == ("MatMul_a", "onnx.MatMul")

    def test_stacks_of_products(self, tmp_path: Path) -> None:
        path = save(tmp_path, [node("MatMul", "a b", "y")], {"a": (2, 4, 5, 8), "b": (2, 4, 8, 7)})
        (result,) = nodes_of(path)
        assert dims(result) == {"batch": 8, "m": 5, "n": 7, "k": 8}

    def test_convolutions(self, tmp_path: Path) -> None:
        path = save(
            tmp_path,
            [
                node("Conv", "x w", "a", pads=[1, 1, 1, 1], strides=[2, 2]),
                node("ConvTranspose", "a v", "y", strides=[2, 2], group=2),
            ],
            {"x": (2, 4, 16, 16)},
            weights=[tensor("w", 8, 4, 3, 3), tensor("v", 8, 3, 2, 2)],
        )
        plain, across = nodes_of(path)
        assert dims(plain)["height"] == 16
        assert not plain.op.variant.flag("backward_data")
        assert across.op.variant.flag("backward_data")
        assert (dims(across)["in_channels"], dims(across)["out_channels"]) == (6, 8)
        assert dims(across)["height"] == 16

    def test_recurrent_layers_are_one_call_a_direction(self, tmp_path: Path) -> None:
        weights = [tensor("w", 1, 20, 7), tensor("r", 1, 20, 5)]
        nodes = [node("LSTM", "x w r", "y", hidden_size=5)]
        (call,) = nodes_of(save(tmp_path, nodes, {"x": [10, 2, 7]}, weights=weights))
        assert call.op.family == "lstm"
        assert dims(call) == {"batch": 2, "steps": 10, "hidden": 5, "input": 7}
        assert call.parameter_bytes == 4 * 20 * (7 + 5)

        both = [tensor("w", 2, 15, 7), tensor("r", 2, 15, 5)]
        gru = node("GRU", "x w r", "y", hidden_size=5, direction="bidirectional", layout=1)
        calls = nodes_of(save(tmp_path, [gru], {"x": [2, 10, 7]}, weights=both))
        assert [(x.op.family, dims(x)["steps"]) for x in calls] == [("gru", 10)] * 2

    def test_attention_of_either_domain(self, tmp_path: Path) -> None:
        heads = {"q": (2, 4, 32, 16), "k": (2, 2, 48, 16), "v": (2, 2, 48, 16)}
        path = save(tmp_path, [node("Attention", "q k v", "y", is_causal=1)], heads, opset=23)
        (result,) = nodes_of(path)
        expected = {
            "batch": 2, "q_len": 32, "kv_len": 48, "num_heads": 4, "num_kv_heads": 2,
            "head_dim": 16,
        }  # fmt: skip
        assert dims(result) == expected
        assert result.op.variant.flag("causal")
        path = save(
            tmp_path,
            [node("Attention", "x w b", "y", "com.microsoft", num_heads=4, unidirectional=1)],
            {"x": (2, 32, 64)},
            weights=[tensor("w", 64, 192), tensor("b", 192)],
        )
        made, result = nodes_of(path)
        assert dims(made) == {"batch": 1, "m": 64, "n": 192, "k": 64}
        assert dims(result)["head_dim"] == 16
        assert result.inputs == (made.name,)

    def test_queries_in_groups_with_a_cache(self, tmp_path: Path) -> None:
        path = save(
            tmp_path,
            [
                node("GroupQueryAttention", "q k v pk pv n t", "y a b", "com.microsoft",
                     num_heads=8, kv_num_heads=2),
            ],
            {"q": (1, 1, 128), "k": (1, 1, 32), "v": (1, 1, 32), "pk": (1, 2, 100, 16),
             "pv": (1, 2, 100, 16), "n": (1,), "t": ()},
            outputs=("y",),
        )  # fmt: skip
        (result,) = nodes_of(path)
        assert result.op.family == "attention_decode"
        assert dims(result) == {
            "batch": 1, "kv_len": 100, "num_heads": 8, "num_kv_heads": 2, "head_dim": 16
        }  # fmt: skip

    def test_weights_of_few_bits(self, tmp_path: Path) -> None:
        path = save(
            tmp_path,
            [node("MatMulNBits", "x w s", "y", "com.microsoft", K=64, N=32, bits=4, block_size=32)],
            {"x": (2, 5, 64)},
            weights=[tensor("w", 32, 2, 16, kind=UINT8), tensor("s", 64)],
        )
        (result,) = nodes_of(path)
        assert result.op.variant.dtype == "int4_wo"
        assert dims(result) == {"batch": 1, "m": 10, "n": 32, "k": 64}
        assert result.parameter_bytes == 32 * 32 + 64 * 4

    @pytest.mark.parametrize(("quantised", "dtype"), [(True, "sq"), (False, "int8_wo")])
    def test_quantised_pairs_belong_to_their_product(
        self, tmp_path: Path, quantised: bool, dtype: str
    ) -> None:
        before = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "d")]
        path = save(
            tmp_path,
            [
                *(before if quantised else ()),
                node("DequantizeLinear", "w s z", "e"),
                node("MatMul", f"{'d' if quantised else 'x'} e", "y"),
            ],
            {"x": (4, 8)},
            weights=[
                tensor("w", 8, 16, kind=INT8), tensor("s", values=[0.1]),
                tensor("z", kind=INT8, values=[0]),
            ],
        )  # fmt: skip
        nodes = nodes_of(path)
        assert nodes[-1].op.variant.dtype == dtype
        assert nodes[-1].parameter_bytes == 8 * 16
        assert [each.source for each in nodes[:-1]] == ["onnx.QuantizeLinear"] * quantised

    def test_gelu_written_out_is_one_kernel(self, tmp_path: Path) -> None:
        chain = [
            node("Div", "x root", "a"), node("Erf", "a", "b"), node("Add", "b one", "c"),
            node("Mul", "x c", "d"), node("Mul", "d half", "y"), node("Erf", "y", "z"),
        ]  # fmt: skip
        weights = [tensor(name, values=[1.0]) for name in ("root", "one", "half")]
        first, second = nodes_of(save(tmp_path, chain, {"x": (8, 8)}, ["z"], weights))
        assert first.op.variant.flag("gelu")
        assert second.op.variant.flag("tanh")
        assert second.inputs == (first.name,)

    def test_lookups(self, tmp_path: Path) -> None:
        path = save(
            tmp_path, [node("Gather", "w i", "y")], {"i": (2, 7)},
            weights=[tensor("w", 100, 8)], kinds={"i": INT64},
        )  # fmt: skip
        (result,) = nodes_of(path)
        assert result.op.family == "embedding"
        assert dims(result) == {"tokens": 14, "hidden": 8, "vocab": 100}

    def test_an_unknown_operator_is_named(self, tmp_path: Path) -> None:
        path = save(tmp_path, [node("Hardmax", "x", "y")], {"x": (4, 8)})
        (result,) = nodes_of(path)
        assert result.op.variant.flag("unmodelled")
        assert result.source == "onnx.Hardmax"
        assert time_of(result.op, find_device("h100")).estimate_s > 0

    def test_shapes_are_arithmetic_of_the_host(self, tmp_path: Path) -> None:
        path = save(
            tmp_path,
            [
                node("Shape", "x", "s"), node("Gather", "s zero", "b"),
                node("Unsqueeze", "b axes", "c"), node("Concat", "c rest", "t", axis=0),
                node("Reshape", "x t", "r"), node("Relu", "r", "y"),
            ],
            {"x": ("batch", 4, 4)},
            weights=[
                tensor("zero", kind=INT64, values=[0]),
                tensor("axes", 1, kind=INT64, values=[0]),
                tensor("rest", 1, kind=INT64, values=[-1]),
            ],
        )  # fmt: skip
        (result,) = nodes_of(path, {"batch": 3})
        assert (result.source, dims(result)["elements"]) == ("onnx.Relu", 48)


class TestDynamicDimensions:
    def path(self, folder: Path) -> Path:
        return save(folder, [node("Add", "a b", "y")], {"a": ("n", "width"), "b": ("n", "width")})

    @pytest.mark.parametrize(
        "sizes", [{"n": 3, "width": 5}, {"batch": 3, "seq_len": 5}, {"n": 3, "seq_len": 5}]
    )
    def test_values_by_name_or_place(self, tmp_path: Path, sizes: dict[str, int]) -> None:
        (result,) = nodes_of(self.path(tmp_path), sizes)
        assert dims(result)["elements"] == 15

    def test_a_dimension_without_a_name(self, tmp_path: Path) -> None:
        path = save(tmp_path, [node("Relu", "x", "y")], {"x": (None, 4)})
        with pytest.raises(SilicastError, match=r"dimension 0 \(x\.0\) has no value"):
            read_program(path)
        assert dims(nodes_of(path, {"x.0": 6})[0])["elements"] == 24

    def test_without_a_value(self, tmp_path: Path) -> None:
        with pytest.raises(SilicastError, match=r"dimension 1 \(width\) has no value") as caught:
            read_program(self.path(tmp_path), {"n": 3})
        assert caught.value.field == "a"
        assert '{"width": 8}' in caught.value.hint

    def test_unknown_or_impossible(self, tmp_path: Path) -> None:
        with pytest.raises(SilicastError, match="no dynamic dimension 'depth'") as caught:
            read_program(self.path(tmp_path), {"depth": 3})
        assert "(n)" in caught.value.hint
        assert "(width)" in caught.value.hint
        with pytest.raises(SilicastError, match="at least 1"):
            read_program(self.path(tmp_path), {"n": 0})


class TestRefusals:
    def test_cycles(self, tmp_path: Path) -> None:
        path = save(tmp_path, [node("Add", "x b", "a"), node("Relu", "a", "b")], {"x": (2,)}, ["b"])
        with pytest.raises(SilicastError, match="waits for itself") as caught:
            read_program(path)
        assert caught.value.field == "Add_a"

    def test_order_does_not_matter(self, tmp_path: Path) -> None:
        path = save(tmp_path, [node("Relu", "a", "y"), node("Exp", "x", "a")], {"x": (2,)})
        assert [each.source for each in nodes_of(path)] == ["onnx.Exp", "onnx.Relu"]

    def test_a_value_from_nowhere(self, tmp_path: Path) -> None:
        path = save(tmp_path, [node("Relu", "gone", "y")], {"x": (2,)})
        with pytest.raises(SilicastError, match="reads 'gone', which nothing makes"):
            read_program(path)

    def test_sizes_that_cannot_be_known(self, tmp_path: Path) -> None:
        path = save(tmp_path, [node("NonZero", "x", "y")], {"x": (4, 4)})
        with pytest.raises(SilicastError, match="the sizes of 'y' are not known") as caught:
            read_program(path)
        assert caught.value.field == "NonZero_y"
        path = save(tmp_path, [node("Mystery", "x", "y", "com.microsoft")], {"x": (4, 4)})
        with pytest.raises(SilicastError, match=r"com\.microsoft\.Mystery has no rule"):
            read_program(path)

    @pytest.mark.parametrize("opset", [7, 99])
    def test_versions(self, tmp_path: Path, opset: int) -> None:
        path = save(tmp_path, [node("Relu", "x", "y")], {"x": (2,)}, opset=opset)
        with pytest.raises(SilicastError, match=f"opset {opset}; 9 to") as caught:
            read_program(path)
        assert "version_converter" in caught.value.hint

    def test_other_files(self, tmp_path: Path) -> None:
        path = tmp_path / "model.onnx"
        path.write_bytes(b"no model at all, to be sure")
        with pytest.raises(SilicastError, match="is not an ONNX file"):
            read_program(path)
        path.write_bytes(b"")
        with pytest.raises(SilicastError, match="holds no nodes"):
            read_program(path)

    def test_shapes_that_contradict(self, tmp_path: Path) -> None:
        path = save(tmp_path, [node("MatMul", "a b", "y")], {"a": (2, 3), "b": (4, 5)})
        with pytest.raises(SilicastError):
            read_program(path)

    def test_external_weights_are_not_loaded(self, tmp_path: Path) -> None:
        weight = tensor("w", 8, 16)
        weight.ClearField("float_data")
        weight.data_location = onnx.TensorProto.EXTERNAL
        entry = weight.external_data.add()
        entry.key, entry.value = "location", "weights.bin"
        path = save(tmp_path, [node("MatMul", "x w", "y")], {"x": (2, 8)}, weights=[weight])
        (result,) = nodes_of(path)
        assert result.parameter_bytes == 8 * 16 * 4


def test_results_of_the_program_are_named(tmp_path: Path) -> None:
    """Through a view too; a runtime must write what the program hands out."""
    nodes = [node("Conv", "x w", "a"), node("Relu", "a", "b"), node("Flatten", "b", "y")]
    path = save(tmp_path, nodes, {"x": (1, 3, 8, 8)}, ("a", "y"), [tensor("w", 4, 3, 1, 1)])
    graph = read_program(path, None)
    assert graph.results == tuple(each.name for _, each in graph.nodes())
    assert len(graph.results) == 2


def test_answers_say_what_a_runtime_joins_and_whose_host_time_they_have(tmp_path: Path) -> None:
    nodes = [node("Conv", "x w", "a"), node("Relu", "a", "y")]
    path = save(tmp_path, nodes, {"x": (1, 3, 8, 8)}, ("y",), [tensor("w", 4, 3, 1, 1)])
    engine = {"name": "torch-eager", "options": {"runtime": "onnxruntime"}}
    scenario = {"format": 1, "task": "graph", "device": "H100", "engine": engine}
    reply = predicted({**scenario, "workload": {"graph": str(path)}})
    assert "onnxruntime on the GPU joins 1 operator to others" in reply["warnings"]
    assert "host time is that of torch-eager: none of onnxruntime was measured" in reply["warnings"]


def test_a_measured_start_of_an_operator_takes_the_frameworks_place(tmp_path: Path) -> None:
    """On a CPU two operators that do not join are as much quicker as their starts are."""
    nodes = [node("Sin", "x", "a"), node("Cos", "a", "y")]
    path = save(tmp_path, nodes, {"x": (1, 3, 8, 8)}, ("y",), [])
    scenario = {"format": 1, "task": "graph", "device": "Raspberry Pi 4"}
    scenario["workload"] = {"graph": str(path)}
    plain = predicted(scenario)
    run = predicted({**scenario, "engine": {"name": "torch-eager", "options": {"runtime": "ort"}}})
    assert "host time is 0.26 us an operator of onnxruntime" in run["warnings"]
    gap_ms = [reply["metrics"]["e2e_ms"]["estimate"] for reply in (plain, run)]
    assert gap_ms[0] - gap_ms[1] > 2e-3 * 7.0  # of 8 us each, on a host that is slower
