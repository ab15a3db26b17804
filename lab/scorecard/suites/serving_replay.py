"""A replay of 300 requests on a real engine: the scheduler alone, and with our own kernels.

The scheduler alone runs on step times from layer times that were measured on the same machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from lab.scorecard.suite import EVIDENCE, Scored, Suite
from silicast.composition.engines.engine import find_engine
from silicast.composition.engines.engine_versions import as_of
from silicast.composition.engines.host_time import host_work_s
from silicast.composition.passes.deployment import Deployment
from silicast.composition.prices.decode_lengths import Lengths
from silicast.composition.prices.step_prices import RunPrice, StepPrice
from silicast.composition.prices.stepper import StepPricing
from silicast.composition.step.machine import Machine
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.scenario.answers.serving.simulated import Simulated
from silicast.serving.simulation.deploy import replica_spec
from silicast.serving.simulation.event_loop import ReplicaSpec, Simulation
from silicast.serving.simulation.fleet import Fleet
from silicast.serving.statistics.metrics import statistics_ms
from silicast.serving.statistics.records import Records
from silicast.serving.statistics.step_mix import columns
from silicast.serving.traffic.requests import Requests
from silicast.workload.models.lookup import find_model

SERVING = "serving/llmservingsim_"
TABLES = tuple(
    f"{SERVING}{name}.parquet"
    for name in (
        "vllm_requests",
        "vllm_timeseries",
        "vllm_meta",
        "sim_requests",
        "profile_dense",
        "profile_per_sequence",
        "profile_attention",
    )
)
MODEL, DEVICE = "Llama-3.1-8B", "RTX 4090"
NAMES = ("ttft", "tpot", "e2e")
_ONCE = ("embedding", "final_layernorm")
_TWICE = ("layernorm",)
_PER_LAYER = ("qkv_proj", "rotary_emb", "o_proj", "gate_up_proj", "act_fn", "down_proj")


@final
@dataclass(frozen=True)
class Grid:
    """Times at a grid of sizes, straight between its knots; sizes beyond are on the last line."""

    knots: tuple[F64, ...]
    values: F64

    def at(self, *sizes: float) -> float:
        """One point."""
        values = self.values
        for knots, size in zip(self.knots, sizes, strict=True):
            low = int(np.clip(np.searchsorted(knots, size, side="right") - 1, 0, len(knots) - 2))
            share = (size - knots[low]) / (knots[low + 1] - knots[low])
            values = values[low] + share * (values[low + 1] - values[low])
        return float(values)


@final
class ProfilePrices:
    """Steps priced by measured times of layers, as far as a simulation asks for them.

    Args:
        data: folder of the tables.
        own: prices of the deployment's own model, for what the host takes.
        machine: of the deployment.
    """

    def __init__(self, data: Path, own: StepPricing, machine: Machine) -> None:
        self.graph, self.gap_s, self.asynchronous = own.graph, own.gap_s, own.asynchronous
        self._machine = machine
        self._layers = find_model(MODEL).layers
        self._captured = np.array(self._machine.engine.launch.graph_batch_sizes)
        layers = {
            name: _curve(data, "dense", "tokens", name) for name in (*_ONCE, *_TWICE, *_PER_LAYER)
        }
        self._tokens = {
            "once": [layers[name] for name in _ONCE],
            "layer": [*(layers[name] for name in _PER_LAYER), *(2 * [layers[n] for n in _TWICE])],
        }
        self._sequences = [
            _curve(data, "per_sequence", "sequences", name) for name in ("lm_head", "sampler")
        ]
        self._attention = _attention(data)
        self._known: dict[tuple[int, int], float] = {}

    def price(
        self, prefill: Sequence[tuple[int, int]], decode_kv: Lengths, elsewhere: int = -1
    ) -> StepPrice:
        """See :meth:`StepPrices.price`."""
        tokens = len(decode_kv) + sum(new for new, _ in prefill)
        sequences = len(decode_kv) + len(prefill)
        us = self._dense_us(tokens, sequences) + self._layers * self._attention_us(
            prefill, decode_kv
        )
        work_s = host_work_s(self._machine, sequences, tokens - len(decode_kv), devices=1)
        return StepPrice((us * 1e-6,), 0.0, work_s, 0.0)

    def run(self, decode_kv: Lengths, steps: int, elsewhere: int = -1) -> RunPrice:
        """See :meth:`StepPrices.run`."""
        positions = np.unique(np.append(np.arange(0, steps, 16), steps - 1))
        prices = [self.price((), decode_kv + int(position)) for position in positions]
        pass_s = np.interp(np.arange(steps), positions, [price.pass_s for price in prices])
        nothing = [0.0] * steps
        return RunPrice([pass_s.tolist()], nothing, prices[0].work_s, nothing)

    def _dense_us(self, tokens: int, sequences: int) -> float:
        if (tokens, sequences) not in self._known:
            index = int(np.searchsorted(self._captured, tokens))
            rows = int(self._captured[index]) if index < len(self._captured) else tokens
            once = sum(grid.at(rows) for grid in self._tokens["once"])
            once += sum(grid.at(sequences) for grid in self._sequences)
            layer = sum(grid.at(rows) for grid in self._tokens["layer"])
            self._known[tokens, sequences] = once + self._layers * layer
        return self._known[tokens, sequences]

    def _attention_us(self, prefill: Sequence[tuple[int, int]], decode_kv: Lengths) -> float:
        """One layer. Lengths count as their mean: the campaign of unequal lengths (profile_skew)
        ran another path, three times slower at equal lengths than the table of attention.
        """
        count = len(decode_kv)
        mean = float(decode_kv.sum()) / count if count else 0.0
        even = self._attention.at(0, 0, count, mean) if count else 0.0
        attention_us = even
        for new, total in prefill:
            attention_us += self._attention.at(new, total - new, count, mean) - even
        return attention_us


def _rows(data: Path, name: str) -> dict[str, Any]:
    from pyarrow import parquet

    table = parquet.read_table(data / f"{SERVING}{name}.parquet")
    return {column: table[column] for column in table.column_names}


def _curve(data: Path, table: str, size: str, layer: str) -> Grid:
    rows = _rows(data, f"profile_{table}")
    in_layer = np.array(rows["layer"].to_pylist()) == layer
    sizes, times = (rows[name].to_numpy()[in_layer].astype(float) for name in (size, "time_us"))
    order = np.argsort(sizes)
    return Grid((sizes[order],), times[order])


def _attention(data: Path) -> Grid:
    """Chunk, past, decoding sequences, their cached tokens -> time; what was not measured is the
    sum of its two parts.
    """
    rows = _rows(data, "profile_attention")
    names = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
    columns = [rows[name].to_numpy() for name in names]
    knots = tuple(np.unique(column).astype(float) for column in columns)
    times = np.full([len(axis) for axis in knots], np.nan)
    positions = tuple(np.searchsorted(k, c) for k, c in zip(knots, columns, strict=True))
    times[positions] = rows["time_us"].to_numpy()
    times[0, :, 0, :] = 0.0  # neither prompts nor sequences: no attention
    chunks, decodes = times[:, :, 0, 0], times[0, 0]
    chunks[0, :] = 0.0
    for part in (chunks, decodes):
        _straight(part)
    decodes[:, 0] = decodes[:, 1]
    decodes[0, :] = 0.0
    both = chunks[:, :, None, None] + decodes[None, None]
    return Grid(knots, np.where(np.isfinite(times), times, both))


def _straight(part: F64) -> None:
    """Fills what is missing in each row from its neighbours, in place."""
    for row in part:
        finite = np.flatnonzero(np.isfinite(row))
        if len(finite):
            row[:] = np.interp(np.arange(len(row)), finite, row[finite])


def deployment() -> Deployment:
    """What ran."""
    return Deployment.from_model(
        model=find_model(MODEL),
        device=find_device(DEVICE),
        engine=as_of(find_engine("vllm"), "0.19.0"),
        evidence=EVIDENCE.get(),
    )


def specs(data: Path) -> tuple[ReplicaSpec, ReplicaSpec]:
    """The replica on measured layer times, and on our own prices; limits are those it printed."""
    meta = _rows(data, "vllm_meta")
    limits = json.loads(meta["engine_kwargs"][0].as_py())
    blocks = json.loads(meta["kv_cache"][0].as_py())["num_gpu_blocks"]
    estimated = replica_spec(deployment(), sequences=limits["max_num_seqs"], blocks=blocks)
    estimated = replace(
        estimated,
        limits=replace(estimated.limits, step_tokens=limits["max_num_batched_tokens"]),
        front_ns=0,
        front_token_ns=0,
        back_ns=0,  # measured at the engine's core
    )
    measured = ProfilePrices(data, estimated.prices, deployment().machine)
    return replace(estimated, prices=measured), estimated


def replayed(data: Path, spec: ReplicaSpec) -> Records:
    """The 300 requests on a replica."""
    rows = _rows(data, "vllm_requests")
    arrival = rows["arrival_s"].combine_chunks().cast("int64").to_numpy()
    sizes = (rows[name].to_numpy().astype(np.int64) for name in ("input_toks", "output_toks"))
    return Simulation(Requests.from_arrays(arrival - arrival.min(), *sizes), [spec]).run()


def _score(data: Path, limit: int | None) -> list[Scored]:
    """Means and 99th percentiles, each request, and how many requests run at each second."""
    rows = _rows(data, "vllm_requests")
    queued, first, last, tokens = (
        rows[name].to_numpy()
        for name in ("queued_ts", "first_token_ts", "last_token_ts", "output_toks")
    )
    truth = {"ttft": first - queued, "tpot": (last - first) / (tokens - 1), "e2e": last - queued}
    peer = _rows(data, "sim_requests")
    order = np.argsort(peer["request id"].to_numpy())
    theirs = {
        name: peer[column].to_numpy()[order] * 1e-9
        for name, column in (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2e", "latency"))
    }
    scoreds: list[Scored] = []
    for name, spec in zip(("scheduler", "own"), specs(data), strict=True):
        records = replayed(data, spec)
        ours = {"ttft": records.ttft_s(), "tpot": records.tpot_s(), "e2e": records.e2e_s()}
        width = _width(records, spec) if name == "own" else {}
        three = (truth, ours, theirs)
        for remarks, quantile in (("mean", None), ("p99", 0.99)):
            columns_ = [
                np.array([_statistic(times[metric], quantile) for metric in NAMES])
                for times in three
            ]
            scoreds.append(_scored(f"{name}_{remarks}_ms", columns_, NAMES, width))
        chosen = slice(limit or None)
        for metric in NAMES:
            columns_ = [times[metric][chosen] * 1e3 for times in three]
            scoreds.append(_scored(f"{name}_each_{metric}_ms", columns_, (metric,), width))
        if name == "scheduler":
            scoreds += [_running(data, records)]
    return scoreds


def _statistic(times_s: F64, quantile: float | None) -> float:
    """A quantile, or the mean, in milliseconds."""
    value = times_s.mean() if quantile is None else np.quantile(times_s, quantile)
    return float(value) * 1e3


def _width(records: Records, spec: ReplicaSpec) -> dict[str, tuple[float, float]]:
    """Relative p05 and p95 of the mean of each latency."""
    simulated = Simulated(Fleet.from_deployment(deployment(), spec), lambda _: records)
    metrics = simulated.metrics(statistics_ms)
    return {
        name: (one.p05 / one.estimate, one.p95 / one.estimate)
        for name in NAMES
        for one in (metrics[f"{name}_mean_ms"],)
    }


def _scored(
    metric: str,
    columns_: Sequence[F64],
    names: Sequence[str],
    width: Mapping[str, tuple[float, float]],
) -> Scored:
    """Rows of a metric: measured, ours and LLMServingSim's."""
    measured, ours, theirs = columns_
    labels = np.resize(np.array(names), measured.shape)  # one each, or one for all
    low, high = (
        np.array([width.get(str(name), (np.nan, np.nan))[side] for name in labels])
        for side in (0, 1)
    )
    return Scored(
        metric,
        measured=measured,
        estimate=ours,
        p05=ours * low,
        p95=ours * high,
        peers={"LLMServingSim": theirs},
        groups={"device": np.full(len(measured), DEVICE), "latency": labels},
    )


def _running(data: Path, records: Records) -> Scored:
    """Requests that run, each second in which some do."""
    series = _rows(data, "vllm_timeseries")
    seconds, measured = (series[name].to_numpy().astype(float) for name in ("t", "running"))
    start, running = columns(records.log.table(), "start_ns", "running")
    ours = running[np.searchsorted(start, seconds * 1e9, side="right") - 1].astype(float)
    ours = np.where(seconds * 1e9 < records.end_ns, ours, 0.0)
    busy = measured > 0
    nothing = np.full(int(busy.sum()), np.nan)
    return Scored(
        "scheduler_running",
        measured=measured[busy],
        estimate=ours[busy],
        p05=nothing,
        p95=nothing,
        groups={"device": np.full(int(busy.sum()), DEVICE)},
    )


SUITES = (Suite("serving-replay", TABLES, _score),)
