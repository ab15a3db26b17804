"""Timeloop's description, mapping and energy tables -> our types.

Source of the format: the files that Timeloop's front end writes (``parsed-processed-input.yaml``,
version 0.4) with ``ERT.yaml`` and ``ART.yaml`` of Accelergy, and ``nodes:`` as people write them
(:mod:`~silicast.accelerator.timeloop.nodes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.counting.mapping import LoopNest
from silicast.accelerator.design.architecture import Architecture
from silicast.accelerator.mapper.constraints import Constraints
from silicast.accelerator.timeloop.components import Component, built, read_tree
from silicast.accelerator.timeloop.energy_tables import read_areas, read_energies
from silicast.accelerator.timeloop.nests import MappingReader
from silicast.accelerator.timeloop.nodes import TAG, has_nodes, processed
from silicast.accelerator.timeloop.problem import read_problem
from silicast.accelerator.timeloop.rules import SECTIONS, ConstraintReader
from silicast.accelerator.timeloop.sparsity import eliminated, read_densities
from silicast.formats.fields import Fields
from silicast.formats.yaml_file import read_yaml

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
    given = content.table("architecture", needed=True)
    version = str(given.values.get("version", ""))
    if version not in VERSIONS:
        raise given.error(f"is of version {version}", "version", "0.4 is read", "unsupported")
    tree = read_tree(given)
    energies = read_energies(ert) if ert else {}
    architecture = built(tree, energies, read_areas(art) if art else {})
    components = {each.name: each for each in tree.components}
    reader = ConstraintReader(einsum, architecture, components, file)
    remaining, constraints = reader.read(content)
    densities = read_densities(problem.table("instance"), einsum) if problem.values else {}
    unused = [key for key in content.names() if key not in _READ | _OF_OTHERS]
    return Description(
        eliminated(remaining, einsum, content),
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
    return MappingReader(
        description.einsum, description.architecture, description.components, str(path)
    ).read(Fields({"": read_yaml(path)}, file=str(path)).table("", needed=True))
