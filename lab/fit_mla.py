"""Fits the constants of latent attention: catalog/physics/mla_prefill.json and mla_decode.json.

    python -m lab.fit_mla

Reads the aiconfigurator tables context_mla and generation_mla, the newest version of each engine on
each device. One pair of heads and batch size in four, by hash, is held out and scored.
Deterministic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.fitter import Body, Fitter
from lab.fitting import ATTENTION_FALLBACK, Constants, F, Key, Prior, Tables, own_of
from lab.scorecard.rows import MeasuredRows, held_out, newest
from lab.scorecard.suites.mla import DECODE, GENERATION, PREFILL, mla_rows
from silicast.kernels.attention.mla_module import MlaModule
from silicast.kernels.attention.mla_schemes import mla_scheme
from silicast.workload.graphs.op import OpBatch

ROWS_PER_FIT, STEPS = 4_000, 60
ROWS_PER_TRANSFER, STEPS_PER_TRANSFER = 600, 20
PULL, PULL_PER_TRANSFER = 0.01, 0.03
"""How strongly constants are drawn to where they start. Those for another architecture more: what
the rows of some do not determine, such as an exponential's cost where products hide it, decides
elsewhere (of 0.01, 0.03, 0.1 and 0.3 the best of all architectures left out in turn)."""
UNMEASURED = {"sglang": "triton", "vllm": "triton", "trtllm": "fmha"}
"""Kernel that an engine runs on unmeasured architectures: the source of their constants."""
BY_HAND = "trtllm"
LATE = "vllm_late"
"""vLLM's newer Triton kernel, which only whole blocks show."""

SHARED: dict[str, Prior] = {
    "launch_s": (8e-6, 1e-6, 3e-5), "narrow_launch": (1.1, 0.4, 3.0),
    "tensor_efficiency": (0.8, 0.1, 1.0), "softmax_ops": (6.0, 1.0, 60.0),
    "task_cycles": (2500.0, 50.0, 4e4), "tail": (0.5, 0.02, 1.0), "l2_usable": (0.6, 0.3, 1.1),
    "l2_fade": (0.5, 0.1, 2.0), "dram_efficiency": (0.85, 0.3, 1.0),
    "l2_efficiency": (0.6, 0.1, 1.5), "serial": (0.3, 0.01, 1.0), "append_bytes": (0.7, 0.01, 6.0),
    "call_s": (1.6e-4, 5e-5, 5e-4),
}  # fmt: skip
PRIORS: dict[str, dict[str, Prior]] = {
    "mla_prefill": {
        **SHARED, "step_cycles": (300.0, 10.0, 2e4), "exposed": (0.3, 0.02, 1.5),
        "tail_sorted": (0.3, 0.02, 1.0), "step_192": (1.0, 0.4, 3.0), "step_512": (1.2, 0.4, 5.0),
        "fp8_efficiency": (0.7, 0.2, 1.0), "narrow_bytes": (1.0, 0.05, 6.0),
        "narrow_s": (3e-6, 1e-7, 3e-5),
    },
    "mla_decode": {
        **SHARED, "key_cycles": (10.0, 0.1, 400.0), "core_bytes_per_cycle": (30.0, 2.0, 128.0),
        "ctas_per_core": (1.0, 0.3, 4.0), "merge_s": (2e-6, 2e-7, 2e-5),
        "most_splits": (32.0, 1.0, 256.0), "split_tiles": (2.0, 0.5, 32.0),
        "narrow_rate": (1.0, 0.2, 1.5), "narrow_dram": (0.9, 0.2, 1.2),
        "convert_ops": (2.0, 0.1, 80.0), "idle_parts": (1.0, 0.01, 32.0),
        "reread_share": (0.3, 0.01, 1.0), "widened_bytes": (0.05, 0.001, 30.0),
        "grouped_rate": (1.0, 0.5, 3.0), "grouped_task_cycles": (12_000.0, 50.0, 6e4),
    },
}  # fmt: skip
FIXED: dict[str, dict[str, float]] = {
    "mla_prefill": {
        "append_launch_s": 2e-6, "merge_s": 2e-6, "split_tiles": 2.0, "window_steps": 0.3,
        "masked_step": 0.5, "widened_bytes": 0.0, "convert_ops": 4.0, "step_64": 1.0,
        "step_256": 1.0, "fp8_step_64": 1.0, "fp8_step_192": 1.0, "fp8_step_256": 1.0,
        "tensor_exponent": 1.0,
        "independent_log_sd": 0.2,
    },
    "mla_decode": {"append_launch_s": 2e-6, "independent_log_sd": 0.2},
}  # fmt: skip
SHARED_LOG_SD = (0.04, 0.05)
SPREAD = {"family_log_sd": 0.04, "device_log_sd": 0.05, "unmeasured_widening": 6.0}
TABLES = {"mla_prefill": PREFILL, "mla_decode": DECODE}
Parts = Sequence[MeasuredRows]
Groups = Mapping[Key, list[MeasuredRows]]


