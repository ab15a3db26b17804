"""A file of unknown make: what it starts with, and its content within limits."""

from __future__ import annotations

import functools
import gzip
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, final

import msgspec

from silicast.core.errors import SilicastError

T = TypeVar("T")

HEAD_BYTES = 1 << 16
"""What is looked at to tell what a file is."""
MAX_BYTES = 1 << 30
"""Of a file, unpacked."""
_GZIP, _SQLITE, _PARQUET = b"\x1f\x8b", b"SQLite format 3\x00", b"PAR1"
_CHUNK = 1 << 22


@final
@dataclass(frozen=True)
class Source:
    """A file that may hold measurements; nothing of it is read before it is asked for.

    >>> Source(Path("/dev/null")).is_database
    False
    """

    path: Path
    max_bytes: int = MAX_BYTES

    @functools.cached_property
    def head(self) -> bytes:
        """The first bytes, unpacked.

        Raises:
            SilicastError: kind "io": it cannot be read. A damaged archive gives what it has.
        """
        try:
            with self.path.open("rb") as file:
                raw = file.read(HEAD_BYTES)
        except OSError as error:
            raise self._unreadable(error) from None
        if not raw.startswith(_GZIP):
            return raw
        try:
            return zlib.decompressobj(wbits=31).decompress(raw, HEAD_BYTES)
        except zlib.error:
            return b""

    @functools.cached_property
    def first_lines(self) -> tuple[str, ...]:
        """The lines of :attr:`head` without a byte-order mark; bytes that are no text replaced."""
        text = self.head.decode("utf-8-sig", errors="replace")
        return tuple(text.splitlines())

    @property
    def is_packed(self) -> bool:
        """Whether it is gzip."""
        with self.path.open("rb") as file:
            return file.read(2) == _GZIP

    @property
    def is_database(self) -> bool:
        """Whether it is SQLite."""
        return self.head.startswith(_SQLITE)

    @property
    def is_parquet(self) -> bool:
        """Whether it is Parquet."""
        return self.head.startswith(_PARQUET)

    @property
    def is_json(self) -> bool:
        """Whether it starts as a JSON object or array does."""
        return self.head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")

    def holds(self, *words: str) -> bool:
        """Whether all of the words are in :attr:`head`."""
        return all(word.encode() in self.head for word in words)

    def content(self) -> bytes:
        """All of it, unpacked.

        Raises:
            SilicastError: it cannot be read, is cut off, or is larger than the limit (kind
                "limit").
        """
        try:
            if not self.is_packed:
                if self.path.stat().st_size > self.max_bytes:
                    raise self._too_large()
                return self.path.read_bytes()
            parts, size = [], 0
            with gzip.open(self.path) as file:
                while chunk := file.read(_CHUNK):
                    size += len(chunk)
                    if size > self.max_bytes:
                        raise self._too_large()
                    parts.append(chunk)
            return b"".join(parts)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise SilicastError(
                f"is a damaged gzip file: {error}", file=str(self.path), field="file",
                hint="was it cut off while it was written or copied?",
            ) from None  # fmt: skip
        except OSError as error:
            raise self._unreadable(error) from None

    def text(self) -> str:
        """All of it as text.

        Raises:
            SilicastError: as :meth:`content`, or it is no UTF-8.
        """
        try:
            return self.content().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise SilicastError(
                f"is no text in UTF-8: byte {error.start} is {self.content()[error.start]:#04x}",
                file=str(self.path), field="file",
            ) from None  # fmt: skip

    def decoded(self, kind: type[T]) -> T:
        """All of it as JSON of a kind.

        Raises:
            SilicastError: as :meth:`content`, no JSON, nested too deeply, or a field of another
                type than the tool writes.
        """
        return self.decode_line(self.content().removeprefix(b"\xef\xbb\xbf"), kind)

    def decode_line(self, line: bytes, kind: type[T], number: int = 0) -> T:
        """A part of it as JSON of a kind.

        Args:
            number: of the line, for errors; 0 = the whole file.
        """
        where = f"line {number}" if number else "file"
        try:
            return msgspec.json.decode(line, type=kind)
        except msgspec.ValidationError as error:
            said, _, at = str(error).partition(" - at ")
            raise SilicastError(said, file=str(self.path), field=at.strip("`$.") or where) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SilicastError(
                f"is no JSON: {error}", file=str(self.path), field=where,
                hint="was it cut off while it was written or copied?",
            ) from None  # fmt: skip
        except RecursionError:
            raise SilicastError(
                "is JSON nested too deeply", kind="limit", file=str(self.path), field=where
            ) from None

    def objects(self) -> list[tuple[int, dict[str, Any]]]:
        """Its JSON objects with their numbers: one file, one a line, or a list of them.

        Raises:
            SilicastError: as :meth:`decoded`.
        """
        content = self.content().removeprefix(b"\xef\xbb\xbf")
        lines = [(n, line) for n, line in enumerate(content.split(b"\n"), 1) if line.strip()]
        if not lines:
            raise SilicastError("is empty", file=str(self.path), field="file")
        if content.lstrip().startswith(b"["):
            return list(enumerate(self.decode_line(content, list[dict[str, Any]]), 1))
        if len(lines) > 1 and lines[0][1].strip().endswith(b"}"):
            return [(n, self._object(line, n)) for n, line in lines]
        return [(1, self._object(content, 0))]

    def _object(self, text: bytes, number: int) -> dict[str, Any]:
        """An object; Infinity and NaN, which JSON does not have, are what Python's writer means."""
        try:
            return self.decode_line(text, dict[str, Any], number)
        except SilicastError:
            try:
                found = json.loads(text)
            except (ValueError, RecursionError):
                found = None
            if not isinstance(found, dict):
                raise
            return found

    def _unreadable(self, error: OSError) -> SilicastError:
        return SilicastError(
            f"cannot read: {error.strerror or error}", kind="io", file=str(self.path)
        )

    def _too_large(self) -> SilicastError:
        return SilicastError(
            f"is larger than {self.max_bytes / 2**30:.3g} GiB unpacked",
            kind="limit", file=str(self.path), field="file",
            hint="record fewer steps",
        )  # fmt: skip
