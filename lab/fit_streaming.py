"""Estimates the constants of streaming kernels and writes catalog/physics/streaming.json.

    python -m lab.fit_streaming

Few physical constants, shared by all architectures where they can be, are fitted jointly by robust
least squares on log(estimate / measured), each with a weak prior around a datasheet-like guess.
The sizes of the errors come from a third of the train rows, under constants of the other two.
Deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.fitter import Body, Fitter
from lab.fitting import Constants, F, Parameter, Tables
from lab.scorecard.rows import Mask, MeasuredRows, held_out, one_in, some_of
from lab.scorecard.suites.streaming import SOURCES, resolution_us, streaming_rows
from lab.streaming_cases import Case, cases_of, error_sizes, score, summary
from silicast.kernels.movement.streaming import SCALAR

ROWS_PER_GROUP = 80
THIRD_ROWS = 300
TRANSFER_ROWS = 30
MAX_STEPS = 40
STEP = 1e-2
MODEL_SD = 0.06
PRIOR_SD = 0.7
TIGHT_SD = {
    "dram_fraction": 0.08, "l2_fraction": 0.4, "layernorm.l2_fraction": 0.25,
    "softmax.l2_fraction": 0.25, "launch_factor": 0.07, "launch_cycles": 0.3, "trip_cycles": 0.3,
    "stream_dispatch_s": 0.3, "stream_record_s": 0.3, "reread_from": 0.2, "reread_to": 0.2,
    "reread_share": 0.4, "between_from": 0.5, "between_share": 0.2, "core_headroom": 0.2,
}  # fmt: skip
# NeuSight has many kinds of one kernel on each device; the layer profile ran between GEMMs that
# leave less in the L2 than a kernel that is replayed finds there
SOURCE_WEIGHT = {
    "vidur-fork": 0.02,
    "vidur-phi": 0.02,
    "neusight": 0.1,
    "vllm-profile": 0.3,
    "aiconfigurator": 0.5,
}

CUT_BY = {"aiconfigurator": ("hidden",)}

# name -> guess; facts and error sizes that are not fitted here stay as they are
FIXED = {
    "optimizer.family_log_sd": 2.5,  # no table holds these: twice the usual error and more
    "cross_entropy.family_log_sd": 2.5,
    "port_bytes_per_clock": 64.0,
    "slot_s": 80e-9,
    "unknown_l2_bytes_per_clock": 32.0,  # per core, where a device file does not say
    "pipe_fraction": 0.8,
    "core_bytes_per_clock": 64.0,  # what a core's load and store units take
    "transfer_widening": 1.5,
}
SHARED = {
    "launch_cycles": 1500.0, "gap_s": 0.5e-6, "trip_cycles": 1000.0, "reduction_cycles": 700.0,
    "core_headroom": 1.2, "scatter_share": 0.12, "block_bytes_per_clock": 23.0,
    "between_from": 0.05, "between_to": 1.4, "between_share": 0.8, "rope.l2_fraction": 0.38,
    "embedding.l2_fraction": 0.6, "sampling.launch_cycles": 4.0,
    "sampling.block_bytes_per_clock": 1.0, "layernorm.slot_s": 6.0, "reread_from": 0.2,
    "reread_to": 0.7, "layernorm.reread_from": 1.0, "layernorm.reread_to": 1.0,
    "layernorm.stream_dispatch_s": 1.7, "layernorm.stream_record_s": 1.5,
    "softmax.stream_dispatch_s": 1.4, "softmax.stream_record_s": 1.0,
    "scalar.rmsnorm.core_bytes_per_clock": 0.1, "scalar.silu_mul.core_bytes_per_clock": 0.1,
    "scalar.rope.core_bytes_per_clock": 0.1, "scalar.embedding.core_bytes_per_clock": 0.04,
    "scalar.rmsnorm.reread_from": 0.3, "scalar.rmsnorm.reread_to": 0.3,
    "scalar.rmsnorm.block_bytes_per_clock": 0.25, "scalar.silu_mul.block_bytes_per_clock": 0.25,
    "scalar.rope.block_bytes_per_clock": 0.5, "scalar.embedding.block_bytes_per_clock": 0.5,
}  # fmt: skip
PER_ARCHITECTURE = {
    "launch_factor": 1.0,
    "dram_fraction": 0.85,
    "l2_fraction": 0.7,
    "resident_from": 0.5,
    "resident_to": 1.1,
    "reread_share": 1.0,
    "stream_dispatch_s": 12e-6,
    "stream_record_s": 15e-6,
}
PER_FAMILY = {
    "layernorm.l2_fraction": 1.0,
    "softmax.l2_fraction": 1.0,
    "layernorm.dram_fraction": 1.0,
    "softmax.dram_fraction": 1.0,
}
"""Of an architecture, where the family was measured there; elsewhere the shrunk mean of those."""
SHRINK = 2.0
SPLIT = (
    "Constants: the train rows (scorecard/suites/streaming.py). Error sizes: a third "
    "of the train shapes, under constants fitted on the other two thirds. Scores: rows that were "
    "used for neither. The share that inline error correction takes (data_rate.json) of A40 and "
    "L20 is from fused-MoE products."
)
STREAM = ("stream_dispatch_s", "stream_record_s")
FALLBACK = {"blackwell-rtx": "ada", "ampere-ga10b": "ampere-ga10x", "rubin": "blackwell"}


def parameters(cases: Sequence[Case]) -> list[Parameter]:
    """Every constant that the cases can tell."""
    parameters = [Parameter("", name, guess) for name, guess in SHARED.items()]
    for architecture in sorted({case.device.architecture for case in cases}):
        mine = [case for case in cases if case.device.architecture == architecture]
        eager = [case for case in mine if case.eager]
        families = {case.family for case in mine if not case.scalar}
        table = {
            name: guess
            for name, guess in PER_ARCHITECTURE.items()
            if not (name == "launch_factor" and len(eager) == len(mine))
            and not (name in STREAM and not eager)
        }
        table |= {name: x for name, x in PER_FAMILY.items() if name.split(".")[0] in families}
        if len({case.device.dram.technology.startswith("GDDR") for case in mine}) == 2:
            table |= {"gddr.dram_fraction": 1.0, "gddr.reread_share": 1.0}
        parameters += [Parameter(architecture, name, guess) for name, guess in table.items()]
    return parameters


def tables(free: Sequence[Parameter], logs: F) -> tuple[Constants, Tables]:
    """The shared constants and each architecture's from log offsets to the guesses."""
    return fitting.moved(free, logs, {**PER_ARCHITECTURE, **PER_FAMILY, **FIXED, **ERRORS})


