"""Launch files that tests write and read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from silicast.formats.server_launches import is_server_launch
from silicast.scenario.reading.launched import launched_servers


def read(
    folder: Path, text: str, name: str = "launch.sh", **more: Any
) -> tuple[dict[str, Any], list[str]]:
    """The scenario of a launch file with this text, and remarks.

    Args:
        more: arguments of :func:`launched_servers`.
    """
    path = folder / name
    path.write_text(text)
    assert is_server_launch(path)
    return launched_servers(path, **more)
