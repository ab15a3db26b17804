"""What this installation is: a hash of its code and of the numbers that it ships."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import silicast
from silicast.core.hashing import files_hash


def package_hash() -> str:
    """Of every file of the package and of the user's catalog, sixteen hex digits."""
    return _package(os.environ.get("SILICAST_CATALOG"))


@cache
def _package(own_catalog: str | None) -> str:
    folders = [Path(silicast.__file__).parent, *([Path(own_catalog)] if own_catalog else [])]
    return files_hash(file for folder in folders for file in _files(folder))


def _files(folder: Path) -> Iterable[Path]:
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )
