"""Entries of the files of tuned configurations that vLLM and SGLang ship, as rows with answers.

One file in five, by the hash of its name, is never fitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple, final
from zlib import crc32

from lab.scorecard.tables import csv_records
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.tuning.files import device_of_driver
from silicast.tuning.tuner_choice import Tuning

EXPERTS = "kernels/fused_moe_tuned_configs.csv.gz"
PRODUCTS = "kernels/blockscaled_gemm_tuned_configs.csv.gz"
TABLES: Mapping[str, str] = {"moe": EXPERTS, "gemm": PRODUCTS}
COLUMNS = {"m": "BLOCK_SIZE_M", "n": "BLOCK_SIZE_N", "k": "BLOCK_SIZE_K"}
SECOND = "_down"
"""Ends a file's name, and with it one of its marks, where it is of the second product alone."""
BESIDE_SCALES: Mapping[str, Mapping[bool, str]] = {
    "fp8": {True: "fp8_block", False: "fp8"},
    "float8": {True: "fp8_block", False: "fp8"},
    "int8_w8a16": {True: "int8_wo", False: "int8_wo"},
    "int8_w8a8": {True: "int8", False: "int8"},
    "int4_w4a16": {True: "int4_wo", False: "int4_wo"},
}
"""How formats of the tables begin -> recipe, with scaled blocks and without; others are bf16."""


@final
class FileEntry(NamedTuple):
    """One entry of a file.

    Attributes:
        file: its name; engine: that ships it.
        device: a name of the catalog; dtype: a recipe.
        tuned: what for; tile: rows, columns and depth that were chosen.
        unseen: never fitted.
    """

    file: str
    engine: str
    device: str
    dtype: str
    tuned: Tuning
    tile: tuple[int, int, int]
    unseen: bool

    @property
    def hardware(self) -> Device:
        """The device of the catalog."""
        return find_device(self.device)


def file_entries(data: Path, kind: str) -> list[FileEntry]:
    """Entries for NVIDIA devices.

    Args:
        kind: "moe" or "gemm".
    """
    return list(_entries(data / TABLES[kind], kind))


def _entries(path: Path, kind: str) -> Iterator[FileEntry]:
    for row in csv_records(path):
        if not row["BLOCK_SIZE_M"] or not row["device"].startswith("NVIDIA"):
            continue
        device = _device(row["device"].removesuffix(SECOND))
        if not device:
            continue
        yield FileEntry(
            row["file"],
            row["source"].partition("-")[0],
            device,
            recipe_of(row),
            _tuning(row, kind),
            _tile(row),
            crc32(row["file"].encode()) % 5 == 0,
        )


def _tile(row: Mapping[str, str]) -> tuple[int, int, int]:
    rows, columns, depth = (int(float(row[column])) for column in COLUMNS.values())
    return rows, columns, depth


def _tuning(row: Mapping[str, str], kind: str) -> Tuning:
    if kind == "gemm":
        return Tuning(
            kind,
            int(row["M"]),
            1,
            int(row["N"]),
            int(row["K"]),
            per_channel="channelwise" in row["dtype"],
        )
    return Tuning(
        kind,
        int(row["M_tokens"]),
        int(float(row["E"])),
        int(float(row["N"])),
        0,
        row["triton"],
        row["file_flags"] == "per_channel",
        f"{SECOND}.json" in row["file"],
    )


def recipe_of(row: Mapping[str, str]) -> str:
    """The recipe of an entry.

    >>> recipe_of({"dtype": "fp8_w8a8", "block_shape": "[128, 128]"})
    'fp8_block'
    """
    for head, named in BESIDE_SCALES.items():
        if row["dtype"].startswith(head):
            return named[bool(row["block_shape"])]
    return "bf16"


@cache
def _device(driver: str) -> str:
    """The catalog's name of a device, "" where the catalog has none."""
    device = device_of_driver(driver)
    return "" if device is None else device.name
