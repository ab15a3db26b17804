"""Scenarios of strangers: whatever they need stands in them, and nothing in them names a file."""

from __future__ import annotations

import re
from typing import Any

from silicast.core.errors import unsupported
from silicast.core.plain_data import shown

_PATH = re.compile(r"[/~.\\]|[A-Za-z]:[\\/]|[a-z][a-z0-9+.-]*://", re.IGNORECASE)
"""How a path or an address begins."""
_ENDINGS = (
    ".toml",
    ".json",
    ".jsonl",
    ".ndjson",
    ".csv",
    ".parquet",
    ".yaml",
    ".yml",
    ".cfg",
    ".m",
    ".onnx",
    ".pt2",
    ".et",
    ".npy",
    ".safetensors",
    ".gguf",
    ".gz",
    ".py",
)
_DESCRIBED = ("model", "draft")
"""Fields whose inline tables hold others' words: only ``base`` of them is looked up."""


def refuse_paths(tree: Any) -> None:
    """Refuses a scenario in which something names a file, a folder or an address.

    Raises:
        SilicastError: names the field.

    >>> refuse_paths({"model": "Qwen/Qwen3-8B", "device": "h100"})
    >>> refuse_paths({"workload": {"arrival": {"path": "../trace.csv"}}})
    Traceback (most recent call last):
    silicast.core.errors.SilicastError: workload.arrival.path: '../trace.csv' names a file; a \
server opens none (give the content inline)
    """
    stack: list[tuple[str, Any]] = [("", tree)]
    while stack:
        where, value = stack.pop()
        if isinstance(value, str):
            _refuse(value, where)
        elif isinstance(value, dict):
            inner = value
            if where.rpartition(".")[2] in _DESCRIBED:
                inner = {name: value[name] for name in ("base",) if name in value}
            stack.extend((f"{where}.{name}" if where else str(name), inner[name]) for name in inner)
        elif isinstance(value, list):
            stack.extend((where, each) for each in value)


def _refuse(text: str, field: str) -> None:
    parts = re.split(r"[/\\]", text)
    if _PATH.match(text) or ".." in parts or "\\" in text or _ends_as_file(text):
        raise unsupported(
            f"{shown(text)} names a file; a server opens none",
            field[:200],
            "give the content inline",
        )


def _ends_as_file(text: str) -> bool:
    return text.casefold().endswith(_ENDINGS)
