"""Mappings of designs that are searched while something is answered, and how not to search them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, final

MANY = 10
"""Searches for one answer from which on it is worth it to store mappings."""


@final
class MappingSearches:
    """Counts the mapping searches since it was made."""

    def __init__(self) -> None:
        self._before = _in_all()
        self._noted = 0

    def note(self, _what: object) -> None:
        """One more, which is remembered nowhere else."""
        self._noted += 1

    def count(self) -> int:
        """Number of mapping searches so far."""
        return _in_all() - self._before + self._noted

    def advice(self, device: object, model: object) -> str:
        """The command that stores them for a model; "" where there were few, or for want of names.

        >>> MappingSearches().advice("eyeriss", "Llama-3.1-8B")
        ''
        """
        if self.count() < MANY or not (isinstance(device, str) and isinstance(model, str)):
            return ""
        output = f"{Path(device).stem}-{Path(model).name}.toml"
        return (
            f"{self.count()} mappings of {device} were searched; stored ones make such answers "
            f"quick:\n  silicast design compile {device} --model {model} -o {output}"
        )


def _in_all() -> int:
    """By this process; what maps is not imported for it."""
    stored: Any = sys.modules.get("silicast.accelerator.mapper.stored")
    searches = getattr(stored, "searches", None)  # none while another thread imports it
    return 0 if searches is None else int(searches())
