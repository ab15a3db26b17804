"""What makes an answer uncertain, in words."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from silicast.app.api import predict
from silicast.report.reasons.causes import (
    by_measurement,
    uncertainty_line,
    uncertainty_table,
    words_of,
)

CASE: dict[str, Any] = {
    "format": 1,
    "task": "inference",
    "device": "H20",
    "model": "Qwen3-8B",
    "engine": "vllm",
    "workload": {"batch": 2, "input_len": 256, "output_len": 4},
}
"""A device that no correction was learned on: its kernels are worth measuring."""


def rendered(what: object) -> str:
    file = io.StringIO()
    Console(width=100, file=file).print(what)
    return file.getvalue()


def found(name: str, share: float) -> dict[str, Any]:
    return {"name": name, "share": share, "log_sd": share**0.5}


def test_every_kind_of_factor_has_words() -> None:
    factors = ("device", "device:gemm", "family:gemm", "shapes:moe", "campaign:moe", "host")
    for factor in (*factors, "network", "composition", "structure", "experts"):
        remark = words_of(factor)
        assert ":" not in remark
        assert "{" not in remark
    assert words_of("new_thing") == "new thing"
    assert words_of("specification:Rubin").endswith("Rubin")


def test_errors_of_a_family_count_together() -> None:
    shares = [found("shapes:gemm", 0.3), found("host", 0.4), found("device:gemm", 0.3)]
    assert by_measurement(shares)[0] == ("gemm kernels", 0.6)


def test_a_measurement_that_gains_little_is_not_in_the_line() -> None:
    metric = {
        "log_sd": 0.1,
        "factors": [found("host", 1.0)],
        "would_narrow": [{"measure": "host", "log_sd": 0.099}],
    }
    assert "measured" not in uncertainty_line({"uncertainty": {"total_ms": metric}})


def test_answers_without_it_have_no_line_and_no_table() -> None:
    empty: list[dict[str, Any]] = [{}, {"uncertainty": {}}]
    for why in (*empty, {"uncertainty": {"e2e_ms": {"factors": []}}}):
        assert uncertainty_line(why) == ""
    assert uncertainty_table({}) is None


def test_an_answer_names_what_is_uncertain_and_what_would_narrow_it() -> None:
    reply = predict(CASE)
    why = reply.answer.why
    assert list(why["uncertainty"]) == ["prefill_ms", "decode_step_ms", "total_ms"]
    total = why["uncertainty"]["total_ms"]
    assert abs(sum(each["share"] for each in total["factors"]) - 1.0) < 0.01
    kernels = next(each for each in total["would_narrow"] if each["measure"] == "gemm")
    assert kernels["rows"] == 200
    assert kernels["log_sd"] < total["log_sd"]
    assert kernels["p05"] < 1.0 < kernels["p95"]
    line = uncertainty_line(why)
    assert line.startswith("interval mostly from gemm kernels (")
    assert "measured: ±" in line
    text = rendered(uncertainty_table(why))
    assert "gemm kernels on this device" in text
    assert "with 200 gemm kernels measured" in text
    assert "all together" in text
