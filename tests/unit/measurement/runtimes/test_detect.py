"""Rules that times tell, of runtimes that are made up: every cost and every rule is known."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from silicast.app import status
from silicast.app.cli import main
from silicast.core.errors import SilicastError
from silicast.measurement.runtimes.detect import PairTimes, detect, finding, runtime_named
from silicast.measurement.runtimes.minimal_pairs import BARRIER, NEUTRAL, OPERATORS, SECOND, pairs

RULES = {("conv", "relu"), ("conv", "batch_norm"), ("matmul", "mul_scalar")}


class MadeUp:
    """Operators of known costs on a machine that is slowed now and then."""

    name, version, target = "made-up", "1", "cpu"
    operators = tuple(OPERATORS)

    def __init__(self, noise: float, *, free: str = "", left: float = 0.0) -> None:
        self.draw, self.noise, self.free, self.left = np.random.default_rng(0), noise, free, left

    def seconds(self, chain: Sequence[str]) -> float:
        costs = [1.0 + 0.3 * (len(name) % 4) for name in (*chain, BARRIER)]
        if self.free in chain:
            costs[chain.index(self.free)] = 0.0
        if tuple(chain) in RULES:
            costs[1] *= self.left
        slowed = 1.0 + self.noise * self.draw.exponential()
        return 1e-6 * sum(costs) * slowed


def test_the_rules_are_seen_under_noise_and_none_is_invented() -> None:
    found = detect(MadeUp(noise=0.1), ("conv", "matmul"))
    joined = {(one, two) for one, then in found.rules().items() for two in then}
    assert joined == RULES
    assert not found.undecided()
    assert found.operator_us == pytest.approx(1.0, abs=0.05)  # relu: 1 + 0.3 x (4 mod 4)
    assert tomllib.loads(found.text())["cpu"]["operator_us"] == round(found.operator_us, 3)


def test_what_a_fused_kernel_computes_of_the_second_leaves_a_share() -> None:
    found = detect(MadeUp(noise=0.02, left=0.3), ("conv",))
    assert found.rules()["conv"] == [two for two in SECOND if ("conv", two) in RULES]
    assert found.findings["conv", "relu"].share == pytest.approx(0.3, abs=0.1)


def test_noise_that_hides_the_second_operator_makes_no_rule() -> None:
    found = detect(MadeUp(noise=30.0), ("conv",), most_rounds=30)
    joined = {(one, two) for one, then in found.rules().items() for two in then}
    assert joined <= RULES
    assert found.undecided()


def test_an_operator_that_costs_nothing_alone_tells_nothing() -> None:
    found = detect(MadeUp(noise=0.05, free="tanh"), ("conv",))
    assert found.undecided() == [("conv", "tanh")]


def test_the_share_is_of_the_start_of_an_operator() -> None:
    """A + B 6, A 5, N + B 4, N 2, N + R 3.25: 1 of 1.25."""
    result = finding(PairTimes(np.tile([6.0, 5.0, 4.0, 2.0, 3.25], (20, 1))))
    assert (result.share, result.alone, result.error) == (0.8, 1.6, 0.0)
    assert result.decision == "apart"


def test_rules_are_written_as_a_file_states_them() -> None:
    table = tomllib.loads(detect(MadeUp(noise=0.05), ("matmul",)).text())
    assert table["name"] == "made-up"
    assert table["cpu"]["fusion"] == [{"first": ["matmul"], "then": ["mul_scalar"]}]


def test_bad_requests_name_the_field() -> None:
    with pytest.raises(SilicastError, match="unknown operator 'conf'") as caught:
        pairs(("conf",))
    assert caught.value.field == "operators"
    with pytest.raises(SilicastError, match="15 or more, found 3"):
        detect(MadeUp(0.1), ("conv",), most_rounds=3)
    with pytest.raises(SilicastError, match="unknown runtime 'tvm'"):
        runtime_named("tvm")


def test_onnx_runtime_joins_a_relu_to_a_convolution_in_its_own_graph() -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from silicast.measurement.runtimes.onnx_runtime import OnnxRuntime

    runtime = OnnxRuntime()
    assert runtime.own_operators(("conv", "relu")) == ("Conv",)
    assert runtime.own_operators(("max_pool", "relu")) == ("MaxPool", "Relu")
    assert runtime.own_operators((NEUTRAL, "relu")) == ("Cos", "Relu")
    assert runtime.seconds(("conv", "relu")) > 0.0


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    timed: list[object] = []
    monkeypatch.setattr("silicast.measurement.runtimes.detect.runtime_named", timed.append)
    path = tmp_path / "missing" / "x.toml"
    assert main(["runtime", "detect", "-o", str(path)]) == status.BAD_INPUT
    assert str(path) in capsys.readouterr().err.replace("\n", "")
    assert timed == []


def test_litert_files_hold_the_chain_between_barriers(tmp_path: Path) -> None:
    """Read by the reader of such files: every repeat has its operators and weights of its own."""
    from silicast.measurement.runtimes.litert import REPEATS, tflite_of
    from silicast.workload.front_ends import read_program

    path = tmp_path / "chain.tflite"
    path.write_bytes(tflite_of(("conv", "relu")))
    graph = read_program(path)
    nodes = [node for _, node in graph.nodes()]
    assert len(nodes) == 3 * REPEATS
    assert graph.parameter_bytes == REPEATS * 4 * (16 * 9 * 16 + 16)


def test_pairs_are_those_that_a_runtime_has() -> None:
    made_up = MadeUp(noise=0.02)
    made_up.operators = ("conv", "relu", "tanh")
    assert set(detect(made_up).findings) == {
        ("conv", "conv"), ("conv", "relu"), ("conv", "tanh"),
        ("relu", "conv"), ("relu", "relu"), ("relu", "tanh"),
    }  # fmt: skip


def test_litert_joins_a_relu_to_a_convolution() -> None:
    pytest.importorskip("ai_edge_litert")
    found = detect(runtime_named("litert"), ("conv",), most_rounds=60)
    assert "relu" in found.rules()["conv"]
    assert "sigmoid" not in found.rules()["conv"]
