"""A Chakra trace in files: one a rank, ``prefix.<rank>.et``, and the groups of its collectives."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import msgspec

from silicast.core.errors import SilicastError, over_limit
from silicast.core.files import read_bounded, size_text, write_atomically
from silicast.core.plain_data import json_object
from silicast.formats.chakra.codec import WireError, decode_trace, encode_trace
from silicast.formats.chakra.schema import RankTrace

SUFFIX = ".et"
GROUPS = "comm_group.json"
"""What ASTRA-sim calls the file of the groups; another ``*comm_group*.json`` is read as well."""
MAX_BYTES = 64 << 20
"""Of a rank's file."""
MAX_TOTAL_BYTES = 512 << 20
_NAME = re.compile(r"(?P<prefix>.*)\.(?P<rank>\d{1,9})\.et", re.IGNORECASE)


@final
@dataclass(frozen=True)
class ChakraTrace:
    """What all ranks run.

    Attributes:
        ranks: by number, ascending.
        groups: ``pg_name`` of collectives -> the ranks that take part, in their order.
    """

    name: str
    ranks: Mapping[int, RankTrace]
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def is_chakra(path: Path) -> bool:
    """Whether a path names a trace: a file of a rank, a folder of them, or their prefix."""
    if path.suffix.casefold() == SUFFIX:
        return True
    if path.is_dir():
        return any(path.glob(f"*{SUFFIX}"))
    return bool(path.name) and path.parent.is_dir() and any(_of_prefix(path))


def read_chakra(path: Path) -> ChakraTrace:
    """The trace of all ranks.

    Args:
        path: a folder of ``prefix.<rank>.et``, ``folder/prefix``, or the file of one rank.

    Raises:
        SilicastError: none there, several traces in one folder, unreadable, or no such file; names
            the file and the message in it.
    """
    files = _files(path)
    total = 0
    ranks: dict[int, RankTrace] = {}
    trace_by_content: dict[bytes, RankTrace] = {}  # ranks of one group run the same
    for rank, file in sorted(files.items()):
        content = read_bounded(file, MAX_BYTES, "a trace of a rank", "record fewer steps")
        total += len(content)
        if total > MAX_TOTAL_BYTES:
            raise over_limit(
                f"with those before it is larger than {size_text(MAX_TOTAL_BYTES)}",
                file=str(file),
                hint="record fewer steps",
            )
        try:
            digest = hashlib.sha256(content).digest()
            if digest not in trace_by_content:
                trace_by_content[digest] = decode_trace(content)
            ranks[rank] = trace_by_content[digest]
        except WireError as error:
            raise SilicastError(
                f"no Chakra trace: {error}",
                file=str(file),
                hint="expected messages of et_def.proto, each behind its length; was it cut off?",
            ) from None
    first = next(iter(files.values()))
    name = _NAME.fullmatch(first.name)
    return ChakraTrace(name["prefix"] if name else first.stem, ranks, _groups(first.parent))


def write_chakra(trace: ChakraTrace, folder: Path) -> list[Path]:
    """Writes a file a rank, and the groups if there are any; returns what was written.

    Raises:
        SilicastError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SilicastError(
            f"cannot make the folder: {error.strerror}", kind="io", file=str(folder)
        ) from None
    paths = []
    encoded: dict[int, bytes] = {}
    for rank, item in trace.ranks.items():
        content = encoded.setdefault(id(item), b"") or encode_trace(item)
        encoded[id(item)] = content
        paths.append(folder / f"{trace.name}.{rank}{SUFFIX}")
        write_atomically(paths[-1], content)
    if trace.groups:
        paths.append(folder / GROUPS)
        groups = {name: list(ranks) for name, ranks in trace.groups.items()}
        write_atomically(paths[-1], msgspec.json.encode(groups) + b"\n")
    return paths


def _of_prefix(path: Path) -> list[Path]:
    start = f"{path.name}."
    near = (file for file in path.parent.iterdir() if file.name.startswith(start))
    return [file for file in near if (m := _NAME.fullmatch(file.name)) and m["prefix"] == path.name]


def _files(path: Path) -> dict[int, Path]:
    if path.is_dir():
        files = sorted(path.glob(f"*{SUFFIX}"))
    elif path.suffix.casefold() == SUFFIX:
        name = _NAME.fullmatch(path.name)
        return {int(name["rank"]) if name else 0: path}
    else:
        files = sorted(_of_prefix(path)) if path.parent.is_dir() else []
    named = [(match, file) for file in files if (match := _NAME.fullmatch(file.name))]
    if not named:
        raise SilicastError(
            f"holds no file called prefix.<rank>{SUFFIX}",
            kind="io",
            file=str(path),
            hint="name the folder, folder/prefix, or the file of one rank",
        )
    prefixes = sorted({match["prefix"] for match, _ in named})
    if len(prefixes) > 1:
        raise SilicastError(
            f"holds several traces: {', '.join(prefixes[:6])}",
            file=str(path),
            hint=f"name one: {path / prefixes[0]}",
        )
    ranks: dict[int, Path] = {}
    for match, file in named:
        if int(match["rank"]) in ranks:
            raise SilicastError(f"a second file of rank {int(match['rank'])}", file=str(file))
        ranks[int(match["rank"])] = file
    return ranks


def _groups(folder: Path) -> dict[str, tuple[int, ...]]:
    """Ranks of each group from the file beside the traces; none where there is no such file.

    Raises:
        SilicastError: it is no object of lists of ranks.
    """
    files = sorted(folder.glob("*comm_group*.json"))
    usual_file = folder / GROUPS
    file = usual_file if usual_file in files else files[0] if files else None
    if file is None:
        return {}
    return {name: _members(name, ranks, file) for name, ranks in json_object(file).items()}


def _members(name: str, ranks: Any, file: Path) -> tuple[int, ...]:
    whole = isinstance(ranks, list) and all(type(rank) is int and rank >= 0 for rank in ranks)
    if not whole or not ranks or len(set(ranks)) < len(ranks):
        raise SilicastError(
            f"expected a list of different ranks, found {str(ranks)[:60]}",
            field=name[:80],
            file=str(file),
            hint='{"0": [0, 1, 2, 3]}',
        )
    return tuple(ranks)
