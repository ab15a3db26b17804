"""A folder of Timeloop becomes an architecture file that can be mapped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from silicast.accelerator.design.architecture_file import read_design
from silicast.accelerator.foreign.timeloop import usual_names
from silicast.accelerator.mapper.task import described
from silicast.app.cli import main

Capture = pytest.CaptureFixture[str]
SPARSE = """sparse_optimizations:
  targets:
    - name: Buf
      representation_format:
        data_spaces:
          - {name: A, ranks: [{format: UOP}, {format: CP}]}
      action_optimization:
        - {type: skipping, options: [{target: B, condition_on: [A]}]}
    - name: mac
      compute_optimization: [{type: gating}]
"""


def test_import_and_map(folder: Callable[..., Path], capsys: Capture) -> None:
    here = folder()
    target = here / "x.toml"
    assert main(["design", "import", str(here), "-o", str(target)]) == 0
    assert main(["design", "map", str(here), "--json"]) == 0
    captured = capsys.readouterr()
    assert "A is Inputs, B is Weights, Z is Outputs" in captured.err
    loads = json.loads(captured.out.partition("\n")[2])
    assert main(["design", "map", str(target), "matmul", "m=8", "n=6", "k=4", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["energy_pj"] == loads["energy_pj"]
    assert again["cycles"] == loads["cycles"]


def test_zeros_are_written_too(folder: Callable[..., Path], capsys: Capture) -> None:
    here = folder(sparse=SPARSE)
    target = here / "x.toml"
    assert main(["design", "import", str(here), "-o", str(target)]) == 0
    buffer = read_design(target).architecture.memories[1]
    assert [(each.tensor, [r.name for r in each.ranks]) for each in buffer.formats] == [
        ("Inputs", ["uop", "cp"])
    ]
    assert [(e.kind, e.target, e.conditions) for e in buffer.eliminations] == [
        ("skip", "Weights", ("Inputs",))
    ]
    assert read_design(target).architecture.compute.on_zero == "gate"
    words = ["matmul", "m=8", "n=6", "k=4", "--density", "Inputs=0.4"]
    assert main(["design", "map", str(target), *words]) == 0
    assert "tile by tile" in capsys.readouterr().err


@pytest.mark.data
def test_every_shipped_folder_is_imported_and_mapped(data: Path, tmp_path: Path) -> None:
    folders = sorted((data / "accel" / "timeloop").iterdir())
    assert len(folders) == 16
    for number, each in enumerate(folders):
        target = tmp_path / f"{number}.toml"
        assert main(["design", "import", str(each), "-o", str(target)]) == 0, each
        einsum = described(each).einsum
        bounds, names = einsum.bounds, usual_names(einsum) or {}  # its rules suit its own sizes
        op, dims = ("conv2d", "CMPQRS") if "S" in bounds else ("matmul", "MNK")
        sizes = [f"{dim.lower()}={bounds.get(dim, 1)}" for dim in dims]
        for tensor in einsum.tensors:
            sizes += ["--density", f"{names[tensor.name]}={tensor.density.share}"]
        assert main(["design", "map", str(target), op, *sizes, "--effort", "100"]) == 0, each
