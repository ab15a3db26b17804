"""Prompt time, time per token and power of static batches on the vLLM of 2023 (Splitwise).

Truth is the median of repeats. A batch is handed over at once, and its prompt time is that of all
its prompts: end to end is the prompt time and the token time of each further token.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lab.scorecard.model_suite import NAN, Believed, Case, Metric, RunsScore, answered
from lab.scorecard.suite import Suite
from lab.scorecard.tables import read_records

TABLE = "serving/splitwise_perf_model.parquet"
TIMES = {"prompt_ms": "prefill_ms", "token_ms": "decode_step_ms"}
"""Metric -> the answer of task ``inference`` that it is."""
POWER = "power_w"
ENGINE = {"name": "vllm", "version": "0.2.0", "options": {"cuda_graph": False}}
"""The source names vLLM without its version. It is of 2023, before graphs were captured (0.2.6)."""
_SETTING = ("model", "hardware", "tensor_parallel", "batch_size", "prompt_size", "token_size")
_MODELS = {"llama2-70b": "Llama-2-70B", "bloom-176b": "BLOOM-176B"}
_DEVICES = {"a100-80gb": ("A100-80GB", 400.0), "h100-80gb": ("H100", 700.0)}
"""Name -> device, and the watts that power is a share of."""
_MOST_ON_TWO = 32
"""Sequences that two devices hold beside Llama-2-70B: 64 ran as several batches, and their prompt
time is that of the first.
"""

Setting = tuple[Any, ...]


def cases(data: Path) -> list[Case]:
    """One case a setting, sorted."""
    runs: dict[Setting, list[dict[str, Any]]] = defaultdict(list)
    for row in read_records(data / TABLE):
        runs[tuple(row[name] for name in _SETTING)].append(row)
    return [_case(key, runs[key]) for key in sorted(runs) if _ran_as_one(key)]


def _ran_as_one(setting: Setting) -> bool:
    _, _, devices, batch, _, _ = setting
    return bool(devices > 2 or batch <= _MOST_ON_TWO)


def _case(setting: Setting, runs: Sequence[Mapping[str, Any]]) -> Case:
    model, hardware, devices, batch, prompt, output = setting
    device, limit_w = _DEVICES[hardware]
    prompt_ms, token_ms, whole_ms, share = (
        [float(row[name]) for row in runs]
        for name in ("prompt_time", "token_time", "e2e_time", "average_power")
    )
    # answers end by themselves before the most tokens that were asked for
    written = 1 + round(float(np.median((np.array(whole_ms) - prompt_ms) / token_ms)))
    watts = [limit_w * share_ for share_ in share if share_ > 0.0]
    return Case(
        scenario={
            "task": "inference", "device": device, "model": _MODELS[model], "engine": ENGINE,
            "parallel": {"tp": int(devices)}, "precision": {"weights": "fp16"},
            "workload": {
                "batch": int(batch), "input_len": int(prompt),
                "output_len": max(min(int(output), written), 2),
            },
        },
        measured={
            "prompt_ms": float(np.median(prompt_ms)), "token_ms": float(np.median(token_ms)),
            POWER: float(np.median(watts)) if watts else NAN,
        },
        noise={"prompt_ms": _spread(prompt_ms), "token_ms": _spread(token_ms)},
        labels={
            "device": device, "model": _MODELS[model], "devices": str(devices),
            "batch": str(batch), "prompt": str(prompt),
        },
    )  # fmt: skip


def _spread(repeats: Sequence[float]) -> float:
    return (max(repeats) - min(repeats)) / 2.0 / float(np.median(repeats))


def answer(case: Case) -> dict[str, Believed]:
    """Times of a static batch; where power was measured, that of the same batch as traffic."""
    answers = answered(case)
    table = {name: answers[of] for name, of in TIMES.items() if of in answers}
    if np.isfinite(case.measured[POWER]):
        served = answered(Case(_as_traffic(case.scenario), {}, {}))
        table |= {POWER: served[POWER]} if POWER in served else {}
    return table


def _as_traffic(scenario: Mapping[str, Any]) -> dict[str, Any]:
    work = scenario["workload"]
    return {
        **scenario,
        "task": "serving",
        "workload": {
            "arrival": {"kind": "closed", "concurrency": work["batch"]},
            "requests": work["batch"],
            "input_len": work["input_len"],
            "output_len": work["output_len"],
        },
    }


SCORE = RunsScore(cases, [Metric(name) for name in (*TIMES, POWER)], answer)
SUITES = (Suite("splitwise", (TABLE,), SCORE),)
