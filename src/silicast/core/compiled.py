"""Catalog folders whose TOML files are compiled into one JSON file, which is read much faster.

``python -m silicast.core.compiled`` writes ``compiled.json`` of each folder anew; a test says when
that is due. Files in the user's own folder (``SILICAST_CATALOG``) are read as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, final

import msgspec

from silicast.core.catalog import CATALOG, own_files
from silicast.core.decode import decode, decode_json, read_toml
from silicast.core.errors import SilicastError

PAGES = {
    "engines": "docs/how-to/add-an-engine.md",
    "libraries": "docs/reference/libraries.md",
    "clusters": "docs/reference/devices.md",
    "devices": "docs/reference/devices.md",
    "hosts": "docs/reference/devices.md",
    "tuning": "docs/explanation/gemm.md",
}
"""Folder -> the page that describes its files."""
FOLDERS = tuple(PAGES)
BY_FILE = frozenset({"clusters", "devices", "hosts", "tuning"})
"""Folders whose files are called as they are stored. A user's own file there stands beside the
package's.
"""
INDEX = "compiled.json"

T = TypeVar("T")


@final
class CompiledFile(msgspec.Struct, frozen=True):
    """One file of a folder.

    Attributes:
        file: path of a user's own file; "" = a file of the package.
        content: of the file, as JSON.
    """

    content: msgspec.Raw
    file: str = ""


class FileNames(msgspec.Struct, frozen=True):
    """The part of a file that finding it needs."""

    name: str
    aliases: list[str] = []


@cache
def shipped(folder: str) -> Mapping[str, msgspec.Raw]:
    """Name -> content as JSON, for every file of the package in a folder."""
    content = (CATALOG / folder / INDEX).read_bytes()
    return msgspec.json.decode(content, type=dict[str, msgspec.Raw])


@cache
def entries(folder: str) -> Mapping[str, CompiledFile]:
    """Name -> file, for every file of a folder; a user's own file takes the place of the package's
    that has its name.

    Raises:
        SilicastError: a user's own file cannot be read or has no name; names the file.
    """
    entries = {name: CompiledFile(content) for name, content in shipped(folder).items()}
    for path in own_files(folder, ".toml"):
        table = read_toml(path)
        name = str(path) if folder in BY_FILE else _name_in(table, path, folder)
        entries[name] = CompiledFile(msgspec.Raw(msgspec.json.encode(table)), str(path))
    return entries


def _name_in(table: Mapping[str, Any], path: Path, folder: str) -> str:
    return decode(table, FileNames, file=str(path), page=PAGES[folder]).name


def names_of(folder: str) -> dict[str, tuple[str, list[str]]]:
    """Name -> (name, aliases), as :class:`~silicast.core.naming.NameIndex` takes them."""
    files = (
        msgspec.json.decode(entry.content, type=FileNames) for entry in entries(folder).values()
    )
    return {file.name: (file.name, file.aliases) for file in files}


def content_of(folder: str, name: str, kind: type[T]) -> T:
    """The file called ``name`` as a ``kind``.

    Raises:
        SilicastError: a user's own file is no ``kind``; names file and field.
    """
    entry = entries(folder)[name]
    return decode_json(entry.content, kind, file=entry.file or name, page=PAGES[folder])


def compiled(folder: str) -> bytes:
    """What the index of a folder must be: one line a file.

    Raises:
        SilicastError: two files have one name.
    """
    lines: dict[str, bytes] = {}
    for path in sorted((CATALOG / folder).glob("*.toml")):
        table = read_toml(path)
        name = path.stem if folder in BY_FILE else _name_in(table, path, folder)
        if name in lines:
            raise SilicastError(f"two files for {name}", field="name", file=str(path))
        lines[name] = msgspec.json.encode(name) + b": " + msgspec.json.encode(table)
    return b"{\n" + b",\n".join(lines.values()) + b"\n}\n"


if __name__ == "__main__":
    from silicast.core.files import write_atomically

    for each in FOLDERS:
        write_atomically(CATALOG / each / INDEX, compiled(each))
