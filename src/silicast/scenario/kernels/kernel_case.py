"""Kernel tables: all ops of the contract with their fields, and a table as an ``Op``.

A ``kernel`` table into an :class:`~silicast.workload.graphs.op.Op`.

All kernel ops of the contract, and the fields that every one takes.

Sizes are rank-local unless the op says otherwise. A dimension in ``lists`` may be a list with one
size a sequence. Ranges are what a scenario may hold; a kernel model may narrow them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import silicast.scenario.kernels.tables as package
from silicast.core.errors import SilicastError, errors_at, require, unknown_field, unknown_name
from silicast.core.naming import near
from silicast.core.plain_data import shown
from silicast.kernels.configuration import Pairs, read_configuration
from silicast.scenario.kernels.tables._spec import DIRECTION, Lowering, OpSpec, Range, with_pass
from silicast.scenario.reading.kinds_of_names import collective_hint, dtype_name, is_collective
from silicast.scenario.reading.limits import MAX_BATCH
from silicast.workload.graphs.op import Dim, Op, Variant
from silicast.workload.libraries.catalog import library_names

COMMON = (
    "op",
    "dtype",
    "library",
    "library_version",
    "variant",
    "launch",
    "cache",
    "board",
    "configuration",
)
LAUNCHES = ("graph", "stream", "profiler")
"""Replayed, launched one by one, or the kernel's own duration as a profiler reports it."""
BOARDS = ("cool", "hot")
"""A board that has just begun, as where campaigns measure kernels one by one, or that has done the
same for seconds, as in passes of whole models."""
CACHES = ("cold", "warm", "between")
"""Operands come from memory, lie in L2 as far as they fit, or have seen a pass's other kernels run
since they were used."""


def _all_ops() -> dict[str, OpSpec]:
    """Every entry of ``OPS`` of every file of the package."""
    ops: dict[str, OpSpec] = {}
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.startswith("_"):
            continue
        module_ops = importlib.import_module(f"{package.__name__}.{module.name}").OPS
        if twice := ops.keys() & module_ops.keys():
            raise ValueError(f"two files take {', '.join(sorted(twice))}")
        ops |= module_ops
    return ops


OPS: Mapping[str, OpSpec] = _all_ops()


_PLURAL = {"q_lens": "q_len", "kv_lens": "kv_len"}


@final
@dataclass(frozen=True, slots=True)
class KernelCase:
    """A kernel to predict.

    Attributes:
        op: what the kernel models see.
        words: textual properties that are no part of it ("distribution", "model", ...).
        warnings: of guesses.
        board: its state, "" = the usual one (``kernel_ops.BOARDS``).
    """

    op: Op
    words: Mapping[str, object]
    warnings: tuple[str, ...] = ()
    board: str = ""


def kernel_case(table: Mapping[str, Any], field: str = "kernel") -> KernelCase:
    """The op of a ``kernel`` table.

    Raises:
        SilicastError: unknown op, field, dtype or library (the nearest are offered); a size that
            is missing, out of range or contradicts another.

    >>> kernel_case({"op": "gemm", "m": 8, "n": 4096, "k": 4096}).op.dim("batch")
    1
    """
    with errors_at(field):
        return _KernelTableReader(table).case()


