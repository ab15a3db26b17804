"""Fits the constants of recurrent mixers and writes catalog/physics/linear_attention.json.

    python -m lab.fit_linear_attention

One problem a style of kernel: constants that all architectures share and some of each
architecture. Robust (soft L1) on log ratios; priors pull every constant to its start.
Deterministic. Rows marked held out are never fitted, only scored.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.fitter import Body, Fitter
from lab.fitting import Constants, F, Parameter, Tables
from lab.scorecard.rows import MeasuredRows, held_out, least_hashed
from lab.scorecard.suites.linear_attention import COLUMNS, kernel_style, mixer_rows
from silicast.hardware.device import Device
from silicast.kernels.recurrent.recurrent_mixer import RecurrentKernel, constants_of
from silicast.kernels.recurrent.recurrent_model import estimate
from silicast.kernels.recurrent.recurrent_work import MixerShape, RecurrentWork
from silicast.workload.libraries.catalog import recurrent_styles
from silicast.workload.libraries.library_file import RecurrentStyle

ROWS_TO_TRANSFER, STEPS_TO_TRANSFER = 120, 25
ROWS = 700
"""Rows of each device, campaign and kernel that are fitted."""

START = {
    "launch_s": 3e-6, "item_cycles": 1.0, "block_cycles": 1.0, "chunk_cycles": 100.0,
    "dram_efficiency": 0.85, "l2_efficiency": 0.6, "kept_share": 0.8, "thrash": 2.0,
    "unaligned": 1.0, "module_host": 1.0,
    "middle_passes": 1.0, "padding": 0.3, "resident": 4.0, "quantisation": 0.5, "serial": 0.2,
    "token_cycles": 30.0, "state_passes": 1.0, "chunk_passes": 0.01,
}  # fmt: skip
KIND_START = {
    "conv": {"item_cycles": 0.4, "chunk_cycles": 0.01},
    "scan": {"item_cycles": 100.0, "chunk_cycles": 3000.0, "middle_passes": 4.0,
             "block_cycles": 1000.0, "chunk_passes": 2.0},
    "step": {"item_cycles": 20.0, "chunk_cycles": 500.0, "middle_passes": 0.01,
             "block_cycles": 300.0},
}  # fmt: skip
STYLE_START = {
    "conv_cuda": {"block_cycles": 100.0},
    "conv_cuda_early": {"block_cycles": 100.0},
    "delta_flashinfer": {
        "middle_passes": 0.1,
        "chunk_passes": 0.02,
        "resident": 1.0,
        "quantisation": 0.95,
    },
    "kda_flash": {"middle_passes": 1.0, "chunk_passes": 0.1},
    "conv_triton_early": {"launch_s": 2e-4},
    "conv_three_vllm": {"launch_s": 4e-4},
}
FIXED = {"port_bytes_per_clock": 64.0}
SPREAD = {"device_log_sd": 0.06, "family_log_sd": 0.05, "unmeasured_device_log_sd": 0.25}
SICK = (("H200-SXM-141GB", "sglang", "0.5.14"),)
"""Campaigns whose times grow to three times those of other campaigns of the same kernels on the
same device and on H100, the more the longer a kernel runs: scored, but not fitted."""
UNSEEN = 1.05
"""Rows that were not fitted err so much more than those that were."""

LEAST = {"thrash": 1.0}
CEILING = {
    "dram_efficiency": 0.97,
    "padding": 1.0,
    "quantisation": 1.0,
    "serial": 1.0,
    "l2_efficiency": 1.5,
}
SHARED = (
    "block_cycles", "middle_passes", "padding", "resident", "quantisation", "serial",
    "item_cycles", "chunk_cycles", "token_cycles", "state_passes", "chunk_passes",
)  # fmt: skip
HOST_BOUND = ("conv_three_vllm", "conv_triton_early")
"""Styles that were timed with the host's launches in between."""
OWN = (
    "launch_s", "item_cycles", "chunk_cycles", "dram_efficiency", "l2_efficiency",
    "kept_share", "thrash", "block_cycles", "resident", "quantisation",
    "token_cycles", "middle_passes",
)  # fmt: skip
PRIOR_SD = {
    "dram_efficiency": 0.3, "quantisation": 0.5, "serial": 0.7, "padding": 0.7,
    "l2_efficiency": 0.4, "kept_share": 0.4, "thrash": 0.3,
    "unaligned": 0.3, "module_host": 1.0, "resident": 0.7,
    "launch_s": 1.0, "item_cycles": 1.5, "chunk_cycles": 1.5, "block_cycles": 2.0,
    "middle_passes": 1.5, "token_cycles": 1.0, "state_passes": 0.3, "chunk_passes": 1.0,
}  # fmt: skip
PRIOR_WEIGHT = 0.25


