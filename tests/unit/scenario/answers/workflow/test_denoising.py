"""Stages of work "denoise": guidance, cached steps, videos, several devices."""

from __future__ import annotations

from typing import Any

import pytest

from lab.fit_diffusion import of_any_board
from lab.scorecard.suites.diffusion import fitted
from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.program import predict_program
from silicast.composition.power.clock import power_w
from silicast.composition.step.machine import Machine
from silicast.hardware.catalog import find_device
from silicast.scenario.answer import Answer, Refusal
from silicast.scenario.run import reply_to
from silicast.workload.networks.diffusion_transformer import transformer_of
from silicast.workload.networks.vector_index import workflow_constants

UNET = {
    "architectures": ["UNet2DConditionModel"],
    "block_out_channels": [64, 128],
    "attention_head_dim": 4,
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
}
WAN = {
    "architectures": ["WanTransformer3DModel"],
    "num_layers": 2,
    "num_attention_heads": 12,
    "ffn_dim": 8960,
}


SD3 = {
    "architectures": ["SD3Transformer2DModel"],
    "num_layers": 2,
    "num_attention_heads": 4,
    "attention_head_dim": 64,
    "in_channels": 16,
}
FLUX = SD3 | {"architectures": ["FluxTransformer2DModel"], "num_single_layers": 2}


def denoised(model: Any, pool: dict[str, Any] | None = None, **fields: Any) -> Answer | Refusal:
    stage = {"pool": "gpu", "work": "denoise", "resolution": [1024, 1024], **fields}
    pools = {"gpu": {"device": "H100", "model": model, "engine": "torch-compile", **(pool or {})}}
    workload = {"requests": 1, "stages": {"steps": stage}}
    return reply_to({"task": "workflow", "pools": pools, "workload": workload})


def metric(reply: Answer | Refusal, name: str = "e2e_mean_ms") -> float:
    assert isinstance(reply, Answer), reply
    return reply.metrics[name].estimate


@pytest.mark.parametrize(
    ("model", "usual"), [(UNET, True), (WAN, True), (SD3, True), (FLUX, False)]
)
def test_guidance_is_twice_the_images(model: dict[str, Any], usual: bool) -> None:
    """A step of two images without it is one of one image with it; left out, it is as usual."""
    one, both = (metric(denoised(model, guidance=each)) for each in (False, True))
    assert metric(denoised(model, guidance=False, items=2, max_batch=2)) == both > one
    assert metric(denoised(model)) == (both if usual else one)


def test_cached_steps_follow_whole_ones() -> None:
    whole, cached = (metric(denoised(WAN, frames=17, cached=each)) for each in (False, True))
    assert cached < whole
    stages: dict[str, dict[str, Any]] = {
        "first": {"repeat": 3},
        "later": {"repeat": 5, "cached": True, "after": ["first"]},
    }
    usual: dict[str, Any] = {
        "pool": "gpu",
        "work": "denoise",
        "resolution": [1024, 1024],
        "frames": 17,
    }
    reply = reply_to(
        {
            "task": "workflow",
            "pools": {"gpu": {"device": "H100", "model": WAN, "engine": "torch-compile"}},
            "workload": {
                "requests": 1,
                "stages": {name: usual | table for name, table in stages.items()},
            },
        }
    )
    assert metric(reply) == pytest.approx(3 * whole + 5 * cached, rel=1e-6)


def test_four_devices_are_quicker_and_take_more_energy() -> None:
    one = denoised(WAN, frames=17)
    four = denoised(WAN, {"parallel": {"cp": 4}}, frames=17)
    assert metric(one) / 4 < metric(four) < metric(one)
    assert metric(four, "energy_per_item_j") > metric(one, "energy_per_item_j")


@pytest.mark.parametrize(
    ("model", "pool", "fields", "field"),
    [
        (UNET, {}, {"frames": 9}, "workload.stages.steps.frames"),
        (UNET, {"parallel": {"cp": 2}}, {}, "pools.gpu.parallel.cp"),
        (WAN, {"parallel": {"cp": 5}}, {}, "pools.gpu.parallel.cp"),
        (WAN, {"parallel": {"tp": 2}}, {}, "pools.gpu.parallel"),
        (WAN | {"num_layers": 0}, {}, {}, "pools.gpu.model.num_layers"),
        ("Qwen3-8B", {}, {}, "workload.stages.steps.pool"),
    ],
)
def test_what_is_not_modelled_is_named(
    model: Any, pool: dict[str, Any], fields: dict[str, Any], field: str
) -> None:
    reply = denoised(model, pool, **fields)
    assert isinstance(reply, Refusal)
    assert reply.error.field == field


def test_a_video_of_one_frame_is_remarked() -> None:
    def remarked(**fields: Any) -> bool:
        reply = denoised(WAN, **fields)
        assert isinstance(reply, Answer), reply
        return any("a video of one frame" in each for each in reply.warnings)

    assert remarked()
    assert not remarked(frames=17)


@pytest.mark.parametrize("model", [UNET, WAN])
def test_too_large_a_resolution_is_named(model: Any) -> None:
    reply = denoised(model, resolution=[1_000_000, 1_000_000])
    assert isinstance(reply, Refusal)
    assert reply.error.field == "workload.stages.steps.resolution"


def test_pipelines_take_longer_than_their_kernels_and_draw_more() -> None:
    """Twice a large pass: its kernels alone, by task graph's composition, times the measured
    slowdown; the power is at the board's limit where the kernels' own is near it.
    """
    network = transformer_of(SD3, "model")
    images = 16
    tokens = network.image_tokens(1024, 1024)
    machine = Machine(find_device("H100"), find_engine("torch-compile"))
    alone = predict_program(machine, network.graph(2 * images, tokens, "bf16", fused=True))
    known = workflow_constants().diffusion
    reply = denoised(SD3, items=images, max_batch=images, repeat=2)
    times = alone.times
    device_s, waited_s = float(times.device_s[0]), float(times.waited_s[0])
    hidden_s = min(device_s * (known.slower - 1.0), waited_s)
    step_s = device_s * known.slower + waited_s - hidden_s + float(times.between_s[0])
    assert metric(reply) == pytest.approx(2e3 * step_s, rel=1e-3)
    joules = metric(reply, "energy_per_item_j")
    drawn_w = joules / (metric(reply) * 1e-3)
    expected = power_w(machine, 2 * step_s, 2 * alone.kernels_j * known.power)
    assert drawn_w == pytest.approx(expected, rel=1e-3)
    assert drawn_w > 1.1 * power_w(machine, 2 * step_s, 2 * alone.kernels_j)


def test_small_eager_batches_wait_for_a_slower_host() -> None:
    eager = denoised(SD3, {"engine": "torch-eager"}, resolution=[64, 64])
    assert isinstance(eager, Answer)
    assert any("host is 0.42 times as quick" in text for text in eager.warnings)
    network = transformer_of(SD3, "model")
    machine = Machine(find_device("H100"), find_engine("torch-eager"))
    graph = network.graph(2, network.image_tokens(64, 64), "bf16", fused=False)
    alone_ms = predict_program(machine, graph).total.latency_s.estimate * 1e3
    factor = workflow_constants().diffusion.host_factor
    assert metric(eager) == pytest.approx(alone_ms / factor, rel=0.05)


def test_constants_are_the_means_of_the_fitted_devices() -> None:
    mean, known = of_any_board(fitted()), workflow_constants().diffusion
    assert (known.host_factor, known.slower, known.power) == pytest.approx(
        (mean.host_factor, mean.slower, mean.power), rel=1e-3
    )
