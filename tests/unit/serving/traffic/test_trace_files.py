"""Trace files: their kinds and columns, and what happens to bad rows."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.formats.tables import MOST_LINE_BYTES
from silicast.serving.traffic.requests import Requests
from silicast.serving.traffic.trace_files import read_trace
from silicast.serving.traffic.trace_rows import BLOCK_TOKENS, TraceRule

DATA = Path(os.environ.get("SILICAST_DATA") or Path(__file__).parents[5] / "shared" / "data")
GOOD = [(0.5, 100, 10), (0.5, 200, 20), (2.25, 300, 30)]
EXPECTED = ([0, 0, 1_750_000_000], [100, 200, 300], [10, 20, 30])


def jsonl(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path = path / "trace.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def text(path: Path, content: str, name: str = "trace.csv") -> Path:
    (path / name).write_text(content)
    return path / name


def found(requests: Requests) -> tuple[list[int], list[int], list[int]]:
    return (
        requests.arrival_ns.tolist(),
        requests.input_tokens.tolist(),
        requests.output_tokens.tolist(),
    )


@pytest.mark.parametrize(
    ("columns", "unit"),
    [
        (("arrival_s", "input_len", "output_len"), 1.0),
        (("ARRIVAL_MS", "Input_Tokens", "Output_Tokens"), 1e3),
        (("arrival_time_ns", "input_toks", "output_toks"), 1e9),
        (("timestamp", "input_length", "output_length"), 1e3),
        (("Timestamp", "Request tokens", "Response tokens"), 1.0),
        (("arrived_at", "num_prefill_tokens", "num_decode_tokens"), 1.0),
    ],
)
def test_columns_of_published_traces_are_known(
    tmp_path: Path, columns: tuple[str, str, str], unit: float
) -> None:
    rows = [(time * unit, first, second) for time, first, second in GOOD]
    lines = "\n".join(",".join(map(str, row)) for row in rows)
    csv = text(tmp_path, f"{','.join(columns)},model\n{lines}\n")
    assert found(read_trace(csv).requests) == EXPECTED
    objects = [dict(zip(columns, row, strict=True)) for row in rows]
    assert found(read_trace(jsonl(tmp_path, objects)).requests) == EXPECTED


def test_dates_are_read(tmp_path: Path) -> None:
    path = text(
        tmp_path,
        "\ufeffTIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        "2023-11-16 23:59:59.5000000,100,10\r\n2023-11-16 23:59:59.5,200,20\r\n"
        "2023-11-17T00:00:01.2500000,300,30\r\n",
    )
    assert found(read_trace(path).requests) == EXPECTED


def test_parquet_is_read(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    times, first, second = zip(*GOOD, strict=True)
    for name, column in {
        "arrival_s": times,
        "arrived_at": pa.array([round(t * 1e9) for t in times], pa.duration("ns")),
        "arrival_ms": pa.array([1000 + round(t * 1e3) for t in times], pa.timestamp("ms")),
    }.items():
        table = pa.table({name: column, "input_tokens": first, "output_tokens": second, "x": first})
        pq.write_table(table, tmp_path / "trace.parquet")
        assert found(read_trace(tmp_path / "trace.parquet").requests) == EXPECTED


def test_parquet_without_its_reader_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    path = text(tmp_path, "PAR1", "trace.parquet")
    with pytest.raises(SilicastError, match=r"silicast\[data\]") as error:
        read_trace(path)
    assert (error.value.kind, error.value.file) == ("unsupported", str(path))


def test_block_hashes_become_what_prompts_share(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 0, "input_length": 1300, "output_length": 5, "hash_ids": [7, 8, 9]},
        {"timestamp": 9, "input_length": 1024, "output_length": 5, "hash_ids": [7, 8]},
        {"timestamp": 9, "input_length": 80, "output_length": 5, "hash_ids": []},
    ]
    content = read_trace(jsonl(tmp_path, rows)).requests.content
    assert content is not None
    assert content.prompt(0) == [(7, BLOCK_TOKENS), (8, BLOCK_TOKENS), (9, 1300 - 1024)]
    assert content.prompt(1) == [(7, BLOCK_TOKENS), (8, BLOCK_TOKENS)]
    assert content.prompt(2) == []
    quoted = text(tmp_path, 'timestamp,input_length,output_length,hash_ids\n0,1300,5,"[7, 8, 9]"\n')
    again = read_trace(quoted).requests.content
    assert again is not None
    assert again.prompt(0) == content.prompt(0)


def test_prefixes_have_a_name_and_a_length(tmp_path: Path) -> None:
    row: dict[str, Any] = {"arrival_s": 0, "input_len": 50, "output_len": 5}
    rows = [{**row, "prefix": "a", "prefix_len": 20}, row, {**row, "prefix": "b"}]
    content = read_trace(jsonl(tmp_path, rows), TraceRule(prefix_tokens=400)).requests.content
    assert content is not None
    assert [content.prompt(i) for i in range(3)] == [[(0, 20)], [], [(1, 50)]]
    with pytest.raises(SilicastError, match=r"line 3, prefix: has no length"):
        read_trace(jsonl(tmp_path, rows))


BAD_CELLS = [
    ("arrival_s", "", "is missing"),
    ("arrival_s", "soon", "is no number"),
    ("arrival_s", "nan", "is not finite"),
    ("arrival_s", "-1", "is below zero"),
    ("arrival_s", "0.25", "is before that of the row above"),
    ("arrival_s", "1e300", "is more than a century away"),
    ("input_len", "", "is missing"),
    ("input_len", "0", "is below 1 token"),
    ("input_len", "-5", "is below 1 token"),
    ("input_len", "1.5", "is no whole number"),
    ("input_len", "inf", "is no whole number"),
    ("output_len", "many", "is no number"),
    ("output_len", "1e12", "is above 100000000 tokens"),
]


@pytest.mark.parametrize(("column", "cell", "wrong"), BAD_CELLS)
def test_a_bad_row_is_refused_and_named_or_skipped_and_counted(
    tmp_path: Path, column: str, cell: str, wrong: str
) -> None:
    bad = {"arrival_s": "1", "input_len": "7", "output_len": "7", column: cell}
    lines = [",".join(map(str, row)) for row in GOOD]
    lines[2:2] = [",".join(bad.values())] * 2
    path = text(tmp_path, "\n".join(("arrival_s,input_len,output_len", *lines, "")))
    with pytest.raises(SilicastError) as error:
        read_trace(path)
    assert error.value.file == str(path)
    assert error.value.field == f"line 4, {column}"
    assert error.value.message.startswith(wrong)
    assert f"2 of 5 rows are bad (2 {column} {wrong})" in error.value.hint
    assert 'bad_rows = "skip"' in error.value.hint
    trace = read_trace(path, TraceRule(skip=True))
    assert found(trace.requests) == EXPECTED
    (remark,) = trace.remarks
    assert f"2 of 5 rows are left out (2 {column} {wrong})" in remark
    assert "line 4" in remark


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ({"input_length": True}, "input_length"),
        ({"timestamp": None}, "timestamp"),
        ({"timestamp": [1]}, "timestamp"),
        ({"hash_ids": [1, 2, 3]}, "hash_ids"),
        ({"hash_ids": [1.5]}, "hash_ids"),
        ({"hash_ids": [1 << 70]}, "hash_ids"),
        ({"hash_ids": "abc"}, "hash_ids"),
        ({"prefix": "a", "prefix_len": 700}, "prefix_len"),
        ({"prefix": "a", "prefix_len": 0}, "prefix_len"),
    ],
)
def test_bad_values_of_json_are_named(tmp_path: Path, row: dict[str, Any], column: str) -> None:
    good = {"timestamp": 0, "input_length": 600, "output_length": 3}
    path = jsonl(tmp_path, [good, {**good, **row}])
    with pytest.raises(SilicastError) as error:
        read_trace(path)
    assert error.value.field == f"line 2, {column}"
    assert len(read_trace(path, TraceRule(skip=True)).requests) == 1


def test_broken_lines_are_counted_too(tmp_path: Path) -> None:
    good = '{"arrival_s": 1, "input_len": 2, "output_len": 3}'
    path = text(tmp_path, f"{good}\n\n{{oops\n[1]\n{good}\n", "trace.jsonl")
    with pytest.raises(SilicastError, match=r"line 3, row: is not readable"):
        read_trace(path)
    trace = read_trace(path, TraceRule(skip=True))
    assert (len(trace.requests), "2 of 4 rows" in trace.remarks[0]) == (2, True)


def test_a_trace_without_a_good_row_is_refused_all_the_same(tmp_path: Path) -> None:
    for rows in ("", "1,0,3\n2,0,3\n"):
        path = text(tmp_path, f"arrival_s,input_len,output_len\n{rows}")
        with pytest.raises(SilicastError, match=r"has no rows|2 of 2 rows are bad"):
            read_trace(path, TraceRule(skip=True))


@pytest.mark.parametrize(
    ("content", "name", "match"),
    [
        ("a,b\n1,2\n", "trace.csv", "no columns of lengths; found a, b"),
        ("timestamp,input_len,output_len\n0,1,1\n", "trace.csv", "whose unit is known"),
        ("input_len,output_len\n1,1\n", "trace.csv", "no column of times"),
        ("", "trace.csv", "no columns of lengths"),
        ("", "trace.jsonl", "no columns of lengths; found none"),
        ("nonsense\n", "trace.jsonl", "line 1: is no JSON object"),
        ("x", "trace.txt", "unknown kind '.txt'"),
        ("x", "trace.parquet", "is no Parquet file"),
        ("x" * (MOST_LINE_BYTES + 2), "trace.jsonl", "line 1: is longer than"),
        ('arrival_s,input_len,output_len\n"' + "x" * 140_000, "trace.csv", "is no CSV"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, content: str, name: str, match: str) -> None:
    with pytest.raises(SilicastError, match=match) as error:
        read_trace(text(tmp_path, content, name))
    assert error.value.file == str(tmp_path / name)


def test_missing_files_and_folders_are_errors_of_reading(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    for name in ("none.csv", "folder.csv"):
        with pytest.raises(SilicastError) as error:
            read_trace(tmp_path / name)
        assert error.value.kind == "io"


def test_the_first_rows_are_those_of_the_whole_and_no_more_is_read(tmp_path: Path) -> None:
    path = text(tmp_path, "arrival_s,input_len,output_len\n1,2,3\n2,4,5\n3,oops,5\n")
    assert found(read_trace(path, TraceRule(first=2)).requests) == ([0, 10**9], [2, 4], [3, 5])


def test_lengths_need_no_times(tmp_path: Path) -> None:
    path = text(tmp_path, "arrival_s,input_len,output_len\n,2,3\n-4,4,5\n")
    assert found(read_trace(path, timed=False).requests) == ([0, 0], [2, 4], [3, 5])
    path = text(tmp_path, "input_len,output_len\n2,3\n")
    assert found(read_trace(path, timed=False).requests) == ([0], [2], [3])


def test_memory_grows_by_the_numbers_alone(tmp_path: Path) -> None:
    """A row costs its numbers: far less than 300 MB for a million requests."""
    import tracemalloc

    rows = 40_000
    lines = "".join(f"{at / 10},{at % 900 + 1},7\n" for at in range(rows))
    path = text(tmp_path, f"arrival_s,input_len,output_len\n{lines}")
    read_trace(path)  # what is imported and cached once
    tracemalloc.start()
    trace = read_trace(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(trace.requests) == rows
    assert most / rows < 100


def test_the_curated_traces_are_read_whole() -> None:
    pytest.importorskip("pyarrow")
    path = DATA / "serving" / "mooncake_traces_with_block_hashes.parquet"
    if not path.exists():
        pytest.skip(f"no measured tables: {path} is missing; set SILICAST_DATA")
    requests = read_trace(path, TraceRule(first=12_031)).requests
    assert requests.content is not None
    ends = requests.content.offsets
    assert len(requests.content.segments) == ends[-1]
    sums = np.add.reduceat(requests.content.tokens, ends[:-1])
    assert (sums == requests.input_tokens).all()
