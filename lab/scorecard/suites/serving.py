"""TTFT, TPOT and throughput of serving runs under closed-loop traffic, on many devices and engines.

A row is a run of a benchmark client that keeps so many requests in flight. Each is predicted as a
user's scenario of task ``serving`` is: the same traffic, simulated.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from lab.scorecard.model_suite import NAN, Believed, Case, score_cases
from lab.scorecard.plan_ranking import ranked
from lab.scorecard.rows import subsample
from lab.scorecard.suite import EVIDENCE, Scored, Suite
from lab.scorecard.tables import read_records
from silicast.core.errors import SilicastError
from silicast.scenario.answers.serving.answerer import prepared
from silicast.scenario.answers.serving.simulated import Simulated
from silicast.scenario.decode import decode
from silicast.workload.models.lookup import find_model

TABLE = "aiconfigurator/silicon_sample.parquet"
PEER = "aiconfigurator/aiconfigurator_predictions_0.12.0.parquet"
CONTRADICTS = 1.3
"""Repeats of one configuration that differ by more were not the same configuration."""
RANGE_RATIO = {"InferenceX": 0.8, "NVIDIA": 1.0}
"""Clients draw lengths evenly between this share of the nominal length and all of it. InferenceX
states it; NVIDIA does not: of 1, 0.95, 0.9 and 0.8 it is the one nearest to the train pairs' TTFT.
"""
BLOCK = 8
"""Cases that a process takes at a time."""
SALT = 3
"""The first with which every engine has a pair on either side."""
METRICS = ("ttft_mean_ms", "tpot_mean_ms", "rate_tokens_per_s")
_DEVICES = {
    "b200_sxm": "B200",
    "b300_sxm": "B300",
    "gb200": "GB200",
    "gb300": "GB300",
    "h100_sxm": "H100",
    "h200_sxm": "H200",
}
_SAME = {"deepseek-ai/DeepSeek-V3": "deepseek-ai/DeepSeek-R1"}
"""The source lists runs of the second under the name of the first too: the architecture is one."""
_FORMATS = {"fp4": "nvfp4", "int4": "int4", "fp8": "fp8", "bf16": "bf16"}
_QUANTISED = {"fp4": "NVFP4", "fp8": "FP8"}
_CHECKPOINTS = {("meta-llama/Llama-3.1-70B", "fp4"): "Llama-3.3-70B-NVFP4"}
_CONFIGURATION = (
    "model_path", "system", "backend", "precision", "isl", "osl", "concurrency", "tp_size",
    "attention_dp_size", "moe_tp_size", "moe_ep_size",
)  # fmt: skip
_FLAGS = ("flag_zero_parallel", "flag_tp_gt_node", "flag_disagg_incomplete")

Row = dict[str, Any]


def sane_rows(data: Path) -> list[Row]:
    """Rows to score, sorted; see the suite's description."""
    table: dict[tuple[Any, ...], Row] = {}
    for row in read_records(data / TABLE, mode="agg"):
        if (row["concurrency"] or 0) < 1 or any(row[flag] for flag in _FLAGS):
            continue
        row["model_path"] = _SAME.get(row["model_path"], row["model_path"])
        key = (*_key(row), row["silicon_ttft_ms"], row["silicon_tpot_ms"])
        if key not in table or row["id"] < table[key]["id"]:
            table[key] = row
    return sorted(table.values(), key=lambda row: tuple(map(str, (*_key(row), row["id"]))))


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _CONFIGURATION)


def _campaign(row: Mapping[str, Any]) -> tuple[Any, ...]:
    names = ("model_path", "system", "backend", "backend_version", "precision", "measured_on")
    return tuple(row[name] for name in names)


def _repeats(rows: Sequence[Row]) -> list[str]:
    """Whether a configuration was run once, with one result, or with results that contradict.

    "quicker campaign": a run of a campaign whose runs are quicker than those of other campaigns of
    the very same configurations, by :data:`CONTRADICTS`: something not recorded was on.
    """
    same: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        same[_key(row)].append(row)
    quicker = {
        _campaign(one)
        for group in same.values()
        for one in group
        for other in group
        if _campaign(one) != _campaign(other) and _contradict(one, other)
    }
    kinds = []
    for row in rows:
        others = [each for each in same[_key(row)] if _campaign(each) not in quicker]
        if _campaign(row) in quicker:
            kinds.append("quicker campaign")
        elif any(_contradict(one, other) for one in others for other in others):
            kinds.append("contradictory")
        else:
            kinds.append("one run" if len(others) == 1 else "agree")
    return kinds