@final
class _KernelTableReader:
    """One kernel table, read field by field."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        if "op" not in table:
            raise SilicastError("is missing", field="op", hint=f"one of {', '.join(OPS)}")
        name = table["op"]
        if not isinstance(name, str) or name not in OPS:
            collective = is_collective(name)
            hint = collective_hint(collective) if collective else near(name, OPS)
            raise unknown_name(f"unknown op {shown(name)}", "op", hint)
        self.name = name
        self.spec: OpSpec = OPS[name]
        self.table = self._singular(_flat(table))
        for key in self.table:
            if key not in COMMON and key not in self.spec.names():
                names = [*COMMON, *self.spec.names(), *(_PLURAL if self.spec.lists else ())]
                raise unknown_field(f"{name} has no field {shown(key)}", key, near(key, names))

    def case(self) -> KernelCase:
        dims = self._dims()
        stated = (word for word in self.spec.words if self.table.get(word, "") != "")
        words = {word: self._word(word) for word in stated}
        flags = {flag: self._flag(flag) for flag in self.spec.flags}
        for key in self.spec.dtypes:
            if self.table.get(key, "") != "":
                words[key] = self._dtype(key)
        lowered = Lowering(self.table, dims, flags, words)
        self.spec.lower(lowered)
        direction = str(lowered.words.pop(DIRECTION, ""))
        variant = Variant(
            dtype=self._dtype("dtype", self._default_dtype()),
            kv_dtype=str(lowered.words.pop("kv_dtype", "")),
            library=self._library(),
            version=self._text("library_version"),
            kernel=self._text("variant"),
            launch=self._choice("launch", LAUNCHES),
            cache=self._choice("cache", CACHES),
            flags=tuple(sorted(lowered.flags.items())),
            config=self._configuration(),
        )
        op = with_pass(Op.make(self.name, variant, **lowered.dims), direction)
        board = self._choice("board", BOARDS)
        return KernelCase(op, lowered.words, tuple(lowered.warnings), board)

    def _configuration(self) -> Pairs:
        """How the kernel is configured; nothing stated = as its library picks."""
        configuration = self.table.get("configuration")
        if configuration is None:
            return ()
        if not isinstance(configuration, Mapping):
            raise SilicastError(
                f"expected a table, found {shown(configuration)}",
                field="configuration",
                hint="for example {tile_m = 64, tile_n = 128, tile_k = 64, warps = 4, stages = 3}",
            )
        return read_configuration(configuration).pairs

    def _singular(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """``q_lens`` and ``kv_lens`` under the dimension's name; both at once are refused."""
        singular = dict(table)
        if not self.spec.lists:
            return singular
        for plural, name in _PLURAL.items():
            if plural in singular:
                require(
                    name not in singular,
                    f"{plural} and {name} are both given",
                    plural,
                    "keep one of them",
                )
                value = singular.pop(plural)
                require(
                    isinstance(value, (list, tuple)),
                    f"expected a list, found {shown(value)}",
                    plural,
                )
                singular[name] = value
        return singular

    def _dims(self) -> dict[str, Dim]:
        spec, dims = self.spec, {}
        for name, allowed in spec.required.items():
            if name not in self.table:
                hint = f"{self.name} takes {', '.join(spec.required)}"
                raise SilicastError("is missing", field=name, hint=hint)
            dims[name] = self._size(name, allowed)
        for name, (allowed, default) in spec.optional.items():
            if name in self.table:
                dims[name] = self._size(name, allowed)
            elif default is not None:
                dims[name] = default
        return _agreeing(dims) if spec.lists else dims

    def _size(self, name: str, allowed: Range) -> Dim:
        value = self.table[name]
        if isinstance(value, (list, tuple)) and name in self.spec.lists:
            require(
                0 < len(value) <= MAX_BATCH,
                f"expected 1 to {MAX_BATCH} lengths, found {len(value)}",
                name,
            )
            return tuple(_whole(item, allowed, f"{name}[{i}]") for i, item in enumerate(value))
        return _whole(value, allowed, name)

    def _flag(self, name: str) -> bool:
        value = self.table.get(name, self.spec.flags[name])
        require(
            value in (0, 1) and isinstance(value, (bool, int)),
            f"expected true or false, found {shown(value)}",
            name,
        )
        return bool(value)

    def _word(self, name: str) -> object:
        value, allowed = self.table[name], self.spec.words[name]
        if name == "distribution":
            return value  # a name or one share an expert
        if not isinstance(value, str):
            raise SilicastError(f"expected text, found {shown(value)}", field=name)
        if allowed and value not in allowed:
            raise unknown_name(
                f"expected one of {', '.join(allowed)}, found {shown(value)}",
                name,
                near(value, allowed),
            )
        return value

    def _text(self, name: str) -> str:
        value = self.table.get(name, "")
        require(isinstance(value, str), f"expected text, found {shown(value)}", name)
        return str(value)

    def _library(self) -> str:
        value, libraries = self._text("library"), library_names()
        if value and value not in libraries:
            raise _unknown("library", value, libraries.names)
        return libraries.canonical(value) if value else ""

    def _choice(self, name: str, allowed: tuple[str, ...]) -> str:
        value = self._text(name)
        if value and value not in allowed:
            raise _unknown(name, value, allowed)
        return value

    def _dtype(self, name: str, default: str = "") -> str:
        value = self.table.get(name, default)
        if not isinstance(value, str):
            raise SilicastError(f"expected the name of a format, found {shown(value)}", field=name)
        return dtype_name(self.spec.dtype_names.get(value.strip().casefold(), value), name)

    def _default_dtype(self) -> str:
        dtype = self.table.get(self.spec.main_dtype) if self.spec.main_dtype else None
        return str(dtype) if dtype else self.spec.default_dtype


def _unknown(name: str, value: str, known: tuple[str, ...]) -> SilicastError:
    return unknown_name(f"unknown {name} {shown(value)}", name, near(value, known))


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table with the sizes of a ``dimensions`` table put beside its other fields."""
    flat = dict(table)
    inner = flat.pop("dimensions", None)
    if inner is None:
        return flat
    if not isinstance(inner, Mapping):
        raise SilicastError(f"expected a table, found {shown(inner)}", field="dimensions")
    for name in inner:
        require(name not in flat, f"{name} is given twice", f"dimensions.{name}", "keep one")
    return {**flat, **inner}


def _whole(value: object, allowed: Range, name: str) -> int:
    low, high = allowed
    if isinstance(value, bool) or not isinstance(value, int):
        whole = isinstance(value, float) and value.is_integer() and low <= value <= high
        hint = f"write {int(value)}" if whole and isinstance(value, float) else f"{low} to {high}"
        raise SilicastError(f"expected a whole number, found {shown(value)}", field=name, hint=hint)
    if not low <= value <= high:
        raise SilicastError(f"expected {low} to {high}, found {shown(value)}", field=name)
    return value


def _agreeing(dims: dict[str, Dim]) -> dict[str, Dim]:
    """Lists of lengths with equal lengths; ``batch`` goes where a list already counts."""
    lists = {n: len(v) for n, v in dims.items() if isinstance(v, tuple)}
    if len(set(lists.values())) > 1:
        counts = " and ".join(f"{n} {c}" for n, c in lists.items())
        raise SilicastError(f"lists of different lengths: {counts}", field=next(iter(lists)))
    batch = dims.pop("batch", None)
    if not lists:
        return {**dims, "batch": 1 if batch is None else batch}
    count = next(iter(lists.values()))
    require(
        batch in (None, count),
        f"batch is {batch}, but the lists have {count} lengths",
        "batch",
        "leave batch out",
    )
    return dims
