"""The format of an architecture file: its tables, and the :class:`Architecture` made of them.

docs/how-to/design-an-accelerator.md describes every field. A level of the file is a memory or a
fan-out, outermost first; energies are of one access of ``block_words`` words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, final

import msgspec

from silicast.accelerator.design.architecture import (
    ACTIONS,
    Action,
    Architecture,
    Compute,
    Elimination,
    FanOut,
    Memory,
    MetadataStore,
    Node,
    Port,
)
from silicast.accelerator.design.published_energy import with_every_cycle, with_wires
from silicast.accelerator.mapper.constraints import Constraints, SlotRule
from silicast.accelerator.zeros.formats import WHOLE_FORMATS, TensorFormat, format_named
from silicast.core.catalog import CATALOG
from silicast.core.decode import Strict, decode, read_toml
from silicast.core.errors import SilicastError, errors_located, unknown_name
from silicast.hardware.device_file import DeviceLinkTable

PAGE = "docs/how-to/design-an-accelerator.md"
DESIGNS = "designs"
"""Folder of the catalog that holds ready-made architecture files."""


class PortTable(Strict, frozen=True):
    """``[[level.port]]``: what shares some wires of one instance."""

    words_per_cycle: float
    actions: tuple[Action, ...] = ACTIONS
    tensors: tuple[str, ...] = ()
    name: str = ""
    exposed: bool = False


class EnergyTable(Strict, frozen=True):
    """``[level.energy_pj]``: of one access; ``leak`` of one cycle; the others of one word."""

    read: float | None = None
    fill: float | None = None
    update: float | None = None
    leak: float | None = None
    gated: float = 0.0
    expand: float | None = None
    compress: float | None = None


class MetadataTable(Strict, frozen=True):
    """``[level.metadata]``: where what describes compressed tensors is kept."""

    word_bits: int = 8
    block_words: int = 1
    capacity_words: float | None = None
    capacity_kib: float | None = None
    read_pj: float | None = None
    fill_pj: float | None = None
    update_pj: float | None = None


class EliminationTable(Strict, frozen=True):
    """``[[level.skip]]``, ``[[level.gate]]``: accesses that are left out."""

    target: str
    when_zero: tuple[str, ...]


class LevelTable(Strict, frozen=True):
    """``[[level]]``: a memory, or with ``mesh`` a fan-out."""

    name: str
    mesh: tuple[int, ...] = ()
    multicast: bool = True
    reduction: bool = True
    systolic: str = ""
    hop_pj: float | None = None
    hop_mm: float | None = None
    capacity_words: float | None = None
    capacity_kib: float | None = None
    word_bits: int = 8
    tensor_bits: dict[str, int] = {}
    block_words: int = 1
    cluster: int = 1
    buffers: float = 1
    bank_words: float | None = None
    exposes_fills: bool = False
    keeps: tuple[str, ...] | None = None
    may_bypass: tuple[str, ...] = ()
    port: tuple[PortTable, ...] = ()
    energy_pj: EnergyTable | float = EnergyTable()
    area_um2: float | None = None
    waits: bool = False
    format: dict[str, str | tuple[str, ...]] = {}
    skip: tuple[EliminationTable, ...] = ()
    gate: tuple[EliminationTable, ...] = ()
    metadata: MetadataTable | None = None
    recodes: bool = False


class FormatTable(Strict, frozen=True):
    """``[compute.formats.bf16]``: what differs for products in a format."""

    per_cycle: float | None = None
    energy_pj: float | None = None


class ComputeUnitTable(Strict, frozen=True):
    """``[compute]``: the unit that multiplies and adds; ``formats`` left out = in any format."""

    name: str = "mac"
    per_cycle: float = 1.0
    energy_pj: float | None = None
    leak_pj: float | None = None
    area_um2: float | None = None
    on_zero: Literal["multiply", "gate", "skip"] = "multiply"
    gated_pj: float = 0.0
    formats: dict[str, FormatTable] = {}


class VectorTable(Strict, frozen=True):
    """``[vector]``: units of the whole chip for what is no product; operations of one number.

    ``operations``: what a compiled library takes of ``per_cycle`` for an element of a kind
    (``gelu = 92.5``), transcendentals included, where somebody counted.
    """

    per_cycle: float
    special_per_cycle: float | None = None
    energy_pj: float | None = None
    special_energy_pj: float | None = None
    operations: dict[str, float] = {}


class SystemTable(Strict, frozen=True):
    """``[system]``: what a device is beyond its chip."""

    memory_gb: float | None = None
    memory_gb_per_s: float | None = None
    memory_technology: str = ""
    power_w: float | None = None
    idle_w: float | None = None
    launch_us: float | None = None
    devices_per_node: int = 8
    results_stay_in: str = ""
    time_log_sd: float | None = None
    trains: bool = True
    links: dict[str, DeviceLinkTable] = {}


class EveryCycleTable(Strict, frozen=True):
    """``[every_cycle]``: energy of the whole chip in a cycle of work, whatever is done in it.

    "published": the share that it has in published layouts, of a cycle in which all units work.
    """

    clock_tree_pj: float | Literal["published"] | None = None
    control_pj: float | Literal["published"] | None = None


class StoredTable(Strict, frozen=True):
    """``[[mapping]]``: a mapping that `silicast design compile` found.

    ``loops`` are outermost first, as "level.axis dim bound" with the axis of a fan-out; ``density``
    is that by which it was searched.
    """

    op: str
    bits: float
    sizes: dict[str, int]
    loops: tuple[str, ...]
    keeps: dict[str, tuple[str, ...]]
    format: str = ""
    gap: float = 0.0
    density: dict[str, str] = {}


class RuleTable(Strict, frozen=True):
    """``[[constraint]]``: rules for the loops of one level, or of one axis of a fan-out."""

    level: str
    axis: int | None = None
    fixed: dict[str, int] = {}
    most: dict[str, int] = {}
    innermost: tuple[str, ...] = ()
    indexing: tuple[str, ...] = ()


class FillTable(Strict, frozen=True):
    """``fill``: the tensor that takes a memory's room before all others."""

    level: str
    tensor: str
    cut: tuple[str, ...] = ()


