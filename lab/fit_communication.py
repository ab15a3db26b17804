"""Fits ``catalog/physics/communication.json`` from measured collectives, deterministically.

    python -m lab.fit_communication

Stages run one after the other, each on the rows in which its constants decide: NCCL's ring on
NVLink, point to point, NVLS, the engines' kernels, PCIe, host floors. Half of the points of each
device (by a hash of device, operation, participants and size) stay unseen by all that is fitted
(:mod:`lab.scorecard.collectives`): the error model too is of fitted rows only, each
third of them under constants of the other two.

The suite holds out: for each architecture the constants that it would get without its rows
(held_out/communication.json of the scorecard), for devices with sisters those without the device
(held_out_devices/), and constants and trees without any message of more
than an eighth of the largest measured (held_out_sizes/). The doubt that an octave beyond adds
(``log_sd_per_octave``) is estimated from long messages of the fitted half under the latter.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from scipy.optimize import least_squares

from lab import fitting
from lab.artefact_files import write_artefact
from lab.communication_stages import FITTED, Stage, stages
from lab.fitter import Body, Fitter
from lab.fitting import Constants, F, Tables
from lab.scorecard.collective_points import predict as predicted
from lab.scorecard.collectives import SPLIT, TABLES, CollectiveRows, read_collectives, train_on
from lab.scorecard.held_out import OF_DEVICES, SHORT
from lab.scorecard.rows import Mask
from silicast.communication.collective import collective_times
from silicast.communication.selection import constants_of, sections, select, waits
from silicast.core.prediction import Z90
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.physics.constants import Physics
from silicast.learning.artefact import FORMAT, Artefact, Card, read_artefact

PATH = fitting.PHYSICS / "communication.json"
NO_CARD = fitting.card("", [], "")
SHARING_HOSTS = 1 / 4
PULL = 0.03
"""Weight of a constant's log distance from its start: keeps what the rows do not decide."""

REFERENCE_HZ = 2e9
PER_OCTAVE = (0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08)


def predict(rows: CollectiveRows, constants: Callable[[Device], Mapping[str, float]]) -> F:
    """Seconds per row with constants by device."""
    time = np.zeros(len(rows))
    for call, index in rows.calls():
        topology = call.topology
        constants_by_algorithm = sections(constants(topology.device))
        time[index] = select(
            call.op,
            rows.size[index],
            topology,
            constants_by_algorithm,
            call.library,
            call.launch,
            call.dtype,
            call.version,
        ).time_s
    return time


def fit_stage(
    stage: Stage, rows: CollectiveRows, constants: Constants, sweeps: int = 1
) -> Constants:
    """The stage's constants that fit ``rows`` best in the logarithm, robustly."""
    names = list(stage.constants)
    start, low, high = np.log(np.array([stage.constants[name] for name in names])).T
    measured = np.log(rows.seconds)

    def residuals(x: F) -> F:
        trial = {**constants, **dict(zip(names, map(float, np.exp(x)), strict=True))}
        error = np.log(predict(rows, lambda _: trial)) - measured
        return np.concatenate([error, PULL * (x - start)])

    for _ in range(sweeps):
        result = least_squares(
            residuals,
            np.clip(start, low, high),
            bounds=(low - 1e-9, high + 1e-9),
            loss="soft_l1",
            f_scale=0.1,
            diff_step=1e-3,
            max_nfev=60,
        )
    return {name: float(f"{np.exp(v):.4g}") for name, v in zip(names, result.x, strict=True)}


def fit_all(
    rows: CollectiveRows,
    default: Constants,
    *,
    verbose: bool = False,
    among: Collection[str] = tuple(FITTED),
) -> Tables:
    """Constants of some architectures, stage by stage."""
    tables: Tables = {name: {} for name in FITTED if name in among}
    for stage in stages():
        for architecture in stage.architectures:
            if architecture not in among:
                continue
            mine = rows.fitted & np.isin(rows.device, FITTED[architecture]) & stage.select(rows)
            chosen = rows.take(mine)
            constants = {**default, **tables[architecture]}
            values = fit_stage(stage, chosen, constants)
            tables[architecture].update(values)
            if verbose:
                report_stage(stage, architecture, chosen, {**constants, **values})
    return tables


