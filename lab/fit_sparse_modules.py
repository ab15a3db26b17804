"""Fits the sparse attention modules and writes catalog/physics/sparse_modules.json.

    python -m lab.fit_sparse_modules

One problem an architecture, module, library and phase: what a library's own attention kernel takes
(they are timed inside modules only), factors on kinds of parts, what is between the parts, and
the host's time to launch them. Coordinate descent on the mean |log ratio| of rows that are not
held out, equal weight for every campaign. Deterministic.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.fit_sparse import OWN_START, SPLIT, Rows, mean_of, physics, score, spread_of
from lab.fitter import Body, Fitter
from lab.fitting import Constants, F, Key, Tables
from lab.scorecard.rows import Mask, MeasuredRows
from lab.scorecard.suites.sparse import MODULES, TABLES
from silicast.kernels.attention.sparse_attention import style_of
from silicast.kernels.attention.sparse_constants import GROUP, library_style, sparse_constants
from silicast.kernels.attention.sparse_constants import MODULES as GROUP_OF_MODULES
from silicast.kernels.composite import Composite, is_decode
from silicast.kernels.physics.constants import load_physics, replaced
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op import OpBatch

ROWS = 40
"""Rows of each campaign that are fitted."""

FACTORS = (
    "products.efficiency",
    "moves.efficiency",
    "attention.efficiency",
    "attention_narrow.efficiency",
)
ALONE = ("module_s", "host_s", "short_host_s", "skip_host_s")
START = {
    "efficiency": 1.0,
    "module_s": 3e-5,
    "host_s": 8e-4,
    "short_host_s": 6e-4,
    "skip_host_s": 6e-4,
    "graph_batch": 512.0,
    **dict.fromkeys(FACTORS, 1.0),
}
SPREAD = {
    "family_log_sd": 0.05,
    "device_log_sd": 0.07,
    "unmeasured_widening": 4.0,
    "independent_log_sd": 0.15,
}
DENSE = ("sglang", "trtllm")
"""Libraries that run short prefills as dense attention of heads."""
LAUNCH_S = (8e-7, 6e-6)
"""A kernel behind others in a stream takes at least the first and adds at most the second: more is
the module's or the host's."""
RANGES = {
    "sparse_attention": {
        "efficiency": (0.1, 1.0), "block_s": (1e-7, 2e-5), "entry_cycles": (0.01, 64.0),
        "tail": (0.0, 1.0), "dense_efficiency": (0.02, 1.0), "launch_s": LAUNCH_S,
        "merge_s": (2e-7, 1e-5), "most_splits": (1.0, 64.0),
    },
    "topk": {
        "launch_s": LAUNCH_S, "row_cycles": (100.0, 2e5), "score_cycles": (0.01, 200.0),
        "kept_cycles": (0.05, 3e3), "passes": (1.0, 8.0),
    },
    "indexer_logits": {
        "launch_s": LAUNCH_S, "efficiency": (0.05, 1.1), "tile_s": (5e-8, 2e-5),
        "task_s": (5e-8, 4e-4), "score_cycles": (1e-3, 0.3), "dram_efficiency": (0.02, 0.95),
        "write_share": (0.05, 1.0),
    },
}  # fmt: skip
"""Fitted constants of kernels that were timed inside modules only, in the order of the descent, and
their limits. In a module one constant can replace another, so the rows alone do not determine them.
Lower limits are about a tenth of the times of kernels that were timed alone. Upper limits are wide,
because some libraries select by sorting whole rows, and score blocks of keys by kernels that are
not fused."""
LANES = "lanes"
"""Word in the style of kernels that a library has for architectures whose matrix instructions
its usual kernels do not take (docs/adr/0029-kernels-that-a-library-has-not.md)."""
RANGES_OF_LANES = {
    "sparse_attention": {"launch_s": LAUNCH_S, "lane_cycles": (50.0, 5e3)},
    "topk": RANGES["topk"],
    "indexer_logits": {"launch_s": LAUNCH_S, "dram_efficiency": (0.02, 0.95)},
}
INDEX_TOKENS = float(1 << 20)
"""Context of DeepSeek-V4, for which a captured decode step reserves its index."""
ON_LANES = {
    "sparse_attention.compressed_sglang_lanes_fp8": {
        "lane_cycles": 560.0, "index_tokens": INDEX_TOKENS, "tail": 1.0, "head_pad": 64.0,
        "block_s": 0.0,
    },
    "indexer_logits.compressed_sglang_lanes": {
        "eager": 1.0, "index_tokens": INDEX_TOKENS, "dram_efficiency": 0.8,
    },
}  # fmt: skip
"""What these kernels take where nobody measured them: cycles of a core for a head's entry from the
instructions of the compiled kernel (the same page), tensor operations at the usual rate of
memory."""
PROBLEMS = {"csa_module": "compressed", "hca_module": "compressed"}
"""Modules whose attention is one kernel are fitted together."""
EAGER = ("dsa_sglang",)
"""Modules and libraries whose time between large kernels cannot be told from the host's."""
TILES = ((64.0, 1.0, 64.0), (64.0, 1.0, 16.0), (128.0, 1.0, 16.0), (128.0, 2.0, 128.0))
"""Heads of a block, cores it takes, and heads that it multiplies at least."""
MODULES_OF_ALL = ("csa", "dsa", "hca", "msa")
UNSEEN = 1.15
"""Shapes that were not fitted err so much more than those that were."""
LOWEST, HIGHEST = 0.4, 2.5
"""Factors on parts stay within these."""


