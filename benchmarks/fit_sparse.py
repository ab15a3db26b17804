"""Fits the kernels of sparse attention and writes catalog/physics/sparse.json.

    python benchmarks/fit_sparse.py [--dry] [--transfer]

Constants of every architecture that was measured, by coordinate descent on the mean |log ratio|
of rows that are not held out, equal weight for every campaign. ``--transfer`` writes the constants
that every architecture would get without its rows, validation/held_out/sparse.json. Deterministic.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from silicast.core.prediction import Z90
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.implementation import implementation_for
from silicast.kernels.physics import Physics, PhysicsCard, load_physics, replaced
from silicast.kernels.sparse_attention import style_of
from silicast.kernels.sparse_constants import GROUP
from silicast.validation.suite import data_folder
from silicast.validation.suites._sparse_rows import KERNEL_TABLES, Rows, table_rows
from silicast.workload.op import OpBatch

F = NDArray[np.float64]
DATA = data_folder()
OUT = Path(__file__).resolve().parents[1] / "src/silicast/catalog/physics/sparse.json"
HELD_OUT = OUT.parents[2] / "validation/held_out/sparse.json"
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
    "sparse_attention.head_tile", "sparse_attention.cores_per_block", "sparse_attention.padded",
    "sparse_attention.dense_efficiency", "sparse_attention.head_pad",
    "sparse_attention.dense_tokens",
)  # fmt: skip
"""Not fitted; "dense_tokens" is where SGLang's tables name the sparse kernel again: its last dense
prefill sees 114,688 tokens in all, its first sparse one 131,584."""
CEILING = {"tail": 1.0, "dram_efficiency": 0.95, "write_share": 1.0}
SPREAD = {"family_log_sd": 0.04, "device_log_sd": 0.06, "unmeasured_widening": 5.0}
UNSEEN = 1.05
"""Shapes that were not fitted err so much more than those that were."""

Tables = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Campaign:
    """Rows of one table and device."""

    device: Device
    batch: OpBatch
    seconds: F


def campaigns(parts: Sequence[Rows]) -> dict[tuple[str, str], list[Campaign]]:
    """By family and architecture."""
    found: dict[tuple[str, str], list[Campaign]] = defaultdict(list)
    for part in parts:
        device = find_device(part.device)
        style = "compressed" if style_of(part.batch) == "compressed" else ""
        found[f"{part.batch.family}.{style}".rstrip("."), device.architecture].append(
            Campaign(device, part.batch, part.seconds)
        )
    return dict(sorted(found.items()))


def log_ratio(one: Campaign, constants: Mapping[str, float]) -> F:
    """ln(predicted / measured) of each row."""
    model = implementation_for(one.batch.family, "simt")
    analysis = model.analyse_with(one.batch, one.device, constants)  # type: ignore[union-attr]
    ratio: F = np.log(np.maximum(analysis.time_s, analysis.bound_s) / one.seconds)
    return ratio


def loss(group: Sequence[Campaign], constants: Mapping[str, float]) -> float:
    """Mean over campaigns of the mean |log ratio|."""
    return float(np.mean([np.mean(np.abs(log_ratio(one, constants))) for one in group]))


def descend(group: Sequence[Campaign], start: dict[str, float], names: Sequence[str]) -> float:
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
                        found = loss(group, tried)
                        if found >= best - 1e-7:
                            break
                        best, start[name] = found, tried[name]
            if before - best < 1e-4:
                break
    return best


def fit(parts: Sequence[Rows]) -> Tables:
    """Constants of every family on every architecture."""
    tables: Tables = defaultdict(dict)
    for (styled, architecture), group in campaigns(parts).items():
        family = styled.partition(".")[0]
        first = {**START, **OWN_START.get(architecture, {})}
        own = {k.removeprefix(family + "."): v for k, v in first.items() if k.startswith(family)}
        names = [name for name in own if f"{family}.{name}" not in FIXED]
        own["independent_log_sd"] = 0.1
        best = descend(group, own, names)
        errors = np.concatenate([log_ratio(one, own) for one in group])
        own["independent_log_sd"] = spread_of(errors)
        print(f"{styled:28s} {architecture:10s} mean |log| {best:.3f}", flush=True)
        tables[architecture] |= {f"{styled}.{k}": v for k, v in own.items()}
    return dict(tables)


def spread_of(errors: F) -> float:
    """Log sd of the rows' own error such that 90 % of them lie inside the whole interval."""
    shared = SPREAD["family_log_sd"] ** 2 + SPREAD["device_log_sd"] ** 2
    wide = UNSEEN * float(np.percentile(np.abs(errors), 90)) / Z90
    return float(np.sqrt(max(wide * wide - shared, 0.03**2)))


def complete(tables: Tables) -> dict[str, Any]:
    """Default (Hopper's), architectures and stand-ins as the file has them."""
    families = sorted({name.split(".")[0] for name in START})
    spread = {f"{family}.{k}": v for family in families for k, v in SPREAD.items()}
    default = {**spread, **tables["hopper"]}
    own = {
        architecture: {k: v for k, v in table.items() if default.get(k) != v}
        for architecture, table in tables.items()
    }
    return {
        "default": rounded(default),
        "architectures": {k: rounded(v) for k, v in sorted(own.items())},
        "fallback": {},
    }


def rounded(table: Mapping[str, float]) -> dict[str, float]:
    """Four digits are more than the data hold."""
    return {k: float(f"{v:.4g}") for k, v in sorted(table.items())}


