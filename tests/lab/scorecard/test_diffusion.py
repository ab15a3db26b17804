"""Pipelines that make images by diffusion."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.scorecard.diffusion_models import pipelines
from lab.scorecard.model_suite import Case
from lab.scorecard.static_networks import resnet50
from lab.scorecard.suites import diffusion
from lab.scorecard.suites.diffusion import DEVICES, HALVES, Campaign, answer, cases, fitted
from silicast.workload.graphs.graph import Graph


def test_every_pipeline_belongs_to_a_half_and_says_its_source() -> None:
    assert set(pipelines()) == set(HALVES)
    assert sorted(HALVES.values()) == ["fitted"] * 3 + ["scored"] * 3
    assert all(each.source.startswith("recalled") for each in pipelines().values())


def test_constants_are_of_the_devices_of_the_source() -> None:
    assert set(fitted()) == set(DEVICES.values())


@pytest.mark.parametrize("name", sorted(HALVES))
def test_denoisers_have_their_published_number_of_parameters(name: str) -> None:
    pytest.importorskip("torch", reason="needs PyTorch to make modules")
    pytest.importorskip("diffusers", reason="needs diffusers to make modules")
    pipeline = pipelines()[name]
    counted = sum(each.numel() for each in pipeline.module().parameters()) / 1e6
    assert counted == pytest.approx(pipeline.parameters_m, rel=2e-3)


class _Toy:
    """A pipeline of one image network, in place of traced ones."""

    def programs(self, images: int, steps: int) -> Iterator[tuple[str, Graph, int]]:
        yield "denoiser", resnet50(images), steps
        yield "decoder", resnet50(images), 1


def _answer(monkeypatch: pytest.MonkeyPatch, steps: int, **constants: float) -> tuple[float, ...]:
    monkeypatch.setattr(diffusion, "pipelines", lambda: {"toy": _Toy()})
    run = {"model": "toy", "device": "H100", "batch": 8, "steps": steps}
    result = answer(Case(run, {}, {}), Campaign(**constants))
    seconds, joules = result["batch_s"], result["energy_j_per_image"]
    for estimate, low, high, bound in (seconds, joules):
        assert bound <= low <= estimate <= high
    return seconds[0], joules[0]


def test_a_batch_is_its_steps_and_one_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    one, many = (_answer(monkeypatch, steps) for steps in (1, 24))
    assert many == pytest.approx([12.5 * each for each in one])


def test_constants_of_a_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, joules = _answer(monkeypatch, 4)
    slower, more = _answer(monkeypatch, 4, slower=1.5)
    assert seconds <= slower <= 1.5 * seconds
    assert more >= joules
    assert _answer(monkeypatch, 4, host_factor=0.25)[0] > seconds
    same, drawn = _answer(monkeypatch, 4, power=1.5)
    assert same == seconds
    assert joules < drawn < 1.5 * joules
    # 700 W for so many seconds and eight images
    assert _answer(monkeypatch, 4, power=100.0)[1] <= 700.0 * seconds / 8 * (1 + 1e-9)


@pytest.mark.data
def test_rows_of_a_half_are_of_its_pipelines(data: Path) -> None:
    for half in ("fitted", "scored"):
        result = cases(data, half)
        assert result
        assert {HALVES[case.scenario["model"]] for case in result} == {half}
