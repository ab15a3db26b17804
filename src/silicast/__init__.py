"""Silicast: how fast will it run, before anybody buys, rents or builds it?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_API = ("Predicted", "StaticBatchTimes", "infer", "predict")

if TYPE_CHECKING:
    from silicast.core.errors import SilicastError
    from silicast.scenario.api import Predicted, StaticBatchTimes, infer, predict

__all__ = ["Predicted", "SilicastError", "StaticBatchTimes", "__version__", "infer", "predict"]


def __getattr__(name: str) -> Any:
    """Loads the Python interface on first use, so that ``import silicast`` stays quick."""
    if name == "SilicastError":
        from silicast.core.errors import SilicastError

        return SilicastError
    if name in _API:
        from silicast.scenario import api

        return getattr(api, name)
    raise AttributeError(f"module 'silicast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), "SilicastError", *_API]
