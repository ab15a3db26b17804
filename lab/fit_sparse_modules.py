"""Fits the sparse attention modules and writes catalog/physics/sparse_modules.json.

    python -m lab.fit_sparse_modules

One problem an architecture, module, library and phase: what a library's own attention kernel takes
(they are timed inside modules only), factors on kinds of parts, what is between the parts, and
the host's time to launch them; which entries the attention kernel walks over and its tiles are the
best of a few. Coordinate descent on the mean |log ratio| of rows that are not
held out, equal weight for every campaign. Deterministic.
"""

from __future__ import annotations

import json
import math
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
from silicast.core.numerics import I64
from silicast.hardware.device import Device
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
DENSE = ("sglang",)
"""Libraries that run short prefills as dense attention of heads. TensorRT-LLM's take as long a
token as long ones do: its sparse kernel runs there too, and the indexer."""
OWN_KERNELS = ("trtllm_", "dsa_trtllm_", "blocks_vllm_prefill")
"""Styles of kernels and modules that are others on each architecture. TensorRT-LLM's DSA walks over
every slot of the index on Hopper and over visible entries on Blackwell, and launches 170 us of
small kernels on Hopper alone. vLLM's selection of blocks in a prefill takes some 1,000 cycles for
each that is kept on Ada and Hopper, and three on Blackwell. An architecture that was not measured
gets what kernels timed alone take, with the factors of other libraries for such modules; what the
host takes stays."""
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


class Kernel:
    """A library's own kernel in all campaigns of a problem.

    Attributes:
        calls: of each device: it, the ops, and the rows of the problem that they are parts of.
        time_s: of each row of the problem.
    """

    def __init__(self, key: Key, group: Sequence[Campaign], ends: Sequence[int]) -> None:
        self.key, self.rows = key, ends[-1]
        table: dict[Any, list[tuple[Device, OpBatch, I64, F]]] = defaultdict(list)
        for modules, end in zip(group, ends, strict=True):
            index = np.arange(end - len(modules.rows), end)
            device = modules.rows.hardware
            for family, style, batch, runs in modules.nested:
                if (family, style) == key:
                    alike = device.name, batch.variant, tuple(batch.dims)
                    table[alike].append((device, batch, index, runs))
        self.calls = []
        for parts in table.values():
            first = parts[0][1]
            dims = {n: np.concatenate([part[1].dims[n] for part in parts]) for n in first.dims}
            joined = OpBatch(first.family, first.variant, dims)
            index, runs = (np.concatenate([part[x] for part in parts]) for x in (2, 3))
            self.calls.append((parts[0][0], joined, index, runs))

    def time_s(self, c: Constants) -> F:
        """Of each row of the problem."""
        model: Any = implementation_for(self.key[0], "simt")
        time = np.zeros(self.rows)
        for device, batch, index, runs in self.calls:
            analysis = model.analyse_with(batch, device, c)
            np.add.at(time, index, np.maximum(analysis.time_s, analysis.bound_s) * runs)
        return time


