"""Files that `silicast serve` writes beside its answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from cyclopts import Parameter

from silicast.app.console import warn

if TYPE_CHECKING:
    from silicast.scenario.answers.serving.served import Served


@final
@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OutputFlags:
    """What is written beside the answer.

    Attributes:
        requests_out: a row for each request; .csv, .jsonl or .parquet.
        steps_out: a row for each step, or stretch of decode steps; .csv, .jsonl or .parquet.
        trace_out: the timeline of steps and requests, for ui.perfetto.dev.
        metrics_out: the metrics that the engine would export, in Prometheus' text format.
    """

    requests_out: Path | None = None
    steps_out: Path | None = None
    trace_out: Path | None = None
    metrics_out: Path | None = None

    @property
    def asked(self) -> bool:
        """Whether any file is to be written."""
        return any((self.requests_out, self.steps_out, self.trace_out, self.metrics_out))


def check_outputs(wanted: OutputFlags, engine: str) -> None:
    """Refuses what could not be written, before anything is simulated.

    Raises:
        SilicastError: an ending that names no format of tables, a format whose package is not
            there, or an engine whose metrics are not known.
    """
    if wanted.metrics_out is not None:
        from silicast.serving.statistics.exported import metric_names

        metric_names(engine)

    for flag, path in (("--requests-out", wanted.requests_out), ("--steps-out", wanted.steps_out)):
        if path is not None:
            from silicast.formats.table_writer import check_ending

            check_ending(path, flag)


def write_outputs(served: Served, wanted: OutputFlags) -> None:
    """Writes what was asked for, each file as a whole; says so on stderr.

    Raises:
        SilicastError: one cannot be written, or the engine's metrics are not known.
    """
    if not wanted.asked:
        return
    from silicast.core.files import write_atomically
    from silicast.formats.table_writer import write_table
    from silicast.serving.statistics.tables import requests_table, steps_table

    if wanted.requests_out is not None:
        table = requests_table(served.records)
        write_table(wanted.requests_out, table, "--requests-out")
        _said(wanted.requests_out, len(table["request"]), "requests")
    if wanted.steps_out is not None:
        table = steps_table(served.records)
        write_table(wanted.steps_out, table, "--steps-out")
        _said(wanted.steps_out, len(table["replica"]), "rows of steps")
    if wanted.trace_out is not None:
        import msgspec

        from silicast.report.drawing.trace import trace_document

        document = trace_document(served.trace())
        write_atomically(wanted.trace_out, msgspec.json.encode(document))
        count = len(document["traceEvents"])
        warn(f"{wanted.trace_out}: {count:,} events; open it at https://ui.perfetto.dev")
    if wanted.metrics_out is not None:
        text = served.exposition()
        write_atomically(wanted.metrics_out, text.encode())
        _said(wanted.metrics_out, len(text.splitlines()), "lines")


def _said(path: Path, count: int, kind: str) -> None:
    warn(f"{path}: {count:,} {kind}")
