"""Files of the page."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent


def asset(name: str) -> bytes:
    """One of them, by its name in this folder."""
    return FOLDER.joinpath(name).read_bytes()
