"""Fits the constants of attention prefill and decode and writes catalog/physics/attention_*.json.

    python -m lab.fit_attention

Reads the aiconfigurator attention tables, newest version of each engine on each device, at most
20,000 rows a device. One head geometry (heads, key-value heads, width) in four is held out by hash
and never fitted; scores are on those rows. Deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab import fitting
from lab.attention_pool import Pool
from lab.fitter import Body, Fitter
from lab.fitting import ATTENTION_FALLBACK, Constants, Key, Prior, Tables, log_ratios, own_of
from lab.scorecard.rows import MeasuredRows, checksum_one_in, held_out, newest
from lab.scorecard.suites.attention import DECODE, PREFILL, decoder_rows
from lab.scorecard.tables import mean_of_repeats, ops, read_records
from silicast.kernels.attention.attention_schemes import scheme_for
from silicast.workload.graphs.op import Variant

ROWS_PER_DEVICE = 20_000
ROWS_PER_FIT = {"attention_prefill": 3_000, "attention_decode": 4_000}
ROWS_PER_TRANSFER = 1_200
VIDUR = "serving/vidur_attention_available.parquet"
INFERSIM = "serving/infersim_bench_data.parquet"

SHARED: dict[str, Prior] = {
    "launch_cycles": (1.4e4, 2e3, 6e4), "narrow_launch": (1.1, 0.4, 3.0),
    "tensor_efficiency": (0.8, 0.25, 1.0), "softmax_ops": (6.0, 2.0, 40.0),
    "convert_ops": (4.0, 0.2, 80.0), "task_cycles": (2500.0, 50.0, 2e4), "tail": (0.5, 0.05, 1.0),
    "l2_usable": (0.6, 0.3, 1.1), "l2_fade": (0.5, 0.1, 2.0), "dram_efficiency": (0.85, 0.4, 1.0),
    "l2_efficiency": (0.6, 0.15, 1.5), "serial": (0.3, 0.01, 1.0),
}  # fmt: skip
PRIORS: dict[str, dict[str, Prior]] = {
    "attention_prefill": {
        **SHARED, "step_cycles": (200.0, 10.0, 2e4), "exposed": (0.3, 0.02, 1.5),
        "tail_sorted": (0.3, 0.02, 1.0), "masked_step": (0.5, 0.05, 1.0),
        "window_steps": (0.3, 0.02, 10.0), "fp8_efficiency": (0.7, 0.2, 1.0),
        "widened_bytes": (1.0, 0.01, 6.0), "step_64": (1.0, 0.5, 2.5), "step_192": (1.0, 0.5, 2.5),
        "step_256": (1.0, 0.5, 2.5), "step_512": (1.2, 0.5, 4.0), "fp8_step_64": (1.0, 0.3, 3.0),
        "fp8_step_192": (1.0, 0.3, 3.0), "fp8_step_256": (1.0, 0.3, 3.0),
    },
    "attention_decode": {
        **SHARED, "tensor_efficiency": (0.5, 0.1, 1.0), "task_width_cycles": (1000.0, 50.0, 2e4),
        "core_bytes_per_cycle": (30.0, 2.0, 128.0), "narrow_task": (1.1, 0.3, 4.0),
        "ctas_per_core": (1.0, 0.3, 4.0), "merge_s": (1.5e-6, 2e-7, 1e-5),
        "irregular_launch_s": (5e-7, 1e-8, 2e-5), "scalar_launch": (1.0, 0.4, 2.0),
        "scalar_task_cycles": (2500.0, 100.0, 2e4), "scalar_ops": (5.0, 1.0, 40.0),
        "scalar_convert_ops": (5.0, 0.2, 80.0),
    },
}  # fmt: skip
FIXED: dict[str, dict[str, float]] = {
    "attention_prefill": {
        "merge_s": 2e-6, "split_tiles": 2.0, "append_launch_cycles": 1.7e3,
        "independent_log_sd": 0.2, "tensor_exponent": 1.0,
    },
    "attention_decode": {
        "append_launch_cycles": 1.7e3, "split_tiles": 2.0, "plan_ctas": 2.0, "widened_bytes": 0.0,
        "independent_log_sd": 0.2, "tensor_exponent": 1.0,
    },
}  # fmt: skip
TABLES = {"attention_prefill": PREFILL, "attention_decode": DECODE}
SPREAD = (0.04, 0.05)
"""Log sd of what a family's and a device's kernels have in common."""


def library_rows(data: Path, family: str) -> Iterator[MeasuredRows]:
    """Kernels of bare libraries, timed by Vidur (A100, A30) and InferSim (H20).

    One row in four is held out, by hash of its sizes. Of InferSim's geometries only 32/8/128 on
    the H20 was timed without launches (10 us for the smallest size, not 27). Repeats are averaged.
    """
    runs = [*_vidur(data, family == "attention_prefill")]
    if family == "attention_decode":
        runs += _infersim(data)
    for device, library, (heads, kv_heads, width), rows in runs:
        sizes = np.array([size for size, _ in rows], dtype=np.int64).T
        merged, seconds, _ = mean_of_repeats(
            dict(zip(("batch", "q_len", "kv_len"), sizes, strict=True)),
            np.array([micros for _, micros in rows]),
        )
        dims = {
            **merged,
            "num_heads": heads,
            "num_kv_heads": kv_heads,
            "head_dim": width,
            "window": 0,
        }
        held = checksum_one_in(4, "({}, {}, {})", *merged.values())
        variant = Variant("bf16", "bf16", library, launch="graph", flags=(("causal", True),))
        ((batch, _, _),) = ops(family, variant, dims, held)
        yield MeasuredRows(batch, device, seconds, held)


_Run = tuple[str, str, tuple[int, int, int], list[tuple[tuple[int, int, int], float]]]
"""Device, library, (heads, key-value heads, width), rows ((batch, q_len, kv_len), us)."""


def _vidur(data: Path, prefill: bool) -> Iterator[_Run]:
    """Llama-2-70B on two A100 (FlashAttention-2) and Qwen2-7B on an A30 (FlashInfer)."""
    table = read_records(data / VIDUR)
    column = f"time_stats.attn_{'prefill' if prefill else 'decode'}.median"
    for gpu, device, library in (("A100", "A100-SXM-80GB", "fa2"), ("A30", "A30", "flashinfer")):
        runs = [x for x in table if x["gpu"] == gpu and x["is_prefill"] == prefill and x[column]]
        ranks = runs[-1]["num_tensor_parallel_workers"]
        geometry = (runs[-1]["n_q_head"] // ranks, runs[-1]["n_kv_head"] // ranks, 128)
        rows = []
        for row in runs:
            past, new = row["kv_cache_size"], row["prefill_chunk_size"]
            lengths = (new, past + new) if prefill else (1, past)
            rows.append(((row["batch_size"], *lengths), row[column] * 1e3))
        yield device, library, geometry, rows


def _infersim(data: Path) -> Iterator[_Run]:
    """FlashInfer decode on H20, BF16 caches."""
    runs: dict[str, list[tuple[tuple[int, int, int], float]]] = {}
    for row in read_records(data / INFERSIM, kv_dtype="bf16"):
        if row["path"].endswith("mha/decode/h20/32-8-128.csv") and row["latency_us"]:
            sizes = (int(row["batch_size"]), 1, int(row["kv_len"]) - 1)
            runs.setdefault(row["path"], []).append((sizes, row["latency_us"]))
    for path in sorted(runs):
        heads, kv_heads, width = (int(part) for part in Path(path).stem.split("-"))
        yield "H20", "flashinfer", (heads, kv_heads, width), runs[path]


Groups = dict[Key, list[MeasuredRows]]
"""(architecture, caller) -> rows of the newest campaigns."""


def fit(
    family: str, parts: Sequence[MeasuredRows], start: Mapping[str, float], rows: int
) -> Constants:
    """Constants of one caller on one architecture: soft L1 on the log ratio, drawn to ``start``."""
    return fitting.fit_rows(PRIORS[family], parts, start, rows, steps=60)


def caller_of(part: MeasuredRows) -> str:
    """Whose constants the rows' kernels have."""
    return scheme_for(part.batch.variant, part.hardware).caller


