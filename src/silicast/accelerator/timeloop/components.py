"""Timeloop's tree of components -> an architecture; attributes by any spelling that it takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from silicast.accelerator.design.architecture import (
    Architecture,
    Compute,
    FanOut,
    Memory,
    MetadataStore,
    Node,
    Port,
)
from silicast.core.errors import SilicastError, unsupported
from silicast.formats.fields import Fields

SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "depth": ("depth", "memory_depth", "data_storage_depth", "storage_depth"),
    "entries": ("entries",),
    "width": ("width", "memory_width", "data_storage_width", "storage_width"),
    "word_bits": ("datawidth", "word_bits", "word_width", "data_width"),
    "block_size": ("block_size", "n_words"),
    "cluster_size": ("cluster_size",),
    "shared_bandwidth": ("shared_bandwidth",),
    "read_bandwidth": ("read_bandwidth",),
    "write_bandwidth": ("write_bandwidth",),
    "multiple_buffering": ("multiple_buffering",),
    "metadata_storage_width": ("metadata_storage_width",),
    "metadata_storage_depth": ("metadata_storage_depth",),
    "metadata_datawidth": ("metadata_datawidth", "metadata_word_bits"),
    "decompression_supported": ("decompression_supported",),
    "compression_supported": ("compression_supported",),
}
"""Attribute -> what it may be called; ``-`` and ``_`` are the same."""

PLACES = ("meshX", "meshY", "spatial")
ELSEWHERE = frozenset({
    "technology", "type", "version", "n_banks", "num_banks", "nports", "num_ports", "n_ports",
    "n_rdwr_ports", "n_rd_ports", "n_wr_ports", "update_fifo_depth", "metadata_counter_width",
    "multiplier_width", "adder_width", "global_cycle_seconds", "cycle_time", "instances",
})  # fmt: skip
"""What reaches Timeloop's counts through the energy tables only, or is read of the whole chip."""
DEFAULTS: Mapping[str, Any] = {
    "min_utilization": 0,
    "allow_overbooking": False,
    "reduction_supported": True,
    "multicast_supported": True,
    "has_power_gating": False,
    "power_gated_at": None,
}
"""What changes counts in a way that is not read: anything else is refused."""


@final
@dataclass(frozen=True)
class Attributes:
    """Those of one component.

    Attributes:
        values: by our names; those of outer parts of the tree among them.
        unused: what says nothing here.
    """

    component: str
    values: Mapping[str, Any]
    unused: tuple[str, ...]
    file: str

    def flag(self, key: str) -> bool:
        """Whether an attribute is set."""
        return bool(self.values.get(key))

    def above(self, key: str) -> float | None:
        """A number that is more than 0; None = not given."""
        return self._fields.number(key, above=0.0) if self._fields.has(key) else None

    def amount(self, key: str) -> float | None:
        """A number of 0 or more; None = not given."""
        return self._fields.number(key) if self._fields.has(key) else None

    @property
    def _fields(self) -> Fields:
        return Fields(self.values, self.component, self.file)


def attributes_of(
    component: str, given: Mapping[str, Any], outer: Mapping[str, Any], file: str
) -> Attributes:
    """The attributes of a component.

    Args:
        given: its own.
        outer: of the parts of the tree that it stands in, which it has where it states no own.

    Raises:
        SilicastError: two spellings that disagree, or one that changes counts and is not read.
    """
    values: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    for key, value in given.items():
        name = key if key in PLACES else str(key).replace("-", "_")
        if name in attributes and attributes[name] != value:
            raise SilicastError("is given twice", field=f"{component}.{key}", file=file)
        attributes[name] = value
    outside = {str(key).replace("-", "_"): value for key, value in outer.items()}
    for name, spellings in SPELLINGS.items():
        for source in (attributes, outside):
            table = {word: source[word] for word in spellings if source.get(word) is not None}
            if len(set(map(str, table.values()))) > 1:
                spelled = ", ".join(f"{word} = {value}" for word, value in table.items())
                raise SilicastError(
                    f"{spelled} are the same attribute",
                    field=f"{component}.{name}",
                    file=file,
                    hint="keep one of them",
                )
            if table:
                values[name] = next(iter(table.values()))
                break
    for name, default in DEFAULTS.items():
        if attributes.get(name) is not None and attributes[name] != default:
            raise unsupported(
                f"is {attributes[name]}, which is not counted",
                f"{component}.{name}",
                f"only {default} is read",
                file=file,
            )
    read_names = {
        *ELSEWHERE,
        *DEFAULTS,
        *PLACES,
        *(w for words in SPELLINGS.values() for w in words),
    }
    unused = tuple(key for key in attributes if key not in read_names)
    return Attributes(component, values, unused, file)


