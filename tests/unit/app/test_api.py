"""The Python interface."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import silicast
from silicast.core.errors import SilicastError

KERNEL = {"kernel": {"op": "rmsnorm", "tokens": 8, "hidden": 4096}}


def test_three_lines_predict_a_kernel(tmp_path: Path) -> None:
    result = silicast.predict(task="kernel", device="H100", workload=KERNEL)
    assert result["latency_us"].estimate >= result.bound["latency_us"]
    assert result.tier == "analytic"
    path = tmp_path / "s.toml"
    path.write_text(
        'task = "kernel"\ndevice = "H100"\n[workload.kernel]\n'
        'op = "rmsnorm"\ntokens = 8\nhidden = 4096\n',
        encoding="utf-8",
    )
    assert silicast.predict(path) == result
    base = {"task": "kernel", "device": "A100", "workload": KERNEL}
    assert silicast.predict(base, device="H100") == result


def test_a_static_batch_in_three_lines() -> None:
    result = silicast.infer(
        model="Llama-3.1-8B", device="H100", batch=8, input_len=1024, output_len=4, tp=2
    )
    assert result.decode_step_ms is not None
    assert result.prefill_ms.estimate > result.decode_step_ms.estimate > 0
    total = result.prefill_ms.estimate + 3 * result.decode_step_ms.estimate
    assert result.total_ms.estimate == pytest.approx(total, rel=0.01)
    assert result.memory_gb.estimate > 8.0
    lens = silicast.infer(
        model="Llama-3.1-8B", device="H100", input_lens=[1024] * 8, output_len=4, tp=2
    )
    assert lens.total_ms == result.total_ms


BATCH: dict[str, Any] = {
    "model": "Llama-3.1-8B",
    "device": "H100",
    "input_len": 256,
    "output_len": 4,
}


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ({"tp": 4}, {"parallel": {"tp": 4}}),
        ({"pp": 2}, {"parallel": {"pp": 2}}),
        ({"tp": 2, "parallel": {"pp": 2}}, {"parallel": {"tp": 2, "pp": 2}}),
        ({"tp": 2, "parallel": {"tp": 2}}, {"parallel": {"tp": 2}}),
        ({"dtype": "fp8"}, {"precision": {"recipe": "fp8"}}),
        ({"kv_dtype": "fp8"}, {"precision": {"kv_cache": "fp8"}}),
        ({"power_w": 300}, {"limits": {"power_w": 300}}),
        ({"clock_mhz": 900}, {"limits": {"clock_mhz": 900}}),
    ],
)
def test_short_and_long_form_are_the_same_question(
    short: dict[str, Any], long: dict[str, Any]
) -> None:
    result = silicast.infer(**BATCH, **short)
    assert result.predicted == silicast.infer(**BATCH, **long).predicted
    assert result.predicted.why != silicast.infer(**BATCH).predicted.why


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"tp": 2, "parallel": {"tp": 4}}, "parallel.tp"),
        ({"tp": 1, "parallel": {"tp": 4}}, "parallel.tp"),
        ({"dtype": "fp8", "precision": {"recipe": "bf16"}}, "precision.recipe"),
        ({"power_w": 300, "limits": {"power_w": 400}}, "limits.power_w"),
        ({"parallel": {"tp": 3}}, "parallel"),
        ({"parallel": {"tpp": 4}}, "parallel.tpp"),
        ({"parallel": 4}, "parallel"),
        ({"tp": 2, "parallel": 4}, "parallel"),
    ],
)
def test_contradictions_and_bad_degrees_are_refused(given: dict[str, Any], field: str) -> None:
    with pytest.raises(SilicastError) as caught:
        silicast.infer(**BATCH, **given)
    assert caught.value.field.startswith(field)


def test_one_token_is_all_prefill() -> None:
    result = silicast.infer(model="Llama-3.1-8B", device="H100", input_len=64, output_len=1)
    assert result.decode_step_ms is None
    assert result.total_ms.estimate == result.prefill_ms.estimate


def test_metrics_that_do_not_exist_are_named() -> None:
    result = silicast.predict(task="kernel", device="H100", workload=KERNEL)
    with pytest.raises(KeyError, match="there are latency_us"):
        result["latency_ms"]


def test_errors_name_the_field() -> None:
    with pytest.raises(SilicastError, match="did you mean device"):
        silicast.predict(task="kernel", devise="H100", workload=KERNEL)


def test_unknown_attributes_are_attribute_errors() -> None:
    with pytest.raises(AttributeError):
        _ = silicast.nonsense
    assert "predict" in dir(silicast)


def test_importing_the_package_imports_no_numpy() -> None:
    code = "import silicast, sys; sys.exit('numpy' in sys.modules or 'msgspec' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_is_shown_is_short_and_errors_can_be_caught() -> None:
    result = silicast.infer(**BATCH)
    assert repr(result).startswith("StaticBatchTimes(prefill_ms=")
    assert repr(result.predicted).startswith("Predicted(prefill_ms=")
    assert len(repr(result)) < 300
    assert silicast.SilicastError is SilicastError
    assert "SilicastError" in dir(silicast)


def test_numbers_of_numpy_and_paths_are_taken_as_they_are(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    chip = tmp_path / "chip.toml"
    chip.write_text('base = "H100"\nname = "chip"\n', encoding="utf-8")
    requested: dict[str, Any] = {"model": "Llama-3.1-8B", "output_len": 2}
    plain = silicast.infer(device=str(chip), batch=2, input_len=64, power_w=500.0, **requested)
    typed = silicast.infer(
        device=chip,  # type: ignore[arg-type]
        batch=np.int64(2), input_len=np.int32(64), power_w=np.float32(500.0), **requested,
    )  # fmt: skip
    assert typed == plain
    many = silicast.infer(device="h100", input_lens=np.array([3, 64]), **requested)
    assert many == silicast.infer(device="h100", input_lens=[3, 64], **requested)


def test_an_encoder_generates_nothing_unless_it_is_asked_to() -> None:
    result = silicast.infer(model="bert-base-uncased", device="h100", input_len=128)
    assert result.decode_step_ms is None
    assert result == silicast.infer(
        model="bert-base-uncased", device="h100", input_len=128, output_len=1
    )
    with pytest.raises(SilicastError, match="generates no tokens"):
        silicast.infer(model="bert-base-uncased", device="h100", output_len=2)
    swept = silicast.sweep(model=["bert-base-uncased", "Llama-3.1-8B"], device="h100", input_len=64)
    assert [row.reason for row in swept] == ["", ""]
