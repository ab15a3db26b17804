"""The scenario suite: all ids are there, every file decodes, and none gets a wrong number."""

from __future__ import annotations

import importlib
import json
import math
import os
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from silicast.core.plain_data import read_scenario_file
from silicast.scenario.answer import Answer, Refusal
from silicast.scenario.decode import load
from silicast.scenario.resolving.traffic import DATA
from silicast.scenario.run import reply_to
from silicast.scenario.workloads import ServingWorkload

SUITE = importlib.import_module("benchmarks.scenario_suite")
FOLDER = Path(__file__).parent
IDS = [
    *("T1.1", "T1.2", "T1.3", "T2.1", "T2.2", "T3.1", "T3.2", "T4.1", "T4.2", "T4.3", "T4.4"),
    *("I1.1", "I1.2", "I1.3", "I2.1", "I2.2", "I2.3", "I3.1", "I3.2", "I4.1"),
    *("I5.1", "I5.2", "I5.3", "I5.4", "X1", "X2", "X3", "X4"),
    *(f"N{number}" for number in range(1, 13)),
]
MANIFEST: dict[str, Any] = tomllib.loads((FOLDER / "manifest.toml").read_text(encoding="utf-8"))
FILES = sorted(path.name for path in FOLDER.glob("*.toml") if path.name != "manifest.toml")
TRAINING = tuple(name for name in FILES if name.startswith(("t1", "t2", "t3", "t4", "x3", "n9")))
ANSWERED = (
    *("i1_1.toml", "i1_2.toml", "i1_3.toml"),
    *("i4_1.toml", "i4_1_mps.toml", "i4_1_mig.toml"),
    *TRAINING, "x4.toml",
)  # fmt: skip
"""What must be answered: dense models on a node, models that share a device, training."""
MOST_REQUESTS = 300
"""Of a scenario here; as many as a file asks for take minutes."""
MOST_ITEMS = 40
"""Of a workflow, and of the jobs of each that run side by side; of one that trains, 1."""


def test_there_are_forty() -> None:
    assert len(IDS) == 40
    assert list(MANIFEST["scenarios"]) == IDS


def test_every_file_belongs_to_one_scenario() -> None:
    named = [name for entry in MANIFEST["scenarios"].values() for name in entry["files"]]
    assert sorted(named) == FILES


def test_the_page_is_of_the_manifest_and_of_the_last_answers() -> None:
    """`python -m benchmarks.scenario_suite` was run after the last change of the manifest."""
    results = json.loads(SUITE.OUT.read_text(encoding="utf-8"))
    assert list(results) == SUITE.files()
    assert [name for name, result in results.items() if not result["complete"]] == []
    for entry in MANIFEST["scenarios"].values():
        assert all(list(results[name]["values"]) == entry["metrics"] for name in entry["files"])
    assert SUITE.PAGE.read_text(encoding="utf-8") == SUITE.page(SUITE.manifest(), results)


@pytest.mark.parametrize("name", FILES)
def test_it_decodes_and_carries_its_id(name: str) -> None:
    scenario = load(FOLDER / name)
    assert name in MANIFEST["scenarios"][str(scenario.raw.id)]["files"]


@pytest.mark.parametrize("name", FILES)
def test_it_is_answered_soundly_or_says_what_is_missing(name: str) -> None:
    reply = reply_to(shortened(read_scenario_file(FOLDER / name)), folder=FOLDER)
    if isinstance(reply, Refusal):
        assert name not in ANSWERED, reply.error
        assert lacks_its_trace(name), reply.error
        assert reply.error.kind == "io", reply.error
        assert len(reply.error.message) > 10
    else:
        assert_sound(reply)
        entry = next(e for e in MANIFEST["scenarios"].values() if name in e["files"])
        lacking = [each for each in entry["metrics"] if SUITE.value_at(reply, each) is None]
        assert not lacking
        assert reply.why["coverage"]["time_share"]