class PolicyTable(Strict, frozen=True):
    """``[policy]``, ``[policies.NAME]``: what a mapper prefers."""

    objective: Literal["energy", "latency", "edp"] | None = None
    first: str = ""
    round_up: dict[str, tuple[int, ...]] = {}
    fill: FillTable | None = None
    constraint: tuple[RuleTable, ...] = ()


class ArchitectureFile(Strict, frozen=True):
    """Content of an architecture file."""

    name: str
    level: tuple[LevelTable, ...]
    compute: ComputeUnitTable
    format: Literal[1] = 1
    clock_mhz: float = 1000.0
    idle_leaks: bool = True
    overhead: float = 1.0
    ramps: bool = False
    source: str = ""
    constraint: tuple[RuleTable, ...] = ()
    least_utilisation: float = 0.0
    density: dict[str, str | float] = {}
    policy: PolicyTable = PolicyTable()
    policies: dict[str, PolicyTable] = {}
    every_cycle: EveryCycleTable = EveryCycleTable()
    node_nm: float | None = None
    vector: VectorTable | None = None
    system: SystemTable = SystemTable()
    mapping: tuple[StoredTable, ...] = ()


@final
class Design(msgspec.Struct, frozen=True):
    """An architecture and the rules that its mappings keep to.

    Attributes:
        content: the file, with densities that it counts on and what a system needs beyond the chip.
    """

    architecture: Architecture
    constraints: Constraints
    content: ArchitectureFile


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
    paths = design_names()
    if name not in paths:
        raise unknown_name(
            f"unknown design {name!r}",
            "design",
            f"give a path that ends in .toml, or one of {', '.join(paths)}",
        )
    return paths[name]


def design_names() -> dict[str, Path]:
    """The designs of the catalog, each with its file.

    >>> "systolic-128" in design_names()
    True
    """
    return {path.stem: path for path in sorted((CATALOG / DESIGNS).glob("*.toml"))}


def read_design(path: Path) -> Design:
    """The architecture of a file, checked.

    Raises:
        SilicastError: it cannot be read, or is no architecture; the field is named.
    """
    return checked(read_toml(path), str(path))


def checked(table: Mapping[str, Any], file: str = "") -> Design:
    """:func:`build`, and nothing of it is wrong: the one check of all commands.

    Raises:
        SilicastError: it is no architecture; the field is named.
    """
    design = build(table, file)
    for error in _wrong(design, file):
        raise error
    return design


def all_wrong(table: Mapping[str, Any], file: str = "") -> list[SilicastError]:
    """Everything for which :func:`checked` or any command refuses a file; empty = nothing."""
    from silicast.accelerator.design.device import wrong_as_device

    try:
        design = build(table, file)
    except SilicastError as error:
        return [error]
    return _wrong(design, file) or [each.error(file) for each in wrong_as_device(design)]


def _wrong(design: Design, file: str) -> list[SilicastError]:
    from silicast.accelerator.design.check import check_architecture
    from silicast.accelerator.design.content_check import check_content

    problems = (*check_architecture(design.architecture), *check_content(design))
    return [problem.error(file) for problem in problems]


def build(table: Mapping[str, Any], file: str = "") -> Design:
    """The design that a decoded file describes, not yet checked.

    Raises:
        SilicastError: an unknown key, or a value of the wrong kind.
    """
    if "core" in table:
        raise SilicastError(
            "describes several cores, expected one design",
            field="core",
            hint="`silicast design map` takes it; everything else takes the design of one core",
            file=file,
        )
    try:
        content = decode(table, ArchitectureFile, file=file, page=PAGE)
    except SilicastError as error:
        raise error.located(_by_name(error.field, table)) from None
    architecture = Architecture(
        name=content.name,
        nodes=_nodes(content, file),
        compute=Compute(
            content.compute.name,
            content.compute.per_cycle,
            content.compute.energy_pj,
            content.compute.leak_pj,
            content.compute.area_um2,
            content.compute.on_zero,
            content.compute.gated_pj,
        ),
        clock_hz=content.clock_mhz * 1e6,
        idle_leaks=content.idle_leaks,
        overhead=content.overhead,
        ramps=content.ramps,
        source=content.source,
    )
    cycle = content.every_cycle
    architecture = with_every_cycle(architecture, cycle.clock_tree_pj, cycle.control_pj)
    rules = rules_of(content.constraint, architecture)
    return Design(architecture, Constraints(rules, content.least_utilisation), content)


