"""An architecture as the text of an architecture file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from silicast.accelerator.design.architecture import ACTIONS, Architecture, FanOut, Memory
from silicast.accelerator.mapper.constraints import Constraints
from silicast.accelerator.zeros.formats import RankFormat, RunLengths
from silicast.core.toml_text import toml_lines


def text_of(
    architecture: Architecture, constraints: Constraints, notes: tuple[str, ...] = ()
) -> str:
    """A file that :func:`.read_design` makes the same architecture of; notes stand on top.

    Densities and flattened ranks of formats are not written.

    >>> from silicast.accelerator.design.architecture import Compute
    >>> chip = Architecture("x", (Memory("dram"), FanOut("array", (2, 2))), Compute("mac"))
    >>> print(text_of(chip, Constraints(), ("a note",)))
    # a note
    format = 1
    name = "x"
    clock_mhz = 1000
    <BLANKLINE>
    [[level]]
    name = "dram"
    <BLANKLINE>
    [[level]]
    name = "array"
    mesh = [2, 2]
    <BLANKLINE>
    [compute]
    name = "mac"
    <BLANKLINE>
    """
    head = [f"# {note}" for note in notes]
    table = table_of(architecture, constraints)
    return "\n".join((*head, *toml_lines(table, _has_heading))) + "\n"


def table_of(architecture: Architecture, constraints: Constraints) -> dict[str, Any]:
    """The tables of the file; what has its default is left out."""
    table: dict[str, Any] = {
        "format": 1,
        "name": architecture.name,
        "clock_mhz": architecture.clock_hz / 1e6,
    }
    table |= _changed(
        {
            "source": (architecture.source, ""),
            "idle_leaks": (architecture.idle_leaks, True),
            "overhead": (architecture.overhead, 1.0),
            "ramps": (architecture.ramps, False),
            "least_utilisation": (constraints.least_utilisation, 0.0),
        }
    )
    table["level"] = [
        _memory(node) if isinstance(node, Memory) else _fan_out(node) for node in architecture.nodes
    ]
    unit = architecture.compute
    table["compute"] = {"name": unit.name} | _changed(
        {
            "per_cycle": (unit.per_cycle, 1.0),
            "energy_pj": (unit.energy_pj, None),
            "leak_pj": (unit.leak_pj_per_cycle, None),
            "area_um2": (unit.area_um2, None),
            "on_zero": (unit.on_zero, "multiply"),
            "gated_pj": (unit.gated_pj, 0.0),
        }
    )
    if architecture.every_cycle:
        table["every_cycle"] = {f"{name}_pj": pj for name, pj in architecture.every_cycle}
    rules = []
    for (level, axis), rule in constraints.rules.items():
        parts = {
            "fixed": dict(rule.fixed),
            "most": dict(rule.most),
            "innermost": list(rule.innermost),
            "indexing": list(rule.indexing),
        }
        limits = {key: value for key, value in parts.items() if value}
        if limits:
            rules.append({"level": level} | ({"axis": axis} if axis >= 0 else {}) | limits)
    if rules:
        table["constraint"] = rules
    return table


def _memory(node: Memory) -> dict[str, Any]:
    words = node.capacity_words
    value = {"name": node.name} | _changed(
        {
            "capacity_words": (None if words is None or math.isinf(words) else words, None),
            "word_bits": (node.word_bits, 8),
            "tensor_bits": (dict(node.tensor_bits), {}),
            "block_words": (node.block_words, 1),
            "cluster": (node.cluster, 1),
            "buffers": (node.buffers, 1),
            "exposes_fills": (node.exposes_fills, False),
            "bank_words": (node.bank_words, None),
            "keeps": (None if node.keeps is None else list(node.keeps), None),
            "may_bypass": (list(node.may_bypass), []),
            "area_um2": (node.area_um2, None),
            "recodes": (node.recodes, False),
        }
    )
    energy = _changed(
        {
            "read": (node.read_pj, None),
            "fill": (node.fill_pj, None),
            "update": (node.update_pj, None),
            "leak": (node.leak_pj_per_cycle, None),
            "gated": (node.gated_pj, 0.0),
            "expand": (node.expand_pj, None),
            "compress": (node.compress_pj, None),
        }
    )
    ports = []
    for port in node.ports:
        table = {"name": port.name, "words_per_cycle": port.words_per_cycle}
        settings: dict[str, tuple[Any, Any]] = {
            "actions": (list(port.actions), list(ACTIONS)),
            "exposed": (port.exposed, False),
            "tensors": (list(port.tensors), []),
        }
        ports.append(table | _changed(settings))
    if energy:
        value["energy_pj"] = energy
    if ports:
        value["port"] = ports
    return value | _zeros(node)


def _zeros(node: Memory) -> dict[str, Any]:
    """What a memory has for zeros that are left out."""
    zeros: dict[str, Any] = {}
    if node.formats:
        zeros["format"] = {
            each.tensor: [_rank(rank) for rank in each.ranks] for each in node.formats
        }
    for kind in ("skip", "gate"):
        rules = [
            {"target": rule.target, "when_zero": list(rule.conditions)}
            for rule in node.eliminations
            if rule.kind == kind
        ]
        if rules:
            zeros[kind] = rules
    store = node.metadata
    if store is not None:
        zeros["metadata"] = {"word_bits": store.word_bits, "block_words": store.block_words}
        zeros["metadata"] |= _changed(
            {
                "capacity_words": (store.capacity_words, None),
                "read_pj": (store.read_pj, None),
                "fill_pj": (store.fill_pj, None),
                "update_pj": (store.update_pj, None),
            }
        )
    return zeros


def _rank(rank: RankFormat) -> str:
    bits = rank.bits if isinstance(rank, RunLengths) else 0
    return f"{rank.name}{bits or ''}"


def _fan_out(node: FanOut) -> dict[str, Any]:
    return {"name": node.name, "mesh": list(node.mesh)} | _changed(
        {
            "multicast": (node.multicast, True),
            "reduction": (node.reduction, True),
            "systolic": (node.systolic, ""),
            "hop_pj": (node.hop_pj, None),
            "waits": (node.waits, False),
        }
    )


def _changed(values: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    return {key: value for key, (value, default) in values.items() if value != default}


def _has_heading(key: str, value: object, path: str) -> bool:
    if isinstance(value, list):
        return bool(value) and isinstance(value[0], Mapping)
    return isinstance(value, Mapping) and key == "compute" and not path
