"""A cache on disk: results of long work, kept between processes.

The folder is ``SILICAST_CACHE`` ("" = keep nothing), else ``silicast`` in the user's folder of
caches. A file holds one result under the hash of all that it depends on, and the hash of its key
and result: one that was damaged, edited or put under another name is computed again. It is written
under another name and renamed, so that several processes may write. A folder that cannot be written
keeps nothing (docs/adr/0043). A file begins with a mark; what has none, or belongs to another user
of the machine, is not of the cache: it is neither read nor removed.
"""

from __future__ import annotations

import os
import re
import sys
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from silicast.core.decode import decode_json
from silicast.core.errors import SilicastError
from silicast.core.files import opened_file, read_bounded, write_atomically
from silicast.core.hashing import content_hash

MOST_BYTES = 1 << 20
"""Of one file."""
MOST_FILES = 20_000
"""Of one kind; old ones go where there are more."""
MOST_KIND_BYTES = 1 << 28
"""Of all files of one kind; likewise."""
LOOKED_AT = 512
"""Files whose ages are compared at a time: some user's question waits for it. The older half
may go, and a process looks again once it stored a quarter as many."""
_stored: dict[tuple[int, Path], int] = {}
"""Process, folder -> files that it stored there; a forked process counts anew."""

Cached = TypeVar("Cached", bound=msgspec.Struct)


_ENTRY = re.compile(r"[0-9a-f]{16}\.json")
"""What a file of a key is called (:func:`~.hashing.content_hash`); all others are not ours."""
_MARK = b'{"silicast":"cache entry",'
"""What an entry begins with; a file without it is not ours, whatever it is called."""


class KeptKind(msgspec.Struct, frozen=True):
    """What is kept of one kind: entries, those whose seal is broken (computed again when they are
    needed), bytes of all of them, and files with a name of an entry that are not of the cache.
    """

    entries: int
    broken: int
    size_bytes: int
    foreign: int = 0

    @property
    def text(self) -> str:
        """In one line."""
        parts = [f"{self.entries:,} entries, {self.size_bytes / 1e6:.2f} MB"]
        if self.broken:
            parts.append(f"{self.broken:,} of them broken: computed again when needed")
        if self.foreign:
            parts.append(f"{self.foreign:,} not ours, left")
        return ", ".join(parts)


class Sealed(msgspec.Struct, frozen=True, tag_field="silicast", tag="cache entry"):
    """What a file holds: a result as it was encoded, and the hash of it and its key."""

    seal: str
    result: msgspec.Raw


def _seal(key: str, encoded: bytes) -> str:
    return content_hash([key, encoded.decode()])


def cache_folder() -> Path | None:
    """Where results are kept; None = nowhere."""
    from_environment = os.environ.get("SILICAST_CACHE")
    if from_environment is not None:
        return Path(from_environment).expanduser() if from_environment else None
    home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("HOME")
    if not home:
        return None
    folder = Path(home) if os.environ.get("XDG_CACHE_HOME") else Path(home) / ".cache"
    return folder / "silicast"


def cached(kind: str, key: str, type_: type[Cached]) -> Cached | None:
    """What was kept under a key; None = nothing, or nothing that can be read.

    Args:
        kind: folder of results of one type.
        key: hash of all that the result depends on.
    """
    folder = cache_folder()
    if folder is None:
        return None
    encoded = _unsealed(folder / kind / f"{key}.json")
    try:
        return None if encoded is None else decode_json(encoded, type_)
    except SilicastError:
        return None


def _unsealed(path: Path) -> bytes | None:
    """The result that a file holds under its name; None = none whose seal is whole."""
    if not _is_ours(path):
        return None
    try:
        content = read_bounded(path, MOST_BYTES, "a result")
        sealed = decode_json(content, Sealed) if content.startswith(_MARK) else None
    except SilicastError:
        return None
    if sealed is None:
        return None
    encoded = bytes(sealed.result)
    return encoded if sealed.seal == _seal(path.stem, encoded) else None


def store(kind: str, key: str, result: msgspec.Struct) -> None:
    """Keeps a result under a key, where there is a folder that can be written."""
    folder = cache_folder()
    if folder is None:
        return
    with suppress(OSError, SilicastError):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        path = folder / kind / f"{key}.json"
        if path.exists() and not path.is_file():
            return  # a pipe would wait for a reader
        encoded = msgspec.json.encode(result)
        content = msgspec.json.encode(Sealed(_seal(key, encoded), msgspec.Raw(encoded)))
        if len(content) > MOST_BYTES:
            return
        write_atomically(path, content)
        _make_room(folder / kind, key)


