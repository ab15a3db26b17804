"""Files of tuned configurations as engines read them: ``catalog/tuning/files.toml`` says how.

>>> names = [file_layout(engine).moe_name(Tuned(8, 768), "GPU", "bf16") for engine in engines()]
>>> sorted(set(names))
['E=8,N=768,device_name=GPU.json']
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, final

import msgspec

from silicast.core.catalog import CATALOG
from silicast.core.decode import Strict, decode_json, read_toml
from silicast.core.dtypes import recipe_for
from silicast.core.errors import SilicastError, unknown_name, unsupported
from silicast.core.files import read_bounded
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.configuration import Configuration, read_configuration
from silicast.learning.configuration_ranking import shipped_ranker
from silicast.workload.graphs.op import Op

FILE = CATALOG / "tuning" / "files.toml"
MOST_BYTES = 1 << 24
Entries = Mapping[int, Configuration]
"""Tokens -> configuration."""


class Tuned(NamedTuple):
    """What a file is about: experts of a rank and the width of one's gate; or, of a plain product,
    rows and depth of its weights.
    """

    first: int
    second: int


@final
class FileLayout(Strict, frozen=True):
    """How one engine's files are called and what they hold; see the catalog's file."""

    moe: str
    gemm: str
    block: str
    compiler: str
    states_compiler: bool
    folder: str
    environment: str
    source: str
    tags: dict[str, str]

    def moe_name(self, about: Tuned, device: str, recipe: str) -> str:
        """The name of a file of fused experts.

        Raises:
            SilicastError: the engine has no such files for the format.
        """
        named = {"experts": about.first, "width": about.second}
        return self.moe.format(**named, device=device, **self._marks(recipe))

    def gemm_name(self, about: Tuned, device: str, recipe: str) -> str:
        named = {"rows": about.first, "depth": about.second}
        return self.gemm.format(**named, device=device, **self._marks(recipe))

    def _marks(self, recipe: str) -> dict[str, str]:
        if recipe not in self.tags:
            raise unsupported(
                f"has no files of tuned configurations for {recipe}",
                "dtype",
                f"it has them for {', '.join(self.tags)}",
            )
        tensor_format = recipe_for(recipe)
        square = tensor_format.scale_rows > 1
        block = (
            self.block.format(tensor_format.scale_rows, tensor_format.scale_group) if square else ""
        )
        return {"tag": self.tags[recipe], "block": block}

    @property
    def stated_compiler(self) -> str:
        """The version that a folder is for; "" where folders do not tell versions apart."""
        return self.compiler if "{compiler}" in self.folder else ""

    def place(self, compiler: str = "") -> str:
        """The folder of the files under the one that the engine is told of."""
        return self.folder.format(compiler=(compiler or self.compiler).replace(".", "_"))


@final
class _Catalog(Strict, frozen=True):
    compiler_key: str
    engine: dict[str, FileLayout]
    values: dict[str, str]
    tokens: dict[str, list[int]]
    devices: dict[str, str]


@cache
def _catalog() -> _Catalog:
    return msgspec.convert(read_toml(FILE), _Catalog)


def usual_tokens() -> tuple[int, ...]:
    """Numbers of tokens that tuners write entries for."""
    return tuple(_catalog().tokens["usual"])


def engines() -> tuple[str, ...]:
    """Engines whose files are known."""
    return tuple(_catalog().engine)


def file_layout(engine: str) -> FileLayout:
    """The layout of an engine's files.

    Raises:
        SilicastError: an engine that reads none.
    """
    file_layout = _catalog().engine.get(engine.strip().casefold())
    if file_layout is None:
        names = ", ".join(_catalog().engine)
        raise unknown_name(
            f"no files of tuned configurations are known of {engine!r}", "engine", f"one of {names}"
        )
    return file_layout


def driver_name(device: Device) -> str:
    """What the driver calls a device, with underscores for spaces.

    >>> from silicast.hardware.catalog import find_device
    >>> driver_name(find_device("h100"))
    'NVIDIA_H100_80GB_HBM3'
    """
    result = _catalog().devices.get(device.name)
    return result or f"{device.vendor}_{device.name}".replace(" ", "_")


def device_of_driver(name: str) -> Device | None:
    """The device that a driver calls so; None where the catalog has none.

    >>> device_of_driver("NVIDIA_H100_80GB_HBM3").name
    'H100-SXM-80GB'
    """
    for ours, theirs in _catalog().devices.items():
        if theirs == name:
            return find_device(ours)
    try:
        return find_device(name.partition("_")[2].replace("_", " "))
    except SilicastError:
        return None


def encoded(entries: Entries, layout: FileLayout, compiler: str = "") -> bytes:
    """The content of a file."""
    names = _catalog().values
    table: dict[str, Any] = {}
    if layout.states_compiler:
        table[_catalog().compiler_key] = compiler or layout.compiler
    for tokens, configuration in sorted(entries.items()):
        values = {names[name]: value for name, value in configuration.values if name in names}
        if values.get(names["split_k"]) == 1:
            del values[names["split_k"]]
        table[str(tokens)] = values
    return msgspec.json.format(msgspec.json.encode(table), indent=4) + b"\n"


def read_tuned_file(path: Path) -> Entries:
    """The entries of a file.

    Raises:
        SilicastError: it cannot be read or is in another format; names file, entry and value.
    """
    content = read_bounded(path, MOST_BYTES, "a file of tuned kernels")
    page = "docs/how-to/tune-a-kernel.md"
    table = decode_json(content, dict[str, Any], file=str(path), page=page)
    entries = {}
    for key, values in table.items():
        if key in (_catalog().compiler_key,):
            continue
        if not key.isdigit() or int(key) < 1:
            raise SilicastError(
                f"expected numbers of tokens as keys, found {key[:40]!r}",
                file=str(path),
                hint="another version of the engine may have written it; known: " + _versions(),
            )
        entries[int(key)] = _entry(values, path, key)
    if not entries:
        raise SilicastError("holds no entries", file=str(path))
    return dict(sorted(entries.items()))


def _versions() -> str:
    return "; ".join(layout.source.partition(":")[0] for layout in _catalog().engine.values())


def _entry(values: object, path: Path, key: str) -> Configuration:
    if not isinstance(values, dict):
        raise SilicastError("expected an object of values", file=str(path), field=key)
    names = {theirs: ours for ours, theirs in _catalog().values.items()}
    table = {names[name]: value for name, value in values.items() if name in names}
    missing = [
        theirs
        for ours, theirs in _catalog().values.items()
        if ours.startswith("tile") and ours not in table
    ]
    if missing:
        raise SilicastError(
            f"has no {', '.join(missing)}",
            file=str(path),
            field=key,
            hint="another version of the engine may have written it; known: " + _versions(),
        )
    try:
        return read_configuration(table, key)
    except SilicastError as error:
        ours = error.field.rpartition(".")[2]
        theirs = _catalog().values.get(ours, ours)
        raise error.located(f"{key}.{theirs}", str(path)) from None


def nearest_entry(entries: Entries, tokens: int) -> Configuration:
    """What an engine runs with so many tokens: the entry of the nearest number, as both engines
    take it.

    >>> one = read_configuration({"tile_m": 16, "tile_n": 64, "tile_k": 64})
    >>> nearest_entry({1: one}, 99) == one
    True
    """
    return entries[min(entries, key=lambda stored_tokens: abs(stored_tokens - tokens))]


SWEPT_FORMATS = ("bf16", "fp16")


def is_swept(op: Op, device: Device) -> bool:
    """Whether such kernels were swept on the device: fused experts in 16 bits."""
    formats = op.family == "moe" and op.variant.dtype in SWEPT_FORMATS
    return formats and device.name in shipped_ranker().card.devices
