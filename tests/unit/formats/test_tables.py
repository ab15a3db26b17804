"""Tables of every kind of file: the same rows, and refused before anything large is read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.formats.tables import open_table, read_table

ROWS = [{"op": "gemm", "m": 8, "us": 1.5, "graph": True}, {"op": "rope", "m": 9, "us": 2.5}]
CSV = "OP, m ,us,graph\ngemm,8,1.5,true\n\nrope,9,2.5,\n"
JSON = '{"op": "gemm", "m": 8, "us": 1.5, "graph": true}\n\n{"op": "rope", "m": 9, "us": 2.5}\n'


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_rows_do_not_depend_on_the_kind_of_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"table.{kind}"
    if kind == "parquet":
        pa = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pa.Table.from_pylist(ROWS), path)
    else:
        path.write_text(CSV if kind == "csv" else JSON)
    assert [(row.number, dict(row.values)) for row in read_table(path)] == [
        (1, ROWS[0]), (2, ROWS[1]),
    ]  # fmt: skip
    table = open_table(path)
    name = next(each for each in table.columns if each.strip() == "m")
    cells = [row and [int(cell) for cell in row if cell is not None] for _, row in
             table.rows([name, "absent"])]  # fmt: skip
    assert cells == [[8], [9]]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "a,b\n1,2\n1,2,3\n", "row 2: has more cells than the header"),
        ("a.csv", "a;b\n1;2\n", "not separated by commas"),
        ("a.csv", "a, A\n1,2\n", "has column 2 'a' twice"),
        ("a.csv", "a,b\n", "has no rows"),
        ("a.csv", b"a,b\n1,\xff\n", "no UTF-8 text"),
        ("a.jsonl", '{"a": 1}\nx\n', "row 2: is no JSON"),
        ("a.jsonl", "7\n", "line 1: is no JSON object"),
        ("a.parquet", "PAR1", "is no Parquet file"),
        ("a.xlsx", "", "unknown kind '.xlsx'"),
        ("a.jsonl", "x" * (5 << 20), "longer than 4194304 bytes"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, text: Any, said: str) -> None:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SilicastError) as caught:
        read_table(path)
    assert said in str(caught.value)
    assert caught.value.file == str(path)


def test_what_is_no_regular_file_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "table.csv")
    for path, kind in ((tmp_path / "table.csv", ""), (Path("/dev/zero"), ".jsonl")):
        with pytest.raises(SilicastError, match="no regular file") as caught:
            open_table(path, kind)
        assert caught.value.kind == "io"
