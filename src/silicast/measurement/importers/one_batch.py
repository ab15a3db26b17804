"""Tests of one static batch without a server, as runs of inference.

``python -m sglang.bench_one_batch``: the prefill, the median decode step, and the sum of the
prefill and all steps. What is printed states the tokens through rates: of prompts the prefill's, of
all tokens the total's. Warm-up passes before ``Benchmark ...`` do not count. ``vllm bench
latency``: the mean of the whole batch, whose sizes only the arguments state that it prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

from silicast.core.errors import SilicastError
from silicast.formats.source import Source
from silicast.measurement.importers.field_map import arguments_in
from silicast.measurement.importers.importer import (
    FileReading,
    Importer,
    Options,
    gpus_of,
    session_of,
)
from silicast.measurement.records.records import Columns, Protocol, RunRow
from silicast.scenario.set_fields import with_fields

_FIELDS = ("batch_size", "prefill_latency", "median_decode_latency")
_REAL = r"\d{1,12}(?:\.\d{1,12})?"
_TIME = rf"latency: +(?P<s>{_REAL}) s, (?:median )?throughput: +(?P<rate>{_REAL}) token/s"
_PREFILL = re.compile(rf"Prefill\. {_TIME}")
_STEP = re.compile(rf"Decode \d+\. Batch size: (?P<batch>\d{{1,9}}), {_TIME}")
_MEDIAN = re.compile(rf"Decode\. +median {_TIME}")
_TOTAL = re.compile(rf"Total\. {_TIME}")
_COUNTED = "Benchmark ..."
_MEAN = re.compile(rf"Avg latency: (?P<s>{_REAL}) seconds")
_DEFAULTS = {"batch": 8, "input_len": 32, "output_len": 128}
"""Sizes of ``vllm bench latency`` where its command states none (vllm 0.19.0)."""
_ARGUMENTS = {
    "workload.batch": "batch_size",
    "workload.input_len": "input_len",
    "workload.output_len": "output_len",
    "parallel.tp": "tensor_parallel_size",
    "parallel.pp": "pipeline_parallel_size",
}
"""Fields of a run -> arguments that ``vllm bench latency`` prints."""
LONGEST_S = 86400.0


@final
@dataclass(frozen=True)
class BatchTest:
    """One test: its sizes, its times in seconds (0 = not measured), and the line of the file."""

    batch: int
    input_len: int
    output_len: int
    prefill_s: float
    step_s: float
    total_s: float
    line: int


@final
class OneBatch(Importer):
    """What ``bench_one_batch`` writes and prints."""

    name = "sglang-one-batch"
    reads = "sglang.bench_one_batch: its JSON Lines, or what it prints"

    def recognises(self, source: Source) -> bool:
        if source.is_json:
            return source.holds(*(f'"{name}"' for name in _FIELDS))
        return source.holds("Prefill. latency:", "Total. latency:")

    def read(self, source: Source, options: Options) -> FileReading:
        tests = list(_written(source) if source.is_json else _printed(source))
        if not tests:
            raise source.error("holds no test of a batch", "Benchmark", "was it cut off?")
        session = session_of(
            source,
            options,
            self.name,
            Protocol(timer="perf_counter", launch="graph"),
            devices=gpus_of({"parallel": options.under("parallel")}),
        )
        options = Options(session.device, options.fields, session.id)
        return FileReading(session, tuple(_run(test, source, options, "sglang") for test in tests))


@final
class BatchLatency(Importer):
    """What ``vllm bench latency`` writes and prints."""

    name = "vllm-latency"
    reads = "vllm bench latency: its JSON, or what it prints"

    def recognises(self, source: Source) -> bool:
        if source.is_json:
            return source.holds('"avg_latency"', '"latencies"')
        return source.holds("Avg latency:", "% percentile latency:")

    def read(self, source: Source, options: Options) -> FileReading:
        printed = {} if source.is_json else arguments_in(source.text())
        options = _with_arguments(options, printed)
        stated = [name for name in _DEFAULTS if f"workload.{name}" in options.fields]
        assumed = ", ".join(f"workload.{n} = {_DEFAULTS[n]}" for n in _DEFAULTS if n not in stated)
        notes = [f"the file holds no sizes: the tool's defaults are taken, {assumed} (--set)"]
        session = session_of(
            source,
            options,
            self.name,
            Protocol(timer="perf_counter", statistic="mean", launch="graph"),
            devices=gpus_of({"parallel": options.under("parallel")}),
            notes=() if len(stated) == len(_DEFAULTS) else tuple(notes),
        )
        options = Options(session.device, options.fields, session.id)
        means = (_written_means if source.is_json else _printed_means)(source)
        tests = [BatchTest(**_DEFAULTS, prefill_s=0, step_s=0, total_s=s, line=n) for n, s in means]
        if not tests:
            raise source.error("holds no latency of a batch", "Avg latency", "was it cut off?")
        return FileReading(session, tuple(_run(test, source, options, "vllm") for test in tests))


def _with_arguments(options: Options, printed: Mapping[str, str]) -> Options:
    """Options, and what the arguments of the command state beside them."""
    fields: dict[str, Any] = {}
    for name, argument in _ARGUMENTS.items():
        value = printed.get(argument, "")
        if value.isdecimal() and 0 < int(value) < 1 << 31:
            fields[name] = int(value)
    if "model" in printed:
        fields["model"] = printed["model"]
    return replace(options, fields={**fields, **options.fields})


def _written_means(source: Source) -> Iterator[tuple[int, float]]:
    for number, each in source.objects():
        mean = each.get("avg_latency")
        if isinstance(mean, bool) or not isinstance(mean, int | float) or not mean > 0.0:
            raise SilicastError(
                f"row {number}: expected seconds above 0, found {mean!r:.20}",
                file=str(source.path),
                field="avg_latency",
            )
        yield number, float(mean)


def _printed_means(source: Source) -> Iterator[tuple[int, float]]:
    for number, line in enumerate(source.text().splitlines(), 1):
        if match := _MEAN.search(line):
            yield number, float(match["s"])


def _written(source: Source) -> Iterator[BatchTest]:
    for number, each in source.objects():
        sizes = [each.get(name) for name in ("batch_size", "input_len", "output_len")]
        whole = [size for size in sizes if type(size) is int and 0 < size < 1 << 31]
        if len(whole) < len(sizes):
            expected = "batch_size, input_len and output_len as whole numbers"
            raise source.error(f"row {number}: expected {expected}", "batch_size")
        names = ("prefill_latency", "median_decode_latency", "total_latency")
        seconds = [each.get(name) or 0.0 for name in names]
        times = [float(time) for time in seconds if isinstance(time, (int, float))]
        if len(times) < len(names):
            raise source.error(f"row {number}: expected seconds", "prefill_latency")
        batch, input_len, output_len = whole
        prefill, step, total = times
        yield BatchTest(batch, input_len, output_len, prefill, step, total, number)


def _printed(source: Source) -> Iterator[BatchTest]:
    lines = source.text().splitlines()
    start = next((n for n, line in enumerate(lines) if _COUNTED in line), -1) + 1
    prefill, step, batch, begun = None, 0.0, 0, 0
    for number, line in enumerate(lines[start:], start + 1):
        if match := _PREFILL.search(line):
            prefill, step, batch, begun = match, 0.0, 0, number
        elif match := _STEP.search(line):
            batch = int(match["batch"])
        elif match := _MEDIAN.search(line):
            step = float(match["s"])
        elif (match := _TOTAL.search(line)) and prefill is not None and batch:
            prompts = float(prefill["s"]) * float(prefill["rate"])
            total = float(match["s"])
            tokens = total * float(match["rate"])
            yield BatchTest(
                batch,
                max(round(prompts / batch), 1),
                max(round((tokens - prompts) / batch), 1),
                float(prefill["s"]),
                step,
                total,
                begun,
            )


def _run(test: BatchTest, source: Source, options: Options, engine: str) -> RunRow:
    times = {"prefill_ms": test.prefill_s, "decode_step_ms": test.step_s, "total_ms": test.total_s}
    for name, seconds in times.items():
        if not 0.0 <= seconds < LONGEST_S:
            raise source.error(f"{name} is {seconds:.4g} s", f"line {test.line}", "less than a day")
    columns: Columns = {
        "format": 1,
        "task": "inference",
        "device": options.device,
        "engine": {"name": engine},
        "workload": {
            "batch": test.batch,
            "input_len": test.input_len,
            "output_len": test.output_len,
        },
    }
    scenario = with_fields(columns, options.fields)
    for name, hint in (("device", "--device h100"), ("model", "--set model=Llama-3.1-8B")):
        if not scenario.get(name):
            raise source.error("is not in the file", name, hint)
    metrics = {name: seconds * 1e3 for name, seconds in times.items() if seconds > 0.0}
    if test.output_len < 2:
        metrics.pop("decode_step_ms", None)
    label = "batch {batch}, {input_len} in, {output_len} out".format(**scenario["workload"])
    return RunRow(options.session, scenario, metrics, name=label, row=test.line)
