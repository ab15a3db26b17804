"""Nodes and voltages as flags: errors name the flag."""

from __future__ import annotations

from pathlib import Path

import pytest

from silicast.accelerator.counting.layer_table import mapped_layers, workload_of
from silicast.accelerator.mapper.fusion_search import fused_task
from silicast.accelerator.mapper.task import as_stated
from silicast.app.cli import main
from silicast.app.process_flags import ProcessFlags

MAP = "design map eyeriss matmul m=8 n=8 k=8"
COST = "design cost eyeriss --area 10"


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        (f"{MAP} --node 8000 --from-node 28", "--node"),
        (f"{MAP} --node -8 --from-node 28", "--node"),
        (f"{MAP} --node 7 --from-node 8000", "--from-node"),
        (f"{MAP} --voltage -1", "--voltage"),
        (f"{MAP} --voltage 0.01", "--voltage"),
        (f"{MAP} --voltage nan", "--voltage"),
        (f"{COST} --node 8000", "--node"),
        (f"{COST} --node -8", "--node"),
        (f"{COST} --node 8000 --from-node 28", "--node"),
        (f"{COST} --node 7 --from-node 0", "--from-node"),
        (f"{COST} --node 7 --defects -1", "--defects"),
        ("design cost eyeriss --node 7", "--area"),
    ],
)
def test_an_error_names_the_flag(
    command: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command.split()) == 2
    assert capsys.readouterr().err.startswith(f"error: {flag}: ")


def test_what_changes_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(f"{MAP} --voltage 0.9".split()) == 0
    assert "the clock stays" in capsys.readouterr().err
    assert main(f"{MAP} --density Weights=0.4".split()) == 0
    assert "densities change nothing" in capsys.readouterr().err
    assert main(MAP.split()) == 0
    assert capsys.readouterr().err == ""


def test_files_of_layers_and_neighbours_are_mapped_at_a_node_too(tmp_path: Path) -> None:
    path = tmp_path / "layers.csv"
    path.write_text("Layer,IH,IW,FH,FW,C,M,S,\nc1,8,8,3,3,4,8,1,\n", encoding="utf-8")
    flags, work = ProcessFlags(node=7, from_node=28), workload_of(path, {})
    plain = mapped_layers("eyeriss", work, effort=200)
    assert mapped_layers("eyeriss", work, effort=200, at=flags.applied).energy_pj < plain.energy_pj
    sizes, following = ["m=8", "n=8", "k=8"], "matmul m=8 n=8 k=8"
    before, after = (
        fused_task("systolic-128", "matmul", sizes, following, effort=200, at=at)
        for at in (as_stated, flags.applied)
    )
    assert after.apart_pj < before.apart_pj
