"""Fits matrix products of earlier releases' kernels and writes catalog/physics/gemm_releases.json.

    python -m lab.fit_gemm_releases

Each kernel is fitted on top of all other constants of products, which it does not move: another
release makes nothing else stale. Robust (soft L1) on log ratios; deterministic. One in five pairs
of n and k is never fitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab import fitting
from lab.fitter import Body, Fitter
from lab.fitting import Tables
from lab.gemm_problem import Problem, architecture_of, log_ratio, maker, solve, training
from lab.scorecard.rows import MeasuredRows, Sizes, Words, held_out
from lab.scorecard.suites.gemm import QUANTISES, weight_held_out
from lab.scorecard.tables import Ops, Table, ops, read_table
from silicast.core.dtypes import recipe_for
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.products.gemm_constants import PHYSICS, RELEASES
from silicast.workload.graphs.op import Variant

ROWS = 2000
CAMPAIGNS: Mapping[tuple[str, str, str], str] = {
    ("h100_sxm", "vllm", "0.19.0"): "CutlassFp8BlockScaledMMKernel"
}
"""System, engine and release -> the kernel that its products in fp8_block ran, by the name that the
engine's later campaigns give it. Times of this one do not hold the host: they are those of shorter
and shorter products down to 8 us; the engine's campaigns elsewhere end at 50."""
START = {"step_s": 3e-7, "split_s": 1e-3, "launch_s": 5e-6, "operand_bytes_per_clock": 150.0}
"""A kernel of one size of tile that takes the steps of k one after the other and never splits k."""
FREE = (*START, "tensor_efficiency", "store_bytes_per_clock", "quantise_s", "extra_s")


def _products(words: Words, s: Sizes) -> list[Ops]:
    kernel = CAMPAIGNS.get((words["system"], words["backend"], words["version"]))
    if kernel is None:
        return []
    dtype = recipe_for(words["gemm_dtype"]).name
    variant = Variant(
        dtype, library=words["backend"], version=words["version"], kernel=kernel, flags=(QUANTISES,)
    )
    dims = {"m": s["m"], "n": s["n"], "k": s["k"], "batch": 1}
    return ops("gemm", variant, dims, weight_held_out(s["n"], s["k"]))


TABLE = Table("gemm", ("gemm_dtype",), ("m", "n", "k"), _products)


class ReleaseProducts(Fitter[list[MeasuredRows]]):
    """Products of earlier releases' kernels."""

    group = RELEASES
    capped = True
    data = ("aiconfigurator/gemm.parquet (fp8_block: vLLM 0.19 on H100)",)
    split = "one in five (n, k) pairs is never fitted; scores are on those"

    def rows(self, data: Path) -> list[MeasuredRows]:
        filters = [
            ("gemm_dtype", "=", "fp8_block"),
            ("version", "in", sorted({version for _, _, version in CAMPAIGNS})),
        ]
        words = ("system", "backend", "version", "gemm_dtype")
        return list(read_table(data, TABLE, words=words, filters=filters))

    def fit(self, rows: list[MeasuredRows]) -> Body:
        tables: Tables = {}
        for part in rows:
            architecture, mark = architecture_of(part), f":{maker(part)}"
            prefix = f"{part.batch.variant.dtype}."
            constants = load_physics(PHYSICS).constants(architecture)
            start = {
                f"{prefix}{n}{mark}": START.get(n, constants.get(f"{prefix}{n}", constants[n]))
                for n in FREE
            }
            problem = Problem(
                training([part], ROWS),
                (),
                tuple(start),
                {**constants, **start},
                {architecture: {}},
                {architecture: start},
                {},
            )
            _, fitted = solve(problem)
            free = {name: fitted[architecture][name] for name in start}
            logs = log_ratio(held_out([part], False)[0], {**constants, **free})
            shared = (constants["device_log_sd"], constants["family_log_sd"])
            free[f"{prefix}independent_log_sd{mark}"] = fitting.own_log_sd(logs, shared, wider=1.1)
            tables.setdefault(architecture, {}).update(free)
        return fitting.body(fitting.means(tables.values()), tables)

    def scores(self, rows: list[MeasuredRows], body: Body) -> dict[str, Any]:
        scores = {}
        for part in held_out(rows):
            architecture = architecture_of(part)
            constants = load_physics(PHYSICS).constants(architecture)
            table = {**constants, **body["architectures"][architecture]}
            scores[f"{architecture} {maker(part)}"] = fitting.shares(log_ratio(part, table))
        print(scores, flush=True)
        return scores


if __name__ == "__main__":
    ReleaseProducts().run()
