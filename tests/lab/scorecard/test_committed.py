"""A committed result says what it was computed from, and is stale once that has changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab import source_code
from lab.reads import numbers_hash, table_hash
from lab.scorecard import committed, inputs
from lab.scorecard.figures import summary
from lab.scorecard.inputs import Inputs, changed_numbers, changes, observed
from lab.scorecard.suite import Scored
from silicast.core.catalog import CATALOG

MODULES = ("silicast.kernels.products.gemm_model", "silicast.core.hashing", "numpy")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "one.csv").write_text("1\n")
    return tmp_path


@pytest.fixture
def read(data: Path) -> Inputs:
    files = (data / "rows" / "one.csv", CATALOG / "physics" / "gemm.json", Path(__file__))
    return observed([str(path) for path in files], MODULES, data)


def test_tables_numbers_and_modules_of_this_repository_are_noted(read: Inputs) -> None:
    assert list(read.tables) == ["rows/one.csv"]
    assert {folder: names for folder, (_, names) in read.numbers.items()} == {
        "catalog/physics": "gemm.json"
    }
    assert {package: names for package, (_, names) in read.code.items()} == {
        "silicast.core": "hashing", "silicast.kernels": "products.gemm_model",
    }  # fmt: skip


def test_names_of_inputs_are_written_once_a_start() -> None:
    assert inputs.packed(["b", "a.c_d", "a.c", "a.c_e"]) == "a.{c,c_{d,e}} b"
    assert inputs.unpacked("a{,.{b,c{,_d}}} e f-{g,h}.json"[:-5]) == [
        "a",
        "a.b",
        "a.c",
        "a.c_d",
        "e",
        "f-g",
        "f-h",
    ]


def test_packed_names_are_the_same_names() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        names = {"".join(rng.choice(list("ab._-"), size=rng.integers(1, 9))) for _ in range(12)}
        assert sorted(inputs.unpacked(inputs.packed(names))) == sorted(names)


def test_nothing_is_stale_while_nothing_changes(read: Inputs, data: Path) -> None:
    assert list(changes(read, data)) == []


def test_a_changed_table_is_named(read: Inputs, data: Path) -> None:
    table_hash.cache_clear()
    (data / "rows" / "one.csv").write_text("2\n")
    assert list(changes(read, data)) == ["rows/one.csv"]
    assert list(changes(read, None)) == []


def test_changed_constants_and_code_are_named(
    read: Inputs, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "_numbers_hash", lambda path: f"another {path}")
    monkeypatch.setattr(inputs, "_modules_hash", lambda package, _: f"another {package}")
    assert list(changes(read, data)) == [
        "catalog/physics", "code of silicast.core", "code of silicast.kernels",
    ]  # fmt: skip
    assert changed_numbers(read, ("physics",)) == ["catalog/physics"]
    assert changed_numbers(read, ("learned",)) == []


def test_a_card_and_a_comment_change_no_number(tmp_path: Path) -> None:
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    one.write_text(json.dumps({"card": {"date": "1"}, "default": {"x": 1.0}}))
    other.write_text(json.dumps({"card": {"date": "2"}, "default": {"x": 1.0}}, indent=1))
    assert numbers_hash(one) == numbers_hash(other)
    other.write_text(json.dumps({"card": {"date": "2"}, "default": {"x": 2.0}}))
    assert numbers_hash(one) != numbers_hash(other)


def test_a_module_that_is_gone_is_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    known = source_code.modules_hash(["silicast.core.hashing"])
    assert known == source_code.modules_hash(["silicast.core.hashing"])
    monkeypatch.setattr(source_code, "_path", lambda _: None)
    assert known != source_code.modules_hash(["silicast.core.hashing"])


def result() -> dict[str, Any]:
    measured = np.array([1.0, 2.0, 4.0, 8.0])
    scored = Scored(
        "latency_us", measured, measured * 1.1, measured, measured * 1.2,
        peers={"all": measured * 2.0, "some": np.array([1.0, np.nan, 4.0, 8.0])},
        groups={"device": np.array(["a", "a", "b", "b"])},
    )  # fmt: skip
    return {"suite": "norms", "version": "0", "tier": "analytic", "metrics": [summary(scored)]}


def test_a_summary_is_read_back_with_what_it_left_out(
    read: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committed, "FOLDER", tmp_path)
    committed.write(committed.compact(result(), read, "2000-01-01", 12.0))
    (metric,) = committed.summary_of("norms")["metrics"]
    assert metric["silicast"]["mean_ape"] == pytest.approx(10.0)
    assert metric["others"]["all"]["answered_pct"] == 100.0
    assert metric["others"]["some"]["answered_pct"] == 75.0
    assert metric["others"]["some"]["mean_ape_where_answered"] == 0.0
    assert "by" not in metric
    assert committed.inputs_of(committed.summary_of("norms")) == read
    page = committed.page_of("norms")
    assert "Run on 2000-01-01" in page
    assert "Changed since" not in page


def test_a_page_says_which_constants_changed_since(
    read: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committed, "FOLDER", tmp_path)
    committed.write(committed.compact(result(), read, "2000-01-01", 12.0))
    monkeypatch.setattr(inputs, "_numbers_hash", lambda path: f"another {path}")
    assert "**Changed since: catalog/physics.**" in committed.page_of("norms")


def test_a_result_without_inputs_is_stale() -> None:
    assert committed.stale("no such suite", None) == ["it was never run"]
