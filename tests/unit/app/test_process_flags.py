"""Nodes and voltages as flags: errors name the flag."""

from __future__ import annotations

import pytest

from silicast.app.cli import main

MAP = "design map eyeriss matmul m=8 n=8 k=8"
COST = "design cost eyeriss --area 10"


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        (f"{MAP} --node 8000 --from-node 28", "--node"),
        (f"{MAP} --node -8 --from-node 28", "--node"),
        (f"{MAP} --node 7 --from-node 8000", "--from-node"),
        (f"{MAP} --voltage -1", "--voltage"),
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
