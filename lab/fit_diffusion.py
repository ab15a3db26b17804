"""Constants of the diffusion campaign of ML.ENERGY (version 2), from half of its pipelines.

    python -m lab.fit_diffusion

Host, slowdown and power of each device are those with the least mean |log ratio| over the rows of
``HALVES`` "fitted", in that order: host and slowdown on seconds, then power on joules. Programs are
traced, or read from ``SILICAST_TRACES``. ``[diffusion]`` of ``catalog/workflow.toml``, for any
board, quotes the geometric means of the devices, which are printed last.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from statistics import fmean

from lab.scorecard import traces
from lab.scorecard.model_suite import Case
from lab.scorecard.suite import data_folder
from lab.scorecard.suites import diffusion
from lab.scorecard.suites.diffusion import METRICS, Campaign

TARGET = Path(traces.__file__).with_name("diffusion_campaign.toml")
HOST = (1.2, 1.0, 0.85, 0.7, 0.6, 0.5, 0.42, 0.35)
SLOWER = tuple(round(0.9 + 0.02 * step, 2) for step in range(0, 46, 2))
POWER = tuple(round(0.8 + 0.05 * step, 2) for step in range(41))


def error(cases: Sequence[Case], metric: str, campaign: Campaign) -> float:
    """Mean |log ratio|."""
    return fmean(
        abs(math.log(diffusion.answer(case, campaign)[metric][0] / case.measured[metric]))
        for case in cases
    )


def fit(cases: Sequence[Case]) -> Campaign:
    """The constants of one device."""
    time = min(
        (Campaign(host, slower) for host, slower in itertools.product(HOST, SLOWER)),
        key=lambda campaign: error(cases, METRICS[0], campaign),
    )
    campaigns = (Campaign(time.host_factor, time.slower, power) for power in POWER)
    return min(campaigns, key=lambda campaign: error(cases, METRICS[1], campaign))


def text(table: Mapping[str, Campaign]) -> str:
    """The file."""
    lines = [
        "# The campaign's host, time and power over ours; see suites/diffusion.py.",
        "# Written by `python -m lab.fit_diffusion` from half of the pipelines.",
    ]
    for device, item in table.items():
        lines += [
            "",
            f"[{device}]",
            f"host_factor = {item.host_factor}",
            f"slower = {item.slower}",
            f"power = {item.power}",
        ]
    return "\n".join(lines) + "\n"


def of_any_board(table: Mapping[str, Campaign]) -> Campaign:
    """Geometric means of the devices.

    >>> of_any_board({"a": Campaign(0.5, 1.0, 2.0), "b": Campaign(0.5, 4.0, 2.0)})
    Campaign(host_factor=0.5, slower=2.0, power=2.0)
    """
    columns = zip(*(astuple(campaign) for campaign in table.values()), strict=True)
    return Campaign(*(math.prod(values) ** (1.0 / len(table)) for values in columns))


if __name__ == "__main__":
    known: dict[tuple[object, ...], object] = {}
    passes = diffusion.passes

    def remembered(machine, model, images, steps):  # type: ignore[no-untyped-def]
        key = machine.device.name, machine.host.factor, model, images, steps
        if known and next(iter(known))[:2] != key[:2]:
            known.clear()
        if key not in known:
            known[key] = passes(machine, model, images, steps)
        return known[key]

    diffusion.passes = remembered
    fitted = {}
    for device in diffusion.DEVICES.values():
        rows = [
            case
            for case in diffusion.cases(data_folder(), "fitted")
            if case.labels["device"] == device
        ]
        fitted[device] = fit(rows)
        before = [error(rows, metric, Campaign()) for metric in METRICS]
        after = [error(rows, metric, fitted[device]) for metric in METRICS]
        print(device, len(rows), fitted[device], before, after)
    TARGET.write_text(text(fitted))
    print(of_any_board(fitted))
