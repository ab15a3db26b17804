"""What reading a launch needs of the model that it names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class ModelFacts:
    """A model that is known by its name.

    Attributes:
        has_experts: ranks may share them; drafts: it has layers that draft tokens (MTP).
    """

    has_experts: bool
    drafts: bool


ModelLookup = Callable[[str], "ModelFacts | None"]
"""Name of a model -> what is known of it; None = nothing."""
