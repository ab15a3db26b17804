"""llama-bench: its tables (text, Markdown), CSV, JSON and JSON Lines, as runs of task inference.

A prompt ("pp512") is the prefill of a batch of one; tokens generated ("tg128") are its median
decode step; "pp512+tg128" is both in all. Either may come behind cached tokens ("@ d4096"). What no
scenario describes is listed.
"""

from __future__ import annotations

import csv
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, final

import msgspec

from silicast.core.catalog import CATALOG
from silicast.core.decode import Strict
from silicast.formats.source import Source
from silicast.measurement.importers.importer import FileReading, Importer, Options, session_of
from silicast.measurement.records.records import Columns, Protocol, Record, RunRow, UnreadRow
from silicast.scenario.set_fields import with_fields

FILE = CATALOG / "llama_bench.toml"
ENGINE = "llama.cpp"
HEADINGS = ("model", "size", "params", "test", "t/s")
FIELDS = ("build_commit", "model_type", "n_prompt", "n_gen", "avg_ts")
_DEVICE = re.compile(r"^\s*(?:Device \d+:|ggml_\w+_init: GPU name:|ggml_vulkan: \d+ =)\s*([^,(|]+)")
_BUILD = re.compile(r"^build:\s*\S+\s*\((\d+)\)")
_TEST = re.compile(r"(?:pp(\d+))?\+?(?:tg(\d+))?(?:\s*@\s*d(\d+))?")
PARAMETERS_AGREE = 0.02
OFF = ("0", "false", "off")
USUAL = "f16"
"""The tool's format of cached keys and of values."""
ALL_LAYERS = 99
"""Layers on the device from which on all of them are meant (the tool's own default)."""


@final
class LlamaBenchNames(Strict, frozen=True):
    """``catalog/llama_bench.toml``: names that the tool prints.

    Attributes:
        formats: of its formats -> mix.
        models: name -> (billions of parameters as printed, model of the catalog).
    """

    formats: dict[str, str]
    models: dict[str, tuple[float, str]]


@cache
def llama_bench_names() -> LlamaBenchNames:
    """The names that are known."""
    return msgspec.convert(tomllib.loads(FILE.read_text(encoding="utf-8")), LlamaBenchNames)


@final
@dataclass(frozen=True)
class LlamaBenchRow:
    """One test.

    Attributes:
        line: of the file; model: the model's type as printed, with its format.
        billions: parameters; rate: tokens per second.
        prompt, generated, depth: tokens; settings: further columns as text.
    """

    line: int
    model: str
    billions: float
    prompt: int
    generated: int
    depth: int
    rate: float
    settings: Mapping[str, str]
    device: str = ""


@final
class LlamaBench(Importer):
    """Everything that ``llama-bench -o`` writes."""

    name = "llama-bench"
    reads = "llama-bench: its table, CSV or JSON"

    def recognises(self, source: Source) -> bool:
        if source.is_json:
            return source.holds(*(f'"{field}"' for field in FIELDS[:2]))
        return any(_is_table(line) or _is_csv(line) for line in source.first_lines)

    def read(self, source: Source, options: Options) -> FileReading:
        rows, device, build = _content(source)
        if not rows:
            raise source.error("holds no test of llama-bench", "test", "was it cut off?")
        reported = {row.device for row in rows if row.device} or ({device} if device else set())
        counts = {names: names.count(",") + 1 for names in reported}
        reported = {kind.strip() for names in reported for kind in names.split(",")}
        session = session_of(
            source,
            options,
            "llama-bench",
            Protocol(timer="llama-bench", statistic="mean"),
            reported=reported,
            devices=max(_devices(row, counts.get(row.device or device, 1)) for row in rows),
            stack={"llama.cpp": build} if build else {},
        )
        options = Options(session.device, options.fields, session.id)
        records = tuple(
            _record(row, counts.get(row.device or device, 1), source, options) for row in rows
        )
        return FileReading(session, records)


def _is_table(line: str) -> bool:
    cells = _cells(line)
    return all(heading in cells for heading in HEADINGS)


