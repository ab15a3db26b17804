"""Stages that encode videos and speech."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer, Refusal
from silicast.scenario.run import reply_to
from silicast.workload.graphs.graph import parameter_bytes_of
from silicast.workload.networks.audio_encoder import encoder_of
from silicast.workload.networks.image_encoder import encoder_of as image_encoder_of

WHISPER = {"architectures": ["WhisperModel"], "encoder_layers": 4}


def encoded(
    work: str, model: Any, *, engine: Any = "torch-compile", tp: int = 1, **fields: Any
) -> Answer | Refusal:
    stage = {"pool": "gpu", "work": work, **fields}
    pool = {"device": "H100", "model": model, "engine": engine, "parallel": {"tp": tp}}
    workload = {"requests": 1, "stages": {"encode": stage}}
    return reply_to({"task": "workflow", "pools": {"gpu": pool}, "workload": workload})


def milliseconds(reply: Answer | Refusal) -> float:
    assert isinstance(reply, Answer), reply
    return reply.metrics["e2e_mean_ms"].estimate


def test_two_frames_are_an_image_to_the_encoder() -> None:
    """Patches of Qwen3-VL span two frames: eight frames are four images, one is one."""
    size: dict[str, Any] = {"resolution": [512, 512], "max_batch": 8}
    images = milliseconds(encoded("encode_image", "Qwen3-VL-8B", items=4, **size))
    assert milliseconds(encoded("encode_image", "Qwen3-VL-8B", frames=8, **size)) == images
    one = milliseconds(encoded("encode_image", "Qwen3-VL-8B", **size))
    assert milliseconds(encoded("encode_image", "Qwen3-VL-8B", frames=2, **size)) == one


VLLM_DATA = {"name": "vllm", "options": {"mm_encoder_tp_mode": "data"}}
SGLANG_DATA = {"name": "sglang", "options": {"mm_enable_dp_encoder": True}}


@pytest.mark.parametrize(("engine", "data"), [("vllm", VLLM_DATA), ("sglang", SGLANG_DATA)])
def test_tensor_ranks_share_an_encoder_or_its_images(engine: str, data: Any) -> None:
    """A quarter of the products a rank, beside what ranks do not share and the sums; a rank that
    holds all of it has a quarter of the images; and one image cannot be shared out.
    """

    def time_ms(engine: Any, tp: int, items: int) -> float:
        size: dict[str, Any] = {"resolution": [1024, 1024], "max_batch": items}
        return milliseconds(
            encoded("encode_image", "Qwen3-VL-8B", engine=engine, tp=tp, items=items, **size)
        )

    alone, shared = time_ms(engine, 1, 8), time_ms(engine, 4, 8)
    assert alone / 4 < shared < 0.7 * alone
    assert alone / 4 < time_ms(data, 4, 8) < 0.5 * alone
    assert time_ms(engine, 4, 1) < time_ms(engine, 1, 1) <= time_ms(data, 4, 1)


def test_devices_that_do_not_share_an_encoder_run_all_of_it() -> None:
    """A framework of no such code, and a degree that no 16 heads are a multiple of: as before."""
    size: dict[str, Any] = {"resolution": [512, 512], "items": 4, "max_batch": 4}
    for engine, tp in (("torch-compile", 4), ("vllm", 3)):
        whole = encoded("encode_image", "Qwen3-VL-8B", engine=engine, tp=tp, **size)
        assert milliseconds(whole) == milliseconds(
            encoded("encode_image", "Qwen3-VL-8B", engine=engine, **size)
        )
        assert isinstance(whole, Answer)
        assert any("runs the whole encoder" in text for text in whole.warnings)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_ranks_of_an_encoder_hold_equal_parts_of_its_products(ranks: int) -> None:
    encoder = image_encoder_of("Qwen3-VL-8B")
    stem = 3 * encoder.patch**2 * encoder.temporal * encoder.hidden * 2
    whole = parameter_bytes_of(encoder.graph(1, 256, "bf16")) - stem
    own = parameter_bytes_of(encoder.graph(1, 256, "bf16", ranks=ranks)) - stem
    assert own * ranks == whole


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
