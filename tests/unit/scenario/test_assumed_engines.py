"""Engines of which nothing was measured say so."""

from __future__ import annotations

import pytest

import silicast

WORK = {
    "inference": {"batch": 2, "input_len": 512, "output_len": 8},
    "serving": {
        "arrival": {"kind": "closed", "concurrency": 2},
        "requests": 8,
        "input_len": 512,
        "output_len": 8,
    },
}


@pytest.mark.parametrize("task", ["inference", "serving"])
def test_tgi_says_that_no_run_was_measured(task: str) -> None:
    scenario = {
        "format": 1, "task": task, "device": "H100", "model": "Llama-3.1-8B", "engine": "tgi",
        "workload": WORK[task],
    }  # fmt: skip
    assert any(
        "no run of this server was measured" in x for x in silicast.predict(scenario).warnings
    )
