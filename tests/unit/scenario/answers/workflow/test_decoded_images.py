"""Decoders of latent images, and overheads that a scenario states."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.scenario.answer import Answer, Refusal
from silicast.scenario.run import reply_to

MODEL = {
    "architectures": ["AutoencoderKL"],
    "latent_channels": 4,
    "layers_per_block": 1,
    "block_out_channels": [32, 64],
}


def decoded(model: Any = MODEL, **fields: Any) -> Answer | Refusal:
    stage = {"pool": "gpu", "work": "decode_image", "resolution": [256, 256], **fields}
    pool = {"device": "H100", "model": model, "engine": "torch-eager"}
    workload = {"requests": 1, "stages": {"decode": stage}}
    return reply_to({"task": "workflow", "pools": {"gpu": pool}, "workload": workload})


def milliseconds(reply: Answer | Refusal) -> float:
    assert isinstance(reply, Answer), reply
    return reply.metrics["e2e_mean_ms"].estimate


def test_more_pixels_take_longer_and_an_overhead_its_share() -> None:
    once = milliseconds(decoded())
    assert milliseconds(decoded(resolution=[2048, 2048])) > 4 * once
    assert milliseconds(decoded(overhead_share=0.5)) == pytest.approx(1.5 * once, rel=1e-6)


@pytest.mark.parametrize(
    ("model", "fields", "field"),
    [
        ("Qwen3-8B", {}, "workload.stages.decode.pool"),
        (MODEL | {"layers_per_block": 0}, {}, "pools.gpu.model"),
        (MODEL, {"resolution": None}, "workload.stages.decode.resolution"),
        (MODEL, {"overhead_share": -0.1}, "workload.stages.decode.overhead_share"),
    ],
)
def test_what_a_decoder_lacks_is_named(model: Any, fields: dict[str, Any], field: str) -> None:
    reply = decoded(model, **fields)
    assert isinstance(reply, Refusal)
    assert reply.error.field == field
