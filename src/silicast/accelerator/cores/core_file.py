"""The format of a file of several cores: each a design, memories they share, and links.

docs/how-to/design-an-accelerator.md describes every field.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, final

from silicast.accelerator.design.architecture_file import PAGE, Design, find_design
from silicast.accelerator.design.device import main_bytes_per_s
from silicast.core.decode import Strict, decode, read_toml
from silicast.core.errors import SilicastError

PER_GB = 1e9


class CoreTable(Strict, frozen=True):
    """``[[core]]``: a design of the catalog, or a file beside this one; ``memory`` names a shared
    one, left out its outermost level is its own.
    """

    name: str
    design: str
    memory: str = ""


class SharedMemoryTable(Strict, frozen=True):
    """``[[memory]]``: what several cores have as their outermost level."""

    name: str
    gb_per_s: float
    gb: float | None = None


class CoreLinkTable(Strict, frozen=True):
    """``[[link]]``: wires between the memories of two cores, each way for itself."""

    between: tuple[str, str]
    gb_per_s: float
    pj_per_bit: float = 0.0
    latency_us: float = 0.0


class CoreFile(Strict, frozen=True):
    """Content of a file of several cores."""

    name: str
    core: tuple[CoreTable, ...]
    format: Literal[1] = 1
    memory: tuple[SharedMemoryTable, ...] = ()
    link: tuple[CoreLinkTable, ...] = ()
    source: str = ""


@final
@dataclass(frozen=True)
class Core:
    """A core.

    Attributes:
        name: in links and answers.
        design: what it is.
        memory: name of its outermost memory: a shared one's, else the core's own name.
    """

    name: str
    design: Design
    memory: str


@final
@dataclass(frozen=True)
class CoreMemory:
    """The outermost memory of one core or more.

    Attributes:
        name: as of :attr:`Core.memory`.
        bytes_per_s: that all its cores share; infinite where nothing states it.
        capacity_bytes: likewise.
    """

    name: str
    bytes_per_s: float
    capacity_bytes: float


@final
@dataclass(frozen=True)
class CoreLink:
    """One way of a link.

    Attributes:
        first, second: memories; words go from the first to the second.
        bytes_per_s, latency_s, pj_per_bit: of it.
    """

    first: str
    second: str
    bytes_per_s: float
    latency_s: float
    pj_per_bit: float


@final
@dataclass(frozen=True)
class CoreSystem:
    """Cores, their memories, and the links between these.

    Attributes:
        name: of the whole.
        cores: in the order of the file.
        memories: by name.
        links: both ways of each.
    """

    name: str
    cores: tuple[Core, ...]
    memories: Mapping[str, CoreMemory]
    links: tuple[CoreLink, ...]

    @cached_property
    def routes(self) -> dict[tuple[str, str], tuple[CoreLink, ...]]:
        """(from, to) -> links in a row, the fewest; pairs that none connect are not there."""
        routes: dict[tuple[str, str], tuple[CoreLink, ...]] = {}
        for start in self.memories:
            routes[start, start] = ()
            waiting = deque([start])
            while waiting:
                here = waiting.popleft()
                for link in self.links:
                    if link.first == here and (start, link.second) not in routes:
                        routes[start, link.second] = (*routes[start, here], link)
                        waiting.append(link.second)
        return routes

    def accesses_pj(self, core: Core, words: float, action: Literal["read", "fill"]) -> float:
        """Energy of reading from, or filling, a core's outermost memory; 0 where it has none."""
        first = core.design.architecture.memories[0]
        energy = first.read_pj if action == "read" else first.fill_pj
        return math.ceil(words / first.block_words) * (energy or 0.0)


def has_cores(name: str) -> bool:
    """Whether a word of the command line names a file of several cores."""
    path = Path(name)
    return path.suffix == ".toml" and path.is_file() and "core" in read_toml(path)


def read_cores(path: Path) -> CoreSystem:
    """The cores of a file, checked.

    Raises:
        SilicastError: it cannot be read, or is wrong: the field is named.
    """
    for error in wrong_cores(path):
        raise error
    return _built(decode(read_toml(path), CoreFile, file=str(path), page=PAGE), path)


def wrong_cores(path: Path) -> Iterator[SilicastError]:
    """Everything that is wrong with a file of several cores."""
    try:
        content = decode(read_toml(path), CoreFile, file=str(path), page=PAGE)
    except SilicastError as error:
        yield error
        return
    for field, expected, value in _wrong(content):
        yield SilicastError(f"expected {expected}, found {value}", field=field, file=str(path))
    for number, core in enumerate(content.core):
        try:
            find_design(_beside(path, core.design))
        except SilicastError as error:
            yield error if error.file else error.located(f"core[{number}].design", str(path))