@pytest.mark.parametrize(
    "name",
    [
        name if name == "i4_1.toml" else pytest.param(name, marks=pytest.mark.full)
        for name in FILES
        if name.startswith("i4_1")
    ],
)
def test_models_that_share_a_device_are_set_against_alone(name: str) -> None:
    reply = reply_to(read_scenario_file(FOLDER / name), folder=FOLDER)
    assert isinstance(reply, Answer), reply
    for pool in ("chat", "code"):
        alone = reply.why["colocation"]["pools"][pool]["alone"]["tpot_p99_ms"]
        beside = reply.metrics[f"{pool}.tpot_p99_ms"].estimate
        ratio = reply.metrics[f"{pool}.tpot_p99_ratio"]
        assert ratio.estimate == pytest.approx(beside / alone)
        assert ratio.estimate >= 1.0


def shortened(tree: dict[str, Any]) -> dict[str, Any]:
    """With fewer requests and clients where there are many."""
    work = dict(tree.get("workload") or {})
    if "stages" in work:
        trains = any("training" in stage for stage in work["stages"].values())
        most = 1 if trains else min(work.get("requests", 1), MOST_ITEMS)
        stages = {
            name: stage | {"batch": min(stage["batch"], MOST_ITEMS)} if "batch" in stage else stage
            for name, stage in work["stages"].items()
        }
        return tree | {"workload": work | {"requests": most, "stages": stages}}
    if "traffic" in work:
        work["traffic"] = fewer(work["traffic"])
    return tree | {"workload": fewer(work)} if work else tree


def fewer(traffic: dict[str, Any]) -> dict[str, Any]:
    fewer = dict(traffic)
    if traffic.get("requests", 0) > MOST_REQUESTS:
        fewer["requests"] = MOST_REQUESTS
        arrival = traffic["arrival"]
        if arrival.get("concurrency", 0) > MOST_REQUESTS:
            fewer["arrival"] = arrival | {"concurrency": MOST_REQUESTS}
    return fewer


def test_conversations_with_shared_prefixes_are_found_in_the_cache(tmp_path: Path) -> None:
    """N6 on a trace in Mooncake's own form: turns of conversations, a hash a block of 512."""
    rng = np.random.default_rng(1)
    rows: list[dict[str, Any]] = []
    for conversation in range(12):
        blocks = [1_000 * conversation + i for i in range(3)]
        for turn in range(4):
            blocks = [*blocks, 1_000 * conversation + 100 * (turn + 1)]
            rows.append(
                {
                    "timestamp": 3_000 * turn + 100 * conversation,
                    "input_length": 512 * len(blocks) - int(rng.integers(1, 400)),
                    "output_length": int(rng.integers(20, 60)), "hash_ids": blocks,
                }
            )  # fmt: skip
    rows.sort(key=lambda row: row["timestamp"])
    path = tmp_path / "mooncake_conversation.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    arrival = {"kind": "trace", "path": path.name}
    tree = read_scenario_file(FOLDER / "n6.toml") | {"workload": {"arrival": arrival}}
    reply = reply_to(tree, folder=tmp_path)
    assert isinstance(reply, Answer), reply
    assert_sound(reply)
    prompt = sum(row["input_length"] for row in rows)
    most = sum(512 * (len(row["hash_ids"]) - 1) for row in rows if len(row["hash_ids"]) > 4)
    rate = reply.metrics["prefix_hit_rate"]
    assert 0.5 * most / prompt < rate.estimate <= most / prompt
    options = {"enable_prefix_caching": False}
    plain = reply_to(tree | {"engine": {"name": "vllm", "options": options}}, folder=tmp_path)
    assert isinstance(plain, Answer), plain
    assert plain.metrics["prefix_hit_rate"].estimate == 0.0
    assert plain.metrics["ttft_mean_ms"].estimate > reply.metrics["ttft_mean_ms"].estimate


def lacks_its_trace(name: str) -> bool:
    """Whether a scenario names a trace that may not be shipped, and where it is is not known."""
    workload = load(FOLDER / name).workload
    path = workload.arrival.path if isinstance(workload, ServingWorkload) else None
    if path is None or not path.startswith(DATA):
        return path is not None and not (FOLDER / path).exists()
    folder = os.environ.get("SILICAST_DATA", "")
    return not folder or not (Path(folder) / path.removeprefix(DATA)).exists()


def assert_sound(reply: Answer) -> None:
    """All numbers finite, intervals ordered, nothing below its bound."""
    assert reply.metrics
    for name, belief in reply.metrics.items():
        assert math.isfinite(belief.p95)
        assert reply.bound.get(name, 0.0) <= belief.p05 <= belief.estimate <= belief.p95