@dataclass(frozen=True)
class Campaigns:
    """The newest campaigns of a family, and all that were timed without the write to the cache."""

    newest: Groups
    without: Groups

    @classmethod
    def of(cls, data: Path, family: str) -> Campaigns:
        """Those of the tables, and of the bare libraries that were measured."""
        every = list(decoder_rows(data, TABLES[family], ROWS_PER_DEVICE))
        parts = newest(every)
        parts += [part for part in library_rows(data, family) if part.device in SINGLE]
        without = [
            part
            for part in every
            if _timed_without([part]) and caller_of(part) in part.words.values()
        ]
        return cls(fitting.by_key(parts, caller_of), fitting.by_key(without, caller_of))

    def but(self, architecture: str) -> Campaigns:
        """All but those of an architecture."""
        kept_groups = (
            {key: group for key, group in groups.items() if key[0] != architecture}
            for groups in (self.newest, self.without)
        )
        return Campaigns(*kept_groups)


APPEND_LAUNCHES = np.geomspace(1e3, 1e4, 24)
"""Launches of the write to the cache that are tried, clock cycles."""


def append_launches(fitted: Mapping[Key, Constants], without: Groups) -> Constants:
    """Caller -> the launch of its write to the cache: the median over architectures of what sets
    campaigns apart that were timed with it (``fitted``) and without.
    """
    best: dict[str, list[float]] = {}
    for (architecture, caller), group in without.items():
        constants = fitted.get((architecture, caller))
        rows = fitting.sample(held_out(group, False), ROWS_PER_TRANSFER)
        if constants is None:
            continue
        off = [
            np.abs(log_ratios(rows, {**constants, "append_launch_cycles": float(cycles)})).clip(
                max=0.5
            )
            for cycles in APPEND_LAUNCHES
        ]
        best.setdefault(caller, []).append(
            float(APPEND_LAUNCHES[int(np.argmin([errors.mean() for errors in off]))])
        )
    return fitting.rounded(
        {caller: float(np.median(launches)) for caller, launches in best.items()}
    )


