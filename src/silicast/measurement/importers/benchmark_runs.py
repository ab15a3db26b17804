"""Benchmarks of servers as runs: a scenario of the task ``serving`` and what was measured of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, final

from silicast.core.errors import SilicastError
from silicast.formats.source import Source
from silicast.measurement.importers.field_map import Field, FieldMap, Result, number
from silicast.measurement.importers.importer import (
    FileReading,
    Importer,
    Options,
    from_catalog,
    gpus_of,
    session_of,
)
from silicast.measurement.records.records import Columns, Protocol, RunRow, UnreadRow
from silicast.scenario.decode import decode
from silicast.scenario.resolve import find_any_model
from silicast.scenario.set_fields import with_fields

LONGEST_MS = 8.64e7
"""A day."""
MOST_VALUES = 4096
"""Lengths that are listed; of more requests the mean stands for them."""
_ONE_DEVICE = "the file does not hold the degrees: taken as one device (--set parallel.tp=2)"
_AT_ONCE = (
    "the table does not state how requests came: taken as all at once "
    "(--set workload.arrival.concurrency=8)"
)
MANY_FAILED = 0.01
"""Share of requests from which on those that were answered stand for another load."""
_HINTS = {
    "device": "--device h100",
    "model": "--set model=Llama-3.1-8B",
    "engine": "--set engine.name=vllm",
    "workload.arrival": "--set workload.arrival.concurrency=8, or ...rate_per_s=4",
    "workload.input_len": "--set workload.input_len=1024",
    "workload.output_len": "--set workload.output_len=128",
}
"""Fields that a run needs -> how to state them."""


@final
class BenchmarkTool(Importer):
    """The importer of a tool that has a field map."""

    def __init__(self, name: str, field_map: FieldMap) -> None:
        self.name, self.reads, self.map = name, field_map.reads, field_map

    @classmethod
    def instances(cls) -> list[Importer]:
        """One for each field map."""
        return [cls(*each) for each in from_catalog("field_maps", FieldMap).items()]

    def recognises(self, source: Source) -> bool:
        return any(file.recognises(source) for file in self.map.files)

    def read(self, source: Source, options: Options) -> FileReading:
        tool = self.map.tool
        runs = [
            _ServingRun(row, Result(self.map, x), source) for row, x in self.map.documents(source)
        ]
        if not any(run.metrics or run.requests for run in runs):
            none = f"holds no request and no metric of {tool}"
            raise source.error(none, hint="did every request fail?")
        device = options.device or str(options.fields.get("device", ""))
        options = Options(device, options.fields, options.session)
        records = tuple(run.row_of(options) for run in runs)
        states_degrees = any(name.startswith("parallel") for name in options.fields)
        notes = [] if states_degrees or any(run.degrees for run in runs) else [_ONE_DEVICE]
        if not any(name.startswith("workload.arrival") for name in options.fields):
            notes += [_AT_ONCE] if any(run.is_assumed for run in runs) else []
        notes += [note for run in runs for note in run.losses()]
        gpus = [gpus_of(record.scenario) for record in records if isinstance(record, RunRow)]
        session = session_of(
            source,
            options,
            tool,
            devices=max(gpus, default=1),
            notes=tuple(notes),
            protocol=Protocol(timer=tool, statistic="as named"),
        )
        return FileReading(session, records)


@final
class _ServingRun:
    """One result as a run of serving."""

    def __init__(self, row: int, result: Result, source: Source) -> None:
        self.row, self.result, self.source = row, result, source
        self.requests = result.count("requests") or self._completed()
        self.name = result.text("name") or f"run {row}"
        self.is_assumed = result.is_assumed("rate_per_s") and not result.number("concurrency")
        self.degrees = self._degrees()
        self.metrics: dict[str, float] = {}
        if self.requests != 0 or result.value("requests") is None:  # some were completed
            rates = {
                "output_tokens_per_s": result.number("output_tokens_per_s"),
                "requests_per_s": result.number("requests_per_s"),
            }
            latencies = result.latencies_ms(source)
            self.metrics = {n: value for n, value in (latencies | rates).items() if value > 0}

    def _completed(self) -> int:
        """Requests by their rate and that of their tokens, where they are not counted; 0 = not
        known.
        """
        if self.result.value("requests") is not None:
            return 0
        tokens, rate = self.result.number("output_tokens"), self.result.number("requests_per_s")
        token_rate = self.result.number("output_tokens_per_s")
        whole = tokens * rate / token_rate if token_rate > 0 else 0.0
        return round(whole) if math.isfinite(whole) else 0

    def row_of(self, options: Options) -> RunRow | UnreadRow:
        """The run with its scenario; one that measured nothing is listed.

        Raises:
            SilicastError: neither the file nor the options hold what a scenario needs, or a time
                cannot be true; names the field and how to state it.
        """
        name = self.name
        if not self.metrics:
            reason = "holds no metric" if self.requests else "no request was completed"
            spent = self.result.number("duration_s") * 1e6 + self.result.number("duration_ms") * 1e3
            return UnreadRow(options.session, name, max(self.requests, 0), spent, reason, self.row)
        for metric, value in self.metrics.items():
            if metric.endswith("_ms") and value > LONGEST_MS:
                long = f"{metric} is {value:.4g} ms, more than a day"
                raise self.source.error(long, f"row {self.row}", "is the unit right?")
        scenario = self._scenario(options)
        _check(scenario, self.source)
        return RunRow(
            options.session,
            scenario,
            self.metrics,
            flags=list(self._flags()),
            name=name,
            row=self.row,
        )

    def _scenario(self, options: Options) -> Columns:
        """What the file holds, with what the user states instead."""
        rows = ("collective.", "kernel.")
        fields = {n: v for n, v in options.fields.items() if not n.startswith(rows)}
        fields_of_tool = self.result.map
        name = self._engine_in(fields_of_tool.engines) or self._engine_in(
            fields_of_tool.assumed_engines
        )
        engine: Columns = {
            "name": name or fields_of_tool.engine,
            "version": self.result.text("version"),
        }
        if fields_of_tool.boundary == "engine":
            engine["options"] = {"http_server": False}
        columns: Columns = {
            "format": 1,
            "task": "serving",
            "device": options.device,
            "model": self.result.text("model"),
            "engine": {n: x for n, x in engine.items() if x},
            "parallel": self.degrees,
            "workload": self._traced(fields)
            or {"arrival": self._arrival(), "requests": self.requests, **self._lengths()},
        }
        for kind, name in (("closed", "concurrency"), ("poisson", "rate_per_s")):
            if f"workload.arrival.{name}" in fields:
                columns["workload"]["arrival"] = {"kind": kind}
                break
        if "engine" in fields:
            columns.pop("engine")
        columns = with_fields(columns, fields)
        if not columns["workload"].get("requests", True):
            del columns["workload"]["requests"]
        return {name: value for name, value in columns.items() if value not in ("", {})}

    def _engine_in(self, engines: dict[str, str]) -> str:
        backend = self.result.text("engine").casefold()
        matching = (
            engine for name, engine in engines.items() if f"{backend}-".startswith(f"{name}-")
        )
        return next(matching, "")

    def _degrees(self) -> dict[str, int]:
        """Degrees as a scenario counts them: with attention in parts, a part's own."""
        degrees = {n: self.result.count(n) for n in ("tp", "pp", "ep", "attention_dp")}
        tp, dp = degrees["tp"], degrees.pop("attention_dp")
        if dp > 1 and tp % dp == 0:
            degrees |= {"tp": tp // dp, "attention_dp": dp}
        return {n: degree for n, degree in degrees.items() if degree > 1 or (n == "tp" and degree)}

    def _arrival(self) -> Columns:
        """How requests come: at a rate, or so many at a time."""
        rate, mean = self.result.number("rate_per_s"), self.result.number("mean_concurrency")
        if even := self.result.number("even_rate_per_s"):
            return {"kind": "gamma", "rate_per_s": even, "cv": 0.0}
        concurrency = self.result.number("concurrency") or (max(mean, 1.0) if mean else 0.0)
        if rate and math.isfinite(rate):
            shape = self.result.number("burstiness") or 1.0
            columns: Columns = {"kind": "poisson", "rate_per_s": rate}
            if not math.isclose(shape, 1.0):
                columns = {"kind": "gamma", "rate_per_s": rate, "cv": shape**-0.5}
            if concurrency >= 1 and math.isfinite(concurrency) and not mean:
                columns["concurrency"] = round(concurrency)
            return columns | ({"exact_rate": True} if self.result.map.exact_rate else {})
        if concurrency >= 1 and math.isfinite(concurrency):
            return {"kind": "closed", "concurrency": round(concurrency)}
        sent = self.result.count("sent") or self.requests
        at_once = rate == math.inf or self.result.map.at_once
        return {"kind": "closed", "concurrency": sent} if at_once and sent else {}

    def _traced(self, fields: Columns) -> Columns:
        """Requests that came by themselves, each when it was sent; {} where that is not known.

        Under a limit of those in flight requests are sent when answers came: no trace tells when
        they would be sent otherwise.
        """
        limited = self.result.number("concurrency") or self.result.number("mean_concurrency")
        limited = limited or any(name.startswith("workload.") for name in fields)
        rows = zip(
            *(self._of_each(name) for name in ("start_times", "input_lens", "output_lens")),
            strict=False,
        )
        result = sorted(rows, key=lambda row: row[0])
        if limited or not result or any(min(row[1:]) < 1 for row in result):
            return {}
        first = result[0][0]
        trace = [[round(start - first, 6), *lengths] for start, *lengths in result]
        return {"arrival": {"kind": "trace", "rows": trace}}

    def _of_each(self, name: Field) -> list[Any]:
        """A number of each request, [] where the file does not list that of every one."""
        values = self.result.members(name)
        whole = len(values) == self.requests <= MOST_VALUES
        kinds = (int, float) if name == "start_times" else (int,)
        return values if whole and all(type(x) in kinds for x in values) else []

    def _lengths(self) -> Columns:
        """Those of each request, or the range that they were drawn from, or their means."""
        ratio = number(self.result.value("range_ratio"))
        most = {
            "input_len": self.result.count("most_input"),
            "output_len": self.result.count("most_output"),
        }
        each = {
            "input_len": self._length("input_lens", "input_tokens", "input_len"),
            "output_len": self._length("output_lens", "output_tokens", "output_len"),
        }
        listed = self._of_each("input_lens") and self._of_each("output_lens")
        if listed or ratio is None or not 0.0 <= ratio < 1.0 or min(most.values()) < 1:
            return each
        return {**most, "range_ratio": ratio}

    def _length(self, each: Field, total: Field, mean: Field) -> Any:
        """Mean tokens of a request, or those of each where the file lists all."""
        lens = self.result.members(each)
        if lens and len(lens) == self.requests and all(isinstance(x, int) and x > 0 for x in lens):
            if len(set(lens)) == 1:
                return lens[0]
            if len(lens) <= MOST_VALUES:
                return {"kind": "values", "values": lens}
        tokens = self.result.count(total)
        return (
            round(tokens / self.requests) if tokens and self.requests else self.result.count(mean)
        )

    @property
    def failed(self) -> int:
        """Requests that were sent and not answered."""
        sent = self.result.count("sent")
        unanswered = sent - self.requests if self.result.value("requests") is not None else 0
        counts = [number(value) or 0.0 for value in self.result.members("failed_counts")]
        by_kind = sum(value for value in counts if math.isfinite(value))
        named = sum(1 for text in self.result.members("errors") if text)
        return max(self.result.count("failed"), unanswered, int(by_kind), named, 0)

    def losses(self) -> Iterator[str]:
        """What a reader must know of requests that were not answered."""
        doubt = "what was measured is of another load than was sent"
        if self.result.value("cancelled"):
            yield f"{self.name} was cancelled: {doubt}"
        if self.failed:
            total = max(self.requests + self.failed, self.result.count("sent"))
            yield f"{self.name}: {self.failed} of {total} requests failed: {doubt}"
        if (left := self.result.count("incomplete")) > 0:
            yield f"{self.name}: {left} requests were under way when it ended, and are not counted"

    def _flags(self) -> list[str]:
        result = self.result
        doubts = {
            "engine_assumed": bool(self._engine_in(result.map.assumed_engines)),
            "cancelled": bool(result.value("cancelled")),
            "failed_requests": self.failed > 0,
            "many_failed": self.failed > MANY_FAILED * (self.requests + self.failed),
            "incomplete_requests": result.count("incomplete") > 0,
            "mean_concurrency": result.number("mean_concurrency") > 0,
        }
        return [flag for flag, holds in doubts.items() if holds]


def _check(scenario: Columns, source: Source) -> None:
    """Rejects a scenario that cannot be predicted, and names how to complete it."""
    engine = scenario.get("engine")
    needed = {
        "device": scenario.get("device"),
        "model": scenario.get("model"),
        "engine": engine.get("name") if isinstance(engine, dict) else engine,
        **{f"workload.{name}": value for name, value in scenario["workload"].items()},
    }
    for name, hint in _HINTS.items():
        if not needed.get(name, True):  # a trace holds the lengths
            raise source.error("is not in the file", name, hint)
    folder = source.path.absolute().parent
    try:
        decode(scenario, folder=folder)
        find_any_model(scenario["model"], folder)
    except SilicastError as error:
        hints = dict.fromkeys((error.hint, _HINTS.get(error.field, "")))
        hint = "; ".join(hint for hint in hints if hint)
        raise source.error(error.message, error.field, hint, error.kind) from None