def fit(
    family: str,
    parts: Parts,
    start: Mapping[str, float],
    rows: int = ROWS_PER_FIT,
    steps: int = STEPS,
    *,
    warm: bool = False,
    pull: float = PULL,
) -> Constants:
    """Constants of one style on one architecture: soft L1 on the log ratio, drawn to ``start``."""
    sampled = fitting.sample(parts, rows)
    return fitting.fit_within(
        PRIORS[family],
        lambda c: [fitting.log_ratio(part, c) for part in sampled],
        start,
        sum(len(part) for part in sampled),
        weight=pull,
        steps=steps,
        more_starts=None if warm else _starts,
    )


def _starts(origin: F, begin: F) -> list[F]:
    """Where fits begin: where they are drawn to, and half way from the general start to there."""
    same = bool(np.array_equal(origin, begin))
    return [origin] if same else [origin, 0.5 * (origin + begin)]


def late_rows(data: Path) -> list[MeasuredRows]:
    """Decode in vLLM's newer Triton kernel, known only from whole blocks: what a block takes less
    its other parts, where attention is most of it.
    """
    measured_rows = []
    for rows in newest(mla_rows(data, GENERATION)):
        plain = rows.batch.variant.flag("gemm_bf16")
        if not (plain and rows.hardware.architecture == "ada"):
            continue
        other_parts_s = np.zeros(len(rows))
        attention: OpBatch | None = None
        for part in MlaModule().work(rows.batch, rows.hardware).parts:
            if part.name == "attention":
                attention = part.batch
            elif part.name not in ("moves", "head_moves"):
                other_part = MeasuredRows(part.batch, rows.device, rows.seconds, rows.held_out)
                other_parts_s += (
                    other_part.model.times(part.batch, rows.hardware).estimate_s * part.count
                )
        assert attention is not None
        left = rows.seconds - other_parts_s
        alone = MeasuredRows(attention, rows.device, left, rows.held_out)
        measured_rows.append(alone.take(left > 0.5 * rows.seconds))
    return measured_rows


def score(parts: Parts, c: Mapping[str, float]) -> Constants:
    return fitting.shares(fitting.log_ratios(parts, c))


def grouped(data: Path, family: str) -> Groups:
    """Newest campaigns of every architecture and style."""
    parts = newest(mla_rows(data, TABLES[family]))
    return fitting.by_key(parts, lambda x: mla_scheme(x.batch.variant, x.hardware).style.constants)


def kernel_of(group: Parts) -> str:
    """The kernel behind a style on an architecture."""
    return mla_scheme(group[0].batch.variant, group[0].hardware).label.rpartition("/")[2]


def of_kernel(groups: Groups, style: str, kernel: str) -> list[Key]:
    """Whose rows say most about a style that runs ``kernel``: its own on other architectures where
    it is the same kernel there; else of kernels written by hand TensorRT-LLM's, which every
    architecture has; else its own with whatever kernel.
    """
    own_keys = [key for key in groups if key[1] == style]
    same = [key for key in own_keys if kernel_of(groups[key]) == kernel]
    hand = [key for key in groups if key[1] == BY_HAND and kernel != "triton"]
    return same or hand or own_keys or list(groups)


def log_sd(parts: Parts, c: Mapping[str, float]) -> float:
    """Spread whose interval holds 90 % of the fitted rows, less the shared part, a tenth up."""
    return round(
        fitting.own_log_sd(fitting.log_ratios(parts, c), SHARED_LOG_SD, wider=1.1, least=0.03), 3
    )


