"""Configurations that are not fully understood: answered, said and widened; refused on request."""

import json
from pathlib import Path
from typing import Any

import pytest

from silicast.app.api import predict
from silicast.app.predict import print_reply
from silicast.composition.errors.uncertainty import structure_factor
from silicast.core.errors import SilicastError
from silicast.scenario.run import reply_to

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "num_attention_heads": 32,
    "num_hidden_layers": 16, "num_key_value_heads": 8, "intermediate_size": 8192,
    "vocab_size": 128256, "max_position_embeddings": 131072,
}  # fmt: skip
FANCY = {**CONFIG, "architectures": ["FancyForCausalLM"], "gadgets": 3}
CASE = {
    "task": "inference",
    "device": "h100",
    "workload": {"batch": 4, "input_len": 512, "output_len": 8},
}


def test_an_unknown_architecture_is_answered_with_wider_intervals() -> None:
    known, fancy = (predict({**CASE, "model": config}) for config in (CONFIG, FANCY))
    assert (known.domain, fancy.domain) == ("in", "out")
    for name in ("prefill_ms", "decode_step_ms", "total_ms"):
        one, other = known.metrics[name], fancy.metrics[name]
        assert one.estimate == other.estimate
        assert other.p95 / other.p05 > 1.4 * one.p95 / one.p05
    one, other = known.metrics["memory_gb"], fancy.metrics["memory_gb"]
    assert one.estimate == other.estimate
    assert other.p95 / one.p95 == pytest.approx(structure_factor())
    assert one.p05 / other.p05 == pytest.approx(structure_factor())
    assert any(f"a factor of {structure_factor():.2f}" in warning for warning in fancy.warnings)
    assert not any("widened for it" in warning for warning in known.warnings)
    assert any("FancyForCausalLM" in warning for warning in fancy.warnings)
    assert any("gadgets" in warning for warning in fancy.warnings)
    assert not any("not every kernel was measured" in warning for warning in fancy.warnings)
    assert not any("understood" in warning for warning in known.warnings)


def test_an_unread_field_of_a_known_architecture_is_only_said() -> None:
    result = predict({**CASE, "model": {**CONFIG, "gadgets": 3}})
    assert result.domain == "in"
    assert any("gadgets" in warning for warning in result.warnings)


def test_strict_refuses_what_was_assumed(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**CONFIG, "num_key_value_heads": 7}))
    reply = reply_to({**CASE, "model": str(path)})
    plain = {name: getattr(reply, name) for name in ("ok", "domain", "warnings", "why")}
    with pytest.raises(SilicastError) as caught:
        print_reply(plain, lambda _: "", json=False, strict=True)
    assert "7 key-value heads do not divide 32 heads" in caught.value.message
    assert caught.value.field == "model"


def test_strict_names_the_architecture_that_is_not_known() -> None:
    reply = reply_to({**CASE, "model": FANCY})
    plain = {name: getattr(reply, name) for name in ("ok", "domain", "warnings", "why")}
    with pytest.raises(SilicastError) as caught:
        print_reply(plain, lambda _: "", json=False, strict=True)
    assert caught.value.field == "model.architectures"


def test_a_configuration_without_an_architecture_is_read_as_the_nearest() -> None:
    nameless = {**{k: v for k, v in CONFIG.items() if k != "architectures"}, "rms_norm_eps": 1e-5}
    known, result = (predict({**CASE, "model": config}) for config in (CONFIG, nameless))
    assert result.domain == "out"
    assert result.metrics["total_ms"].estimate == known.metrics["total_ms"].estimate
    assert any("no architecture is named" in warning for warning in result.warnings)


def test_what_an_empty_model_lacks_is_named() -> None:
    with pytest.raises(SilicastError) as caught:
        predict({**CASE, "model": {}})
    assert caught.value.field == "model.layers"
    assert "hidden" in caught.value.message
    assert "architectures" in caught.value.hint
