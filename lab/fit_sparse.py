"""Fits the kernels of sparse attention and writes catalog/physics/sparse.json.

    python -m lab.fit_sparse

Constants of every architecture that was measured, by coordinate descent on the mean |log ratio|
of rows that are not held out, equal weight for every campaign. Deterministic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.fitter import Body, Fitter
from lab.fitting import Constants, F, Tables
from lab.scorecard.rows import MeasuredRows
from lab.scorecard.suites.sparse import KERNELS, TABLES, sparse_rows
from silicast.kernels.attention.sparse_attention import style_of
from silicast.kernels.attention.sparse_constants import GROUP
from silicast.kernels.physics.constants import Physics, replaced

SPLIT = (
    "one in five shapes (batch, new tokens, past tokens) is never fitted on any device; scores are "
    "on those"
)
ROWS = 400
"""Rows of each campaign that are fitted."""

START = {
    "indexer_logits.launch_s": 3e-6, "indexer_logits.efficiency": 0.55,
    "indexer_logits.score_cycles": 0.02, "indexer_logits.paged": 1.0,
    "indexer_logits.tile_s": 3e-7, "indexer_logits.task_s": 5e-7, "indexer_logits.tail": 0.8,
    "indexer_logits.dram_efficiency": 0.8, "indexer_logits.write_share": 0.5,
    "topk.launch_s": 2.5e-6, "topk.row_cycles": 3000.0, "topk.score_cycles": 0.4,
    "topk.copy_cycles": 500.0, "topk.kept_cycles": 0.5, "topk.tail": 0.8,
    "topk.passes": 1.5, "topk.dram_efficiency": 0.8,
    "sparse_attention.launch_s": 4e-6, "sparse_attention.head_tile": 64.0,
    "sparse_attention.cores_per_block": 1.0, "sparse_attention.efficiency": 0.6,
    "sparse_attention.head_pad": 64.0,
    "sparse_attention.block_s": 2e-6, "sparse_attention.merge_s": 2e-6,
    "sparse_attention.tail": 0.8, "sparse_attention.dram_efficiency": 0.8,
    "sparse_attention.serial": 0.1, "sparse_attention.most_splits": 32.0,
    "sparse_attention.least_entries": 64.0, "sparse_attention.padded": 1.0,
    "sparse_attention.dense_efficiency": 0.0, "sparse_attention.entry_cycles": 1.0,
    "sparse_attention.dense_tokens": 131_072.0,
}  # fmt: skip
OWN_START = {
    "blackwell": {
        "sparse_attention.head_tile": 128.0,
        "sparse_attention.cores_per_block": 2.0,
        "sparse_attention.head_pad": 128.0,
    }
}
"""A pair of cores of Blackwell shares one tile of 128 heads (its matrix instruction spans two)."""
FIXED = (
    "sparse_attention.head_tile",
    "sparse_attention.cores_per_block",
    "sparse_attention.padded",
    "sparse_attention.dense_efficiency",
    "sparse_attention.head_pad",
    "sparse_attention.dense_tokens",
)
"""Not fitted; "dense_tokens" is where SGLang's tables name the sparse kernel again: its last dense
prefill sees 114,688 tokens in all, its first sparse one 131,584."""
CEILING = {"tail": 1.0, "dram_efficiency": 0.95, "write_share": 1.0}
SPREAD = {"family_log_sd": 0.04, "device_log_sd": 0.06, "unmeasured_widening": 5.0}
UNSEEN = 1.05
"""Shapes that were not fitted err so much more than those that were."""


def styled(rows: MeasuredRows) -> str:
    """The family, and its style of attention."""
    style = "compressed" if style_of(rows.batch) == "compressed" else ""
    return f"{rows.batch.family}.{style}".rstrip(".")


def loss(group: Sequence[MeasuredRows], constants: Mapping[str, float]) -> float:
    """Mean over campaigns of the mean |log ratio|."""
    return float(np.mean([np.mean(np.abs(fitting.log_ratio(part, constants))) for part in group]))


def descend(group: Sequence[MeasuredRows], start: Constants, names: Sequence[str]) -> float:
    """Coordinate descent in steps that shrink; changes ``start`` in place."""
    best = loss(group, start)
    for step in (1.6, 1.3, 1.15, 1.07, 1.03):
        for _ in range(4):
            before = best
            for name in names:
                for factor in (step, 1.0 / step):
                    while True:
                        tried = dict(start)
                        value = start[name] * factor
                        tried[name] = min(value, CEILING.get(name.split(":")[0], value))
                        result = loss(group, tried)
                        if result >= best - 1e-7:
                            break
                        best, start[name] = result, tried[name]
            if before - best < 1e-4:
                break
    return best


def fit(parts: Sequence[MeasuredRows]) -> Tables:
    """Constants of every family on every architecture."""
    tables: Tables = defaultdict(dict)
    for (architecture, style), group in fitting.by_key(parts, styled).items():
        family = style.partition(".")[0]
        first = {**START, **OWN_START.get(architecture, {})}
        constants = fitting.own_of(first, family)
        names = [name for name in constants if f"{family}.{name}" not in FIXED]
        constants["independent_log_sd"] = 0.1
        best = descend(group, constants, names)
        errors = fitting.log_ratios(group, constants)
        constants["independent_log_sd"] = spread_of(errors)
        print(f"{style:28s} {architecture:10s} mean |log| {best:.3f}", flush=True)
        tables[architecture] |= {f"{style}.{k}": v for k, v in constants.items()}
    return dict(tables)


def spread_of(errors: F) -> float:
    """Log sd of the rows' own error such that 90 % of them lie inside the whole interval."""
    shared = (SPREAD["family_log_sd"], SPREAD["device_log_sd"])
    return fitting.own_log_sd(errors, shared, wider=UNSEEN, least=0.03)


