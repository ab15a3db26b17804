"""SCALE-Sim v2 and v3: a configuration (.cfg) and topologies (.csv) of convolutions or products.

Source of the formats: ``scale_config.py`` and ``topology_utils.py`` of scalesim 3.0.0. A layout
file says where elements lie in banks; it moves no words and is not read.
"""

from __future__ import annotations

import configparser
import math
from pathlib import Path
from typing import ClassVar, final

from silicast.accelerator.counting.einsum import INPUTS, OUTPUTS, WEIGHTS, Einsum, conv2d, matmul
from silicast.accelerator.counting.layers import EinsumLayer, distinct, in_a_row
from silicast.accelerator.design.architecture import (
    Architecture,
    Compute,
    FanOut,
    Memory,
    Node,
    Port,
)
from silicast.accelerator.foreign.reader import (
    ENERGIES,
    READERS,
    ForeignReader,
    Hardware,
    Workload,
    text_of,
)
from silicast.accelerator.mapper.constraints import Constraints, SlotRule
from silicast.core.errors import SilicastError, unsupported

PRESETS = "architecture_presets"
DATAFLOWS: dict[str, tuple[str, tuple[str, str], tuple[str, str]]] = {
    "ws": (WEIGHTS, (WEIGHTS, INPUTS), (WEIGHTS, OUTPUTS)),
    "is": (INPUTS, (WEIGHTS, INPUTS), (INPUTS, OUTPUTS)),
    "os": (OUTPUTS, (INPUTS, OUTPUTS), (WEIGHTS, OUTPUTS)),
}
"""Dataflow -> what stays, and the tensors that the rows' and the columns' dimensions index."""
CONV_COLUMNS = ("height", "width", "filter height", "filter width", "channels", "filters", "stride")
GEMM_COLUMNS = ("M", "N", "K")


@final
@READERS.register
class ScaleSim(ForeignReader):
    """A systolic array below three buffers of two halves each."""

    name: ClassVar[str] = "scalesim"
    reads: ClassVar[str] = "a configuration (.cfg), a topology (.csv)"

    def is_hardware(self, path: Path) -> bool:
        return path.suffix.casefold() == ".cfg"

    def is_workload(self, path: Path) -> bool:
        return path.suffix.casefold() == ".csv"

    def hardware(self, path: Path) -> Hardware:
        """See :meth:`ForeignReader.hardware`. Words are bytes; energies are not in the file."""
        config = _Config(path)
        flow = config.word("Dataflow").casefold()
        if flow not in DATAFLOWS:
            raise SilicastError(
                f"unknown dataflow {flow!r}",
                field=f"{PRESETS}.Dataflow",
                file=str(path),
                hint=f"one of {', '.join(DATAFLOWS)}",
            )
        stays, rows, columns = DATAFLOWS[flow]
        wires = config.bandwidths()
        nodes: list[Node] = [Memory("dram", ports=_ports(wires))]
        for name, key, tensor in (
            ("ifmap_sram", "IfmapSramSzkB", INPUTS),
            ("filter_sram", "FilterSramSzkB", WEIGHTS),
            ("ofmap_sram", "OfmapSramSzkB", OUTPUTS),
        ):
            words = 1024.0 * config.number(key)
            nodes.append(Memory(name, capacity_words=words, buffers=2, keeps=(tensor,)))
        mesh = config.number("ArrayHeight"), config.number("ArrayWidth")
        nodes.append(FanOut("array", mesh, systolic=stays))
        nodes.append(Memory("register", capacity_words=1, keeps=(stays,)))
        architecture = Architecture(
            name=config.name(), nodes=tuple(nodes), compute=Compute("mac"), source=str(path)
        )
        rules = {("array", 0): SlotRule(indexing=rows), ("array", 1): SlotRule(indexing=columns)}
        return Hardware(architecture, Constraints(rules), config.notes(wires))

    def workload(self, path: Path) -> Workload:
        """Convolutions, or products where the columns are M, N, K."""
        lines = [
            (number, [cell.strip() for cell in line.split(",")])
            for number, line in enumerate(text_of(path).splitlines(), 1)
            if line.strip(" ,\t")
        ]
        if len(lines) < 2:
            raise SilicastError("holds no layer", file=str(path))
        heads = [cell.casefold() for cell in lines[0][1]]
        products = {"m", "n", "k"} <= set(heads)
        layers = [_layer(cells, number, str(path), products) for number, cells in lines[1:]]
        return Workload(distinct(layers), feeds=in_a_row(layers))


