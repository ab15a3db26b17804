"""Switches of engines that a user may set, under one set of names.

====================== ======================== ==================================================
option                 values                   what it does
====================== ======================== ==================================================
``async_scheduling``   true, false              prepares a step while the device runs the last one
``cuda_graph``         "full", "piecewise",     how decode steps, of a bare framework whole passes,
                       "off"                    reach the device; "off" is eager, prefills too
``overlap``            true, false              second streams (shared experts beside routed ones)
``fused_all_reduce``   true, false              sums over ranks that also add and norm
``nvls``               true, false              long sums over ranks are made in the NVLink switch
====================== ======================== ==================================================
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from silicast.composition.engine import Engine, Launch
from silicast.core.errors import SilicastError

EAGER_CAVEAT = (
    "without graphs an engine's own Python runs between kernels; only launches are modelled, "
    "and short steps may take several times as long"
)
_GRAPHS: Mapping[str, Launch] = {"full": "graph", "piecewise": "piecewise", "off": "stream"}


def with_options(engine: Engine, options: Mapping[str, Any]) -> Engine:
    """The engine with the given options.

    Raises:
        SilicastError: an option that is not known, or a value of another kind; names the field.

    >>> from silicast.composition.engine import find_engine
    >>> with_options(find_engine("vllm"), {"async_scheduling": False}).host.asynchronous
    False
    """
    for name, value in options.items():
        change = _OPTIONS.get(name)
        if change is None:
            near = difflib.get_close_matches(name[:80], _OPTIONS, n=2, cutoff=0.5)
            raise SilicastError(
                f"options of engines: {name[:80]!r} is not modelled",
                kind="not_yet",
                field=f"engine.options.{name[:80]}",
                hint=f"did you mean {' or '.join(near)}?"
                if near
                else f"known: {', '.join(OPTIONS)}",
            )
        engine = change(engine, value)
    return engine


def _yes_or_no(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise SilicastError(
            f"expected true or false, found {str(value)[:40]!r}", field=f"engine.options.{name}"
        )
    return value


def _async_scheduling(engine: Engine, value: Any) -> Engine:
    chosen = _yes_or_no("async_scheduling", value)
    host = msgspec.structs.replace(engine.host, asynchronous=chosen)
    return msgspec.structs.replace(engine, host=host)


def _cuda_graph(engine: Engine, value: Any) -> Engine:
    chosen = ("full" if value else "off") if isinstance(value, bool) else value
    if not isinstance(chosen, str) or chosen not in _GRAPHS:
        raise SilicastError(
            f"expected one of {', '.join(_GRAPHS)}, found {str(value)[:40]!r}",
            field="engine.options.cuda_graph",
        )
    decode = _GRAPHS[chosen]
    prefill = "stream" if decode == "stream" else engine.launch.prefill
    if engine.kind == "framework":  # a whole pass is captured
        prefill = decode
    launch = msgspec.structs.replace(engine.launch, decode=decode, prefill=prefill)
    caveats = engine.caveats
    if decode == "stream" and engine.kind == "serving":
        caveats = [*caveats, EAGER_CAVEAT]
    return msgspec.structs.replace(engine, launch=launch, caveats=caveats)


def _overlap(engine: Engine, value: Any) -> Engine:
    if _yes_or_no("overlap", value):
        return engine
    return msgspec.structs.replace(engine, overlap=[])


def _fused_all_reduce(engine: Engine, value: Any) -> Engine:
    if _yes_or_no("fused_all_reduce", value):
        return engine
    fusion = msgspec.structs.replace(engine.fusion, all_reduce_mb={})
    return msgspec.structs.replace(engine, fusion=fusion)


def _nvls(engine: Engine, value: Any) -> Engine:
    return msgspec.structs.replace(engine, nvls=_yes_or_no("nvls", value))


_OPTIONS: Mapping[str, Callable[[Engine, Any], Engine]] = {
    "async_scheduling": _async_scheduling,
    "cuda_graph": _cuda_graph,
    "overlap": _overlap,
    "fused_all_reduce": _fused_all_reduce,
    "nvls": _nvls,
}

OPTIONS = tuple(_OPTIONS)
"""Names of all options."""
