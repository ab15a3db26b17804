"""Engines as tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from rich.console import RenderableType

from silicast.composition.engines.engine import Engine
from silicast.core.plain_data import leaves
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
    for path, value in leaves(msgspec.to_builtins(engine)):
        if value in ("", None, []) or path.startswith(("sources", "aliases", "name", "version")):
            continue
        told = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        table.add(path, told, source_of(engine.sources, path))
    table.add("other names", ", ".join(engine.aliases) or "–")
    return table.rendered()
