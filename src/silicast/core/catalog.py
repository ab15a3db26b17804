"""Where the data files are: the package's catalog and folders that the user names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

CATALOG = Path(__file__).resolve().parent.parent / "catalog"


def catalog_files(kind: str, suffix: str) -> Iterator[Path]:
    """All files of one kind, sorted; a user's own folder (``SILICAST_CATALOG``) comes last.

    Args:
        kind: sub-folder ("devices", "models", "engines", "hosts", "physics").
        suffix: file ending, with its dot.
    """
    yield from sorted((CATALOG / kind).glob(f"*{suffix}"))
    yield from own_files(kind, suffix)


def own_files(kind: str, suffix: str) -> Iterator[Path]:
    """Those of them that stand in the user's own folder."""
    user_folder = os.environ.get("SILICAST_CATALOG")
    if user_folder and (folder := Path(user_folder) / kind).is_dir():
        yield from sorted(folder.glob(f"*{suffix}"))


def catalog_hash(*kinds: str) -> str:
    """Hash of every shipped file of some kinds, but for tensors: their cards state theirs."""
    from silicast.core.hashing import content_hash, files_hash

    return content_hash(
        [
            [f"{kind}/{path.name}", files_hash([path])]
            for kind in kinds
            for path in sorted((CATALOG / kind).glob("*"))
            if path.suffix != ".safetensors"
        ]
    )
