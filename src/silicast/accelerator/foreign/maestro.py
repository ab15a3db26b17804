"""MAESTRO: a chip (``key: value`` lines, .m) and a network with its dataflow (.m).

Dataflows are not taken over: the mapper finds its own. Source of the formats: the files under
``data/hw`` and ``data/mapping`` of the tool.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, final

from silicast.accelerator.counting.einsum import Einsum, conv2d, matmul
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
from silicast.accelerator.mapper.constraints import Constraints
from silicast.core.errors import SilicastError, unsupported

PAIR = re.compile(r"\s*(\w+)\s*:\s*([\w.]+)\s*,?\s*$")
LAYER = re.compile(r"\bLayer\s+([\w./-]+)\s*\{")
FIELD = re.compile(r"(\w+)\s*:\s*([\w.]+)")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
SIZES = ("num_pes", "l1_size_cstr", "l2_size_cstr", "noc_bw_cstr", "offchip_bw_cstr")


@final
@READERS.register
class Maestro(ForeignReader):
    """Processing elements with a buffer each, below a shared one."""

    name: ClassVar[str] = "maestro"
    reads: ClassVar[str] = "a chip (.m with num_pes), a network (.m with Layer)"

    def is_hardware(self, path: Path) -> bool:
        """A file of ``key: value`` lines that has the number of elements."""
        return path.suffix == ".m" and "num_pes" in text_of(path)

    def is_workload(self, path: Path) -> bool:
        """A file with layers."""
        return path.suffix == ".m" and LAYER.search(text_of(path)) is not None

    def hardware(self, path: Path) -> Hardware:
        """See :meth:`ForeignReader.hardware`. Sizes are bytes, widths bytes a cycle there."""
        chip = _chip(path)
        nodes: list[Node] = [
            Memory("dram", ports=_port(chip, "offchip_bw_cstr")),
            Memory(
                "l2",
                capacity_words=chip.get("l2_size_cstr"),
                buffers=2,
                ports=_port(chip, "noc_bw_cstr"),
            ),
            FanOut("pes", (int(chip["num_pes"]),)),
            Memory("l1", capacity_words=chip.get("l1_size_cstr"), buffers=2),
        ]
        architecture = Architecture(path.stem, tuple(nodes), Compute("mac"), source=str(path))
        notes = [ENERGIES]
        notes += [f"{key} is not taken over" for key in sorted(set(chip) - set(SIZES))]
        return Hardware(architecture, Constraints(), tuple(notes))

    def workload(self, path: Path) -> Workload:
        """Layers by their dimensions; dataflows are not taken over, the mapper finds its own."""
        layers: list[EinsumLayer] = []
        left: dict[str, int] = {}
        for name, kind, sizes, strides in _layers(path):
            if kind not in {"CONV", "DSCONV", "GEMM"}:
                left[kind] = left.get(kind, 0) + 1
                continue
            layers.append(EinsumLayer(name, _einsum(name, kind, sizes, strides, str(path))))
        return Workload(distinct(layers), left, in_a_row(layers))


def _chip(path: Path) -> dict[str, float]:
    chip: dict[str, float] = {}
    for index, line in enumerate(COMMENT.sub("", text_of(path)).splitlines(), 1):
        if not line.strip():
            continue
        match = PAIR.match(line)
        if match is None:
            raise SilicastError(
                f"expected num_pes: 256, found {line.strip()[:40]!r}",
                field=f"line {index}",
                file=str(path),
            )
        try:
            value = float(match[2])
        except ValueError:
            raise SilicastError(
                f"expected a number, found {match[2]!r}", field=match[1], file=str(path)
            ) from None
        if value <= 0:
            raise SilicastError(
                f"expected more than 0, found {match[2]}", field=match[1], file=str(path)
            )
        chip[match[1]] = value
    if "num_pes" not in chip:
        raise SilicastError("is missing", field="num_pes", file=str(path))
    return chip


def _port(table: dict[str, float], key: str) -> tuple[Port, ...]:
    return (Port("shared", table[key]),) if key in table else ()


def _layers(path: Path) -> Iterator[tuple[str, str, dict[str, int], dict[str, int]]]:
    """(name, type, dimensions, strides) of every layer."""
    text = COMMENT.sub("", text_of(path))
    for match in LAYER.finditer(text):
        body = _braced(text, match.end() - 1, str(path))
        kind = re.search(r"\bType\s*:\s*(\w+)", body)
        if kind is None:
            raise SilicastError("has no Type", field=match[1], file=str(path))
        dims = _table(body, "Dimensions", match[1], str(path))
        if not dims:
            raise SilicastError("has no Dimensions", field=match[1], file=str(path))
        yield match[1], kind[1].upper(), dims, _table(body, "Stride", match[1], str(path))


def _braced(text: str, start: int, file: str) -> str:
    depth = 0
    for index in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if depth == 0:
            return text[start + 1 : index]
    raise SilicastError("ends inside a brace", file=file)


def _table(body: str, head: str, layer: str, file: str) -> dict[str, int]:
    match = re.search(rf"\b{head}\s*\{{([^}}]*)\}}", body)
    table = {}
    for key, value in FIELD.findall(match[1]) if match else ():
        if not value.isdigit() or int(value) < 1:
            raise SilicastError(
                f"expected a whole number above 0, found {value!r}",
                field=f"{layer}.{head}.{key}",
                file=file,
            )
        table[key.upper()] = int(value)
    return table


def _einsum(
    name: str, kind: str, sizes: dict[str, int], strides: dict[str, int], file: str
) -> Einsum:
    wanted = ("M", "N", "K") if kind == "GEMM" else ("C", "R", "S", "Y", "X")
    for key in wanted if kind != "CONV" else (*wanted, "K"):
        if key not in sizes:
            raise SilicastError(f"has no {key}", field=f"{name}.Dimensions", file=file)
    batch = sizes.get("N", 1)
    if kind == "GEMM":
        return matmul(m=sizes["M"], n=batch, k=sizes["K"])
    stride = strides.get("X", 1)
    if strides.get("Y", stride) != stride:
        raise unsupported("has two strides", f"{name}.Stride", "give equal strides", file=file)
    if sizes["R"] > sizes["Y"] or sizes["S"] > sizes["X"]:
        raise SilicastError("a filter is larger than its input", field=name, file=file)
    p = (sizes["Y"] - sizes["R"]) // stride + 1
    q = (sizes["X"] - sizes["S"]) // stride + 1
    window = {"p": p, "q": q, "r": sizes["R"], "s": sizes["S"], "n": batch, "stride": stride}
    if kind == "DSCONV":
        return conv2d(c=1, m=sizes.get("K", 1), groups=sizes["C"], **window)
    return conv2d(c=sizes["C"], m=sizes["K"], **window)
