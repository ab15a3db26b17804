"""The battery that any architecture must pass before something is mapped onto it.

>>> from silicast.accelerator.design.architecture import Architecture, Compute, Memory
>>> check_architecture(Architecture("x", (Memory("dram"),), Compute("mac", per_cycle=0)))
[ArchitectureFault(field='mac.per_cycle', expected='more than 0', found='0', hint='', told=False)]
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

from silicast.accelerator.counting.einsum import INPUTS, OUTPUTS, WEIGHTS
from silicast.accelerator.design.architecture import Architecture, FanOut, Memory, Port
from silicast.core.errors import SilicastError


@final
@dataclass(frozen=True)
class ArchitectureFault:
    """Something that is wrong with an architecture.

    Attributes:
        field: level and field.
        expected, found: in words.
        hint: what to do about it, or "".
        told: ``found`` is a whole sentence that says what was expected too.
    """

    field: str
    expected: str
    found: str
    hint: str = ""
    told: bool = False

    @property
    def message(self) -> str:
        """What was expected and found, in one line."""
        return self.found if self.told else f"expected {self.expected}, found {self.found}"

    def error(self, file: str = "") -> SilicastError:
        """The problem as what a user is told."""
        return SilicastError(self.message, field=self.field, hint=self.hint, file=file)


def check_architecture(architecture: Architecture) -> list[ArchitectureFault]:
    """Everything that is wrong with an architecture; an empty list is a pass.

    Checked are its structure, the range of every number, and ports against the words they carry.
    """
    return [*_structure(architecture), *_numbers(architecture), *_widths(architecture)]


def _widths(architecture: Architecture) -> Iterator[ArchitectureFault]:
    for memory in architecture.memories:
        if memory.tensor_bits and architecture.knows_zeros:
            yield ArchitectureFault(
                f"{memory.name}.tensor_bits",
                "words of one width in a design that leaves zeros out",
                ", ".join(f"{name} of {bits} bits" for name, bits in memory.tensor_bits),
                "give each tensor a memory with its own word_bits, or leave out formats, skips, "
                "gates and on_zero",
            )


def _structure(architecture: Architecture) -> Iterator[ArchitectureFault]:
    if not architecture.nodes or not isinstance(architecture.nodes[0], Memory):
        yield ArchitectureFault("level[0]", "a memory that every tensor starts in", "none")
        return
    first = architecture.nodes[0]
    if first.keeps is not None:
        yield ArchitectureFault(
            f"{first.name}.keeps",
            "nothing: the first memory keeps every tensor",
            ", ".join(first.keeps),
        )
    names = [node.name for node in architecture.nodes]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield ArchitectureFault(f"{name}.name", "a name of its own", f"{names.count(name)} levels")
    last: Memory | None = None
    for node in architecture.nodes:
        if isinstance(node, Memory):
            last = node
        elif node.systolic and not any(
            isinstance(inner, Memory) and inner.may_keep(node.systolic)
            for inner in architecture.nodes[architecture.nodes.index(node) + 1 :]
        ):
            yield ArchitectureFault(
                f"{node.name}.systolic", "a tensor that a memory further in keeps", node.systolic
            )
    if last is not None and last.keeps == () and not last.may_bypass:
        yield ArchitectureFault(
            f"{last.name}.keeps", "at least one tensor, or no such level", "none"
        )


def _numbers(architecture: Architecture) -> Iterator[ArchitectureFault]:
    compute = architecture.compute
    yield from _above(f"{compute.name}.per_cycle", compute.per_cycle)
    yield from _above("clock_mhz", architecture.clock_hz / 1e6)
    if not architecture.overhead >= 1:
        yield ArchitectureFault("overhead", "1 or more", f"{architecture.overhead:g}")
    for field, value in (
        ("energy_pj", compute.energy_pj),
        ("leak_pj", compute.leak_pj_per_cycle),
        ("area_um2", compute.area_um2),
        ("gated_pj", compute.gated_pj),
    ):
        yield from _not_below(f"{compute.name}.{field}", value)
    for name, energy in architecture.every_cycle:
        yield from _not_below(f"every_cycle.{name}_pj", energy)
    for node in architecture.nodes:
        if isinstance(node, FanOut):
            for axis, size in enumerate(node.mesh):
                yield from _above(f"{node.name}.mesh[{axis}]", size)
            yield from _not_below(f"{node.name}.hop_pj", node.hop_pj)
        else:
            yield from _memory(node)


def _memory(memory: Memory) -> Iterator[ArchitectureFault]:
    name = memory.name
    if memory.capacity_words is not None:
        yield from _above(f"{name}.capacity_words", memory.capacity_words)
    if memory.bank_words is not None:
        yield from _above(f"{name}.bank_words", memory.bank_words)
        if memory.bank_words > (memory.capacity_words or 0):
            yield ArchitectureFault(
                f"{name}.bank_words",
                f"at most its {memory.capacity_words or 0:g} words",
                f"{memory.bank_words:g}",
            )
    for field in ("word_bits", "block_words", "cluster", "buffers"):
        yield from _above(f"{name}.{field}", getattr(memory, field))
    for field in ("read_pj", "fill_pj", "update_pj", "leak_pj_per_cycle", "area_um2"):
        yield from _not_below(f"{name}.{field}", getattr(memory, field))
    for port in memory.ports:
        where = f"{name}.port.{port.name}"
        yield from _wide_enough(memory, port, f"{where}.words_per_cycle")
        for tensor in port.tensors:
            if not memory.may_keep(tensor):
                yield ArchitectureFault(f"{where}.tensors", "tensors that the memory keeps", tensor)
    yield from _zeros(memory)
    yield from _elements(memory)
    for tensor in memory.may_bypass:
        if not memory.may_keep(tensor):
            yield ArchitectureFault(f"{name}.may_bypass", "tensors of keeps", tensor)


def _elements(memory: Memory) -> Iterator[ArchitectureFault]:
    """Tensors whose elements are wider than a word take whole words."""
    for tensor, bits in memory.tensor_bits:
        if bits < 1 or bits % max(memory.word_bits, 1):
            yield ArchitectureFault(
                f"{memory.name}.tensor_bits.{tensor}",
                f"whole words of {memory.word_bits} bits",
                f"{bits} bits",
                "give the memory words as narrow as its narrowest tensor (word_bits)",
            )
        if not memory.may_keep(tensor):
            yield ArchitectureFault(
                f"{memory.name}.tensor_bits", "tensors that the memory keeps", tensor
            )


def _wide_enough(memory: Memory, port: Port, field: str) -> Iterator[ArchitectureFault]:
    """A port that moves less than one word in the cycles of a block has words that are too wide:
    nothing is stored or moved in parts of them.
    """
    yield from _above(field, port.words_per_cycle)
    words = port.words_per_cycle * memory.block_words
    if 0 < words < 1 and memory.word_bits > 0:
        bits = port.words_per_cycle * memory.word_bits
        yield ArchitectureFault(
            field,
            f"a port as wide as a word of {memory.word_bits} bits (at least "
            f"{1 / memory.block_words:g} words a cycle, blocks are of {memory.block_words:g})",
            f"{port.words_per_cycle:g} ({bits:g} bits a cycle)",
            "widen it, or give the memory words as narrow as its port (word_bits); the rate of "
            "main memory may stand in system.memory_gb_per_s instead",
        )


def _zeros(memory: Memory) -> Iterator[ArchitectureFault]:
    """Formats, metadata and eliminations."""
    name = memory.name
    yield from _not_below(f"{name}.gated_pj", memory.gated_pj)
    for field in ("expand_pj", "compress_pj"):
        yield from _not_below(f"{name}.{field}", getattr(memory, field))
    if memory.metadata is not None:
        yield from _above(f"{name}.metadata.word_bits", memory.metadata.word_bits)
        yield from _above(f"{name}.metadata.block_words", memory.metadata.block_words)
        if memory.metadata.capacity_words is not None:
            yield from _above(f"{name}.metadata.capacity", memory.metadata.capacity_words)
        for field in ("read_pj", "fill_pj", "update_pj"):
            yield from _not_below(f"{name}.metadata.{field}", getattr(memory.metadata, field))
    formatted = [each.tensor for each in memory.formats]
    for tensor in formatted:
        if not memory.may_keep(tensor):
            yield ArchitectureFault(f"{name}.format", "tensors that the memory keeps", tensor)
    for rule in memory.eliminations:
        where = f"{name}.{rule.kind}"
        if not rule.conditions:
            yield ArchitectureFault(f"{where}.when_zero", "at least one tensor", "none")
        if rule.target in rule.conditions and rule.target not in formatted:
            yield ArchitectureFault(
                f"{where}.when_zero",
                f"another tensor, or a format that says where "
                f"{rule.target} is zero before it is read",
                rule.target,
            )


def _above(field: str, value: float) -> Iterator[ArchitectureFault]:
    if not (value > 0 and math.isfinite(value)):
        yield ArchitectureFault(field, "more than 0", f"{value:g}")


def _not_below(field: str, value: float | None) -> Iterator[ArchitectureFault]:
    if value is not None and not (value >= 0 and math.isfinite(value)):
        yield ArchitectureFault(field, "0 or more", f"{value:g}")


def check_tensors(architecture: Architecture, names: Sequence[str]) -> None:
    """All that a level names are tensors that are mapped: a misspelt one would have no effect.

    Args:
        names: of the tensors.

    Raises:
        SilicastError: a level names another; says which field does.
    """
    for memory in architecture.memories:
        named = {(f"{memory.name}.format", each.tensor) for each in memory.formats}
        for rule in memory.eliminations:
            named |= {(f"{memory.name}.{rule.kind}", t) for t in (rule.target, *rule.conditions)}
        tensors = {*names, WEIGHTS, INPUTS, OUTPUTS}  # einsums of other tools name their own
        usual = {(f"{memory.name}.keeps", name) for name in memory.keeps or ()}
        usual |= {(f"{memory.name}.may_bypass", name) for name in memory.may_bypass}
        usual |= {(f"{memory.name}.tensor_bits", name) for name, _ in memory.tensor_bits}
        usual |= {(f"{memory.name}.port.tensors", t) for p in memory.ports for t in p.tensors}
        named |= {(field, tensor) for field, tensor in usual if tensor not in tensors}
        for field, tensor in sorted(named):
            require_tensor(tensor, names, field)


def require_tensor(tensor: str, names: Sequence[str], field: str) -> None:
    """A tensor is one of those that are there.

    Raises:
        SilicastError: it is not.
    """
    if tensor not in names:
        raise SilicastError(
            f"no tensor {tensor!r}", field=field, hint=f"there are {', '.join(names)}"
        )
