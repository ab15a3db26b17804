"""Writes ``catalog/model_classes.json`` out of the configuration classes of transformers.

    python -m lab.model_classes transformers/models

Only values are read, by parsing; no code of the package runs. Fields are those that a family
reads, classes those whose ``model_type`` one reads.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from silicast.workload.families.family import ModelFamily, ValueRule, families
from silicast.workload.models.huggingface import CLASSES


def class_values(source: str) -> Iterator[tuple[str, dict[str, bool | int | str]]]:
    """``model_type`` and the constant defaults of each configuration class in a module."""
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef):
            continue
        kind, values = "", dict[str, bool | int | str]()
        for line in node.body:
            if isinstance(line, ast.Assign) and isinstance(line.value, ast.Constant):
                if getattr(line.targets[0], "id", "") == "model_type":
                    kind = str(line.value.value)
            elif isinstance(line, ast.AnnAssign) and isinstance(line.value, ast.Constant):
                value = line.value.value
                if isinstance(line.target, ast.Name) and isinstance(value, bool | int | str):
                    values[line.target.id] = value
        if kind:
            yield kind, values


def fields_read(family: ModelFamily) -> set[str]:
    """Top-level fields of a configuration that the rules of a family look for."""
    rules = [*family.rules().values(), *_of_layers(family)]
    return {key for rule in rules for key in _keys(rule) if "." not in key}


def _of_layers(family: ModelFamily) -> Iterator[object]:
    for part in (family.windows, family.dense_layers, family.mixers):
        if part is not None:
            yield from (getattr(part, name) for name in part.__struct_fields__)


def _keys(rule: object) -> Iterator[str]:
    if isinstance(rule, ValueRule):
        yield from rule.keys
        for inner in (*(rule.values or {}).values(), rule.other):
            yield from _keys(inner)


def main(folder: Path) -> None:
    """Writes the file."""
    family_by_name = families()
    classes = {}
    for path in sorted(folder.glob("*/configuration_*.py")):
        for kind, values in class_values(path.read_text(encoding="utf-8")):
            if kind in family_by_name:
                read = fields_read(family_by_name[kind])
                classes[kind] = {name: values[name] for name in sorted(values) if name in read}
    text = json.dumps({kind: classes[kind] for kind in sorted(classes)}, indent=1)
    CLASSES.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
