"""Runs of one file of a benchmark, as a reading."""

from __future__ import annotations

from collections.abc import Sequence

from silicast.core.errors import SilicastError
from silicast.measurement.importers.importer import Reading
from silicast.measurement.importers.options import Options
from silicast.measurement.importers.serving_runs import Benchmark, gpus_of, run_of
from silicast.measurement.importers.sessions import session_of
from silicast.measurement.importers.source import Source
from silicast.measurement.records import Protocol, RunRow

_ONE_DEVICE = "the file does not say the degrees: taken as one device (--set parallel.tp=2)"


def reading_of(
    benchmarks: Sequence[Benchmark], source: Source, options: Options, tool: str,
    notes: tuple[str, ...] = (),
) -> Reading:  # fmt: skip
    """All runs of one file.

    Raises:
        SilicastError: as :func:`run_of`, or there is none.
    """
    if not any(each.metrics or each.requests for each in benchmarks):
        raise SilicastError(
            f"holds no request and no metric of {tool}", file=str(source.path), field="file",
            hint="did every request fail?",
        )  # fmt: skip
    device = options.device or str(options.fields.get("device", ""))
    records = tuple(run_of(each, options.session, device, source, options) for each in benchmarks)
    said = any(each.parallel for each in benchmarks)
    if not said and not any(name.startswith("parallel") for name in options.fields):
        notes = (*notes, _ONE_DEVICE)
    gpus = [gpus_of(record.scenario) for record in records if isinstance(record, RunRow)]
    session = session_of(
        source, Options(device, options.fields, options.session), tool,
        devices=max(gpus, default=1), protocol=Protocol(timer=tool, statistic="as named"),
        notes=notes,
    )  # fmt: skip
    return Reading(session, records)
