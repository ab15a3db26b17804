"""Names of the catalog that a text means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from silicast.core.errors import SilicastError
from silicast.core.naming import NameIndex


def known_names(text: str, kind: str, most: int) -> dict[str, Any]:
    """Of each kind the name that a text is, or the nearest ones.

    Args:
        kind: device, model, engine, or any; most: names of each kind.

    Raises:
        SilicastError: there is no such kind.
    """
    kinds = _indexes()
    if kind != "any" and kind not in kinds:
        raise SilicastError(
            f"no kind {kind[:40]!r}", field="kind", hint=f"{', '.join(kinds)} or any"
        )
    table: dict[str, Any] = {}
    for name, index in kinds.items():
        if kind in ("any", name):
            table[name] = _of_kind(text, index(), most)
    return table


def _of_kind(text: str, index: NameIndex[Any], most: int) -> dict[str, Any]:
    if text in index:
        return {"is": index.canonical(text)}
    containing = list(index.containing(text))[:most]
    try:
        index.canonical(text)
    except SilicastError as error:
        return {"is": None, "containing": containing, "hint": error.hint}
    return {"is": None, "containing": containing}


def _indexes() -> dict[str, Callable[[], NameIndex[Any]]]:
    from silicast.composition.engines.engine import engine_names
    from silicast.hardware.index import device_names
    from silicast.workload.models.lookup import model_index

    return {"device": device_names, "model": model_index, "engine": engine_names}
