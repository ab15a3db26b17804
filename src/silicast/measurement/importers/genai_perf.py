"""GenAI-Perf: ``profile_export_genai_perf.json`` or ``.csv``.

The CSV holds neither the model nor the load: they are stated with ``--set``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from silicast.measurement.importers.importer import Importer, Reading, importer
from silicast.measurement.importers.options import Options
from silicast.measurement.importers.perf_metrics import (
    first_of,
    mean_of,
    metrics_of,
    tags_of,
    tags_of_csv,
)
from silicast.measurement.importers.serving_files import reading_of
from silicast.measurement.importers.serving_runs import Benchmark, arrival_of
from silicast.measurement.importers.source import Source

_ENGINES = {"vllm": "vllm", "tensorrtllm": "trtllm"}
"""Backends of Triton's server, which mean nothing for other endpoints."""
_CSV = "Metric,avg,min,max,p99,p95,p90"


@final
@importer
class GenaiPerf(Importer):
    """Results of ``genai-perf profile``."""

    name: ClassVar[str] = "genai-perf"
    reads: ClassVar[str] = "GenAI-Perf: profile_export_genai_perf.json, .csv"

    def recognises(self, source: Source) -> bool:
        """See :meth:`Importer.recognises`."""
        if source.is_json:
            own = source.holds('"input_config"') or source.holds('"time_to_second_token"')
            newer = source.holds('"aiperf_version"') or source.holds('"loadgen"')
            return own and source.holds('"request_latency"') and not newer
        return source.first_lines[:1] != () and source.first_lines[0].startswith(_CSV)

    def read(self, source: Source, options: Options) -> Reading:
        """See :meth:`Importer.read`."""
        if not source.is_json:
            tags = tags_of_csv(source)
            return reading_of([_benchmark(1, tags, {}, source)], source, options, "GenAI-Perf")
        found = [
            _benchmark(row, tags_of(each), first_of(each, "input_config"), source)
            for row, each in source.objects()
        ]
        return reading_of(found, source, options, "GenAI-Perf")


def _benchmark(
    row: int, tags: Mapping[str, Mapping[str, Any]], config: Any, source: Source
) -> Benchmark:
    names = first_of(config, "model_names") or first_of(config, "model") or ""
    stimulus = first_of(config, "perf_analyzer", "stimulus")
    concurrency = first_of(stimulus, "concurrency") or first_of(config, "concurrency")
    rate = first_of(stimulus, "request_rate") or first_of(config, "request_rate")
    endpoint = first_of(config, "endpoint") or {}
    own = first_of(endpoint, "service_kind") == "triton" and first_of(endpoint, "type") == "kserve"
    backend = str(first_of(endpoint, "backend") or "") if own else ""
    count = requests_of(tags)
    return Benchmark(
        row=row, metrics=metrics_of(tags, source),
        model=str(names[0] if isinstance(names, list) and names else names or ""),
        engine=_ENGINES.get(backend.casefold().replace("_", "").replace("-", ""), ""),
        arrival=arrival_of(rate, concurrency, count), requests=count,
        input_len=mean_of(tags, "input_sequence_length"),
        output_len=mean_of(tags, "output_sequence_length"),
    )  # fmt: skip


def requests_of(tags: Mapping[str, Mapping[str, Any]]) -> int:
    """Completed requests, 0 where the file does not say how many."""
    return int(mean_of(tags, "request_count"))