@dataclass(frozen=True)
class Group:
    """Rows of one device, campaign and kernel."""

    rows: MeasuredRows
    style: RecurrentStyle
    architecture: str
    device: Device
    shape: MixerShape
    work: RecurrentWork

    @staticmethod
    def of(rows: MeasuredRows) -> Group:
        device, style, model = rows.hardware, kernel_style(rows), rows.model
        assert isinstance(model, RecurrentKernel)
        sizes = {name: values.astype(np.float64) for name, values in rows.batch.dims.items()}
        shape = model.shape(sizes, 2)
        work = model.work(shape, style, 2)
        return Group(rows, style, device.architecture, device, shape, work)

    @property
    def name(self) -> str:
        v, family = self.rows.batch.variant, self.rows.batch.family
        return f"{self.rows.device} {self.style.name} {family} {v.library} {v.version}"


Styles = dict[str, list[Group]]


def grouped(parts: Sequence[MeasuredRows]) -> Styles:
    """Groups by style."""
    styles: Styles = defaultdict(list)
    for group in map(Group.of, parts):
        styles[group.style.name].append(group)
    return dict(sorted(styles.items()))


def log_ratio(group: Group, constants: Mapping[str, float]) -> F:
    """log(estimate / measured)."""
    chunk = group.style.chunk or group.shape.chunk
    align = group.style.align or group.shape.chunk
    result = estimate(group.shape, group.work, chunk, align, group.device, constants, "")
    return np.log(result.time / group.rows.seconds)


def parameters(groups: Sequence[Group]) -> list[Parameter]:
    style = groups[0].style
    style_names = ("module_host",) * (style.name in HOST_BOUND) + ("unaligned",) * (
        style.align != 1
    )
    parameters = [Parameter("", name) for name in SHARED + style_names]
    for architecture in sorted({g.architecture for g in groups}):
        parameters += [Parameter(architecture, name) for name in OWN]
    return parameters


def kind_of(style: RecurrentStyle) -> str:
    return "conv" if style.kind == "conv" else "step" if style.chunk == 1 else "scan"


def start_of(style: RecurrentStyle) -> dict[str, float]:
    return {**START, **KIND_START[kind_of(style)], **STYLE_START.get(style.name, {})}


def held(name: str, value: float) -> float:
    return max(min(value, CEILING.get(name, math.inf)), LEAST.get(name, 0.0))


def values_of(
    group: Group, free: Sequence[Parameter], values: F, start: Mapping[str, float]
) -> dict[str, float]:
    table = dict(start)
    for parameter, value in zip(free, values, strict=True):  # of all first, then its own
        if parameter.touches(group.architecture):
            # an architecture's own is a factor on what all share
            share = parameter.of and parameter.name in SHARED
            factor = table[parameter.name] if share else 1.0
            table[parameter.name] = held(parameter.name, float(value) * factor)
    return table


def solve(groups: Sequence[Group], steps: int) -> tuple[list[Parameter], F]:
    """Free constants of one style at the optimum."""
    free, start = parameters(groups), start_of(groups[0].style)
    factor = [p.of and p.name in SHARED for p in free]
    first = np.array(
        [0.0 if f else math.log(start[p.name]) for p, f in zip(free, factor, strict=True)]
    )
    pull = np.array(
        [PRIOR_WEIGHT / (0.3 if f else PRIOR_SD[p.name]) for p, f in zip(free, factor, strict=True)]
    )
    weights = [1.0 / math.sqrt(max(1.0, len(g.rows) / 300.0)) for g in groups]
    result = fitting.fit_by_groups(
        lambda logs, i: (
            weights[i] * log_ratio(groups[i], values_of(groups[i], free, np.exp(logs), start))
        ),
        [len(g.rows) for g in groups],
        lambda j, i: free[j].touches(groups[i].architecture),
        first,
        pull,
        f_scale=0.05,
        max_nfev=steps,
    )
    return free, np.exp(result.x)


def fit(styles: Styles, steps: int = 60) -> Tables:
    """All constants: starts, those shared by a style, and those of each architecture."""
    tables: Tables = {"": {**FIXED, **SPREAD, "independent_log_sd": 0.2}}
    for style, groups in styles.items():
        free, values = solve(groups, steps)
        start = start_of(groups[0].style)
        by_architecture = {g.architecture: values_of(g, free, values, start) for g in groups}
        shared = by_architecture[groups[0].architecture]
        for name in START:
            if name not in OWN:
                tables[""][f"{style}.{name}"] = shared[name]
        for architecture, table in by_architecture.items():
            constants = tables.setdefault(architecture, {})
            constants.update({f"{style}.{name}": table[name] for name in OWN})
        spread(style, groups, tables)
    return tables


def plain(tables: Tables, architecture: str, style: str) -> Constants:
    return constants_of({**tables[""], **tables.get(architecture, {})}, style)


