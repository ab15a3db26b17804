"""The format of an architecture file: its tables, and the :class:`Architecture` made of them.

docs/how-to/design-an-accelerator.md describes every field. A level of the file is a memory or a
fan-out, outermost first; energies are of one access of ``block_words`` words.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, final

import msgspec

from silicast.accelerator.architecture import (
    ACTIONS,
    Action,
    Architecture,
    Compute,
    FanOut,
    Memory,
    Node,
    Port,
)
from silicast.accelerator.constraints import Constraints, SlotRule
from silicast.core.catalog import CATALOG
from silicast.core.compiled import read_toml
from silicast.core.errors import SilicastError, unknown_name

DESIGNS = "designs"
"""Folder of the catalog that holds ready-made architecture files."""


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Unknown keys are errors."""


class PortTable(_Strict, frozen=True):
    """``[[level.port]]``: what shares some wires of one instance."""

    words_per_cycle: float
    actions: tuple[Action, ...] = ACTIONS
    tensors: tuple[str, ...] = ()
    name: str = ""


class EnergyTable(_Strict, frozen=True):
    """``[level.energy_pj]``: of one access; ``leak`` of one cycle."""

    read: float | None = None
    fill: float | None = None
    update: float | None = None
    leak: float | None = None


class LevelTable(_Strict, frozen=True):
    """``[[level]]``: a memory, or with ``mesh`` a fan-out."""

    name: str
    mesh: tuple[int, ...] = ()
    multicast: bool = True
    reduction: bool = True
    systolic: str = ""
    hop_pj: float | None = None
    capacity_words: float | None = None
    capacity_kib: float | None = None
    word_bits: int = 8
    block_words: int = 1
    cluster: int = 1
    buffers: float = 1
    exposes_fills: bool = False
    keeps: tuple[str, ...] | None = None
    may_bypass: tuple[str, ...] = ()
    port: tuple[PortTable, ...] = ()
    energy_pj: EnergyTable = EnergyTable()
    area_um2: float | None = None


class ComputeTable(_Strict, frozen=True):
    """``[compute]``: the unit that multiplies and adds."""

    name: str = "mac"
    per_cycle: float = 1.0
    energy_pj: float | None = None
    leak_pj: float | None = None
    area_um2: float | None = None


class RuleTable(_Strict, frozen=True):
    """``[[constraint]]``: rules for the loops of one level, or of one axis of a fan-out."""

    level: str
    axis: int | None = None
    fixed: dict[str, int] = {}
    most: dict[str, int] = {}
    innermost: tuple[str, ...] = ()


class ArchitectureFile(_Strict, frozen=True):
    """The whole file."""

    name: str
    level: tuple[LevelTable, ...]
    compute: ComputeTable
    format: Literal[1] = 1
    clock_mhz: float = 1000.0
    idle_leaks: bool = True
    overhead: float = 1.0
    ramps: bool = False
    source: str = ""
    constraint: tuple[RuleTable, ...] = ()
    least_utilisation: float = 0.0


@final
class Design(msgspec.Struct, frozen=True):
    """An architecture and the rules that its mappings keep to."""

    architecture: Architecture
    constraints: Constraints


def find_design(name: str) -> Design:
    """A design of the catalog by name, or of a file by path.

    Raises:
        SilicastError: neither is there, or the file is wrong: its field is named.
    """
    return read_design(design_path(name))


def design_path(name: str) -> Path:
    """The file of a design of the catalog, or the path itself.

    Raises:
        SilicastError: no design of the catalog has this name.
    """
    if name.endswith(".toml") or "/" in name:
        return Path(name)
    known = {path.stem: path for path in sorted((CATALOG / DESIGNS).glob("*.toml"))}
    if name not in known:
        raise unknown_name(
            f"unknown design {name!r}", "design",
            f"give a path that ends in .toml, or one of {', '.join(known)}",
        )  # fmt: skip
    return known[name]


def read_design(path: Path) -> Design:
    """The architecture of a file, checked.

    Raises:
        SilicastError: it cannot be read, or is no architecture; the field is named.
    """
    design = build(read_toml(path), str(path))
    from silicast.accelerator.check import check_architecture

    for problem in check_architecture(design.architecture):
        raise SilicastError(
            f"expected {problem.expected}, found {problem.found}", field=problem.field,
            file=str(path),
        )  # fmt: skip
    return design


def build(table: Mapping[str, Any], file: str = "") -> Design:
    """The design that a decoded file describes, not yet checked.

    Raises:
        SilicastError: an unknown key, or a value of the wrong kind.
    """
    try:
        content = msgspec.convert(table, ArchitectureFile)
    except msgspec.ValidationError as error:
        said, _, where = str(error).partition(" - at `$")
        raise SilicastError(
            said, field=where.strip("`.") or "file", file=file,
            hint="see docs/how-to/design-an-accelerator.md",
        ) from None  # fmt: skip
    architecture = Architecture(
        name=content.name,
        nodes=tuple(_node(level) for level in content.level),
        compute=Compute(
            content.compute.name, content.compute.per_cycle, content.compute.energy_pj,
            content.compute.leak_pj, content.compute.area_um2,
        ),
        clock_hz=content.clock_mhz * 1e6,
        idle_leaks=content.idle_leaks,
        overhead=content.overhead,
        ramps=content.ramps,
        source=content.source,
    )  # fmt: skip
    rules = {}
    fans = {node.name for node in architecture.nodes if isinstance(node, FanOut)}
    for rule in content.constraint:
        axis = rule.axis if rule.axis is not None else (0 if rule.level in fans else -1)
        rules[rule.level, axis] = SlotRule(rule.fixed, rule.most, rule.innermost)
    return Design(architecture, Constraints(rules, content.least_utilisation))


def _node(level: LevelTable) -> Node:
    if level.mesh:
        return FanOut(
            level.name, level.mesh, level.multicast, level.reduction, level.systolic, level.hop_pj
        )
    words = level.capacity_words
    if level.capacity_kib is not None:
        words = level.capacity_kib * 1024 * 8 / level.word_bits
    energy = level.energy_pj
    return Memory(
        name=level.name, capacity_words=words, word_bits=level.word_bits,
        block_words=level.block_words, cluster=level.cluster, buffers=level.buffers,
        exposes_fills=level.exposes_fills, keeps=level.keeps, may_bypass=level.may_bypass,
        ports=tuple(
            Port(port.name or "+".join(port.actions), port.words_per_cycle, port.actions,
                 port.tensors)
            for port in level.port
        ),
        read_pj=energy.read, fill_pj=energy.fill, update_pj=energy.update,
        leak_pj_per_cycle=energy.leak, area_um2=level.area_um2,
    )  # fmt: skip
