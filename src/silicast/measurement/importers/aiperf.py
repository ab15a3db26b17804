"""AIPerf: ``profile_export_aiperf.json`` or ``.csv``.

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

_CSV = "Metric,avg,min,max,sum,p1"


@final
@importer
class Aiperf(Importer):
    """Results of ``aiperf profile``."""

    name: ClassVar[str] = "aiperf"
    reads: ClassVar[str] = "AIPerf: profile_export_aiperf.json, .csv"

    def recognises(self, source: Source) -> bool:
        """See :meth:`Importer.recognises`."""
        if source.is_json:
            named = source.holds('"aiperf_version"')
            return named or source.holds('"input_config"', '"loadgen"', '"request_latency"')
        return source.first_lines[:1] != () and source.first_lines[0].startswith(_CSV)

    def read(self, source: Source, options: Options) -> Reading:
        """See :meth:`Importer.read`."""
        if not source.is_json:
            tags = tags_of_csv(source)
            return reading_of([_benchmark(1, tags, {}, source)], source, options, "AIPerf")
        found = [_of_json(row, each, source) for row, each in source.objects()]
        return reading_of(found, source, options, "AIPerf")


def _of_json(row: int, result: Mapping[str, Any], source: Source) -> Benchmark:
    return _benchmark(row, tags_of(result), result, source)


def _benchmark(
    row: int, tags: Mapping[str, Mapping[str, Any]], result: Mapping[str, Any], source: Source
) -> Benchmark:
    config = result.get("input_config")
    rate, concurrency = _load(config)
    count = int(mean_of(tags, "request_count"))
    flags = []
    if result.get("was_cancelled"):
        flags.append("cancelled")
    if mean_of(tags, "error_request_count"):
        flags.append("failed_requests")
    return Benchmark(
        row=row, metrics=metrics_of(tags, source), model=_model(config),
        arrival=arrival_of(rate, concurrency, count), requests=count,
        seconds=mean_of(tags, "benchmark_duration"),
        input_len=mean_of(tags, "input_sequence_length"),
        output_len=mean_of(tags, "output_sequence_length"), flags=tuple(flags),
    )  # fmt: skip


def _model(config: Any) -> str:
    """The one model of a configuration, of either version of it."""
    names = first_of(config, "endpoint", "model_names")
    if not names:
        items = first_of(config, "models", "items") or first_of(config, "models")
        items = items if isinstance(items, list) else []
        names = [item.get("name") if isinstance(item, dict) else item for item in items]
    return str(names[0]) if isinstance(names, list) and len(names) == 1 else ""


def _load(config: Any) -> tuple[Any, Any]:
    """Rate and concurrency: of the load generator, or of the phase that is measured."""
    loadgen = first_of(config, "loadgen")
    if isinstance(loadgen, dict):
        return loadgen.get("request_rate"), loadgen.get("concurrency")
    phases = first_of(config, "phases")
    if isinstance(phases, dict):
        phases = [
            {"name": name, **phase} for name, phase in phases.items() if isinstance(phase, dict)
        ]
    measured = [
        phase
        for phase in (phases if isinstance(phases, list) else [])
        if isinstance(phase, dict) and "warmup" not in (phase.get("name"), phase.get("kind"))
        and not phase.get("exclude_from_results")
    ]  # fmt: skip
    if len(measured) != 1:
        return None, None
    return measured[0].get("rate"), measured[0].get("concurrency")