def _is_csv(line: str) -> bool:
    return all(field in line for field in FIELDS) and "," in line


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _content(source: Source) -> tuple[list[LlamaBenchRow], str, str]:
    """The tests, the device and the build that the file names."""
    if source.is_json:
        objects = _objects(source)
        rows = [_of_fields(number, each, source) for number, each in objects]
        return rows, "", next((str(each.get("build_number", "")) for _, each in objects), "")
    lines = source.text().splitlines()
    if any(_is_csv(line) for line in lines):
        table = list(csv.DictReader(lines))
        rows = [_of_fields(number, each, source) for number, each in enumerate(table, 2)]
        return rows, "", next((str(each.get("build_number", "")) for each in table), "")
    devices = ", ".join(m[1].strip() for line in lines if (m := _DEVICE.match(line)))
    build = next((m[1] for line in lines if (m := _BUILD.match(line))), "")
    return list(_of_table(lines, source)), devices, build


def _objects(source: Source) -> list[tuple[int, dict[str, Any]]]:
    text = source.text().strip()
    if not text.startswith("["):
        return source.objects()
    try:
        tests = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise source.error(f"is no JSON: {error}", hint="was it cut off?") from None
    if not all(isinstance(each, dict) for each in tests):
        raise source.error("holds other things than tests", hint="llama-bench -o json")
    return list(enumerate(tests, 1))


def _of_table(lines: list[str], source: Source) -> Iterator[LlamaBenchRow]:
    headings: list[str] = []
    for number, line in enumerate(lines, 1):
        cells = _cells(line)
        if _is_table(line):
            headings = cells
        elif headings and line.strip().startswith("|") and not set(line) <= set("|-: "):
            if len(cells) != len(headings):
                raise source.error(
                    f"has {len(cells)} cells under {len(headings)} headings",
                    f"line {number}",
                    "was it cut off?",
                )
            row = dict(zip(headings, cells, strict=True))
            match = _TEST.fullmatch(row["test"])
            if match is None or not match.group(0):
                raise source.error(f"has the test {row['test']!r:.40}", f"line {number}", "pp512")
            prompt, generated, depth = (int(each or 0) for each in match.groups())
            yield LlamaBenchRow(
                number,
                row["model"],
                _number(row["params"].removesuffix("B"), "params", number, source),
                prompt,
                generated,
                depth,
                _number(re.split(r"±|\+/-", row["t/s"])[0], "t/s", number, source),
                row,
            )


def _of_fields(number: int, row: Mapping[str, Any], source: Source) -> LlamaBenchRow:
    for field in FIELDS:
        if row.get(field) in (None, ""):
            raise source.error("is missing", f"row {number}.{field}", "was it cut off?")
    prompt, generated, depth = (
        int(_number(row.get(field) or 0, field, number, source))
        for field in ("n_prompt", "n_gen", "n_depth")
    )
    names = {"n_gpu_layers": "ngl", "n_ubatch": "n_ubatch", "n_cpu_moe": "n_cpu_moe"}
    names |= {"type_k": "type_k", "type_v": "type_v", "backends": "backend"}
    names |= {"flash_attn": "fa", "split_mode": "sm"}
    return LlamaBenchRow(
        number,
        str(row["model_type"]),
        _number(row.get("model_n_params") or 0, "model_n_params", number, source) / 1e9,
        prompt,
        generated,
        depth,
        _number(row["avg_ts"], "avg_ts", number, source),
        {name: str(row[field]) for field, name in names.items() if row.get(field) is not None},
        str(row.get("gpu_info") or "").strip(),
    )


def _number(value: object, field: str, line: int, source: Source) -> float:
    try:
        number = float(str(value).strip())
    except ValueError:
        number = math.nan
    if not 0.0 <= number < 1e15:
        raise source.error(f"has {value!r:.40}, expected a number", f"line {line}.{field}")
    return number