def spread(style: str, groups: Sequence[Group], tables: Tables) -> None:
    """Independent log sd per architecture: the 90 % error of the fitted rows."""
    shared = (SPREAD["device_log_sd"], SPREAD["family_log_sd"])
    errors: dict[str, list[F]] = defaultdict(list)
    for group in groups:
        constants = plain(tables, group.architecture, style)
        errors[group.architecture].append(log_ratio(group, constants))
    for architecture, error in errors.items():
        log_sd = fitting.own_log_sd(
            np.concatenate(error), shared, wider=UNSEEN, least=math.sqrt(0.001)
        )
        tables[architecture][f"{style}.independent_log_sd"] = log_sd


def with_defaults(tables: Tables, *, everywhere: bool = True) -> Tables:
    """Averages for architectures without measured rows, and constants for styles without any.

    ``everywhere``: every style was fitted somewhere; otherwise the missing ones take the start.
    """
    common = fitting.means(table for name, table in tables.items() if name) | tables[""]
    merged = {**tables, "": common}
    for style, stand_in in STAND_INS.items():
        for table in merged.values():
            for name, value in list(table.items()):
                head, _, last = name.partition(".")
                # "launch_s" of an architecture marks styles that were measured there
                if head == stand_in and (table is common or last != "launch_s"):
                    table.setdefault(f"{style}.{last}", value)
    missing = set(recurrent_styles()) - {name.partition(".")[0] for name in common}
    assert not (missing and everywhere), f"no constants for {missing}"
    for style in sorted(missing):
        common.update(
            {
                f"{style}.{name}": value
                for name, value in start_of(recurrent_styles()[style]).items()
            }
        )
    return merged


FALLBACK = {"blackwell-rtx": "ada", "ampere-ga10x": "ada", "rubin": "blackwell"}
STAND_INS = {"ssm_step": "delta_step"}
"""Style that no table holds -> the one that moves its state in the same way."""


def evaluate(
    styles: Styles, tables: Tables, device: str = "device_log_sd"
) -> dict[str, dict[str, float]]:
    """Errors in percent by device, kernel and campaign; ``device``: the shared error of devices."""
    evaluate = {}
    for style, groups in styles.items():
        for group in groups:
            c = plain(tables, group.architecture, style)
            logs = log_ratio(group, c)
            independent_sd, shared = c["independent_log_sd"], SPREAD[device]
            sd = math.sqrt(independent_sd**2 + shared**2 + SPREAD["family_log_sd"] ** 2)
            figures = ("rows", "mape", "median", "p90", "bias", "coverage90")
            evaluate[group.name] = fitting.percent(logs, *figures, sd=sd)
    return evaluate


def sick(part: MeasuredRows) -> bool:
    """Whether the rows are of a campaign that is not fitted."""
    return (part.device, part.batch.variant.library, part.batch.variant.version) in SICK


class LinearAttention(Fitter[list[MeasuredRows]]):
    """Gated delta nets, Kimi's delta attention and Mamba 2."""

    group = "linear_attention"
    data = ("aiconfigurator gdn", "aiconfigurator kda", "aiconfigurator mamba2")
    split = (
        "one in four pairs of a mixer's heads and a batch size is never fitted, on any device, in "
        "any campaign; at most 700 other rows of each device, campaign and kernel are; none of "
        "SGLang 0.5.14 on H200, which slowed down the longer it ran"
    )
    notes = (
        "Selective state updates of Mamba 2 are in no table: the delta rule's constants stand in."
    )

    def rows(self, data: Path) -> list[MeasuredRows]:
        return [part for family in COLUMNS for part in mixer_rows(data, family)]

    def fit(self, rows: list[MeasuredRows]) -> Body:
        tables = with_defaults(fit(healthy(rows, ROWS)))
        return fitting.body(tables[""], fitting.with_relatives(tables), FALLBACK)

    def scores(self, rows: list[MeasuredRows], body: Body) -> dict[str, Any]:
        tables = {"": body["default"], **body["architectures"]}
        scores = {"held out": evaluate(grouped(held_out(rows)), tables)}
        fitting.show("held out", scores["held out"])
        return scores

    def without(self, rows: list[MeasuredRows], architecture: str, body: Body) -> Body:
        others = [part for part in rows if part.hardware.architecture != architecture]
        fitted = fit(healthy(others, ROWS_TO_TRANSFER), steps=STEPS_TO_TRANSFER)
        tables = with_defaults(fitted, everywhere=False)
        styles_fitted = {name.partition(".")[0] for table in fitted.values() for name in table}
        mine = [part for part in held_out(rows) if part.hardware.architecture == architecture]
        styles = {
            style: groups for style, groups in grouped(mine).items() if style in styles_fitted
        }
        same = {**tables, architecture: tables[""]}
        scores = evaluate(styles, same, "unmeasured_device_log_sd")
        fitting.show(f"{architecture} held out", scores)
        return fitting.body(tables[""], tables)


def healthy(parts: Sequence[MeasuredRows], count: int) -> Styles:
    """At most so many rows of each part that may be fitted."""
    free = held_out(parts, False)
    return grouped([least_hashed(part, count) for part in free if not sick(part)])


if __name__ == "__main__":
    LinearAttention().run()
