"""`silicast trace`: a user's own program to an op-graph file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from silicast.app.cli import main

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")

PROGRAM = """
import torch
from torch import nn


def mlp(batch=4, width=64):
    module = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
    return module, (torch.randn(batch, width),)


def branching():
    class Branching(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    return Branching(), (torch.randn(4),)


def failing():
    return 1 / 0


def odd():
    return 3


def fixed(batch=8):
    class Fixed(nn.Module):
        def forward(self, x):
            return x + torch.ones(8, 4)

    return Fixed(), (torch.randn(batch, 4),)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "traced_program.py"
    path.write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return path


def test_a_factory_with_sizes(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "trace",
        "traced_program:mlp",
        "-o",
        "mlp.graph.json",
        "--shape",
        "batch=8",
        "width=32",
    ]
    assert main([*words, "--dtype", "bf16"]) == 0
    assert "3 operations" in capsys.readouterr().out
    held = json.loads(Path("mlp.graph.json").read_text())
    assert held["nodes"][0]["dims"] == {"batch": 1, "m": 8, "n": 128, "k": 32}
    assert held["nodes"][0].get("dtype", "bf16") == "bf16"


def test_training_from_a_file_to_an_answer(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", f"{program}:mlp", "-o", "mlp.graph.json", "--training"]) == 0
    Path("run.toml").write_text(
        'format = 1\ntask = "graph"\ndevice = "h100"\nengine = "torch-eager"\n'
        '[workload]\nmode = "training"\ngraph = "mlp.graph.json"\n'
    )
    capsys.readouterr()
    assert main(["run", "run.toml", "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)["metrics"]
    assert metrics["backward_ms"]["estimate"] > 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("traced_program:branching", "traced_program.py:14: Branching: cannot be exported"),
        ("traced_program:failing", "traced_program.py:20: program: traced_program:failing raised"),
        ("traced_program:odd", "returned int"),
        ("traced_program:none", "has no function 'none'"),
        ("no_such_module:none", "no module 'no_such_module'"),
        ("gone.py:none", "does not exist"),
        ("gone.onnx", "does not exist"),
        ("gone.pth", "no front end reads .pth"),
    ],
)
def test_what_cannot_be_traced(
    program: Path, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    assert main(["trace", name, "-o", "out.graph.json"]) != 0
    assert said in capsys.readouterr().err
    assert not Path("out.graph.json").exists()


def test_sizes_are_whole_numbers(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "traced_program:mlp", "-o", "x.json", "--shape", "batch=many"]) == 2
    assert "batch = 'many' is not a whole number" in capsys.readouterr().err


class TestOpenSizes:
    """One trace for any batch and width."""

    def test_a_factorys_parameters_stay_open(
        self, program: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = ["trace", "traced_program:mlp", "-o", "mlp.graph.json", "--dynamic", "batch"]
        assert main([*words, "--shape", "width=32"]) == 0
        assert "open: batch, 1 upwards (4)" in capsys.readouterr().out
        held = json.loads(Path("mlp.graph.json").read_text())
        assert held["nodes"][0]["dims"] == {"batch": 1, "m": "batch", "n": 128, "k": 32}
        assert held["nodes"][1]["dims"]["elements"] == "128*batch"

    def test_a_curve_and_the_largest_that_fits(
        self, program: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        main(["trace", "traced_program:mlp", "-o", "mlp.graph.json", "--dynamic", "batch"])
        requested = ["graph", "mlp.graph.json", "--device", "rtx4090", "--set"]
        capsys.readouterr()
        assert main([*requested, "batch=1,2,4..64", "--json"]) == 0
        loads = json.loads(capsys.readouterr().out)
        assert [point["batch"] for point in loads["points"]] == [1, 2, 4, 8, 16, 32, 64]
        largest = loads["largest_that_fits"]
        for value, fits in ((largest, True), (largest + 1, False)):
            main([*requested, f"batch={value}", "--json"])
            reply = json.loads(capsys.readouterr().out)
            assert (reply["why"]["memory_gb"]["excess"] == 0) is fits

    @pytest.mark.parametrize(
        ("name", "dynamic", "said"),
        [
            ("traced_program:mlp", "depth", "takes no size 'depth' (takes: batch, width)"),
            ("traced_program:fixed", "batch", "traced_program.py:30: batch: batch is fixed at 8"),
        ],
    )
    def test_what_cannot_stay_open_is_named(
        self, program: Path, capsys: pytest.CaptureFixture[str], name: str, dynamic: str, said: str
    ) -> None:
        assert main(["trace", name, "-o", "out.graph.json", "--dynamic", dynamic]) != 0
        assert said in capsys.readouterr().err
        assert not Path("out.graph.json").exists()

    def test_a_file_keeps_the_range_that_it_states(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        open_sizes = ({0: torch.export.Dim("batch", min=1, max=512)},)
        module, args = torch.nn.Linear(8, 4), (torch.empty(4, 8),)
        torch.export.save(
            torch.export.export(module, args, dynamic_shapes=open_sizes), "linear.pt2"
        )
        words = ["trace", "linear.pt2", "-o", "linear.json", "--dynamic", "batch"]
        assert main([*words, "--shape", "batch=8"]) == 0
        assert "open: batch, 1 to 512 (8)" in capsys.readouterr().out
        requested = ["graph", "linear.json", "--device", "l4", "--set"]
        assert main([*requested, "batch=512"]) == 0
        assert main([*requested, "batch=513"]) != 0
        assert "batch = 513 is outside the program's range, 1 to 512" in capsys.readouterr().err

    def test_a_file_that_is_not_there(self, capsys: pytest.CaptureFixture[str]) -> None:
        words = ["trace", "nothing.pt2", "-o", "out.json", "--dynamic", "batch"]
        assert main([*words, "--shape", "batch=8"]) != 0
        assert "nothing.pt2: graph: does not exist" in capsys.readouterr().err
