"""How far kernels of an engine are off on an architecture on which only others were measured.

    python -m lab.engines_left_out

Each engine of RTX PRO 6000 is left out in turn, and predicted in the analytic tier by what would
ship then. Products are fitted again without its rows. Attention and experts take the constants that
it has on the relative of the architecture, or those of any: nothing else of them rests on its rows.
Constants that all architectures share hold them. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from lab import fitting
from lab.fit_attention import TABLES, Campaigns
from lab.fit_gemm import Groups, Products
from lab.fit_moe import ROWS
from lab.fitting import RELATIVES, Constants, F
from lab.gemm_problem import architecture_of, log_ratio
from lab.gemm_transfer import fit_tensor
from lab.moe_groups import grouped, plain
from lab.moe_groups import log_ratio as experts_log_ratio
from lab.scorecard.rows import MeasuredRows, held_out, least_hashed
from lab.scorecard.suite import data_folder
from lab.scorecard.suites.gemm import NEWEST, PRODUCTS
from lab.scorecard.suites.moe import layer_rows, thinned
from lab.scorecard.tables import read_table
from silicast.kernels.attention.attention_schemes import scheme_for
from silicast.kernels.experts.moe import PHYSICS as EXPERTS
from silicast.kernels.experts.moe import grown
from silicast.kernels.physics.constants import load_physics

(ARCHITECTURE,) = RELATIVES
ENGINES = ("sglang", "trtllm")
SCORED = 3000


def of_engine(part: MeasuredRows, engine: str) -> bool:
    """Whether rows are of the architecture and of an engine."""
    return architecture_of(part) == ARCHITECTURE and part.batch.variant.library == engine


def single_campaigns(data: Path) -> list[MeasuredRows]:
    """Products in bf16 of each engine's newest release on the architecture."""
    versions = [version for group in NEWEST.values() for version in group]
    filters = [("gemm_dtype", "=", "bfloat16"), ("version", "in", versions)]
    words = ("system", "backend", "version", "gemm_dtype")
    parts = read_table(data, PRODUCTS, words=words, filters=filters)
    return [part for part in parts if architecture_of(part) == ARCHITECTURE]


def products(rows: Groups, single: Sequence[MeasuredRows], engine: str) -> dict[str, F]:
    """Format -> log ratios of an engine's products under constants fitted without them."""
    campaigns = {
        name: [part for part in parts if not of_engine(part, engine)]
        for name, parts in rows.items()
    }
    campaigns["bf16"] = [
        part for part in campaigns["bf16"] if architecture_of(part) != ARCHITECTURE
    ]
    campaigns["bf16"] += [
        least_hashed(part, 6000) for part in single if part.batch.variant.library != engine
    ]
    common, tables = fit_tensor(campaigns, "")
    scored = [part for part in (*rows["narrow formats"], *single) if of_engine(part, engine)]
    return {
        part.batch.variant.dtype: log_ratio(
            least_hashed(part, SCORED), {**common, **tables[ARCHITECTURE]}
        )
        for part in scored
    }


def without(table: Mapping[str, Constants], styles: set[str]) -> dict[str, Constants]:
    """Constants by architecture, none of an engine's styles among the architecture's own."""
    left = {
        name: value
        for name, value in table[ARCHITECTURE].items()
        if name.partition(".")[0] not in styles
    }
    return fitting.with_relatives({**table, ARCHITECTURE: left})


def attention(data: Path, family: str, engine: str) -> F:
    """Log ratios of an engine's attention under the constants of the relative."""
    physics, logs = load_physics(family), []
    for (architecture, caller), parts in Campaigns.of(data, family).newest.items():
        mine = [part for part in parts if of_engine(part, engine)]
        if architecture != ARCHITECTURE or not mine:
            continue
        table = without(physics.architectures, {caller})[ARCHITECTURE]
        scheme = scheme_for(mine[0].batch.variant, mine[0].hardware)
        shared = {name: x for name, x in physics.default.items() if "." not in name}
        general = fitting.own_of(physics.default, f"{caller}/{scheme.mainloop}")
        own = fitting.own_of(table, caller) or general
        logs.append(fitting.log_ratios(held_out(mine), {**shared, **own}))
    return np.concatenate(logs)


def experts(data: Path, engine: str) -> F:
    """Log ratios of an engine's layers of experts, likewise."""
    parts = [part for part in layer_rows(data) if of_engine(part, engine)]
    styles = grouped(thinned(parts, ROWS))
    physics = load_physics(EXPERTS)
    tables = {"": physics.default, **without(physics.architectures, set(styles))}
    return np.concatenate(
        [
            experts_log_ratio(
                group, grown(plain(tables, ARCHITECTURE, style, group.dtype), group.setting.rates)
            )
            for style, groups in styles.items()
            for group in groups
        ]
    )


def main() -> None:
    data = data_folder()
    rows, single = Products().rows(data), single_campaigns(data)
    for engine in ENGINES:
        figures = {f"gemm {name}": x for name, x in products(rows, single, engine).items()}
        figures |= {family: attention(data, family, engine) for family in TABLES}
        figures["moe"] = experts(data, engine)
        for name, logs in figures.items():
            shown = fitting.percent(logs, "rows", "mape", "median", "p90", "bias")
            print(f"{engine} left out: {name:18s}", shown, flush=True)


if __name__ == "__main__":
    main()