def report_stage(
    stage: Stage, architecture: str, rows: CollectiveRows, constants: Constants
) -> None:
    """Prints the error on the fitted rows."""
    after = predict(rows, lambda _: constants)
    error = np.abs(after / rows.seconds - 1.0)
    print(
        f"{stage.name:14} {architecture:10} {len(rows):5} rows, fitted error "
        f"{100 * error.mean():5.1f} % mean {100 * np.median(error):5.1f} % median"
    )


def scale_of(architecture: str, name: str) -> float:
    """What brings a time of kernels to the clock that the means are kept at; else 1."""
    clock = find_device(FITTED[architecture][0]).clocks.max_hz
    return clock / REFERENCE_HZ if waits(name) else 1.0


def starts_without(tables: Tables) -> Constants:
    """Start of constants without rows; ``default`` may hold those of a left-out architecture."""
    measured = {name for values in tables.values() for name in values}
    spans = {name: span for stage in stages() for name, span in stage.constants.items()}
    return {name: start for name, (start, *_) in spans.items() if name not in measured}


def means(tables: Tables, default: Constants) -> Constants:
    """Defaults for architectures without data: geometric means over those with, times of kernels
    at one clock.

    What pairs of devices share over PCIe belongs to the host: of the four measured (two with L40S,
    Vidur's A100 and H100 with bridged pairs) one makes them take turns and three do not. Single
    messages over PCIe were not measured: they reach what a pair's other operations reach. Nor were
    exchanges by way of host memory: they start like those to peers, at the rate of its ring.
    """
    default_ = {**default, "reference_clock_hz": REFERENCE_HZ, **starts_without(tables)}
    for name in sorted({name for values in tables.values() for name in values}):
        values = [tables[a][name] * scale_of(a, name) for a in sorted(tables) if name in tables[a]]
        default_[name] = float(f"{np.exp(np.mean(np.log(values))):.4g}")
    default_["sharing_hosts"] = SHARING_HOSTS
    peers = default_["pcie.p2p_efficiency"] / (1.0 + default_["pcie.p2p_local_copy"])
    staged = default_["host.simple_efficiency"] / (1.0 + default_["host.simple_local_copy"] / 2.0)
    for name in [name for name in default_ if name.startswith("pcie.p2p_")]:
        default_[name.replace("pcie.", "host.")] = default_[name]
    default_["host.p2p_efficiency"] = float(
        f"{staged * (1.0 + default_['pcie.p2p_local_copy']):.4g}"
    )
    default_["pcie.single_efficiency"] = float(f"{peers:.4g}")
    default_["host.single_efficiency"] = float(f"{staged:.4g}")
    return default_


SISTERS = ("hopper", "blackwell")
"""Architectures of which several devices have the same link: one of them can be left out alone."""
FALLBACK = {"volta": "ampere"}


def host_decides(rows: CollectiveRows, physics: Physics, estimate: F) -> Mask:
    """Rows whose time is the host's: well above that of the same call replayed in a graph."""
    graph = replace(rows, launch=np.full(len(rows), "graph"))
    mask: Mask = estimate > 1.3 * predicted(graph, physics)[0]
    return mask


def table_of(tables: Tables, old: Constants) -> Physics:
    """The constants file without a card."""
    default = means(tables, old)
    table = {name: dict(values) for name, values in tables.items()}
    fallback = {name: other for name, other in FALLBACK.items() if other in table}
    return fitting.physics(NO_CARD, default, table, fallback)


def unseen_errors(rows: CollectiveRows, old: Constants) -> tuple[F, Mask]:
    """Absolute log error of every (fitted) row, and whether the host's floor decides.

    Each third of the points is predicted with constants that were fitted on the other two.
    """
    third = rows.fold()
    error, floor = np.zeros(len(rows)), np.zeros(len(rows), dtype=bool)
    for number in range(3):
        out = third == number
        physics = table_of(fit_all(rows.take(~out), old), old)
        left = rows.take(out)
        estimate = predicted(left, physics)[0]
        error[out] = np.abs(np.log(left.seconds / estimate))
        floor[out] = host_decides(left, physics, estimate)
    return error, floor


