"""Timeloop's processed description, mapping and energy tables -> our types.

Source of the format: the files that Timeloop's front end writes (``parsed-processed-input.yaml``,
version 0.4) with ``ERT.yaml`` and ``ART.yaml`` of Accelergy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from silicast.accelerator.architecture import (
    Architecture,
    Compute,
    FanOut,
    Memory,
    MetadataStore,
    Node,
    Port,
)
from silicast.accelerator.constraints import Constraints, SlotRule
from silicast.accelerator.einsum import Einsum, Rank, Tensor
from silicast.accelerator.mapping import Loop, LoopNest
from silicast.accelerator.timeloop._fields import number, rows, table, word
from silicast.accelerator.timeloop.plain_yaml import read_plain_yaml
from silicast.accelerator.timeloop.sparsity import eliminated, read_densities
from silicast.core.errors import SilicastError, unsupported

_NAME = re.compile(r"(\w+)(?:\[(\d+)\.\.(\d+)\])?$")
_COMPONENT = re.compile(r"(\w+)(?:\[\d+\.\.\d+\])?$")
_FACTOR = re.compile(r"(\w+?)\s*(<=|=|)\s*(\d+)$")
_DUMMY = "dummy_storage"
_WORD_BITS, _BLOCK = 16, 1


@final
@dataclass(frozen=True)
class Description:
    """A processed description.

    Attributes:
        architecture: with the energies and areas of the tables that stand beside it.
        einsum: the problem.
        constraints: on mappings.
        file: it was read from.
    """

    architecture: Architecture
    einsum: Einsum
    constraints: Constraints
    file: str


def read_description(path: Path, ert: Path | None = None, art: Path | None = None) -> Description:
    """A processed description; energies and areas are those of ``ert`` and ``art``.

    Raises:
        SilicastError: a file cannot be read, or says what has no meaning here.
    """
    file = str(path)
    content = table(read_plain_yaml(path), "", file)
    for key in ("architecture", "problem"):
        if key not in content:
            raise SilicastError(f"has no {key}", field=key, file=file,
                                hint="give Timeloop's parsed-processed-input.yaml")  # fmt: skip
    version = str(table(content["architecture"], "architecture", file).get("version", ""))
    if version not in {"0.4", ""}:
        raise unsupported(f"is of version {version}", "architecture.version", "0.4 is read",
                          file=file)  # fmt: skip
    einsum = _einsum(table(content["problem"], "problem", file), file)
    energies = _actions(ert) if ert else {}
    areas = _areas(art) if art else {}
    nodes = _nodes(table(content["architecture"], "architecture", file), file)
    built = _Build(einsum, energies, areas, file)
    architecture = built.architecture(nodes)
    rules = rows(
        table(content.get("architecture_constraints") or {}, "architecture_constraints", file)
        .get("targets"), "architecture_constraints.targets", file,
    )  # fmt: skip
    kept, constraints = built.constraints(rules, architecture)
    instance = table(content["problem"]["instance"], "problem.instance", file)
    densities = read_densities(instance.get("densities"), einsum, file)
    return Description(
        eliminated(kept, einsum, content.get("sparse_optimizations"), file),
        einsum.with_densities(densities), constraints, file=file,
    )  # fmt: skip


def read_mapping(path: Path, description: Description) -> LoopNest:
    """Timeloop's ``map.yaml``.

    Raises:
        SilicastError: it cannot be read, or does not belong to the description.
    """
    file = str(path)
    content = table(read_plain_yaml(path), "", file)
    architecture = description.architecture
    targets = rows(content.get("mapping"), "mapping", file)
    keeps: dict[str, frozenset[str]] = {}
    loops: dict[tuple[str, int], list[Loop]] = {}
    nodes = {node.name: node for node in architecture.nodes}
    for position, target in enumerate(targets):
        field = f"mapping[{position}]"
        entry = table(target, field, file)
        name = word(entry.get("target"), f"{field}.target", file)
        kind = entry.get("type")
        if kind in {"datatype", "bypass"}:
            if isinstance(nodes.get(name), Memory):
                keeps[name] = frozenset(str(t) for t in rows(entry.get("keep"), field, file))
        elif kind in {"temporal", "spatial"}:
            for loop in _loops(entry, name, nodes.get(name), description.einsum, field, file):
                loops.setdefault((loop.slot, loop.axis), []).append(loop)
        else:
            raise SilicastError(f"unknown type {kind!r}", field=f"{field}.type", file=file)
    ordered: list[Loop] = []
    for slot in architecture.slots:
        ordered.extend(loops.pop((architecture.nodes[slot.node].name, slot.axis), []))
    left = [loop for some in loops.values() for loop in some if loop.bound > 1]
    if left:
        raise SilicastError(
            f"loops over {left[0].dim} in {left[0].slot!r}, where the architecture has no place",
            field="mapping", file=file,
        )  # fmt: skip
    return LoopNest(tuple(ordered), keeps)


def _loops(
    entry: Mapping[str, Any], name: str, node: Node | None, einsum: Einsum, field: str, file: str
) -> list[Loop]:
    bounds = {
        dim: bound for dim, _, bound in _factors(entry.get("factors"), f"{field}.factors", file)
    }
    # Timeloop writes the innermost loop first.
    inward = _permutation(entry.get("permutation"), einsum, f"{field}.permutation", file)
    inward += [dim for dim in einsum.dims if dim not in inward]
    if entry["type"] == "temporal":
        return [Loop(name, dim, bounds.get(dim, 1)) for dim in reversed(inward)]
    split = int(entry.get("split", len(inward)))
    wide = isinstance(node, FanOut) and len(node.mesh) > 1
    axes = {
        dim: (0 if place < split else 1) if wide else 0 for place, dim in enumerate(inward)
    }  # fmt: skip
    return [Loop(name, dim, bounds.get(dim, 1), axes[dim]) for dim in reversed(inward)]


def _einsum(problem: Mapping[str, Any], file: str) -> Einsum:
    shape = table(problem.get("shape"), "problem.shape", file)
    instance = table(problem.get("instance"), "problem.instance", file)
    defaults = {
        entry["name"]: entry.get("default", 1)
        for entry in rows(shape.get("coefficients"), "problem.shape.coefficients", file)
    }
    dims = [str(dim) for dim in rows(shape.get("dimensions"), "problem.shape.dimensions", file)]
    bounds = {dim: int(number(instance.get(dim), f"problem.instance.{dim}", file)) for dim in dims}
    tensors = []
    for space in rows(shape.get("data_spaces"), "problem.shape.data_spaces", file):
        ranks: list[Rank] = []
        for rank in space["projection"]:
            terms = []
            for term in rank:
                coefficient = instance.get(term[1], defaults.get(term[1])) if len(term) > 1 else 1
                where = f"problem.instance.{term[-1]}"
                terms.append((str(term[0]), int(number(coefficient, where, file))))
            ranks.append(tuple(terms))
        tensors.append(Tensor(str(space["name"]), tuple(ranks), bool(space.get("read_write"))))
    return Einsum(str(shape.get("name", "problem")), bounds, tuple(tensors))


def _nodes(architecture: Mapping[str, Any], file: str) -> list[tuple[str, int, Mapping[str, Any]]]:
    """(name, instances, entry) of each node, outermost first."""
    found: list[tuple[str, int, Mapping[str, Any]]] = []

    def walk(trees: list[Any], field: str) -> None:
        for position, tree in enumerate(trees):
            here = f"{field}[{position}]"
            for place, part in enumerate(rows(tree.get("local"), f"{here}.local", file)):
                entry = table(part, f"{here}.local[{place}]", file)
                match = _NAME.match(str(entry.get("name", "")))
                if match is None:
                    raise SilicastError(
                        f"expected a name like 'buffer[1..16]', found {entry.get('name')!r}",
                        field=f"{here}.local[{place}].name", file=file,
                    )  # fmt: skip
                found.append((match[1], int(match[3] or 1), entry))
            walk(rows(tree.get("subtree"), f"{here}.subtree", file), f"{here}.subtree")

    walk(rows(architecture.get("subtree"), "architecture.subtree", file), "architecture.subtree")
    if not found:
        raise SilicastError("has no components", field="architecture.subtree", file=file)
    return found


def _actions(path: Path) -> dict[str, dict[str, float]]:
    """Component -> action -> pJ, of an energy reference table."""
    content = table(read_plain_yaml(path), "", str(path))
    found: dict[str, dict[str, float]] = {}
    for entry in rows(table(content.get("ERT"), "ERT", str(path)).get("tables"), "ERT", str(path)):
        match = _COMPONENT.search(str(entry["name"]))
        if match:
            found[match[1]] = {str(a["name"]): float(a["energy"]) for a in entry["actions"]}
    return found


def _areas(path: Path) -> dict[str, float]:
    """Component -> um2 of one instance, of an area reference table."""
    content = table(read_plain_yaml(path), "", str(path))
    found: dict[str, float] = {}
    for entry in rows(table(content.get("ART"), "ART", str(path)).get("tables"), "ART", str(path)):
        match = _COMPONENT.search(str(entry["name"]))
        if match:
            found[match[1]] = float(entry["area"])
    return found


@final
class _Build:
    def __init__(
        self, einsum: Einsum, energies: Mapping[str, Mapping[str, float]],
        areas: Mapping[str, float], file: str,
    ) -> None:  # fmt: skip
        self.einsum = einsum
        self.energies = energies
        self.areas = areas
        self.file = file

    def architecture(self, found: list[tuple[str, int, Mapping[str, Any]]]) -> Architecture:
        """Fan-outs are where the mesh grows: below the node that the loops in space belong to."""
        nodes: list[Node] = []
        cycle = 1e-9
        for place, (name, _, entry) in enumerate(found[:-1]):
            if entry.get("class") != _DUMMY:
                nodes.append(self.memory(name, found[place][1], entry))
            fan = self.fan_out(name, entry, found[place + 1][2])
            if fan is not None:
                nodes.append(fan)
        name, _, entry = found[-1]
        compute = Compute(
            name, energy_pj=self.energies.get(name, {}).get("compute"),
            area_um2=self.areas.get(name),
            gated_pj=_idle(self.energies.get(name, {}), "gated_compute"),
        )  # fmt: skip
        return Architecture(
            name=Path(self.file).parent.name, nodes=tuple(nodes), compute=compute,
            clock_hz=1 / cycle, idle_leaks=False, scales_blocks=True, source=self.file,
        )  # fmt: skip

    def fan_out(
        self, name: str, above: Mapping[str, Any], below: Mapping[str, Any]
    ) -> FanOut | None:
        """The mesh grows along x, y or both; a memory's own fan-out takes its name and a mark."""

        def mesh(entry: Mapping[str, Any]) -> tuple[int, int]:
            attributes = table(entry.get("attributes") or {}, f"{name}.attributes", self.file)
            return int(attributes.get("meshX", 1)), int(attributes.get("meshY", 1))

        (x0, y0), (x1, y1) = mesh(above), mesh(below)
        if x1 % x0 or y1 % y0:
            raise SilicastError(
                f"a mesh of {x0} x {y0} cannot fan out to {x1} x {y1}", field=name, file=self.file
            )
        if (x0, y0) == (x1, y1):
            return None
        own = name if above.get("class") == _DUMMY else f"{name}.fan_out"
        return FanOut(own, (x1 // x0, y1 // y0))

    def memory(self, name: str, instances: int, entry: Mapping[str, Any]) -> Memory:
        """A storage component."""
        attributes = table(entry.get("attributes") or {}, f"{name}.attributes", self.file)

        def value(key: str, default: float | None = None) -> float | None:
            found = attributes.get(key, default)
            return None if found is None else number(found, f"{name}.{key}", self.file)

        bits = int(value("datawidth") or _WORD_BITS)
        width = value("width")
        cluster = int(value("cluster_size") or 1)
        block = max(1, int(width // (bits * cluster))) if width else _BLOCK
        depth = value("depth")
        pj = self.energies.get(name, {}).get
        return Memory(
            name=name, capacity_words=None if depth is None else depth * block, word_bits=bits,
            block_words=block, cluster=min(cluster, instances),
            buffers=value("multiple_buffering") or 1, ports=_ports(value),
            read_pj=pj("read"), fill_pj=pj("write"), update_pj=pj("update"),
            leak_pj_per_cycle=pj("leak"), area_um2=self.areas.get(name),
            metadata=self.metadata(name, value),
            gated_pj=_idle(self.energies.get(name, {}), "gated_read"),
            expand_pj=pj("decompression_count"), compress_pj=pj("compression_count"),
            recodes=bool(attributes.get("decompression_supported")
                         or attributes.get("compression_supported")),
        )  # fmt: skip

    def metadata(self, name: str, value: Any) -> MetadataStore:
        """Where a component keeps metadata; without a word width, a word is one access wide."""
        width = int(value("metadata_storage_width") or 0)
        bits = int(value("metadata_datawidth") or width or value("datawidth") or _WORD_BITS)
        block = max(1, width // bits)
        depth = value("metadata_storage_depth")
        pj = self.energies.get(name, {}).get
        return MetadataStore(
            word_bits=bits,
            block_words=block,
            capacity_words=None if not depth else depth * block,
            read_pj=pj("metadata_read"),
            fill_pj=pj("metadata_write"),
            update_pj=pj("metadata_update"),
        )

    def constraints(
        self, entries: list[Any], architecture: Architecture
    ) -> tuple[Architecture, Constraints]:
        """The architecture with what each memory keeps, and the rules for its slots."""
        rules: dict[tuple[str, int], SlotRule] = {}
        keeps: dict[str, tuple[str, ...]] = {}
        bypasses: dict[str, tuple[str, ...]] = {}
        nodes = {node.name: node for node in architecture.nodes}
        for position, target in enumerate(entries):
            field = f"architecture_constraints.targets[{position}]"
            entry = table(target, field, self.file)
            name = str(entry.get("target", ""))
            kind = entry.get("type")
            if kind in {"bypass", "datatype"}:
                keeps[name] = tuple(str(t) for t in rows(entry.get("keep"), field, self.file))
                bypasses[name] = tuple(str(t) for t in rows(entry.get("bypass"), field, self.file))
                continue
            node = nodes.get(name)
            if node is None:
                continue  # loops of a place that fans nothing out
            if kind == "spatial" and isinstance(node, Memory):
                node = nodes.get(f"{name}.fan_out")
            for axis, rule in self.rules(entry, node, field).items():
                if node is not None and (axis >= 0) == isinstance(node, FanOut):
                    rules[node.name, axis] = rule
        changed = tuple(
            replace(
                node,
                keeps=tuple(
                    t for t in self.einsum.names if t not in bypasses.get(node.name, ())
                ) if index else None,
                may_bypass=tuple(
                    t for t in self.einsum.names
                    if t not in keeps.get(node.name, ()) and t not in bypasses.get(node.name, ())
                ) if index else (),
            ) if isinstance(node, Memory) else node
            for index, node in enumerate(architecture.nodes)
        )  # fmt: skip
        return replace(architecture, nodes=changed), Constraints(self.rest(rules))

    def rest(self, rules: Mapping[tuple[str, int], SlotRule]) -> dict[tuple[str, int], SlotRule]:
        """A factor of 0 is what the other ones leave of its dimension."""
        left = dict(self.einsum.bounds)
        for rule in rules.values():
            for dim, bound in rule.fixed.items():
                left[dim] = left[dim] // bound if bound else left[dim]
        return {
            place: replace(
                rule, fixed={dim: bound or left[dim] for dim, bound in rule.fixed.items()}
            )
            for place, rule in rules.items()
        }

    def rules(
        self, entry: Mapping[str, Any], node: Node | None, field: str
    ) -> dict[int, SlotRule]:  # fmt: skip
        """Axis -> rule, of one entry."""
        fixed: dict[str, int] = {}
        most: dict[str, int] = {}
        for dim, sign, bound in _factors(entry.get("factors"), f"{field}.factors", self.file):
            (most if sign == "<=" else fixed)[dim] = bound
        inward = _permutation(
            entry.get("permutation"), self.einsum, f"{field}.permutation", self.file
        )
        if entry.get("type") == "temporal":
            return {-1: SlotRule(fixed, most, tuple(inward))}
        if "split" not in entry or not isinstance(node, FanOut):
            return {axis: SlotRule(fixed, most) for axis in range(2)}
        split = int(entry["split"])
        every = inward + [dim for dim in self.einsum.dims if dim not in inward]
        found = {}
        for axis in range(2):
            barred = every[split:] if axis == 0 else every[:split]
            inside = dict.fromkeys(barred, 1) | {
                dim: bound for dim, bound in fixed.items() if dim not in barred
            }
            found[axis] = SlotRule(inside, most)
        return found


def _idle(energies: Mapping[str, float], action: str) -> float:
    """Of an access that is gated: as its table says, else nothing beyond leakage."""
    return energies.get(action, energies.get("idle", 0.0))


def _ports(value: Any) -> tuple[Port, ...]:
    found = []
    shared, read, write = (
        value("shared_bandwidth"),
        value("read_bandwidth"),
        value("write_bandwidth"),
    )
    if shared:
        found.append(Port("shared", shared))
    if read:
        found.append(Port("read", read, ("read",)))
    if write:
        found.append(Port("write", write, ("fill", "update")))
    return tuple(found)


def _factors(value: Any, field: str, file: str) -> list[tuple[str, str, int]]:
    """(dimension, sign, bound) of ``C3 M1``, ``N=1,C<=8`` or a list of such words."""
    parts = value if isinstance(value, list) else re.split(r"[\s,]+", str(value or "").strip())
    found = []
    for part in parts:
        if not str(part):
            continue
        match = _FACTOR.match(str(part).strip())
        if match is None:
            raise SilicastError(f"expected C=3, found {part!r}", field=field, file=file)
        found.append((match[1], match[2] or "=", int(match[3])))
    return found


def _permutation(value: Any, einsum: Einsum, field: str, file: str) -> list[str]:
    """Dimensions, innermost first."""
    if value is None:
        return []
    parts = value if isinstance(value, list) else re.split(r"[\s,]+", str(value).strip())
    if len(parts) == 1 and parts[0] not in einsum.dims:
        parts = list(str(parts[0]))
    unknown = [part for part in parts if part and part not in einsum.dims]
    if unknown:
        raise SilicastError(f"no dimension {unknown[0]!r}", field=field, file=file)
    return [str(part) for part in parts if part]