def _record(row: LlamaBenchRow, devices: int, source: Source, options: Options) -> Record:
    """The run on so many devices, or why no scenario describes it."""
    tokens = row.prompt + row.generated
    label = f"{row.model} {f'pp{row.prompt}' if row.prompt else ''}"
    label += f"{f'tg{row.generated}' if row.generated else ''}"
    if row.rate <= 0.0 or not tokens:
        return UnreadRow(options.session, label, 1, 0.0, "no tokens, or none a second", row.line)
    seconds = tokens / row.rate
    reason = _why_not(row)
    if reason:
        return UnreadRow(options.session, label, 1, seconds * 1e6, reason, row.line)
    metrics = {"total_ms": seconds * 1e3}
    workload = {"batch": 1, "input_len": row.prompt, "output_len": row.generated + 1}
    if not row.generated:
        metrics = {"prefill_ms": seconds * 1e3}
    elif not row.prompt:
        metrics = {"decode_step_ms": 1e3 / row.rate}
        workload["input_len"] = max(row.depth, 1)
    if row.prompt and row.depth:
        workload["cached_len"] = row.depth
    columns: Columns = {
        "format": 1,
        "task": "inference",
        "device": options.device,
        "model": _model(row, source, options),
        "engine": {"name": ENGINE, "options": _options(row)},
        "precision": _precision(row, source, options),
        "workload": workload,
    }
    if (stages := _devices(row, devices)) > 1:
        columns["parallel"] = {"pp": stages}
    scenario = with_fields(columns, options.fields)
    return RunRow(options.session, scenario, metrics, name=label, row=row.line)


def _devices(row: LlamaBenchRow, listed: int) -> int:
    """Devices that hold the model, of those that the file lists."""
    return 1 if row.settings.get("sm", "") == "none" else listed


def _why_not(row: LlamaBenchRow) -> str:
    """Why no scenario describes a test; "" = one does."""
    if row.settings.get("ngl", "") == "0":
        return "no layer on the device (ngl = 0): measure it as a run of the CPU"
    return ""


def _split(row: LlamaBenchRow) -> tuple[str, str]:
    """The model's name and its mix, "" where one is not known."""
    names = llama_bench_names()
    for words, mix in sorted(names.formats.items(), key=lambda each: -len(each[0])):
        if row.model.endswith(f" {words}"):
            return row.model.removesuffix(words).strip(), mix
    return row.model, ""


def _model(row: LlamaBenchRow, source: Source, options: Options) -> str:
    model = options.fields.get("model")
    if model:
        return str(model)
    name, _ = _split(row)
    entry = llama_bench_names().models.get(name)
    if entry and abs(row.billions / entry[0] - 1.0) <= PARAMETERS_AGREE:
        return entry[1]
    raise source.error(
        f"has the model {name!r:.60} of {row.billions:.2f} B, which is in no table of names",
        f"line {row.line}.model",
        "state it: --set model=Llama-3.1-8B",
    )


def _options(row: LlamaBenchRow) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if (size := row.settings.get("n_ubatch", "")).isdigit():
        options["n_ubatch"] = int(size)
    layers, experts = row.settings.get("ngl", ""), row.settings.get("n_cpu_moe", "")
    if layers.isdigit() and int(layers) < ALL_LAYERS:
        options["n_gpu_layers"] = int(layers)
    if experts.isdigit() and int(experts):
        options["n_cpu_moe"] = int(experts)
    if row.settings.get("fa", "").casefold() in OFF:
        options["flash_attn"] = "off"
    if row.settings.get("sm", "") == "row":
        options["split_mode"] = "row"
    names = row.settings.get("backend", "").split(",")[0].strip().lower()
    backend = {"mtl": "metal"}.get(names, names)
    if backend in ("cuda", "rocm", "vulkan", "metal", "sycl"):
        options["backend"] = backend
    return options


def _precision(row: LlamaBenchRow, source: Source, options: Options) -> dict[str, str]:
    _, mix = _split(row)
    if not mix and "precision.weights" not in options.fields:
        raise source.error(
            f"has the format of {row.model!r:.60}, which is in no table of names",
            f"line {row.line}.model",
            "state it: --set precision.weights=Q4_K_M",
        )
    precision = {"weights": mix} if mix else {}
    cache = "/".join(_cached_in(row, name) for name in ("type_k", "type_v"))
    return precision | ({"kv_cache": cache} if cache != f"{USUAL}/{USUAL}" else {})


def _cached_in(row: LlamaBenchRow, name: str) -> str:
    cache_format = row.settings.get(name, "")
    return USUAL if cache_format in ("", "-") else cache_format
