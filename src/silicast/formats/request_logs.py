"""Requests that other tools logged: spans of OpenTelemetry, conversations of ShareGPT, traces of
agents, and the histograms that vLLM and SGLang show at ``/metrics``.

Texts have no token counts: they are taken as :data:`CHARACTERS` characters a token, which is usual
for English and wrong for other languages and code.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from silicast.core.errors import SilicastError
from silicast.core.files import read_text
from silicast.formats.agent_traces import is_agent_trace, read_agent_traces
from silicast.formats.logged_requests import LoggedRequest, RequestLog

MOST_BYTES: Final = 1 << 30
CHARACTERS: Final = 4.0
MOST_COUNTED: Final = 100_000
"""Requests that stand for those of a histogram, which has counted since its server started."""
LONGEST: Final = 1 << 30
INPUTS: Final = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
OUTPUTS: Final = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
SESSIONS: Final = ("gen_ai.conversation.id", "session.id")
"""Attributes of spans: the names of the semantic conventions of OpenTelemetry, old and new."""
HISTOGRAMS: Final = {
    "input": ("vllm:request_prompt_tokens", "sglang:prompt_tokens_histogram"),
    "output": ("vllm:request_generation_tokens", "sglang:generation_tokens_histogram"),
}
HITS: Final = ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total")
HIT_RATE: Final = "sglang:cache_hit_rate"
_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)")
_BUCKET = re.compile(r'le="([^"]+)"')


def read_request_log(path: Path) -> RequestLog | None:
    """The requests of a log; None where the file is none of these kinds.

    Args:
        path: a file, or a folder of traces of agents, one a file (``*.json``).

    Raises:
        SilicastError: it cannot be read, or is of a kind and has no request.
    """
    if path.is_dir():
        return _folder(path)
    if path.suffix.casefold() in (".csv", ".parquet"):
        return None
    text = read_text(path, MOST_BYTES, "a log of requests")
    if re.search(r"^(vllm|sglang):", text, re.MULTILINE):
        return _metrics(text, path)
    documents = _documents(text)
    if any(isinstance(document, Mapping) and "resourceSpans" in document for document in documents):
        return _spans(documents, path)
    rows = documents[0] if len(documents) == 1 and isinstance(documents[0], list) else documents
    if rows and is_agent_trace(rows[0]):
        return read_agent_traces(rows, path)
    if rows and isinstance(rows[0], Mapping) and "conversations" in rows[0]:
        return _conversations(rows, path)
    return None


def _folder(path: Path) -> RequestLog:
    files = sorted(path.glob("*.json"))
    if not files:
        raise SilicastError("holds no .json file", kind="io", file=str(path))
    rows = list[Any]()
    for file in files:
        documents = _documents(read_text(file, MOST_BYTES, "a trace"))
        if not documents or not all(map(is_agent_trace, documents)):
            raise SilicastError(
                "expected a trace of an agent: a JSON table with requests and block_size",
                kind="io",
                file=str(file),
                hint="mend the file, or take it out of the folder",
            )
        rows += documents
    return read_agent_traces(rows, path)


def _documents(text: str) -> list[Any]:
    """A JSON document, or one a line; [] where it is neither."""
    try:
        return [msgspec.json.decode(text)]
    except msgspec.DecodeError:
        pass
    try:
        return [msgspec.json.decode(line) for line in text.splitlines() if line.strip()]
    except msgspec.DecodeError:
        return []


def _spans(documents: Sequence[Any], path: Path) -> RequestLog:
    requests = []
    for span in _each_span(documents, path):
        attributes = _tables(span, "attributes", path)
        values = {
            str(attribute.get("key")): _value(attribute.get("value")) for attribute in attributes
        }
        counts = [_first(values, names) for names in (INPUTS, OUTPUTS)]
        if any(count is None for count in counts):
            continue
        try:
            prompt, output = (int(count) for count in counts if count is not None)
            start, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
        except (KeyError, TypeError, ValueError) as error:
            raise SilicastError(
                f"a span has no whole number: {error}", kind="io", file=str(path)
            ) from None
        if prompt < 1 or output < 1:
            continue
        session = _first(values, SESSIONS) or span.get("traceId", "")
        requests.append(LoggedRequest(prompt, output, start, end, str(session)))
    if not requests:
        raise SilicastError(
            f"no span has {INPUTS[0]} and {OUTPUTS[0]}",
            kind="io",
            file=str(path),
            hint="export the spans of calls of a model",
        )
    return RequestLog("spans of OpenTelemetry", _in_order(requests))


def _each_span(documents: Sequence[Any], path: Path) -> Iterator[Mapping[str, Any]]:
    for document in documents:
        for resource in _tables(document, "resourceSpans", path):
            for scope in _tables(resource, "scopeSpans", path):
                yield from _tables(scope, "spans", path)


def _tables(table: Any, field: str, path: Path) -> list[Mapping[str, Any]]:
    """What a field lists; [] where it is missing or null."""
    listed = table.get(field) if isinstance(table, Mapping) else table
    if listed is None and isinstance(table, Mapping):
        return []
    if not isinstance(listed, list) or not all(isinstance(row, Mapping) for row in listed):
        raise SilicastError("expected a list of tables", kind="io", file=str(path), field=field)
    return listed


def _value(value: Any) -> Any:
    """Of an attribute, which names its type: ``{"intValue": "12"}``."""
    return next(iter(value.values()), None) if isinstance(value, Mapping) else value


def _first(values: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((values[name] for name in names if values.get(name) is not None), None)


def _in_order(requests: Sequence[LoggedRequest]) -> tuple[LoggedRequest, ...]:
    return tuple(sorted(requests, key=lambda request: request.start_ns or 0))


def _conversations(rows: Sequence[Any], path: Path) -> RequestLog:
    """A request for every answer; its prompt is all that came before it."""
    requests = []
    for row in rows:
        before = 0.0
        for turn in _tables(row, "conversations", path):
            tokens = len(str(turn.get("value", ""))) / CHARACTERS
            if turn.get("from") in ("gpt", "assistant") and before and tokens:
                requests.append(LoggedRequest(max(round(before), 1), max(round(tokens), 1)))
            before += tokens
    if not requests:
        raise SilicastError("no conversation has an answer", kind="io", file=str(path))
    remark = f"texts are taken as {CHARACTERS:g} characters a token; no times are known"
    return RequestLog("conversations of ShareGPT", tuple(requests), None, (remark,))


def _metrics(text: str, path: Path) -> RequestLog:
    """Requests in the middle of their buckets, as many as the histograms count."""
    counts: dict[str, dict[float, float]] = {}
    values: dict[str, float] = {}
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is None:
            continue
        name, labels, number = match.groups()
        try:
            value = float(number)
        except ValueError:
            continue
        if not 0.0 <= value < math.inf:
            continue
        bucket = _BUCKET.search(labels or "")
        if name.endswith("_bucket") and bucket is not None:
            edge = _edge(bucket.group(1), name, path)
            table = counts.setdefault(name.removesuffix("_bucket"), {})
            table[edge] = table.get(edge, 0.0) + value
        else:
            values[name] = values.get(name, 0.0) + value
    inputs, outputs = (_lengths(counts, names, path) for names in HISTOGRAMS.values())
    if not inputs or not outputs:
        names = " and ".join(histogram[0] for histogram in HISTOGRAMS.values())
        raise SilicastError(
            f"no request is counted in {names}",
            kind="io",
            file=str(path),
            hint="after some traffic",
        )
    share = values.get(HIT_RATE)
    if all(name in values for name in HITS) and values[HITS[1]] > 0.0:
        share = values[HITS[0]] / values[HITS[1]]
    shuffled = [outputs[index * 7919 % len(outputs)] for index in range(len(outputs))]
    pairs = zip(inputs, shuffled, strict=False)
    remarks = [
        "lengths are known by buckets only, and inputs apart from outputs; no times are known"
    ]
    if len(inputs) >= MOST_COUNTED:
        remarks.append(f"about {MOST_COUNTED:,} requests stand for all that are counted")
    return RequestLog(
        "histograms of /metrics",
        tuple(LoggedRequest(*pair) for pair in pairs),
        share,
        tuple(remarks),
    )


def _edge(text: str, name: str, path: Path) -> float:
    """The longest length of a bucket, tokens."""
    try:
        edge = float(text)
    except ValueError:
        edge = math.nan
    if not (0.0 <= edge <= LONGEST or edge == math.inf):
        raise SilicastError(
            f"expected an edge from 0 to {LONGEST:,} tokens, found {text[:40]!r}",
            kind="io",
            file=str(path),
            field=name,
        )
    return edge


def _lengths(
    counts: Mapping[str, Mapping[float, float]], names: Sequence[str], path: Path
) -> list[int]:
    """Lengths spread evenly over the buckets of a histogram; the last bucket is at its start. Of
    more than :data:`MOST_COUNTED` requests so many stand for all.

    Raises:
        SilicastError: counts fall from a bucket to the next.
    """
    name = next((name for name in names if name in counts), "")
    table = counts.get(name, {})
    edges = sorted(table)
    totals = [table[edge] for edge in edges]
    if totals != sorted(totals):
        raise SilicastError(
            "counts of its buckets fall, but each has those of all below it",
            kind="io",
            file=str(path),
            field=f"{name}_bucket",
            hint="is the text whole, and of one scrape?",
        )
    scale = max(max(totals, default=0.0) / MOST_COUNTED, 1.0)
    lengths: list[int] = []
    low, before = 0.0, 0
    for edge in edges:
        count = round(table[edge] / scale) - before
        high = low if edge == float("inf") else edge
        lengths += [max(round(low + (high - low) * (i + 0.5) / count), 1) for i in range(count)]
        low, before = high, before + count
    return lengths
