"""ZigZag: an accelerator (YAML) and layers (YAML).

Source of the formats: ``accelerator_validator.py``, ``workload_validator.py`` of zigzag-dse 3.9.1.
I1 are taken as inputs and I2 as weights, which is how its own files link them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, final

from silicast.accelerator.counting.einsum import (
    INPUTS,
    OUTPUTS,
    WEIGHTS,
    Einsum,
    EinsumTensor,
    Rank,
)
from silicast.accelerator.counting.layers import EinsumLayer, distinct, in_a_row
from silicast.accelerator.design.architecture import (
    Action,
    Architecture,
    Compute,
    FanOut,
    Memory,
    Node,
    Port,
)
from silicast.accelerator.foreign.reader import READERS, ForeignReader, Hardware, Workload
from silicast.accelerator.mapper.constraints import Constraints, SlotRule
from silicast.core.errors import errors_at
from silicast.formats.fields import Fields
from silicast.formats.yaml_file import read_yaml

ARRAY = "operational_array"
OPERANDS = {"I1": INPUTS, "I2": WEIGHTS, "O": OUTPUTS}
TENSORS = {"I": INPUTS, "W": WEIGHTS, "O": OUTPUTS}
DIMS = {"K": "M", "C": "C", "OX": "Q", "OY": "P", "FX": "S", "FY": "R", "B": "N", "G": "G"}
"""Its names of dimensions -> ours; others keep theirs."""
WORD_BITS = 8
DIRECTIONS: dict[tuple[str, bool], Action] = {
    ("tl", False): "read",
    ("fh", False): "fill",
    ("tl", True): "read",
    ("th", True): "read",
    ("fh", True): "fill",
    ("fl", True): "update",
}
"""(to or from low or high, whether results) -> what we call it; drains count where they arrive."""
MULTIPLY = re.compile(
    r"\s*(\w+)((?:\[\w+\])+)\s*\+=\s*(\w+)((?:\[\w+\])+)\s*\*\s*(\w+)((?:\[\w*\])+)"
)
RELATION = re.compile(r"\s*(\w+)\s*=\s*(?:(\d+)\s*\*\s*)?(\w+)\s*\+\s*(?:(\d+)\s*\*\s*)?(\w+)\s*$")


@final
@READERS.register
class ZigZagReader(ForeignReader):
    """Memories that serve some dimensions of an array of multipliers."""

    name: ClassVar[str] = "zigzag"
    reads: ClassVar[str] = "an accelerator (.yaml with operational_array), a list of layers (.yaml)"

    def is_hardware(self, path: Path) -> bool:
        """A YAML file with an operational array."""
        content = _content(path)
        return isinstance(content, Mapping) and ARRAY in content

    def is_workload(self, path: Path) -> bool:
        """A YAML file that is a list of layers with equations."""
        content = _content(path)
        return isinstance(content, list) and any(
            isinstance(entry, Mapping) and "equation" in entry for entry in content
        )

    def hardware(self, path: Path) -> Hardware:
        repeated: list[str] = []
        content = Fields({"": read_yaml(path, repeated)}, file=str(path)).table("", needed=True)
        return _Build(
            content, [f"{each}: the last counts, as there" for each in repeated]
        ).hardware()

    def workload(self, path: Path) -> Workload:
        """Layers that multiply; poolings and sums are counted among those that are left."""
        file = str(path)
        layers: list[EinsumLayer] = []
        left: dict[str, int] = {}
        other: dict[str, None] = {}
        for index, layer in enumerate(Fields({"": read_yaml(path)}, file=file).tables("")):
            kind = layer.text("operator_type", default=None)
            equation = layer.text("equation", default=None)
            match = MULTIPLY.match(equation)
            if match is None or "Pool" in kind or kind == "Add":
                left[kind] = left.get(kind, 0) + 1
                continue
            name = str(layer.get("name") or f"{kind} {layer.values.get('id', index)}")
            layers.append(EinsumLayer(name, _einsum(layer, match)))
            precision = layer.table("operand_precision").values
            other |= {f"{key} {bits}": None for key, bits in precision.items() if bits != WORD_BITS}
        note = (
            f"operand_precision ({', '.join(other)}) is not used: words are as wide as the "
            "memories of the chip say"
        )
        return Workload(distinct(layers), left, in_a_row(layers), (note,) if other else ())


def _content(path: Path) -> Any:
    if path.suffix.casefold() not in {".yaml", ".yml"} or not path.is_file():
        return None
    return read_yaml(path, [])


@final
class _Build:
    """Memories from the outermost inwards, and the fan-outs between them."""

    def __init__(self, content: Fields, notes: Sequence[str] = ()) -> None:
        self.content, self.file = content, content.file
        array = content.table(ARRAY, needed=True)
        if array.get("is_imc"):
            raise array.error(
                "computes in memory",
                "is_imc",
                "arrays of multipliers below memories are read",
                "unsupported",
            )
        dims = [str(dim) for dim in array.rows("dimensions")]
        if len(dims) != len(array.rows("sizes")) or not dims:
            sizes = len(array.rows("sizes"))
            raise array.error(f"has {len(dims)} dimensions and {sizes} sizes", "")
        self.sizes = dict(zip(dims, _integers(array, "sizes"), strict=True))
        self.array = array
        self.shared: dict[str, set[str]] = {}
        """Dimension -> operands whose words its instances share, whatever stands along it."""
        self.notes = [
            *notes,
            f"words are taken to be {WORD_BITS} bits; precisions are of layers there",
        ]

    def hardware(self) -> Hardware:
        tables = self.content.table("memories", needed=True)
        memories = [tables.table(name, needed=True) for name in tables.names()]
        if not memories:
            raise self.content.error("has no memories", "memories")
        nodes: list[Node] = []
        served = set(self.sizes)
        # The file lists the innermost first.
        memories.reverse()
        if self.served(memories[0]) != served:
            name = memories[0].path.removeprefix("memories.")
            self.notes.append(f"{name}: the outermost memory is taken to serve every dimension")
        chain, apart = self.chain(memories)
        for entry in chain:
            serves = self.served(entry) if nodes else served
            nodes += self.fans(served - serves)
            served = serves
            nodes.append(self.memory(entry, bool(nodes)))
        nodes += self.fans(served)
        for entry in apart:
            self.put_apart(nodes, entry)
        if self.array.get("systolic_dimensions"):
            self.notes.append("systolic_dimensions: filling and emptying the mesh is not counted")
        compute = Compute(
            "mac",
            energy_pj=_amount(self.array, "unit_energy"),
            area_um2=_amount(self.array, "unit_area"),
        )
        name = str(self.content.get("name") or Path(self.file).stem)
        architecture = Architecture(name, tuple(nodes), compute, source=self.file)
        self.notes.append("areas have no unit there: they are taken as um2")
        return Hardware(architecture, self.constraints(), tuple(self.notes))

    def chain(self, memories: list[Fields]) -> tuple[list[Fields], list[Fields]]:
        """Memories that stand one below the other, outermost first, and those that do not: of
        operands that other dimensions share than results are added over.

        Raises:
            SilicastError: two memories of results do not stand one below the other.
        """
        first, *others = memories
        chain: list[Fields] = []
        apart: list[Fields] = []
        for entry in sorted(others, key=lambda entry: "O" not in entry.rows("operands")):
            serves = self.served(entry)
            crossed = [
                o for o in chain if not (serves <= self.served(o) or serves >= self.served(o))
            ]
            if not crossed:
                chain.append(entry)
                continue
            if "O" in entry.rows("operands"):
                beyond = ", ".join(sorted(serves - self.served(crossed[0])))
                raise entry.error(
                    f"serves {beyond}, which a memory outside does not",
                    "",
                    "memories of results that stand one below the other are read",
                    "unsupported",
                )
            apart.append(entry)
        order = {id(entry): number for number, entry in enumerate(others)}
        chain.sort(key=lambda entry: (-len(self.served(entry)), order[id(entry)]))
        return [first, *chain], apart

    def put_apart(self, nodes: list[Node], entry: Fields) -> None:
        """A memory below dimensions that it does not serve; those that it serves and that stand
        above it share its accesses, and hold the same words.
        """
        serves = self.served(entry)
        fans = [n for n, node in enumerate(nodes) if isinstance(node, FanOut)]
        position = 1 + max((n for n in fans if nodes[n].name not in serves), default=len(nodes) - 1)
        above = [nodes[n].name for n in fans if n < position and nodes[n].name in serves]
        memory = self.memory(entry, inside=True)
        shared = math.prod(self.sizes[dim] for dim in above)
        nodes.insert(position, replace(memory, cluster=shared))
        for dim in above:
            self.shared.setdefault(dim, set()).update(memory.keeps or ())
        self.notes.append(
            f"{memory.name}: {shared} units along {', '.join(above)} share it; only loops that do "
            f"not index {', '.join(memory.keeps or ())} run along these"
        )

    def served(self, entry: Fields) -> set[str]:
        dims = {str(dim) for dim in entry.rows("served_dimensions")}
        unknown = sorted(dims - set(self.sizes))
        if unknown:
            there_are = f"there are {', '.join(self.sizes)}"
            raise entry.error(f"no dimension {unknown[0]!r}", "served_dimensions", there_are)
        return dims

    def fans(self, dims: set[str]) -> list[Node]:
        return [FanOut(dim, (size,)) for dim, size in self.sizes.items() if dim in dims]

    def memory(self, entry: Fields, inside: bool) -> Memory:
        name = entry.path.removeprefix("memories.")
        if entry.get("auto_cost_extraction"):
            self.notes.append(f"{name}: its costs come from CACTI there; give them here")
        names = entry.known("operands", OPERANDS)
        operands = tuple(dict.fromkeys(OPERANDS[name] for name in names))
        ports, widest = self.ports(entry)
        read, write = _amount(entry, "r_cost"), _amount(entry, "w_cost")
        size = entry.number("size", above=0.0)
        return Memory(
            name,
            capacity_words=size / WORD_BITS if inside else None,
            word_bits=WORD_BITS,
            block_words=max(1, int(widest / WORD_BITS)),
            keeps=operands if inside else None,
            buffers=2 if entry.get("force_double_buffering") else 1,
            ports=ports,
            read_pj=read,
            fill_pj=write,
            update_pj=write,
            area_um2=_amount(entry, "area") if inside else None,
        )

    def ports(self, entry: Fields) -> tuple[tuple[Port, ...], float]:
        ports, widest = [], float(WORD_BITS)
        for index, port in enumerate(entry.tables("ports")):
            width = port.number("bandwidth_max", above=0.0)
            widest = max(widest, width)
            actions: dict[Action, None] = {}
            tensors: dict[str, None] = {}
            for use in port.rows("allocation"):
                operand, _, way = (part.strip() for part in str(use).partition(","))
                action = DIRECTIONS.get((way, operand == "O"))
                if operand not in OPERANDS:
                    message = f"expected an operand and a direction, found {use!r}"
                    raise port.error(message, "allocation")
                if action is not None:
                    actions[action] = None
                    tensors[OPERANDS[operand]] = None
            if actions:
                name = str(port.get("name") or f"port_{index}")
                ports.append(Port(name, width / WORD_BITS, tuple(actions), tuple(tensors)))
        return tuple(ports), widest

    def constraints(self) -> Constraints:
        """``dataflows`` of the file: which dimensions stand side by side."""
        rules = {}
        flows = self.content.table("dataflows")
        for dim in flows.names():
            most = dict.fromkeys(DIMS.values(), 1)
            for entry in flows.rows(dim):
                name, _, count = (part.strip() for part in str(entry).partition(","))
                most[DIMS.get(name, name)] = int(count) if count.isdigit() else 1
            rules[str(dim), 0] = SlotRule(most=most)
        for dim, tensors in self.shared.items():
            others = tuple(name for name in TENSORS.values() if name not in tensors)
            rules.setdefault((dim, 0), SlotRule(indexing=others))
        return Constraints(rules)


def _amount(entry: Fields, key: str) -> float | None:
    """A number of any sign; None where it is not stated."""
    return float(entry.number(key, least=-math.inf)) if entry.has(key) else None


def _integers(entry: Fields, name: str) -> list[int]:
    """A list of numbers without what follows their points."""
    sizes = {f"{name}[{index}]": size for index, size in enumerate(entry.rows(name))}
    listed = Fields(sizes, entry.path, entry.file)
    return [int(listed.number(index, least=-math.inf)) for index in sizes]


def _einsum(layer: Fields, match: re.Match[str]) -> Einsum:
    dims, sizes = layer.rows("loop_dims"), _integers(layer, "loop_sizes")
    if len(dims) != len(sizes):
        raise layer.error(f"has {len(dims)} loop_dims and {len(sizes)} loop_sizes", "")
    bounds = {_dim(str(dim)): size for dim, size in zip(dims, sizes, strict=True)}
    sums: dict[str, Rank] = {}
    for relation in layer.rows("dimension_relations"):
        result = RELATION.match(str(relation))
        if result is None:
            message = f"expected ix = 2*ox + 1*fx, found {relation!r}"
            raise layer.error(message, "dimension_relations")
        name, a, left, b, right = result.groups()
        terms = ((_dim(left), int(a or 1)), (_dim(right), int(b or 1)))
        sums[name.upper()] = tuple(term for term in terms if term[0] in bounds)
    tensors = []
    for position in (3, 5, 1):
        letter = match[position]
        indices = re.findall(r"\[(\w+)\]", match[position + 1])
        ranks = tuple(sums.get(i.upper(), ((_dim(i), 1),)) for i in indices)
        tensors.append(EinsumTensor(TENSORS.get(letter, letter), ranks, is_output=position == 1))
    ordered = tuple(sorted(tensors, key=lambda t: (t.is_output, t.name != WEIGHTS)))
    with errors_at(layer.path, layer.file):
        return Einsum(str(layer.get("operator_type")).casefold(), bounds, ordered)


def _dim(name: str) -> str:
    return DIMS.get(name.upper(), name.upper())