def complete(tables: Tables) -> dict[str, Any]:
    """Default (Hopper's), architectures and stand-ins as the file has them."""
    families = sorted({name.split(".")[0] for name in START})
    spread = {f"{family}.{k}": v for family in families for k, v in SPREAD.items()}
    default = {**spread, **tables["hopper"]}
    architectures = {
        architecture: {k: v for k, v in table.items() if default.get(k) != v}
        for architecture, table in tables.items()
    }
    return fitting.body(default, architectures)


def score(parts: Sequence[MeasuredRows], *, by_architecture: bool = False) -> Tables:
    """Figures of rows under the constants in use, by campaign or by architecture and family."""
    table: dict[str, list[F]] = defaultdict(list)
    for part in parts:
        times = part.model.times(part.batch, part.hardware)
        ratio = np.log(times.estimate_s / part.seconds)
        inside = (times.p05_s <= part.seconds) & (part.seconds <= times.p95_s)
        campaign = f"{part.device} {part.words['table']} {part.words['backend']}"
        family = f"{part.hardware.architecture} {part.batch.family}"
        table[family if by_architecture else campaign].append(np.stack((ratio, inside)))
    return {key: figures(np.concatenate(rows, axis=1)) for key, rows in sorted(table.items())}


def body_without(architecture: str, body: Body) -> Body:
    """Constants that an architecture would get without its rows: geometric means of the others'.

    Sizes of tiles are those of an architecture's own matrix units, which its instruction set tells;
    of kernels over compressed entries, of which libraries have several, the usual ones.
    """
    tiles = {**START, **OWN_START.get(architecture, {})}
    tables = {
        name: {**body["default"], **item}
        for name, item in body["architectures"].items()
        if name != architecture
    }
    names = next(iter(tables.values()))
    default = {name: mean_of([table[name] for table in tables.values()]) for name in names}
    for name in default:
        plain = name.replace(".compressed.", ".")
        if plain in FIXED:
            default[name] = (tiles if name == plain else START)[plain]
    return {"default": fitting.rounded(default), "architectures": tables, "fallback": {}}


def mean_of(values: Sequence[float]) -> float:
    """Geometric mean; 0 where one of them is."""
    if min(values) <= 0.0:
        return 0.0
    return fitting.geometric_mean(values)


def transfer(parts: Sequence[MeasuredRows], body: Body) -> Tables:
    """Figures of every architecture's rows under the constants it would get without them."""
    tables: Tables = {}
    for architecture in body["architectures"]:
        held = [part for part in parts if part.hardware.architecture == architecture]
        with replaced({GROUP: physics(body_without(architecture, body))}):
            tables |= score(held, by_architecture=True)
    return dict(sorted(tables.items()))


def figures(rows: F) -> Constants:
    """Errors in percent and coverage of one group."""
    return {
        **fitting.percent(rows[0], "rows", "mape", "median", "p90"),
        "bias": round(100.0 * float(np.mean(np.exp(rows[0]) - 1.0)), 1),
        "coverage90": round(100.0 * float(np.mean(rows[1])), 1),
    }


def physics(body: Mapping[str, Any]) -> Physics:
    """Constants as kernel models read them."""
    return fitting.physics(fitting.card("", [], ""), body["default"], body["architectures"])


@dataclass(frozen=True)
class Rows:
    """Those that may be fitted, and those held out."""

    fitted: list[MeasuredRows]
    held_out: list[MeasuredRows]

    @classmethod
    def of(cls, data: Path, names: Sequence[str], count: int, held: int) -> Rows:
        """At most so many of each campaign of some tables."""
        fitted = list(sparse_rows(data, names, count, held_out=False))
        return cls(fitted, list(sparse_rows(data, names, held, held_out=True)))


class SparseKernels(Fitter[Rows]):
    """The indexer, the selection, and attention over what was selected."""

    group = GROUP
    capped = True
    data = tuple(TABLES[name].path for name in KERNELS)
    split = SPLIT

    def rows(self, data: Path) -> Rows:
        return Rows.of(data, KERNELS, ROWS, ROWS)

    def fit(self, rows: Rows) -> Body:
        return complete(fit(rows.fitted))

    def scores(self, rows: Rows, body: Body) -> dict[str, Any]:
        with replaced({GROUP: physics(body)}):
            scores = {"held-out shapes": score(rows.held_out)}
        scores["held-out shapes, other architecture's"] = transfer(rows.held_out, body)
        for title, item in scores.items():
            fitting.show(title, item)
        return scores

    def without(self, rows: Rows, architecture: str, body: Body) -> Body:
        return body_without(architecture, body)


if __name__ == "__main__":
    SparseKernels().run()
