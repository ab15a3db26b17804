"""torchtitan's registries in Python: the job that a function builds, as the table of a TOML."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from silicast.core.errors import unsupported
from silicast.formats.python_file import CALLED, GIVEN, PythonFile, Unread
from silicast.formats.source import Source
from silicast.formats.training_configs.megatron_bridge import refuse_blocked
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
    python = PythonFile(file.text(), str(file.path))
    jobs = {}
    for name in python.builders():
        tree = python.built(name).tree
        if "model_spec" in tree and "training" in tree:
            jobs[name] = ""
    if not jobs:
        raise unsupported(
            "no function of it builds a whole job by literal values",
            "run",
            "a function that returns Trainer.Config(model_spec=..., training=...)",
            file=str(file.path),
        )
    name = stated.chosen(jobs, str(file.path))
    built = python.built(name)
    refuse_blocked(built, str(file.path))
    remarks += [f"not followed: {line}" for line in built.unread]
    remarks.append(f"job: {name}")
    tree = built.tree
    job: Tree = {"model": _model(tree["model_spec"], python, name, file)}
    for table in TABLES:
        job[table] = _plain(tree.get(table), f"{name}.{table}", file)
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


def _plain(value: Any, name: str, file: Source) -> Tree:
    """A table of a call's keywords.

    Raises:
        SilicastError: one is known only when the file runs.
    """
    table = {}
    for key, item in (value if isinstance(value, Mapping) else {}).items():
        if key in (CALLED, GIVEN):
            continue
        if isinstance(item, Unread):
            raise unsupported(
                f"{item} is known when the file runs",
                f"{name}.{key}",
                "write the value itself",
                file=str(file.path),
            )
        table[key] = item
    return table