ERRORS = {
    "device_log_sd": 0.08,
    "family_log_sd": 0.1,
    "own_log_sd": 0.06,
    "small_log_sd": 0.1,
    "eager_error": 1.0,
}


def fit(cases: Sequence[Case]) -> tuple[Constants, Tables]:
    """Shared constants and those of each architecture."""
    names = parameters(cases)
    pull = 1.0 / np.array([_prior_sd(constant.name) for constant in names])
    scales = [_scale(case) for case in cases]

    def errors(logs: F, i: int) -> F:
        return cases[i].log_ratio(*tables(names, logs)) * scales[i]

    def touches(j: int, i: int) -> bool:
        constant = names[j]
        return constant.touches(cases[i].device.architecture) and _may_use(cases[i], constant.name)

    def cost_of(logs: F, j: int) -> float:
        """Of the cases that constant ``j`` may move, and of its distance from its guess."""
        used = [errors(logs, i) for i in range(len(cases)) if touches(j, i)]
        return _soft([*used, logs[j : j + 1] * pull[j]])

    fit = fitting.fit_by_groups(
        errors,
        [len(case.rows) for case in cases],
        touches,
        np.zeros(len(names)),
        pull,
        step=STEP,
        max_nfev=MAX_STEPS,
    )
    logs = _one_by_one(cost_of, fit.x)
    cost = _soft([*(errors(logs, i) for i in range(len(cases))), logs * pull])
    print(f"{fit.nfev} steps, cost {fit.cost:.1f}, then {cost:.1f}")
    shared, architectures = tables(names, logs)
    return rounded(shared), {name: rounded(table) for name, table in architectures.items()}


def _prior_sd(name: str) -> float:
    return TIGHT_SD.get(name, TIGHT_SD.get(name.rpartition(".")[2], PRIOR_SD))


def _soft(errors: Sequence[F]) -> float:
    """Half the sum of soft L1 losses, as least_squares counts its cost."""
    return float(sum(np.sum(np.sqrt(1.0 + error * error) - 1.0) for error in errors))


def _one_by_one(cost_of: Callable[[F, int], float], start: F) -> F:
    """Steps along single constants, as long as they help: over kinks where gradients stall."""
    logs = start.copy()
    for reach in (0.4, 0.2, 0.1, 0.05, 0.02):
        for j in range(len(logs)):
            least = cost_of(logs, j)
            for step in (reach, -reach):
                while True:
                    moved = logs.copy()
                    moved[j] += step
                    cost = cost_of(moved, j)
                    if cost >= least:
                        break
                    least, logs = cost, moved
    return logs


def _scale(case: Case) -> F:
    """By what log residuals are multiplied: one over their noise, and the weight of the case."""
    noise = np.hypot(MODEL_SD, resolution_us(case.rows) * 1e-6 / case.rows.seconds)
    weight = np.sqrt(min(1.0, SOURCE_WEIGHT.get(case.source, 1.0) * 60.0 / len(noise)))
    if case.rows.batch.variant.library == "sglang":
        weight *= 0.3  # a chain of eager kernels; others time one kernel
    if case.source == "neusight" and case.family != "elementwise":
        weight *= 1.7  # of which there are fifteen kinds
    return np.asarray(weight / noise, dtype=np.float64)


