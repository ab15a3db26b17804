"""Writing files so that nothing half-written is ever left behind."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from silicast.core.errors import SilicastError


def write_atomically(path: Path, content: bytes) -> None:
    """Writes ``content`` to a temporary file beside ``path``, then renames it.

    Raises:
        SilicastError: the folder does not exist or cannot be written; nothing stays behind.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    except OSError as error:
        raise SilicastError(
            f"cannot write: {error.strerror}",
            kind="io",
            file=str(path),
            hint="choose another folder",
        ) from None
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise SilicastError(f"cannot write: {error.strerror}", kind="io", file=str(path)) from None
