"""Devices that names of other tools' systems stand for."""

from __future__ import annotations

import re

from silicast.core.errors import SilicastError
from silicast.formats.training_configs.reader import Tree
from silicast.hardware.catalog import find_device

_BREAK = re.compile(r"[\s_\-]+")


def device_named(name: str, scenario: Tree) -> list[str]:
    """Sets the device that a system's name begins with, if there is one; remarks either way.

    >>> made = {}
    >>> device_named("a100_80g_8x", made), made
    (["device: A100-SXM-80GB, by the system's name 'a100_80g_8x'"], {'device': 'A100-SXM-80GB'})
    """
    words = [word for word in _BREAK.split(name[:100]) if word]
    for count in range(len(words), 0, -1):
        try:
            device = find_device(" ".join(words[:count])).name
        except SilicastError:
            continue
        scenario["device"] = device
        return [f"device: {device}, by the system's name {name[:100]!r}"]
    return [f"device: {name[:100]!r} is no device of the catalog"]
