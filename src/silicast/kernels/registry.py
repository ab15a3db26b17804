"""Which kernel models there are: each registers itself, and is found by its family's file.

A family is one file of a room of this package, named after the family; :data:`MODULES` lists files
that hold several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

from silicast.core.providers import providers
from silicast.kernels.implementation import Implementation

MODULES = {
    "combine": "moe_exchange", "dispatch": "moe_exchange", "gdn": "recurrent_mixer",
    "gru": "recurrent_layers", "hca_module": "csa_module", "kda": "recurrent_mixer",
    "layernorm": "norms", "linear_cross_entropy": "linear_loss_chains",
    "linear_preference_loss": "linear_loss_chains", "lstm": "recurrent_layers",
    "mamba2": "recurrent_mixer", "norm_backward": "norms", "rmsnorm": "norms",
    "rnn": "recurrent_layers",
}  # fmt: skip
"""Families whose module has another name than theirs, because it holds several."""
ELSEWHERE = "execution_models"
"""The room of other devices' kernels; :mod:`silicast.core.providers` imports those."""

_REGISTRY: dict[tuple[str, str], Implementation] = {}
_ADAPTERS: dict[str, Callable[[Implementation], Implementation]] = {}


def register(cls: type[Implementation]) -> type[Implementation]:
    """Class decorator: makes a family known. One instance serves all calls (it has no state)."""
    key = (cls.family, cls.execution_model)
    if key in _REGISTRY:
        raise ValueError(f"two implementations for {key}")
    _REGISTRY[key] = cls()
    return cls


def register_adapter(
    execution_model: str, adapt: Callable[[Implementation], Implementation]
) -> None:
    """Makes every SIMT family known on ``execution_model``, unless it has a model of its own.

    ``adapt`` makes a model out of the SIMT one; see
    :mod:`silicast.kernels.execution_models.fallback_kernels`.
    """
    if execution_model in _ADAPTERS:
        raise ValueError(f"two adapters for {execution_model}")
    _ADAPTERS[execution_model] = adapt


def families(execution_model: str = "simt") -> tuple[str, ...]:
    """Names of all op families with a model for ``execution_model``, sorted."""
    models = {execution_model}
    if execution_model == "simt" or execution_model in providers():
        models.add("simt")
    if "simt" in models:
        for module in modules_by_name().values():
            import_module(module)
    return tuple(sorted({family for family, model in _REGISTRY if model in models}))


@cache
def modules_by_name() -> Mapping[str, str]:
    """Every module of the rooms of this package by its own name; a family's file is found so."""
    return {
        path.stem: f"silicast.kernels.{path.parent.name}.{path.stem}"
        for path in sorted(Path(__file__).parent.glob("*/*.py"))
        if path.stem != "__init__" and path.parent.name != ELSEWHERE
    }


def implementation_for(family: str, execution_model: str) -> Implementation | None:
    """The kernel model for a family on an execution model, or None."""
    implementation = _REGISTRY.get((family, execution_model))
    if implementation is None:
        _load(family, execution_model)
        implementation = _REGISTRY.get((family, execution_model))
    if implementation is None and execution_model in _ADAPTERS:
        original = implementation_for(family, "simt")
        if original is not None:
            implementation = _ADAPTERS[execution_model](original)
            _REGISTRY[family, execution_model] = implementation
    return implementation


def _load(family: str, execution_model: str) -> None:
    """Imports what may register a model: the family's module, or an execution model's."""
    if execution_model == "simt":
        if module := modules_by_name().get(MODULES.get(family, family)):
            import_module(module)
    elif execution_model in providers():
        import_module(providers()[execution_model].kernels)
