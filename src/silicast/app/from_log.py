"""`silicast serve --from-log`: an engine's start-up log in place of its options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from silicast.core.errors import SilicastError


def with_log(scenario: dict[str, Any], path: Path) -> dict[str, Any]:
    """The scenario with the numbers that an engine's log states; what the user states wins.

    Raises:
        SilicastError: the log cannot be read, or is of another model or engine.
    """
    from silicast.formats.engine_log import read_engine_log

    log = read_engine_log(path)
    require_same_model(str(scenario["model"]), log.model, path, "--from-log")
    engine = scenario.get("engine") or {}
    table: dict[str, Any] = {"name": engine} if isinstance(engine, str) else dict(engine)
    if table.get("name", log.engine) != log.engine:
        raise SilicastError(
            f"the log is of {log.engine}, and --engine is {table['name']}",
            field="--from-log",
            file=str(path),
            hint=f"leave --engine out, or give a log of {table['name']}",
        )
    if log.version:
        table.setdefault("version", log.version)
    theirs: dict[str, Any] = dict(log.options)
    if log.quantization:
        theirs["quantization"] = log.quantization
    options = {**theirs, **table.get("options", {})}
    result = {**scenario, "engine": {**table, "name": log.engine, "options": options}}
    if log.tp > 1:
        result["parallel"] = {"tp": log.tp, **scenario.get("parallel", {})}
    # 16 bits are what activations have beside quantised weights too
    formats = {"weights": log.dtype} if log.dtype == "float32" else {}
    formats |= {"kv_cache": log.kv_dtype} if log.kv_dtype else {}
    if formats:
        result["precision"] = {**formats, **scenario.get("precision", {})}
    return result


def require_same_model(asked_model: str, theirs: str, path: Path, flag: str) -> None:
    """Refuses a file of another model; one that names a folder alone is compared by its name."""
    if not theirs or _canonical(asked_model) == _canonical(theirs):
        return
    source = flag.removeprefix("--from-")
    raise SilicastError(
        f"the {source} is of {theirs}, and --model is {asked_model}",
        field=flag,
        file=str(path),
        hint=f"give the model of the {source}, or the {source} of the model",
    )


def _canonical(name: str) -> str:
    from silicast.core.naming import normalise
    from silicast.workload.models.lookup import find_model

    try:
        return normalise(find_model(name).name)
    except SilicastError:
        return normalise(Path(name).name)
