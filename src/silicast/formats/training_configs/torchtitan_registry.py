"""torchtitan's registries in Python: the job that a function builds, as the table of a TOML."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from silicast.core.errors import unsupported
from silicast.formats.effects import effects_of
from silicast.formats.python_file import CALLED, GIVEN, PythonFile
from silicast.formats.source import Source
from silicast.formats.training_configs.python_recipe import chosen_recipe, known_values
from silicast.formats.training_configs.reader import Stated, Tree

MODES = {"FullAC": "full", "SelectiveAC": "selective", "MemoryBudgetAC": "memory_budget"}
"""Classes of activation checkpointing."""
TABLES = ("training", "parallelism", "compile", "checkpoint", "debug", "comm", "metrics")
DEFAULTS = {"local_batch_size": 8, "seq_len": 2048}
"""Of ``TrainingConfig`` (torchtitan 0.3.0, config/configs.py)."""


def is_registry(file: Source) -> bool:
    """Whether a file is a registry of configurations."""
    return file.path.suffix.casefold() == ".py" and "model_registry" in file.text()


def job_of(file: Source, stated: Stated, remarks: list[str]) -> Tree:
    """The job of one function of a file; remarks are added to ``remarks``.

    Raises:
        SilicastError: it holds several, or one that only running it would give.
    """
    effects = effects_of("torchtitan")
    name, python, built, more = chosen_recipe(
        file,
        stated,
        {"model_spec": object, "training": object},
        "a function that returns Trainer.Config(model_spec=..., training=...)",
        effects,
    )
    remarks += more
    remarks.append(f"job: {name}")
    tree = built.tree
    job: Tree = {"model": _model(tree["model_spec"], python, name, file)}
    for table in TABLES:
        job[table] = known_values(tree.get(table), table, str(file.path), effects)
    job["training"] = {**DEFAULTS, **job["training"]}
    again = tree.get("activation_checkpoint")
    kind = str(again.get(CALLED, "")).split(".") if isinstance(again, Mapping) else []
    known = [MODES[word] for word in kind if word in MODES]
    if kind and not known:
        raise unsupported(
            f"{'.'.join(kind)} is not read",
            "activation_checkpoint",
            ", ".join(MODES),
            file=str(file.path),
        )
    job["activation_checkpoint"] = {"mode": known[0] if known else "none"}
    if known == ["selective"]:
        job["activation_checkpoint"]["selective_ac_option"] = "op"
    optimizer = tree.get("optimizer")
    called = str(optimizer.get(CALLED, "")) if isinstance(optimizer, Mapping) else ""
    job["optimizer"] = {"name": "Adam" if called.endswith("_adam") else "AdamW"}
    return job


def _model(spec: Any, python: PythonFile, name: str, file: Source) -> Tree:
    given = spec.get(GIVEN) if isinstance(spec, Mapping) else None
    flavor = given[0] if given else spec.get("flavor") if isinstance(spec, Mapping) else None
    if not isinstance(flavor, str):
        raise unsupported(
            "its flavour is no literal",
            f"{name}.model_spec",
            'model_registry("8B")',
            file=str(file.path),
        )
    listed = spec.get("converters") or []
    converters = [str(each.get(CALLED, "")) for each in listed if isinstance(each, Mapping)]
    words = {"MXFP8": "mx", "NVFP4": "nvfp4", "Float8": "float8"}
    return {
        "name": _family(python, file) or name.rpartition("_")[0],
        "flavor": flavor,
        "converters": [
            next((short for word, short in words.items() if word in each), each)
            for each in converters
        ],
    }


def _family(python: PythonFile, file: Source) -> str:
    """The model's family: the module from which its registry comes."""
    for node in python.imports:
        if any(alias.name == "model_registry" for alias in node.names):
            return (
                node.module.rpartition(".")[2] if node.module else file.path.resolve().parent.name
            )
    defines = any(isinstance(each, ast.FunctionDef) for each in python.module.body)
    return (
        file.path.resolve().parent.name if "model_registry" in python.functions and defines else ""
    )
