"""A sweep on three nodes of Ray on one machine, one of them killed: the bytes of one process.

Without the package ray (extra `ray`) this file is skipped: nothing here runs then.
"""

from __future__ import annotations

import socket
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.exploration.scenario_space import read_scenario_space
from silicast.runner import ray_workers
from silicast.runner.ray_workers import RayWorkers, connected
from silicast.runner.results import export, stored_rows
from silicast.runner.store import AnswerStore
from silicast.runner.sweep import Sweep

pytest.importorskip("pyarrow")

SPACE = """
[scenario]
task = "kernel"
device = "h100"
kernel = { op = "gemm", m = 8, n = 4096, k = 4096, dtype = "bf16" }
[[axis]]
field = "kernel.m"
range = [1, 48]
step = 1
"""


def test_an_address_that_is_none_or_does_not_answer_is_refused() -> None:
    pytest.importorskip("ray", reason="RAY IS NOT INSTALLED: the sweep over Ray is NOT tested")
    with pytest.raises(SilicastError, match="expected HOST:PORT or auto"):
        connected("head")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: nothing answers
        with pytest.raises(SilicastError, match="no cluster of Ray answers at 127"):
            connected(f"127.0.0.1:{taken.getsockname()[1]}")


def test_three_nodes_one_killed_give_the_bytes_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray: Any = pytest.importorskip(
        "ray", reason="RAY IS NOT INSTALLED: the sweep over Ray is NOT tested"
    )
    from ray.cluster_utils import Cluster

    path = tmp_path / "space.toml"
    path.write_text(SPACE, encoding="utf-8")
    swept = Sweep(read_scenario_space(path), tmp_path)
    alone = AnswerStore.begun(tmp_path / "alone")
    swept.run(alone)
    monkeypatch.setattr(ray_workers, "CHUNK_S", 0.0)  # a task of Ray is a point
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
        killed: list[int] = []

        def kill(done: int) -> None:
            if done >= 5 and not killed:
                killed.append(done)
                cluster.remove_node(nodes[1], allow_graceful=False)

        store = AnswerStore.begun(tmp_path / "ray")
        tally = swept.run(store, executor=partial(RayWorkers, cluster.address), progress=kill)
        assert killed
        assert (tally.answered, tally.lost) == (48, {})
        export(alone, stored_rows(alone), tmp_path / "a.jsonl")
        export(store, stored_rows(store), tmp_path / "b.jsonl")
        assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
        monkeypatch.setattr(ray_workers, "package_hash", lambda: "0" * 16)
        with pytest.raises(SilicastError, match="a node has package"):
            swept.run(
                AnswerStore.begun(tmp_path / "other"), executor=partial(RayWorkers, cluster.address)
            )
    finally:
        ray.shutdown()
        cluster.shutdown()
