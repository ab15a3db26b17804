"""Timeloop's description, problem, mapping and energy tables -> our types.

Source of the format: the files that Timeloop's front end writes (``parsed-processed-input.yaml``,
version 0.4) with ``ERT.yaml`` and ``ART.yaml`` of Accelergy, and ``nodes:`` as people write them
(:mod:`~silicast.accelerator.timeloop.nodes`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from silicast.accelerator.counting.einsum import Einsum, EinsumTensor
from silicast.accelerator.counting.mapping import LoopNest
from silicast.accelerator.design.architecture import Architecture
from silicast.accelerator.mapper.constraints import Constraints
from silicast.accelerator.timeloop.components import Component, built, read_tree
from silicast.accelerator.timeloop.nests import MappingReader
from silicast.accelerator.timeloop.nodes import TAG, has_nodes, processed
from silicast.accelerator.timeloop.rules import SECTIONS, ConstraintReader
from silicast.accelerator.timeloop.sparsity import eliminated, read_densities
from silicast.accelerator.timeloop.targets import Targets
from silicast.core.errors import SilicastError, errors_located
from silicast.formats.fields import Fields
from silicast.formats.yaml_file import read_yaml

_SHAPE = ("name", "dimensions", "coefficients", "data_spaces", "version")
_SPACE = ("name", "projection", "read_write")


def read_problem(problem: Fields) -> Einsum:
    """The section ``problem``.

    Raises:
        SilicastError: something is missing or has no meaning; the field is named.
    """
    shape = problem.table("shape", needed=True).spelled(_SHAPE)
    instance = problem.table("instance", needed=True)
    defaults = {}
    for entry in shape.tables("coefficients"):
        default = entry.get("default")
        defaults[entry.text("name", default=None)] = 1 if default is None else default
    dims = [str(dim) for dim in shape.rows("dimensions")]
    bounds = {dim: instance.count(dim) for dim in dims}
    sizes = {name: value for name, value in instance.values.items() if name in defaults}
    coefficients = Fields({**defaults, **sizes}, instance.path, instance.file)
    tensors = [_tensor(space, bounds, coefficients) for space in shape.tables("data_spaces")]
    outputs = [tensor.name for tensor in tensors if tensor.is_output]
    if len(outputs) != 1:
        raise shape.error(
            f"expected one with read_write: true, found {', '.join(outputs) or 'none'}",
            "data_spaces",
        )
    with errors_located(shape.path, shape.file):
        return Einsum(str(shape.values.get("name", "problem")), bounds, tuple(tensors))


def _tensor(entry: Fields, bounds: Mapping[str, int], coefficients: Fields) -> EinsumTensor:
    space = entry.spelled(_SPACE)
    name = space.text("name", default=None)
    if "projection" not in space.values:
        raise space.error(f"{name} has none", "projection")
    ranks = tuple(
        tuple(_term(term, space, bounds, coefficients) for term in _list(rank, space))
        for rank in space.rows("projection")
    )
    return EinsumTensor(name, ranks, is_output=bool(space.get("read_write")))


def _list(value: Any, space: Fields) -> list[Any]:
    if not isinstance(value, list):
        raise space.error(f"expected a list, found {value!r:.40}", "projection")
    return value


def _term(
    term: Any, space: Fields, bounds: Mapping[str, int], coefficients: Fields
) -> tuple[str, int]:
    """A dimension of an index, and the step that it is taken with."""
    dim, *step = [str(part) for part in _list(term, space)] or [""]
    if len(step) > 1 or dim not in bounds:
        raise space.error(
            f"expected a dimension, and maybe a coefficient, found {term!r}",
            "projection",
            f"there are {', '.join(bounds)}",
        )
    if not step:
        return dim, 1
    if step[0] not in coefficients.values:
        raise space.error(f"no coefficient {step[0]!r}", "projection")
    return dim, int(coefficients.number(step[0], least=-math.inf))


_COMPONENT = re.compile(r"(\w+)(?:\[\d+\.\.\d+\])?$")


def read_energies(path: Path) -> dict[str, dict[str, float]]:
    """Component -> action -> pJ, of an energy reference table.

    Raises:
        SilicastError: it cannot be read, or an energy is no number of 0 or more.
    """
    energies: dict[str, dict[str, float]] = {}
    for name, entry in _tables(path, "ERT"):
        if "actions" not in entry.values:
            raise SilicastError("has no actions", field=entry.path, file=entry.file)
        energies[name] = {
            action.text("name", default=None): _amount(
                action, "energy", f"{name}.{action.text('name', default=None)}"
            )
            for action in entry.tables("actions")
        }
    return energies


def read_areas(path: Path) -> dict[str, float]:
    """Component -> um2 of one instance, of an area reference table.

    Raises:
        SilicastError: it cannot be read, or an area is no number of 0 or more.
    """
    return {name: _amount(entry, "area", name) for name, entry in _tables(path, "ART")}


def _tables(path: Path, kind: str) -> Iterator[tuple[str, Fields]]:
    """(component, entry) of each table."""
    content = Fields({kind: read_yaml(path)}, file=str(path)).table(kind, needed=True)
    if kind not in content.values:
        raise SilicastError(f"has no {kind}", field=kind, file=content.file)
    top = Fields(content.values, file=content.file)
    for entry in top.table(kind, needed=True).tables("tables"):
        match = _COMPONENT.search(entry.text("name", default=None))
        if match:
            yield match[1], entry


def _amount(entry: Fields, key: str, path: str) -> float:
    """A number of 0 or more, of an entry that errors name by its component."""
    return float(Fields(entry.values, path, entry.file).number(key))


_READ = frozenset({"architecture", "problem", "sparse_optimizations", *SECTIONS})
_OF_OTHERS = frozenset({
    "dumped_by_timeloop_front_end", "compound_components", "components", "mapping", "mapper",
    "globals", "variables", "version",
})  # fmt: skip
"""Sections that describe no chip and no problem."""
VERSIONS = frozenset({"0.3", "0.4", ""})


@final
@dataclass(frozen=True)
class Description:
    """A processed description.

    Attributes:
        architecture: with the energies and areas of the tables that stand beside it.
        einsum: the problem.
        constraints: on mappings.
        file: it was read from.
        components: by name, those that hold nothing among them.
        notes: what the file says and is not used, a line each.
    """

    architecture: Architecture
    einsum: Einsum
    constraints: Constraints
    file: str
    components: Mapping[str, Component] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_description(
    path: Path, ert: Path | None = None, art: Path | None = None, einsum: Einsum | None = None
) -> Description:
    """A description; energies and areas are those of ``ert`` and ``art``.

    Args:
        einsum: the problem; None = that of the file.

    Raises:
        SilicastError: a file cannot be read, or says what has no meaning here.
    """
    file = str(path)
    content = Fields({"": read_yaml(path, tag_key=TAG)}, file=file).table("", needed=True)
    for key in ("architecture", "problem"):
        if key not in content.values and not (key == "problem" and einsum):
            hint = "give Timeloop's parsed-processed-input.yaml"
            if key == "problem":
                hint += ", or state one: `conv2d c=64 m=64 p=56 q=56 r=3 s=3`"
            raise content.error(f"has no {key}", key, hint)
    problem = content.table("problem", needed=True) if einsum is None else Fields({}, file=file)
    einsum = read_problem(problem) if einsum is None else einsum
    if has_nodes(content.values):
        content = processed(content, einsum.names)
    section = content.table("architecture", needed=True)
    version = str(section.values.get("version", ""))
    if version not in VERSIONS:
        raise section.error(f"is of version {version}", "version", "0.4 is read", "unsupported")
    tree = read_tree(section)
    energies = read_energies(ert) if ert else {}
    architecture = built(tree, energies, read_areas(art) if art else {})
    components = {each.name: each for each in tree.components}
    targets = Targets(einsum, architecture, components, file)
    constrained, constraints = ConstraintReader(targets).read(content)
    densities = read_densities(problem.table("instance"), einsum) if problem.values else {}
    unused = [key for key in content.names() if key not in _READ | _OF_OTHERS]
    return Description(
        eliminated(constrained, einsum, content),
        einsum.with_densities(densities),
        constraints,
        file,
        components,
        (*tree.notes, *(f"section {key} is not used" for key in unused)),
    )


def read_mapping(path: Path, description: Description) -> LoopNest:
    """Timeloop's ``map.yaml``.

    Raises:
        SilicastError: it cannot be read, or does not belong to the description.
    """
    targets = Targets(
        description.einsum, description.architecture, description.components, str(path)
    )
    content = Fields({"": read_yaml(path)}, file=str(path)).table("", needed=True)
    return MappingReader(targets).read(content)
