"""Prices that earlier processes kept: the same bits, computed again where they are not whole."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from silicast.composition.passes.deployment import Deployment
from silicast.composition.prices import kept_fills
from silicast.composition.prices.kept_fills import KeptArray, KeptFills
from silicast.composition.prices.step_price import StepPrice
from silicast.composition.prices.step_prices import StepPrices
from silicast.composition.step.step import step_model
from silicast.composition.step.timer import Timer
from silicast.core.disk_cache import KeptKind, cached_kinds
from silicast.core.hashing import COARSE_NS
from silicast.kernels.physics.constants import load_physics, replaced
from silicast.scenario.decode import decode
from silicast.scenario.resolving.deployments import deployment_of
from tests.architecture.source_tree import PACKAGE

NONE = np.zeros(0, dtype=np.int64)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SILICAST_CACHE", str(tmp_path))
    return tmp_path / kept_fills.KIND


def where(**fields: Any) -> Deployment:
    tree = {"model": "Qwen3-0.6B", "device": "H100", "engine": "vllm", **fields}
    work = {"batch": 1, "input_len": 1, "output_len": 1}
    return deployment_of(decode({"task": "inference", "workload": work, **tree}))[0]


def priced(deployment: Deployment) -> list[StepPrice]:
    """As a process that was just started does: decode, prompts, both."""
    prices = StepPrices(step_model(deployment), KeptFills.of_deployment(deployment))
    decode_kv = np.array([700, 90, 4000])
    return [
        prices.price((), decode_kv),
        prices.price([(3000, 3000), (3000, 3000)], NONE),
        prices.price([(512, 700)], decode_kv),
    ]


def kept() -> KeptKind:
    return cached_kinds()[kept_fills.KIND]


def test_what_was_kept_has_the_same_bits_and_needs_no_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deployment = where(limits={"power_w": 300.0})
    first = priced(deployment)
    assert any(price.clock_hz < first[0].clock_hz for price in first), "other clocks count too"
    with monkeypatch.context() as context:
        context.setenv("SILICAST_CACHE", "")
        assert priced(deployment) == first

    def refused(*arguments: object, **named: object) -> None:
        raise AssertionError("the full model is not needed")

    for name in ("call", "sized", "slowed"):
        monkeypatch.setattr(Timer, name, refused)
    assert priced(deployment) == first


@pytest.mark.parametrize("damage", ["cut", "edited", "renamed"])
def test_what_is_damaged_is_computed_again(folder: Path, damage: str) -> None:
    first = priced(where())
    paths = sorted(folder.iterdir())
    contents = [path.read_bytes() for path in paths]
    for path, content, other in zip(paths, contents, [*contents[1:], contents[0]], strict=True):
        sealed = json.loads(content)
        sealed["result"]["shape"][0] += 1
        changed = {"cut": content[:-9], "edited": json.dumps(sealed).encode()}
        path.write_bytes(changed.get(damage, other))
    assert kept().broken + kept().foreign == len(paths)
    assert priced(where()) == first


@pytest.mark.parametrize(
    "fields",
    [
        {"parallel": {"tp": 2}},
        {"limits": {"power_w": 400.0}},
        {"precision": {"weights": "fp8"}},
        {"engine": "sglang"},
        {"engine": {"name": "vllm", "options": {"custom_all_reduce": False}}},
        {"device": "H200"},
    ],
)
def test_other_deployments_share_nothing(folder: Path, fields: dict[str, Any]) -> None:
    priced(where())
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    priced(where(**fields))
    after = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert len(after) > 1.5 * len(before)
    assert {path: after[path] for path in before} == before


def test_other_files_of_the_package_share_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    priced(where())
    before = kept().entries
    monkeypatch.setattr(kept_fills, "_files", lambda catalog: "other files")
    kept_fills._content.cache_clear()
    priced(where())
    kept_fills._content.cache_clear()
    assert kept().entries == 2 * before


ASKING = """
import os, sys
from pathlib import Path
import numpy as np
from silicast.composition.prices import kept_fills

value, file = sys.argv[1:]
if file:
    path = Path(kept_fills.__file__).parents[2] / file
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=times)
fills = kept_fills.KeptFills.of_deployment("a record")
print(fills.array(lambda: np.array([float(value)]), "question")[0])
"""


def test_a_package_that_changes_below_a_process_shares_nothing_with_later_ones(
    tmp_path: Path,
) -> None:
    """A copy of the package is edited, to files of the same size and the same time of content, as
    an upgrade may leave them.
    """
    skipped = shutil.ignore_patterns("__pycache__", "catalog")
    shutil.copytree(PACKAGE, tmp_path / "sources" / "silicast", ignore=skipped)
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path / "sources"),
        "SILICAST_CACHE": str(tmp_path / "cache"),
        "SILICAST_CATALOG": "",
        "SILICAST_CORE": "off",
    }

    def answer(value: float, edited: str = "") -> float:
        time.sleep(1.1 * COARSE_NS / 1e9)
        command = [sys.executable, "-c", ASKING, str(value), edited]
        return float(subprocess.check_output(command, env=environment, cwd=tmp_path))

    assert answer(1.0) == 1.0
    assert answer(2.0) == 1.0, "kept"
    assert answer(2.0, "py.typed") == 2.0, "other files"
    edited = "core/catalog.py"
    assert answer(3.0, edited) == 3.0, "of files that were loaded, which no longer are"
    assert answer(3.0, edited) == 3.0
    assert answer(4.0) == 4.0, "a later process knows nothing of it"
    assert answer(5.0) == 4.0


def test_nothing_is_kept_while_constants_are_replaced(folder: Path) -> None:
    with replaced({"gemm": load_physics("gemm")}):
        priced(where())
    assert not folder.exists()


def test_nothing_is_kept_of_what_is_no_record(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_fills, "record_hash", lambda deployment: None)
    kept_fills._content.cache_clear()
    priced(where())
    kept_fills._content.cache_clear()
    assert not folder.exists()


def test_a_folder_that_cannot_be_made_changes_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = priced(where())
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("SILICAST_CACHE", str(tmp_path / "file" / "below"))
    assert priced(where()) == first


def test_an_array_of_another_number_of_values_is_none() -> None:
    numbers = np.arange(6.0).tobytes()
    result = KeptArray((2, 3), numbers).array()
    assert result is not None
    assert result.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert KeptArray((2, 4), numbers).array() is None
    assert KeptArray((2, 3), numbers[:-1]).array() is None
