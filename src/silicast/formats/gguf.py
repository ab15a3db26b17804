"""The head of a GGUF file: facts about the model and the formats of its tensors, not the weights.

Layout (ggml/docs/gguf.md): magic, version, counts, then pairs of key and typed value, then a name,
a shape and a type for each tensor, all little-endian. A model cut into several files
("-00001-of-00003.gguf") has its facts in the first and tensors in all of them.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, NoReturn, final

from silicast.core.errors import SilicastError, unsupported
from silicast.core.files import opened_file

MOST_FILE_BYTES = 1 << 43
MOST_HEAD_BYTES = 1 << 28
MOST_ENTRIES = 1 << 16
"""Keys, tensors, and entries of an array that are kept; of longer arrays the length is."""
MOST_PARTS = 1000
_NUMBERS = {kind: f"<{code}" for kind, code in enumerate("BbHhIif?")} | {
    10: "<Q",
    11: "<q",
    12: "<d",
}
"""Number of a type -> its layout."""
_STRING, _ARRAY = 8, 9
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


@final
@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor: its rows have ``shape[0]`` entries; ``type`` is ggml's number."""

    name: str
    shape: tuple[int, ...]
    type: int


@final
@dataclass(frozen=True, slots=True)
class GgufHead:
    """What stands before the weights.

    Attributes:
        facts: key -> value; of an array of strings, or of one too long, its length.
        held: bytes behind the head, of all files of the model.
    """

    facts: dict[str, Any]
    tensors: tuple[GgufTensor, ...]
    held: int = 0


def read_gguf(path: Path) -> GgufHead:
    """The head of a GGUF file, or of all files of a model that is cut.

    Raises:
        SilicastError: it cannot be read, is no GGUF file, of another version, or cut off; or a
            part of the model is missing. Names the file.
    """
    head = _read(path)
    parts = head.facts.get("split.count", 1)
    if not isinstance(parts, int) or parts <= 1:
        return head
    match = _PART.search(path.name)
    if match is None or int(match[2]) != parts or parts > MOST_PARTS:
        raise unsupported(
            f"is one of {parts} files, which are named -00001-of-{parts:05d}.gguf",
            file=str(path),
            hint="keep the names of the parts",
        )
    files = [
        path.with_name(f"{path.name[: match.start()]}-{number:05d}-of-{parts:05d}.gguf")
        for number in range(1, parts + 1)
    ]
    heads = [_read(file) for file in files]
    tensors = tuple(tensor for head in heads for tensor in head.tensors)
    return GgufHead(heads[0].facts, tensors, sum(head.held for head in heads))


def _read(path: Path) -> GgufHead:
    hint = "name a file of weights of llama.cpp"
    with opened_file(path, MOST_FILE_BYTES, "a GGUF file", hint) as stream:
        reader = _Reader(stream, path)
        if stream.read(4) != b"GGUF":
            reader.refuse("is no GGUF file: it does not begin with GGUF", hint)
        version = reader.number("<I")
        if version not in (2, 3):
            swapped = version in (2 << 24, 3 << 24)
            what = "big-endian" if swapped else f"version {version}"
            reader.refuse(f"is a {what} GGUF file; versions 2 and 3 are read", "convert it anew")
        tensors, keys = reader.count("tensors"), reader.count("keys")
        facts = {}
        for _ in range(keys):
            name = reader.text()
            facts[name] = reader.value(reader.number("<I"))
        named = tuple(reader.tensor() for _ in range(tensors))
        begin = stream.tell()
        return GgufHead(facts, named, stream.seek(0, 2) - begin)


@final
class _Reader:
    def __init__(self, stream: BufferedReader, path: Path) -> None:
        self._stream, self._path, self._left = stream, path, MOST_HEAD_BYTES

    def refuse(self, what: str, hint: str = "") -> NoReturn:
        raise SilicastError(what, file=str(self._path), hint=hint)

    def _bytes(self, count: int) -> bytes:
        self._left -= count
        if self._left < 0:
            self.refuse(f"has a head of more than {MOST_HEAD_BYTES >> 20} MiB", "is it damaged?")
        content = self._stream.read(count)
        if len(content) < count:
            self.refuse("ends before its weights", "was it cut off?")
        return content

    def number(self, layout: str) -> Any:
        """One number in a layout of ``struct``."""
        return struct.unpack(layout, self._bytes(struct.calcsize(layout)))[0]

    def count(self, what: str) -> int:
        """A number of entries."""
        count = self.number("<Q")
        if count > MOST_ENTRIES:
            self.refuse(f"has {count} {what}, more than {MOST_ENTRIES}", "is it damaged?")
        return int(count)

    def text(self) -> str:
        """A string with its length before it."""
        return self._bytes(self.number("<Q")).decode("utf-8", "replace")

    def value(self, kind: int, *, nested: bool = False) -> Any:
        """A value of a type; of an array of strings, or of a long one, its length."""
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY or nested:
            self.refuse(f"has a value of the unknown type {kind}", "is it damaged?")
        inner, length = self.number("<I"), self.number("<Q")
        if inner in _NUMBERS:
            layout = _NUMBERS[inner]
            content = self._bytes(length * struct.calcsize(layout))
            if length > MOST_ENTRIES:
                return length
            return [number for (number,) in struct.iter_unpack(layout, content)]
        for _ in range(length):
            self.value(inner, nested=True)
        return length

    def tensor(self) -> GgufTensor:
        """The name, shape and type of a tensor."""
        name, dims = self.text(), self.number("<I")
        if not 0 < dims <= 4:
            self.refuse(f"has a tensor of {dims} dimensions", "is it damaged?")
        shape = tuple(self.number("<Q") for _ in range(dims))
        kind = self.number("<I")
        self.number("<Q")  # where its weights begin
        return GgufTensor(name, shape, kind)
