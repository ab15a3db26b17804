"""Where a configuration of a model of several parts describes its language model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from silicast.formats.fields import Fields

LANGUAGE_PARTS = (
    "text_config",
    "llm_config",
    "language_config",
    "language_model_config",
    "thinker_config",
    "lm_config",
    "text_model_config",
    "llm_backbone_config",
    "vlm_config",
)
"""Fields that hold the configuration of the language model."""
ENCODERS = ("vision_config", "audio_config", "vision_tower_config", "vit_config", "visual")
"""Fields that hold the configuration of an encoder of images or sound."""
_SIZES = (
    ("vocab_size",),
    ("hidden_size", "n_embd", "d_model", "dim"),
    ("num_hidden_layers", "num_layers", "n_layer", "n_layers"),
)
"""What a language model states, by one of its names."""
_MOST_LEVELS = 4


def language_part(data: dict[str, Any]) -> dict[str, Any]:
    """The fields of the language model, and beside them those of the whole that it does not state.

    A part may itself be of several parts: ``thinker_config.text_config``.

    Raises:
        SilicastError: a part is no table; names the field.

    >>> language_part({"model_type": "vl", "llm_config": {"hidden_size": 64}, "dtype": "bf16"})
    {'model_type': 'vl', 'dtype': 'bf16', 'hidden_size': 64}
    """
    fields, level = data, 0
    while (name := part_name(fields)) and level < _MOST_LEVELS:
        inner = Fields(fields).table(name).values
        outer = {key: value for key, value in fields.items() if key != name}
        null = {key: None for key, value in inner.items() if value is None and key not in outer}
        values = {key: value for key, value in inner.items() if value is not None}
        fields, level = {**outer, **null, **values}, level + 1
    return fields


def part_name(data: Mapping[str, Any]) -> str:
    """The field that holds the language model; "" = the configuration itself is its.

    Where none has a usual name, and the configuration itself describes no language model, it is the
    one table that does, or that holds the one that does.

    >>> sizes = {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100}
    >>> part_name({"llama_cfg": sizes, "eyes": {"hidden_size": 32}})
    'llama_cfg'
    >>> part_name({"model": {"language_config": sizes}})
    'model'
    """
    return _part_name(data, _MOST_LEVELS)


def _part_name(data: Mapping[str, Any], levels: int) -> str:
    named = next((name for name in LANGUAGE_PARTS if data.get(name) not in (None, {})), "")
    if named or _describes(data):
        return named
    if not levels:
        return ""
    tables_in = {name: part for name, part in data.items() if isinstance(part, dict)}
    parts = [name for name, part in tables_in.items() if _describes(part)]
    parts = parts or [name for name, part in tables_in.items() if _part_name(part, levels - 1)]
    return parts[0] if len(parts) == 1 and isinstance(parts[0], str) else ""


def _describes(table: Mapping[str, Any]) -> bool:
    """Whether a table states the sizes of a language model."""
    return all(any(table.get(name) for name in names) for names in _SIZES)


def language_model(data: Mapping[str, Any]) -> dict[str, Any]:
    """The innermost table that describes the language model alone; ``{}`` where there is none."""
    *_, innermost = tables(data)
    return {} if innermost is data else dict(innermost)


def tables(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A configuration, the table in it that holds the language model, the one in that, and so on.

    >>> [len(table) for table in tables({"thinker_config": {"text_config": {"heads": 8, "kv": 2}}})]
    [1, 1, 2]
    """
    levels = [data]
    while len(levels) <= _MOST_LEVELS:
        inner = levels[-1].get(part_name(levels[-1]))
        if not isinstance(inner, dict):
            break
        levels.append(inner)
    return levels
