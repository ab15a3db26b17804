"""Figures of tuning that a scorecard's errors do not show, and the speed of a decision.

    SILICAST_DATA=... python benchmarks/tuning.py      -> benchmarks/results/tuning.json

Spearman's correlation of gains, how many of those said to gain 10 % do, the share of the gain over
SGLang's rule that the first choice realises (a miss counts as none), and times of ranking on this
machine. Rankers have not seen what they are asked (suite `tuning`). Flagged: kernels that PipeWeave
found far below its ceiling, beside the gap it ranks them by; L20 was never swept, of A100 and A40
the layers were, at other numbers of tokens.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.scorecard.figures import rank_correlation
from lab.scorecard.suite import data_folder
from lab.scorecard.tables import read_arrow
from lab.scorecard.tuning_rows import SIZES, gate_up, swept_problems
from lab.scorecard.tuning_scores import SPLITS, Choice, choices, default_gains, grouped_gains
from silicast.core.dtypes import recipe_for
from silicast.hardware.catalog import find_device
from silicast.learning.configuration_ranking import ranked, shipped_ranker
from silicast.scenario.answers.diagnose.answerer import measured_kernel
from silicast.tuning.diagnosis import diagnose_measured, group_errors
from silicast.tuning.gain import GainBelief
from silicast.tuning.plan import tune_experts

F = NDArray[np.float64]
RESULT = Path(__file__).parent / "results" / "tuning.json"
WORTH = 1.10
FLAGGED = "pipeweave/kernel_moe_tuning_gain.parquet"


def gains(made: Sequence[Choice], split: str, shared: float) -> dict[str, float]:
    """Gains over a default whose time was measured, its configuration unknown, alone and with all
    kernels of the device in one file; and over SGLang's rule, whose configuration is known too, so
    that part of its error holds for the best as well.
    """
    timed = [choice for choice in made if choice.problem.default_s]
    ruled = [choice for choice in made if choice.problem.heuristic_s]
    best = np.array([best_s(x) for x in timed])
    default = np.array([choice.problem.default_s for choice in timed])
    rule = np.array([choice.problem.heuristic_s for choice in ruled])
    rule_best, rule_chosen = (np.array([f(x) for x in ruled]) for f in (best_s, chosen_s))
    rule_s = np.array([choice.rule_s for choice in ruled])
    rule_measured = rule / (rule_chosen * (rule / rule_s) ** shared)
    saved = 1.0 - rule_best / rule
    hit = np.array([choice.hits(1) for choice in ruled])
    alone = factors(default_gains(timed, split))
    filed = {}
    if split == "device":
        believed = factors(grouped_gains(timed))
        filed = {
            "spearman_as_a_file": rank_correlation(default / best, believed),
            **{f"as_a_file_{k}": v for k, v in worth(default / best, believed).items()},
        }
    return {
        "kernels": float(len(timed)),
        "spearman_over_default": rank_correlation(default / best, alone),
        **{f"over_default_{k}": v for k, v in worth(default / best, alone).items()},
        **filed,
        "spearman_over_rule_measured": rank_correlation(rule / rule_best, rule_measured),
        **{f"over_rule_{k}": v for k, v in worth(rule / rule_best, rule_measured).items()},
        "spearman_over_rule_beforehand": rank_correlation(rule / rule_best, rule_s / rule_chosen),
        "rule_mean_gain_pct": 100.0 * float(saved.mean()),
        "rule_gain_realised": float(saved[hit].sum() / saved.sum()),
    }


def factors(beliefs: Sequence[GainBelief]) -> F:
    """Middles of gains, as factors."""
    return np.exp([belief.middle for belief in beliefs])


def best_s(choice: Choice) -> float:
    return choice.problem.best_s


def chosen_s(choice: Choice) -> float:
    return choice.chosen_s


def worth(true: F, believed: F) -> dict[str, float]:
    """Of kernels said to gain 10 % or more, how many do; and how many of all do."""
    told = believed >= WORTH
    return {
        "precision": float((true[told] >= WORTH).mean()), "told": float(told.sum()),
        "base_rate": float((true >= WORTH).mean()),
    }  # fmt: skip


def flagged(device: str, *, as_a_file: bool = False) -> dict[str, float]:
    """Gains of flagged kernels of a device, diagnosed with the default's time, each alone or all as
    a file, which then holds slow kernels only.
    """
    times = ("default_latency_us", "best_latency_us", "rel_gap")
    table = read_arrow(data_folder() / FLAGGED, ("gpu", *SIZES, *times))
    rows = [row for row in table.to_pylist() if row["gpu"] == device]
    every = [
        measured_kernel(flagged_kernel(row), device, [row["default_latency_us"]]) for row in rows
    ]
    errors = group_errors(every) if as_a_file else [None] * len(every)
    diagnoses = [
        diagnose_measured(kernel, error) for kernel, error in zip(every, errors, strict=True)
    ]
    gains_said = np.array([1.0 if x.faster is None else x.measured_us / x.faster.estimate_us
                     for x in diagnoses])  # fmt: skip
    most = np.array(
        [1.0 if x.faster is None else x.measured_us / x.faster.p05_us for x in diagnoses]
    )
    least = np.array(
        [1.0 if x.faster is None else x.measured_us / x.faster.p95_us for x in diagnoses]
    )
    true = np.array([row["default_latency_us"] / row["best_latency_us"] for row in rows])
    return {
        "kernels": float(len(rows)), "spearman": rank_correlation(true, gains_said),
        "spearman_of_gap": rank_correlation(true, np.array([-row["rel_gap"] for row in rows])),
        "mean_ape": float(np.abs(gains_said / true - 1.0).mean()), **worth(true, gains_said),
        "coverage": float(((least <= true) & (true <= most)).mean()),
    }  # fmt: skip


def flagged_kernel(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row's kernel as a scenario has it."""
    return {
        "op": "moe", "tokens": row["M"], "experts": row["E"], "topk": row["topk"],
        "hidden": row["H"], "intermediate": row["N"], "part": "w13",
    }  # fmt: skip