def score(parts: Sequence[Rows]) -> dict[str, dict[str, float]]:
    """Figures of held-out rows under the constants in ``tables``."""
    found: dict[str, list[F]] = defaultdict(list)
    for part in parts:
        device = find_device(part.device)
        model = implementation_for(part.batch.family, "simt")
        times = model.times(part.batch, device)  # type: ignore[union-attr]
        ratio = np.log(times.estimate_s / part.seconds)
        inside = (times.p05_s <= part.seconds) & (part.seconds <= times.p95_s)
        key = f"{part.device} {part.table} {part.labels['backend']}"
        found[key].append(np.stack((ratio, inside.astype(np.float64))))
    return {key: figures(np.concatenate(rows, axis=1)) for key, rows in sorted(found.items())}


def body_without(architecture: str) -> dict[str, Any]:
    """Constants that an architecture would get without its rows: geometric means of the others'.

    Its tiles are those of most: what the others' matrix units have of their own says nothing of it.
    """
    shipped = load_physics(GROUP)
    others = [name for name in shipped.architectures if name != architecture]
    tables = [shipped.constants(name) for name in others]
    default = {name: mean_of([table[name] for table in tables]) for name in tables[0]}
    for name in default:
        plain = name.replace(".compressed.", ".")
        if plain in FIXED:
            default[name] = START[plain]
    kept = {name: dict(shipped.constants(name)) for name in others}
    return {"default": rounded(default), "architectures": kept, "fallback": {}}


def mean_of(values: Sequence[float]) -> float:
    """Geometric mean; 0 where one of them is."""
    if min(values) <= 0.0:
        return 0.0
    return math.exp(sum(math.log(value) for value in values) / len(values))


def transfer(parts: Sequence[Rows]) -> dict[str, dict[str, float]]:
    """Figures of every architecture's rows under the constants it would get without them."""
    found: dict[str, dict[str, float]] = {}
    for architecture in load_physics(GROUP).architectures:
        with replaced({GROUP: physics(body_without(architecture))}):
            rows: dict[str, list[F]] = defaultdict(list)
            for part in parts:
                device = find_device(part.device)
                if device.architecture == architecture:
                    model = implementation_for(part.batch.family, "simt")
                    times = model.times(part.batch, device)  # type: ignore[union-attr]
                    ratio = np.log(times.estimate_s / part.seconds)
                    inside = (times.p05_s <= part.seconds) & (part.seconds <= times.p95_s)
                    key = f"{architecture} {part.batch.family}"
                    rows[key].append(np.stack((ratio, inside.astype(np.float64))))
            found |= {key: figures(np.concatenate(one, axis=1)) for key, one in rows.items()}
    return dict(sorted(found.items()))


def figures(rows: F) -> dict[str, float]:
    """Errors in percent and coverage of one group."""
    errors = np.exp(rows[0]) - 1.0
    return {
        "rows": rows.shape[1],
        "mape": round(100.0 * float(np.mean(np.abs(errors))), 1),
        "median": round(100.0 * float(np.median(np.abs(errors))), 1),
        "p90": round(100.0 * float(np.percentile(np.abs(errors), 90)), 1),
        "bias": round(100.0 * float(np.mean(errors)), 1),
        "coverage90": round(100.0 * float(np.mean(rows[1])), 1),
    }


def show(scores: Mapping[str, Mapping[str, float]]) -> None:
    """One line a group."""
    for key, one in scores.items():
        print(f"  {key:75s}" + "".join(f" {k} {v:7.1f}" for k, v in one.items()), flush=True)


def physics(body: Mapping[str, Any]) -> Physics:
    """Constants as kernel models read them."""
    card = PhysicsCard(data=[], split="", command="", date="")
    found: Physics = msgspec.convert(
        {"format": 1, "card": msgspec.to_builtins(card), **body}, Physics
    )
    return found


def write(tables: Tables, scores: dict[str, Any]) -> None:
    """The constants file with its card."""
    card = {
        "data": [f"aiconfigurator/{table}.parquet" for table in KERNEL_TABLES],
        "split": "one in five shapes (batch, new tokens, past tokens) is never fitted on any "
        "device; scores are on those",
        "command": "python benchmarks/fit_sparse.py",
        "date": "2026-11-21",
        "scores": scores,
    }
    OUT.write_text(json.dumps({"format": 1, "card": card, **complete(tables)}, indent=1) + "\n")


def rows_of(*, held_out: bool) -> list[Rows]:
    """Rows of all tables of kernels."""
    return [
        part
        for table, lower in KERNEL_TABLES.items()
        for part in table_rows(DATA, table, lower, ROWS, held_out=held_out)
    ]


def main() -> None:
    """Fits, scores and writes."""
    if "--transfer" in sys.argv:
        bodies = {name: body_without(name) for name in load_physics(GROUP).architectures}
        HELD_OUT.write_text(json.dumps(bodies, indent=1) + "\n")
        show(transfer(rows_of(held_out=True)))
        return
    tables = fit(rows_of(held_out=False))
    if "--dry" not in sys.argv:
        held = rows_of(held_out=True)
        with replaced({GROUP: physics(complete(tables))}):
            scores = score(held)
            show(scores)
            others = transfer(held)
            show(others)
        found = {"held-out shapes": scores, "architecture held out": others}
        write(tables, found)


if __name__ == "__main__":
    main()
