"""trtllm-bench: the JSON of ``--report_json``, or the tables that it prints.

TPOT is (end to end - TTFT) / (output tokens - 1) of each request, as ours. Requests come as fast
as they are taken unless a concurrency was set; the report holds the mean of those under way, which
is taken for it (flag ``mean_concurrency``) unless it is stated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, ClassVar, final

from silicast.measurement.importers.importer import Importer, Reading, importer
from silicast.measurement.importers.options import Options
from silicast.measurement.importers.perf_metrics import first_of
from silicast.measurement.importers.serving_files import reading_of
from silicast.measurement.importers.serving_runs import STATISTICS, Benchmark, arrival_of, number
from silicast.measurement.importers.source import Source

_LINE = re.compile(r"^(?:\[[^\]]*\]\s*)*(?P<label>[^:\n]+?)\s*:\s+(?P<value>\S.*)$")
_TABLE = re.compile(r"\[(?P<name>TTFT|TPOT|Latency)\]\s+(?P<statistic>[A-Z0-9]+)\s*:\s*(?P<ms>\S+)")
_TABLES = {"TTFT": "ttft", "TPOT": "tpot", "Latency": "e2e"}
_PRINTED = {"average": "mean"}
_NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:[eE][+-]?\d+)?")


@final
@importer
class TrtllmBench(Importer):
    """Results of ``trtllm-bench throughput`` and ``latency``."""

    name: ClassVar[str] = "trtllm-bench"
    reads: ClassVar[str] = "trtllm-bench: --report_json, or what it prints"

    def recognises(self, source: Source) -> bool:
        """See :meth:`Importer.recognises`."""
        if source.is_json:
            return source.holds('"world_info"', '"performance"')
        text = source.head.decode("utf-8", errors="replace")
        return "PERFORMANCE OVERVIEW" in text and "REQUEST DETAILS" in text

    def read(self, source: Source, options: Options) -> Reading:
        """See :meth:`Importer.read`."""
        if source.is_json:
            found = [_of_report(row, each) for row, each in source.objects()]
        else:
            found = [_of_print(source.text())]
        return reading_of(found, source, options, "trtllm-bench")


def _of_report(row: int, report: Mapping[str, Any]) -> Benchmark:
    engine, world = first_of(report, "engine") or {}, first_of(report, "world_info") or {}
    requests, speed = first_of(report, "request_info") or {}, first_of(report, "performance") or {}
    stream = first_of(report, "streaming_metrics") or {}
    metrics = {
        "output_tokens_per_s": number(speed.get("system_output_throughput_tok_s")),
        "requests_per_s": number(speed.get("request_throughput_req_s")),
        "e2e_mean_ms": number(speed.get("avg_request_latency_ms")),
        "ttft_mean_ms": number(stream.get("avg_ttft_ms")),
        "tpot_mean_ms": number(stream.get("avg_tpot_ms")),
    }
    for name, values, mean in (
        ("e2e", speed.get("request_latency_percentiles_ms"), metrics["e2e_mean_ms"]),
        ("ttft", stream.get("ttft_percentiles"), metrics["ttft_mean_ms"]),
        ("tpot", stream.get("tpot_percentiles"), metrics["tpot_mean_ms"]),
    ):
        metrics |= _quantiles(name, values, mean)
    return _benchmark(
        row, metrics, str(engine.get("model") or ""), str(engine.get("version") or ""),
        {name: world.get(f"{name}_size") for name in ("tp", "pp", "ep")},
        number(requests.get("num_requests")), number(requests.get("avg_num_concurrent_requests")),
        number(requests.get("avg_input_length")), number(requests.get("avg_output_length")),
        number(speed.get("total_latency_ms")),
    )  # fmt: skip


def _quantiles(name: str, values: Any, mean_ms: float) -> dict[str, float]:
    """Quantiles in milliseconds: versions differ in their unit, which the mean beside it tells."""
    if not isinstance(values, dict):
        return {}
    own_mean = number(values.get("average"))
    if own_mean <= 0 or mean_ms <= 0:
        return {}
    scale = mean_ms / own_mean
    unit = next((u for u in (1.0, 1e-3, 1e-6, 1e3) if math.isclose(scale, u, rel_tol=0.05)), None)
    if unit is None:
        return {}
    return {
        f"{name}_{ours}_ms": number(values[statistic]) * unit
        for statistic, ours in STATISTICS.items()
        if statistic in values and number(values[statistic]) > 0
    }


def _of_print(text: str) -> Benchmark:
    said: dict[str, str] = {}
    metrics: dict[str, float] = {}
    for line in text.splitlines():
        for found in _TABLE.finditer(line):
            statistic = found["statistic"].casefold()
            ours = STATISTICS.get(_PRINTED.get(statistic, statistic))
            if ours and number(found["ms"]) > 0:
                metrics[f"{_TABLES[found['name']]}_{ours}_ms"] = number(found["ms"])
        if found_line := _LINE.match(line.strip()):
            said.setdefault(found_line["label"].strip(), found_line["value"].strip())
    for label, ours in (
        ("Total Output Throughput (tokens/sec)", "output_tokens_per_s"),
        ("Request Throughput (req/sec)", "requests_per_s"),
        ("Average request latency (ms)", "e2e_mean_ms"),
        ("Average time-to-first-token [TTFT] (ms)", "ttft_mean_ms"),
        ("Average time-per-output-token [TPOT] (ms)", "tpot_mean_ms"),
    ):
        metrics.setdefault(ours, _printed(said, label))
    return _benchmark(
        1, metrics, said.get("Model", ""), said.get("TensorRT LLM Version")
        or said.get("TensorRT-LLM Version", ""),
        {name: _printed(said, f"{name.upper()} Size") for name in ("tp", "pp", "ep")},
        _printed(said, "Number of requests"), _printed(said, "Number of concurrent requests"),
        _printed(said, "Average Input Length (tokens)"),
        _printed(said, "Average Output Length (tokens)"), _printed(said, "Total Latency (ms)"),
    )  # fmt: skip


def _printed(said: Mapping[str, str], label: str) -> float:
    found = _NUMBER.match(said.get(label, ""))
    return number(found.group().replace(",", "")) if found else 0.0


def _benchmark(
    row: int, metrics: Mapping[str, float], model: str, version: str, degrees: Mapping[str, Any],
    requests: float, concurrency: float, input_len: float, output_len: float, total_ms: float,
) -> Benchmark:  # fmt: skip
    known = {name: int(number(degree)) for name, degree in degrees.items()}
    return Benchmark(
        row=row, metrics={name: value for name, value in metrics.items() if value > 0},
        model=model, engine="trtllm", version=version,
        parallel={n: d for n, d in known.items() if d > 1 or (n == "tp" and d)},
        arrival=arrival_of(None, max(concurrency, 1.0) if concurrency else None, int(requests)),
        requests=int(requests), seconds=total_ms / 1e3, input_len=input_len,
        output_len=output_len, flags=("mean_concurrency",) if concurrency else (),
    )  # fmt: skip