def ranges(family: str, style: str) -> Mapping[str, tuple[float, float]]:
    """Constants of a kernel that are fitted, and their limits."""
    return (RANGES_OF_LANES if LANES in style else RANGES)[family]


def on_lanes(family: str, style: str) -> Constants:
    """Where constants of a kernel on lanes start; empty for any other kernel."""
    return dict(ON_LANES.get(f"{family}.{style.rpartition('_')[0]}", {}))


@dataclass
class Campaign:
    """Rows of one table, device and variant.

    Attributes:
        style: of the module's constants.
        factored: part -> its time, for parts whose own constants stay as they are.
        nested: (family, style, ops, rows where it runs) of kernels that are fitted here.
    """

    rows: MeasuredRows
    style: str
    factored: dict[str, F]
    nested: list[tuple[str, str, OpBatch, F]]
    long: str
    short: Mask
    batch: F


def campaign(rows: MeasuredRows) -> Campaign:
    """Parts of a campaign's rows."""
    variant, model, d = rows.batch.variant, rows.model, rows.batch.dims
    assert isinstance(model, Composite)
    factored: dict[str, F] = {}
    nested = []
    tokens = d["isl"] + d["step"]
    short = tokens <= 2048
    dense = rows.words["backend"] in DENSE and not is_decode(variant)
    dense = dense and rows.batch.family == "dsa_module"
    most = load_physics(GROUP).default["sparse_attention.dense_tokens"]
    as_dense = short & (d["batch_size"] * tokens <= most)
    # which kernel runs is a fact of the device, but for short prefills, which are told apart here
    device = rows.hardware if rows.batch.family in PROBLEMS else None
    for part in model.work(rows.batch, device).parts:
        family, batch = part.batch.family, part.batch
        if family in RANGES:
            runs = np.zeros(len(rows)) + part.count
            if dense and family != "sparse_attention":
                runs = np.where(as_dense, 0.0, runs)
            style = style_of(batch) if family == "sparse_attention" else library_style(batch)
            nested.append((family, style, batch, runs))
            continue
        implementation = implementation_for(family, "simt")
        assert implementation is not None
        time = implementation.times(batch, rows.hardware).estimate_s * part.count
        factored[part.name] = factored.get(part.name, 0.0) + time
    style = model.constants_styles(variant, rows.hardware)[-1]
    long = "skip_host_s" if variant.flag("skip_indexer") else "host_s"
    return Campaign(rows, style, factored, nested, long, short, d["batch_size"].astype(np.float64))