def spreads(rows: CollectiveRows, base: Constants, error: F, floor: Mask) -> Constants:
    """Log sd by regime: such that 90 % of the given errors lie within 1.645 of it."""
    shared = (base["log_sd_network"], base["log_sd_device"])
    pcie = np.isin(rows.device, ["L40S", "RTX 6000 Ada"])
    engine = ~floor & ~pcie & (rows.library != "nccl") & (rows.size < 8 << 20)
    regimes = {
        "log_sd_nvlink": ~floor & ~pcie & ~engine,
        "log_sd_kernels": engine,
        "log_sd_pcie": ~floor & (rows.device == "L40S") & (rows.gpus == 2),
        "log_sd_shared_pcie": ~floor & pcie & (rows.gpus > 2),
        "log_sd_eager": floor & (rows.launch == "eager"),
        "log_sd_torch": floor & (rows.launch == "torch"),
    }
    log_sds = {}
    for name, mask in regimes.items():
        sd = fitting.own_log_sd(error[mask], shared, least=0.02)
        log_sds[name] = float(f"{sd:.3g}")
        print(f"{name:20} {int(mask.sum()):5} rows, {log_sds[name]}")
    return log_sds


def host_spread(physics: Physics) -> float:
    """Half the log distance between the two PCIe platforms measured: peers, or host memory."""
    size = np.array([256 << 20])
    pair = [
        collective_times("all_reduce", size, 2, find_device(name), physics=physics).estimate_s[0]
        for name in ("L40S", "RTX 6000 Ada")
    ]
    return float(f"{abs(np.log(pair[0] / pair[1])) / 2:.3g}")


def architecture_spread(rows: CollectiveRows, tables: Tables, old: Constants) -> float:
    """Log sd of each NVLink architecture's rows around the means of the others.

    Wider by the error of a mean of few.
    """
    errors = []
    for architecture, devices in FITTED.items():
        if architecture not in tables:
            continue
        others = {name: values for name, values in tables.items() if name != architecture}
        fitted = rows.fitted & np.isin(rows.device, devices)
        mine = rows.take(fitted & (rows.launch == "graph") & (rows.device != "L40S"))
        if len(mine) and architecture != "ada":
            constants = partial(constants_of, table_of(others, old))
            time = predict(mine, constants)
            few = math.sqrt(1.0 + 1.0 / (len(others) - ("ada" in others)))
            errors.append(few * np.abs(np.log(time / mine.seconds)))
    return float(f"{np.quantile(np.concatenate(errors), 0.9) / Z90:.3g}")


def scores(rows: CollectiveRows, physics: Physics) -> dict[str, Any]:
    """Error by library, launch and device, and the coverage of the 90 % intervals."""
    estimate, p05, p95, _ = predicted(rows, physics)
    inside = (rows.seconds >= p05) & (rows.seconds <= p95)
    log_ratio = np.log(estimate / rows.seconds)
    table: dict[str, Any] = {}

    def add(name: str, mask: Mask) -> None:
        percent = fitting.percent(log_ratio[mask], "rows", "mape", "median", "bias")
        median, bias = percent.pop("median"), percent.pop("bias")
        covered = round(100 * float(inside[mask].mean()), 1)
        table[name] = {**percent, "median_ape": median, "bias": bias, "coverage": covered}

    for library, launch in sorted(set(zip(rows.library, rows.launch, strict=True))):
        add(f"{library} {launch}", (rows.library == library) & (rows.launch == launch))
        for device in sorted(set(rows.device)):
            mask = (rows.library == library) & (rows.launch == launch) & (rows.device == device)
            if mask.any():
                add(f"{library} {launch} {device}", mask)
    add("all", np.ones(len(rows), dtype=bool))
    return table


def write_short(rows: CollectiveRows, old: Constants) -> float:
    """Writes constants and trees of short messages; the doubt of an octave beyond, from their
    errors on long ones.
    """
    long = rows.is_long()
    fitted = rows.take(rows.fitted & ~long)
    physics = table_of(fit_all(fitted, old), old)
    table = {**widths(old), "log_sd_per_octave": old["log_sd_per_octave"]}
    physics = msgspec.structs.replace(physics, default={**physics.default, **table})
    trained, trees = train_on(rows, ~rows.fitted | long, physics, print)
    split = f"{SPLIT}, and of those no message of more than an eighth of the largest measured"
    command = "python -m lab.fit_communication"
    card = Card(FORMAT, "collective", list(TABLES), split, command, "", "", trained)
    SHORT.parent.mkdir(exist_ok=True)
    write_artefact(SHORT.with_name("collective.json"), card, trees)
    artefact = read_artefact(SHORT.with_name("collective.json"))
    seen = rows.take(rows.fitted & long)
    write_short = per_octave(seen, physics, artefact)
    print(f"log_sd_per_octave {write_short} on {len(seen)} rows")
    default = {**physics.default, "log_sd_per_octave": write_short}
    fitting.write(SHORT, fitting.body(default, physics.architectures, physics.fallback))
    return write_short


