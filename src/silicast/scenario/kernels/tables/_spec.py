"""Fields of one op, and a table that is being lowered to an op."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

from silicast.workload.graphs.op import Dim

Range = tuple[int, int]

SIZE: Range = (1, 1 << 31)
TOKENS: Range = (1, 100_000_000)
LENGTH: Range = (0, 100_000_000)
BATCH: Range = (1, 1_000_000)
HEADS: Range = (1, 65_536)
WIDTH: Range = (1, 1 << 24)
DEGREE: Range = (1, 65_536)
ELEMENTS: Range = (1, 1 << 40)


@final
@dataclass(frozen=True)
class Lowering:
    """A table whose values were checked one by one, before it is an op. ``lower`` changes it.

    Attributes:
        table: the stated fields.
        dims, flags: of the op.
        words: textual properties, formats among them; only "kv_dtype" becomes part of the op.
        warnings: of guesses.
    """

    table: Mapping[str, Any]
    dims: dict[str, Dim]
    flags: dict[str, bool]
    words: dict[str, object]
    warnings: list[str] = field(default_factory=list)

    def whole(self, name: str) -> int:
        """A dimension that is no list."""
        value = self.dims[name]
        assert isinstance(value, int)
        return value


def _as_stated(case: Lowering) -> None:
    del case


@final
@dataclass(frozen=True)
class OpSpec:
    """Fields of one op.

    Attributes:
        meaning: one line for the reference.
        required: dimension -> range of sizes.
        optional: dimension -> (range, default); a default of None = left out.
        lists: dimensions that may be lists, one size a sequence.
        flags: yes/no properties and their defaults.
        words: textual properties -> allowed values; () = free text.
        dtypes: textual properties that name a number format.
        main_dtype: the one of these that is the op's ``dtype`` where that is left out; "" = none.
        default_dtype: of the op where no format is stated.
        dtype_names: names of formats in the op's tables alone -> usual names.
        lower: checks the sizes against each other and turns the table's columns into the op's
            own dimensions, flags and formats.
    """

    meaning: str
    required: Mapping[str, Range] = field(default_factory=dict)
    optional: Mapping[str, tuple[Range, int | None]] = field(default_factory=dict)
    lists: frozenset[str] = frozenset()
    flags: Mapping[str, bool] = field(default_factory=dict)
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ()
    main_dtype: str = ""
    default_dtype: str = "bf16"
    dtype_names: Mapping[str, str] = field(default_factory=dict)
    lower: Callable[[Lowering], None] = _as_stated

    def names(self) -> list[str]:
        """All fields of the op besides the common ones."""
        return [*self.required, *self.optional, *self.flags, *self.words, *self.dtypes]
