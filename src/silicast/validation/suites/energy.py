"""Energy of kernels: measured board power x time, of calls long enough for the meter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, final

import msgspec
import numpy as np

from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.kernels.energy import (
    Actions,
    Energies,
    actions,
    energies,
    energies_from,
    free_power,
    kernel_energy,
)
from silicast.kernels.implementation import KernelTimes, implementation_for
from silicast.validation.suite import Labels, Scored, Suite, register_suite, timed
from silicast.validation.suites._energy_rows import LONG_S, TABLES, PowerRows, power_rows

PER_GROUP = 40
"""Rows of every campaign and variant, so that large campaigns do not drown the others."""
HELD_OUT = Path(__file__).resolve().parents[1] / "held_out/energy.json"
"""Constants fitted without each architecture in turn (benchmarks/fit_energy.py --transfer)."""

Timed = tuple[PowerRows, KernelTimes]


@register_suite
@final
class Energy(Suite):
    """Energy and power of every family that was measured with a power meter."""

    name: ClassVar[str] = "energy"
    title: ClassVar[str] = "Energy and power of kernels"
    split: ClassVar[str] = (
        "H200, B200 and GB200; rows that the families' times hold out, of calls that take long "
        "enough for the meter (0.1 to 30 ms by table; shorter ones of single kernels apart, as "
        "measured). power_w is given the measured time; unseen_power_w also by constants fitted "
        "without the architecture. Up to 40 rows of every campaign and variant, 10 of blocks."
    )
    source: ClassVar[tuple[str, ...]] = tuple(f"aiconfigurator/{name}.parquet" for name in TABLES)
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "energy_mj": {"mean_ape": 16.0, "bias_pct": 8.0},
        "power_w": {"mean_ape": 13.0, "bias_pct": 6.0},
        "unseen_power_w": {"mean_ape": 25.0, "bias_pct": 20.0},
    }

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """Energy with our own time, power with the measured one, both ways without the
        architecture, and energy of short calls.
        """
        count = PER_GROUP if limit is None else max(2, limit * PER_GROUP // 6000)
        long, short = (_load(data, count, long=long) for long in (True, False))
        return [
            _energy("energy_mj", long),
            _power("power_w", long, _own),
            _power("unseen_power_w", long, _unseen),
            _energy("short_energy_mj", short),
        ]


def _load(data: Path, count: int, *, long: bool) -> list[Timed]:
    """Rows with our times; short ones of single kernels only (blocks repeat too seldom)."""
    found = []
    for table in TABLES if long else LONG_S:
        few = count if table in LONG_S else max(count // 4, 1)
        for rows in power_rows(data, table, few, held_out=True, long=long):
            model = implementation_for(rows.batch.family, "simt")
            assert model is not None
            found.append((rows, timed(model, rows.batch, find_device(rows.device))))
    return found


def _energy(metric: str, parts: Sequence[Timed]) -> Scored:
    """Millijoules of one call; no measured time is given."""
    found = [kernel_energy(times, rows.batch, find_device(rows.device)) for rows, times in parts]
    known = [each for each in found if each is not None]
    assert len(known) == len(found)
    measured = np.concatenate([rows.joules for rows, _ in parts])
    seconds = np.concatenate([rows.seconds for rows, _ in parts])
    cap = np.concatenate([rows.cap_w for rows, _ in parts])
    own_seconds = np.concatenate([times.estimate_s for _, times in parts])
    groups = _groups(parts)
    share = _constant_share(measured / seconds / cap, groups["device"])
    return Scored(
        metric=metric,
        measured=1e3 * measured,
        estimate=1e3 * np.concatenate([each.estimate_j for each in known]),
        p05=1e3 * np.concatenate([each.p05_j for each in known]),
        p95=1e3 * np.concatenate([each.p95_j for each in known]),
        baselines={
            "limit x our time": 1e3 * cap * own_seconds,
            "share of limit x our time": 1e3 * share * cap * own_seconds,
            "share of limit x measured time": 1e3 * share * cap * seconds,
        },
        groups=groups,
    )


def _power(metric: str, parts: Sequence[Timed], of: Callable[[PowerRows], Energies]) -> Scored:
    """Mean watts of the board, given the measured time."""
    low, middle, high = [], [], []
    for rows, times in parts:
        device, found = find_device(rows.device), of(rows)
        work: Actions = actions(times.analysis, rows.batch.variant, device)
        free = free_power(found, work, rows.seconds, device)
        low.append(np.minimum(np.maximum(free / found.spread, found.static_w), found.limit_w))
        middle.append(np.minimum(free, found.limit_w))
        high.append(np.minimum(free * found.spread, rows.cap_w))
    measured = np.concatenate([rows.watts for rows, _ in parts])
    cap = np.concatenate([rows.cap_w for rows, _ in parts])
    groups = _groups(parts)
    return Scored(
        metric=metric,
        measured=measured,
        estimate=np.concatenate(middle),
        p05=np.concatenate(low),
        p95=np.concatenate(high),
        baselines={
            "limit": cap,
            "share of limit": _constant_share(measured / cap, groups["device"]) * cap,
        },
        groups=groups,
    )


def _own(rows: PowerRows) -> Energies:
    return energies(find_device(rows.device), rows.batch.family, rows.batch.variant)


def _unseen(rows: PowerRows) -> Energies:
    """Energies as for an architecture without measured power: constants of the others."""
    device = find_device(rows.device)
    constants = _transfer()[device.architecture]["default"]
    return energies_from(
        device, rows.batch.family, rows.batch.variant, constants, measured=False
    )  # fmt: skip


@cache
def _transfer() -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(HELD_OUT.read_bytes())
    return found


def _constant_share(share: F64, devices: Labels) -> F64:
    """The median share of its limit that each device draws on these very rows, which flatters."""
    found = np.empty_like(share)
    for device in np.unique(devices):
        here = devices == device
        found[here] = np.median(share[here])
    return found


def _groups(parts: Sequence[Timed]) -> dict[str, Labels]:
    """By device, table and library, and whether the board was at its limit."""

    def label(names: Sequence[str]) -> Labels:
        return np.repeat(np.array(names), [len(rows) for rows, _ in parts])

    share = np.concatenate([rows.watts / rows.cap_w for rows, _ in parts])
    return {
        "device": label([rows.device for rows, _ in parts]),
        "kernel": label([rows.table for rows, _ in parts]),
        "campaign": label([f"{rows.table} {rows.batch.variant.library}" for rows, _ in parts]),
        "regime": np.where(share > 0.95, "at the limit", "below the limit"),
    }
