"""What the suites of serving do to rows, apart from the measured tables."""

import numpy as np
import pytest

from lab.scorecard.suites.serving import _known_by, _released, trains
from lab.scorecard.suites.serving_replay import Grid

MODELS = {
    "vllm": (("Qwen3-32B", "H100"), ("Llama-3.1-70B", "B200"), ("Llama-3.1-70B", "H100")),
    "sglang": (("Qwen3-32B", "H100"), ("DeepSeek-R1", "B200")),
    "trtllm": (("Qwen3-32B", "H100"), ("Llama-3.1-8B-Instruct", "H100")),
}


@pytest.mark.parametrize("engine", MODELS)
def test_every_engine_has_pairs_on_both_sides_of_the_split(engine: str) -> None:
    assert {trains(*pair) for pair in MODELS[engine]} == {True, False}


@pytest.mark.parametrize("device", ["H100", "B200", "GB200"])
def test_checkpoints_of_one_architecture_are_on_one_side(device: str) -> None:
    names = ("deepseek-ai/DeepSeek-R1", "nvidia/DeepSeek-R1-NVFP4", "nvidia/DeepSeek-V3.1-NVFP4")
    assert len({trains(name, device) for name in names}) == 1
    assert trains("Qwen/Qwen3-32B", device) == trains("nvidia/Qwen3-32B-NVFP4", device)


@pytest.mark.parametrize(
    ("engine", "day", "release"),
    [
        ("vllm", "2025-10-03", ""),
        ("vllm", "2025-10-04", "0.11.0"),
        ("vllm", "2025-11-19", "0.11.0"),
        ("vllm", "2025-11-20", "0.11.2"),
        ("trtllm", "2026-01-01", "1.1.0"),
        ("sglang", None, ""),
        ("tgi", "2025-12-01", ""),
    ],
)
def test_a_run_has_the_newest_release_of_its_day(engine: str, day: str, release: str) -> None:
    assert _released({"backend": engine, "measured_on": day}) == release


@pytest.mark.parametrize(
    ("source", "engine", "version", "model", "known_by"),
    [
        ("InferenceX", "vllm", "0.13.0", "openai/gpt-oss-120b", "recalled"),
        ("InferenceX", "trtllm", None, "openai/gpt-oss-120b", "recalled"),
        ("InferenceX", "sglang", "0.5.8", "deepseek-ai/DeepSeek-R1", "recalled"),
        ("InferenceX", "trtllm", "1.1.0", "openai/gpt-oss-120b", "stated or assumed"),
        ("NVIDIA", "vllm", "0.12.0", "Qwen/Qwen3-32B", "stated or assumed"),
    ],
)
def test_rows_with_recalled_launches_are_told(
    source: str, engine: str, version: str | None, model: str, known_by: str
) -> None:
    row = {"backend": engine, "backend_version": version, "model_path": model}
    assert _known_by(row, source) == known_by


def test_a_grid_is_straight_between_and_beyond_its_knots() -> None:
    rows, columns = np.array([0.0, 1.0, 4.0]), np.array([0.0, 2.0])
    grid = Grid((rows, columns), 3.0 * rows[:, None] + 5.0 * columns[None, :])
    for point in ((0.0, 0.0), (0.5, 1.0), (2.0, 2.0), (8.0, 3.0)):
        assert grid.at(*point) == pytest.approx(3.0 * point[0] + 5.0 * point[1])
