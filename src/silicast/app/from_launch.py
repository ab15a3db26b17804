"""`silicast serve --from-launch`: what starts a server in place of its options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from silicast.app.console import warn
from silicast.core.errors import SilicastError

Tree = dict[str, Any]
_TABLES = ("parallel", "precision", "cluster")
_NOT_SHOWN = ("not used: ", "read as a launch", "device: ")
_WHOLE = ("speculative", "lora", "pools")


def launched_by(path: Path) -> Tree:
    """The scenario that a launch file describes; what it does not take over is warned of.

    Raises:
        SilicastError: the file starts no server, or several that are not alike.
    """
    from silicast.scenario.reading.launched import launched_servers

    try:
        scenario, remarks = launched_servers(path)
    except SilicastError as error:
        if error.field == "run":
            error.hint = f"silicast import {path.name} -o scenario.json {error.hint}"
        raise
    for remark in remarks:
        if not remark.startswith(_NOT_SHOWN):
            warn(f"{path.name}: {remark}")
    return scenario


def with_launch(scenario: Tree, launched: Tree, path: Path) -> Tree:
    """The scenario of flags with what a launch file states; what the user states wins.

    Raises:
        SilicastError: the file is of another model or engine.
    """
    from silicast.app.from_log import require_same_model
    from silicast.scenario.reading.launched import model_facts

    if model_facts(str(launched["model"])) is not None:  # else its path says nothing to us
        require_same_model(str(scenario["model"]), str(launched["model"]), path, "--from-launch")
    engine = scenario.get("engine") or {}
    table: Tree = {"name": engine} if isinstance(engine, str) else dict(engine)
    theirs = launched["engine"] if "engine" in launched else _engine_of_pools(launched)
    if table.get("name", theirs["name"]) != theirs["name"]:
        raise SilicastError(
            f"the launch is of {theirs['name']}, and --engine is {table['name']}",
            field="--from-launch",
            file=str(path),
            hint=f"leave --engine out, or give a launch of {table['name']}",
        )
    if "device" in launched and not _same_device(str(scenario["device"]), launched["device"]):
        warn(f"{path.name} asks for nodes of {launched['device']}, not of {scenario['device']}")
    result = dict(scenario)
    if "engine" in launched:
        options = {**theirs.get("options", {}), **table.get("options", {})}
        result["engine"] = {**theirs, **table, **({"options": options} if options else {})}
    elif len(table) > 1:
        raise SilicastError(
            "the pools of the launch have engines of their own",
            field="--option",
            file=str(path),
            hint=f"silicast import {path.name} -o scenario.json, and change it there",
        )
    for name in _TABLES:
        if both := {**launched.get(name, {}), **scenario.get(name, {})}:
            result[name] = both
    for name in _WHOLE:
        if name in launched:
            result.setdefault(name, launched[name])
    return result


def _same_device(device: str, theirs: str) -> bool:
    from silicast.hardware.catalog import find_device

    return find_device(device).name == theirs


def _engine_of_pools(launched: Tree) -> Tree:
    """The engine of the first pool."""
    pool = next(iter(launched["pools"].values()))
    engine: Tree = pool["engine"]
    return engine
