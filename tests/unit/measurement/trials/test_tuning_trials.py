"""Trials of configurations: what was timed is kept, and a second run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from silicast.core.errors import SilicastError
from silicast.kernels.configuration import Configuration
from silicast.kernels.experts.expert_layer import ExpertLayer
from silicast.measurement.trials.tuning_trials import FILE, gpu_timer, measured_plan, read_trials
from silicast.tuning.files import read_tuned_file
from silicast.tuning.plan import TuningPlan, tune_experts


@pytest.fixture
def plan() -> TuningPlan:
    return tune_experts("qwen3-30b-a3b", "H20", "vllm", tp=[1], tokens=[1, 64])


class Timed:
    """Likes deep tiles; stops after some calls, as a run that is killed."""

    def __init__(self, most: int = 1000) -> None:
        self.calls, self.most = 0, most

    def __call__(self, layer: ExpertLayer, tokens: int, one: Configuration) -> float:
        if self.calls == self.most:
            raise KeyboardInterrupt
        self.calls += 1
        if one.number("warps") == 8:
            raise RuntimeError("out of resource: shared memory")
        return tokens + 1000.0 / one.number("tile_k") + one.number("stages")


def test_the_fastest_trial_is_written(plan: TuningPlan, tmp_path: Path) -> None:
    timed = Timed()
    result = measured_plan(plan, 12, tmp_path, lambda _: timed)
    trials = read_trials(tmp_path / FILE)
    assert timed.calls == len(trials) == 24
    (path,) = result.write(tmp_path)
    for tokens, one in read_tuned_file(path).items():
        current = [t for t in trials if t.tokens == tokens and not t.error]
        assert one == min(current, key=lambda t: t.measured_us).what
    assert all(t.measured_us == 0.0 and "out of resource" in t.error
               for t in trials if t.what.number("warps") == 8)  # fmt: skip


def test_a_killed_run_goes_on(plan: TuningPlan, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        measured_plan(plan, 10, tmp_path, lambda _: Timed(most=7))
    assert len(read_trials(tmp_path / FILE)) == 7
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes()[:-9])  # the last line was cut off
    again = Timed()
    measured_plan(plan, 10, tmp_path, lambda _: again)
    assert again.calls == 20 - 6
    assert len(read_trials(path)) == 20


def test_without_a_gpu_it_is_refused(plan: TuningPlan, tmp_path: Path) -> None:
    try:
        import torch

        if torch.cuda.is_available():
            pytest.skip("there is a GPU")
    except ImportError:
        pass
    with pytest.raises(SilicastError, match="measuring needs") as raised:
        measured_plan(plan, 10, tmp_path / "new", gpu_timer)
    assert raised.value.field == "--measure"
    assert not (tmp_path / "new").exists()
