"""What an engine printed when it started, or answers at ``/server_info``: its limits and its cache.

``catalog/engine_logs.toml`` lists, for each engine, by what text its files are told and how each
number is written.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, final

import msgspec

from silicast.core.catalog import CATALOG
from silicast.core.decode import Strict
from silicast.core.errors import SilicastError
from silicast.core.files import read_text

FILE = CATALOG / "engine_logs.toml"
MOST_BYTES = 64 << 20
_NUMBERS = (
    *("max_total_tokens", "num_gpu_blocks", "max_num_seqs", "max_num_batched_tokens"),
    *("max_model_len", "block_size", "tp"),
)
_WORDS = ("version", "model", "dtype", "kv_dtype", "backend", "quantization")
_MOST_LEVELS = 16


@final
class LogFormat(Strict, frozen=True):
    """How an engine writes.

    Attributes:
        engine: its name; marks: text that only its files have.
        fields: our name of a number -> patterns, of which the last match in a file counts.
    """

    engine: str
    marks: list[str]
    fields: dict[str, list[str]]


@final
class _LogFormats(Strict, frozen=True):
    log: list[LogFormat]


@final
class EngineLog(msgspec.Struct, frozen=True):
    """What a file says; "" and {} = nothing.

    Attributes:
        options: of the engine, by the names of ``engine.options``.
        tp: tensor-parallel ranks, 0 = not said; backend: of attention; quantization: of weights.
    """

    engine: str
    version: str
    model: str
    options: dict[str, int]
    tp: int
    dtype: str
    kv_dtype: str
    backend: str
    quantization: str


@cache
def _formats() -> tuple[LogFormat, ...]:
    text = FILE.read_text(encoding="utf-8")
    return tuple(msgspec.convert(tomllib.loads(text), _LogFormats).log)


def read_engine_log(path: Path) -> EngineLog:
    """The numbers of a start-up log or of an answer of ``/server_info``.

    Raises:
        SilicastError: not a file of a known engine, or it does not say the size of a cache.
    """
    text = read_text(path, MOST_BYTES, "a log of an engine")
    if text.lstrip().startswith("{"):
        text = _lines_of(text, path)
    matching = [
        log_format for log_format in _formats() if any(mark in text for mark in log_format.marks)
    ]
    if not matching:
        names = ", ".join(log_format.engine for log_format in _formats())
        raise SilicastError(
            "expected the start-up log or /server_info of an engine, found no line of one",
            file=str(path),
            hint=f"engines: {names}",
        )
    log = max(matching, key=lambda log_format: sum(mark in text for mark in log_format.marks))
    values = {name: _last(patterns, text) for name, patterns in log.fields.items()}
    numbers = {n: int(v.replace(",", "")) for n in _NUMBERS if (v := values.get(n, ""))}
    if not {"max_total_tokens", "num_gpu_blocks"} & numbers.keys():
        raise SilicastError(
            f"the log of {log.engine} does not say how large its KV cache is",
            file=str(path),
            hint="give the log from the start until the server is ready",
        )
    if "max_total_tokens" in numbers:
        numbers.pop("num_gpu_blocks", None)
    words = {n: values.get(n, "") for n in _WORDS}
    words |= {n: "" for n in ("dtype", "kv_dtype", "quantization") if words[n] in ("auto", "None")}
    return EngineLog(engine=log.engine, tp=numbers.pop("tp", 0), options=numbers, **words)


def _last(patterns: list[str], text: str) -> str:
    """What the last match of the first pattern that matches holds."""
    for pattern in patterns:
        if matches := re.findall(pattern, text):
            return str(matches[-1])
    return ""


def _lines_of(text: str, path: Path) -> str:
    """A JSON object as a line ``name=value`` for each of its values."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SilicastError(f"expected JSON: {error}", file=str(path)) from None
    return "\n".join(f"{name}={value}" for name, value in _leaves(content, "server_info", 0))


def _leaves(content: Any, name: str, level: int) -> Iterator[tuple[str, Any]]:
    if level > _MOST_LEVELS:
        return
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _leaves(value, str(key), level + 1)
    elif isinstance(content, list):
        for value in content:
            yield from _leaves(value, name, level + 1)
    elif content is not None:
        yield name, content


LONGEST_LABEL = 100


def without_labels(lines: Sequence[str], header: re.Pattern[str]) -> list[str]:
    """Lines without the label that stands before the line which ``header`` is known by.

    Numbers in a label may differ from line to line: a rank, a time, a process. Lines that have no
    such label stay as they are.

    >>> without_labels(["[1,0]<stdout>: # size", "[1,0]<stdout>: 8", "a"], re.compile("# size"))
    ['# size', '8', 'a']
    """
    label = _label(lines, header)
    if label is None:
        return list(lines)
    return [line[match.end() :] if (match := label.match(line)) else line for line in lines]


def _label(lines: Sequence[str], header: re.Pattern[str]) -> re.Pattern[str] | None:
    """What stands before the header, with any numbers; None = no header, or nothing."""
    for line in lines:
        match = header.search(line)
        if match is not None and match.start() <= LONGEST_LABEL:
            label = line[: match.start()].rstrip()
            if not label:
                return None
            return re.compile(r"\d+".join(map(re.escape, re.split(r"\d+", label))) + r"[ \t]?")
    return None
