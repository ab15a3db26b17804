"""Every model on every device: an answer with an interval, or a named gap, never an exception."""

from __future__ import annotations

import importlib
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from silicast.app.api import predict
from silicast.hardware.catalog import device_index
from silicast.scenario.answer import Belief
from silicast.workload.models.lookup import model_names

WORK = {"batch": 2, "input_len": 256, "output_len": 16}
NO_BF16 = ("P100", "P4", "T4", "V100")


def _answer(device: str, model: str) -> None:
    scenario = {"task": "inference", "device": device, "model": model, "workload": WORK}
    result = predict(scenario)
    for name, belief in result.metrics.items():
        assert 0.0 < belief.p05 <= belief.estimate <= belief.p95 < 1e15, name


@pytest.mark.parametrize("device", device_index().names)
def test_every_device_runs_a_dense_model(device: str) -> None:
    _answer(device, "Llama-3.1-8B")


@pytest.mark.parametrize("device", device_index().names)
def test_every_device_with_16_bits_runs_an_fp8_checkpoint(device: str) -> None:
    if not device.startswith(NO_BF16):
        _answer(device, "Llama-3.1-8B-FP8")


@pytest.mark.nightly
def test_every_pair_is_answered_as_the_page_of_coverage_says() -> None:
    """`make coverage` writes the page anew."""
    coverage = importlib.import_module("benchmarks.coverage")
    lines = coverage.lines()
    assert len(lines) == len(device_index().names)
    refused = {
        (line.device.name, model): cell.refused
        for line in lines
        for model, cell in zip(model_names(), line.cells, strict=True)
        if cell.refused
    }
    assert refused == {}
    assert coverage.PAGE.read_text(encoding="utf-8") == coverage.page(lines)


@pytest.mark.parametrize("model", ["Llama-3.1-8B", "BERT-Large"])
def test_the_page_counts_what_cells_say(model: str) -> None:
    coverage = importlib.import_module("benchmarks.coverage")
    small, large = (coverage.cell(name, model) for name in ("M1", "H200-SXM-141GB"))
    assert not small.refused
    assert small.fits == (model == "BERT-Large")
    assert large.fits
    assert large.width < small.width  # an M1's kernels were never measured
    assert small.causes
    line = coverage.Line(device_index().get("M1"), [small, coverage.Cell("x", refused="no")])
    text = coverage.page([line])
    assert f"| M1 | Apple | simt | 1 | {int(small.fits)} |" in text
    assert "| no | 1 |" in text


def test_known_cells_are_not_answered_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coverage = importlib.import_module("benchmarks.coverage")
    monkeypatch.setattr(coverage, "model_names", lambda: ("Llama-3.1-8B", "BERT-Large"))
    path = tmp_path / "coverage.json"
    record = coverage.Record(path)
    assert record.of("M1") == {}
    first = coverage.cells_of("M1", {})
    record.put("M1", first)
    assert coverage.Record(path).of("M1") == first
    assert coverage.Record(path).of("M2") == {}
    assert coverage.Record(path, anew=True).of("M1") == {}
    known = {key: replace(cell, width=9.0) for key, cell in list(first.items())[:1]}
    again = coverage.cells_of("M1", known)
    assert [cell.width == 9.0 for cell in again.values()] == [True, False]


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"tier": "guess"}, "tier"),
        ({"metrics": {"total_ms": Belief(2.0, 3.0, 4.0)}}, "total_ms"),
        ({"metrics": {"total_ms": Belief(math.nan, 1.0, 4.0)}}, "total_ms"),
    ],
)
def test_an_unlawful_answer_is_named(wrong: dict[str, Any], what: str) -> None:
    coverage = importlib.import_module("benchmarks.coverage")
    good = {"tier": "analytic", "domain": "in", "metrics": {"total_ms": Belief(2.0, 1.0, 4.0)}}
    coverage.check(SimpleNamespace(**good), "pair")
    with pytest.raises(AssertionError, match=f"pair: .*{what}"):
        coverage.check(SimpleNamespace(**{**good, **wrong}), "pair")
