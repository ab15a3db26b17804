"""Fields of the configurations that diffusers and transformers write for a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from silicast.core.errors import SilicastError

MOST = 1 << 20


def class_in(config: Mapping[str, Any]) -> str:
    """The network's class; "" = none is stated.

    >>> class_in({"architectures": ["WhisperModel"]}), class_in({"_class_name": "X"}), class_in({})
    ('WhisperModel', 'X', '')
    """
    stated = config.get("architectures") or [config.get("_class_name", "")]
    return str(stated[0]) if isinstance(stated, list) and stated else ""


def size_in(config: Mapping[str, Any], name: str, usual: int, field: str) -> int:
    """A size of the network; what it is usually where it is left out.

    Args:
        field: of the configuration, for errors.

    Raises:
        SilicastError: no whole number from 1 to 2^20.

    >>> size_in({"num_layers": 30}, "num_layers", 40, "model")
    30
    """
    value = config.get(name, usual)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= MOST:
        raise SilicastError(
            f"expected a whole number from 1 to {MOST}, found {value!r:.40}",
            field=f"{field}.{name}",
        )
    return value
