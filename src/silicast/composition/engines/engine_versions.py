"""Earlier versions of an engine: another file, or switches that were off."""

from __future__ import annotations

from typing import Any

import msgspec

from silicast.composition.engines.engine import Engine, find_engine
from silicast.composition.engines.engine_options import with_options
from silicast.composition.engines.switches import choose, is_switch
from silicast.core.releases import is_before


def as_of(engine: Engine, version: str) -> Engine:
    """The engine in a version; "" = the version of its file.

    >>> from silicast.composition.engines.engine import find_engine
    >>> as_of(find_engine("vllm"), "0.6.3").name
    'vllm-v0'
    >>> as_of(find_engine("vllm"), "v0.13.0").host.asynchronous
    False
    >>> as_of(find_engine("vllm"), "0.2.0").release_log_sd
    0.26
    """
    file = _with_launch(_file_of(engine, version), version)
    for releases in engine.unmeasured:
        if is_before(version, releases.before):
            return msgspec.structs.replace(file, release_log_sd=releases.log_sd)
    return file


def _with_launch(engine: Engine, version: str) -> Engine:
    """The engine with what the version sets aside at the start alone."""
    known = [each for each in engine.memory.launch if not is_before(version, each.since)]
    if not version or not known:
        return engine
    launch = [msgspec.structs.replace(known[-1], since="")]
    memory = msgspec.structs.replace(engine.memory, launch=launch)
    return msgspec.structs.replace(engine, memory=memory)


def _file_of(engine: Engine, version: str) -> Engine:
    """The file for a version, less the options that it did not have yet."""
    for first, earlier in engine.earlier.items():
        if is_before(version, first):
            file = _file_of(find_engine(earlier), version)
            switches = file.switches or engine.switches, file.backends or engine.backends
            return msgspec.structs.replace(file, switches=switches[0], backends=switches[1])
    options = dict[str, Any]()
    for bound, others in engine.before.items():
        options |= others if is_before(version, bound) else {}
    options |= dict.fromkeys(lacking(engine, version), False)
    usual = {name: value for name, value in options.items() if is_switch(engine, name)}
    ours = {name: value for name, value in options.items() if name not in usual}
    return with_options(choose(engine, usual).engine, ours)


def otherwise(engine: Engine, version: str) -> tuple[str, ...]:
    """What an earlier version does otherwise, in words: "option = value"."""
    return tuple(
        f"{name} = {_word(value)}"
        for bound, options in engine.before.items()
        if is_before(version, bound)
        for name, value in options.items()
    )


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def lacking(engine: Engine, version: str) -> tuple[str, ...]:
    """Options that were off in an earlier version."""
    return tuple(name for name, first in engine.since.items() if is_before(version, first))
