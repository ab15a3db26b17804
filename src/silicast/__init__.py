"""Silicast: how fast will it run, before anybody buys, rents or builds it?"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from silicast.core.compiled_core import put_in_place

__version__ = "0.2.0"

_MODULES = {
    "silicast.core.errors": ("SilicastError",),
    "silicast.app.api": ("Predicted", "StaticBatchTimes", "infer", "predict"),
    "silicast.app.api_deployment": ("CompiledDeployment", "deployment", "step_predictor"),
    "silicast.app.api_many": (
        "Row",
        "Table",
        "capacity",
        "compare",
        "explain",
        "serve",
        "sweep",
        "train",
    ),
    "silicast.app.api_searches": ("design_environment", "fits", "nas", "recommend"),
    "silicast.app.api_tuning": ("diagnose", "tune"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

if TYPE_CHECKING:
    from silicast.app.api import Predicted, StaticBatchTimes, infer, predict
    from silicast.app.api_deployment import CompiledDeployment, deployment, step_predictor
    from silicast.app.api_many import Row, Table, capacity, compare, explain, serve, sweep, train
    from silicast.app.api_searches import design_environment, fits, nas, recommend
    from silicast.app.api_tuning import diagnose, tune
    from silicast.core.errors import SilicastError

__all__ = [
    "CompiledDeployment",
    "Predicted",
    "Row",
    "SilicastError",
    "StaticBatchTimes",
    "Table",
    "__version__",
    "capacity",
    "compare",
    "deployment",
    "design_environment",
    "diagnose",
    "explain",
    "fits",
    "infer",
    "nas",
    "predict",
    "recommend",
    "serve",
    "step_predictor",
    "sweep",
    "train",
    "tune",
]

_CORE = put_in_place(__version__)


def __getattr__(name: str) -> Any:
    """Loads the Python interface on first use, so that ``import silicast`` stays quick."""
    if name not in _HOME:
        raise AttributeError(f"module 'silicast' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
