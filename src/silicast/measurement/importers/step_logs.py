"""Steps that an engine logs while it serves: as runs of task inference.

SGLang's ``Decode batch`` lines, vLLM's lines of statistics and of iterations
(``--enable-logging-iteration-details``), TensorRT-LLM's ``print_iter_log``, and Dynamo's
forward-pass metrics as JSON lines. A step of decodes alone is a decode step of that batch, a step
of prompts alone a prefill; others are counted and listed. A line of a mean over an interval counts
where the same batch ran all the time: the line before has as many requests, and no prompt came
between.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from silicast.formats.source import Source
from silicast.measurement.importers.importer import (
    FileReading,
    Importer,
    Options,
    gpus_of,
    session_of,
)
from silicast.measurement.records.records import (
    Columns,
    Protocol,
    Record,
    RepeatSpread,
    RunRow,
    UnreadRow,
)
from silicast.scenario.set_fields import with_fields

_WHOLE, _REAL = r"\d{1,12}", r"\d{1,12}(?:\.\d{1,12})?"
_SGLANG = re.compile(
    rf"Decode batch(?: \[\d+\])?[.,] #running-req: (?P<batch>{_WHOLE}), "
    rf"#(?:full )?token: (?P<held>{_WHOLE}),"
    rf"(?P<more>.*?)gen throughput \(token/s\): (?P<rate>{_REAL})"
)
_SGLANG_PROMPT = re.compile(r"Prefill batch")
_VLLM_MEANS = re.compile(
    rf"Avg prompt throughput: (?P<prompt>{_REAL}) tokens/s, "
    rf"Avg generation throughput: (?P<rate>{_REAL}) tokens/s, "
    rf"Running: (?P<batch>{_WHOLE}) reqs?,.*?KV cache usage: (?P<used>{_REAL})%"
)
_VLLM_CACHE = re.compile(r"GPU KV cache size: (?P<tokens>\d[\d,]{0,15}) tokens")
_VLLM_STEP = re.compile(
    rf"Iteration\(\d+\): (?P<prompts>{_WHOLE}) context requests, "
    rf"(?P<new>{_WHOLE}) context tokens, (?P<batch>{_WHOLE}) generation requests, "
    rf"\d+ generation tokens, iteration elapsed time: (?P<ms>{_REAL}) ms"
)
_TRTLLM_STEP = re.compile(
    rf"iter = \d+,.*?host_step_time = (?P<ms>{_REAL}) ?ms.*?"
    rf"'num_ctx_requests': (?P<prompts>{_WHOLE}), 'num_ctx_tokens': (?P<new>{_WHOLE}), "
    rf"'num_generation_tokens': (?P<batch>{_WHOLE})"
)
_DYNAMO = ("scheduled_requests", "wall_time", "num_decode_requests")
_ENGINES = (
    ("sglang", (_SGLANG,)),
    ("vllm", (_VLLM_MEANS, _VLLM_STEP)),
    ("trtllm", (_TRTLLM_STEP,)),
)
LONGEST_MS = 6e5
CONTEXTS_PER_DOUBLING = 4
"""Decode steps of one batch whose contexts differ by less are repeats of one another."""


@final
@dataclass(frozen=True)
class LoggedStep:
    """One step, or the mean of several like it.

    Attributes:
        batch: requests; context: tokens of each before the step, 0 = not logged.
        new: tokens of each prompt, 0 = a step of decodes.
        ms: what it took; line: of the file.
    """

    batch: int
    context: int
    new: int
    ms: float
    line: int


@final
class StepLogs(Importer):
    """Logs of engines that serve."""

    name = "engine-steps"
    reads = "step lines of the log of vLLM, SGLang or TensorRT-LLM; Dynamo's forward-pass metrics"

    def recognises(self, source: Source) -> bool:
        if source.is_json:
            return source.holds(*(f'"{name}"' for name in _DYNAMO))
        return any(
            kind.search(line)
            for line in source.first_lines
            for _, kinds in _ENGINES
            for kind in kinds
        )

    def read(self, source: Source, options: Options) -> FileReading:
        engine, steps, mixed_us = _steps(source)
        if not steps:
            hint = "steps of decodes alone or of prompts alone are read"
            raise source.error("holds no step that a scenario describes", "steps", hint)
        session = session_of(
            source,
            options,
            "engine log",
            Protocol(timer="engine log", launch="graph"),
            devices=gpus_of({"parallel": options.under("parallel")}),
        )
        options = Options(session.device, options.fields, session.id)
        records: list[Record] = list(_runs(engine, steps, source, options))
        if mixed_us:
            reason = "prompts and decodes in one step, or a mean over different batches"
            total = sum(mixed_us)
            records.append(UnreadRow(session.id, "mixed steps", len(mixed_us), total, reason))
        return FileReading(session, tuple(records))


def _steps(source: Source) -> tuple[str, list[LoggedStep], list[float]]:
    """The engine ("" = not named), its steps, and times in us of those that are none."""
    if source.is_json:
        return "", *_of_dynamo(source)
    lines = source.text().splitlines()
    for engine, kinds in _ENGINES:
        if any(kind.search(line) for line in lines for kind in kinds):
            read = {"sglang": _of_sglang, "vllm": _of_vllm, "trtllm": _of_trtllm}[engine]
            return engine, *read(lines)
    return "", [], []


def _of_sglang(lines: list[str]) -> tuple[list[LoggedStep], list[float]]:
    steps, mixed, before = [], [], 0
    for number, line in enumerate(lines, 1):
        if match := _SGLANG.search(line):
            batch, rate = int(match["batch"]), float(match["rate"])
            if rate and batch and "accept len" not in match["more"]:
                step = LoggedStep(batch, int(match["held"]) // batch, 0, batch / rate * 1e3, number)
                steps += [step] if before == batch else []
                mixed += [] if before == batch else [step.ms * 1e3]
            before = batch
        elif _SGLANG_PROMPT.search(line):
            before = 0
    return steps, mixed


def _of_vllm(lines: list[str]) -> tuple[list[LoggedStep], list[float]]:
    if any(_VLLM_STEP.search(line) for line in lines):
        return _of_iterations(lines, _VLLM_STEP)
    steps, mixed, before, cache = [], [], 0, 0
    for number, line in enumerate(lines, 1):
        if match := _VLLM_CACHE.search(line):
            cache = int(match["tokens"].replace(",", ""))
        elif match := _VLLM_MEANS.search(line):
            batch, rate = int(match["batch"]), float(match["rate"])
            alone = not float(match["prompt"])
            if rate and batch:
                context = int(float(match["used"]) / 100.0 * cache / batch)
                step = LoggedStep(batch, context, 0, batch / rate * 1e3, number)
                steps += [step] if before == batch and alone else []
                mixed += [] if before == batch and alone else [step.ms * 1e3]
            before = batch if alone else 0
    return steps, mixed


def _of_trtllm(lines: list[str]) -> tuple[list[LoggedStep], list[float]]:
    return _of_iterations(lines, _TRTLLM_STEP)


def _of_iterations(lines: list[str], kind: re.Pattern[str]) -> tuple[list[LoggedStep], list[float]]:
    """Steps that are logged one by one, without the contexts of their decodes."""
    steps, mixed = [], []
    for number, line in enumerate(lines, 1):
        if match := kind.search(line):
            prompts, new, batch = (int(match[name]) for name in ("prompts", "new", "batch"))
            ms = float(match["ms"])
            if batch and not prompts:
                steps.append(LoggedStep(batch, 0, 0, ms, number))
            elif prompts and not batch and new >= prompts:
                steps.append(LoggedStep(prompts, 0, new // prompts, ms, number))
            elif batch or prompts:
                mixed.append(ms * 1e3)
    return steps, mixed


def _of_dynamo(source: Source) -> tuple[list[LoggedStep], list[float]]:
    steps, mixed = [], []
    for number, each in source.objects():
        table = each.get("scheduled_requests")
        wall, counts = each.get("wall_time"), table if isinstance(table, dict) else {}
        if not isinstance(wall, (int, float)) or isinstance(wall, bool) or not counts:
            continue
        prompts, new, held, batch, context = (
            _count(counts, name)
            for name in (
                "num_prefill_requests",
                "sum_prefill_tokens",
                "sum_prefill_kv_tokens",
                "num_decode_requests",
                "sum_decode_kv_tokens",
            )
        )
        if batch and not prompts:
            steps.append(LoggedStep(batch, context // batch, 0, wall * 1e3, number))
        elif prompts and not batch and new >= prompts and not held:
            steps.append(LoggedStep(prompts, 0, new // prompts, wall * 1e3, number))
        elif batch or prompts:
            mixed.append(wall * 1e6)
    return steps, mixed


def _count(table: Mapping[str, Any], name: str) -> int:
    value = table.get(name)
    return int(value) if isinstance(value, (int, float)) and 0 <= value < 1e12 else 0


def _runs(
    engine: str, steps: list[LoggedStep], source: Source, options: Options
) -> Iterator[RunRow]:
    """Medians of the steps of one batch and context."""
    groups: dict[tuple[int, int, int], list[LoggedStep]] = defaultdict(list)
    for step in steps:
        if not 0.0 < step.ms < LONGEST_MS:
            raise source.error(f"has a step of {step.ms:.4g} ms", f"line {step.line}")
        near = round(CONTEXTS_PER_DOUBLING * np.log2(step.context)) if step.context else -1
        groups[step.batch, step.new, near].append(step)
    for (batch, new, _), group in sorted(groups.items()):
        times = [step.ms for step in group]
        context = int(statistics.median(step.context for step in group))
        metric = "prefill_ms" if new else "decode_step_ms"
        columns: Columns = {
            "format": 1,
            "task": "inference",
            "device": options.device,
            "engine": {"name": engine} if engine else {},
            "workload": {"batch": batch, "input_len": new or context, "output_len": 2},
        }
        scenario = with_fields(columns, options.fields)
        _require(scenario, source)
        spread = {}
        if len(times) > 1:
            low, high = np.quantile(times, [0.05, 0.95])
            spread[metric] = RepeatSpread(float(low), float(high), len(times))
        yield RunRow(
            options.session,
            {name: value for name, value in scenario.items() if value not in ("", {})},
            {metric: statistics.median(times)},
            spread=spread,
            name=f"{'prefill' if new else 'decode'} of {batch}",
            row=group[0].line,
        )


def _require(scenario: Columns, source: Source) -> None:
    hints = {
        "device": "--device h100",
        "model": "--set model=Llama-3.1-8B",
        "engine": "--set engine.name=vllm",
    }
    for name, hint in hints.items():
        if not scenario.get(name):
            raise source.error("is not in the log", name, hint)
    if not scenario["workload"]["input_len"]:
        hint = "--set workload.input_len=1024: tokens of a request before the step"
        raise source.error("is not in the log", "workload.input_len", hint)
