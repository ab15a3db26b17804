"""Tasks diagnose and tune answer as their commands do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import silicast
from silicast.app.cli import main
from silicast.core.errors import SilicastError
from silicast.scenario.answers.diagnose.answerer import diagnose

KERNEL = {
    "op": "moe", "tokens": 64, "experts": 128, "topk": 8, "hidden": 2048, "intermediate": 768,
    "part": "w13",
}  # fmt: skip


def diagnosed(device: str, measured_us: Any, **more: Any) -> silicast.Predicted:
    work = {"kernel": KERNEL, "measured_us": measured_us, **more}
    return silicast.predict(task="diagnose", device=device, workload=work)


def test_a_diagnosis_is_that_of_the_command() -> None:
    result, same = diagnosed("A40", [1900.0, 1901.0]), diagnose(KERNEL, "A40", [1900.0, 1901.0])
    assert same.faster is not None
    assert result["gain_pct"].estimate == same.faster.gain_pct
    assert result["best_us"].p05 >= result.bound["best_us"]
    assert sum(result.why["causes_us"].values()) == pytest.approx(1900.5)
    assert result.why["ran"]["assumed"]
    assert result.domain == "in"
    python = silicast.diagnose("moe", device="A40", measured_us=[1900.0, 1901.0],
                               **{n: x for n, x in KERNEL.items() if n != "op"})  # fmt: skip
    assert python == same


def test_kernels_beside_it_tell_what_a_device_is_off_by() -> None:
    best = diagnosed("L40S", 2000.0)["best_us"].estimate
    beside = [
        {"kernel": {**KERNEL, "tokens": tokens}, "measured_us": 1.02 * silicast_best(tokens)}
        for tokens in range(48, 80, 2)
    ]
    alone, told = diagnosed("L40S", 1.3 * best), diagnosed("L40S", 1.3 * best, beside=beside)
    assert told["gain_pct"].p95 - told["gain_pct"].p05 < (
        alone["gain_pct"].p95 - alone["gain_pct"].p05
    )
    assert any("kernels alike" in text for text in told.warnings)


def silicast_best(tokens: int) -> float:
    work = {"kernel": {**KERNEL, "tokens": tokens}, "measured_us": 1e5}
    return silicast.predict(task="diagnose", device="L40S", workload=work)["best_us"].estimate


def test_a_slow_kernel_gains_in_its_model() -> None:
    work = {"kernel": KERNEL, "measured_us": 900.0}
    result = silicast.predict(task="diagnose", device="H20", model="qwen3-30b-a3b", workload=work)
    assert result.why["model"]["tpot_then_ms"] < result.why["model"]["tpot_ms"]


@pytest.mark.parametrize("kernel", ["moe", "gemm"])
def test_tuning_is_that_of_the_command(kernel: str) -> None:
    result = silicast.predict(
        task="tune", device="H200", model="DeepSeek-V3", engine="sglang", parallel={"tp": 8},
        workload={"kernel": kernel, "tokens": [1, 256]},
    )  # fmt: skip
    plan = silicast.tune(
        kernel, model="DeepSeek-V3", device="H200", engine="sglang", tp=8, tokens=[1, 256]
    )
    total = sum(one.entries[0].estimate_us for one in plan.files)
    assert result["tokens_1_us"].estimate == pytest.approx(total)
    assert [one["name"] for one in result.why["files"]] == [one.name for one in plan.files]
    assert list(result.metrics) == ["tokens_1_us", "tokens_256_us"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"engine": "trtllm"}, "engine"), ({"model": "Llama-3.1-8B"}, "model"),
        ({"parallel": {"ep": 3}}, "parallel.ep"),
        ({"workload": {"kernel": "moe", "compiler": "new"}}, "compiler"),
        ({"workload": {"kernel": "moe", "existing": "none.json"}}, ""),
        ({"workload": {"kernel": "moe", "routing": "wild"}}, "routing"),
        ({"workload": {"kernel": "gemm", "routing": "uniform"}}, "workload.routing"),
    ],
)  # fmt: skip
def test_what_cannot_be_tuned_is_refused(changes: dict[str, Any], field: str) -> None:
    tree = {"device": "H20", "model": "qwen3-30b-a3b", "workload": {"kernel": "moe"}}
    with pytest.raises(SilicastError) as raised:
        silicast.predict(task="tune", **{**tree, **changes})
    assert raised.value.field == field


def test_a_measurement_that_beats_its_bound_is_refused() -> None:
    with pytest.raises(SilicastError, match="faster than its bound"):
        diagnosed("H20", 10.0)


def test_a_slow_kernel_whose_configuration_is_unknown_can_be_faster() -> None:
    slow = silicast.diagnose("gemm", m=64, n=4096, k=4096, device="H20", measured_us=90.0)
    slower = silicast.diagnose("gemm", m=64, n=4096, k=4096, device="H20", measured_us=500.0)
    assert slow.faster is not None
    assert slower.faster is not None
    assert slow.predicted_us < 30.0  # of the library's own choice
    assert 50.0 < slow.faster.gain_pct < slower.faster.gain_pct
    best = dict(slow.faster.configuration.values)
    stated = silicast.diagnose(
        "gemm", m=64, n=4096, k=4096, device="H20", measured_us=90.0, configuration=best
    )
    assert stated.faster is None  # it ran, and nothing ranks before it


def test_python_takes_numpy_numbers_and_refuses_what_is_none() -> None:
    sizes: dict[str, Any] = {"m": 64, "n": 4096, "k": 4096}
    single, words = np.float32(90), "soon"
    many: Any = np.array([1, 64])
    parts: Any = [1.5]
    plain = silicast.diagnose("gemm", device="H20", measured_us=90.0, **sizes)
    assert plain == silicast.diagnose("gemm", device="H20", measured_us=single, **sizes)  # type: ignore[arg-type]
    with pytest.raises(SilicastError, match="expected microseconds, found 'soon'"):
        silicast.diagnose("gemm", device="H20", measured_us=words, **sizes)  # type: ignore[arg-type]
    experts: dict[str, Any] = {"model": "qwen3-30b-a3b", "device": "H20"}
    with pytest.raises(SilicastError, match="expected whole numbers"):
        silicast.tune(**experts, tokens=parts)
    tune = silicast.tune(**experts, tokens=many)
    assert [entry.tokens for entry in tune.files[0].entries] == [1, 64]


@pytest.mark.parametrize(("field", "value"), [("ep", 4), ("compiler", "3.2")])
def test_products_refuse_what_is_of_experts_alone(field: str, value: Any) -> None:
    with pytest.raises(SilicastError, match=f"{field}: is of experts alone"):
        silicast.tune("gemm", model="qwen3-30b-a3b", device="H20", **{field: value})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["/nowhere.jsonl"], "/nowhere.jsonl: cannot be read as a file"),
        (["/tmp"], "/tmp: is a folder"),
        (["gemm", "m=1", "--measured-us", "9"], "--device: is missing"),
        (["gemm", "m=1", "--device", "h100"], "--measured-us: is missing"),
    ],
)
def test_diagnose_says_what_is_missing(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", *words]) == 2
    assert said in capsys.readouterr().err
