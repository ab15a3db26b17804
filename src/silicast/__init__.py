"""Silicast: how fast will it run, before anybody buys, rents or builds it?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_API = ("Predicted", "StaticBatchTimes", "infer", "predict")
_MANY = ("Row", "Table", "capacity", "compare", "explain", "serve", "sweep", "train")
_TUNING = ("diagnose", "tune")
_DESIGN = ("design_environment",)
_STEPS = ("step_predictor",)

if TYPE_CHECKING:
    from silicast.app.api import Predicted, StaticBatchTimes, infer, predict
    from silicast.app.api_design import design_environment
    from silicast.app.api_many import Row, Table, capacity, compare, explain, serve, sweep, train
    from silicast.app.api_steps import step_predictor
    from silicast.app.api_tuning import diagnose, tune
    from silicast.core.errors import SilicastError

__all__ = [
    "Predicted",
    "Row",
    "SilicastError",
    "StaticBatchTimes",
    "Table",
    "__version__",
    "capacity",
    "compare",
    "design_environment",
    "diagnose",
    "explain",
    "infer",
    "predict",
    "serve",
    "step_predictor",
    "sweep",
    "train",
    "tune",
]


def __getattr__(name: str) -> Any:
    """Loads the Python interface on first use, so that ``import silicast`` stays quick."""
    if name == "SilicastError":
        from silicast.core.errors import SilicastError

        return SilicastError
    if name in _API:
        from silicast.app import api

        return getattr(api, name)
    if name in _MANY:
        from silicast.app import api_many

        return getattr(api_many, name)
    if name in _TUNING:
        from silicast.app import api_tuning

        return getattr(api_tuning, name)
    if name in _DESIGN:
        from silicast.app import api_design

        return getattr(api_design, name)
    if name in _STEPS:
        from silicast.app import api_steps

        return getattr(api_steps, name)
    raise AttributeError(f"module 'silicast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), "SilicastError", *_API, *_MANY, *_TUNING, *_DESIGN, *_STEPS]