def _make_room(folder: Path, key: str) -> None:
    """Looks at a folder at the first file that a process stores there, then at every 128th. Where
    there are too many files, the older half of some goes: of those whose names, which are hashes,
    come next after that of the key. That is twice as many as the process added since, and none of
    them is among the younger ones of a sample. So a process removes 256 at most, and two more for
    each that it stores.
    """
    process = os.getpid(), folder
    count = _stored[process] = _stored.get(process, -1) + 1
    if count % (LOOKED_AT // 4):
        return
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if _ENTRY.fullmatch(entry.name))
    first = bisect_right(names, f"{key}.json")
    looked_at = [folder / name for name in (*names[first:], *names[:first])[:LOOKED_AT]]
    files = [(status, path) for path in looked_at if (status := _status(path))]
    size = sum(status.st_size for status, _ in files)
    if len(names) > MOST_FILES or size * len(names) > MOST_KIND_BYTES * len(files):
        files.sort(key=lambda file: file[0].st_mtime)
        for _, path in files[: len(files) // 2]:
            if _is_marked(path):
                path.unlink(missing_ok=True)


def cached_kinds() -> dict[str, KeptKind]:
    """Kind -> what is kept of it, by name; kinds without entries are left out.

    Raises:
        SilicastError: the folder is there and cannot be read.
    """
    kinds: dict[str, KeptKind] = {}
    for kind, paths in _entries():
        sizes, broken, foreign = [], 0, 0
        for path in paths:
            marked, whole = _is_marked(path), _unsealed(path) is not None
            status = _status(path)  # last: another process may remove it meanwhile
            if status is None:
                continue
            if marked:
                sizes.append(status.st_size)
            broken += marked and not whole
            foreign += not marked
        if sizes or foreign:
            kinds[kind] = KeptKind(len(sizes), broken, sum(sizes), foreign)
    return kinds


def clear() -> dict[str, KeptKind]:
    """Removes all entries, whole or broken, and nothing else; their :func:`cached_kinds`.

    Raises:
        SilicastError: the folder cannot be read, or an entry cannot be removed.
    """
    gone = cached_kinds()
    for _, paths in _entries():
        for path in filter(_is_marked, paths):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise _unusable(path.parent, error) from None
    return gone


def _is_marked(path: Path) -> bool:
    """Whether a file says that it is an entry; not where it cannot be read, is gone or belongs to
    another user.
    """
    if not _is_ours(path):
        return False
    try:
        with opened_file(path, sys.maxsize, "a result") as stream:
            return stream.read(len(_MARK)) == _MARK
    except (OSError, SilicastError):
        return False


def _is_ours(path: Path) -> bool:
    """Whether this user, or root, owns a file: in a shared folder others may plant some."""
    if not hasattr(os, "getuid"):
        return True
    try:
        return path.lstat().st_uid in (os.getuid(), 0)
    except OSError:
        return False


def can_keep(folder: Path) -> bool:
    """Whether results can be written to a folder, or it can be made."""
    existing = next((parent for parent in (folder, *folder.parents) if parent.exists()), folder)
    return existing.is_dir() and os.access(existing, os.W_OK)


def _status(path: Path) -> os.stat_result | None:
    """Size and age of a file; None where it is gone."""
    try:
        return path.lstat()
    except FileNotFoundError:
        return None


def _entries() -> Iterator[tuple[str, list[Path]]]:
    """Kinds and the files of their keys. A folder may be shared with anything: what is no plain
    file, or has another name, is not ours; neither is what a link leads to. A file with the name
    of an entry may still be of another program: see :func:`_is_marked`.
    """
    folder = cache_folder()
    if folder is None or not folder.exists():
        return
    try:
        for kind in sorted(folder.iterdir()):
            if kind.is_dir() and not kind.is_symlink():
                with os.scandir(kind) as files:
                    names = [
                        file.name
                        for file in files
                        if _ENTRY.fullmatch(file.name) and file.is_file(follow_symlinks=False)
                    ]
                if names:
                    yield kind.name, [kind / name for name in sorted(names)]
    except OSError as error:
        raise _unusable(folder, error) from None


def _unusable(folder: Path, error: OSError) -> SilicastError:
    return SilicastError(
        f"the cache cannot be read or changed: {error.strerror or error}",
        file=str(folder),
        hint="change its permissions, or name another folder in SILICAST_CACHE",
    )
