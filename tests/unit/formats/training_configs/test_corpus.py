"""Launch files of each tool as scenarios: what they mean, that they run, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from silicast.formats.training_configs import missing_of, read_training_config
from silicast.scenario.answers.training.training_runs import prepared
from silicast.scenario.decode import decode
from tests.unit.formats.training_configs.corpus import CORPUS, LaunchFile

BESIDE = {"model": "Llama-3.1-8B", "workload.seq_len": 2048}
"""What a user states where no file does."""


def read(folder: Path, item: LaunchFile) -> tuple[dict[str, Any], list[str]]:
    paths = []
    for name, text in item.files.items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return read_training_config(
        *paths, devices=item.devices, run=item.run, variables=item.variables
    )


def at(tree: Any, path: str) -> Any:
    for name in path.split("."):
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


@pytest.mark.parametrize("name", CORPUS)
def test_a_launch_file_means_its_run(tmp_path: Path, name: str) -> None:
    item = CORPUS[name]
    scenario, remarks = read(tmp_path, item)
    assert {path: at(scenario, path) for path in item.means} == item.means
    while (missing := missing_of({"device": "h100", **scenario})) is not None:
        path, value = missing[0], BESIDE[missing[0]]
        holder = scenario
        for part in path.split(".")[:-1]:
            holder = holder[part]
        holder[path.rpartition(".")[2]] = value
    decoded = decode({"device": "h100", **scenario})
    run = prepared(decoded, decoded.workload)
    assert run.rank.plan.gpus == at(scenario, "cluster.gpus")
    assert not [line for line in remarks if "would change" in line and "unknown" not in line]


def test_there_are_forty_files() -> None:
    assert len(CORPUS) >= 40