def write_devices(rows: CollectiveRows, tables: Tables, old: Constants) -> None:
    """Writes constants without each device whose architecture and link another one has."""
    bodies = {}
    for architecture, devices in FITTED.items():
        for device in devices if architecture in SISTERS else ():
            left = rows.take(rows.device != device)
            without_device = fit_all(left, old, among=[architecture])
            table = table_of({**tables, **without_device}, old)
            widened = {**table.default, **widths(old)}
            bodies[device] = fitting.body(widened, table.architectures, table.fallback)
    fitting.write(OF_DEVICES, bodies)


def per_octave(rows: CollectiveRows, physics: Physics, artefact: Artefact) -> float:
    """The least of a few values under which nine in ten rows lie in their 90 % interval; never 0,
    for nothing was measured beyond.
    """
    for value in PER_OCTAVE:
        doubt = {**physics.default, "log_sd_per_octave": value}
        trial = msgspec.structs.replace(physics, default=doubt)
        _, p05, p95, _ = predicted(rows, trial, artefact)
        inside = (rows.seconds >= p05) & (rows.seconds <= p95)
        if inside.mean() >= 0.9:
            return value
    return PER_OCTAVE[-1]


def widths(constants: Constants) -> Constants:
    return {name: value for name, value in constants.items() if name.startswith("log_sd_")}


class Communication(Fitter[CollectiveRows]):
    """Collectives."""

    group = "communication"
    data = tuple(TABLES)
    split = (
        "Fitted: half of the points (hash of device, op, participants, size) of each device. "
        "log_sd_*: the fitted rows, each third of their points under constants fitted on the "
        "other two thirds. Scores: the other half, without learned corrections."
    )
    notes = (
        "nvls_step_us is no fit (only groups of 8 are measured). Networks between nodes have "
        "constants of their own (network.json), which replace those named network_ here."
    )

    def rows(self, data: Path) -> CollectiveRows:
        return read_collectives(data)

    def fit(self, rows: CollectiveRows) -> Body:
        old = json.loads(PATH.read_text(encoding="utf-8"))["default"]
        fitted = rows.take(rows.fitted)
        result = fit_all(fitted, old, verbose=True)
        table = table_of(result, old)
        error_sizes = {
            **spreads(fitted, old, *unseen_errors(fitted, old)),
            "log_sd_network_pcie": host_spread(table),
            "log_sd_device_unmeasured": architecture_spread(fitted, result, old),
        }
        default = {**table.default, **error_sizes}
        write_devices(fitted, result, old)
        doubt = {"log_sd_per_octave": write_short(rows, default)}
        return fitting.body({**default, **doubt}, table.architectures, table.fallback)

    def scores(self, rows: CollectiveRows, body: Body) -> Mapping[str, Any]:
        constants = fitting.physics(
            NO_CARD, body["default"], body["architectures"], body["fallback"]
        )
        result = scores(rows.take(~rows.fitted), constants)
        for name, row in result.items():
            print(f"{name:28}", row)
        return result

    def left_out(self, rows: CollectiveRows, body: Body) -> Sequence[str]:
        return tuple(FITTED)

    def without(self, rows: CollectiveRows, architecture: str, body: Body) -> Body:
        """With the spread of an unmeasured device, estimated from the other architectures."""
        fitted, old = rows.take(rows.fitted), body["default"]
        others = [name for name in FITTED if name != architecture]
        result = fit_all(fitted, old, among=others)
        spread = architecture_spread(fitted, result, old)
        error_sizes = {**widths(old), "log_sd_device_unmeasured": spread}
        table = table_of(result, old)
        with_errors = msgspec.structs.replace(table, default={**table.default, **error_sizes})
        mine = rows.take(~rows.fitted & np.isin(rows.device, FITTED[architecture]))
        print(architecture, scores(mine, with_errors)["all"])
        return {
            "default": with_errors.default,
            "architectures": with_errors.architectures,
            "fallback": with_errors.fallback,
        }


if __name__ == "__main__":
    Communication().run()
