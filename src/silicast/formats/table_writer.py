"""Tables as files: CSV, JSON Lines or Parquet, by the ending of the name."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from silicast.core.errors import SilicastError
from silicast.core.files import writing
from silicast.core.packages import missing_package

if TYPE_CHECKING:
    from silicast.core.numerics import F64, I64

ENDINGS: Final = (".csv", ".jsonl", ".parquet")
ROWS: Final = 4096
"""Written at once."""


def check_ending(path: Path, field: str) -> None:
    """Refuses a name whose ending says no format, or a format that nothing here writes.

    Raises:
        SilicastError: it does; names ``field`` and what to do.
    """
    if path.suffix not in ENDINGS:
        raise SilicastError(
            f"{path.name}: the ending {path.suffix!r} names no format of tables",
            field=field,
            hint=f"one of {', '.join(ENDINGS)}",
        )
    if path.suffix == ".parquet":
        pyarrow_for(field)


def write_table(path: Path, columns: Mapping[str, I64 | F64], field: str) -> None:
    """Writes columns of one length; the file appears when it is complete.

    Args:
        columns: name -> values; NaN = no value.
        field: the flag that asked for it.

    Raises:
        SilicastError: as :func:`check_ending`, or it cannot be written.
    """
    check_ending(path, field)
    if path.suffix == ".parquet":
        arrow: Any = pyarrow_for(field)
        table = arrow.table({n: arrow.array(v, from_pandas=True) for n, v in columns.items()})
        with writing(path) as file:
            arrow.parquet.write_table(table, file)
        return
    encode = _csv if path.suffix == ".csv" else _json
    with writing(path) as file:
        file.writelines(encode(columns))


def _csv(columns: Mapping[str, I64 | F64]) -> Iterator[bytes]:
    yield (",".join(columns) + "\n").encode()
    for rows in _rows(columns):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(
            ["" if value is None else value for value in row] for row in rows
        )
        yield text.getvalue().encode()


def _json(columns: Mapping[str, I64 | F64]) -> Iterator[bytes]:
    encoder = msgspec.json.Encoder()
    for rows in _rows(columns):
        yield encoder.encode_lines([dict(zip(columns, row, strict=True)) for row in rows])


def _rows(columns: Mapping[str, I64 | F64]) -> Iterator[list[list[Any]]]:
    """Rows of Python values, some at a time; None = no value. Times to the nanosecond."""
    count = len(next(iter(columns.values())))
    for first in range(0, count, ROWS):
        chunk = [_values(values[first : first + ROWS]) for values in columns.values()]
        yield [list(row) for row in zip(*chunk, strict=True)]


def _values(values: I64 | F64) -> list[Any]:
    if values.dtype.kind != "f":
        return list(values.tolist())
    return [None if math.isnan(v) else v for v in values.round(9).tolist()]


def pyarrow_for(field: str) -> Any:
    """The package pyarrow.

    Raises:
        SilicastError: it is not installed; names ``field``, which needs it.
    """
    try:
        import pyarrow
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError:
        raise missing_package("pyarrow", "Parquet", field, "write .csv or .jsonl") from None
    return pyarrow