def fit_groups(family: str, groups: Groups, without: Groups, rows: int) -> tuple[Constants, Tables]:
    """Default constants, and those by architecture."""
    start = {n: p[0] for n, p in PRIORS[family].items()} | FIXED[family]
    free = {key: held_out(group, False) for key, group in groups.items()}
    by_caller: Tables = {}
    for caller in sorted({k[1] for k in groups}):
        parts = [part for k, group in free.items() if k[1] == caller for part in group]
        by_caller[caller] = fit(family, parts, start, rows)
    fitted: dict[Key, Constants] = {}
    append: Constants = {}
    # Launches of calls without the write to the cache follow those of calls with it.
    for key in sorted(free, key=lambda key: (_timed_without(free[key]), key)):
        prior = dict(by_caller[key[1]])
        if key[1] == "flashinfer" and ("ada", "sglang") in fitted:  # few rows: drawn to Ada's
            prior = _bare(fitted["ada", "sglang"], start)
        if _timed_without(free[key]) and not append:
            append = append_launches(fitted, without)
        if key[1] in append:
            prior["append_launch_cycles"] = append[key[1]]
        fitted[key] = fit(family, free[key], prior, rows)
    append = append or append_launches(fitted, without)
    fitted = {
        key: {**item, "append_launch_cycles": append.get(key[1], start["append_launch_cycles"])}
        for key, item in sorted(fitted.items())
    }
    spread = {
        key: round(
            fitting.own_log_sd(log_ratios(group, fitted[key]), SPREAD, wider=1.1, least=0.03), 3
        )
        for key, group in free.items()
    }
    default = dict(start) | {"family_log_sd": SPREAD[0], "device_log_sd": SPREAD[1]}
    default["unmeasured_widening"] = 6.0
    default["independent_log_sd"] = round(max(spread.values()), 3)
    every = [part for group in groups.values() for part in group]
    pool = Pool(family, every, PRIORS[family], start, append)
    for name, constants in pool.tables(SPREAD).items():
        default |= fitting.prefixed(name, constants, start)
    architectures: Tables = {}
    for (architecture, caller), constants in fitted.items():
        table = {**constants, "independent_log_sd": spread[architecture, caller]}
        architectures.setdefault(architecture, {}).update(fitting.prefixed(caller, table))
    _bare_libraries(family, architectures)
    return default, architectures


def _timed_without(parts: Sequence[MeasuredRows]) -> bool:
    """Whether calls were timed without the write to the cache."""
    return any(scheme_for(part.batch.variant, part.hardware).omitted for part in parts)