class Problem:
    """One architecture, module, library and phase; arrays hold the rows of all campaigns."""

    def __init__(self, group: Sequence[Campaign], *, decode: bool, dense: bool) -> None:
        self.styles = sorted({modules.style for modules in group})
        counts = [len(modules.rows) for modules in group]
        self.style = np.repeat([self.styles.index(modules.style) for modules in group], counts)
        self.weight = np.repeat([1.0 / (n * len(group)) for n in counts], counts)
        self.seconds = np.concatenate([modules.rows.seconds for modules in group])
        self.batch = np.concatenate([modules.batch for modules in group])
        self.short = np.concatenate([modules.short for modules in group])
        self.skips = np.repeat([modules.long == "skip_host_s" for modules in group], counts)
        names = sorted({name for modules in group for name in modules.factored})
        self.factored = {
            name: np.concatenate([x.factored.get(name, np.zeros(len(x.rows))) for x in group])
            for name in names
        }
        self.decode, self.paired = decode, group[0].rows.hardware.architecture in OWN_START
        # in an eager prefill the host's time hides what is between the large kernels
        self.alone = ALONE[1:] if dense and group[0].style.startswith(EAGER) else ALONE
        self.module = {style: dict(START) for style in self.styles}
        for table in self.module.values():
            table["graph_batch"] = START["graph_batch"] if decode else 0.0
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
        ends = np.cumsum(counts).tolist()
        self.calls = {key: Kernel(key, group, ends) for key in self.kernels}
        self._restore(self._state())

    def predicted(self) -> F:
        """Times of all rows."""
        time = self._of_styles("module_s")
        for item in self.times.values():
            time = time + item
        for name, part in self.factored.items():
            time = time + part * self.module[self.styles[0]].get(f"{name}.efficiency", 1.0)
        long = np.where(self.skips, self._of_styles("skip_host_s"), self._of_styles("host_s"))
        host = np.where(self.short, self._of_styles("short_host_s"), long)
        most = self.module[self.styles[0]]["graph_batch"]
        return np.maximum(time, np.where(self.batch > most, host, 0.0))

    def _of_styles(self, name: str) -> F:
        table = np.array([self.module[style][name] for style in self.styles])
        each: F = table[self.style]
        return each

    def errors(self) -> F:
        """ln(predicted / measured) of all rows."""
        ratio: F = np.log(self.predicted() / self.seconds)
        return ratio

    def loss(self) -> float:
        """Mean over campaigns of the mean |log ratio|."""
        return float(self.weight @ np.abs(self.errors()))

    def fit(self) -> float:
        """What the attention kernel walks over and its tiles first, then everything in turns."""
        if any(x == "sparse_attention" and LANES not in style for x, style in self.kernels):
            self._best_of([{"padded": share} for share in (0.0, 1.0)])
            names = ("head_tile", "cores_per_block", "head_pad")
            tiles = [dict(zip(names, tile, strict=True)) for tile in TILES]
            self._best_of([x for x in tiles if self.paired or x["cores_per_block"] == 1.0])
        for step in (2.0, 1.4, 1.2, 1.1, 1.04):
            for _ in range(3):
                before = self.loss()
                self._round(step)
                if before - self.loss() < 2e-4:
                    break
        return self.loss()

    def _best_of(self, ways: Sequence[Constants]) -> None:
        """Takes the way in which the attention kernel may work that fits best after some rounds."""
        improved = []
        start = self._state()
        for way in ways:
            self._restore(start)
            for (family, _), kernel in self.kernels.items():
                if family == "sparse_attention":
                    kernel.update(way)
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
        self.times = {key: self.calls[key].time_s(c) for key, c in self.kernels.items()}

    def _round(self, step: float) -> None:
        for key, kernel in self.kernels.items():
            for name, limits in ranges(*key).items():
                if kernel[name] != 0.0:
                    self._try([kernel], name, step, limits, key)
        for name in FACTORS:
            if name.removesuffix(".efficiency") in self.factored:
                self._try(list(self.module.values()), name, step, (LOWEST, HIGHEST))
        for style in self.styles:
            for name in self.alone:
                self._try([self.module[style]], name, step)

    def _try(
        self,
        tables: Sequence[Constants],
        name: str,
        step: float,
        limits: tuple[float, float] = (0.0, math.inf),
        key: Key | None = None,
    ) -> None:
        """Moves a constant up and down while that helps; ``key`` is of the kernel that it is of."""
        best = self.loss()
        for factor in (step, 1.0 / step):
            while True:
                old, times = tables[0][name], dict(self.times)
                for table in tables:
                    table[name] = min(max(old * factor, limits[0]), limits[1])
                if key is not None:
                    self.times[key] = self.calls[key].time_s(self.kernels[key])
                loss = self.loss()
                if loss < best - 1e-6:
                    best = loss
                    continue
                for table in tables:
                    table[name] = old
                self.times = times
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
        spread = spread_of(problem.errors())
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


def _transfers(name: str) -> bool:
    """Whether another architecture may take a constant."""
    family, _, style = name.partition(".")
    if family in RANGES:
        return not style.startswith(OWN_KERNELS)
    return not name.startswith(OWN_KERNELS) or not name.endswith((".efficiency", ".module_s"))


def complete(tables: Tables) -> dict[str, Any]:
    """Default, architectures and fallback of the file; the default is the geometric mean over the
    measured architectures, and of the host's times the least.
    """
    plain = {**START, **SPREAD, "module_s": 1e-4, "graph_batch": 1e9}
    entries: dict[str, list[float]] = defaultdict(list)
    for table in tables.values():
        for name, value in table.items():
            if _transfers(name):
                entries[name].append(value)
    default = {
        # no host takes longer than the quickest call that held its time
        name: min(values) if name.endswith("host_s") else mean_of(values)
        for name, values in entries.items()
    }
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
