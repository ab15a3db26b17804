"""Engines as tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from rich.console import RenderableType

from silicast.composition.engines.engine import Engine
from silicast.hardware.device_file import source_of
from silicast.report.drawing.tables import FactSheet, listing


def engine_summary(engine: Engine) -> dict[str, Any]:
    """What an engine is, in a few fields."""
    return {
        "name": engine.name,
        "kind": engine.kind,
        "version": engine.version,
        "prefill_launch": engine.launch.prefill,
        "decode_launch": engine.launch.decode,
        "aliases": list(engine.aliases),
    }


def engine_table(engines: Iterable[Engine]) -> RenderableType:
    """One line an engine."""
    columns = dict.fromkeys(("engine", "kind", "version", "prefill", "decode"), "left")
    rows = [[e.name, e.kind, e.version, e.launch.prefill, e.launch.decode] for e in engines]
    return listing(columns, rows)


def engine_card(engine: Engine) -> RenderableType:
    """All constants of an engine, each with its source."""
    table = FactSheet(f"{engine.name} {engine.version}")
    for path, value in _leaves("", msgspec.to_builtins(engine)):
        if path.startswith(("sources", "aliases", "name", "version")):
            continue
        table.add(path, value, source_of(engine.sources, path))
    table.add("other names", ", ".join(engine.aliases) or "–")
    return table.rendered()


def _leaves(path: str, value: Any) -> list[tuple[str, str]]:
    if isinstance(value, dict):
        return [
            leaf
            for key, item in value.items()
            for leaf in _leaves(f"{path}.{key}" if path else key, item)
        ]
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [leaf for i, item in enumerate(value) for leaf in _leaves(f"{path}.{i}", item)]
    if isinstance(value, list):
        return [(path, ", ".join(map(str, value)))] if value else []
    return [(path, str(value))] if value not in {"", None} else []
