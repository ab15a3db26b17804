"""A file of another tool: what it starts with, and its content within limits.

What is no regular file is refused before it is opened, whatever is asked of it.
"""

from __future__ import annotations

import functools
import gzip
import json
import re
import tomllib
import zlib
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, final

from silicast.core.decode import decode_json
from silicast.core.errors import ErrorKind, NotJsonError, SilicastError, errors_located
from silicast.core.files import opened_file, read_at_most, read_errors, regular_status, size_text
from silicast.core.plain_data import check_tree
from silicast.formats.yaml_file import parse_yaml

T = TypeVar("T")

HEAD_BYTES = 1 << 16
"""What is looked at to tell what a file is."""
MAX_BYTES = 1 << 30
"""Of a file, unpacked."""
CUT_OFF = "was it cut off while it was written or copied?"
_GZIP, _SQLITE, _PARQUET = b"\x1f\x8b", b"SQLite format 3\x00", b"PAR1"
_LABEL = re.compile(rb"""\[[^\[\]{"\n]*\][^\n,\]]*[^\s,\]]""")
_BOM = b"\xef\xbb\xbf"


def table_of(text: str, path: Path) -> dict[str, Any] | None:
    """The table of a TOML, YAML or JSON text, told apart by the ending of its file; None of another
    text.

    Raises:
        SilicastError: it is nested too deeply, or holds too much; or it is YAML and wrong.
    """
    suffix = path.suffix.casefold()
    if suffix in (".yaml", ".yml"):
        table = parse_yaml(text, str(path))
        return table if isinstance(table, dict) else None
    try:
        table = tomllib.loads(text) if suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(table, dict):
        return None
    with errors_located(file=str(path)):
        check_tree(table)
    return table


@final
@dataclass(frozen=True)
class Source:
    """A file of another tool; nothing of it is read before it is asked for.

    Attributes:
        max_bytes: of its content, unpacked; what: it is supposed to be, for errors.
    """

    path: Path
    max_bytes: int = MAX_BYTES
    what: str = "a file of measurements"

    def error(
        self, message: str, field: str = "file", hint: str = "", kind: ErrorKind = "invalid_input"
    ) -> SilicastError:
        """An error that names the file."""
        return SilicastError(message, kind=kind, file=str(self.path), field=field, hint=hint)

    @functools.cached_property
    def head(self) -> bytes:
        """The first bytes, unpacked; none of a damaged archive.

        Raises:
            SilicastError: kind "io": it is no regular file, or cannot be read.
        """
        with self._opened() as file, read_errors(self.path):
            raw = file.read(HEAD_BYTES)
        if not raw.startswith(_GZIP):
            return raw
        try:
            return zlib.decompressobj(wbits=31).decompress(raw, HEAD_BYTES)
        except zlib.error:
            return b""

    @functools.cached_property
    def first_lines(self) -> tuple[str, ...]:
        """The lines of :attr:`head` without a byte-order mark; bytes that are no text replaced."""
        return tuple(self.head.decode("utf-8-sig", errors="replace").splitlines())

    @functools.cached_property
    def is_packed(self) -> bool:
        """Whether the file is packed with gzip."""
        with self._opened() as file, read_errors(self.path):
            return file.read(2) == _GZIP

    @property
    def is_database(self) -> bool:
        """Whether the file is an SQLite database."""
        return self.head.startswith(_SQLITE)

    @property
    def is_parquet(self) -> bool:
        """Whether the file is in Parquet format."""
        return self.head.startswith(_PARQUET)

    @property
    def is_json(self) -> bool:
        """Whether it starts as a JSON object or array does, not as a line with a label in brackets
        ("[rank0]: ...").
        """
        start = self.head.removeprefix(_BOM).lstrip()
        return start[:1] in (b"{", b"[") and not _LABEL.match(start)

    def holds(self, *words: str) -> bool:
        """Whether all of the words are in :attr:`head`."""
        return all(word.encode() in self.head for word in words)

    def content(self) -> bytes:
        """All of it, unpacked.

        Raises:
            SilicastError: it cannot be read, is cut off, or is larger than the limit (kind
                "limit").
        """
        status = regular_status(self.path)
        if not self.is_packed and status.st_size > self.max_bytes:
            raise self._too_large("")
        with self._opened() as packed, read_errors(self.path):
            try:
                with gzip.open(packed) if self.is_packed else nullcontext(packed) as file:
                    content = read_at_most(file.read, self.max_bytes + 1) or b""
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise self.error(f"is a damaged gzip file: {error}", hint=CUT_OFF) from None
        if len(content) > self.max_bytes:
            raise self._too_large(" unpacked" if self.is_packed else "")
        return content

    def _opened(self) -> AbstractContextManager[BinaryIO]:
        return opened_file(self.path, MAX_BYTES, self.what)

    def text(self) -> str:
        """All of it as text.

        Raises:
            SilicastError: as :meth:`content`, or it is no UTF-8.
        """
        content = self.content()
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            byte = f"byte {error.start} is {content[error.start]:#04x}"
            raise self.error(f"is no text in UTF-8: {byte}") from None

    @functools.cached_property
    def table(self) -> dict[str, Any] | None:
        """The table of a TOML, YAML or JSON file, told apart by its ending; None of another text.

        Raises:
            SilicastError: as :meth:`text`; it is nested too deeply, or holds too much; or it is
                YAML and wrong.
        """
        return table_of(self.text(), self.path)

    def decoded(self, kind: type[T]) -> T:
        """All of it as JSON of a kind.

        Raises:
            SilicastError: as :meth:`content`, no JSON, nested too deeply, or a field of another
                type than the tool writes.
        """
        return self._decoded(self.content().removeprefix(_BOM), kind)

    def _decoded(self, text: bytes, kind: type[T], line: int = 0) -> T:
        where = f"line {line}" if line else "file"
        try:
            return decode_json(text, kind, page="docs/how-to/import-measurements.md")
        except SilicastError as error:
            hint = f"{CUT_OFF}; {error.hint}" if isinstance(error, NotJsonError) else error.hint
            raise self.error(error.message, error.field or where, hint, kind=error.kind) from None

    def objects(self) -> list[tuple[int, dict[str, Any]]]:
        """Its JSON objects with their numbers: one file, one a line, or a list of them.

        Raises:
            SilicastError: as :meth:`decoded`.
        """
        content = self.content().removeprefix(_BOM)
        lines = [(n, line) for n, line in enumerate(content.split(b"\n"), 1) if line.strip()]
        if not lines:
            raise self.error("is empty")
        if content.lstrip().startswith(b"["):
            return list(enumerate(self._decoded(content, list[dict[str, Any]]), 1))
        if len(lines) > 1 and lines[0][1].strip().endswith(b"}"):
            return [(n, self._object(line, n)) for n, line in lines]
        return [(1, self._object(content, 0))]

    def _object(self, text: bytes, line: int) -> dict[str, Any]:
        """An object; Infinity and NaN, which JSON does not have, are what Python's writer means."""
        with suppress(ValueError, RecursionError):
            if isinstance(loads := json.loads(text), dict):
                return loads
        return self._decoded(text, dict[str, Any], line)

    def _too_large(self, packed: str) -> SilicastError:
        most = size_text(self.max_bytes)
        return self.error(
            f"is larger than {most}{packed}: not {self.what}",
            hint="record fewer steps",
            kind="limit",
        )
