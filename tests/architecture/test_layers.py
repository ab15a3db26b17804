"""A package imports only packages before it in the list of layers."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source_tree import (
    LAYERS,
    PACKAGE,
    broken,
    imported_modules,
    layer_of,
    layer_violations,
    tree_of,
)

# What each third-party package costs to import decides where it may stand.
RUNTIME = {"numpy", "msgspec", "cyclopts", "rich"}
OPTIONAL = {
    "yaml": {"formats"},
    "google": {"formats"},  # protobuf
    "pyarrow": {"formats"},
    "matplotlib": {"report"},
    "pandas": {"app"},  # a user's own: no extra installs it
    "torch": {"workload", "measurement"},
    "triton": {"measurement"},
    "sympy": {"workload"},  # comes with torch
    "onnx": {"workload", "measurement"},
    "ai_edge_litert": {"measurement"},
    "onnxruntime": {"measurement"},
    "gymnasium": {"exploration"},
    "ray": {"runner"},
    "starlette": {"app"},
    "uvicorn": {"app"},
    "anyio": {"app"},  # comes with starlette
    "mcp": {"app"},
    "zigzag": {"accelerator"},
    "accelforge": {"accelerator"},
    # A user's own packages, whose models are read by name: no extra installs them.
    "diffusers": {"workload"},
    "huggingface_hub": {"workload"},
    "timm": {"workload"},
    "torchvision": {"workload"},
    "transformers": {"workload"},
}


def imports_upward(path: Path) -> Iterator[str]:
    layer = layer_of(path)
    if layer:
        yield from layer_violations(layer, tree_of(path))


def test_imports_point_one_way() -> None:
    assert broken(imports_upward) == []


def test_every_package_is_a_layer() -> None:
    packages = {p.name for p in PACKAGE.iterdir() if (p / "__init__.py").exists()}
    assert packages <= set(LAYERS)


def test_the_check_sees_a_wrong_import() -> None:
    tree = ast.parse(
        "def f():\n    from silicast.app import cli\n    import silicast.core.errors\n"
    )
    assert layer_violations("core", tree) == ["line 2: core imports silicast.app"] * 2


def imports_undeclared(path: Path) -> Iterator[str]:
    layer = layer_of(path)
    for line, module in imported_modules(tree_of(path)):
        top = module.split(".")[0]
        if top in sys.stdlib_module_names or top in {"silicast", ""}:
            continue
        if top not in RUNTIME and layer not in OPTIONAL.get(top, set()):
            yield f"line {line}: {top} is not a runtime dependency"
        if top in {"cyclopts", "rich"} and layer not in {"app", "report"}:
            yield f"line {line}: only app and report draw"


def test_third_party_imports_are_declared() -> None:
    assert broken(imports_undeclared) == []


def test_the_base_install_answers_without_the_extras() -> None:
    """What only an extra installs is imported only where it is used."""
    blocked = (
        "pyarrow", "scipy", "matplotlib", "hypothesis", "sphinx", "pytest", "pandas", "torch",
        "onnx", "gymnasium", "yaml", "google", "timm", "torchvision", "transformers", "diffusers",
        "huggingface_hub",
    )  # fmt: skip
    code = (
        f"import sys\nsys.modules.update(dict.fromkeys({blocked!r}))\n"
        "from silicast.app.cli import main\n"
        "sys.exit(main('infer --model Llama-3.1-8B --device h100 --json'.split()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