_NAME = re.compile(r"(\w+)(?:\[(\d+)\.\.(\d+)\])?$")
_DUMMY = "dummy_storage"
_WORD_BITS, _BLOCK, _CYCLE_S = 16, 1, 1e-9
_PROCESSED = "give Timeloop's parsed-processed-input.yaml"
_ENTRY = frozenset(
    {"name", "class", "subclass", "attributes", "required_actions", "spatial", "enabled"}
)
_CYCLE = "global_cycle_seconds"


@final
@dataclass(frozen=True)
class Component:
    """One of the tree.

    Attributes:
        name: without its range.
        kind: its class.
        attributes: its own, and those of the parts of the tree that it stands in.
        mesh: instances of the whole chip, along x and y.
    """

    name: str
    kind: str
    attributes: Attributes
    mesh: tuple[int, int]

    @property
    def is_dummy(self) -> bool:
        """Whether it holds nothing, and only says where loops in space are."""
        return self.kind == _DUMMY


@final
class ComponentTree:
    """The section ``architecture``, read.

    Attributes:
        components: outermost first.
        cycles_s: of the clock -> where it is stated.
        notes: what is not used.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.components: list[Component] = []
        self.cycles_s: dict[float, str] = {}
        self.notes: list[str] = []

    @property
    def cycle_s(self) -> float:
        """Of the clock.

        Raises:
            SilicastError: parts of the tree have different ones.
        """
        if len(self.cycles_s) > 1:
            clocks = " and ".join(
                f"{value:g} s in {where}" for value, where in self.cycles_s.items()
            )
            raise unsupported(f"is {clocks}", _CYCLE, "a chip has one clock here", file=self.file)
        return next(iter(self.cycles_s), _CYCLE_S)


def read_tree(architecture: Fields) -> ComponentTree:
    """Every component with its attributes and mesh.

    Raises:
        SilicastError: something has no meaning; the component is named.
    """
    tree = ComponentTree(architecture.file)
    _walk(tree, architecture, {}, 1)
    if not tree.components:
        raise architecture.error("has no components", "subtree")
    names = [component.name for component in tree.components]
    for name in names:
        if names.count(name) > 1:
            raise architecture.error(f"{names.count(name)} components are called {name!r}", "")
    return tree


def _walk(tree: ComponentTree, part: Fields, outer: Mapping[str, Any], count: int) -> None:
    """The components of a part of the tree, and those of its parts."""
    table = _table(part, "attributes")
    attributes = {**outer, **table.values}
    _note_cycle(tree, Fields(table.values, part.path, part.file))
    for entry in part.tables("local"):
        tree.components.append(_component(tree, entry, attributes, count))
    for inner in part.tables("subtree"):
        _, instances = _ranged(inner.get("name") or "", inner, any_name=True)
        _walk(tree, inner, attributes, count * (instances or 1))


def _table(part: Fields, name: str) -> Fields:
    """A table; an empty value of any kind is an empty one."""
    return part.table(name) if part.get(name) else Fields({}, part.path, part.file)


def _note_cycle(tree: ComponentTree, attributes: Fields) -> None:
    cycle = attributes.get(_CYCLE)
    if cycle is not None and not isinstance(cycle, str):  # "must_specify" says nothing
        tree.cycles_s.setdefault(attributes.number(_CYCLE, above=0.0), attributes.path)


def _component(
    tree: ComponentTree, entry: Fields, outer: Mapping[str, Any], count: int
) -> Component:
    name, instances = _ranged(entry.get("name"), entry)
    named = Fields(entry.values, name, entry.file)
    values = _table(named, "attributes").values
    if entry.values.get("enabled", True) is not True:
        raise named.error("is not enabled", "enabled", "take it out", "unsupported")
    for key in ("constraints", "sparse_optimizations"):
        if entry.get(key):
            raise named.error("stands inside of a component", key, _PROCESSED, "unsupported")
    attributes = attributes_of(name, values, outer, entry.file)
    _note_cycle(tree, Fields(values, name, entry.file))
    unused = [*attributes.unused, *(key for key in entry.names() if key not in _ENTRY)]
    tree.notes.extend(f"{name}: {key} is not used" for key in unused)
    inside = _table(Fields(values, name, entry.file), "spatial").values
    positions = {**_table(named, "spatial").values, **values, **inside}
    total = None if instances is None and count == 1 else count * (instances or 1)
    mesh = _mesh(Fields(positions, name, entry.file), total)
    return Component(name, str(entry.values.get("class", "")), attributes, mesh)


def _mesh(fields: Fields, total: int | None) -> tuple[int, int]:
    """Instances along x and y; the range of a name says how many there are in all."""
    x, y = (fields.count(key) if fields.has(key) else None for key in ("meshX", "meshY"))
    if total is None:
        return x or 1, y or 1
    if x is None:
        x = total // y if y else total
    y = y or (total // x or 1)
    if x * y != total:
        raise fields.error(
            f"a mesh of {x} x {y} has {x * y} instances, its name says {total}",
            "meshX",
            "make both the same",
        )
    return x, y


def _ranged(value: Any, entry: Fields, *, any_name: bool = False) -> tuple[str, int | None]:
    """Name and number of instances of ``buffer[1..16]``; None = it has no range."""
    match = _NAME.search(str(value)) if any_name else _NAME.match(str(value or ""))
    where = "" if any_name else "name"
    if match is None:
        if any_name:
            return str(value), None
        raise entry.error(f"expected a name like 'buffer[1..16]', found {value!r}", where)
    if match[2] is None:
        return match[1], None
    if int(match[3]) < int(match[2]):
        raise entry.error(f"the range of {value!r} is empty", where)
    return match[1], int(match[3]) - int(match[2]) + 1


def built(
    tree: ComponentTree, energies: Mapping[str, Mapping[str, float]], areas: Mapping[str, float]
) -> Architecture:
    """Fan-outs are where the mesh grows: below the node that the loops in space belong to.

    Raises:
        SilicastError: numbers out of range; the component is named.
    """
    nodes: list[Node] = []
    for index, each in enumerate(tree.components[:-1]):
        if not each.is_dummy:
            nodes.append(_memory(each, energies.get(each.name, {}), areas.get(each.name)))
        fan = _fan_out(each, tree.components[index + 1], tree.file)
        if fan is not None:
            nodes.append(fan)
    name = tree.components[-1].name
    pj = energies.get(name, {})
    compute = Compute(
        name,
        energy_pj=pj.get("compute"),
        area_um2=areas.get(name),
        gated_pj=_idle(pj, "gated_compute"),
    )
    return Architecture(
        name=Path(tree.file).parent.name or Path(tree.file).stem,
        nodes=tuple(nodes),
        compute=compute,
        clock_hz=float(f"{1 / tree.cycle_s:.12g}"),
        idle_leaks=False,
        scales_blocks=True,
        source=tree.file,
    )


def _fan_out(above_: Component, below: Component, file: str) -> FanOut | None:
    """The mesh grows along x, y or both; a memory's own fan-out takes its name and a mark."""
    (x0, y0), (x1, y1) = above_.mesh, below.mesh
    if x1 % x0 or y1 % y0:
        raise SilicastError(
            f"a mesh of {x0} x {y0} cannot fan out to the {x1} x {y1} of {below.name}",
            field=above_.name,
            file=file,
        )
    if (x0, y0) == (x1, y1):
        return None
    name = above_.name if above_.is_dummy else f"{above_.name}.fan_out"
    return FanOut(name, (x1 // x0, y1 // y0))


def _memory(component: Component, energies: Mapping[str, float], area: float | None) -> Memory:
    name, attributes, pj = component.name, component.attributes, energies.get
    bits = int(attributes.above("word_bits") or _WORD_BITS)
    cluster = int(attributes.above("cluster_size") or 1)
    block = _block(attributes, bits, cluster)
    return Memory(
        name=name, capacity_words=_capacity(attributes, block), word_bits=bits, block_words=block,
        cluster=min(cluster, component.mesh[0] * component.mesh[1]),
        buffers=attributes.above("multiple_buffering") or 1, ports=_ports(attributes),
        read_pj=pj("read"), fill_pj=pj("write"), update_pj=pj("update"),
        leak_pj_per_cycle=pj("leak"), area_um2=area, metadata=_metadata(attributes, energies),
        gated_pj=_idle(energies, "gated_read"),
        expand_pj=pj("decompression_count"), compress_pj=pj("compression_count"),
        recodes=attributes.flag("decompression_supported")
        or attributes.flag("compression_supported"),
    )  # fmt: skip


def _block(attributes: Attributes, bits: int, cluster: int) -> int:
    """Words of one access: stated, or as many as its width holds."""
    width, block = attributes.above("width"), attributes.above("block_size")
    if block is not None:
        if width is not None and width != block * bits * cluster:
            raise SilicastError(
                f"width = {width:g} is not block_size {block:g} x {bits} bits x {cluster}",
                field=f"{attributes.component}.block_size",
                file=attributes.file,
                hint="keep one of them",
            )
        return int(block)
    return max(1, int(width // (bits * cluster))) if width is not None else _BLOCK


def _capacity(attributes: Attributes, block: int) -> float | None:
    """Words of one instance: ``entries`` counts words, ``depth`` accesses."""
    depth, entries = attributes.above("depth"), attributes.above("entries")
    if depth is None:
        return entries
    if entries is not None and entries != depth * block:
        raise SilicastError(
            f"entries = {entries:g} words is not depth {depth:g} x {block}",
            field=f"{attributes.component}.entries",
            file=attributes.file,
            hint="keep one of them",
        )
    return depth * block


def _metadata(attributes: Attributes, energies: Mapping[str, float]) -> MetadataStore:
    """Where a component keeps metadata; without a word width, a word is one access wide."""
    width = int(attributes.amount("metadata_storage_width") or 0)
    bits = int(
        attributes.amount("metadata_datawidth")
        or width
        or attributes.above("word_bits")
        or _WORD_BITS
    )
    block = max(1, width // bits)
    depth = attributes.amount("metadata_storage_depth")
    pj = energies.get
    return MetadataStore(
        word_bits=bits,
        block_words=block,
        capacity_words=depth * block if depth else None,
        read_pj=pj("metadata_read"),
        fill_pj=pj("metadata_write"),
        update_pj=pj("metadata_update"),
    )


def _idle(energies: Mapping[str, float], action: str) -> float:
    """Of an access that is gated: as its table says, else nothing beyond leakage."""
    return energies.get(action, energies.get("idle", 0.0))


def _ports(attributes: Attributes) -> tuple[Port, ...]:
    """What each kind of access has; without one, nothing limits it."""
    shared, read, write = (
        attributes.above(f"{kind}_bandwidth") for kind in ("shared", "read", "write")
    )
    return (
        *((Port("shared", shared),) if shared else ()),
        *((Port("read", read, ("read",)),) if read else ()),
        *((Port("write", write, ("fill", "update")),) if write else ()),
    )
