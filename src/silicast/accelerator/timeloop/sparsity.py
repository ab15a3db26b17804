"""Densities and sparse optimisations of Timeloop's processed description -> our types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.design.architecture import Architecture, Elimination, Memory
from silicast.accelerator.timeloop._fields import number, rows, spelled, table, word
from silicast.accelerator.zeros.density import Density, Given, Structured, Uniform
from silicast.accelerator.zeros.formats import TensorFormat, format_named
from silicast.core.errors import SilicastError, unsupported

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


def read_densities(value: Any, einsum: Einsum, file: str) -> dict[str, Density]:
    """``problem.instance.densities``: tensor -> density; a plain number is structured.

    Raises:
        SilicastError: an unknown tensor or distribution, or a density out of range.
    """
    field = "problem.instance.densities"
    densities: dict[str, Density] = {}
    for name, given in table(value or {}, field, file).items():
        where = f"{field}.{name}"
        if name not in einsum.names:
            raise SilicastError(
                f"no tensor {name!r}",
                field=where,
                file=file,
                hint=f"there are {', '.join(einsum.names)}",
            )
        try:
            densities[name] = _density(given, einsum, name, where, file)
        except SilicastError as error:
            raise error.located(where, file) from None
    return densities


def _density(given: Any, einsum: Einsum, name: str, where: str, file: str) -> Density:
    if not isinstance(given, Mapping):
        return Structured(number(given, where, file))
    kind = str(given.get("distribution", "fixed_structured")).lower().replace("-", "_")
    if kind in _STRUCTURED:
        return Structured(number(given.get("density", 1.0), f"{where}.density", file))
    if kind in _UNIFORM:
        return Uniform(number(given.get("density", 1.0), f"{where}.density", file))
    if kind in {"banded", "band"}:
        shape = einsum.tensor(name).shape(einsum.bounds)
        if len(shape) != 2:
            raise unsupported(f"is banded, and a tensor of {len(shape)} indices", where, file=file)
        width = int(number(given.get("band_width", 0), f"{where}.band_width", file))
        return Given.banded(shape[0], shape[1], width)
    raise unsupported(
        f"distribution {kind!r}",
        f"{where}.distribution",
        "fixed_structured, hypergeometric and banded are read",
        file=file,
    )


def eliminated(architecture: Architecture, einsum: Einsum, value: Any, file: str) -> Architecture:
    """The architecture with what ``sparse_optimizations`` say of its memories and compute.

    Raises:
        SilicastError: an unknown component, tensor, format or optimisation.
    """
    if not value:
        return architecture
    field = "sparse_optimizations.targets"
    known = spelled(value, ("targets", "version"), "sparse_optimizations", file)
    entries = rows(known.get("targets"), field, file)
    for position, item in enumerate(entries):
        here = f"{field}[{position}]"
        given = {
            _SPELLINGS.get(key.replace("-", "_"), key): value
            for key, value in table(item, here, file).items()
        }
        entry = spelled(given, _TARGET, here, file)
        name = word(entry.get("name"), f"{here}.name", file)
        if name == architecture.compute.name:
            architecture = _computing(architecture, entry, here, file)
            continue
        if name not in {memory.name for memory in architecture.memories}:
            storages = [memory.name for memory in architecture.memories]
            raise SilicastError(
                f"no storage {name!r}",
                field=f"{here}.name",
                file=file,
                hint=f"there are {', '.join(storages)}",
            )
        nodes = tuple(
            _storing(node, einsum, entry, here, file)
            if isinstance(node, Memory) and node.name == name
            else node
            for node in architecture.nodes
        )
        architecture = replace(architecture, nodes=nodes)
    return architecture


def _storing(
    memory: Memory, einsum: Einsum, entry: Mapping[str, Any], here: str, file: str
) -> Memory:
    formats = list(memory.formats)
    if entry.get("compute_optimization"):
        raise unsupported(
            "is of compute, not of a memory", f"{here}.compute_optimization", file=file
        )
    representation = spelled(
        entry.get("representation_format") or {},
        ("data_spaces",),
        f"{here}.representation_format",
        file,
    )
    where = f"{here}.representation_format.data_spaces"
    for index, item in enumerate(rows(representation.get("data_spaces"), where, file)):
        at = f"{where}[{index}]"
        space = spelled(item, ("name", "ranks"), at, file)
        ranks = rows(space.get("ranks"), f"{at}.ranks", file)
        if ranks:
            formats.append(_format(einsum, space, ranks, at, file))
    rules = list(memory.eliminations)
    where = f"{here}.action_optimization"
    for index, item in enumerate(rows(entry.get("action_optimization"), where, file)):
        at = f"{where}[{index}]"
        action = spelled(item, ("type", "options"), at, file)
        kind = _kind(action.get("type"), f"{at}.type", file)
        for option in rows(action.get("options"), f"{at}.options", file):
            chosen = spelled(option, ("target", "condition_on"), f"{at}.options", file)
            target = _tensor(einsum, chosen.get("target"), at, file)
            conditions = tuple(
                _tensor(einsum, each, f"{at}.condition_on", file)
                for each in rows(chosen.get("condition_on"), f"{at}.condition_on", file)
            )
            if not conditions:
                raise SilicastError(
                    "expected at least one tensor", field=f"{at}.condition_on", file=file
                )
            rules.append(Elimination(kind, target, conditions))
    return replace(memory, formats=tuple(formats), eliminations=tuple(rules))


def _format(
    einsum: Einsum, space: Mapping[str, Any], ranks: list[Any], at: str, file: str
) -> TensorFormat:
    name = _tensor(einsum, space.get("name"), f"{at}.name", file)
    chosen, flattened = [], []
    for index, item in enumerate(ranks):
        rank = spelled(item, _RANK, f"{at}.ranks[{index}]", file)
        chosen.append(
            format_named(word(rank.get("format"), f"{at}.format", file), f"{at}.format", file)
        )
        dims = rows(rank.get("flattened_rankIDs"), f"{at}.flattened_rankIDs", file)
        flattened.append(
            frozenset(str(d) for part in dims for d in (part if isinstance(part, list) else [part]))
        )
    return TensorFormat(name, tuple(chosen), tuple(flattened) if any(flattened) else ())


def _computing(
    architecture: Architecture, entry: Mapping[str, Any], here: str, file: str
) -> Architecture:
    value = entry.get("compute_optimization") or entry.get("action_optimization")
    items = value if isinstance(value, list) else [value] if value else []
    compute = architecture.compute
    for index, item in enumerate(items):
        at = f"{here}.compute_optimization[{index}]"
        remark = spelled(item, ("type",), at, file)
        kind = _kind(remark.get("type"), f"{at}.type", file)
        compute = replace(compute, on_zero=kind)
    return replace(architecture, compute=compute)


def _kind(value: Any, field: str, file: str) -> Literal["skip", "gate"]:
    if value not in _KINDS:
        raise SilicastError(f"expected gating or skipping, found {value!r}", field=field, file=file)
    return _KINDS[value]


def _tensor(einsum: Einsum, value: Any, field: str, file: str) -> str:
    if value not in einsum.names:
        raise SilicastError(
            f"no tensor {value!r}",
            field=field,
            file=file,
            hint=f"there are {', '.join(einsum.names)}",
        )
    return str(value)