def rules_of(
    tables: tuple[RuleTable, ...], architecture: Architecture
) -> dict[tuple[str, int], SlotRule]:
    """Rules by level and axis (-1 = loops in time), as :class:`Constraints` takes them."""
    fans = {node.name for node in architecture.nodes if isinstance(node, FanOut)}
    rules = {}
    for rule in tables:
        axis = rule.axis if rule.axis is not None else (0 if rule.level in fans else -1)
        rules[rule.level, axis] = SlotRule(rule.fixed, rule.most, rule.innermost, rule.indexing)
    return rules


def _by_name(field: str, table: Mapping[str, Any]) -> str:
    """A path whose level is called by its name instead of its number.

    >>> _by_name("level[1].capcity_kib", {"level": [{"name": "dram"}, {"name": "buffer"}]})
    'buffer.capcity_kib'
    """
    match = re.match(r"level\[(\d+)\]", field)
    levels = table.get("level")
    if match is None or not isinstance(levels, list | tuple) or len(levels) <= int(match[1]):
        return field
    level = levels[int(match[1])]
    name = level.get("name") if isinstance(level, Mapping) else None
    return f"{name}{field[match.end() :]}" if isinstance(name, str) and name else field


def _nodes(content: ArchitectureFile, file: str) -> tuple[Node, ...]:
    with errors_located(file=file):
        nodes = tuple(_node(level) for level in content.level)
        lengths = {each.name: each.hop_mm for each in content.level if each.hop_mm is not None}
        return with_wires(nodes, lengths, content.node_nm)


def _node(level: LevelTable) -> Node:
    if level.mesh:
        return FanOut(
            level.name,
            level.mesh,
            level.multicast,
            level.reduction,
            level.systolic,
            level.hop_pj,
            level.waits,
        )
    words = _capacity_words(level.capacity_words, level.capacity_kib, level.word_bits, level.name)
    energy = level.energy_pj
    if not isinstance(energy, EnergyTable):  # one number is that of any access
        energy = EnergyTable(energy, energy, energy)
    return Memory(
        name=level.name, capacity_words=words, word_bits=level.word_bits,
        block_words=level.block_words, cluster=level.cluster, buffers=level.buffers,
        exposes_fills=level.exposes_fills, keeps=level.keeps, may_bypass=level.may_bypass,
        ports=tuple(
            Port(
                port.name or "+".join(port.actions), port.words_per_cycle, port.actions,
                port.tensors, port.exposed,
            )
            for port in level.port
        ),
        read_pj=energy.read, fill_pj=energy.fill, update_pj=energy.update,
        leak_pj_per_cycle=energy.leak, area_um2=level.area_um2,
        formats=tuple(_format(level.name, *each) for each in level.format.items()),
        eliminations=(
            *(Elimination("skip", rule.target, rule.when_zero) for rule in level.skip),
            *(Elimination("gate", rule.target, rule.when_zero) for rule in level.gate),
        ),
        metadata=_metadata(level.metadata, f"{level.name}.metadata"), gated_pj=energy.gated,
        expand_pj=energy.expand, compress_pj=energy.compress, recodes=level.recodes,
        bank_words=level.bank_words, tensor_bits=tuple(sorted(level.tensor_bits.items())),
    )  # fmt: skip


def _format(level: str, tensor: str, ranks: str | tuple[str, ...]) -> TensorFormat:
    """``csr``, one format for the whole tile, or a list with one for each rank."""
    field = f"{level}.format.{tensor}"
    if isinstance(ranks, str):
        ranks = WHOLE_FORMATS.get(ranks.lower(), (ranks,))
    if not ranks:
        raise SilicastError("expected at least one rank", field=field)
    return TensorFormat(tensor, tuple(format_named(rank, field) for rank in ranks))


def _capacity_words(
    words: float | None, kib: float | None, word_bits: int, level: str
) -> float | None:
    """Of one instance, by the field that states it; None = neither does: it is never full."""
    if kib is None:
        return words
    if words is not None:
        raise SilicastError(
            f"capacity_kib = {kib:g} beside capacity_words = {words:g}",
            field=f"{level}.capacity_kib",
            hint="keep one of them",
        )
    return kib * 1024 * 8 / max(word_bits, 1)  # 0 is refused later


def _metadata(table: MetadataTable | None, where: str) -> MetadataStore | None:
    if table is None:
        return None
    words = _capacity_words(table.capacity_words, table.capacity_kib, table.word_bits, where)
    return MetadataStore(
        table.word_bits, table.block_words, words, table.read_pj, table.fill_pj, table.update_pj
    )
