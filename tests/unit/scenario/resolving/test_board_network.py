"""A board as a scenario's device: tasks graph and inference, samples of it, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import silicast
from silicast.accelerator.design.architecture_file import DESIGNS, read_design
from silicast.app.cli import main
from silicast.core.catalog import CATALOG
from silicast.core.errors import SilicastError

RESULT = Path(__file__).parents[4] / "benchmarks" / "results" / "npu_nests.json"


def predict(**fields: Any) -> Any:
    given: dict[str, Any] = {
        "task": "graph",
        "device": "Samsung Galaxy S24",
        "model": "resnet50",
        "engine": "qnn",
        "precision": {"recipe": "w8a8"},
        "workload": {"mode": "inference", "batch": 1},
    }
    return silicast.predict(**{**given, **fields})


def test_both_tasks_and_all_names_give_one_latency() -> None:
    graph = predict()
    batch = predict(task="inference", workload={"batch": 1, "input_len": 1, "output_len": 1})
    chip = predict(device="Snapdragon 8 Gen 3", model="torchvision:resnet50")
    assert graph["e2e_ms"] == batch["prefill_ms"] == chip["e2e_ms"]
    assert 0.2 < graph["e2e_ms"].estimate < 2.0
    assert any("55 TOPS" in each for each in graph.warnings)


def test_formats_are_the_boards_own() -> None:
    recipes = ({"recipe": "w8a16_mixed_int16"}, {"recipe": "w8a16"})
    parts = {"weights": "int8", "activations": "int16"}
    latencies = {predict(precision=each)["e2e_ms"].estimate for each in (*recipes, parts)}
    assert len(latencies) == 1
    assert latencies != {predict()["e2e_ms"].estimate}


def test_a_model_of_two_components_takes_both() -> None:
    whole, *parts = (
        predict(model=name, precision={"recipe": "float"})["e2e_ms"].estimate
        for name in ("trocr", "trocr/TrOCREncoder", "trocr/TrOCRDecoder")
    )
    assert whole == pytest.approx(sum(parts))


def test_ten_samples_of_the_board_narrow_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = (
        "resnet101",
        "mobilenet_v3_large",
        "yolov8_det",
        "googlenet",
        "inception_v3",
        "esrgan",
        "unet_segmentation",
        "convnext_tiny",
        "beit",
        "ffnet_40s",
    )
    rows = ["model,precision,runtime,latency_ms"]
    for name in names:
        ms = predict(model=name, precision={"recipe": "float"}, engine="tflite")["e2e_ms"].estimate
        rows.append(f"{name},float,tflite,{2.0 * ms}")
    table, output = tmp_path / "s24.csv", tmp_path / "s24.json"
    table.write_text("\n".join(rows), encoding="utf-8")
    code = main(["calibrate", str(table), "--device", "Galaxy S24", "-o", str(output)])
    assert (code, "10 samples" in capsys.readouterr().out) == (0, True)
    before, after = (
        predict(precision={"recipe": "float"}, **more)
        for more in ({}, {"calibration": str(output)})
    )
    assert after.tier == "calibrated"
    assert after["e2e_ms"].estimate == pytest.approx(2.0 * before["e2e_ms"].estimate, rel=0.1)
    widths = [each["e2e_ms"].p95 / each["e2e_ms"].p05 for each in (before, after)]
    assert widths[1] < widths[0]
    with pytest.raises(SilicastError, match="measured on Samsung Galaxy S24, used for"):
        predict(device="Galaxy S25", calibration=str(output))


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"workload": {"mode": "training", "batch": 1}}, "one inference"),
        ({"workload": {"mode": "inference", "batch": 8}}, "one inference"),
        ({"model": "no-such-net"}, "whose work is known"),
        ({"engine": "vllm"}, "no runtime"),
        ({"precision": {"recipe": "fp8"}}, "expected one of float"),
        (
            {
                "task": "serving",
                "workload": {
                    "arrival": {"kind": "closed", "concurrency": 1},
                    "input_len": 8,
                    "output_len": 8,
                },
                "engine": "vllm",
                "precision": None,
            },
            "kernels of its NPU",
        ),
    ],
)
def test_what_is_not_modelled_is_refused(fields: dict[str, Any], part: str) -> None:
    with pytest.raises(SilicastError, match=part):
        predict(**fields)


def test_a_row_that_is_no_single_network_is_named(tmp_path: Path) -> None:
    table = tmp_path / "bad.csv"
    table.write_text("model,latency_ms\nresnet50,2.0\ntrocr,9.0\n", encoding="utf-8")
    code = main(["calibrate", str(table), "--device", "Galaxy S24", "-o", str(tmp_path / "o.json")])
    assert code == 2
    assert not (tmp_path / "o.json").exists()


def test_the_analytic_tier_is_the_nest_of_the_board() -> None:
    """By the board's own figures: a weaker chip with less of everything takes longer."""
    scenario = {"model": "resnet50", "engine": None, "tier": "analytic"}
    strong, weak = (predict(device=each, **scenario) for each in ("Galaxy S25", "RB3 Gen 2"))
    assert strong.tier == weak.tier == "analytic"
    macs = 4.089e9
    for answer, tops in ((strong, 65e12), (weak, 12e12)):
        assert answer["e2e_ms"].estimate > 1e3 * 2.0 * macs / tops
    assert weak["e2e_ms"].estimate > 2.0 * strong["e2e_ms"].estimate


def test_the_analytic_tier_takes_the_runtime_and_refuses_formats_that_a_program_has_not() -> None:
    for engine in ("tflite", {"name": "torch-eager", "options": {"runtime": "litert"}}):
        answer = predict(tier="analytic", engine=engine)
        assert any(text.startswith("litert runs the network") for text in answer.warnings)
    with pytest.raises(SilicastError, match="no runtime 'vllm'"):
        predict(tier="analytic", engine="vllm")
    architecture = "fbnet:" + " ".join(["3"] * 22)
    with pytest.raises(SilicastError, match="runs in fp32"):
        predict(tier="analytic", model=architecture)


def test_the_analytic_tier_needs_a_graph() -> None:
    with pytest.raises(SilicastError, match="needs the graph"):
        predict(model="yolov8_det", tier="analytic")


def test_wider_activations_take_longer_and_the_bound_is_below() -> None:
    """A product of 16 by 8 bits takes two multipliers of the design."""
    both = {"tier": "analytic", "engine": None}
    narrow, wide = (
        predict(device="Galaxy S25", precision={"recipe": each}, **both)
        for each in ("w8a8", "w8a16")
    )
    assert wide["e2e_ms"].estimate > narrow["e2e_ms"].estimate
    bound = predict(device="Galaxy S25", tier="bound", engine=None)
    assert (bound.tier, bound["e2e_ms"].estimate) == ("bound", narrow.bound["e2e_ms"])


@pytest.mark.parametrize(
    "fields",
    [
        {"tier": "scaled"},
        {
            "tier": "bound",
            "task": "inference",
            "workload": {"batch": 1, "input_len": 1, "output_len": 1},
        },
    ],
)
def test_a_tier_that_a_board_has_not_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(SilicastError, match=f"no {fields['tier']} tier"):
        predict(**fields)


def test_designs_of_boards_are_as_wide_as_nests_of_other_generations_were_off() -> None:
    widths = json.loads(RESULT.read_text(encoding="utf-8"))["time_log_sd"]
    designs = [read_design(path) for path in sorted((CATALOG / DESIGNS).glob("hexagon-*.toml"))]
    assert designs
    for design in designs:
        assert design.content.system.time_log_sd == widths[design.content.name]