def _contradict(quick: Row, slow: Row) -> bool:
    return bool(slow["silicon_tpot_ms"] > CONTRADICTS * quick["silicon_tpot_ms"])


def cases(data: Path) -> list[Case]:
    """One case a run."""
    rows = sane_rows(data)
    peers = {row["id"]: row for row in read_records(data / PEER)}
    return [
        _case(row, repeats, peers.get(row["id"], {}))
        for row, repeats in zip(rows, _repeats(rows), strict=True)
    ]


def _case(row: Row, repeats: str, peer: Mapping[str, Any]) -> Case:
    model, device = row["model_path"], _DEVICES[row["system"]]
    clients, output = int(row["concurrency"]), int(row["osl"])
    checkpoint, weights = _checkpoint(model, row["precision"])
    source = "NVIDIA" if row["silicon_data_source"].startswith("source_file=/") else "InferenceX"
    scenario: dict[str, Any] = {
        "task": "serving",
        "device": device,
        "model": checkpoint,
        "engine": {"name": row["backend"], "version": row["backend_version"] or ""},
        "parallel": {
            "tp": int(row["tp_size"]),
            "pp": int(row["pp_size"] or 1),
            "ep": int(row["moe_ep_size"] or 1),
            "attention_dp": int(row["attention_dp_size"] or 1),
        },
        "workload": {
            "arrival": {"kind": "closed", "concurrency": clients},
            "input_len": int(row["isl"]),
            "output_len": output,
            "range_ratio": RANGE_RATIO[source],
        },
    }
    if weights:
        scenario["precision"] = {"weights": weights}
    if source == "NVIDIA" and row["backend"] == "trtllm" and row["precision"] == "fp8":
        # NVIDIA's own FP8 checkpoints say so; with bf16 the train pairs' runs would have queued
        scenario["precision"] = {**scenario.get("precision", {}), "kv_cache": "fp8"}
    if options := _launched_with(row, source):
        scenario["engine"]["options"] = options
    ttft, tpot = row["silicon_ttft_ms"], row["silicon_tpot_ms"]
    mean_output = output * (1.0 + RANGE_RATIO[source]) / 2.0
    known = peer.get("aic_ttft_ms") or NAN, peer.get("aic_tpot_ms") or NAN
    return Case(
        scenario=scenario,
        measured=dict(zip(METRICS, _of(clients, mean_output, ttft, tpot), strict=True)),
        peers={
            name: {"aiconfigurator": value}
            for name, value in zip(METRICS, _of(clients, mean_output, *known), strict=True)
        },
        labels={
            "device": device,
            "engine": row["backend"],
            "model": f"{model.split('/')[-1]} {row['precision']}",
            "concurrency": _band(clients),
            "traffic": f"{row['isl']} / {row['osl']}",
            "engine and model": f"{row['backend']} {model.split('/')[-1]}",
            "devices": f"{row['tp_size']}",
            "repeats": repeats,
            "source": source,
            "pair": "train" if trains(model, device) else "held out",
        },
    )


def _launched_with(row: Row, source: str) -> dict[str, Any]:
    """Options of the scripts that launched the engines, where they differ from what is assumed.

    NVIDIA's are of its configuration generator (aiconfigurator 0.12.0, generator/rule_plugin and
    config/backend_templates): vLLM's ``max_num_batched_tokens`` is the sequences, a prompt and
    1,500; TensorRT-LLM's cache takes 0.8 of what is free. InferenceX's, as its
    public scripts have it: TensorRT-LLM's ``max_num_tokens`` is of DeepSeek a prompt beside the
    clients' decodes, in whole 64, else 20,000; groups of attention_dp take prompts together;
    SGLang looks for new requests every 10 decode steps, from 16 clients on every 30.
    """
    clients, prompt = int(row["concurrency"]), int(row["isl"])
    if source == "NVIDIA":
        stated: dict[str, dict[str, Any]] = {
            "vllm": {"max_num_batched_tokens": clients + prompt + 1500},
            "trtllm": {"free_gpu_memory_fraction": 0.8},
        }
        return stated.get(row["backend"], {})
    if row["backend"] == "sglang":
        return {"scheduler_recv_interval": 30 if clients >= 16 else 10}
    if row["backend"] != "trtllm":
        return {}
    tokens = (clients + prompt + 127) // 64 * 64 if "DeepSeek" in row["model_path"] else 20_000
    balance = {"enable_balance": True, "timeout_iters": 60}
    return {"max_num_tokens": tokens} | (balance if (row["attention_dp_size"] or 1) > 1 else {})


def _of(clients: int, output: float, ttft_ms: float, tpot_ms: float) -> tuple[float, float, float]:
    """TTFT, TPOT, and the throughput that follows: it was not measured."""
    return ttft_ms, tpot_ms, clients * output / (ttft_ms + (output - 1.0) * tpot_ms) * 1e3