class Problem:
    """One architecture, module, library and phase."""

    def __init__(self, group: Sequence[Campaign], *, decode: bool, dense: bool) -> None:
        self.group = group
        # in an eager prefill the host's time hides what is between the large kernels
        self.alone = ALONE[1:] if dense and group[0].style.startswith(EAGER) else ALONE
        self.styles = sorted({modules.style for modules in group})
        start = {**START, "graph_batch": 512.0 if decode else 0.0}
        self.module = {style: dict(start) for style in self.styles}
        architecture = group[0].rows.hardware.architecture
        self.kernels: dict[Key, Constants] = {}
        for family, style in sorted({x[:2] for modules in group for x in modules.nested}):
            table = dict(sparse_constants(family, architecture, style.partition("_")[0]))
            table |= on_lanes(family, style)
            if family == "sparse_attention" and LANES not in style:
                table |= {"dense_efficiency": 0.4 if dense else 0.0, "entry_cycles": 5.0}
                table |= {"padded": 0.0} if decode else {}
            for name, (least, most) in ranges(family, style).items():
                if name in table and table[name] != 0.0:
                    table[name] = min(max(table[name], least), most)
            self.kernels[family, style] = table
        self.users = {
            key: [
                (i, j)
                for i, modules in enumerate(group)
                for j, x in enumerate(modules.nested)
                if x[:2] == key
            ]
            for key in self.kernels
        }
        self.times = [
            [self._time(modules, j) for j in range(len(modules.nested))] for modules in group
        ]

    def _time(self, modules: Campaign, j: int) -> F:
        family, style, batch, runs = modules.nested[j]
        model: Any = implementation_for(family, "simt")
        analysis = model.analyse_with(batch, modules.rows.hardware, self.kernels[family, style])
        time: F = np.maximum(analysis.time_s, analysis.bound_s) * runs
        return time

    def predicted(self, i: int) -> F:
        """Times of one campaign's rows."""
        modules = self.group[i]
        c = self.module[modules.style]
        time: F = np.full(len(modules.rows), c["module_s"])
        for item in self.times[i]:
            time = time + item
        for name, part in modules.factored.items():
            time = time + part * c.get(f"{name}.efficiency", 1.0)
        host = np.where(modules.short, c["short_host_s"], c[modules.long])
        return np.maximum(time, np.where(modules.batch > c["graph_batch"], host, 0.0))

    def errors(self, i: int) -> F:
        """ln(predicted / measured) of one campaign."""
        ratio: F = np.log(self.predicted(i) / self.group[i].rows.seconds)
        return ratio

    def loss(self) -> float:
        """Mean over campaigns of the mean |log ratio|."""
        return float(np.mean([np.mean(np.abs(self.errors(i))) for i in range(len(self.group))]))

    def fit(self) -> float:
        """Tiles of the attention kernel first, then everything in turns."""
        if any(x == "sparse_attention" and LANES not in style for x, style in self.kernels):
            self._tile()
        for step in (2.0, 1.4, 1.2, 1.1, 1.04):
            for _ in range(3):
                before = self.loss()
                self._round(step)
                if before - self.loss() < 2e-4:
                    break
        return self.loss()

    def _round(self, step: float) -> None:
        for key in self.kernels:
            self._kernel(key, step)
        everyone = [self.module[style] for style in self.styles]
        for name in FACTORS:
            if any(name.removesuffix(".efficiency") in modules.factored for modules in self.group):
                self._try(everyone, name, step)
        for style in self.styles:
            for name in self.alone:
                self._try([self.module[style]], name, step)

    def _tile(self) -> None:
        """Heads that one block takes, and cores it takes: the best of a few."""
        improved = []
        start = self._state()
        for tile, cores, pad in TILES:
            if cores > 1 and self.group[0].rows.hardware.architecture not in OWN_START:
                continue
            self._restore(start)
            for (family, _), kernel in self.kernels.items():
                if family == "sparse_attention":
                    kernel |= {"head_tile": tile, "cores_per_block": cores, "head_pad": pad}
            self._restore(self._state())
            for step in (2.0, 1.6, 1.3):
                self._round(step)
            improved.append((self.loss(), self._state()))
        self._restore(min(improved)[1])

    def _state(self) -> str:
        pairs = [[*key, kernel] for key, kernel in self.kernels.items()]
        return json.dumps([pairs, self.module])

    def _restore(self, state: str) -> None:
        pairs, self.module = json.loads(state)
        self.kernels = {(family, style): item for family, style, item in pairs}
        self.times = [
            [self._time(modules, j) for j in range(len(modules.nested))] for modules in self.group
        ]

    def _kernel(self, key: Key, step: float) -> None:
        kernel, users = self.kernels[key], self.users[key]
        best = self.loss()
        for name, (least, most) in ranges(*key).items():
            if kernel[name] == 0.0:
                continue
            for factor in (step, 1.0 / step):
                while True:
                    old, old_times = kernel[name], [self.times[i][j] for i, j in users]
                    kernel[name] = min(max(old * factor, least), most)
                    for i, j in users:
                        self.times[i][j] = self._time(self.group[i], j)
                    loss = self.loss()
                    if loss < best - 1e-6:
                        best = loss
                        continue
                    kernel[name] = old
                    for (i, j), times in zip(users, old_times, strict=True):
                        self.times[i][j] = times
                    break

    def _try(self, tables: Sequence[Constants], name: str, step: float) -> None:
        best = self.loss()
        for factor in (step, 1.0 / step):
            while True:
                old = [table[name] for table in tables]
                value = old[0] * factor
                if name.endswith(".efficiency") and not LOWEST <= value <= HIGHEST:
                    break
                for table in tables:
                    table[name] = value
                loss = self.loss()
                if loss < best - 1e-6:
                    best = loss
                    continue
                for table, back in zip(tables, old, strict=True):
                    table[name] = back
                break


