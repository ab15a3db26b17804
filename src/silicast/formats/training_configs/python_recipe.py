"""A file of functions in Python, each of which builds the configuration of a run."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from silicast.core.errors import unsupported
from silicast.formats.effects import Effects
from silicast.formats.python_file import CALLED, GIVEN, Built, PythonFile, Setter, Unread
from silicast.formats.source import Source
from silicast.formats.training_configs.reader import Stated

NAMES = (CALLED, GIVEN, "_target_")
"""Of a table of a call, what is no keyword."""
OF_NO_EFFECT = ("`torch.", "`F.", "`partial", "`init", "`AttnBackend", "`userbuffers")
"""Beginnings of values that no step's size depends on; tables of user buffers say how an overlap
that is stated beside them is set up.
"""


def chosen_recipe(
    file: Source,
    stated: Stated,
    parts: Mapping[str, type],
    hint: str,
    effects: Effects,
    library: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    common: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    setters: Mapping[str, Setter] = MappingProxyType({}),
) -> tuple[str, PythonFile, Built, list[str]]:
    """The recipe of a file that is chosen, by name, with the file, what it builds, and remarks.

    Args:
        parts: fields that a whole recipe has, and their types; hint: where there is none.
        library: functions of the tool's library that return whole recipes; common: that return
            parts of one; setters: those that set a field
            (:class:`~silicast.formats.python_file.PythonFile`).

    Raises:
        SilicastError: the file holds several, or one that only running it would give.
    """
    path = str(file.path)
    python = PythonFile(file.text(), path, setters, {**common, **library})
    builts = {name: python.built(name) for name in python.builders()}
    if python.started is not None:
        builts["file"] = Built(python.started)
    trees = {name: built.tree for name, built in builts.items()}
    recipes = {
        name: ""
        for name, tree in trees.items()
        if called_in(tree, python) in library
        or all(isinstance(tree.get(part), kind) for part, kind in parts.items())
    }
    if not recipes:
        raise unsupported(
            "no function of it builds a whole run by literal values; a library's recipe "
            "is one of another tool or release",
            "run",
            hint,
            file=path,
        )
    name = stated.chosen(recipes, path)
    built = builts[name]
    for line, names in built.blocked:
        if any(effects.changes(argument.partition(".")[2]) for argument in names):
            raise unsupported(
                f"sets {names[0]}, by what is known when it runs",
                line,
                "give the configuration that the run writes, or the value itself",
                file=path,
            )
    remarks = [f"not followed: {line}" for line in built.unread]
    remarks += [f"not followed: {line}: sets {', '.join(names)}" for line, names in built.blocked]
    return name, python, built, remarks


def called_in(tree: Mapping[str, Any], python: PythonFile) -> str:
    """The function that a tree is of, by the name that its library has; "" of none."""
    name = str(tree.get(CALLED, "")).rpartition(".")[2]
    return python.aliases.get(name, name)


def known_values(table: Any, path: str, file: str, effects: Effects) -> dict[str, Any]:
    """A table's fields without inner tables, as far as the file states them; {} of no table.

    Raises:
        SilicastError: one that changes a step is known only when the file runs.
    """
    readable: dict[str, Any] = {}
    for name, value in (table if isinstance(table, Mapping) else {}).items():
        called = str(value.get(CALLED, "")) if isinstance(value, Mapping) else ""
        if name in NAMES:
            continue
        if called.rpartition(".")[2][:1].islower():
            stated: Any = Unread(f"{called}(")
        else:
            stated = value
        if not isinstance(stated, Unread):
            readable |= {} if isinstance(value, Mapping) else {str(name): value}
        elif effects.changes(f"{path}.{name}") and not str(stated).startswith(OF_NO_EFFECT):
            raise unsupported(
                f"{stated} is known when the file runs",
                f"{path}.{name}",
                "write the value itself",
                file=file,
            )
    return readable