def speed() -> dict[str, float]:
    """CPU time: milliseconds of ranking one problem, microseconds a configuration, seconds of a
    model.
    """
    device, recipe = find_device("H20"), recipe_for("bf16")
    count = len(ranked(gate_up(512, 128, 8, 2048, 768), device, recipe).grid)
    times = []
    for tokens in range(500, 600):
        product = gate_up(tokens, 128, 8, 2048, 768)
        begin = time.process_time()  # others may run on this machine
        ranked(product, device, recipe)
        times.append(time.process_time() - begin)
    begin = time.process_time()
    tune_experts("qwen3-30b-a3b", "A100", "vllm")
    return {
        "configurations": float(count), "problem_ms_min": 1e3 * min(times),
        "problem_ms_median": 1e3 * statistics.median(times),
        "configuration_us": 1e6 * min(times) / count,
        "model_cpu_s": time.process_time() - begin, "load_average": os.getloadavg()[0],
    }  # fmt: skip


def main() -> None:
    problems = swept_problems(data_folder())
    shared = {"layers": 0.0, "device": shipped_ranker().card.device_shared}
    result = {split: gains(choices(problems, split), split, shared[split]) for split in SPLITS}
    result |= {f"flagged_{device}": flagged(device) for device in ("A100", "A40", "L20")}
    result["flagged_L20_as_a_file"] = flagged("L20", as_a_file=True)
    result["speed"] = speed()
    rounded = {
        name: {key: round(value, 4) for key, value in table.items()}
        for name, table in result.items()
    }
    RESULT.write_text(json.dumps(rounded, indent=1) + "\n")
    print(json.dumps(rounded, indent=1))


if __name__ == "__main__":
    main()