def _may_use(case: Case, name: str) -> bool:
    """Whether a constant can matter to a case, by the family and style in its name."""
    prefix = name.rpartition(".")[0]
    style, _, family = prefix.rpartition(".")
    if style == SCALAR and not case.scalar:
        return False
    if name.endswith("reread_share") and isinstance(case.stream.reread_bytes, int):
        return False
    return family in ("", "gddr") or family == case.family


def with_defaults(
    cases: Sequence[Case], shared: Mapping[str, float], measured: Tables
) -> tuple[Constants, Tables]:
    """Architectures of none of these take the middle value of those that were measured.

    Shares of memory bandwidth are taken for stacked and for GDDR memory apart; what is of one
    family is drawn towards no difference from the others, since few architectures tell it.
    """
    entries, architectures = dict(shared), {name: dict(table) for name, table in measured.items()}
    memories: dict[str, set[str]] = {}
    for case in cases:
        kind = "gddr" if case.device.dram.technology.startswith("GDDR") else "hbm"
        memories.setdefault(case.device.architecture, set()).add(kind)
    for name in PER_ARCHITECTURE:
        if name != "dram_fraction":
            entries[name] = _middle([table[name] for table in measured.values() if name in table])
    for name in PER_FAMILY:
        values = [table[name] for table in measured.values() if name in table]
        entries[name] = _middle([*values, *[1.0] * int(SHRINK)])
    kinds: dict[str, list[float]] = {"hbm": [], "gddr": []}
    for name, table in architectures.items():
        share, ratio = table["dram_fraction"], table.get("gddr.dram_fraction", 1.0)
        for kind in memories[name]:
            kinds[kind].append(min(share * (ratio if kind == "gddr" else 1.0), 1.0))
        table.setdefault("gddr.dram_fraction", 1.0)
    entries["dram_fraction"] = _middle(kinds["hbm"])
    entries["gddr.dram_fraction"] = _middle(kinds["gddr"]) / entries["dram_fraction"]
    return rounded(entries), {name: rounded(table) for name, table in architectures.items()}


def _middle(values: Sequence[float]) -> float:
    """The middle value, in logs: one architecture with a memory of its own kind moves it little."""
    return float(np.exp(np.median(np.log(values))))


def rounded(table: Mapping[str, float]) -> Constants:
    return fitting.rounded(table, ordered=False)


def cut(rows: MeasuredRows) -> Mask:
    """One in three of the shapes: whole columns of a table where the split is one of columns."""
    names = CUT_BY.get(rows.words["source"], tuple(rows.batch.dims))
    return one_in(3, *(rows.batch.dims[name] for name in names), seed=3)


def spreads(train: Sequence[MeasuredRows]) -> Constants:
    """The error sizes, from a third of the train rows under constants fitted on the others.

    Rows that suites score have no part in it, so that their coverage is a finding.
    """
    two_thirds = cases_of(some_of(train, lambda rows: ~cut(rows)), ROWS_PER_GROUP)
    third = cases_of(some_of(train, cut), THIRD_ROWS)
    return rounded(error_sizes(third, *fit(two_thirds)))


class Streaming(Fitter[list[MeasuredRows]]):
    """Kernels that stream their operands."""

    group = "streaming"
    data = SOURCES[0].tables
    split = SPLIT

    def rows(self, data: Path) -> list[MeasuredRows]:
        return streaming_rows(data)

    def fit(self, rows: list[MeasuredRows]) -> Body:
        train = held_out(rows, False)
        shared, architectures = fitted(train, ROWS_PER_GROUP)
        return body_of({**shared, **spreads(train)}, architectures)

    def scores(self, rows: list[MeasuredRows], body: Body) -> dict[str, Any]:
        cases = [Case.of(part) for part in held_out(rows)]
        return summary(score(cases, body["default"], body["architectures"]))

    def left_out(self, rows: list[MeasuredRows], body: Body) -> list[str]:
        return sorted({part.hardware.architecture for part in rows})

    def without(self, rows: list[MeasuredRows], architecture: str, body: Body) -> Body:
        out = [part for part in rows if part.hardware.architecture == architecture]
        others = [part for part in rows if part.hardware.architecture != architecture]
        shared, architectures = fitted(held_out(others, False), TRANSFER_ROWS)
        shared.update({name: body["default"][name] for name in ERRORS})
        held = some_of(out, lambda part: part.held_out | (part.words["source"] != "neusight"))
        print(architecture, summary(score([Case.of(part) for part in held], shared, {})))
        return body_of(shared, architectures)


def fitted(train: Sequence[MeasuredRows], count: int) -> tuple[Constants, Tables]:
    """Constants of all and of each architecture, from about so many rows of each group."""
    cases = cases_of(train, count)
    return with_defaults(cases, *fit(cases))


def body_of(shared: Constants, architectures: Tables) -> Body:
    """The content of a file; architectures that nothing stands in for have the default."""
    fallback = {name: stand_in for name, stand_in in FALLBACK.items() if stand_in in architectures}
    return {"default": shared, "architectures": architectures, "fallback": fallback}


if __name__ == "__main__":
    Streaming().run()
