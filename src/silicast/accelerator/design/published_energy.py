"""Energies that a file takes from publications: of clock trees, of control, and of wires.

Published layouts say what share of their power each takes (``catalog/technology/cmos.toml``). A
share becomes an action of every cycle: that share of what the units take in a cycle in which all of
them multiply, so that a chip whose units wait pays for its clock tree all the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from silicast.accelerator.counting.einsum import INPUTS, OUTPUTS, WEIGHTS
from silicast.accelerator.design.architecture import Architecture, FanOut, Memory, Node
from silicast.accelerator.design.technology import between, cmos
from silicast.core.errors import SilicastError

Stated = float | Literal["published"] | None
PUBLISHED = "published"
TABLE = "every_cycle"


def published_shares() -> dict[str, float]:
    """Share of control (registers) in what memories and logic take, and of the clock tree in what
    all three take: the geometric mean over layouts.

    >>> {name: round(share, 2) for name, share in published_shares().items()}
    {'control': 0.23, 'clock_tree': 0.31}
    """
    table = cmos().layouts
    registers, clocks = [], []
    for memory, logic, register, clock in zip(
        table.memory_mw, table.logic_mw, table.registers_mw, table.clock_network_mw, strict=True
    ):
        registers.append(register / (memory + logic))
        clocks.append(clock / (memory + logic + register))
    return {"control": _mean(registers), "clock_tree": _mean(clocks)}


def _mean(values: list[float]) -> float:
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


def with_every_cycle(
    architecture: Architecture, clock_tree: Stated, control: Stated
) -> Architecture:
    """The design with its actions of every cycle.

    Raises:
        SilicastError: a published share of a chip whose actions have no energy.
    """
    shares, actions = published_shares(), []
    if PUBLISHED in (clock_tree, control):
        busy = busy_pj(architecture)
        beside = busy * shares["control"] if control == PUBLISHED else (control or 0.0)
        published = {"control": busy * shares["control"]}
        published["clock_tree"] = (busy + beside) * shares["clock_tree"]
    for name, energy in (("clock_tree", clock_tree), ("control", control)):
        if energy == PUBLISHED:
            actions.append((name, published[name]))
        elif energy is not None:
            actions.append((name, float(energy)))
    return replace(architecture, every_cycle=tuple(actions))


def busy_pj(architecture: Architecture) -> float:
    """Energy of a cycle in which all units multiply: the products, each with a read of the operands
    and a read and an update of the sum that the units themselves hold. What goes through memories
    that units share depends on the mapping and is left out.

    Raises:
        SilicastError: an action that this counts has no energy.
    """
    unit = architecture.compute
    pj = _known(unit.energy_pj, f"{unit.name}.energy_pj")
    held: set[str] = set()
    levels = list(zip(architecture.memories, architecture.instances, strict=True))
    for memory, count in reversed(levels[1:]):
        if count < architecture.units:
            break
        for name in (WEIGHTS, INPUTS, OUTPUTS):
            if name in held or not memory.may_keep(name):
                continue
            held.add(name)
            access = _known(memory.read_pj, f"{memory.name}.energy_pj.read")
            if name == OUTPUTS:
                access += _known(memory.update_pj, f"{memory.name}.energy_pj.update")
            pj += access / (memory.block_words * memory.cluster)
    return architecture.units * unit.per_cycle * pj


def _known(energy: float | None, field: str) -> float:
    if energy is None:
        raise SilicastError(
            "has no energy, of which a published share is to be taken",
            field=field,
            hint=f"give it, or state {TABLE} in pJ",
        )
    return energy


def wire_pj(node_nm: float, bits: float, mm: float) -> float:
    """Energy of a word over so much wire.

    Raises:
        SilicastError: the node lies outside the table.

    >>> round(wire_pj(40, 256, 10))  # what the source states
    310
    """
    return between(cmos().wires.pj_per_bit_mm, node_nm, "node_nm") * bits * mm


def with_wires(
    nodes: tuple[Node, ...], link_mm: Mapping[str, float], node_nm: float | None
) -> tuple[Node, ...]:
    """Fan-outs with the energy of a word over a link of their mesh, whose length is stated.

    A word is as wide as those of the memory above.

    Raises:
        SilicastError: no node is stated, or both a length and an energy.
    """
    nodes_with_wires: list[Node] = []
    bits = 0.0
    for node in nodes:
        if isinstance(node, Memory):
            bits = node.word_bits
        if isinstance(node, FanOut) and node.name in link_mm:
            hop_pj = _link_pj(node, link_mm[node.name], bits, node_nm)
            nodes_with_wires.append(replace(node, hop_pj=hop_pj))
        else:
            nodes_with_wires.append(node)
    return tuple(nodes_with_wires)


def _link_pj(node: FanOut, mm: float, bits: float, node_nm: float | None) -> float:
    if node_nm is None or node.hop_pj is not None or not mm >= 0.0:
        raise SilicastError(
            "expected a length in millimetres, with node_nm of the file and without hop_pj",
            field=f"{node.name}.hop_mm",
            hint="state node_nm = 45, or hop_pj instead",
        )
    return wire_pj(node_nm, bits, mm)
