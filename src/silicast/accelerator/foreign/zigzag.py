"""ZigZag: an accelerator (YAML) and layers (YAML).

Source of the formats: ``accelerator_validator.py``, ``workload_validator.py`` of zigzag-dse 3.9.1.
I1 are taken as inputs and I2 as weights, which is how its own files link them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, final

from silicast.accelerator.counting.einsum import INPUTS, OUTPUTS, WEIGHTS, Einsum, Rank, Tensor
from silicast.accelerator.counting.layers import Layer, distinct, in_a_row
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
from silicast.accelerator.timeloop._fields import above, number, rows, table, word
from silicast.core.errors import SilicastError, unsupported
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
class ZigZag(ForeignReader):
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
        return _Build(table(read_yaml(path), "", str(path)), str(path)).hardware()

    def workload(self, path: Path) -> Workload:
        """Layers that multiply; poolings and sums are counted among those that are left."""
        file = str(path)
        layers: list[Layer] = []
        left: dict[str, int] = {}
        other: dict[str, None] = {}
        for index, entry in enumerate(rows(read_yaml(path), "", file)):
            where = f"[{index}]"
            layer = table(entry, where, file)
            kind = word(layer.get("operator_type"), f"{where}.operator_type", file)
            equation = word(layer.get("equation"), f"{where}.equation", file)
            match = MULTIPLY.match(equation)
            if match is None or "Pool" in kind or kind == "Add":
                left[kind] = left.get(kind, 0) + 1
                continue
            name = str(layer.get("name") or f"{kind} {layer.get('id', index)}")
            layers.append(Layer(name, _einsum(layer, match, where, file)))
            given = table(layer.get("operand_precision") or {}, f"{where}.operand_precision", file)
            other |= {f"{key} {bits}": None for key, bits in given.items() if bits != WORD_BITS}
        note = (
            f"operand_precision ({', '.join(other)}) is not used: words are as wide as the "
            "memories of the chip say"
        )
        return Workload(distinct(layers), left, in_a_row(layers), (note,) if other else ())


def _content(path: Path) -> Any:
    if path.suffix.casefold() not in {".yaml", ".yml"} or not path.is_file():
        return None
    return read_yaml(path)


@final
class _Build:
    """Memories from the outermost inwards, and the fan-outs between them."""

    def __init__(self, content: Mapping[str, Any], file: str) -> None:
        self.content, self.file = content, file
        array = table(content.get(ARRAY), ARRAY, file)
        if array.get("is_imc"):
            raise unsupported(
                "computes in memory",
                f"{ARRAY}.is_imc",
                "arrays of multipliers below memories are read",
                file=file,
            )
        dims = [str(d) for d in rows(array.get("dimensions"), f"{ARRAY}.dimensions", file)]
        sizes = rows(array.get("sizes"), f"{ARRAY}.sizes", file)
        if len(dims) != len(sizes) or not dims:
            raise SilicastError(
                f"has {len(dims)} dimensions and {len(sizes)} sizes", field=ARRAY, file=file
            )
        self.sizes = {
            dim: int(number(size, f"{ARRAY}.sizes", file))
            for dim, size in zip(dims, sizes, strict=True)
        }
        self.array = array
        self.notes = [f"words are taken to be {WORD_BITS} bits; precisions are of layers there"]

    def hardware(self) -> Hardware:
        memories = list(table(self.content.get("memories"), "memories", self.file).items())
        if not memories:
            raise SilicastError("has no memories", field="memories", file=self.file)
        nodes: list[Node] = []
        served = set(self.sizes)
        # The file lists the innermost first.
        memories.reverse()
        for name, entry in sorted(memories, key=lambda m: -len(self.served(str(m[0]), m[1]))):
            where = f"memories.{name}"
            serves = self.served(str(name), entry)
            if not serves <= served:
                raise unsupported(
                    f"serves {', '.join(sorted(serves - served))}, which a memory outside does not",
                    where,
                    "memories that stand one below the other are read",
                    file=self.file,
                )
            nodes += self.fans(served - serves)
            served = serves
            nodes.append(self.memory(str(name), table(entry, where, self.file), bool(nodes)))
        nodes += self.fans(served)
        if self.array.get("systolic_dimensions"):
            self.notes.append("systolic_dimensions: filling and emptying the mesh is not counted")
        compute = Compute(
            "mac",
            energy_pj=self.amount(self.array, "unit_energy", ARRAY),
            area_um2=self.amount(self.array, "unit_area", ARRAY),
        )
        name = str(self.content.get("name") or Path(self.file).stem)
        architecture = Architecture(name, tuple(nodes), compute, source=self.file)
        self.notes.append("areas have no unit there: they are taken as um2")
        return Hardware(architecture, self.constraints(), tuple(self.notes))

    def served(self, name: str, entry: Any) -> set[str]:
        where = f"memories.{name}"
        some = rows(
            table(entry, where, self.file).get("served_dimensions"),
            f"{where}.served_dimensions",
            self.file,
        )
        unknown = sorted({str(dim) for dim in some} - set(self.sizes))
        if unknown:
            raise SilicastError(
                f"no dimension {unknown[0]!r}",
                field=f"{where}.served_dimensions",
                file=self.file,
                hint=f"there are {', '.join(self.sizes)}",
            )
        return {str(dim) for dim in some}

    def fans(self, dims: set[str]) -> list[Node]:
        return [FanOut(dim, (size,)) for dim, size in self.sizes.items() if dim in dims]

    def amount(self, entry: Mapping[str, Any], key: str, where: str) -> float | None:
        value = entry.get(key)
        return None if value is None else float(number(value, f"{where}.{key}", self.file))

    def memory(self, name: str, entry: Mapping[str, Any], inside: bool) -> Memory:
        where = f"memories.{name}"
        if entry.get("auto_cost_extraction"):
            self.notes.append(f"{name}: its costs come from CACTI there; give them here")
        operands = self.tensors(rows(entry.get("operands"), f"{where}.operands", self.file), where)
        ports, widest = self.ports(entry, where)
        read, write = self.amount(entry, "r_cost", where), self.amount(entry, "w_cost", where)
        size = above(entry.get("size"), f"{where}.size", self.file)
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
            area_um2=self.amount(entry, "area", where) if inside else None,
        )

    def tensors(self, names: list[Any], where: str) -> tuple[str, ...]:
        for name in names:
            if name not in OPERANDS:
                raise SilicastError(
                    f"no operand {name!r}",
                    field=f"{where}.operands",
                    file=self.file,
                    hint="I1, I2 and O",
                )
        return tuple(dict.fromkeys(OPERANDS[name] for name in names))

    def ports(self, entry: Mapping[str, Any], where: str) -> tuple[tuple[Port, ...], float]:
        items, widest = [], float(WORD_BITS)
        for index, each in enumerate(rows(entry.get("ports"), f"{where}.ports", self.file)):
            here = f"{where}.ports[{index}]"
            port = table(each, here, self.file)
            width = number(port.get("bandwidth_max"), f"{here}.bandwidth_max", self.file)
            if width <= 0:
                raise SilicastError(
                    f"expected more than 0 bits a cycle, found {width:g}",
                    field=f"{here}.bandwidth_max",
                    file=self.file,
                )
            widest = max(widest, width)
            actions: dict[Action, None] = {}
            tensors: dict[str, None] = {}
            for use in rows(port.get("allocation"), f"{here}.allocation", self.file):
                operand, _, way = (part.strip() for part in str(use).partition(","))
                action = DIRECTIONS.get((way, operand == "O"))
                if operand not in OPERANDS:
                    raise SilicastError(
                        f"expected an operand and a direction, found {use!r}",
                        field=f"{here}.allocation",
                        file=self.file,
                    )
                if action is not None:
                    actions[action] = None
                    tensors[OPERANDS[operand]] = None
            if actions:
                name = str(port.get("name") or f"port_{index}")
                items.append(Port(name, width / WORD_BITS, tuple(actions), tuple(tensors)))
        return tuple(items), widest

    def constraints(self) -> Constraints:
        """``dataflows`` of the file: which dimensions stand side by side."""
        rules = {}
        flows = table(self.content.get("dataflows") or {}, "dataflows", self.file)
        for dim, entries in flows.items():
            most = dict.fromkeys(DIMS.values(), 1)
            for entry in rows(entries, f"dataflows.{dim}", self.file):
                name, _, count = (part.strip() for part in str(entry).partition(","))
                most[DIMS.get(name, name)] = int(count) if count.isdigit() else 1
            rules[str(dim), 0] = SlotRule(most=most)
        return Constraints(rules)


def _einsum(layer: Mapping[str, Any], match: re.Match[str], where: str, file: str) -> Einsum:
    dims = rows(layer.get("loop_dims"), f"{where}.loop_dims", file)
    sizes = rows(layer.get("loop_sizes"), f"{where}.loop_sizes", file)
    if len(dims) != len(sizes):
        raise SilicastError(
            f"has {len(dims)} loop_dims and {len(sizes)} loop_sizes", field=where, file=file
        )
    bounds = {
        _dim(str(dim)): int(number(size, f"{where}.loop_sizes", file))
        for dim, size in zip(dims, sizes, strict=True)
    }
    sums: dict[str, Rank] = {}
    for relation in rows(layer.get("dimension_relations"), f"{where}.dimension_relations", file):
        result = RELATION.match(str(relation))
        if result is None:
            raise SilicastError(
                f"expected ix = 2*ox + 1*fx, found {relation!r}",
                field=f"{where}.dimension_relations",
                file=file,
            )
        name, a, left, b, right = result.groups()
        terms = ((_dim(left), int(a or 1)), (_dim(right), int(b or 1)))
        sums[name.upper()] = tuple(term for term in terms if term[0] in bounds)
    tensors = []
    for position in (3, 5, 1):
        letter = match[position]
        indices = re.findall(r"\[(\w+)\]", match[position + 1])
        ranks = tuple(sums.get(i.upper(), ((_dim(i), 1),)) for i in indices)
        tensors.append(Tensor(TENSORS.get(letter, letter), ranks, is_output=position == 1))
    remaining = tuple(sorted(tensors, key=lambda t: (t.is_output, t.name != WEIGHTS)))
    try:
        return Einsum(str(layer.get("operator_type")).casefold(), bounds, remaining)
    except SilicastError as error:
        raise error.at(where, file) from None


def _dim(name: str) -> str:
    return DIMS.get(name.upper(), name.upper())
