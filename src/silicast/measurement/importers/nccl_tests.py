"""nccl-tests: the tables that ``all_reduce_perf`` and its sisters print.

Sizes are the tool's own count: of an all-gather what a rank ends with, of a reduce-scatter what it
starts with. Both times of a row are kept, that in place flagged so.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator
from typing import final

from silicast.core.errors import unknown_name
from silicast.formats.engine_log import without_labels
from silicast.formats.source import Source
from silicast.measurement.importers.importer import FileReading, Importer, Options, session_of
from silicast.measurement.records.records import CollectiveRow, Columns, Protocol, Record, UnreadRow

_HEADER = re.compile(r"#\s+size\s+count\s+type(\s+redop)?(\s+root)?\s+time\s+algbw\s+busbw")
_RANK = re.compile(r"#\s+Rank\s+(\d+)\s.*?\bon\s+(\S+)\s+device\s+\S+\s+\[\S+\]\s+(.+)$")
_NAMED = re.compile(r"#.*?\b(\w+)_perf\b")
_WARM_UP = re.compile(r"warmup iters:\s*(\d+)\s+iters:\s*(\d+)")
_GRAPH = re.compile(r"graph:\s*(\d+)")
_OPS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "sendrecv": "send_recv",
}
_DTYPES = {
    "float": "fp32", "half": "fp16", "bfloat16": "bf16", "double": "fp64", "int8": "int8",
    "uint8": "int8", "int32": "int32", "uint32": "int32", "int64": "int64", "uint64": "int64",
    "fp8e4m3": "fp8", "f8e4m3": "fp8", "fp8e5m2": "fp8", "f8e5m2": "fp8",
}  # fmt: skip
_TIMES = {-8: "", -4: "in_place"}
"""The last eight cells are two times four (time, algbw, busbw, wrong): place and flag of each."""
LONGEST_US = 3.6e9
_FAILED = re.compile(r"Test (?:NCCL |CUDA )?failure\b|\bNCCL (?:error|failure)\b", re.IGNORECASE)
_LONGEST_REASON = 100
_LONGEST_SPEAKER = 40
"""Letters before a failure that are quoted: which rank tells it."""


@final
class _Test:
    """One run of one collective, filled line by line."""

    def __init__(self, op: str = "") -> None:
        self.op = op
        self.ranks: dict[int, tuple[str, str]] = {}
        self.graph = False
        self.warm_up = self.repeats = 0
        self.rows: list[tuple[int, list[str]]] = []
        self.failure = ""

    @property
    def per_node(self) -> int:
        """Ranks of one host, 0 if hosts differ."""
        hosts = [host for host, _ in self.ranks.values()]
        counts = {hosts.count(host) for host in hosts}
        return counts.pop() if len(counts) == 1 else 0


@final
class NcclTests(Importer):
    """What the tests print, of one test or of several after each other."""

    name = "nccl-tests"
    reads = "nccl-tests: what all_reduce_perf and its sisters print"

    def recognises(self, source: Source) -> bool:
        lines = without_labels(source.first_lines, _HEADER)
        return any(_HEADER.match(line.strip()) for line in lines)

    def read(self, source: Source, options: Options) -> FileReading:
        all_tests = list(_tests(source))
        tests = [test for test in all_tests if test.rows]
        if not tests:
            failure = next((test.failure for test in all_tests if test.failure), "")
            hint = f"the run failed: {failure}" if failure else "was it cut off?"
            raise source.error("holds no row of a test", "size", hint)
        protocol = Protocol(
            timer="nccl-tests",
            statistic="mean",
            warm_up=tests[0].warm_up,
            repeats=tests[0].repeats,
            launch="graph" if tests[0].graph else "stream",
        )
        session = session_of(
            source,
            options,
            "nccl-tests",
            protocol,
            reported={name for test in tests for _, name in test.ranks.values()},
            devices=max(len(test.ranks) for test in tests),
            notes=tuple(note for test in tests for note in _losses(test)),
        )
        records = [row for test in tests for row in _records(test, session.id, source, options)]
        read = sum(row.latency_us for row in records if isinstance(row, CollectiveRow))
        unread_us = sum(row.total_us for row in records if isinstance(row, UnreadRow))
        return FileReading(session, tuple(records), read + unread_us, read)


def _tests(source: Source) -> Iterator[_Test]:
    test, named = _Test(), ""
    for number, line in enumerate(without_labels(source.text().splitlines(), _HEADER), 1):
        words = line.strip()
        if words.startswith("# nThread"):
            yield test
            test, named = _Test(named), ""
            test.graph = bool(int(match[1])) if (match := _GRAPH.search(words)) else False
            if counts := _WARM_UP.search(words):
                test.warm_up, test.repeats = int(counts[1]), int(counts[2])
        elif match := _RANK.match(words):
            test.ranks[int(match[1])] = match[2], match[3].strip()
        elif match := _NAMED.match(words):
            named = _OPS.get(match[1], "")  # stands above the test that it is of
            if not test.rows:
                test.op = test.op or named
        elif words and words[0].isdigit() and len(words.split()) >= 11:
            test.rows.append((number, words.split()))
        elif match := _FAILED.search(words):
            start = max(match.start() - _LONGEST_SPEAKER, 0)
            test.failure = test.failure or words[start : start + _LONGEST_REASON]
    yield test


def _losses(test: _Test) -> Iterator[str]:
    """What of a test failed, for people."""
    wrong = sum(any(map(_is_wrong, (cells[-5], cells[-1]))) for _, cells in test.rows)
    if wrong:
        yield (
            f"{test.op or 'a collective'}: {wrong} of {len(test.rows)} sizes gave wrong results: "
            "their times calibrate and score nothing"
        )
    if test.failure:
        yield f"the test failed after {len(test.rows)} sizes: {test.failure}"


def _is_wrong(cell: str) -> bool:
    """Whether a cell counts wrong elements; "N/A" = nobody checked."""
    return cell.isdecimal() and int(cell) > 0


def _records(test: _Test, session: str, source: Source, options: Options) -> Iterator[Record]:
    gpus = options.fields.get("collective.gpus", len(test.ranks))
    if not isinstance(gpus, int) or gpus < 2:
        raise source.error(
            f"was run on {len(test.ranks)} devices, a collective takes at least 2",
            "Rank",
            "state them if the list of ranks was cut off: --set collective.gpus=8",
        )
    op = _op(test, gpus, source, options)
    launch = {"launch": "graph"} if test.graph else {}
    for line, cells in test.rows:
        size, dtype = _whole(cells[0], source, line), _DTYPES.get(cells[2], "")
        collective: Columns = {
            "op": op,
            "bytes": size,
            "gpus": gpus,
            "dtype": dtype,
            "implementation": "nccl",
            **launch,
        }
        for position, flag in _TIMES.items():
            if cells[position] == "N/A":
                continue
            took = _time(cells[position], source, line)
            if not dtype or size < 1 or took <= 0:
                name = f"{op} of {cells[0]} bytes of {cells[2]}"
                reason = "no bytes, or no time" if dtype else "a format that no scenario has"
                yield UnreadRow(session, name, 1, took, reason, line)
                continue
            row = 0 if flag else line  # one line is one row, and its time in place beside it
            flags = [flag] if flag else []
            flags += ["wrong_results"] if _is_wrong(cells[position + 3]) else []
            yield CollectiveRow(
                session, dict(collective), took, test.per_node, flags=flags, row=row
            )


def _op(test: _Test, gpus: int, source: Source, options: Options) -> str:
    """As stated, as the file names it, or as its bus bandwidth is counted."""
    names = ", ".join(_OPS.values())
    op = options.fields.get("collective.op", "")
    if op and op not in _OPS.values():
        raise unknown_name(f"unknown collective {op!r}", "--set collective.op", f"one of {names}")
    if op or test.op:
        return str(op or test.op)
    ratios = [ratio for _, cells in test.rows if (ratio := _ratio(cells)) is not None]
    if ratios and gpus > 2:
        ratio, share = statistics.median(ratios), (gpus - 1) / gpus
        if math.isclose(ratio, 2 * share, rel_tol=0.02):
            return "all_reduce"
        reduces = any({"sum", "prod", "max"} & set(cells) for _, cells in test.rows)
        if reduces and math.isclose(ratio, share, rel_tol=0.02):
            return "reduce_scatter"
    hint = f"--set collective.op=all_gather (or {names})"
    raise source.error("does not name its collective", "op", hint)


def _ratio(cells: list[str]) -> float | None:
    """Bus bandwidth over algorithm bandwidth, of rows large enough for their two digits."""
    try:
        algorithm, bus = float(cells[-7]), float(cells[-6])
    except ValueError:
        return None
    return bus / algorithm if algorithm > 1 else None


def _time(text: str, source: Source, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= LONGEST_US:
        raise source.error(f"has the time {text!r}, expected microseconds", f"line {line}")
    return value


def _whole(text: str, source: Source, line: int) -> int:
    if not text.isdigit() or len(text) > 18:
        raise source.error(f"has the size {text[:30]!r}, expected bytes", f"line {line}")
    return int(text)
