"""Task ``fits``: what it lists fits, and says the same as task ``inference``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import silicast
from silicast.app.cli import main
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.scenario.answers.fits.candidates import models_of_catalog
from tests.gguf_file import FACTS, gguf_bytes, tiny_tensors


def inference(model: str, weights: str, input_len: int, output_len: int) -> silicast.Predicted:
    return silicast.predict(
        task="inference",
        model=model,
        device="RTX 4090",
        engine="llama.cpp",
        precision={"weights": weights},
        workload={"batch": 1, "input_len": input_len, "output_len": output_len},
    )


@pytest.fixture(scope="module")
def pairs() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = silicast.fits(device="RTX 4090", context=8192, most=16).why["fits"]
    return rows


def test_all_rows_fit_and_the_largest_come_first(pairs: list[dict[str, Any]]) -> None:
    assert all(row["memory_gb"] <= row["usable_gb"] < 25.77 for row in pairs)
    wide = [
        row["parameters_b"] for row in pairs if not row["weights"].startswith(("Q3", "Q2", "IQ"))
    ]
    assert wide == sorted(wide, reverse=True)
    assert len({row["model"] for row in pairs}) == len(pairs)


def test_no_row_is_quicker_than_its_weights_through_memory(pairs: list[dict[str, Any]]) -> None:
    for row in pairs:
        share = row["active_b"] / row["parameters_b"]
        assert row["tokens_per_s"]["p05"] * row["weights_gb"] * min(share, 1.0) < 1008.0, row


def test_the_same_pair_as_task_inference(pairs: list[dict[str, Any]]) -> None:
    row = next(row for row in pairs if row["model"] == "Gemma-3-27B")
    alone = inference(row["model"], row["weights"], 8191, 2)
    assert 1e3 / row["tokens_per_s"]["estimate"] == pytest.approx(
        alone.metrics["decode_step_ms"].estimate, rel=0.01
    )
    assert row["weights_gb"] == pytest.approx(alone.why["memory_gb"]["weights"], abs=0.01)


@pytest.mark.parametrize(
    ("context", "offered"),
    [
        (40960, {"Qwen3-4B", "Phi-3-mini-128k-instruct"}),
        (40961, {"Qwen3-4B", "Qwen3-4B-Instruct-2507", "Phi-3-mini-128k-instruct"}),
        (262145, {"Qwen3-4B"}),
    ],
)
def test_a_variant_is_offered_where_its_base_is_too_short(context: int, offered: set[str]) -> None:
    """Phi-3-mini takes 4096 tokens, its variant 131,072; Qwen3-4B 40,960 and 262,144."""
    names = {model.name for model in models_of_catalog(context)}
    ours = {name for name in names if name.startswith(("Qwen3-4B-", "Phi-3-mini-"))}
    assert ours | {"Qwen3-4B"} == offered
    assert "QwQ-32B" not in names  # its base takes more than it


def test_a_variant_is_in_the_answer() -> None:
    why = silicast.fits(device="RTX 4090", context=100_000, most=100).why["fits"]
    names = {row["model"] for row in why}
    assert "Qwen3-4B-Instruct-2507" in names
    assert "Qwen3-4B" not in names


def test_more_users_leave_less_room() -> None:
    few, many = (
        silicast.fits(device="RTX 4090", model="Llama-3.1-8B", context=16384, users=users).why[
            "fits"
        ][0]
        for users in (1, 8)
    )
    assert few["weights"] == "Q8_0"
    assert many["weights"] != "Q8_0"
    # a key and a value of 8 heads of 128 in 32 layers, 2 bytes each, by 8 x 16,384 tokens
    assert many["kv_cache_gb"] == pytest.approx(2 * 32 * 8 * 128 * 2 * 8 * 16384 / 1e9, abs=0.01)


def test_devices_of_a_model_are_the_quickest_first() -> None:
    rows = silicast.fits(model="Qwen3-4B", most=5).why["fits"]
    speeds = [row["tokens_per_s"]["estimate"] for row in rows]
    assert speeds == sorted(speeds, reverse=True)
    # the most bandwidth without HBM, 512 bits of GDDR7 at 28 Gbit/s
    assert find_device(rows[0]["device"]).dram.bandwidth_bytes_per_s == 1792e9


def test_a_device_is_too_slow_only_if_no_format_is_quick_enough() -> None:
    """Q8_0 of 75 GB fits GB10, whose 273 GB/s read it 3.6 times a second; Q4_K_M is 40 % less."""
    why = silicast.fits(model="Llama-3.1-70B", most=60).why
    rows = {row["device"]: row for row in why["fits"]}
    assert rows["GB10"]["memory_gb"] < 0.85 * 75 < rows["GB10"]["usable_gb"]
    assert all(row["tokens_per_s"]["estimate"] >= 5.0 for row in rows.values())
    assert rows["M3 Ultra"]["weights"] == "Q8_0"  # quick enough in the widest
    assert len(rows) + why["slow"] == why["fitting"]  # nothing goes unexplained


def test_what_is_not_listed_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    words = "fits --model Llama-3.1-8B --most 3 --least-tokens-per-s 40"
    assert main(words.split()) == 0
    text = " ".join(capsys.readouterr().out.split())
    counts = re.search(r"3 of (\d+) devices that fit .* tried; (\d+) are too slow; (\d+) are", text)
    assert counts is not None
    fitting, slow, behind = map(int, counts.groups())
    assert slow > 0
    assert 3 + slow + behind == fitting


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "device"),
        ({"device": "RTX 4090", "engine": "vllm"}, "engine"),
        ({"device": "H100", "engine": "mlx"}, "device"),
        ({"device": "RTX 4090", "model": "DeepSeek-R1"}, "workload"),
    ],
)
def test_what_cannot_be_answered_is_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(SilicastError) as caught:
        silicast.fits(**fields)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("options", "precision", "field"),
    [
        ({"n_gpu_layers": "some"}, {}, "engine.options.n_gpu_layers"),
        ({"backend": "metal"}, {}, "engine.options.backend"),
        ({}, {"weights": "Q4_K_N"}, "precision.weights"),
        ({}, {"weights": "Q4_K_M", "experts": "fp8"}, "precision.experts"),
    ],
)
def test_options_that_no_kernel_has_are_refused(
    options: dict[str, Any], precision: dict[str, str], field: str
) -> None:
    with pytest.raises(SilicastError) as caught:
        silicast.infer(
            model="Llama-3.1-8B",
            device="RTX 4090",
            engine={"name": "llama.cpp", "options": options},
            precision={"weights": "Q4_K_M", **precision},
        )
    assert caught.value.field == field


def test_a_mixture_is_refused_by_engines_that_read_checkpoints() -> None:
    with pytest.raises(SilicastError, match=r"llama\.cpp or mlx"):
        silicast.infer(model="Llama-3.1-8B", device="RTX 4090", engine="vllm", weights="Q4_K_M")


def test_a_prompt_runs_in_steps() -> None:
    """A prompt of four steps of 512 takes their sum: no less than three times the first."""
    one, four = (
        inference("Llama-3.1-8B", "Q4_K_M", length, 1).metrics["prefill_ms"].estimate
        for length in (512, 2048)
    )
    assert 3.9 * one < four < 4.6 * one


@pytest.mark.parametrize("device", ["", "RTX 4090"])
@pytest.mark.parametrize(
    ("model", "message"),
    [("bert-base-uncased", "is no decoder"), ("Llama-3-8B", "made for 8192 tokens, found 8193")],
)
def test_a_model_that_writes_no_such_text_is_refused(model: str, message: str, device: str) -> None:
    with pytest.raises(SilicastError) as error:
        silicast.fits(model=model, device=device, context=8193)
    assert message in str(error.value)


def test_a_file_of_weights_is_in_its_own_formats_unless_others_are_stated(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf_bytes(FACTS, tiny_tensors()))
    tree: dict[str, Any] = {"task": "fits", "model": str(path), "engine": "llama.cpp"}
    fits = silicast.predict({**tree, "workload": {"context": 64}}).why["fits"]
    assert {row["weights"] for row in fits} == {"q4_k (file)"}
    tree = {
        **tree,
        "task": "inference",
        "device": "rtx 4090",
        "workload": {"batch": 1, "input_len": 8, "output_len": 2},
    }
    stated = silicast.predict({**tree, "precision": {"weights": "Q8_0"}})
    said = [text for text in stated.warnings if "not in the formats of its file" in text]
    assert len(said) == 1


def test_a_file_that_contradicts_itself_is_named_as_infer_names_it(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    head = {**FACTS, "qwen3.feed_forward_length": 4 * FACTS["qwen3.feed_forward_length"]}
    path.write_bytes(gguf_bytes(head, tiny_tensors()))
    fits = silicast.fits(model=str(path), context=64)
    assert any("its head describes" in text for text in fits.warnings)


def test_an_npu_that_no_engine_runs_on_is_answered_by_another_task() -> None:
    with pytest.raises(SilicastError, match=r"`silicast infer --model NAME --device hexagon-v81`"):
        silicast.fits(device="hexagon-v81")


def test_without_an_answer_there_is_no_plot_and_the_reason_comes_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / "fits.svg"
    command = "fits --model Qwen2.5-0.5B --device rtx-4090 --least-tokens-per-s 900000 --plot"
    for more, reason in ((), "fewer than 900000 tokens/s"), (["--json"], "not drawn"):
        assert main([*command.split(), str(plot), *more]) == 2
        told = capsys.readouterr()
        assert reason in told.err
        assert bool(more) == ('"ok": false' in told.out)
    assert not plot.exists()


def test_a_plot_that_cannot_be_written_leaves_the_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / "fits.svg"
    plot.mkdir()
    command = "fits --model Qwen2.5-0.5B --device rtx-4090 --plot"
    assert main([*command.split(), str(plot)]) != 0
    told = capsys.readouterr()
    assert "Qwen2.5-0.5B" in told.out
    assert "fits.svg" in told.err
