"""What a result was computed from: observed while its suite runs, compared ever after.

A run in a process of its own notes every measured table and every file of numbers that it opened,
and every module of this repository that it imported. The committed summary holds hashes of them,
one for each folder and package, so that it can be told which suites a change can move. A hash is
only ever written by the run that made the figures beside it.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import final

from lab.reads import numbers_hash, table_hash
from lab.source_code import modules_hash
from silicast.core.catalog import CATALOG
from silicast.core.decode import Strict
from silicast.core.hashing import content_hash

HELD_OUT = Path(__file__).parent
ARTEFACTS = ("physics", "learned", "tuning", "held_out")
"""Folders of numbers that were fitted; the others hold facts."""

PACKAGES = ("silicast", "lab")
_NUMBERS = {"catalog": CATALOG, "scorecard": HELD_OUT}
_SUFFIXES = (".json", ".toml")
HASH_DIGITS = 10
"""Hex digits of a hash that a summary states: enough to notice a change."""

Groups = dict[str, tuple[str, str]]
"""Folder or package -> hash, and the names in it as :func:`packed` writes them."""


@final
class Inputs(Strict, frozen=True):
    """Hashes of all that a run read.

    Attributes:
        tables: measured table -> its hash.
        numbers: files of the catalog and constants that leave something out, by folder.
        code: modules, by package.
    """

    tables: dict[str, str]
    numbers: Groups
    code: Groups


def observed(files: Iterable[str], modules: Iterable[str], data: Path) -> Inputs:
    """Hashes of the files and modules that a run read, as they are now."""
    opened = [Path(name).resolve() for name in files]
    tables = sorted(
        {
            p.relative_to(data.resolve()).as_posix()
            for p in opened
            if p.is_relative_to(data.resolve())
        }
    )
    numbers = defaultdict[str, set[str]](set)
    for path in opened:
        if (position := _position(path)) is not None:
            folder, name = position
            numbers[folder].add(name)
    code = defaultdict[str, set[str]](set)
    for module in modules:
        if module.partition(".")[0] in PACKAGES:
            package = ".".join(module.split(".")[:2])
            code[package].add(module.removeprefix(package).removeprefix(".") or "__init__")
    return Inputs(
        tables={name: table_hash(data / name)[:HASH_DIGITS] for name in tables},
        numbers={folder: _of_numbers(folder, numbers[folder]) for folder in sorted(numbers)},
        code={package: _of_code(package, code[package]) for package in sorted(code)},
    )


def changes(inputs: Inputs, data: Path | None) -> Iterator[str]:
    """What is no longer as a run read it: tables, folders of numbers, packages of code.

    Args:
        data: the folder of measured tables; None = not there, tables are not compared.
    """
    if data is not None:
        yield from (
            name
            for name, value in inputs.tables.items()
            if table_hash(data / name)[:HASH_DIGITS] != value
        )
    yield from changed_numbers(inputs)
    for package, (value, names) in inputs.code.items():
        if _of_code(package, unpacked(names))[0] != value:
            yield f"code of {package}"


def changed_numbers(inputs: Inputs, folders: Iterable[str] = ()) -> list[str]:
    """Folders of numbers that are no longer as a run read them.

    Args:
        folders: last parts of those to compare; all if left out.
    """
    wanted = tuple(folders)
    return [
        folder
        for folder, (value, names) in inputs.numbers.items()
        if not wanted or folder.rpartition("/")[2].startswith(wanted)
        if _of_numbers(folder, unpacked(names))[0] != value
    ]


def packed(names: Iterable[str]) -> str:
    """Names as a shell would expand them: what several start with is written once, up to a dot,
    hyphen or underscore.

    >>> packed(["op", "results", "rows.wide", "rows.narrow_few", "rows.narrow"])
    'op results rows.{narrow,narrow_few,wide}'
    """
    return " ".join(_shared([re.findall(r"[^._-]+[._-]?|[._-]", name) for name in sorted(names)]))


def _shared(names: Iterable[list[str]]) -> Iterator[str]:
    """Names, given in pieces, each start once."""
    for start, same in itertools.groupby(names, lambda pieces: pieces[:1]):
        rest = [pieces[1:] for pieces in same]
        if len(rest) == 1:
            yield "".join((*start, *rest[0]))
            continue
        ends = list(_shared(rest))
        yield "".join(start) + (f"{{{','.join(ends)}}}" if len(ends) > 1 else ends[0])


def unpacked(text: str, between: str = " ") -> list[str]:
    """The names that :func:`packed` wrote; plain ones as they are.

    >>> unpacked("op rows.{narrow,wide{,_few}}")
    ['op', 'rows.narrow', 'rows.wide', 'rows.wide_few']
    """
    names, depth, word = list[str](), 0, ""
    for character in text + between:
        if character == between and depth == 0:
            start, braces, ends = word.partition("{")
            names += [start + end for end in unpacked(ends[:-1], ",")] if braces else [word]
            word = ""
            continue
        depth += {"{": 1, "}": -1}.get(character, 0)
        word += character
    return names


def _position(path: Path) -> tuple[str, str] | None:
    """Folder and name of a file of numbers; None for any other file."""
    for root, folder in _NUMBERS.items():
        if path.is_relative_to(folder) and path.suffix in _SUFFIXES:
            inner = path.relative_to(folder)
            if inner.parts[0] != "suites" and inner.name != "costs.json":
                return f"{root}/{inner.parent.as_posix()}".removesuffix("/."), inner.name
    return None


def _of_numbers(folder: str, names: Iterable[str]) -> tuple[str, str]:
    root, _, inner = folder.partition("/")
    ordered = sorted(names)
    hashes = [_numbers_hash(_NUMBERS[root] / inner / name) for name in ordered]
    return content_hash(hashes)[:HASH_DIGITS], packed(ordered)


@cache
def _numbers_hash(path: Path) -> str:
    return numbers_hash(path) if path.is_file() else ""


def _of_code(package: str, names: Iterable[str]) -> tuple[str, str]:
    ordered = sorted(names)
    return _modules_hash(package, tuple(ordered))[:HASH_DIGITS], packed(ordered)


@cache
def _modules_hash(package: str, names: tuple[str, ...]) -> str:
    return modules_hash(package if name == "__init__" else f"{package}.{name}" for name in names)
