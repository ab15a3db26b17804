"""AccelForge: an architecture (YAML with ``arch: nodes:``).

Source of the format: the examples and the documentation of accelforge 1.0.467. Sizes are bits,
energies joules of an action, throughputs actions a second; an action moves ``bits_per_action``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, final

from silicast.accelerator.counting.einsum import INPUTS, OUTPUTS, WEIGHTS
from silicast.accelerator.design.architecture import (
    Architecture,
    Compute,
    FanOut,
    Memory,
    Node,
    Port,
)
from silicast.accelerator.foreign.reader import ENERGIES, READERS, ForeignReader, Hardware, Workload
from silicast.accelerator.mapper.constraints import Constraints, SlotRule
from silicast.accelerator.timeloop.expressions import NoArithmeticError, evaluated
from silicast.core.errors import unsupported
from silicast.formats.fields import Fields
from silicast.formats.yaml_file import read_yaml

TENSORS = {"input": INPUTS, "weight": WEIGHTS, "output": OUTPUTS}
WORD_BITS = 8
PICO, MICRO2 = 1e-12, 1e-12
CLOCK_HZ = 1e9
VALUE_BITS = re.compile(r"\w+\.bits_per_value(\s+if\s+\w+\s+else\s+\d+)?")


@final
@READERS.register
class AccelForgeReader(ForeignReader):
    """Memories, containers with a fan-out, and what multiplies, outermost first."""

    name: ClassVar[str] = "accelforge"
    reads: ClassVar[str] = "an architecture (.yaml with arch: nodes:)"

    def is_hardware(self, path: Path) -> bool:
        """A YAML file with nodes of an architecture."""
        if path.suffix.casefold() not in {".yaml", ".yml"} or not path.is_file():
            return False
        content = read_yaml(path, [])
        arch = content.get("arch") if isinstance(content, Mapping) else None
        return isinstance(arch, Mapping) and isinstance(arch.get("nodes"), list)

    def is_workload(self, path: Path) -> bool:
        """Its workloads are einsums of names of their own: none is read."""
        del path
        return False

    def hardware(self, path: Path) -> Hardware:
        content = Fields({"": read_yaml(path)}, file=str(path)).table("", needed=True)
        return _Chain(content, path).hardware()

    def workload(self, path: Path) -> Workload:
        raise unsupported("reads no workload", file=str(path))


@final
class _Chain:
    """Nodes of one file."""

    def __init__(self, content: Fields, path: Path) -> None:
        self.path = path
        self.entries = content.table("arch", needed=True).tables("nodes")
        self.notes = [f"words are taken to be {WORD_BITS} bits; bits are of workloads there"]
        self.rules: dict[tuple[str, int], SlotRule] = {}
        unit = self.entries[-1]
        rate = _throughput(unit, "compute")
        self.clock_hz = CLOCK_HZ if rate is None else rate
        if rate is None:
            self.notes.append(f"the unit states no throughput: {CLOCK_HZ / 1e6:g} MHz are taken")

    def hardware(self) -> Hardware:
        nodes: list[Node] = []
        for entry in self.entries[:-1]:
            name = entry.text("name", default=None)
            nodes += self.fans(entry, name)
            if entry.has("tensors"):
                nodes.append(self.memory(entry, name, inside=bool(nodes)))
            elif not entry.has("spatial"):
                self.notes.append(f"{name}: units beside the last ones are not taken over")
        last = self.entries[-1]
        unit = Compute(
            last.text("name", default=None),
            energy_pj=_energy(last, "compute"),
            leak_pj_per_cycle=self.leak(last),
            area_um2=_area(last),
        )
        nodes += self.fans(last, f"{unit.name}_array")
        architecture = Architecture(
            self.path.stem, tuple(nodes), unit, self.clock_hz, source=str(self.path)
        )
        if not architecture.states_energy:
            self.notes.append(ENERGIES)
        return Hardware(architecture, Constraints(self.rules), tuple(self.notes))

    def fans(self, entry: Fields, name: str) -> list[Node]:
        """The fan-out above an entry: loops along an axis do not index what it must reuse."""
        axes = entry.tables("spatial")
        if not axes:
            return []
        fan = name if not entry.has("tensors") else f"{name}_array"
        for number, axis in enumerate(axes):
            reused = TENSORS.get(str(axis.get("reuse", "")))
            if reused is not None:
                others = tuple(tensor for tensor in TENSORS.values() if tensor != reused)
                self.rules[fan, number] = SlotRule(indexing=others)
        shares = not any(str(axis.get("may_reuse", "")) == "Nothing" for axis in axes)
        mesh = tuple(int(_amount(axis, "fanout")) for axis in axes)
        return [FanOut(fan, mesh, multicast=shares, reduction=shares)]

    def memory(self, entry: Fields, name: str, *, inside: bool) -> Memory:
        tensors = entry.table("tensors")
        must = self.named(tensors, "keep") if inside else set(TENSORS.values())
        may = self.named(tensors, "may_keep") | must
        size = _amount(entry, "size")
        bits = max(_action(entry, "read").get("bits_per_action", 1), 1)
        block = max(1, int(bits / WORD_BITS))
        scale = 1.0 if bits >= WORD_BITS else WORD_BITS / bits
        read, write = (_energy(entry, action) for action in ("read", "write"))
        if entry.has("total_latency"):
            self.notes.append(f"{name}: total_latency is a formula there, its ports are left out")
        if read is None and entry.has("component_class"):
            kind = entry.text("component_class", default=None)
            self.notes.append(f"{name}: energies come from the model {kind} there; give them here")
        return Memory(
            name,
            capacity_words=None if math.isinf(size) or not inside else size / WORD_BITS,
            word_bits=WORD_BITS,
            block_words=block,
            keeps=tuple(t for t in TENSORS.values() if t in may) if inside else None,
            may_bypass=tuple(t for t in TENSORS.values() if t in may - must),
            ports=() if entry.has("total_latency") else tuple(self.ports(entry, bits)),
            read_pj=None if read is None else read * scale,
            fill_pj=None if write is None else write * scale,
            update_pj=None if write is None else write * scale,
            leak_pj_per_cycle=self.leak(entry),
            area_um2=_area(entry) if inside else None,
        )

    def ports(self, entry: Fields, bits: float) -> list[Port]:
        ports = []
        for action, ours in (("read", ("read",)), ("write", ("fill", "update"))):
            rate = _throughput(entry, action)
            if rate is not None and not math.isinf(rate):
                words = rate * bits / WORD_BITS / self.clock_hz
                ports.append(Port(action, words, ours))  # type: ignore[arg-type]
        return ports

    def named(self, tensors: Fields, key: str) -> set[str]:
        """Tensors of an expression: names joined by |, All, or those that no other level keeps."""
        text = str(tensors.get(key, "") or "")
        if not text or text.startswith("~"):
            return set()  # of one operation all three start in the outermost memory
        if text == "All":
            return set(TENSORS.values())
        names = [name.strip() for name in text.split("|")]
        unknown = [name for name in names if name not in TENSORS]
        if unknown:
            raise tensors.error(
                f"cannot read {text!r}", key, f"{', '.join(TENSORS)} joined by |, or All"
            )
        return {TENSORS[name] for name in names}

    def leak(self, entry: Fields) -> float | None:
        """Energy of a cycle."""
        watts = _amount(entry, "leak_power") if entry.has("leak_power") else None
        return None if watts is None else watts / self.clock_hz / PICO


def _action(entry: Fields, name: str) -> Mapping[str, Any]:
    return next((each.values for each in entry.tables("actions") if each.get("name") == name), {})


def _energy(entry: Fields, action: str) -> float | None:
    """Of an action, pJ; None where the file does not state it."""
    joules = _action(entry, action).get("energy")
    return None if joules is None else _value(entry, "energy", joules) / PICO


def _throughput(entry: Fields, action: str) -> float | None:
    rate = _action(entry, action).get("throughput")
    return None if rate is None else _value(entry, "throughput", rate)


def _area(entry: Fields) -> float | None:
    return _amount(entry, "area") / MICRO2 if entry.has("area") else None


def _amount(entry: Fields, key: str) -> float:
    return _value(entry, key, entry.get(key))


def _value(entry: Fields, key: str, value: Any) -> float:
    """A number, or arithmetic of numbers and of bits of a value."""
    if isinstance(value, int | float):
        return float(value)
    text = VALUE_BITS.sub(str(WORD_BITS), str(value)).strip()
    if text == "inf":
        return math.inf
    try:
        return float(evaluated(text, _unknown))
    except NoArithmeticError:
        raise entry.error(
            f"cannot read {value!r}", key, "a number, or arithmetic of numbers"
        ) from None


def _unknown(name: str) -> float:
    raise NoArithmeticError(name)
