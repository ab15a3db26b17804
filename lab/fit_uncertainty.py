"""Fits the correlation of errors among kernels, and between kernels and composition.

    python -m lab.fit_uncertainty

Kernels: log residuals of rows that no correction and no constant was fitted on, some hundred of
each family, format and device, in three kinds of knowledge: "learned" (corrections of the
architecture), "known" (its constants alone) and "unmeasured" (as if no row of the architecture
existed). Of each kind:

* device_share: variance of the medians of (family, device), decomposed by the method of moments.
  The covariance of one device's families is the device's variance, that of one family's devices
  the family's; the rest belongs to both.
* alike, reach_octaves: correlation of residuals of one device and variant (less their median, in
  units of their own spread, cut at 3) by the distance of their sizes in octaves, with equal weight
  for each family; least squares of alike x exp(-distance / reach).
* variants: the same correlation between two variants of one family and format on one device, for
  sizes less than half an octave apart, divided by that within one variant.

Boards of which only others of the architecture were measured ("sister"): how alike their errors are
is as of "known", the share of all families as of "unmeasured". How large errors are there stands
in ``catalog/physics/unseen.json``.

Boards as a whole: what models on one board are off together beyond what their kernels explain, by
whether the board's kernels were measured; from the other suites' rows of whole models, as measured
and as if the architecture were unknown.

Calibrated: the residual after 200 rows of a family on the device, from the committed results of
suite ``calibrated``.

Host: residual of a model's host time on one machine, under constants fitted on all other models
(``serving/vidur_cpu_overheads``). Network: the card of the collectives' corrections.

Composition: distance of the sum of measured kernels from the measured pass
(``neusight/model_e2e``), of eager passes, and used for the others too, so that no row of an engine
is fitted on. The spread that rows of engines alone would need (``serving_spread``) is printed and
kept on the card as a cross-check: each source is predicted from the other two.

Writes ``catalog/physics/uncertainty.json``.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.scorecard.held_out import held_out, unmeasured
from lab.scorecard.rows import MeasuredRows, shares_of
from lab.scorecard.suite import data_folder, predicted, resting, suites
from lab.scorecard.suites.intervals import OF_MODELS
from lab.scorecard.tables import read_records
from lab.scorecard.training import by_metric_and_device
from lab.unseen_models import NONE, board_spreads, boards_of_models
from silicast.core.catalog import CATALOG
from silicast.core.numerics import F64
from silicast.core.prediction import Z90
from silicast.kernels.physics.constants import forget_files, load_physics
from silicast.kernels.physics.unseen import SPREADS
from silicast.learning.tiers import Evidence

ACCURACY = Path(__file__).resolve().parents[1] / "docs" / "accuracy"
KINDS = ("learned", "known", "unmeasured")
ROWS = 400
"""Of each family, format and device, about."""
FEWEST = 20
"""Rows of a family on a device, below which their median is not used."""
EDGES = np.array([0.01, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0])
"""Distances, octaves, between which correlations are averaged."""
PAIRS = 40_000
UNLIKE_OCTAVES = 4.0
"""Judged: distance of sizes of two different names, at which errors are independent."""
STRUCTURE_LOG_SD = 0.25
"""Judged: a wrong number of key-value heads, or an MLP with or without a gate, is about as much."""
EXPERTS_LOG_SD = 0.2
"""Judged, on the time of layers of experts in a model: how evenly tokens choose, which of several
kernels an engine picks, and what it overlaps with them is not known."""
ENGINES = ("end-to-end", "silicon-sample", "vllm-steps")
"""Suites of engines' steps and runs."""
VINTAGE = "bf106186f8"
HOST_COLUMNS = ("schedule_median", "prepare_inputs_e2e_median", "process_model_outputs_median")
NORMAL_QUARTILE = 0.6745

Cell = tuple[str, str]
"""Family, device."""
Residuals = tuple[Cell, F64, F64]


@contextmanager
def knowing(kind: str, architecture: str) -> Iterator[None]:
    """Inside, predictions rest on one kind of knowledge."""
    if kind == "learned":
        yield
    elif kind == "known":
        with resting(Evidence(learned=False)):
            yield
    else:
        with unmeasured(architecture):
            yield


