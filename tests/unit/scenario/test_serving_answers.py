"""Answers of task serving beside their statistics."""

from __future__ import annotations

from silicast.scenario.answer import Answer
from silicast.scenario.run import reply_to


def warnings(input_len: int) -> list[str]:
    reply = reply_to(
        {
            "task": "serving", "model": "Llama-2-7B", "device": "h100",
            "workload": {
                "arrival": {"kind": "closed", "concurrency": 1}, "requests": 2,
                "input_len": input_len, "output_len": 4,
            },
        }
    )  # fmt: skip
    assert isinstance(reply, Answer)
    return reply.warnings


def test_requests_beyond_the_models_length_are_counted() -> None:
    assert not any("are longer" in said for said in warnings(1000))
    assert any(
        said.startswith("2 of 2 requests are longer") and "4096" in said for said in warnings(4095)
    )
