"""SGLang's ``bench_serving``: one JSON object a line, appended run by run.

TPOT is (end to end - TTFT) / (output tokens - 1) of each request, as ours. ITL is per token: the
gap between two chunks is shared by the tokens of the second. ``server_info`` holds the model, the
degrees and the version of the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from silicast.measurement.importers.importer import Importer, Reading, importer
from silicast.measurement.importers.options import Options
from silicast.measurement.importers.serving_files import reading_of
from silicast.measurement.importers.serving_runs import (
    Benchmark,
    arrival_of,
    latency_metrics,
    number,
)
from silicast.measurement.importers.source import Source

_LATENCIES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e_latency": "e2e"}
_ENGINES = {"sglang": "sglang", "vllm": "vllm", "trt": "trtllm"}


@final
@importer
class SglangBench(Importer):
    """Results of ``python -m sglang.bench_serving``."""

    name: ClassVar[str] = "sglang-bench"
    reads: ClassVar[str] = "sglang.bench_serving: JSON Lines"

    def recognises(self, source: Source) -> bool:
        """See :meth:`Importer.recognises`."""
        return source.is_json and source.holds('"backend"', '"request_rate"', '"random_input_len"')

    def read(self, source: Source, options: Options) -> Reading:
        """See :meth:`Importer.read`."""
        found = [_benchmark(row, each) for row, each in source.objects()]
        return reading_of(found, source, options, "sglang.bench_serving")


def _benchmark(row: int, result: Mapping[str, Any]) -> Benchmark:
    completed = int(number(result.get("completed")))
    server = result.get("server_info")
    server = server if isinstance(server, dict) else {}
    backend = str(result.get("backend") or "").split("-", maxsplit=1)[0]
    rate, limit = result.get("request_rate"), result.get("max_concurrency")
    flags = []
    if number(rate) and number(rate) != float("inf") and limit:
        flags.append("concurrency_limited")
    if str(result.get("dataset_name", "")).startswith("random") and number(
        result.get("random_range_ratio", 1.0)
    ) not in (0.0, 1.0):
        flags.append("lengths_vary")
    metrics = latency_metrics(result, _LATENCIES)
    for name, ours in (("output_throughput", "output_tokens_per_s"),
                       ("request_throughput", "requests_per_s")):  # fmt: skip
        if number(result.get(name)):
            metrics[ours] = number(result[name])
    return Benchmark(
        row=row, metrics=metrics if completed else {}, model=str(server.get("model_path") or ""),
        engine=_ENGINES.get(backend, ""), version=str(server.get("version") or ""),
        parallel=_degrees(server), requests=completed, seconds=number(result.get("duration")),
        arrival=arrival_of(rate, limit, completed),
        input_len=number(result.get("total_input_tokens")) / max(completed, 1),
        output_len=number(result.get("total_output_tokens")) / max(completed, 1),
        flags=tuple(flags), name=str(result.get("tag") or ""),
    )  # fmt: skip


def _degrees(server: Mapping[str, Any]) -> dict[str, int]:
    """Degrees as a scenario counts them: with attention in parts, a part's own."""
    tp, dp = (int(number(server.get(name))) for name in ("tp_size", "dp_size"))
    found = {"pp": int(number(server.get("pp_size"))), "ep": int(number(server.get("ep_size")))}
    if server.get("enable_dp_attention") and dp > 1 and tp % dp == 0:
        found |= {"tp": tp // dp, "attention_dp": dp}
    else:
        found["tp"] = tp
    return {n: degree for n, degree in found.items() if degree > 1 or (n == "tp" and degree)}