def _wrong(content: CoreFile) -> Iterator[tuple[str, str, str]]:
    """(field, what was expected, what stands there) of what the tables say of each other."""
    if not content.core:
        yield "core", "at least one core", "none"
    names = [*(core.name for core in content.core), *(each.name for each in content.memory)]
    for name in sorted({name for name in names if not name or names.count(name) > 1}):
        yield "name", "a name of its own for every core and memory", f"{name!r}"
    shared = {each.name: each for each in content.memory}
    for number, core in enumerate(content.core):
        if core.memory and core.memory not in shared:
            memory_names = ", ".join(shared) or "no [[memory]] is there"
            yield (
                f"core[{number}].memory",
                f"the name of a [[memory]] ({memory_names})",
                core.memory,
            )
    yield from _wrong_memories(content)
    yield from _wrong_links(content, names)


def _wrong_memories(content: CoreFile) -> Iterator[tuple[str, str, str]]:
    used = {core.memory for core in content.core}
    for number, each in enumerate(content.memory):
        if each.name not in used:
            yield f"memory[{number}].name", "a memory that a core names", each.name
        for field, value in (("gb_per_s", each.gb_per_s), ("gb", each.gb)):
            if value is not None and not 0 < value < math.inf:
                yield f"memory[{number}].{field}", "more than 0", f"{value:g}"


def _wrong_links(content: CoreFile, names: list[str]) -> Iterator[tuple[str, str, str]]:
    memories = {core.memory or core.name for core in content.core}
    for number, (link, ends) in enumerate(zip(content.link, _ends(content), strict=True)):
        where = f"link[{number}]"
        for end in ends:
            if end not in memories:
                yield f"{where}.between", f"two of {', '.join(sorted(names))}", end
        if ends[0] == ends[1]:
            yield f"{where}.between", "two memories", f"{ends[0]} twice"
        if not 0 < link.gb_per_s < math.inf:
            yield f"{where}.gb_per_s", "more than 0", f"{link.gb_per_s:g}"
        for field, value in (("pj_per_bit", link.pj_per_bit), ("latency_us", link.latency_us)):
            if not 0 <= value < math.inf:
                yield f"{where}.{field}", "0 or more", f"{value:g}"


def _ends(content: CoreFile) -> list[tuple[str, str]]:
    """The memories that each link connects; a core stands for its memory."""
    by_core = {core.name: core.memory or core.name for core in content.core}
    return [
        (
            by_core.get(link.between[0], link.between[0]),
            by_core.get(link.between[1], link.between[1]),
        )
        for link in content.link
    ]


def _beside(path: Path, design: str) -> str:
    """A design of the catalog, or a file whose path is relative to the file that names it."""
    return str(path.parent / design) if design.endswith(".toml") or "/" in design else design


def _built(content: CoreFile, path: Path) -> CoreSystem:
    cores = tuple(
        Core(core.name, find_design(_beside(path, core.design)), core.memory or core.name)
        for core in content.core
    )
    memories = {
        each.name: CoreMemory(
            each.name, each.gb_per_s * PER_GB, math.inf if each.gb is None else each.gb * PER_GB
        )
        for each in content.memory
    }
    for core in cores:
        if core.memory == core.name:
            memories[core.name] = _memory_of(core)
    links = tuple(
        CoreLink(*ends, link.gb_per_s * PER_GB, link.latency_us * 1e-6, link.pj_per_bit)
        for link, (first, second) in zip(content.link, _ends(content), strict=True)
        for ends in ((first, second), (second, first))
    )
    return CoreSystem(content.name, cores, memories, links)


def _memory_of(core: Core) -> CoreMemory:
    """A core's outermost level as a memory of its own."""
    arch, system = core.design.architecture, core.design.content.system
    first = arch.memories[0]
    rate = main_bytes_per_s(arch) if first.hidden_ports else math.inf
    if system.memory_gb_per_s is not None:
        rate = min(rate, system.memory_gb_per_s * PER_GB)
    capacity = math.inf
    if system.memory_gb is not None:
        capacity = system.memory_gb * PER_GB
    elif first.capacity_words is not None:
        capacity = first.capacity_words * first.word_bits / 8.0
    return CoreMemory(core.name, rate, capacity)


def as_table(system: CoreSystem) -> list[dict[str, Any]]:
    """The cores, for JSON."""
    return [
        {"name": core.name, "design": core.design.architecture.name, "memory": core.memory}
        for core in system.cores
    ]
