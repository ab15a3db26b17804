"""Earlier versions of an engine: another file, or switches that were off."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from silicast.composition.engines.engine import FOLDER, Engine, find_engine
from silicast.composition.engines.engine_options import with_options
from silicast.composition.engines.switches import choose, is_switch
from silicast.core.compiled import PAGES
from silicast.core.decode import decode
from silicast.core.errors import SilicastError
from silicast.core.releases import is_after, is_before, is_within
from silicast.kernels.engine_kernels import USUAL


def as_of(engine: Engine, version: str) -> Engine:
    """The engine in a version; "" = the version of its file.

    >>> from silicast.composition.engines.engine import find_engine
    >>> as_of(find_engine("vllm"), "0.6.3").name
    'vllm-v0'
    >>> as_of(find_engine("vllm"), "v0.13.0").host.asynchronous
    False
    >>> old = as_of(find_engine("vllm"), "0.2.0")
    >>> old.release_log_sd("ada"), old.release_log_sd("hopper"), old.taken_as.factor("hopper")
    (0.26, 0.15, 1.38)
    >>> [as_of(find_engine("vllm"), v).memory.usable_fraction for v in ("0.19", "0.20.1")]
    [0.9, 0.92]
    """
    file = _with_launch(_file_of(engine, version), version)
    file = msgspec.structs.replace(file, release=version.strip().removeprefix("v"))
    for releases in engine.unmeasured:
        if is_before(version, releases.before):
            return msgspec.structs.replace(file, taken_as=releases)
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
    stated = _stated(engine, version)
    engine = _with_tables(engine, version)
    options = {name: value for name, value in stated if not _is_table(value)}
    options |= dict.fromkeys(lacking(engine, version), False)
    usual = {name: value for name, value in options.items() if is_switch(engine, name)}
    ours = {name: value for name, value in options.items() if name not in usual}
    return with_options(choose(engine, usual).engine, ours)


def _stated(engine: Engine, version: str) -> Iterator[tuple[str, Any]]:
    """What the file says about a version alone, the nearest bound last."""
    for bound, others in engine.before.items():
        if is_before(version, bound):
            yield from others.items()
    for bound, others in engine.from_.items():
        if is_within(version, bound, ""):
            yield from others.items()


def _with_tables(engine: Engine, version: str) -> Engine:
    """The engine with the tables of its file as they are in a version.

    Raises:
        SilicastError: the file states a field that an engine does not have.
    """
    tables = [(name, value) for name, value in _stated(engine, version) if _is_table(value)]
    if not tables:
        return engine
    tree = msgspec.to_builtins(engine)
    for name, table in tables:
        tree[name] = _merged(tree.get(name), table)
    return decode(tree, Engine, file=engine.name, page=PAGES[FOLDER])


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _merged(usual: Any, other: Any) -> Any:
    """A table with what another one states; what is no table is replaced."""
    if not (_is_table(usual) and _is_table(other)):
        return other
    return usual | {name: _merged(usual.get(name), value) for name, value in other.items()}


_BUILD = re.compile(r"(latest|nightly|main|master|dev|edge|git)([-_.+:].*)?|[0-9a-f]{7,40}")
"""Tags of images and branches, and commits."""


def check_release(engine: Engine, version: str) -> list[str]:
    """A remark on a release that is later than all known ones, or on a build without a number.

    Raises:
        SilicastError: the version is neither a number of a release nor a build's name.
    """
    if _BUILD.fullmatch(version.strip().casefold()):
        taken = f"a build without a number; defaults of {engine.version} are taken"
        return [f"engine.version = {version[:40]}: {taken}"]
    if not _is_numbered(engine, version):
        known = f"known: releases {' to '.join(engine.releases)}; " if engine.releases else ""
        hint = f"{known}left out, {engine.version}"
        text = f"{version[:40]!r} is no release of {engine.name}"
        raise SilicastError(text, field="engine.version", hint=hint)
    last = engine.releases[-1] if engine.releases else ""
    if not is_after(version, last):
        return []
    known = f"{last} is the latest known release of {engine.name}, its defaults are taken"
    return [f"engine.version = {version}: {known}"]


def _is_numbered(engine: Engine, version: str) -> bool:
    """Whether a version begins as releases of the engine do; of one without releases any does."""
    prefix = engine.version.rstrip("0123456789.")  # llama.cpp has builds such as b7000
    numbered = engine.version.removeprefix(prefix)
    text = version.strip().removeprefix("v").removeprefix(prefix)
    return not numbered or text[:1].isdigit()


_WORDS = {
    "memory.usable_fraction": "it takes {:.0%} of the device's memory",
    "launch.graph_batch_sizes": "other sizes of batches are captured as graphs",
    "serving.boards": "each board has other limits of sequences, tokens a step and graphs",
    "kernels.libraries": "{} runs kernels of library {}",
    "overlap": "no second stream",
}
"""What a release has otherwise -> its effect."""


def otherwise(engine: Engine, version: str, locations: Collection[str] = ()) -> tuple[str, ...]:
    """What another version does otherwise, in words.

    Args:
        locations: architecture and maker of the device, whose kernels alone are named; () = all.

    >>> otherwise(find_engine("vllm"), "0.20")
    ("it takes 92% of the device's memory",)
    """
    words = dict[str, str]()
    for name, value in _stated(engine, version):
        words |= dict(_words(name, value, locations))
    return tuple(words.values())


def _words(name: str, value: Any, locations: Collection[str]) -> Iterator[tuple[str, str]]:
    """Name and effect of what is stated below a name; of an option its value."""
    if _is_table(value):
        for key, item in value.items():
            yield from _words(f"{name}.{key}", item, locations)
    elif name.startswith("kernels.libraries."):
        *_, location, family = name.split(".")
        subject = family.replace("_", " ") + ("" if location == USUAL else f" on {location}")
        if not locations or location in (*locations, USUAL):
            yield name, _WORDS["kernels.libraries"].format(subject, value)
    elif name in _WORDS:
        yield name, _WORDS[name].format(value)
    else:
        yield name, f"{name} = {str(value).lower() if isinstance(value, bool) else value}"


def lacking(engine: Engine, version: str) -> tuple[str, ...]:
    """Options that were off in an earlier version."""
    return tuple(name for name, first in engine.since.items() if is_before(version, first))
