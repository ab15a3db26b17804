"""Timeloop's ``nodes:`` as people write them -> the form that its front end makes of them.

A list from the outermost inwards (``!Container``, ``!Component``, ``!Hierarchical``, ``!Parallel``,
``!Nothing``). A container's attributes are those of all that follows; ``spatial`` says how many
instances stand side by side from there on, whose loops get a target of their own,
``inter_NAME_spatial``, as the front end calls it. Rules inside of a node become entries about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from silicast.accelerator.timeloop.expressions import resolved
from silicast.core.errors import unsupported
from silicast.formats.fields import Fields

TAG = "!"
"""Key that a tag is kept under."""
NODES = "nodes"
_BRANCHES = ("Hierarchical", "Parallel", "Pipelined")
_KINDS = frozenset({"", "Container", "Component", "ArrayContainer", *_BRANCHES, "Nothing"})
_RULES = {"dataspace": "dataspace", "temporal": "temporal", "spatial": "spatial"}


def has_nodes(content: Mapping[str, Any]) -> bool:
    """Whether an architecture is written as nodes."""
    architecture = content.get("architecture")
    return isinstance(architecture, Mapping) and NODES in architecture


def processed(content: Fields, tensors: tuple[str, ...]) -> Fields:
    """The same file with components in one part of a tree, and rules in a section.

    Args:
        tensors: of the problem.

    Raises:
        SilicastError: a node has no meaning here; it is named.
    """
    architecture = content.table("architecture", needed=True)
    variables = _plain(content.get("variables") or {})
    writer = _Writer(content.file, tensors)
    outer = resolved(variables, {}, "variables", content.file)
    writer.walk(architecture.rows(NODES), outer, "architecture.nodes")
    cycle = {k: v for k, v in outer.items() if k == "global_cycle_seconds"}
    constraints = content.get("architecture_constraints") or {}
    values = {
        **content.values,
        "architecture": {
            "version": architecture.values.get("version", ""),
            "subtree": [{"name": "nodes", "attributes": cycle, "local": writer.local}],
        },
        "architecture_constraints": {
            "targets": [*writer.targets, *(constraints.get("targets") or ())]
        },
    }
    return Fields(values, content.path, content.file)


def _plain(table: Any) -> dict[str, Any]:
    return {k: v for k, v in table.items() if k != TAG} if isinstance(table, Mapping) else {}


@final
class _Writer:
    """What was written so far.

    Attributes:
        mesh: instances of what comes next, along x and y.
        local: components, outermost first.
        targets: rules.
    """

    def __init__(self, file: str, tensors: tuple[str, ...]) -> None:
        self.file = file
        self.tensors = tensors
        self.mesh = (1, 1)
        self.local: list[dict[str, Any]] = []
        self.targets: list[dict[str, Any]] = []

    def walk(self, nodes: list[Any], outer: Mapping[str, Any], where: str) -> None:
        for number, node in enumerate(nodes):
            here = f"{where}[{number}]"
            if node is None or (isinstance(node, Mapping) and node.get(TAG) == "Nothing"):
                continue
            if not isinstance(node, Mapping):
                raise unsupported(
                    f"is {node!r:.40}, no node",
                    here,
                    "write !Component or !Container",
                    file=self.file,
                )
            kind = str(node.get(TAG, ""))
            if kind not in _KINDS:
                raise unsupported(
                    f"is of kind !{kind}",
                    here,
                    f"of {', '.join(sorted(_KINDS - {''}))}",
                    file=self.file,
                )
            if NODES in node:
                self.branches(node, kind, outer, here)
            else:
                outer = self.node(Fields(_plain(node), here, self.file), outer)

    def branches(
        self, node: Mapping[str, Any], kind: str, outer: Mapping[str, Any], here: str
    ) -> None:
        """Nodes in a node; parallel ones stand one behind the other, since no tensor is kept in
        two of them and each passes by the others.
        """
        before, first = self.mesh, len(self.local)
        inner = {**outer, **resolved(_plain(node.get("attributes")), outer, here, self.file)}
        rows = Fields(node, here, self.file).rows(NODES)
        if kind != "Parallel":
            self.walk(rows, inner, f"{here}.{NODES}")
            return
        owners: dict[str, str] = {}
        for number, branch in enumerate(rows):
            self.walk([branch], inner, f"{here}.{NODES}[{number}]")
            if self.mesh != before:
                raise unsupported(
                    "fans out inside of !Parallel", here, "fan out before it", file=self.file
                )
        for component in self.local[first:]:
            name = component["name"]
            rules = [t for t in self.targets if t["target"] == name and t["type"] == "dataspace"]
            keep = [tensor for rule in rules for tensor in rule.get("keep") or ()]
            if not keep:
                raise unsupported(
                    f"{name} does not say what it keeps",
                    here,
                    "add constraints: {dataspace: {keep_only: [...]}} to it",
                    file=self.file,
                )
            for tensor in keep:
                if tensor in owners:
                    raise unsupported(
                        f"{tensor} is kept in {owners[tensor]} and in {name}",
                        here,
                        "keep it in one of them",
                        file=self.file,
                    )
                owners[tensor] = name
            rules[0]["bypass"] = [tensor for tensor in self.tensors if tensor not in keep]

    def node(self, node: Fields, outer: Mapping[str, Any]) -> Mapping[str, Any]:
        """Writes a component, or what a container adds to those that follow.

        Returns:
            attributes of what follows.
        """
        name = node.text("name", default=None)
        named = Fields(node.values, name, self.file)
        values = resolved(_plain(node.get("attributes")), outer, name, self.file)
        spatial = resolved(_plain(node.get("spatial")), {**outer, **values}, name, self.file)
        self.rules(named, spatial)
        if node.get("class") is None:
            return {**outer, **values}
        x, y = self.mesh
        entry = {k: v for k, v in node.values.items() if k not in {"spatial", "constraints"}}
        inherited = {k: v for k, v in outer.items() if k not in {"version", "meshX", "meshY"}}
        entry["attributes"] = {**inherited, **values, "meshX": x, "meshY": y}
        self.local.append(entry)
        return outer

    def rules(self, node: Fields, spatial: Mapping[str, Any]) -> None:
        """Entries of a node's constraints, and the target of loops over its instances."""
        name = node.path
        counts = Fields(spatial, f"{name}.spatial", self.file)
        more = tuple(counts.count(k) if counts.has(k) else 1 for k in ("meshX", "meshY"))
        constraints = _plain(node.get("constraints"))
        unknown = [key for key in constraints if key not in _RULES]
        if unknown:
            raise unsupported(
                "is not read",
                f"{name}.constraints.{unknown[0]}",
                f"{', '.join(_RULES)} are",
                file=self.file,
            )
        if (more != (1, 1) or constraints.get("spatial")) and self.local:
            x, y = self.mesh
            self.local.append(
                {
                    "name": f"inter_{name}_spatial",
                    "class": "dummy_storage",
                    "attributes": {"meshX": x, "meshY": y},
                }
            )
        self.mesh = self.mesh[0] * more[0], self.mesh[1] * more[1]
        for key, kind in _RULES.items():
            entry = self.spelled(_plain(constraints.get(key)))
            if entry:
                target = f"inter_{name}_spatial" if key == "spatial" else name
                self.targets.append({"target": target, "type": kind, **entry})

    def spelled(self, entry: dict[str, Any]) -> dict[str, Any]:
        """An entry in the words of the section: without ``keep_only`` and ``factors_only``."""
        only = entry.pop("keep_only", None)
        if only:
            entry["keep"] = list(only)
            entry["bypass"] = [tensor for tensor in self.tensors if tensor not in only]
        factors = entry.pop("factors_only", None)
        if factors:
            entry["factors"] = [*(entry.get("factors") or ()), *factors]
        return {key: value for key, value in entry.items() if value not in (None, [], "")}
