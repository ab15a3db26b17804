"""Measured tables as groups of rows that ran the same kernel."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from lab.scorecard.rows import Mask, MeasuredRows, Sizes, Words
from silicast.core.numerics import F64, I64
from silicast.workload.graphs.op import OpBatch, Variant

AIC = "aiconfigurator/"
CONTINUED = {"aiconfigurator": "aiconfigurator_2", "kernels_nvidia": "kernels_nvidia_l4"}
"""Folder or file (without its ending) -> the one that holds more rows of the same columns."""
AIC_DEVICES = {
    "a100_sxm": "A100-SXM-80GB",
    "h100_sxm": "H100-SXM-80GB",
    "h200_sxm": "H200-SXM-141GB",
    "l40s": "L40S",
    "b200_sxm": "B200-SXM-180GB",
    "gb200": "GB200",
    "b300_sxm": "B300-SXM-288GB",
    "rtx_pro_6000_server": "RTX PRO 6000 Blackwell Server",
}
"""aiconfigurator's name of a system -> device. Its Intel card is in suite other_vendors."""
CAMPAIGN = ("system", "backend", "version", "kernel_source")

Ops = tuple[OpBatch, Mask, I64]
"""Ops of some rows of a group, whether each is held out, and which rows they are."""
Lower = Callable[[Words, Sizes], Iterable[Ops]]


@final
@dataclass(frozen=True)
class Table:
    """A table of aiconfigurator.

    Attributes:
        name: of the file, without its ending.
        words: columns of text beside the campaign; rows that share them ran the same kernel.
        sizes: columns of integers.
        lower: the ops of a group of rows; none of what is left out, with the reason.
    """

    name: str
    words: tuple[str, ...]
    sizes: tuple[str, ...]
    lower: Lower

    @property
    def path(self) -> str:
        """Of the file in the data folder."""
        return f"{AIC}{self.name}.parquet"


def ops(family: str, variant: Variant, dims: Mapping[str, Any], held_out: Mask) -> list[Ops]:
    """All rows of a group as ops of one variant; dimensions are arrays, or one number for all."""
    count = len(held_out)
    arrays = {
        name: np.full(count, size, dtype=np.int64)
        if isinstance(size, int)
        else np.ascontiguousarray(size, dtype=np.int64)
        for name, size in dims.items()
    }
    return [(OpBatch(family, variant, arrays), held_out, np.arange(count))]


def campaign_variant(words: Words, dtype: str, kv_dtype: str = "", **flags: bool) -> Variant:
    """A variant of the campaign's library, version and kernel, replayed in a graph."""
    return Variant(
        dtype,
        kv_dtype,
        words["backend"],
        words["version"],
        words["kernel_source"],
        "graph",
        "",
        tuple(sorted(flags.items())),
    )


def read_table(
    data: Path,
    table: Table,
    *,
    filters: Any = None,
    repeats: Repeats | None = None,
    rows: Callable[[Any], I64] | None = None,
    choose: Callable[[Sizes], I64] | None = None,
    words: Sequence[str] = (),
) -> Iterator[MeasuredRows]:
    """The rows of a table on known devices, by campaign and words, sorted.

    Args:
        data: the data folder.
        table: which table.
        filters: of pyarrow, on its rows.
        repeats: how rows of equal sizes become one; None = they stay apart.
        rows: which rows of the whole table are read; None = all.
        choose: which rows of a group are taken, by their sizes; None = all.
        words: columns that tell kernels apart, in the order that rows are sorted by; by default
            those of the campaign and then the table's.
    """
    words = words or (*CAMPAIGN, *table.words)
    read = read_arrow(data / table.path, [*words, *table.sizes, "latency_us"], filters)
    if rows is not None:
        read = read.take(rows(read))
    for named, columns in groups(read, words, (*table.sizes, "latency_us")):
        if named["system"] not in AIC_DEVICES:
            continue
        named["table"] = table.name
        micros = columns.pop("latency_us").astype(np.float64)
        chosen = np.arange(len(micros)) if choose is None else choose(columns)
        if not len(chosen):
            continue
        sizes = {name: column[chosen] for name, column in columns.items()}
        sizes, seconds, noise = (repeats or each_row)(sizes, micros[chosen])
        for batch, held, index in table.lower(named, sizes):
            yield MeasuredRows(
                batch,
                AIC_DEVICES[named["system"]],
                seconds[index],
                held,
                named,
                None if noise is None else noise[index],
            )


Repeats = Callable[[Sizes, F64], tuple[dict[str, I64], F64, F64 | None]]
"""Sizes and microseconds to distinct sizes, seconds, and the relative spread of repeats."""


def each_row(sizes: Sizes, micros: F64) -> tuple[dict[str, I64], F64, None]:
    """Rows of equal sizes stay apart."""
    return dict(sizes), micros * 1e-6, None


