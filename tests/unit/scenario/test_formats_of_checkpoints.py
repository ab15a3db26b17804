"""Formats that a checkpoint states, and what is said of them."""

from __future__ import annotations

from typing import Any

import pytest

import silicast

SAID = "the checkpoint of BERT-Base is in fp32, and fp32 is taken"
OF: dict[str, Any] = {"model": "bert-base-uncased", "device": "h100"}


def _says(**requested: Any) -> bool:
    return any(line.startswith(SAID) for line in silicast.infer(**{**OF, **requested}).warnings)


def test_an_engine_that_may_load_32_bits_as_16_is_said_to_keep_them() -> None:
    assert _says()
    result = silicast.infer(**OF)
    (line,) = (each for each in result.warnings if each.startswith(SAID))
    assert "--dtype fp16" in line
    assert silicast.infer(**OF, dtype="fp16").total_ms < result.total_ms


@pytest.mark.parametrize(
    "asked", [{"dtype": "fp32"}, {"dtype": "fp16"}, {"engine": "torch-eager"}, {"model": "gpt2"}]
)
def test_what_is_stated_or_not_so_is_not_remarked(asked: dict[str, Any]) -> None:
    assert not _says(**asked)