class Attention(Fitter[Campaigns]):
    """One family: ``attention_prefill`` or ``attention_decode``."""

    capped = True
    split = (
        "newest version of each engine per device; one head geometry in four, by hash, held out "
        "and scored"
    )

    def __init__(self, family: str) -> None:
        self.group = family
        self.data = (TABLES[family].path, INFERSIM)

    def rows(self, data: Path) -> Campaigns:
        return Campaigns.of(data, self.group)

    def fit(self, rows: Campaigns) -> Body:
        return self._body(rows, ROWS_PER_FIT[self.group], ATTENTION_FALLBACK)

    def _body(self, rows: Campaigns, count: int, fallback: Mapping[str, str]) -> Body:
        default, fitted = fit_groups(self.group, rows.newest, rows.without, count)
        architectures = fitting.with_relatives(fitted)
        return {"default": default, "architectures": architectures, "fallback": dict(fallback)}

    def scores(self, rows: Campaigns, body: Body) -> dict[str, Any]:
        scores = {}
        for key, group in rows.newest.items():
            constants = body["default"] | own_of(body["architectures"][key[0]], key[1])
            scores[".".join(key)] = fitting.shares(log_ratios(held_out(group), constants))
            print(self.group, *key, scores[".".join(key)], flush=True)
        return scores

    def left_out(self, rows: Campaigns, body: Body) -> list[str]:
        return sorted({architecture for architecture, _ in rows.newest})

    def without(self, rows: Campaigns, architecture: str, body: Body) -> Body:
        fallback = {k: v for k, v in ATTENTION_FALLBACK.items() if v != architecture}
        without = self._body(rows.but(architecture), ROWS_PER_TRANSFER, fallback)
        figures = transfer_score(rows.newest, architecture, without["default"])
        print(self.group, architecture, figures, flush=True)
        return without


def transfer_score(groups: Groups, unseen: str, default: Constants) -> Constants:
    """Mean APE on the held-out rows of the architecture, by caller and in all."""
    table, every = {}, []
    for (architecture, caller), group in groups.items():
        if architecture == unseen and (rows := held_out(group)):
            every.append(np.concatenate([_off(part, default) for part in rows]))
            table[caller] = fitting.shares(every[-1])["mape"]
    return {**table, "all": fitting.shares(np.concatenate(every))["mape"]}


def _off(part: MeasuredRows, default: Constants) -> NDArray[np.float64]:
    """Log ratios under the constants that an unmeasured architecture gets."""
    scheme = scheme_for(part.batch.variant, part.hardware)
    plain = {k: v for k, v in default.items() if "." not in k}
    return fitting.log_ratio(part, plain | own_of(default, f"{scheme.caller}/{scheme.mainloop}"))


SINGLE = ("H20",)
"""Devices whose bare FlashInfer is fitted: not those of Vidur, whose libraries are years old."""

BARE = (
    ("ampere", "flashinfer", "ada", "sglang"),
    ("ampere", "fa2", "ampere", "vllm"),
    ("ampere", "fa3", "ampere", "sglang"),
    ("ada", "flashinfer", "ada", "sglang"),
    ("ada", "fa2", "ada", "vllm"),
    ("ada", "fa3", "ada", "vllm"),
    ("hopper", "fa3", "hopper", "sglang"),
    ("hopper", "flashinfer", "hopper", "sglang"),
    ("hopper", "fa2", "hopper", "vllm"),
    ("blackwell", "flashinfer", "blackwell", "sglang"),
    ("blackwell", "fa2", "blackwell", "sglang"),
    ("blackwell", "fa3", "blackwell", "sglang"),
    ("blackwell-rtx", "flashinfer", "blackwell-rtx", "sglang"),
)
"""A bare library on an architecture takes the constants of an engine measured calling it.

SGLang calls FlashInfer on Ada but FlashAttention-3's sources on Ampere, so that FlashInfer's decode
on Ampere, the same kernels as on Ada, takes Ada's.
"""
MAIN_LOOP = {("attention_prefill", "ampere", "flashinfer"): ("ampere", "vllm")}
"""In prefill the tensor cores decide: FlashInfer's main loop is FlashAttention-2's, measured on
Ampere itself. Its tiles and parts are its own either way."""
TRANSFER_LOG_SD = 0.2
"""Added for bare libraries, fitted on equal lengths or not at all: an allowance, not measured."""


def _bare(constants: Mapping[str, float], fixed: Mapping[str, float] = {}) -> Constants:
    """Constants of an engine's call less its append kernel."""
    append = {**fixed, **constants}["append_launch_cycles"]
    launch = constants["launch_cycles"] - append
    return {**constants, **fitting.rounded({"launch_cycles": launch})}


def _bare_libraries(family: str, architectures: Tables) -> None:
    """Adds the bare libraries that were not fitted themselves."""
    for architecture, library, *usual in BARE:
        source, engine = MAIN_LOOP.get((family, architecture, library), usual)
        if architecture not in architectures or source not in architectures:
            continue
        own_table = architectures[architecture]
        fitted = f"{library}.launch_cycles" in own_table
        value = own_of(own_table, library) if fitted else own_of(architectures[source], engine)
        if not fitted:
            value = _bare(value)
        spread = float(np.hypot(value["independent_log_sd"], TRANSFER_LOG_SD))
        value["independent_log_sd"] = round(spread, 3)
        own_table |= fitting.prefixed(library, value)


if __name__ == "__main__":
    for name in PRIORS:
        Attention(name).run()
