"""Files of one run, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final


@final
@dataclass(frozen=True)
class LaunchFile:
    """Files of one run, and what they mean: dotted fields of the scenario."""

    files: dict[str, str]
    means: dict[str, Any]
    devices: int = 0
    run: str = ""
    variables: dict[str, str] = field(default_factory=dict)
