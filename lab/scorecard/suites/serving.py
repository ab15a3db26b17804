"""TTFT, TPOT and throughput of serving runs under closed-loop traffic, on many devices and engines.

A row is a run of a benchmark client that keeps so many requests in flight. Each is predicted as a
user's scenario of task ``serving`` is: the same traffic, simulated.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.scorecard.model_suite import NAN, Believed, Case, Metric, RunsScore, simulated
from lab.scorecard.plan_ranking import ranked
from lab.scorecard.silicon_runs import (
    CONTRADICTS,
    DEVICES,
    PEER,
    TABLE,
    Row,
    checkpoint,
    configuration,
    plan,
    sane_rows,
)
from lab.scorecard.suite import Scored, Suite
from lab.scorecard.tables import read_records

RANGE_RATIO = {"InferenceX": 0.8, "NVIDIA": 1.0}
"""Clients draw lengths evenly between this share of the nominal length and all of it. InferenceX
states it; NVIDIA does not: of 1, 0.95, 0.9 and 0.8 it is the one nearest to the train pairs' TTFT.
"""
INFERENCEX_LATENTS = {"kv_cache": "fp8"}
"""Of DeepSeek's models: its public scripts say so for either engine (recalled)."""
RELEASED = {
    "vllm": (("2025-10-04", "0.11.0"), ("2025-11-20", "0.11.2")),
    "sglang": (("2025-10-26", "0.5.4"), ("2025-11-06", "0.5.5")),
    "trtllm": (("2025-09-24", "1.0.0"), ("2025-12-15", "1.1.0")),
}
"""Engine -> day and release, of the time in which runs state none (days recalled)."""
BLOCK = 8
"""Cases that a process takes at a time."""
SALT = 3
"""The first with which every engine has a pair on either side."""
METRICS = ("ttft_mean_ms", "tpot_mean_ms", "rate_tokens_per_s")


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
        same[configuration(row)].append(row)
    quicker = {
        _campaign(one)
        for group in same.values()
        for one in group
        for other in group
        if _campaign(one) != _campaign(other) and _contradict(one, other)
    }
    kinds = []
    for row in rows:
        others = [run for run in same[configuration(row)] if _campaign(run) not in quicker]
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
    model, device = row["model_path"], DEVICES[row["system"]]
    clients, output = int(row["concurrency"]), int(row["osl"])
    served, weights = checkpoint(model, row["precision"])
    source = "NVIDIA" if row["silicon_data_source"].startswith("source_file=/") else "InferenceX"
    scenario: dict[str, Any] = {
        "task": "serving",
        "device": device,
        "model": served,
        "engine": {"name": row["backend"], "version": row["backend_version"] or _released(row)},
        "parallel": plan(row),
        "workload": {
            "arrival": {"kind": "closed", "concurrency": clients},
            "requests": 10 * clients,
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
    if source == "InferenceX" and "DeepSeek" in model:
        scenario["precision"] = {**scenario.get("precision", {}), **INFERENCEX_LATENTS}
    if options := _launched_with(row, source):
        scenario["engine"]["options"] = options
    ttft, tpot = row["silicon_ttft_ms"], row["silicon_tpot_ms"]
    mean_output = output * (1.0 + RANGE_RATIO[source]) / 2.0
    peer_ms = peer.get("aic_ttft_ms") or NAN, peer.get("aic_tpot_ms") or NAN
    return Case(
        scenario=scenario,
        measured=dict(zip(METRICS, _of(clients, mean_output, ttft, tpot), strict=True)),
        peers={
            name: {"aiconfigurator": value}
            for name, value in zip(METRICS, _of(clients, mean_output, *peer_ms), strict=True)
        },
        labels={
            "device": device,
            "engine": row["backend"],
            "release": f"{row['backend']} {row['backend_version'] or 'not stated'}",
            "model": f"{model.split('/')[-1]} {row['precision']}",
            "concurrency": _band(clients),
            "traffic": f"{row['isl']} / {row['osl']}",
            "engine and model": f"{row['backend']} {model.split('/')[-1]}",
            "devices": f"{row['tp_size']}",
            "repeats": repeats,
            "source": source,
            "launch": _known_by(row, source),
            "pair": "train" if trains(model, device) else "held out",
        },
    )


def _known_by(row: Row, source: str) -> str:
    """Whether the release or launch settings of a run are recalled, and were asked for after errors
    of scored rows had been seen.
    """
    is_asked = row["backend"] == "vllm" or "DeepSeek" in row["model_path"]
    is_recalled = not row["backend_version"] or (source == "InferenceX" and is_asked)
    return "recalled" if is_recalled else "stated or assumed"


def _released(row: Row) -> str:
    """The newest release on the day of a run that states none; "" = none is known.

    >>> _released({"backend": "vllm", "measured_on": "2025-12-05"})
    '0.11.2'
    """
    day = str(row["measured_on"] or "")
    releases = [release for since, release in RELEASED.get(row["backend"], ()) if since <= day]
    return releases[-1] if releases else ""


def _launched_with(row: Row, source: str) -> dict[str, Any]:
    """Options of the scripts that launched the engines, where they differ from what is assumed.

    NVIDIA's are of its configuration generator (aiconfigurator 0.12.0, generator/rule_plugin and
    config/backend_templates): vLLM's ``max_num_batched_tokens`` is the sequences, a prompt and
    1,500; TensorRT-LLM's cache takes 0.8 of what is free. InferenceX's, as its
    public scripts have it: TensorRT-LLM's ``max_num_tokens`` is of DeepSeek a prompt beside the
    clients' decodes, in whole 64, else 20,000; groups of attention_dp take prompts together;
    SGLang looks for new requests every 10 decode steps, from 16 clients on every 30; vLLM schedules
    asynchronously, and in 2025 captures graphs of decode steps alone on B200 (recalled; asked for
    after errors of scored rows were seen, and nearer on the train pairs' runs of that time too).
    """
    clients, prompt = int(row["concurrency"]), int(row["isl"])
    if source == "NVIDIA":
        arguments: dict[str, dict[str, Any]] = {
            "vllm": {"max_num_batched_tokens": clients + prompt + 1500},
            "trtllm": {"free_gpu_memory_fraction": 0.8},
        }
        return arguments.get(row["backend"], {})
    if row["backend"] == "vllm":
        captures = {"compilation_config.cudagraph_mode": "FULL_DECODE_ONLY"}
        of_2025 = not row["backend_version"] and row["system"] == "b200_sxm"
        return {"async_scheduling": True} | (captures if of_2025 else {})
    if row["backend"] == "sglang":
        return {"scheduler_recv_interval": 30 if clients >= 16 else 10}
    tokens = (clients + prompt + 127) // 64 * 64 if "DeepSeek" in row["model_path"] else 20_000
    balance = {"enable_balance": True, "timeout_iters": 60}
    return {"max_num_tokens": tokens} | (balance if (row["attention_dp_size"] or 1) > 1 else {})


def _of(clients: int, output: float, ttft_ms: float, tpot_ms: float) -> tuple[float, float, float]:
    """TTFT, TPOT, and the throughput that follows: it was not measured."""
    return ttft_ms, tpot_ms, clients * output / (ttft_ms + (output - 1.0) * tpot_ms) * 1e3


def answer(case: Case) -> dict[str, Believed]:
    """TTFT and TPOT, and the throughput that follows from them."""
    return with_rate(case, simulated(case, METRICS[:2]))


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


def _plans(cases: Sequence[Case], answers: Sequence[Mapping[str, Believed]]) -> Iterable[Scored]:
    """Whether the best plan is told, of runs that do not contradict each other."""
    rows = [row for row, case in enumerate(cases) if CONSISTENT.counts(case)]
    return ranked([cases[row] for row in rows], [answers[row] for row in rows], METRICS[2])


HELD_OUT, TRAINED = {"pair": "held out"}, {"pair": "train"}
CONSISTENT = Metric("", METRICS[2], {**HELD_OUT, "repeats": "one run|agree"})
SCORE = RunsScore(
    cases,
    [
        Metric(f"{prefix}{name}", name, where)
        for prefix, where in (
            ("", HELD_OUT),
            ("consistent_", CONSISTENT.where),
            ("train_", TRAINED),
        )
        for name in METRICS
    ],
    answer,
    block=BLOCK,
    more=_plans,
)
SUITES = (Suite("serving", (TABLE, PEER), SCORE, both_tiers=False),)