def residuals(data: Path) -> tuple[dict[str, list[Residuals]], list[str]]:
    """Kind of knowledge -> of each part its cell, log residuals and log2 of sizes (dims, n); and
    the format and names of sizes of each part.
    """
    kinds: list[str] = []
    table: dict[str, list[Residuals]] = {kind: [] for kind in KINDS}
    for (_, device), parts in by_metric_and_device(data).items():
        chosen = shares_of(parts, ROWS, held=True)
        kinds += [f"{part.batch.variant.dtype} {sorted(part.batch.dims)}" for part in chosen]
        for kind in KINDS:
            with knowing(kind, parts[0].hardware.architecture):
                for part in chosen:
                    left = np.log(part.seconds / predicted(part).estimate_s)
                    table[kind].append(((part.batch.family, device), left, sizes(part)))
    return table, kinds


def sizes(part: MeasuredRows) -> F64:
    """log2 of every size of a part, of sequences their sum; shape (dimensions, n)."""
    rows = []
    for _, values in sorted(part.batch.dims.items()):
        column = values
        if len(column) != len(part.seconds):
            assert part.batch.offsets is not None
            column = np.add.reduceat(column, part.batch.offsets[:-1])
        rows.append(np.log2(np.maximum(column, 1)))
    return np.array(rows)


def components(parts: list[Residuals]) -> dict[str, float]:
    """Variances of medians: of the device, of the family, and of both together."""
    cells: dict[Cell, list[F64]] = defaultdict(list)
    for cell, left, _ in parts:
        cells[cell].append(left)
    joined = {cell: np.concatenate(rows) for cell, rows in cells.items()}
    joined = {cell: rows for cell, rows in joined.items() if len(rows) >= FEWEST}
    median = {cell: float(np.median(rows)) for cell, rows in joined.items()}
    mean = float(np.mean(list(median.values())))
    noise = np.mean([math.pi / 2 * np.var(rows) / len(rows) for rows in joined.values()])
    of_device, of_family = [], []
    for (one, a), (other, b) in combinations(median.items(), 2):
        if one[1] == other[1]:
            of_device.append((a - mean) * (b - mean))
        elif one[0] == other[0]:
            of_family.append((a - mean) * (b - mean))
    device = max(float(np.mean(of_device)), 0.0)
    family = max(float(np.mean(of_family)), 0.0)
    whole = float(np.mean([(m - mean) ** 2 for m in median.values()]) - noise)
    return {"device": device, "family": family, "both": max(whole - device - family, 0.0)}


def correlations(parts: list[Residuals]) -> F64:
    """Mean correlation between each two of :data:`EDGES`, families counting alike."""
    rng = np.random.default_rng(0)
    sums: dict[str, F64] = defaultdict(lambda: np.zeros((2, len(EDGES) + 1)))
    for (family, _), left, positions in parts:
        n = len(left)
        if n < FEWEST:
            continue
        z = standardised(left)
        i, j = np.triu_indices(n, 1)
        sample = rng.permutation(len(i))[:PAIRS]
        i, j = i[sample], j[sample]
        distance = np.sqrt(np.square(positions[:, i] - positions[:, j]).sum(axis=0))
        index = np.searchsorted(EDGES, distance, side="right")
        # the mean was taken off the rows themselves, which makes them unlike by 1 / (n - 1)
        np.add.at(sums[family][0], index, z[i] * z[j] + 1.0 / (n - 1))
        np.add.at(sums[family][1], index, 1.0)
    table = np.array([np.where(n > 50, s / np.maximum(n, 1.0), np.nan) for s, n in sums.values()])
    correlations: F64 = np.nanmean(table[:, 1:-1], axis=0)
    return correlations


def standardised(left: F64) -> F64:
    """Residuals less their median, in units of their own robust spread, cut at 3; of variance 1."""
    z = left - np.median(left)
    z = np.clip(z / max(np.median(np.abs(z)) / NORMAL_QUARTILE, 1e-3), -3.0, 3.0)
    standardised: F64 = (z - z.mean()) / max(z.std(), 1e-9)
    return standardised


