"""The host beside the devices, and the software stack on both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final


@final
@dataclass(frozen=True)
class Host:
    """A CPU that feeds devices.

    Attributes:
        cpu: catalog or free name.
        factor: single-thread speed against the reference host (the one on which engine constants
            were measured); host times are divided by it.
    """

    cpu: str = "reference"
    factor: float = 1.0


@final
@dataclass(frozen=True)
class Stack:
    """Driver, library and engine versions, as far as they are known."""

    versions: Mapping[str, str] = field(default_factory=dict)
