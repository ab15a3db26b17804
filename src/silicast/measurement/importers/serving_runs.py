"""Benchmarks of servers as runs: a scenario of the task ``serving`` and what was measured of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from silicast.core.errors import SilicastError
from silicast.measurement.importers.options import Options
from silicast.measurement.importers.source import Source
from silicast.measurement.records import Columns, RunRow, UnreadRow
from silicast.scenario.decode import decode
from silicast.scenario.resolve import find_any_model
from silicast.scenario.set_fields import with_fields

STATISTICS = {"mean": "mean", "avg": "mean", "median": "p50", "p50": "p50", "p90": "p90",
              "p99": "p99"}  # fmt: skip
"""Statistics as tools call them -> as answers do; others (p95) no answer has."""
MS_PER = {"ms": 1.0, "s": 1e3, "sec": 1e3, "us": 1e-3, "ns": 1e-6}
LONGEST_MS = 8.64e7
"""A day."""
MOST_VALUES = 4096
"""Lengths that are listed; of more requests the mean stands for them."""


@final
@dataclass(frozen=True)
class Benchmark:
    """One run of a benchmark.

    Attributes:
        row: of the file; model, engine, version: "" = the file does not say.
        parallel: degrees that the file says.
        arrival: ``workload.arrival``; {} = the file does not say.
        requests: that were completed, 0 = not known; seconds: that they took, 0 = not known.
        input_len, output_len: mean tokens of a request, or those of each.
        metrics: by names of the answer.
        scenario: more of it that the file says; flags: what is doubtful.
    """

    row: int
    metrics: Mapping[str, float]
    model: str = ""
    engine: str = ""
    version: str = ""
    parallel: Mapping[str, int] = field(default_factory=dict)
    arrival: Columns = field(default_factory=dict)
    requests: int = 0
    seconds: float = 0.0
    input_len: float | Sequence[int] = 0.0
    output_len: float | Sequence[int] = 0.0
    scenario: Columns = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    name: str = ""


def arrival_of(rate: Any, concurrency: Any, requests: int, burstiness: Any = 1.0) -> Columns:
    """``workload.arrival`` of a rate and a limit of requests at a time, each possibly none.

    >>> arrival_of("inf", 8, 80)
    {'kind': 'closed', 'concurrency': 8}
    >>> arrival_of(4.0, None, 80)
    {'kind': 'poisson', 'rate_per_s': 4.0}
    >>> arrival_of(float("inf"), None, 80)
    {'kind': 'closed', 'concurrency': 80}
    """
    per_s = _number(rate)
    if per_s and math.isfinite(per_s):
        shape = _number(burstiness) or 1.0
        if math.isclose(shape, 1.0):
            return {"kind": "poisson", "rate_per_s": per_s}
        return {"kind": "gamma", "rate_per_s": per_s, "cv": shape**-0.5}
    limit = _number(concurrency)
    if limit and limit >= 1 and math.isfinite(limit):
        return {"kind": "closed", "concurrency": round(limit)}
    if per_s == math.inf and requests:
        return {"kind": "closed", "concurrency": requests}
    return {}


def latency_metrics(
    values: Mapping[str, Any], names: Mapping[str, str], pattern: str = "{statistic}_{name}_ms"
) -> dict[str, float]:
    """Latencies of one flat object, by names of the answer.

    Args:
        names: the tool's name -> the answer's ("e2el" -> "e2e").

    >>> latency_metrics({"mean_ttft_ms": 20.0, "p95_ttft_ms": 30.0}, {"ttft": "ttft"})
    {'ttft_mean_ms': 20.0}
    """
    found: dict[str, float] = {}
    for name, ours in names.items():
        for statistic, our_statistic in STATISTICS.items():
            value = _number(values.get(pattern.format(statistic=statistic, name=name)))
            if value is not None and value > 0 and math.isfinite(value):
                found.setdefault(f"{ours}_{our_statistic}_ms", value)
    return found


def run_of(
    benchmark: Benchmark, session: str, device: str, source: Source, options: Options
) -> RunRow | UnreadRow:
    """The run as a scenario with its metrics; one that measured nothing is listed.

    Raises:
        SilicastError: neither the file nor the options say what a scenario needs, or a time cannot
            be true; names the field and how to state it.
    """
    metrics = {name: value for name, value in benchmark.metrics.items() if value > 0}
    name = benchmark.name or f"run {benchmark.row}"
    if not metrics:
        reason = "holds no metric" if benchmark.requests else "no request was completed"
        spent = benchmark.seconds * 1e6
        return UnreadRow(session, name, benchmark.requests, spent, reason, benchmark.row)
    for metric, value in metrics.items():
        if metric.endswith("_ms") and value > LONGEST_MS:
            raise SilicastError(
                f"{metric} is {value:.4g} ms, more than a day", file=str(source.path),
                field=f"row {benchmark.row}", hint="is the unit right?",
            )  # fmt: skip
    scenario = _scenario(benchmark, device, options)
    _check(scenario, source)
    return RunRow(
        session, scenario, metrics, flags=list(benchmark.flags), name=name, row=benchmark.row
    )


def gpus_of(scenario: Columns) -> int:
    """Devices of a deployment."""
    degrees = scenario.get("parallel", {})
    return math.prod(int(degrees.get(name, 1)) for name in ("tp", "pp", "attention_dp"))


def _scenario(benchmark: Benchmark, device: str, options: Options) -> Columns:
    flags_of_engine = {"name": benchmark.engine, "version": benchmark.version}
    engine = {name: value for name, value in flags_of_engine.items() if value}
    said: Columns = {
        "format": 1, "task": "serving", "device": device, "model": benchmark.model,
        "engine": engine, "parallel": dict(benchmark.parallel),
        "workload": {
            "arrival": dict(benchmark.arrival), "requests": benchmark.requests,
            "input_len": _length(benchmark.input_len), "output_len": _length(benchmark.output_len),
        },
    }  # fmt: skip
    said |= benchmark.scenario
    fields = {n: v for n, v in options.fields.items() if not n.startswith("collective.")}
    if "workload.arrival.rate_per_s" in fields or "workload.arrival.concurrency" in fields:
        closed = "workload.arrival.concurrency" in fields
        said["workload"]["arrival"] = {"kind": "closed" if closed else "poisson"}
    if "engine" in fields:
        said.pop("engine")
    found = with_fields(said, fields)
    if not found["workload"]["requests"]:
        del found["workload"]["requests"]
    return {name: value for name, value in found.items() if value not in ("", {})}


def _length(length: float | Sequence[int]) -> Any:
    """A length, or those of each request where they differ."""
    if isinstance(length, int | float):
        return round(length)
    if len(set(length)) == 1:
        return int(length[0])
    if len(length) > MOST_VALUES:
        return round(math.fsum(length) / len(length))
    return {"kind": "values", "values": [int(each) for each in length]}


_HINTS = {
    "device": "--device h100",
    "engine": "--set engine.name=vllm",
    "model": "--set model=Llama-3.1-8B",
    "workload.arrival": "--set workload.arrival.concurrency=8, or ...rate_per_s=4",
    "workload.input_len": "--set workload.input_len=1024",
    "workload.output_len": "--set workload.output_len=128",
}


def _check(scenario: Columns, source: Source) -> None:
    """Refuses a scenario that could not be predicted, and says how to complete it."""
    workload = scenario["workload"]
    given = {
        "device": scenario.get("device"),
        "model": scenario.get("model"),
        "engine": _engine_name(scenario),
        "workload.arrival": workload["arrival"],
        "workload.input_len": workload["input_len"],
        "workload.output_len": workload["output_len"],
    }
    for name, value in given.items():
        if not value:
            raise SilicastError(
                "is not in the file", file=str(source.path), field=name, hint=_HINTS[name]
            )
    folder = source.path.absolute().parent
    try:
        decode(scenario, folder=folder)
        find_any_model(scenario["model"], folder)
    except SilicastError as error:
        hint = _HINTS.get(error.field, error.hint)
        raise SilicastError(
            error.message, kind=error.kind, file=str(source.path), field=error.field,
            hint=f"{error.hint}; {hint}" if error.hint and hint != error.hint else hint,
        ) from None  # fmt: skip


def _engine_name(scenario: Columns) -> object:
    engine = scenario.get("engine")
    return engine.get("name") if isinstance(engine, dict) else engine


def number(value: Any) -> float:
    """A number, 0 where there is none."""
    return _number(value) or 0.0


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return None if math.isnan(found) else found
