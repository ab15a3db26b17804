"""Stages that encode videos and speech."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer, Refusal
from silicast.scenario.run import reply_to
from silicast.workload.graphs.graph import parameter_bytes_of
from silicast.workload.networks.audio_encoder import encoder_of

WHISPER = {"architectures": ["WhisperModel"], "encoder_layers": 4}


def encoded(work: str, model: Any, **fields: Any) -> Answer | Refusal:
    stage = {"pool": "gpu", "work": work, **fields}
    pool = {"device": "H100", "model": model, "engine": "torch-compile"}
    workload = {"requests": 1, "stages": {"encode": stage}}
    return reply_to({"task": "workflow", "pools": {"gpu": pool}, "workload": workload})


def milliseconds(reply: Answer | Refusal) -> float:
    assert isinstance(reply, Answer), reply
    return reply.metrics["e2e_mean_ms"].estimate


def test_two_frames_are_an_image_to_the_encoder() -> None:
    """Patches of Qwen3-VL span two frames: eight frames are four images, one is one."""
    size = {"resolution": [512, 512], "max_batch": 8}
    images = milliseconds(encoded("encode_image", "Qwen3-VL-8B", items=4, **size))
    assert milliseconds(encoded("encode_image", "Qwen3-VL-8B", frames=8, **size)) == images
    one = milliseconds(encoded("encode_image", "Qwen3-VL-8B", **size))
    assert milliseconds(encoded("encode_image", "Qwen3-VL-8B", frames=2, **size)) == one


def test_an_audio_encoder_has_the_parameters_of_its_checkpoint() -> None:
    """Whisper large v3: 636.8 million in the encoder, of which positions are 1.9 million."""
    graph = encoder_of({"architectures": ["WhisperModel"]}).graph(1, "bf16")
    assert parameter_bytes_of(graph) / 2 == pytest.approx(634.9e6, rel=0.001)


def test_audio_is_padded_to_windows_of_thirty_seconds() -> None:
    short, whole, longer = (
        milliseconds(encoded("encode_audio", WHISPER, audio_s=each)) for each in (1.0, 30.0, 90.0)
    )
    assert short == whole < longer
    both = milliseconds(encoded("encode_audio", WHISPER, audio_s=30.0, items=3))
    assert both == longer


@pytest.mark.parametrize(
    ("model", "fields", "field"),
    [
        (WHISPER, {}, "workload.stages.encode.audio_s"),
        (WHISPER, {"audio_s": 0.0}, "workload.stages.encode.audio_s"),
        ("Qwen3-8B", {"audio_s": 5.0}, "workload.stages.encode.pool"),
        ({"architectures": ["StrangeNet"]}, {"audio_s": 5.0}, "pools.gpu.model"),
        (WHISPER | {"d_model": 0}, {"audio_s": 5.0}, "pools.gpu.model.d_model"),
    ],
)
def test_what_audio_lacks_is_named(model: Any, fields: dict[str, Any], field: str) -> None:
    reply = encoded("encode_audio", model, **fields)
    assert isinstance(reply, Refusal)
    assert reply.error.field == field


def test_heads_divide_the_width() -> None:
    with pytest.raises(SilicastError, match="7 heads"):
        encoder_of(WHISPER | {"encoder_attention_heads": 7})
