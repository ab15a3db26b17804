"""Constants and rankers of configurations as if a device, or some layers, had not been swept.

``held_out_tuning/tile_times.json`` holds constants without each device, ``<name>.json`` and its
tensors a ranker without a device or a group of layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from silicast.core.files import write_atomically
from silicast.learning.configuration_ranking import Ranker, read_ranker

FOLDER = Path(__file__).parent / "held_out_tuning"
CONSTANTS = FOLDER / "tile_times.json"


def constants_without(device: str) -> Mapping[str, float]:
    """Constants that were fitted without a device's rows."""
    constants: Mapping[str, float] = _read()[device]
    return constants


@cache
def ranker(name: str) -> Ranker:
    """A ranker without a device, or without a group of layers ("layers-0", ...)."""
    return read_ranker(FOLDER / f"{name}.json")


def write_constants(device: str, constants: Mapping[str, float]) -> None:
    """Puts constants without a device into the file."""
    table = _read() if CONSTANTS.is_file() else {}
    table[device] = dict(constants)
    text = msgspec.json.format(msgspec.json.encode(dict(sorted(table.items()))), indent=1)
    write_atomically(CONSTANTS, text + b"\n")


def _read() -> dict[str, dict[str, float]]:
    return msgspec.json.decode(CONSTANTS.read_bytes(), type=dict[str, dict[str, float]])