class Mla(Fitter[Groups]):
    """One family: ``mla_prefill`` or ``mla_decode``."""

    capped = True
    split = (
        "newest version of each engine per device; one pair of heads and batch size in four, by "
        "hash, held out and scored"
    )

    def __init__(self, family: str) -> None:
        self.group = family
        late = [GENERATION.path] if family == "mla_decode" else []
        self.data = (TABLES[family].path, *late)
        self.begin = {n: p[0] for n, p in PRIORS[family].items()} | FIXED[family]

    def rows(self, data: Path) -> Groups:
        groups = dict(grouped(data, self.group))
        if self.group == "mla_decode":
            groups["ada", LATE] = late_rows(data)
        return groups

    def fit(self, rows: Groups) -> Body:
        by_style: Tables = {}
        for style in sorted({style for _, style in rows} - {LATE}):
            by_style[style] = self.begin
            if style in UNMEASURED:
                keys = of_kernel(measured_alone(rows), style, UNMEASURED[style])
                by_style[style] = self._fitted(rows, keys, self.begin, ROWS_PER_FIT, STEPS)
                print(self.group, style, flush=True)
        architectures: Tables = {}
        spreads = []
        for (architecture, style), group in rows.items():
            parts = held_out(group, False)
            start = by_style["vllm" if style == LATE else style]
            fitted = fit(self.group, parts, start, ROWS_PER_FIT, STEPS)
            fitted["independent_log_sd"] = log_sd(parts, fitted)
            spreads.append(fitted["independent_log_sd"])
            architectures.setdefault(architecture, {}).update(fitting.prefixed(style, fitted))
        if self.group == "mla_decode":
            by_style[LATE] = own_of(architectures["ada"], LATE)
        default = self.begin | SPREAD | {"independent_log_sd": max(spreads)}
        for style, constants in by_style.items():
            default |= fitting.prefixed(style, constants, self.begin)
        return fitting.body(default, fitting.with_relatives(architectures), ATTENTION_FALLBACK)

    def _fitted(
        self,
        rows: Groups,
        keys: Sequence[Key],
        start: Constants,
        count: int,
        steps: int,
        *,
        warm: bool = False,
        pull: float = PULL,
    ) -> Constants:
        parts = [part for key in keys for part in held_out(rows[key], False)]
        return fit(self.group, parts, start, count, steps, warm=warm, pull=pull)

    def scores(self, rows: Groups, body: Body) -> dict[str, Any]:
        scores = {}
        for (architecture, style), group in rows.items():
            table = self.begin | own_of(body["architectures"][architecture], style)
            scores[f"{architecture} {style}"] = score(held_out(group), table)
        for name, figures in scores.items():
            print(self.group, name, figures, flush=True)
        return scores

    def without(self, rows: Groups, architecture: str, body: Body) -> Body:
        """Each style from the rows of the other architectures that say most about it."""
        alone = measured_alone(rows)
        others = {key: group for key, group in alone.items() if key[0] != architecture}
        default = self.begin | SPREAD
        spreads = []
        for (held_architecture, style), group in alone.items():
            if held_architecture != architecture:
                continue
            keys = of_kernel(others, style, kernel_of(group))
            c = self._fitted(
                rows,
                keys,
                self.begin,
                ROWS_PER_TRANSFER,
                STEPS_PER_TRANSFER,
                warm=True,
                pull=PULL_PER_TRANSFER,
            )
            spreads.append(log_sd([p for key in keys for p in held_out(rows[key], False)], c))
            default |= fitting.prefixed(style, c, self.begin)
            print(self.group, held_architecture, style, keys, score(held_out(group), c), flush=True)
        default["independent_log_sd"] = max(spreads)
        tables = {name: t for name, t in body["architectures"].items() if name != architecture}
        return fitting.body(default, tables)


def measured_alone(rows: Groups) -> Groups:
    """Groups of kernels that were timed alone, not inside whole blocks."""
    return {key: group for key, group in rows.items() if key[1] != LATE}


if __name__ == "__main__":
    for name in TABLES:
        Mla(name).run()
