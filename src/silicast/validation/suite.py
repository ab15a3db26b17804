"""What a suite of the scorecard is: measured rows, our predictions, baselines and peers on them."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.implementation import Implementation, KernelTimes
from silicast.learning.tiers import ALL_SHIPPED, Evidence, kernel_times
from silicast.workload.op import OpBatch

Labels = NDArray[np.str_]

EVIDENCE: ContextVar[Evidence] = ContextVar("evidence", default=ALL_SHIPPED)
"""What scored predictions may rest on: all that is shipped, unless inside :func:`resting`."""


@contextmanager
def resting(on: Evidence) -> Iterator[None]:
    """Suites that are scored inside rest on ``on``."""
    token = EVIDENCE.set(on)
    try:
        yield
    finally:
        EVIDENCE.reset(token)


def timed(model: Implementation, batch: OpBatch, device: Device) -> KernelTimes:
    """Times of kernels on the evidence that suites are scored with."""
    return kernel_times(model, batch, device, EVIDENCE.get())


@final
@dataclass(frozen=True)
class Scored:
    """Rows of one metric of a suite, arrays of shape (n,), one unit for all.

    Attributes:
        metric: what the rows measure, with its unit ("latency_us", "prefill_ms").
        measured: truth, > 0.
        estimate, p05, p95: our prediction; NaN where we gave none (counts as 100 % off).
        roofline: the plain roofline (peak rates, compulsory bytes), same unit; the baseline
            "one constant per device" is made from it.
        peers: name -> their prediction, NaN where they gave none (their own coverage is shown).
        baselines: further baselines, name -> prediction.
        groups: label arrays to report by; "device" must be there, usually "regime" too.
        noise: relative run-to-run or campaign-to-campaign noise of each row, or None.
        families: error factors are shared within these groups (labels), or None.
    """

    metric: str
    measured: F64
    estimate: F64
    p05: F64
    p95: F64
    roofline: F64 | None = None
    peers: Mapping[str, F64] = field(default_factory=dict)
    baselines: Mapping[str, F64] = field(default_factory=dict)
    groups: Mapping[str, Labels] = field(default_factory=dict)
    noise: F64 | None = None


class Suite(ABC):
    """A set of measured rows and how we predict them.

    Class attributes:
        name: as typed in ``silicast validate NAME``.
        title: one line for people.
        split: which rows are scored, what was fitted and on what, in one or two sentences.
        source: table files, relative to the data folder, that are read.
        thresholds: metric -> figure name -> largest value CI accepts for the committed results
            (with a margin above what was measured).
        both_tiers: scored in the analytic tier too, as a baseline; no = the suite sees to it.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    split: ClassVar[str]
    source: ClassVar[tuple[str, ...]]
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {}
    both_tiers: ClassVar[bool] = True

    @abstractmethod
    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """Reads the measured rows and predicts them.

        Args:
            data: the data folder.
            limit: if given, a deterministic subsample of about so many rows (for CI).
        """


_SUITES: dict[str, Suite] = {}


def register_suite(cls: type[Suite]) -> type[Suite]:
    """Class decorator: makes a suite known."""
    _SUITES[cls.name] = cls()
    return cls


def suites() -> dict[str, Suite]:
    """All suites by name, sorted."""
    import importlib
    import pkgutil

    import silicast.validation.suites as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return dict(sorted(_SUITES.items()))


def data_folder() -> Path:
    """``SILICAST_DATA``, else ``../shared/data`` beside the repository.

    Raises:
        SilicastError: neither exists.
    """
    given = os.environ.get("SILICAST_DATA")
    path = Path(given) if given else Path(__file__).resolve().parents[4] / "shared" / "data"
    if not path.is_dir():
        raise SilicastError(
            f"no measured data at {path}",
            kind="io",
            field="SILICAST_DATA",
            hint="set SILICAST_DATA to the folder of measured tables",
        )
    return path


def subsample(count: int, limit: int | None, seed: int = 0) -> NDArray[np.int64]:
    """Sorted indices of a deterministic random subsample of ``range(count)``."""
    if limit is None or count <= limit:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).permutation(count)[:limit])
