"""A suite of the scorecard: measured rows, our predictions, baselines and peers on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, final

import msgspec
import numpy as np

from lab.scorecard.rows import Labels, MeasuredRows
from silicast.core.decode import Strict, read_toml
from silicast.core.errors import SilicastError, unknown_name
from silicast.core.numerics import F64, I64
from silicast.hardware.device import PowerState
from silicast.kernels.implementation import KernelTimes
from silicast.learning.tiers import ALL_SHIPPED, Evidence, kernel_times

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


def predicted(rows: MeasuredRows, state: PowerState = "cool") -> KernelTimes:
    """Times of measured kernels, on the evidence that suites are scored with.

    Args:
        state: in which the board was.
    """
    return kernel_times(rows.model, rows.batch, rows.hardware.in_state(state), EVIDENCE.get())


@final
@dataclass(frozen=True)
class Scored:
    """Rows of one metric of a suite, arrays of shape (n,), one unit for all.

    Attributes:
        metric: what the rows measure, with its unit ("latency_us", "prefill_ms").
        measured: truth, > 0.
        estimate, p05, p95: our prediction; NaN where there is none (counts as 100 % off).
        roofline: the plain roofline (peak rates, compulsory bytes), same unit; the baseline
            "one constant per device" is made from it.
        peers: name -> their prediction, NaN where there is none (their own coverage is shown).
        baselines: further baselines, name -> prediction.
        groups: label arrays to report by; "device" must be there, usually "regime" too.
        noise: relative run-to-run or campaign-to-campaign noise of each row, or None.
        bound: our bound, where it is scored that no measured value lies below it.
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
    bound: F64 | None = None

    def __len__(self) -> int:
        return len(self.measured)

    @staticmethod
    def joined(metric: str, parts: Sequence[Scored]) -> Scored:
        """Rows of several parts, one after the other; a peer may be missing from some."""

        def all_of(name: str) -> Any:
            columns = [getattr(part, name) for part in parts]
            if not isinstance(columns[0], Mapping):
                present = [column for column in columns if column is not None]
                return np.concatenate(present) if present else None
            names = dict.fromkeys(key for column in columns for key in column)
            return {
                key: np.concatenate(
                    [
                        column[key] if key in column else np.full(len(part), np.nan)
                        for column, part in zip(columns, parts, strict=True)
                    ]
                )
                for key in names
            }

        return Scored(metric, **{f.name: all_of(f.name) for f in fields(Scored)[1:]})

    def take(self, rows: I64) -> Scored:
        """Some of the rows."""

        def some(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {name: column[rows] for name, column in value.items()}
            return None if value is None else value[rows]

        return Scored(
            self.metric, **{f.name: some(getattr(self, f.name)) for f in fields(self)[1:]}
        )


Score = Callable[[Path, int | None], Iterable[Scored]]


@final
class SuiteFacts(Strict, frozen=True):
    """What the file beside a module of ``suites/`` states of one of its suites.

    Attributes:
        title: one line for people.
        split: which rows are scored, what was fitted and on what, in one or two sentences.
        thresholds: metric -> figure name -> largest value CI accepts for the committed results
            (with a margin above what was measured); of a correlation the least.
        groups: groups whose figures the committed summary holds, because something reads them.
    """

    title: str
    split: str
    thresholds: Mapping[str, Mapping[str, float]]
    groups: tuple[str, ...] = ()


@cache
def _facts_of_modules() -> Mapping[str, Mapping[str, SuiteFacts]]:
    """Module of ``suites/`` -> suite -> its facts."""
    folder = Path(__file__).with_name("suites")
    return {
        path.stem: msgspec.convert(read_toml(path), dict[str, SuiteFacts])
        for path in sorted(folder.glob("*.toml"))
    }


@cache
def suite_facts() -> Mapping[str, SuiteFacts]:
    """The facts of all suites by name, sorted; no suite's code is read for them."""
    facts = {
        name: fact
        for module_facts in _facts_of_modules().values()
        for name, fact in module_facts.items()
    }
    return dict(sorted(facts.items()))


@final
@dataclass(frozen=True)
class Suite:
    """A set of measured rows and how they are predicted.

    Attributes:
        name: as typed in ``silicast validate NAME``.
        source: table files, relative to the data folder, that are read.
        predict: reads the rows of a data folder and predicts them, about so many where a limit is
            given.
        both_tiers: scored in the analytic tier too, as a baseline; False = the suite has its own.
    """

    name: str
    source: tuple[str, ...]
    predict: Score
    both_tiers: bool = True

    @property
    def facts(self) -> SuiteFacts:
        """What the file beside its module states of the suite."""
        return suite_facts()[self.name]

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """All metrics.

        Args:
            data: the data folder.
            limit: if given, a deterministic subsample of about so many rows (for CI).
        """
        return list(self.predict(data, limit))


@cache
def suite_named(name: str) -> Suite:
    """One suite; only its own module is imported, so that what it rests on can be observed.

    Raises:
        SilicastError: there is none of this name.
    """
    for module, facts in _facts_of_modules().items():
        if name in facts:
            package = import_module(f"{__package__}.suites.{module}")
            listed: tuple[Suite, ...] = package.SUITES
            return next(suite for suite in listed if suite.name == name)
    raise unknown_name(f"unknown suite {name!r}", "suite", f"one of {', '.join(suite_facts())}")


def suites() -> Mapping[str, Suite]:
    """All suites by name, sorted."""
    return {name: suite_named(name) for name in suite_facts()}


def data_folder() -> Path:
    """``SILICAST_DATA``, else ``../shared/data`` beside the repository.

    Raises:
        SilicastError: neither exists.
    """
    from_environment = os.environ.get("SILICAST_DATA")
    path = (
        Path(from_environment)
        if from_environment
        else Path(__file__).resolve().parents[3] / "shared" / "data"
    )
    if not path.is_dir():
        raise SilicastError(
            f"no measured data at {path}",
            kind="io",
            field="SILICAST_DATA",
            hint="set SILICAST_DATA to the folder of measured tables",
        )
    return path


def data_if_there() -> Path | None:
    """The folder of measured tables; None without one."""
    try:
        return data_folder()
    except SilicastError:
        return None