def answer(case: Case) -> dict[str, Believed]:
    """The metrics of the scenario's answer, without what explains them; empty where something has
    no model yet, or cannot run.
    """
    scenario = dict(case.scenario)
    if not EVIDENCE.get().learned:
        scenario["tier"] = "analytic"
    try:
        served = prepared(decode(scenario)).served
        simulated = Simulated(served.fleet, served.simulate)
        metrics, bound = simulated.metrics(served.metrics_of), simulated.bound()
    except SilicastError as error:
        if error.kind == "internal":
            raise
        return {}
    return {
        name: (found_.estimate, found_.p05, found_.p95, bound.get(name, NAN))
        for name in METRICS[:2]
        for found_ in (metrics[name],)
    }


def with_rate(case: Case, table: Mapping[str, Believed]) -> dict[str, Believed]:
    """An answer, and the throughput that follows from it as from what was measured."""
    if not table:
        return {}
    work = case.scenario["workload"]
    clients, ratio = work["arrival"]["concurrency"], work["range_ratio"]
    output = work["output_len"] * (1.0 + ratio) / 2.0
    ttft, tpot = (table[name] for name in METRICS[:2])
    # a fast answer is a high rate
    rate, high, low = (_of(clients, output, ttft[i], tpot[i])[2] for i in range(3))
    return {**table, METRICS[2]: (rate, low, high, NAN)}


def _band(clients: int) -> str:
    for most in (1, 4, 16, 64, 256):
        if clients <= most:
            return f"<= {most}"
    return "> 256"


def trains(model: str, device: str) -> bool:
    """Whether engine constants may be fitted on the rows of a model on a device: a third of the
    pairs, by a hash of their names. Checkpoints of one architecture are one model.
    """
    name = re.sub(r"-(NVFP4|FP8|Instruct)$", "", model.rsplit("/", maxsplit=1)[-1])
    name = re.sub(r"^DeepSeek-(V3\.1|V3|R1)$", "DeepSeek", name)
    return hashlib.sha256(f"{name} {device} {SALT}".encode()).digest()[0] % 3 == 0


def _checkpoint(name: str, stated: str | None) -> tuple[str, str]:
    """The catalog's model with the formats that a run's precision means, and the format of weights
    where none has them.
    """
    default_precision = find_model(name).default_precision
    wanted = _FORMATS.get(stated or "", "")
    held = {default_precision.linear.weights, default_precision.expert.weights}
    if not wanted or wanted in held or (wanted[-3:] == "fp4" and "mxfp4" in held):
        return name, ""
    plain = re.sub(r"-(FP8|Instruct)$", "", name)
    listed = (_CHECKPOINTS.get((name, stated or "")), f"{plain}-{_QUANTISED.get(stated or '')}")
    for other in filter(None, listed):
        try:
            find_model(other)
        except SilicastError:
            continue
        return other, ""
    return name, wanted


def _score(data: Path, limit: int | None) -> list[Scored]:
    """Rows of held-out pairs, those of them that do not contradict each other, and train pairs."""
    every = cases(data)
    chosen = [every[i] for i in subsample(len(every), limit)]
    result = answers(chosen)
    held_out, consistent, trained = (
        [i for i, case in enumerate(chosen) if wanted(case)]
        for wanted in (_held_out, _consistent, lambda case: not _held_out(case))
    )
    consistent_rows = ([chosen[i] for i in consistent], [result[i] for i in consistent])
    return [
        score_cases(
            f"{remarks}{name}", [chosen[i] for i in rows], [result[i] for i in rows], of=name
        )
        for remarks, rows in (("", held_out), ("consistent_", consistent), ("train_", trained))
        for name in METRICS
        if rows
    ] + ranked(*consistent_rows, METRICS[2])


def answers(chosen: Sequence[Case]) -> list[dict[str, Believed]]:
    """Every answer, in order; each core takes blocks of neighbours, which share deployments."""
    with ProcessPoolExecutor(initializer=EVIDENCE.set, initargs=(EVIDENCE.get(),)) as pool:
        return list(pool.map(_answered, chosen, chunksize=BLOCK))


def _answered(case: Case) -> dict[str, Believed]:
    return with_rate(case, answer(case))


def _held_out(case: Case) -> bool:
    return case.labels["pair"] == "held out"


def _consistent(case: Case) -> bool:
    return _held_out(case) and case.labels["repeats"] in ("one run", "agree")


SUITES = (Suite("serving", (TABLE, PEER), _score, both_tiers=False),)
