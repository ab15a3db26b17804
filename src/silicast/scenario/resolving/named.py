"""Checks every name of a scenario, for tasks that no model answers yet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from silicast.core.errors import SilicastError
from silicast.scenario.decode import Scenario
from silicast.scenario.resolve import find_any_device, find_any_engine, find_any_model
from silicast.scenario.schema import EngineTable


def check_names(scenario: Scenario) -> None:
    """Looks up every device, model and engine, of all pools.

    Raises:
        SilicastError: an unknown name, for which the nearest are offered, or a bad table or file.
    """
    raw = scenario.raw
    entries = [("", raw.device, raw.model, raw.engine)]
    entries += [
        (f"pools.{name}.", pool.device, pool.model, pool.engine)
        for name, pool in scenario.pools.items()
    ]
    for prefix, device, model, engine in entries:
        if device is not None:
            _check_known(find_any_device, device, scenario, f"{prefix}device")
        if model is not None:
            _check_known(find_any_model, model, scenario, f"{prefix}model")
        if engine is not None:
            table = EngineTable(engine) if isinstance(engine, str) else engine
            find_any_engine(table, scenario.folder, f"{prefix}engine")
    if raw.speculative is not None and raw.speculative.draft is not None:
        _check_known(find_any_model, raw.speculative.draft, scenario, "speculative.draft")


def _check_known(
    find: Callable[[Any, Path, str], object], spec: object, scenario: Scenario, field: str
) -> None:
    """Refuses a name that nothing has; what is known though not modelled is no bad name."""
    try:
        find(spec, scenario.folder, field)
    except SilicastError as error:
        if error.kind != "not_yet":
            raise
