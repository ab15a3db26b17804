"""Sweeps that are killed, divided, run elsewhere or out of room: the bytes of an undisturbed one.

A sweep of kernels runs in a process that is killed (SIGKILL) at random instants and started again,
until it ends by itself; then the same by one and two processes, by eight shards of which two are
killed, on three nodes of Ray of which one is killed (where ray is installed), and on a full and a
read-only disk (where one can be mounted). The sorted export must always be the same bytes. Chunks
are made of 0.1 s, so that kills fall among them.

    python benchmarks/sweep_kills.py [--kills 200] [--points 100000]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from silicast.core.errors import SilicastError
from silicast.exploration.scenario_space import read_scenario_space
from silicast.runner import sweep as sweeps
from silicast.runner import workers
from silicast.runner.lines import Line
from silicast.runner.replies import Replies, replies
from silicast.runner.results import export, stored_rows
from silicast.runner.store import AnswerStore, read_shard
from silicast.runner.sweep import Sweep

CHUNK_S = 0.1
PIECE_LINES = 512
"""Points that a process answers between two chances to write them: so small that kills fall among
many shards."""
OUT = Path(__file__).parent / "results" / "sweep_kills.json"
SPACE = """
[scenario]
task = "kernel"
device = "h100"
kernel = {{ op = "gemm", n = 4096, k = 4096 }}
[[axis]]
field = "kernel.m"
range = [1, {most}]
step = 1
[[axis]]
field = "kernel.dtype"
values = ["bf16", "fp8"]
"""


def space_file(folder: Path, points: int) -> Path:
    path = folder / f"space_{points}.toml"
    path.write_text(SPACE.format(most=points // 2), encoding="utf-8")
    return path


def digest(store: Path, folder: Path) -> tuple[str, int]:
    opened = AnswerStore(store)
    rows = stored_rows(opened)
    target = folder / f"{store.name}.jsonl"
    export(opened, rows, target)
    return hashlib.sha256(target.read_bytes()).hexdigest(), len(rows.rows)


def child(space: Path, store: Path, shard: str) -> list[str]:
    """The command of a sweep in a process of its own."""
    return [sys.executable, __file__, "--child", str(space), str(store), shard]


def answered_file(store: Path) -> Path:
    """Where processes that sweep into a store note the points they answered, a piece a line."""
    return store.with_suffix(".answered")


def answered(store: Path) -> list[int]:
    path = answered_file(store)
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def run_child(space: str, store: str, shard: str) -> None:
    sweeps.CHUNK_S, workers.MOST_LINES = CHUNK_S, PIECE_LINES
    note = answered_file(Path(store)).open("a", encoding="utf-8", buffering=1)
    answer = replies

    def noted(piece: list[Line], *others: Any) -> Replies:
        result = answer(piece, *others)
        note.write(f"{len(piece)}\n")
        return result

    vars(workers)["replies"] = noted
    number, count = (int(part) for part in shard.split("/"))
    swept = Sweep(read_scenario_space(Path(space)), Path(space).parent, (), number, count)
    swept.run(AnswerStore.begun(Path(store)))


def killed(folder: Path, space: Path, kills: int, draw: random.Random) -> dict[str, Any]:
    """A sweep that is killed so often, then left alone."""
    store, lost, fruitful, redone = folder / "killed", 0, 0, 0
    for number in range(kills):
        before, noted = keys(store), sum(answered(store))
        process = subprocess.Popen(child(space, store, "0/1"), stderr=subprocess.DEVNULL)
        if number % 2:  # any instant, that of the start among them
            time.sleep(draw.uniform(0.0, 1.5))
        else:  # soon after a shard
            files, most = shard_count(store), time.monotonic() + 20.0
            while shard_count(store) == files and time.monotonic() < most:
                time.sleep(0.01)
            time.sleep(draw.uniform(0.0, 0.2))
        process.send_signal(signal.SIGKILL)
        process.wait()
        after = keys(store)
        lost += len(before - after)
        fruitful += len(after) > len(before)
        redone = max(redone, sum(answered(store)) - noted - len(after - before))
    subprocess.run(child(space, store, "0/1"), check=True)
    sha, rows = digest(store, folder)
    return {
        "kills": kills,
        "kills_after_new_rows": fruitful,
        "committed_rows_lost": lost,
        "rows": rows,
        "rows_twice": stored(store) - rows,
        "points_redone_after_one_kill": redone,
        "points_of_the_largest_chunk": max(answered(store)),
        "sha256": sha,
    }


def shard_count(store: Path) -> int:
    return sum(1 for _ in (store / "rows").glob("*.parquet"))


def keys(store: Path) -> set[str]:
    return AnswerStore(store).keys() if (store / "manifest.json").exists() else set()


def stored(store: Path) -> int:
    return sum(read_shard(path, ["key"]).num_rows for path in AnswerStore(store).shards())


def shards(folder: Path, space: Path, draw: random.Random) -> Path:
    """Eight parts in a shuffled order, two of them killed and taken up again."""
    store, victims = folder / "shards", draw.sample(range(8), 2)
    for number in draw.sample(range(8), 8):
        command = child(space, store, f"{number}/8")
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        if number in victims:
            time.sleep(draw.uniform(0.5, 1.5))
            process.send_signal(signal.SIGKILL)
        process.wait()
    for number in victims:
        subprocess.run(child(space, store, f"{number}/8"), check=True)
    return store


def on_ray(folder: Path, space: Path) -> Path | None:
    """Three nodes of one machine, one killed; None without ray."""
    try:
        import ray
        from ray.cluster_utils import Cluster
    except ImportError:
        return None
    from silicast.runner import ray_workers

    ray_workers.CHUNK_S = 0.2
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
        gone: list[int] = []

        def kill(done: int) -> None:
            if done and not gone:
                gone.append(done)
                cluster.remove_node(nodes[1], allow_graceful=False)

        store = AnswerStore.begun(folder / "ray")
        swept = Sweep(read_scenario_space(space), folder)
        swept.run(store, executor=partial(ray_workers.RayWorkers, cluster.address), progress=kill)
        assert gone
    finally:
        ray.shutdown()
        cluster.shutdown()
    return folder / "ray"


def without_room(folder: Path, space: Path) -> dict[str, Any]:
    """What a sweep says on a full and on a read-only disk, and whether it goes on with room."""
    disk = folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o"]
    if subprocess.run([*mount, "size=160k", "tmpfs", disk], check=False).returncode:
        return {"mounted": False}
    try:
        swept, store = Sweep(read_scenario_space(space), folder), disk / "store"
        said = {"mounted": True, "full": refused(swept, store)}
        subprocess.run([*mount, "remount,ro", "tmpfs", disk], check=True)
        said["read_only"] = refused(swept, store)
        subprocess.run([*mount, "remount,rw,size=64m", "tmpfs", disk], check=True)
        said["rows_on_the_full_disk"] = stored(store)
        swept.run(AnswerStore.begun(store))
        said["sha256"], said["rows"] = digest(store, folder)
    finally:
        subprocess.run(["umount", disk], check=False)
    return said


def refused(swept: Sweep, store: Path) -> str:
    try:
        swept.run(AnswerStore.begun(store))
    except SilicastError as error:
        return error.message
    return "nothing"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--child", nargs=3)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--points", type=int, default=100_000)
    asked = parser.parse_args()
    if asked.child:
        run_child(*asked.child)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        space = space_file(folder, asked.rows)
        start = time.process_time()
        Sweep(read_scenario_space(space), folder).run(AnswerStore.begun(folder / "whole"))
        alone_s = time.process_time() - start
        sha, rows = digest(folder / "whole", folder)
        figures = killed(folder, space, asked.kills, random.Random(1))
        sweeps.CHUNK_S = CHUNK_S
        begin = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.process_time()
        Sweep(read_scenario_space(space), folder).run(AnswerStore.begun(folder / "two"), workers=2)
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
        two_s = time.process_time() - start
        two_s += end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime
        stores = {
            "killed": figures.pop("sha256"),
            "two_processes": digest(folder / "two", folder)[0],
            "eight_shuffled_shards_two_killed": digest(
                shards(folder, space, random.Random(2)), folder
            )[0],
        }
        ray_store = on_ray(folder, space)
        if ray_store is not None:
            stores["three_nodes_of_ray_one_killed"] = digest(ray_store, folder)[0]
        disk = without_room(folder, space)
        if "sha256" in disk:
            stores["full_and_read_only_disk"] = disk.pop("sha256")
        figures["same_bytes"] = {name: each == sha for name, each in stores.items()}
        figures["disk"] = disk
        figures["rows_of_one_process"] = rows
        figures["cpu_efficiency_of_two_processes"] = round(alone_s / two_s, 3)
        many = Sweep(read_scenario_space(space_file(folder, asked.points)), folder)
        start = time.process_time()
        known_again = sum(1 for _ in many.cases())
        figures |= {
            "cpu_s_of_a_sweep": round(alone_s, 2),
            "points_known_again": known_again,
            "cpu_s_to_know_them": round(time.process_time() - start, 2),
        }
    print(json.dumps(figures, indent=1))
    OUT.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
