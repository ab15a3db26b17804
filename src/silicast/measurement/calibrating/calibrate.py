"""Calibrations fitted to the measurements of a device."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, final

import msgspec

from silicast import __version__
from silicast.core.calibrated import FittedCases, HeldOutRows, HostConstant, InModels
from silicast.core.calibration import FORMAT, Calibration, Scope
from silicast.core.errors import SilicastError
from silicast.hardware.device import Device
from silicast.learning.artefact import shipped_hash
from silicast.measurement.calibrating.calibrate_collectives import (
    MeasuredCollective,
    checked_collectives,
    fit_collectives,
)
from silicast.measurement.calibrating.calibrate_kernels import (
    Group,
    MeasuredKernel,
    checked_hosts,
    checked_kernels,
    constant_of,
    fit_hosts,
    fit_kernels,
)
from silicast.measurement.calibrating.calibrate_runs import FEWEST, MOVING, fit_runs, untold
from silicast.measurement.calibrating.measured_runs import checked_runs, is_served
from silicast.measurement.calibrating.scoring import (
    CHOSEN,
    CROSS_VALIDATED,
    HELD_OUT,
    Scored,
    TrialFolder,
    cross_validated,
    enough,
    held_out,
    scored,
    summarised,
    trial_folder,
    why_not_scored,
)
from silicast.measurement.records.cases import Case
from silicast.measurement.records.dataset import (
    Dataset,
    DatasetRow,
    RejectedRows,
    calibration_scope,
    dataset_device,
    read_dataset,
)

WELL_SPREAD = 16
"""Rows of a family and format from which on its physical quantities are fitted."""
LEAST_OF_KERNELS = 8
"""Rows below which only an offset is fitted."""

T = TypeVar("T")


@final
@dataclass(frozen=True)
class CalibrationResult:
    """A calibration with what a user should know of its rows.

    Attributes:
        rejected: rows that were not used.
        before: (family, dtype) -> mean |log| error of the predictions before.
        notes: remarks on the rows.
        unscored: why rows are missing from the accuracy figures -> rows.
    """

    calibration: Calibration
    rejected: RejectedRows
    before: Mapping[Group, float]
    notes: list[str] = field(default_factory=list)
    unscored: Mapping[str, int] = field(default_factory=dict)


@final
@dataclass(frozen=True)
class _DeviceRows:
    """Credible rows of one device; hosts and runs as cases, runs by engine."""

    kernels: Mapping[Group, Sequence[MeasuredKernel]] = field(default_factory=dict)
    hosts: Sequence[Case] = ()
    collectives: Sequence[MeasuredCollective] = ()
    runs: Mapping[str, Sequence[Case]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Rows that can be fitted, and times of runs."""
        kernels = sum(not row.stray for part in self.kernels.values() for row in part)
        runs = sum(map(len, self.runs.values()))
        return kernels + runs + len(self.hosts) + len(self.collectives)

    @property
    def cases(self) -> list[Case]:
        kernels = [row.case for part in self.kernels.values() for row in part]
        runs = [case for part in self.runs.values() for case in part]
        return [*kernels, *(row.case for row in self.collectives), *self.hosts, *runs]

    def divided(self, share: float, seed: int) -> tuple[_DeviceRows, _DeviceRows]:
        """Rows to fit and rows to score, of every group the same share; strays are scored only."""

        def part(members: Sequence[T], case_of: Callable[[T], Case], *, out: bool) -> list[T]:
            is_out = held_out([case_of(each).identity for each in members], share, seed).tolist()
            return [each for each, side in zip(members, is_out, strict=True) if side == out]

        def side(*, out: bool) -> _DeviceRows:
            kernels = {
                group: [r for r in part(rows, lambda r: r.case, out=out) if out or not r.stray]
                for group, rows in self.kernels.items()
            }
            runs = {name: part(cases, lambda c: c, out=out) for name, cases in self.runs.items()}
            return _DeviceRows(
                {group: rows for group, rows in kernels.items() if rows},
                part(self.hosts, lambda case: case, out=out),
                part(self.collectives, lambda row: row.case, out=out),
                {name: cases for name, cases in runs.items() if cases},
            )

        return side(out=False), side(out=True)


