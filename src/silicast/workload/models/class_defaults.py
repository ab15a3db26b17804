"""Values that the class of an architecture gives to fields which a configuration leaves out.

``catalog/model_classes.json`` holds them by ``model_type``; ``lab/model_classes.py`` makes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from silicast.core.catalog import CATALOG

CLASSES = CATALOG / "model_classes.json"


def class_defaults(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Field -> value, for the configuration's ``model_type``; empty where it is not known."""
    return _classes().get(str(data.get("model_type")), {})


@cache
def _classes() -> dict[str, dict[str, bool | int | str]]:
    return msgspec.json.decode(CLASSES.read_bytes(), type=dict[str, dict[str, bool | int | str]])