def variants(parts: list[Residuals], kinds: list[str]) -> float:
    """Correlation of near rows of two variants over that of near rows of one, families alike."""
    groups: dict[tuple[str, str, str], list[Residuals]] = defaultdict(list)
    for part, kind in zip(parts, kinds, strict=True):
        if len(part[1]) >= FEWEST:
            groups[(*part[0], kind)].append(part)
    sums: dict[str, F64] = defaultdict(lambda: np.zeros((2, 2)))
    for (family, _, _), members in groups.items():
        for number, (_, left, positions) in enumerate(members):
            for _, other, others in members[: number + 1]:
                squares = np.square(positions[:, :, None] - others[:, None, :]).sum(axis=0)
                near = squares < EDGES[1] ** 2
                same = other is left
                if same:
                    near &= ~np.eye(len(left), dtype=bool)
                products = standardised(left)[:, None] * standardised(other)[None, :]
                sums[family][int(not same)] += (products[near].sum(), near.sum())
    both = [table[:, 0] / table[:, 1] for table in sums.values() if (table[:, 1] > 100).all()]
    one, two = np.mean(both, axis=0).tolist()
    return float(max(0.0, min(1.0, two / one)))


def field(parts: list[Residuals]) -> tuple[float, float]:
    """(alike, reach in octaves) with the least squares over the distances up to 8 octaves."""
    wanted = correlations(parts)
    middle = (EDGES[:-1] + EDGES[1:]) / 2.0
    best = (math.inf, 0.0, 0.0)
    for reach in np.arange(0.4, 4.01, 0.1):
        shape = np.exp(-middle / reach)
        alike = min(1.0, float(shape @ wanted / (shape @ shape)))
        best = min(best, (float(np.square(wanted - alike * shape).sum()), alike, float(reach)))
    return best[1], best[2]


def calibrated() -> dict[str, float]:
    """Bias and spread that remain after 200 rows, by family, from the committed results of suite
    ``calibrated``; "other" is the median.
    """
    results = json.loads((ACCURACY / "calibrated.json").read_bytes())
    entries: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for metric in results["metrics"]:
        if metric["metric"].startswith("scaled"):
            continue
        for kernels, figures in metric["by"]["kernels"].items():
            shared = abs(figures["bias_pct"]) / 100.0
            whole = math.log1p(figures["p90_ape"] / 100.0) / Z90
            item = math.sqrt(max(whole * whole - shared * shared, 0.0))
            entries[kernels.partition(" ")[0]].append((shared, item))
    table = {
        family: (
            math.sqrt(np.mean([bias * bias for bias, _ in rows])),
            float(np.median([item for _, item in rows])),
        )
        for family, rows in sorted(entries.items())
    }
    shared, item = (float(np.median(column)) for column in zip(*table.values(), strict=True))
    table["other"] = (shared, item)
    card = json.loads((CATALOG / "learned" / "collective.json").read_bytes())["trained"]
    table["network"] = (
        float(np.median([score["shared_log_sd"] for score in card])),
        float(np.median([score["log_sd"] for score in card])),
    )
    return {
        f"calibrated.{family}.{name}": round(value, 4)
        for family, pair in table.items()
        for name, value in zip(("shared_log_sd", "log_sd"), pair, strict=True)
    }


def host_spread(data: Path) -> float:
    """Log sd of a model's host time around the line through the other models' on its machine."""
    rows = read_records(data / "serving/vidur_cpu_overheads.parquet", blob=VINTAGE)
    groups: dict[tuple[str, int], list[tuple[str, float, float]]] = defaultdict(list)
    for row in rows:
        spent = sum(row[column] for column in HOST_COLUMNS)
        key = (row["gpu"], row["tensor_parallel_degree"])
        groups[key].append((row["model_name"], float(row["batch_size"]), spent))
    left: list[float] = []
    for members in groups.values():
        for name in sorted({model for model, _, _ in members}):
            others = [(x, y) for model, x, y in members if model != name]
            if len({model for model, _, _ in members}) < 2:
                continue
            x_values, y_values = np.array(others).T
            slope, constant = np.polyfit(x_values, y_values, 1)
            mine = [(x, y) for model, x, y in members if model == name]
            left += [math.log(y / (slope * x + constant)) for x, y in mine]
    return math.sqrt(float(np.mean(np.square(left))))


def measured_sums(data: Path) -> dict[str, float]:
    """Log sd of a measured pass around the sum of its measured kernels."""
    table = read_records(data / "neusight/model_e2e.parquet")
    gaps = [
        math.log1p(row["opsum_gpu_vs_e2e_pct"] / 100.0)
        for row in table
        if row["opsum_gpu_vs_e2e_pct"] is not None
    ]
    return {"rows": len(gaps), "log_sd": float(np.median(np.abs(gaps))) / NORMAL_QUARTILE}