def calibrate(
    paths: Path | Sequence[Path],
    device_name: str = "",
    *,
    skip_bad: bool = False,
    keep_flagged: bool = False,
    holdout: float = 0.0,
    seed: int = 0,
) -> CalibrationResult:
    """Fits a calibration of a device to files of its measurements.

    Args:
        paths: files of measurements, or tables of kernels (CSV, JSON Lines or Parquet; the columns
            of a ``kernel`` table of a scenario, and ``latency_us``, ``latency_ms`` or
            ``latency_s``).
        device_name: catalog name or path of a device file; "" = as the files state.
        skip_bad: leave out rows that cannot be right instead of raising.
        keep_flagged: use also rows that were timed while the machine was busy or throttled.
        holdout: share of the rows that is scored and not fitted; 0 = all rows are fitted, and
            accuracy is cross-validated.
        seed: selects the rows that are held out.

    Raises:
        SilicastError: an unreadable file, incredible rows (listed by number), several devices, or
            no usable row.
    """
    if not 0.0 <= holdout < 1.0:
        raise SilicastError(
            f"expected a share from 0 to below 1, found {holdout:g}",
            field="holdout",
            hint="0.5 = half of the rows",
        )
    dataset = read_dataset([paths] if isinstance(paths, Path) else paths, keep_flagged=keep_flagged)
    device, named = dataset_device(dataset, device_name)
    scope, notes = calibration_scope(dataset, device)
    rejected = RejectedRows(several_files=len(dataset.files) > 1)
    rows, unused = _checked(dataset, device, named, rejected)
    if rejected.count and not skip_bad:
        raise SilicastError(
            "; ".join(rejected.lines()),
            file=", ".join(str(path) for path in dataset.files),
            field="rows",
            hint="correct them, or leave them out with --skip-bad",
        )
    first = str(dataset.files[0])
    if not rows.count:
        raise SilicastError(
            "no row can be used",
            file=first,
            field="rows",
            hint=_why_none(rejected, dataset, unused),
        )
    fitted, out = rows.divided(holdout, seed) if holdout else (rows, None)
    if not fitted.count:
        raise SilicastError(
            "holding out leaves no row to fit", field="holdout", hint="a smaller share"
        )
    with trial_folder() as folder:
        fit = _DeviceFit(device, scope, folder)
        calibration, before, accuracy = fit.all(fitted, check=out is None)
        if not (
            calibration.offsets
            or calibration.constants
            or calibration.collectives
            or calibration.models
        ):
            raise SilicastError(
                "; ".join(_too_few(fitted)), file=first, field="rows", hint="measure more"
            )
        if out is not None:
            accuracy = fit.held_out(out, calibration)
    source = ", ".join(path.name for path in dataset.files)
    calibration = msgspec.structs.replace(
        calibration,
        created=datetime.datetime.now(datetime.UTC).date().isoformat(),
        source=f"{source}: {fitted.count} rows" + (" (others held out)" if out else ""),
        left_out=accuracy,
    )
    notes += [*dataset.lines(), *unused, *_too_few(fitted), *untold(calibration)]
    unscored = _unscored(out or rows, rejected, all_rows=out is None)
    return CalibrationResult(calibration.signed, rejected, before, notes, unscored)


def _checked(
    dataset: Dataset, device: Device, named: str, rejected: RejectedRows
) -> tuple[_DeviceRows, list[str]]:
    """Credible rows, and why times of runs are not used."""

    def of_device(rows: Iterable[DatasetRow[T]]) -> list[DatasetRow[T]]:
        on_device = []
        for each in rows:
            if each.is_measured_on(device):
                on_device.append(each)
            else:
                rejected.add(
                    f"are of another device ({each.device[0][:40]})", each.number, each.file
                )
        return on_device

    kernels = checked_kernels(dataset, device, named, rejected)
    hosts = checked_hosts(of_device(dataset.hosts), named, rejected)
    collectives = checked_collectives(of_device(dataset.collectives), device, named, rejected)
    runs, unused = checked_runs(of_device(dataset.runs), device, named, rejected)
    return _DeviceRows(kernels, hosts, collectives, runs), unused