def mean_of_repeats(sizes: Sizes, micros: F64) -> tuple[dict[str, I64], F64, None]:
    """Distinct sizes, sorted, with the mean of their times."""
    distinct, positions = _distinct(sizes)
    return distinct, np.bincount(positions, weights=micros) / np.bincount(positions) * 1e-6, None


def median_of_repeats(sizes: Sizes, micros: F64) -> tuple[dict[str, I64], F64, F64]:
    """Distinct sizes, sorted, with the median of their times and the mean distance to it."""
    distinct, positions = _distinct(sizes)
    order = np.argsort(positions, kind="stable")
    parts = np.split(micros[order] * 1e-6, np.cumsum(np.bincount(positions))[:-1])
    medians = np.array([float(np.median(part)) for part in parts])
    noise = np.array(
        [
            float(np.mean(np.abs(part / middle - 1.0))) if len(part) > 1 else np.nan
            for part, middle in zip(parts, medians, strict=True)
        ]
    )
    return distinct, medians, noise


def _distinct(sizes: Sizes) -> tuple[dict[str, I64], I64]:
    """Distinct combinations of sizes, and which of them each row has."""
    columns = np.stack(list(sizes.values()))
    distinct, positions = np.unique(columns, axis=1, return_inverse=True)
    return dict(zip(sizes, np.ascontiguousarray(distinct), strict=True)), positions.reshape(-1)


def files_of(path: Path) -> list[Path]:
    """A table's file, and that of its further rows where there is one; see :data:`CONTINUED`."""
    folder, stem = (CONTINUED.get(name, name) for name in (path.parent.name, path.stem))
    more = path.parent.with_name(folder) / f"{stem}{path.suffix}"
    return [path, more] if more != path and more.is_file() else [path]


def read_arrow(path: Path, columns: Sequence[str] | None = None, filters: Any = None) -> Any:
    """Some columns of a table as one of Arrow, all if none are named."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = columns if columns is None else list(dict.fromkeys(columns))
    parts = [pq.read_table(file, columns=names, filters=filters) for file in files_of(path)]
    return pa.concat_tables(parts).unify_dictionaries()


def column_names(path: Path) -> list[str]:
    """The columns of a Parquet file."""
    import pyarrow.parquet as pq

    return list(pq.read_schema(path).names)


def read_columns(path: Path, names: Sequence[str], filters: Any = None) -> dict[str, NDArray[Any]]:
    """Columns of a table as arrays; rows restricted by pyarrow's ``filters``."""
    table = read_arrow(path, names, filters)
    return {name: np.asarray(table[name].to_numpy(zero_copy_only=False)) for name in names}


def read_records(path: Path, **equal: str) -> list[dict[str, Any]]:
    """Rows of a table as dictionaries; those whose columns have the values of ``equal``."""
    filters = [(name, "=", value) for name, value in equal.items()] or None
    return list(read_arrow(path, filters=filters).to_pylist())


def csv_records(path: Path) -> Iterator[dict[str, str]]:
    """Rows of a CSV file, which may be compressed."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def groups(
    table: Any, words: Sequence[str], others: Sequence[str]
) -> Iterator[tuple[dict[str, str], dict[str, NDArray[Any]]]]:
    """(words, other columns) of each combination of words that occurs, sorted.

    Args:
        table: of Arrow.
        words: columns of text.
        others: columns of numbers or text; integers may be kept as text.
    """
    code = np.zeros(len(table), dtype=np.int64)
    known = []
    for word in words:
        values, which = coded(table[word])
        known.append(values)
        code = code * len(values) + which
    columns = {name: _values(table[name]) for name in others}
    order = np.argsort(code, kind="stable")
    distinct, starts = np.unique(code[order], return_index=True)
    positions = np.unravel_index(distinct, [len(values) for values in known])
    for group, rows in enumerate(np.split(order, starts[1:])):
        named = {
            word: values[position[group]]
            for word, values, position in zip(words, known, positions, strict=True)
        }
        yield named, {name: column[rows] for name, column in columns.items()}


def coded(column: Any) -> tuple[list[str], I64]:
    """Distinct texts of an Arrow column, sorted, and which of them each row has."""
    import pyarrow as pa

    whole = column.combine_chunks()
    if not pa.types.is_dictionary(whole.type):
        whole = whole.cast("string").dictionary_encode()
    texts = np.array([str(value) for value in whole.dictionary.to_pylist()], dtype=np.str_)
    values, rank = np.unique(texts, return_inverse=True)
    return values.tolist(), rank[whole.indices.to_numpy(zero_copy_only=False).astype(np.int64)]


def _values(column: Any) -> NDArray[Any]:
    """A column as an array: integers even where they are kept as text, else text."""
    import pyarrow as pa

    if pa.types.is_integer(column.type):
        return np.asarray(column.to_numpy().astype(np.int64))
    if pa.types.is_floating(column.type):
        return np.asarray(column.to_numpy())
    texts, positions = coded(column)
    numbers = all(text.lstrip("-").isdigit() for text in texts)
    return np.array(texts, dtype=np.int64 if numbers else np.str_)[positions]
