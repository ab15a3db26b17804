"""Densities and sparse optimisations of Timeloop's processed description -> our types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.design.architecture import Architecture, Elimination, Memory
from silicast.accelerator.zeros.density import Density, Given, Structured, Uniform
from silicast.accelerator.zeros.formats import TensorFormat, format_named
from silicast.core.errors import errors_located, unsupported
from silicast.formats.fields import Fields

_KINDS: Mapping[str, Literal["skip", "gate"]] = {"skipping": "skip", "gating": "gate"}
_TARGET = frozenset(
    {"name", "representation_format", "action_optimization", "compute_optimization"}
)
_RANK = frozenset({"format", "flattened_rankIDs"})
_SPELLINGS = {
    "action_optimizations": "action_optimization",
    "action_optimisation": "action_optimization",
    "action_optimisations": "action_optimization",
    "compute_optimizations": "compute_optimization",
    "compute_optimisation": "compute_optimization",
    "compute_optimisations": "compute_optimization",
}
_STRUCTURED = {"fixed_structured", "fixed", "structured"}
_UNIFORM = {"hypergeometric", "uniform", "random"}


def read_densities(instance: Fields, einsum: Einsum) -> dict[str, Density]:
    """``problem.instance.densities``: tensor -> density; a plain number is structured.

    Raises:
        SilicastError: an unknown tensor or distribution, or a density out of range.
    """
    densities: dict[str, Density] = {}
    table = instance.table("densities")
    for name in table.names():
        if name not in einsum.names:
            raise table.error(f"no tensor {name!r}", name, f"there are {', '.join(einsum.names)}")
        with errors_located(f"{table.path}.{name}", table.file):
            densities[name] = _density(table, einsum, name)
    return densities


def _density(table: Fields, einsum: Einsum, name: str) -> Density:
    if not isinstance(table.values[name], Mapping):
        return Structured(table.number(name, least=-math.inf))
    entry = table.table(name)
    kind = str(entry.values.get("distribution", "fixed_structured")).lower().replace("-", "_")
    if kind in _STRUCTURED:
        return Structured(entry.number("density", default=1.0, least=-math.inf))
    if kind in _UNIFORM:
        return Uniform(entry.number("density", default=1.0, least=-math.inf))
    if kind in {"banded", "band"}:
        shape = einsum.tensor(name).shape(einsum.bounds)
        if len(shape) != 2:
            raise unsupported(f"is banded, and a tensor of {len(shape)} indices")
        return Given.banded(shape[0], shape[1], int(entry.number("band_width", default=0.0)))
    raise unsupported(
        f"distribution {kind!r}", "", "fixed_structured, hypergeometric and banded are read"
    )


def eliminated(architecture: Architecture, einsum: Einsum, content: Fields) -> Architecture:
    """The architecture with what ``sparse_optimizations`` say of its memories and compute.

    Raises:
        SilicastError: an unknown component, tensor, format or optimisation.
    """
    if not content.get("sparse_optimizations"):
        return architecture
    optimizations = content.table("sparse_optimizations").spelled(("targets", "version"))
    for target in optimizations.tables("targets"):
        spelled = {
            _SPELLINGS.get(key.replace("-", "_"), key): value
            for key, value in target.values.items()
        }
        entry = Fields(spelled, target.path, target.file).spelled(_TARGET)
        name = entry.text("name", default=None)
        if name == architecture.compute.name:
            architecture = _computing(architecture, entry)
            continue
        if name not in {memory.name for memory in architecture.memories}:
            storages = ", ".join(memory.name for memory in architecture.memories)
            raise entry.error(f"no storage {name!r}", "name", f"there are {storages}")
        nodes = tuple(
            _storing(node, einsum, entry)
            if isinstance(node, Memory) and node.name == name
            else node
            for node in architecture.nodes
        )
        architecture = replace(architecture, nodes=nodes)
    return architecture


def _storing(memory: Memory, einsum: Einsum, entry: Fields) -> Memory:
    formats = list(memory.formats)
    if entry.get("compute_optimization"):
        raise entry.error(
            "is of compute, not of a memory", "compute_optimization", kind="unsupported"
        )
    representation = entry.table("representation_format").spelled(("data_spaces",))
    for item in representation.tables("data_spaces"):
        space = item.spelled(("name", "ranks"))
        if space.rows("ranks"):
            formats.append(_format(einsum, space))
    rules = list(memory.eliminations)
    for item in entry.tables("action_optimization"):
        action = item.spelled(("type", "options"))
        kind = _kind(action)
        for option in action.tables("options"):
            chosen = option.spelled(("target", "condition_on"))
            target = _tensor(einsum, chosen.get("target"), chosen, "target")
            conditions = tuple(
                _tensor(einsum, each, chosen, "condition_on")
                for each in chosen.rows("condition_on")
            )
            if not conditions:
                raise chosen.error("expected at least one tensor", "condition_on")
            rules.append(Elimination(kind, target, conditions))
    return replace(memory, formats=tuple(formats), eliminations=tuple(rules))


def _format(einsum: Einsum, space: Fields) -> TensorFormat:
    name = _tensor(einsum, space.get("name"), space, "name")
    chosen, flattened = [], []
    for item in space.tables("ranks"):
        rank = item.spelled(_RANK)
        word = rank.text("format", default=None)
        chosen.append(format_named(word, f"{rank.path}.format", rank.file))
        dims = rank.rows("flattened_rankIDs")
        flattened.append(
            frozenset(str(d) for part in dims for d in (part if isinstance(part, list) else [part]))
        )
    return TensorFormat(name, tuple(chosen), tuple(flattened) if any(flattened) else ())


def _computing(architecture: Architecture, entry: Fields) -> Architecture:
    name = "compute_optimization" if entry.get("compute_optimization") else "action_optimization"
    value = entry.get(name)
    rules = value if isinstance(value, list) else [value] if value else []
    compute = architecture.compute
    for item in Fields({name: rules}, entry.path, entry.file).tables(name):
        compute = replace(compute, on_zero=_kind(item.spelled(("type",))))
    return replace(architecture, compute=compute)


def _kind(entry: Fields) -> Literal["skip", "gate"]:
    value = entry.get("type")
    if value not in _KINDS:
        raise entry.error(f"expected gating or skipping, found {value!r}", "type")
    return _KINDS[value]


def _tensor(einsum: Einsum, value: Any, entry: Fields, field: str) -> str:
    if value not in einsum.names:
        raise entry.error(f"no tensor {value!r}", field, f"there are {', '.join(einsum.names)}")
    return str(value)
