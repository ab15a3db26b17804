"""Targets of files to deploy, as commands name them."""

from __future__ import annotations


def targets_of(text: str | None) -> list[str]:
    """Targets with commas between them; None = those that need no further system.

    Raises:
        SilicastError: one is unknown.
    """
    from silicast.report.deploy.target import find_target

    names = ["shell"] if text is None else [name.strip() for name in text.split(",")]
    for name in names:
        find_target(name)
    return names
