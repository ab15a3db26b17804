"""Measurements of a device into a calibration; rows that cannot be right are named, not used."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, final

import msgspec

from silicast import __version__
from silicast.core.calibrated import Fitted, HostConstant, InModels, LeftOut
from silicast.core.calibration import FORMAT, Calibration, Scope
from silicast.core.errors import SilicastError
from silicast.hardware.device import Device
from silicast.measurement.calibrate_collectives import (
    MeasuredCollective,
    checked_collectives,
    fit_collectives,
)
from silicast.measurement.calibrate_hosts import checked_hosts, constant_of, fit_hosts
from silicast.measurement.calibrate_kernels import (
    Group,
    MeasuredKernel,
    checked_kernels,
    fit_kernels,
    understood_kernels,
)
from silicast.measurement.calibrate_runs import FEWEST, checked_runs, fit_runs
from silicast.measurement.cases import Case, host_case, kernel_case_of
from silicast.measurement.given import (
    Given,
    Numbered,
    device_given,
    is_of,
    read_given,
    scope_of,
)
from silicast.measurement.left_out import (
    CHOSEN,
    CROSS_VALIDATED,
    HELD_OUT,
    cross_validated,
    enough,
    held,
    summed_up,
)
from silicast.measurement.records import HostRow
from silicast.measurement.refused import Refused
from silicast.measurement.scoring import Scored, scored, why_not_scored
from silicast.measurement.scratch import Scratch, scratch

WELL_SPREAD = 16
"""Rows of a family and format that move its physical quantities."""
LEAST_OF_KERNELS = 8
"""Fewer rows than that give an offset alone."""

Row = TypeVar("Row")


@final
@dataclass(frozen=True)
class Calibrated:
    """A calibration and how it came about.

    Attributes:
        calibration: what was learned.
        refused: rows that were left out.
        before: (family, dtype) -> mean |log| error of the predictions before.
        said: what else a reader must know of the rows.
        unscored: what its figures on rows that were not fitted leave out -> rows.
    """

    calibration: Calibration
    refused: Refused
    before: Mapping[tuple[str, str], float]
    said: list[str] = field(default_factory=list)
    unscored: Mapping[str, int] = field(default_factory=dict)


@final
@dataclass(frozen=True)
class _Rows:
    """Rows that can be right, of one device."""

    kernels: Mapping[Group, Sequence[MeasuredKernel]]
    hosts: Sequence[Numbered[HostRow]]
    collectives: Sequence[MeasuredCollective]
    runs: Mapping[str, Sequence[Case]]

    @property
    def count(self) -> int:
        """Rows that can be fitted, and times of runs."""
        kernels = sum(not row.stray for part in self.kernels.values() for row in part)
        runs = sum(map(len, self.runs.values()))
        return kernels + runs + len(self.hosts) + len(self.collectives)


@final
@dataclass(frozen=True)
class _About:
    """What all fits of one call need."""

    device: Device
    named: str
    scope: Scope
    scratch: Scratch


def calibrate(
    paths: Path | Sequence[Path],
    device_name: str = "",
    *,
    skip_bad: bool = False,
    keep_flagged: bool = False,
    holdout: float = 0.0,
    seed: int = 0,
) -> Calibrated:
    """The calibration of a device from files of its measurements.

    Args:
        paths: files of measurements, or tables of kernels (CSV, JSON Lines or Parquet; the columns
            of a ``kernel`` table of a scenario, and ``latency_us``, ``latency_ms`` or
            ``latency_s``).
        device_name: catalog name or path of a device file; "" = as the files say.
        skip_bad: go on without rows that cannot be right; else they refuse the whole.
        keep_flagged: take rows too that were timed while the machine was busy or throttled.
        holdout: share of the rows that is not fitted but scored; 0 = all are fitted, and what
            scores them are fits without them.
        seed: which rows are held out.

    Raises:
        SilicastError: unreadable, rows that cannot be right, named with their counts, several
            devices, or no row at all.
    """
    if not 0.0 <= holdout < 1.0:
        raise SilicastError(
            f"expected a share from 0 to below 1, found {holdout:g}", field="holdout",
            hint="0.5 = half of the rows",
        )  # fmt: skip
    given = read_given([paths] if isinstance(paths, Path) else paths, keep_flagged=keep_flagged)
    device, named = device_given(given, device_name)
    scope, said = scope_of(given, device)
    refused = Refused(several=len(given.files) > 1)
    rows, unused = _checked(given, device, named, refused)
    _refuse(refused, given, skip_bad=skip_bad)
    if not rows.count:
        raise SilicastError(
            "no row can be used", file=str(given.files[0]), field="rows",
            hint=_why_none(refused, given, unused),
        )  # fmt: skip
    with scratch() as folder:
        about = _About(device, named, scope, folder)
        fitted, out = _split(rows, holdout, seed) if holdout else (rows, None)
        if not fitted.count:
            raise SilicastError(
                "holding out leaves no row to fit", field="holdout", hint="a smaller share"
            )
        calibration, before, checked = _fit(fitted, about, check=out is None)
        _not_empty(calibration, fitted, given)
        if out is not None:
            checked = _held_out(out, calibration, about)
    source = ", ".join(path.name for path in given.files)
    calibration = msgspec.structs.replace(
        calibration,
        created=datetime.datetime.now(datetime.UTC).date().isoformat(),
        source=f"{source}: {fitted.count} rows" + (" (others held out)" if out else ""),
        left_out=checked,
    )
    said += [*given.lines(), *unused, *_few(fitted)]
    unscored = _unscored(rows if out is None else out, about.named, refused, all_rows=out is None)
    return Calibrated(calibration.signed, refused, before, said, unscored)


def _unscored(rows: _Rows, named: str, refused: Refused, *, all_rows: bool) -> dict[str, int]:
    """What is among rows to score and has no score.

    Args:
        all_rows: each is scored by a fit of others, where there are enough of them.
    """
    strays = sum(
        row.stray
        for part in rows.kernels.values()
        if not all_rows or enough([kernel_case_of(row, named) for row in part])
        for row in part
    )
    silent = sum(bool(why_not_scored(host_case(each, named))) for each in rows.hosts)
    said = {
        "that cannot be right": refused.count - strays,
        "of host times that nothing predicts by itself": silent,
    }
    return {why: count for why, count in said.items() if count}


def _why_none(refused: Refused, given: Given, unused: Sequence[str]) -> str:
    """Why no row is left, and what to do."""
    flagged = sum((given.flagged or {}).values())
    said = [*refused.lines(), *given.lines(), *unused]
    if flagged:
        said.append("measure again on a quiet machine, or take them with --keep-flagged")
    return "; ".join(said) or "it holds no kernel, run or host time"


def _not_empty(calibration: Calibration, rows: _Rows, given: Given) -> None:
    """Refuses to write what says nothing."""
    if calibration.offsets or calibration.constants or calibration.collectives:
        return
    if not calibration.models:
        raise SilicastError(
            "; ".join(_few(rows)), file=str(given.files[0]), field="rows", hint="measure more"
        )


def _checked(given: Given, device: Device, named: str, refused: Refused) -> tuple[_Rows, list[str]]:
    """Rows that can be right, and what of runs is not used."""
    kernels = checked_kernels(understood_kernels(given.kernels, device, refused), device, refused)
    hosts = checked_hosts(_of_device(given.hosts, device, refused), refused)
    collectives = checked_collectives(
        _of_device(given.collectives, device, refused), device, named, refused
    )
    runs, unused = checked_runs(_of_device(given.runs, device, refused), device, named, refused)
    return _Rows(kernels, hosts, collectives, runs), unused


def _of_device(
    rows: Sequence[Numbered[Any]], device: Device, refused: Refused
) -> list[Numbered[Any]]:
    kept = []
    for each in rows:
        if is_of(each, device):
            kept.append(each)
        else:
            called = each.session.device if each.session is not None else ""
            refused.add(f"are of another device ({called[:40]})", each.number, each.file)
    return kept


def _refuse(refused: Refused, given: Given, *, skip_bad: bool) -> None:
    if refused.count and not skip_bad:
        raise SilicastError(
            "; ".join(refused.lines()),
            file=", ".join(str(path) for path in given.files),
            field="rows",
            hint="mend them, or leave them out with --skip-bad",
        )


def _fit(
    rows: _Rows, about: _About, *, check: bool
) -> tuple[Calibration, dict[Group, float], list[LeftOut]]:
    """What rows say; with ``check``, also how far off it is on rows that are left out in turn."""
    offsets, before = fit_kernels(rows.kernels, about.device)
    constants = fit_hosts(rows.hosts, about.device)
    calibration = Calibration(
        FORMAT, about.scope, offsets, version=__version__, constants=constants,
        collectives=fit_collectives(rows.collectives),
    )  # fmt: skip
    models: list[InModels] = []
    alone: list[Scored] = []
    start: list[Scored] = []
    left: list[Scored] = []
    if check:
        for part in (_kernels_left_out, _collectives_left_out, _hosts_left_out):
            alone += part(rows, about)
    for cases in rows.runs.values():
        found = fit_runs(cases, about.device, calibration, about.scratch)
        if found is None:
            continue
        models.append(found.model)
        constants = _merged(constants, found.constants)
        if check:
            start, left = [*start, *found.before], [*left, *found.left_out]
    calibration = msgspec.structs.replace(
        calibration,
        constants=constants,
        models=models,
        fitted=Fitted(
            collectives=sorted({row.case.identity for row in rows.collectives}),
            runs=sorted({case.identity for cases in rows.runs.values() for case in cases}),
            hosts=sorted({host_case(each, about.named).identity for each in rows.hosts}),
        ),
    )
    checked = summed_up(CROSS_VALIDATED, scored([row.case for row in alone]), alone)
    return calibration, before, [*checked, *summed_up(CHOSEN, start, left)]


def _merged(known: Sequence[HostConstant], more: Sequence[HostConstant]) -> list[HostConstant]:
    """Constants, those that follow from runs in the place of what was known before the runs."""
    found = {(each.constant, each.engine): each for each in known}
    for each in more:
        rows = found[key].rows if (key := (each.constant, each.engine)) in found else 0
        found[key] = msgspec.structs.replace(each, rows=each.rows + rows)
    return [found[key] for key in sorted(found)]


def _kernels_left_out(rows: _Rows, about: _About) -> list[Scored]:
    found = []
    for group, members in rows.kernels.items():

        def predicted(
            kept: Sequence[MeasuredKernel], out: Sequence[Case], group: Group = group
        ) -> list[Scored]:
            offsets, _ = fit_kernels({group: kept}, about.device)
            return _by(Calibration(FORMAT, about.scope, offsets), out, about)

        found += cross_validated(members, lambda row: kernel_case_of(row, about.named), predicted)
    return found


def _collectives_left_out(rows: _Rows, about: _About) -> list[Scored]:
    def predicted(kept: Sequence[MeasuredCollective], out: Sequence[Case]) -> list[Scored]:
        curves = fit_collectives(kept)
        return _by(Calibration(FORMAT, about.scope, [], collectives=curves), out, about)

    return cross_validated(rows.collectives, lambda row: row.case, predicted)


def _hosts_left_out(rows: _Rows, about: _About) -> list[Scored]:
    groups: dict[tuple[str, str], list[Numbered[HostRow]]] = {}
    for each in rows.hosts:
        groups.setdefault((constant_of(each.row, about.device), each.row.engine), []).append(each)

    def predicted(kept: Sequence[Numbered[HostRow]], out: Sequence[Case]) -> list[Scored]:
        constants = fit_hosts(kept, about.device)
        return _by(Calibration(FORMAT, about.scope, [], constants=constants), out, about)

    found = []
    for members in groups.values():
        said = cross_validated(members, lambda each: host_case(each, about.named), predicted)
        found += [row for row in said if row.answered]
    return found


def _by(calibration: Calibration, cases: Sequence[Case], about: _About) -> list[Scored]:
    return scored(cases, [about.scratch.file(calibration)])


def _split(rows: _Rows, share: float, seed: int) -> tuple[_Rows, _Rows]:
    """Rows to fit and rows to score, of every group the same share."""

    def halves(members: Sequence[Row], identity: Callable[[Row], str]) -> tuple[list[Row], ...]:
        out = held([identity(row) for row in members], share, seed)
        pairs = list(zip(members, out.tolist(), strict=True))
        return [row for row, is_out in pairs if not is_out], [
            row for row, is_out in pairs if is_out
        ]

    kernels = {
        g: halves(m, lambda r: kernel_case_of(r, "").identity) for g, m in rows.kernels.items()
    }
    runs = {name: halves(cases, lambda case: case.identity) for name, cases in rows.runs.items()}
    hosts = halves(rows.hosts, lambda each: host_case(each, "").identity)
    collectives = halves(rows.collectives, lambda row: row.case.identity)
    fitted, out = (
        _Rows(
            _of_side(kernels, side),
            hosts[side],
            collectives[side],
            {name: both[side] for name, both in runs.items() if both[side]},
        )
        for side in (0, 1)
    )
    return fitted, out


def _of_side(
    groups: Mapping[Group, tuple[list[MeasuredKernel], ...]], side: int
) -> dict[Group, list[MeasuredKernel]]:
    """Kernels of one side; strays are scored and never fitted."""
    found = {
        group: [r for r in both[side] if side or not r.stray] for group, both in groups.items()
    }
    return {group: rows for group, rows in found.items() if rows}


def _held_out(rows: _Rows, calibration: Calibration, about: _About) -> list[LeftOut]:
    cases = [kernel_case_of(row, about.named) for part in rows.kernels.values() for row in part]
    cases += [row.case for row in rows.collectives]
    cases += [host_case(each, about.named) for each in rows.hosts]
    cases += [case for part in rows.runs.values() for case in part]
    before, after = scored(cases), _by(calibration, cases, about)
    # a host time that nothing predicts by itself says nothing of either
    known = [
        (one, two)
        for one, two in zip(before, after, strict=True)
        if one.answered or two.case.host is None
    ]
    return summed_up(HELD_OUT, [one for one, _ in known], [two for _, two in known])


def _few(rows: _Rows) -> list[str]:
    """Groups with too few rows to say much, and how many would."""
    counts = {
        group: sum(not row.stray for row in members) for group, members in rows.kernels.items()
    }
    few = [
        f"{family} {dtype} ({count})"
        for (family, dtype), count in counts.items()
        if 0 < count < LEAST_OF_KERNELS
    ]
    said = []
    if few:
        said.append(
            f"few rows give an offset alone: {', '.join(few)}; {WELL_SPREAD} well-spread kernels "
            "of a family and format move its physical quantities"
        )
    for name, cases in rows.runs.items():
        count = len({case.identity for case in cases})
        if count < FEWEST:
            said.append(
                f"{name}: {count} run{'' if count == 1 else 's'} of whole models; at least "
                f"{FEWEST} are needed to say anything of others"
            )
    return said