@final
class _Config:
    def __init__(self, path: Path) -> None:
        self.file = str(path)
        self.parser = configparser.ConfigParser(interpolation=None)
        try:
            self.parser.read_string(text_of(path))
        except configparser.Error as error:
            raise SilicastError(
                f"is no configuration: {str(error).splitlines()[0]}", file=self.file
            ) from None
        if not self.parser.has_section(PRESETS):
            raise SilicastError(f"has no section {PRESETS}", field=PRESETS, file=self.file)

    def word(self, key: str) -> str:
        value = self.parser.get(PRESETS, key, fallback="").strip()
        if not value:
            raise SilicastError("is missing", field=f"{PRESETS}.{key}", file=self.file)
        return value

    def number(self, key: str) -> int:
        value = self.word(key)
        if not value.isdigit() or int(value) < 1:
            raise SilicastError(
                f"expected a whole number above 0, found {value!r}",
                field=f"{PRESETS}.{key}",
                file=self.file,
            )
        return int(value)

    def name(self) -> str:
        return self.parser.get("general", "run_name", fallback="").strip(" \"'") or "scalesim"

    def bandwidths(self) -> tuple[float, ...]:
        """Words a cycle of inputs, filters and outputs, or of all; () = as many as are wanted."""
        mode = self.parser.get("run_presets", "InterfaceBandwidth", fallback="CALC").strip()
        if mode != "USER":
            return ()
        rates = []
        for part in self.word("Bandwidth").split(","):
            if not part.strip().isdigit() or int(part) < 1:
                raise SilicastError(
                    f"expected words a cycle, found {part.strip()!r}",
                    field=f"{PRESETS}.Bandwidth",
                    file=self.file,
                )
            rates.append(float(part))
        return tuple(rates)

    def notes(self, wires: tuple[float, ...]) -> tuple[str, ...]:
        notes = [ENERGIES]
        if not wires:
            notes.append("InterfaceBandwidth CALC: main memory has no port, so it limits nothing")
        if self.parser.get("sparsity", "SparsitySupport", fallback="").casefold() == "true":
            notes.append("sparsity is not taken over: give --density to design map")
        if self.parser.get("layout", "IfmapCustomLayout", fallback="").casefold() == "true":
            notes.append("layouts are not taken over: conflicts of banks are not counted")
        return tuple(notes)


def _ports(wires: tuple[float, ...]) -> tuple[Port, ...]:
    if len(wires) == 3:
        names = zip(("ifmap", "filter", "ofmap"), wires, (INPUTS, WEIGHTS, OUTPUTS), strict=True)
        return tuple(Port(name, width, tensors=(tensor,)) for name, width, tensor in names)
    return (Port("interface", wires[0]),) if wires else ()


def _layer(cells: list[str], number: int, file: str, products: bool) -> EinsumLayer:
    heads = GEMM_COLUMNS if products else CONV_COLUMNS
    sizes = []
    for head, cell in zip(heads, cells[1:], strict=False):
        if not cell.isdigit() or int(cell) < 1:
            raise SilicastError(
                f"expected a whole number above 0, found {cell!r}",
                field=f"line {number}, {head}",
                file=file,
            )
        sizes.append(int(cell))
    if len(sizes) < len(heads):
        raise SilicastError(
            f"has {len(sizes)} sizes, expected {', '.join(heads)}",
            field=f"line {number}",
            file=file,
        )
    if products:
        m, n, k = sizes
        return EinsumLayer(cells[0], matmul(m=m, n=n, k=k))
    return EinsumLayer(cells[0], _convolution(cells, sizes, number, file))


def _convolution(cells: list[str], sizes: list[int], number: int, file: str) -> Einsum:
    h, w, r, s, c, k, stride = sizes
    if r > h or s > w:
        raise SilicastError(
            f"a filter of {r} x {s} is larger than its input of {h} x {w}",
            field=f"line {number}",
            file=file,
        )
    second = cells[8] if len(cells) > 8 else ""
    if second.isdigit() and int(second) != stride:
        raise unsupported(
            f"strides {stride} and {second}", f"line {number}", "give equal strides", file=file
        )
    p, q = math.ceil((h - r + stride) / stride), math.ceil((w - s + stride) / stride)
    if "DP" in cells[0]:  # depthwise, as the tool marks it by the layer's name
        return conv2d(c=1, m=1, p=p, q=q, r=r, s=s, groups=c, stride=stride)
    return conv2d(c=c, m=k, p=p, q=q, r=r, s=s, stride=stride)