@final
@dataclass(frozen=True)
class _DeviceFit:
    """Fits and predictions for one device."""

    device: Device
    scope: Scope
    folder: TrialFolder

    def fitted(self, rows: _DeviceRows) -> tuple[Calibration, dict[Group, float]]:
        """Fit to all rows but runs, and errors of kernels before."""
        offsets, before = fit_kernels(rows.kernels, self.device)
        return Calibration(
            FORMAT,
            self.scope,
            offsets,
            version=__version__,
            upstream=shipped_hash(),
            constants=fit_hosts(rows.hosts, self.device),
            collectives=fit_collectives(rows.collectives),
        ), before

    def all(
        self, rows: _DeviceRows, *, check: bool
    ) -> tuple[Calibration, dict[Group, float], list[HeldOutRows]]:
        """A calibration by all rows, errors before, and with ``check`` its cross-validation."""
        calibration, before = self.fitted(rows)
        constants = calibration.constants
        models: list[InModels] = []
        models_before: list[Scored] = []
        models_after: list[Scored] = []
        after = self._cross_validated(rows) if check else []
        for cases in rows.runs.values():
            result = fit_runs(cases, self.device, calibration, self.folder)
            if result is None:
                continue
            models.append(result.model)
            constants = _merged(constants, result.constants)
            if check:
                models_before += result.before
                models_after += result.cross_validated
        calibration = msgspec.structs.replace(
            calibration,
            constants=constants,
            models=models,
            fitted=FittedCases(
                collectives=sorted({row.case.identity for row in rows.collectives}),
                runs=sorted({case.identity for cases in rows.runs.values() for case in cases}),
                hosts=sorted({case.identity for case in rows.hosts}),
            ),
        )
        accuracy = summarised(CROSS_VALIDATED, scored([row.case for row in after]), after)
        return calibration, before, [*accuracy, *summarised(CHOSEN, models_before, models_after)]

    def held_out(self, rows: _DeviceRows, calibration: Calibration) -> list[HeldOutRows]:
        """Accuracy on rows that were held out; host times that nothing predicts do not count."""
        before, after = scored(rows.cases), self._predicted(calibration, rows.cases)
        counted = [
            (row_before, row_after)
            for row_before, row_after in zip(before, after, strict=True)
            if row_before.answered or row_after.case.host is None
        ]
        return summarised(
            HELD_OUT,
            [row_before for row_before, _ in counted],
            [row_after for _, row_after in counted],
        )

    def _cross_validated(self, rows: _DeviceRows) -> list[Scored]:
        """Kernels, collectives and host times, each predicted by fits to other rows."""

        def by(remaining: _DeviceRows, out: Sequence[Case]) -> list[Scored]:
            return self._predicted(self.fitted(remaining)[0], out)

        scoreds = []
        for group, members in rows.kernels.items():

            def of_group(
                measured_kernels: Sequence[MeasuredKernel],
                out: Sequence[Case],
                group: Group = group,
            ) -> list[Scored]:
                return by(_DeviceRows({group: measured_kernels}), out)

            scoreds += cross_validated(members, [row.case for row in members], of_group)
        cases = [row.case for row in rows.collectives]
        scoreds += cross_validated(
            rows.collectives, cases, lambda fitted, out: by(_DeviceRows(collectives=fitted), out)
        )
        hosts: dict[tuple[str, str], list[Case]] = {}
        for case in rows.hosts:
            assert case.host is not None
            key = (constant_of(case.host, self.device), case.host.engine)
            hosts.setdefault(key, []).append(case)
        for host_cases in hosts.values():
            scores = cross_validated(
                host_cases, host_cases, lambda fitted, out: by(_DeviceRows(hosts=fitted), out)
            )
            scoreds += [row for row in scores if row.answered]
        return scoreds

    def _predicted(self, calibration: Calibration, cases: Sequence[Case]) -> list[Scored]:
        return scored(cases, [self.folder.file(calibration)])


def _merged(constants: Sequence[HostConstant], more: Sequence[HostConstant]) -> list[HostConstant]:
    """Constants; those that follow from runs replace those measured by themselves."""
    table = {(each.constant, each.engine): each for each in constants}
    for each in more:
        key = (each.constant, each.engine)
        rows = table[key].rows if key in table else 0
        table[key] = msgspec.structs.replace(each, rows=each.rows + rows)
    return [table[key] for key in sorted(table)]


def _unscored(rows: _DeviceRows, rejected: RejectedRows, *, all_rows: bool) -> dict[str, int]:
    """Why rows are missing from the accuracy figures -> rows.

    Args:
        all_rows: accuracy is cross-validated in groups of enough rows.
    """
    strays = sum(
        row.stray
        for part in rows.kernels.values()
        if not all_rows or enough([row.case for row in part])
        for row in part
    )
    counts = {
        "that cannot be right": rejected.count - strays,
        "of host times that nothing predicts by itself": sum(
            bool(why_not_scored(case)) for case in rows.hosts
        ),
    }
    return {why: count for why, count in counts.items() if count}


def _why_none(rejected: RejectedRows, dataset: Dataset, unused: Sequence[str]) -> str:
    """Why no row is left, and what to do."""
    reasons = [*rejected.lines(), *dataset.lines(), *unused]
    if dataset.excluded:
        reasons.append("measure again on a quiet machine, or keep them with --keep-flagged")
    return "; ".join(reasons) or "it holds no kernel, run or host time"


def _too_few(rows: _DeviceRows) -> list[str]:
    """Groups with too few rows, and how many are needed."""
    counts = {
        group: sum(not row.stray for row in members) for group, members in rows.kernels.items()
    }
    few = [
        f"{family} {dtype} ({count})"
        for (family, dtype), count in counts.items()
        if 0 < count < LEAST_OF_KERNELS
    ]
    notes = []
    if few:
        notes.append(
            f"few rows give only an offset: {', '.join(few)}; {WELL_SPREAD} well-spread kernels of "
            "a family and format calibrate its physical quantities"
        )
    for name, cases in rows.runs.items():
        count = len({case.identity for case in cases})
        if count < MOVING and any(map(is_served, cases)):
            notes.append(
                f"{name}: {len(cases)} times of {count} run{'' if count == 1 else 's'} are fitted, "
                f"and nothing checks the fit: {MOVING} runs cross-validate it, and silicast "
                "validate --measured scores others"
            )
        elif count < FEWEST:
            notes.append(
                f"{name}: {count} run{'' if count == 1 else 's'} of whole models; a calibration "
                f"needs at least {FEWEST}"
            )
    return notes
