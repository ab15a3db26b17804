"""``vllm bench serve --save-result``: one JSON object, or with ``--append-result`` one a line.

TPOT is (end to end - TTFT) / (output tokens - 1) of each request, then the statistic over
requests, as ours. ITL is the time between two chunks of the stream, of all requests together; a
chunk may carry several tokens (speculation), which makes it longer than TPOT.
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

_LATENCIES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e"}
_RATES = {"output_throughput": "output_tokens_per_s", "request_throughput": "requests_per_s"}
_ENGINES = {"tensorrt-llm": "trtllm", "sglang": "sglang", "vllm": "vllm", "openai": "vllm"}
"""Backend -> engine; any server may speak OpenAI's protocol, vLLM's most often (flagged)."""


@final
@importer
class VllmBench(Importer):
    """Results of ``vllm bench serve`` and of ``benchmark_serving.py`` before it."""

    name: ClassVar[str] = "vllm-bench"
    reads: ClassVar[str] = "vllm bench serve: result JSON, or one object a line"

    def recognises(self, source: Source) -> bool:
        """See :meth:`Importer.recognises`."""
        return source.is_json and source.holds('"model_id"', '"num_prompts"', '"request_rate"')

    def read(self, source: Source, options: Options) -> Reading:
        """See :meth:`Importer.read`."""
        found = [_benchmark(row, each) for row, each in source.objects()]
        return reading_of(found, source, options, "vllm bench serve")


def _benchmark(row: int, result: Mapping[str, Any]) -> Benchmark:
    completed = int(number(result.get("completed")))
    rate, limit = result.get("request_rate"), result.get("max_concurrency")
    backend = str(result.get("backend") or result.get("endpoint_type") or "")
    flags = ["engine_assumed"] if backend.startswith("openai") else []
    if number(rate) and number(rate) != float("inf") and limit:
        flags.append("concurrency_limited")
    if number(result.get("failed")):
        flags.append("failed_requests")
    metrics = latency_metrics(result, _LATENCIES)
    metrics |= {
        ours: number(result[name]) for name, ours in _RATES.items() if number(result.get(name))
    }
    return Benchmark(
        row=row, metrics=metrics if completed else {}, model=str(result.get("model_id") or ""),
        engine=_ENGINES.get(backend.removesuffix("-chat"), ""), requests=completed,
        seconds=number(result.get("duration")),
        arrival=arrival_of(
            rate, limit, int(number(result.get("num_prompts"))), result.get("burstiness", 1.0)
        ),
        input_len=_lengths(result, "input_lens", "total_input_tokens", completed),
        output_len=_lengths(result, "output_lens", "total_output_tokens", completed),
        flags=tuple(flags), name=str(result.get("label") or ""),
    )  # fmt: skip


def _lengths(result: Mapping[str, Any], each: str, total: str, completed: int) -> float | list[int]:
    """Of each request with ``--save-detailed`` where all succeeded, else their mean."""
    lengths = result.get(each)
    usable = isinstance(lengths, list) and len(lengths) == completed
    if usable and lengths and all(isinstance(x, int) and x > 0 for x in lengths):
        return list(lengths)
    return number(result.get(total)) / completed if completed else 0.0