def fit(parts: Sequence[MeasuredRows]) -> Tables:
    """Constants of every architecture."""
    groups: dict[tuple[str, str, str, bool], list[Campaign]] = defaultdict(list)
    for part in parts:
        decode = is_decode(part.batch.variant)
        family = PROBLEMS.get(part.batch.family, part.batch.family)
        key = (part.hardware.architecture, family, part.words["backend"], decode)
        groups[key].append(campaign(part))
    tables: Tables = defaultdict(dict)
    for (architecture, family, library, decode), group in sorted(groups.items()):
        dense = library in DENSE and not decode and family == "dsa_module"
        problem = Problem(group, decode=decode, dense=dense)
        fit = problem.fit()
        print(
            f"{architecture:10s} {family:12s} {library:8s} {'gen' if decode else 'ctx'} "
            f"{len(group):4d} campaigns, mean |log| {fit:.3f}",
            flush=True,
        )
        spread = spread_of(np.concatenate([problem.errors(i) for i in range(len(group))]))
        for style, table in problem.module.items():
            values = {**_without_rows(table), "independent_log_sd": UNSEEN * spread}
            tables[architecture] |= {f"{style}.{k}": v for k, v in values.items()}
        for (kernel, style), table in problem.kernels.items():
            # errors of a kernel beside others of a module are not known apart
            tables[architecture] |= {
                f"{kernel}.{style}.{k}": v for k, v in table.items() if "log_sd" not in k
            }
    return dict(tables)


def _without_rows(table: Constants) -> Constants:
    """Host times that no row was measured for are as those that were, or none."""
    short = table["short_host_s"] if table["short_host_s"] != START["short_host_s"] else 0.0
    constants = {**table, "short_host_s": short}
    for name in ("host_s", "skip_host_s"):
        if table[name] == START[name]:
            constants[name] = constants["host_s"] if name == "skip_host_s" else short
    return constants


def complete(tables: Tables) -> dict[str, Any]:
    """Default, architectures and fallback of the file; the default is the geometric mean over the
    measured architectures.
    """
    plain = {**START, **SPREAD, "module_s": 1e-4, "graph_batch": 1e9}
    entries: dict[str, list[float]] = defaultdict(list)
    for table in tables.values():
        for name, value in table.items():
            entries[name].append(value)
    default = {name: mean_of(values) for name, values in entries.items()}
    general: dict[str, list[float]] = defaultdict(list)
    for name, value in default.items():
        style, _, last = name.partition(".")
        words = style.removesuffix("_early").removesuffix("_grace").split("_")
        if words[0] in MODULES_OF_ALL and LANES not in words:
            general[f"{words[0]}_{words[-1]}.{last}"].append(value)
            general[f"{words[0]}_{words[1]}_{words[-1]}.{last}"].append(value)
    medians = {name: float(np.median(values)) for name, values in general.items()}
    counted = {
        f"{style}_{phase}.{name}": value
        for style, table in ON_LANES.items()
        for phase in ("prefill", "decode")
        for name, value in table.items()
    }
    return fitting.body({**plain, **counted, **default, **medians}, tables)


class SparseModules(Fitter[Rows]):
    """Whole modules of sparse attention."""

    group = GROUP_OF_MODULES
    data = tuple(TABLES[name].path for name in MODULES)
    split = SPLIT

    def rows(self, data: Path) -> Rows:
        return Rows.of(data, MODULES, ROWS, ROWS)

    def fit(self, rows: Rows) -> Body:
        # kernels inside modules start from those measured alone, not from what was shipped before
        with replaced({GROUP_OF_MODULES: physics({"default": {}, "architectures": {}})}):
            return complete(fit(rows.fitted))

    def scores(self, rows: Rows, body: Body) -> dict[str, Any]:
        with replaced({GROUP_OF_MODULES: physics(body)}):
            scores = score(rows.held_out)
        fitting.show("held-out shapes", scores)
        return {"held-out shapes": scores}

    def without(self, rows: Rows, architecture: str, body: Body) -> Body:
        tables = {
            name: item for name, item in body["architectures"].items() if name != architecture
        }
        return complete(tables)


if __name__ == "__main__":
    SparseModules().run()