def serving_spread() -> dict[str, float]:
    """Suite of engines -> the log sd of composition that covers 90 % of the rows of the other
    suites, with equal weight for each label.
    """
    now = load_physics("uncertainty").default["serving.composition_log_sd"]
    spare: dict[str, list[F64]] = {}
    for name in ENGINES:
        for scored in suites()[name].score(data_folder()):
            if scored.metric not in OF_MODELS[name]:
                continue
            variance = np.square(np.log(scored.p95 / scored.estimate) / Z90) - now * now
            error = np.log(scored.measured / scored.estimate)
            # the variance that composition must bring for the row to be inside
            spare.setdefault(name, []).append(np.square(error / Z90) - variance)
    serving_spread = {}
    for left_out in ENGINES:
        rows = [row for name, labels in spare.items() if name != left_out for row in labels]
        weights = np.concatenate([np.full(len(row), 1.0 / len(row)) for row in rows])
        needed = np.concatenate(rows)
        order = np.argsort(needed)
        running = np.cumsum(weights[order]) / weights.sum()
        value = float(needed[order][np.searchsorted(running, 0.9)])
        serving_spread[f"without {left_out}"] = round(math.sqrt(max(value, 0.0)), 4)
    return serving_spread


def main() -> None:
    """Fits everything and writes the file."""
    data = data_folder()
    default: dict[str, float] = {
        "unlike_octaves": UNLIKE_OCTAVES,
        "structure_log_sd": STRUCTURE_LOG_SD,
        "experts_log_sd": EXPERTS_LOG_SD,
    }
    scores: dict[str, Mapping[str, float]] = {}
    left, kinds = residuals(data)
    for kind, parts in left.items():
        default[f"{kind}.variants"] = round(variants(parts, kinds), 3)
        variance = components(parts)
        alike, reach = field(parts)
        default[f"{kind}.device_share"] = round(
            variance["device"] / (variance["device"] + variance["both"]), 3
        )
        default[f"{kind}.alike"] = round(alike, 3)
        default[f"{kind}.reach_octaves"] = round(reach, 2)
        scores[kind] = {
            f"{name}_log_sd": round(math.sqrt(value), 4) for name, value in variance.items()
        }
        middle = (EDGES[:-1] + EDGES[1:]) / 2.0
        scores[f"{kind} correlation by octaves"] = {
            f"{r:.2f}": round(float(c), 3) for r, c in zip(middle, correlations(parts), strict=True)
        }
        print(kind, scores[kind], default[f"{kind}.device_share"], alike, reach, flush=True)
    default |= calibrated()
    for name in ("alike", "reach_octaves", "variants"):
        default[f"sister.{name}"] = default[f"known.{name}"]
    default["sister.device_share"] = default["unmeasured.device_share"]
    default["measured.host_log_sd"] = round(host_spread(data), 3)
    sums = measured_sums(data)
    scores["measured sums of kernels against passes"] = sums
    default["eager.composition_log_sd"] = round(sums["log_sd"], 4)
    default["compiled.composition_log_sd"] = round(sums["log_sd"], 4)
    default["serving.composition_log_sd"] = round(sums["log_sd"], 4)
    scores["composition of engines, by rows of the other sources"] = serving_spread()
    print(scores["composition of engines, by rows of the other sources"])
    default |= NONE
    without = {name: dict(default) for name in held_out(SPREADS)}
    about = fitting.card(
        "python -m lab.fit_uncertainty",
        ["all kernel tables", "serving/vidur_cpu_overheads", "neusight/model_e2e"],
        "rows that corrections hold out; spreads: no time depends on them",
        scores,
        "see the benchmark",
    )
    write(about, default, without)
    boards = boards_of_models(data)
    default |= board_spreads(boards)
    for architecture, body in without.items():
        body.update(board_spreads(board for board in boards if board.architecture != architecture))
    print(write(about, default, without))


def write(
    about: Mapping[str, Any], default: dict[str, float], without: Mapping[str, dict[str, float]]
) -> dict[str, float]:
    """Both files: with all that is known, and without each architecture; the first's constants."""
    physics = fitting.physics(about, fitting.rounded(default))
    fitting.write(fitting.PHYSICS / "uncertainty.json", physics)
    bodies = {
        architecture: {"default": fitting.rounded(body), "architectures": {}}
        for architecture, body in sorted(without.items())
    }
    fitting.write(fitting.HELD_OUT / "uncertainty.json", bodies)
    forget_files()
    held_out.cache_clear()
    return physics.default


if __name__ == "__main__":
    main()
