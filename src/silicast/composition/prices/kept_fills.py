"""Arrays of prices of steps that are kept between processes.

Tables and surfaces of a deployment's steps are filled by the full model, block by block. A block
follows from the deployment, the question and the files of the package alone: it is kept on disk
under the hash of all three (:mod:`silicast.core.disk_cache`), with the bits that were computed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import final

import msgspec
import numpy as np

from silicast.composition.passes.deployment import Deployment
from silicast.core.disk_cache import cache_folder, cached, store
from silicast.core.hashing import content_hash, made_by, record_hash
from silicast.core.numerics import F64
from silicast.kernels.physics.constants import are_replaced

KIND = "prices"
_PACKAGE = Path(__file__).parents[2]


@final
class KeptArray(msgspec.Struct, frozen=True):
    """An array of floats: its shape, and the bytes of its numbers in their order."""

    shape: tuple[int, ...]
    numbers: bytes

    def array(self) -> F64 | None:
        """The array; None where the numbers are not as many as the shape says."""
        if len(self.numbers) != 8 * math.prod(self.shape):
            return None
        return np.frombuffer(self.numbers, dtype="<f8").reshape(self.shape)


@final
class KeptFills:
    """Arrays of one deployment.

    Args:
        content: hash of all that they follow from beside the question; "" = none are kept.
    """

    def __init__(self, content: str = "") -> None:
        self._content = content

    @staticmethod
    def of_deployment(deployment: Deployment) -> KeptFills:
        """Those of a deployment; none where nothing is kept, where it holds something that is no
        plain record, while constants of kernels are replaced, or where files changed since they
        were loaded.
        """
        if cache_folder() is None or are_replaced():
            return KeptFills()
        return KeptFills(_content(deployment, os.environ.get("SILICAST_CATALOG", "")))

    def array(self, make: Callable[[], F64], states: int, *question: object) -> F64:
        """What was kept under a question, else what ``make`` computes now.

        Args:
            states: that it holds values of. One by itself is not kept: a file takes as long to
                write as it takes to evaluate, and later processes hardly ask for it.
            question: plain data that says which array of the deployment it is.
        """
        if not self._content or states == 1:
            return make()
        key = content_hash([self._content, question])
        known = cached(KIND, key, KeptArray)
        result = None if known is None else known.array()
        if result is None:
            result = make()
            numbers = np.ascontiguousarray(result, dtype="<f8").tobytes()
            store(KIND, key, KeptArray(result.shape, numbers))
        return result


@lru_cache(maxsize=256)
def _content(deployment: Deployment, catalog: str) -> str:
    record = record_hash(deployment)
    try:
        files = _files(catalog)
    except OSError:  # of a folder that cannot be read; whoever needs its files says so
        return ""
    return "" if record is None or files is None else content_hash([files, record])


@lru_cache(maxsize=8)
def _files(catalog: str) -> str | None:
    """What the package and the user's catalog are; None where they changed since they were
    loaded.
    """
    return made_by((_PACKAGE, Path(catalog)) if catalog else (_PACKAGE,))
