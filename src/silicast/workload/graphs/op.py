"""One operation (family, dimensions, formats), and when two are the same work.

An operation never holds a time or a device. The same work is read from a table of measurements,
from a traced program or from a pass of an engine. Tables state flags that traced programs leave
out, and passes state what their attention kernels leave to others. These differences do not change
the kernel, so identity ignores them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final, overload

import numpy as np
from msgspec import Struct

from silicast.core.compiled import entries
from silicast.core.numerics import I64

UNMODELLED = "unmodelled"
"""Flag of an operation without a model: its bytes and its launch are counted."""
INTEGERS = "integers"
"""Flag of a movement of data that finds or counts integers: no gradient."""
HOST_WAITS = "host_waits"
"""Flag of an operation that finds indices for the host, which waits for them: no gradient."""
IN_CALL = "in_call"
"""Flag of a kernel that a library launches behind others of one call: nothing of the framework runs
between, and the device is not waiting for it."""
IN_KERNEL = "in_kernel"
"""Flag of what the kernel before it reads and writes besides, for an operator that is joined to it:
nothing is launched.
"""


@final
@dataclass(frozen=True, slots=True)
class Affine:
    """The size ``factor * symbol + constant`` of a batch-state symbol; integers, exact.

    >>> Affine("tokens", 8192).evaluate(3)
    24576
    """

    symbol: str
    factor: int
    constant: int = 0

    @overload
    def evaluate(self, value: int) -> int: ...
    @overload
    def evaluate(self, value: I64) -> I64: ...
    def evaluate(self, value: int | I64) -> int | I64:
        """The size for one value of the symbol, or for an array of values."""
        return self.factor * value + self.constant


Dim = int | str | tuple[int, ...] | Affine
"""A size, the name of a batch-state symbol ("tokens"), one size per sequence, or a multiple of a
symbol."""


def resolve(dim: Dim, symbols: Mapping[str, I64]) -> int | I64:
    """A dimension for arrays of batch states: a plain size, or an array of shape (n,).

    Raises:
        KeyError: the symbol has no value; ValueError: ``dim`` is a list of lengths.
    """
    if isinstance(dim, Affine):
        return dim.evaluate(symbols[dim.symbol])
    if isinstance(dim, str):
        return symbols[dim]
    if isinstance(dim, tuple):
        raise ValueError("lengths per sequence are ragged, not one size per state")
    return dim


@final
@dataclass(frozen=True, slots=True)
class Variant:
    """What two calls must share to be timed by the same kernel model in one vectorised call.

    Attributes:
        dtype: canonical name of the number format or recipe (``core.dtypes.RECIPES``).
        kv_dtype: format of cached keys and values, for attention; "" elsewhere.
        library: who provides the kernel ("cublas", "flashinfer", "fa3", "trtllm", ...), "" = the
            usual one of the device's architecture.
        version: version of that library, "" = any.
        kernel: the source's own kernel name (``kernel_source`` of a table), "" = any.
        launch: "graph" (replayed, no host gap), "stream" (launched one by one), "" = graph.
        cache: "cold" (nothing of the operands in L2), "warm" (all that fits), "between" (other
            kernels of a pass ran since: what streams keep of it), "" = as measurement campaigns
            run it: a few operand copies cycled.
        flags: remaining yes/no properties, sorted (("causal", True), ...).
        config: the kernel's configuration as sorted (name, value) pairs, "kind" among them
            (``kernels.configuration``); () = what the library picks.
    """

    dtype: str = "bf16"
    kv_dtype: str = ""
    library: str = ""
    version: str = ""
    kernel: str = ""
    launch: str = ""
    cache: str = ""
    flags: tuple[tuple[str, bool], ...] = ()
    config: tuple[tuple[str, int | str], ...] = ()

    def flag(self, name: str, default: bool = False) -> bool:
        """The value of one flag."""
        return dict(self.flags).get(name, default)


@final
@dataclass(frozen=True, slots=True)
class Op:
    """One call of one kernel family.

    Attributes:
        family: kernel family, as in DESIGN section 4 ("gemm", "attention_decode", "rmsnorm").
        dims: sorted (name, size) pairs; see :data:`Dim`.
        variant: formats, library and protocol.
    """

    family: str
    dims: tuple[tuple[str, Dim], ...]
    variant: Variant = Variant()

    @staticmethod
    def make(family: str, variant: Variant = Variant(), **dims: Dim) -> Op:
        """An op from keyword dimensions.

        >>> Op.make("gemm", m=8, n=4096, k=4096).dim("n")
        4096
        """
        return Op(family, tuple(sorted(dims.items())), variant)

    def dim(self, name: str) -> Dim:
        """One dimension; KeyError if the family has none of that name."""
        return dict(self.dims)[name]

    @property
    def key(self) -> tuple[object, ...]:
        """Canonical key: equal for equal work."""
        return (self.family, self.dims, self.variant)

    def bind(self, symbols: Mapping[str, Dim]) -> Op:
        """The same op with symbolic dimensions replaced by the values in ``symbols``."""
        bound = tuple((name, _bound(dim, symbols)) for name, dim in self.dims)
        return Op(self.family, bound, self.variant)


def _bound(dim: Dim, symbols: Mapping[str, Dim]) -> Dim:
    if isinstance(dim, str):
        return symbols[dim]
    if isinstance(dim, Affine):
        value = symbols[dim.symbol]
        if not isinstance(value, int):
            raise ValueError(f"a multiple of {dim.symbol!r}, which is not one number")
        return dim.evaluate(value)
    return dim


@final
class OpBatch(Struct, frozen=True):
    """Many ops of one family and variant as a struct of arrays.

    Attributes:
        dims: dimension name -> int64 array of shape (n,), one entry an op. Ragged dimensions
            (sequence lengths) are instead flat arrays of shape (sequences,), and ``offsets``
            (n + 1,) says which sequences belong to which op.
        offsets: None where no dimension is ragged.
        ragged: names of the flat dimensions.
        numbers: one op whose dimensions, but for ragged ones, are plain integers (``core.xp``).
    """

    family: str
    variant: Variant
    dims: Mapping[str, I64]
    offsets: I64 | None = None
    ragged: frozenset[str] = frozenset()
    numbers: bool = False

    def __len__(self) -> int:
        if self.numbers:
            return 1
        if self.offsets is not None:
            return len(self.offsets) - 1
        return len(next(iter(self.dims.values())))

    @property
    def symbols(self) -> bool:
        """Whether its numbers stand for those of any op (:mod:`silicast.core.tracing`)."""
        return self.numbers and any(hasattr(size, "graph") for size in self.dims.values())

    def filled(self, value: float) -> Any:
        """``value`` for each op, shape (n,); of a batch of numbers, that number."""
        return value if self.numbers else np.full(len(self), value)

    def beside(self, family: str, variant: Variant, dims: Mapping[str, I64]) -> OpBatch:
        """Another kernel for each of these ops, with dimensions of the same form."""
        return OpBatch(family, variant, dims, numbers=self.numbers)

    def arrays(self) -> OpBatch:
        """The same ops with arrays of shape (n,) instead of numbers."""
        if not self.numbers:
            return self
        dims = {n: v if n in self.ragged else np.array([v]) for n, v in self.dims.items()}
        return OpBatch(self.family, self.variant, dims, self.offsets, self.ragged)

    def rows(self, index: I64) -> OpBatch:
        """The ops at some places, in that order."""
        dims = {n: values[index] for n, values in self.dims.items() if n not in self.ragged}
        if self.offsets is None:
            return OpBatch(self.family, self.variant, dims)
        starts, ends = self.offsets[index], self.offsets[index + 1]
        counts = ends - starts
        offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        flat = np.repeat(starts - offsets[:-1], counts) + np.arange(offsets[-1])
        ragged = {name: self.dims[name][flat] for name in sorted(self.ragged)}
        return OpBatch(self.family, self.variant, {**ragged, **dims}, offsets, self.ragged)

    @staticmethod
    def single(op: Op) -> OpBatch:
        """One op as numbers: most kernel models take a fraction of the time for it.

        >>> OpBatch.single(Op.make("gemm", m=8, n=64, k=32)).dims["n"]
        64
        """
        ragged = frozenset(name for name, value in op.dims if isinstance(value, tuple))
        if not ragged:
            return OpBatch(op.family, op.variant, dict(op.dims), numbers=True)  # type: ignore[arg-type]
        flat = OpBatch.from_ops([op])
        dims = {n: v if n in ragged else int(v[0]) for n, v in flat.dims.items()}
        return OpBatch(op.family, op.variant, dims, flat.offsets, ragged, numbers=True)  # type: ignore[arg-type]

    @staticmethod
    def from_ops(ops: Sequence[Op]) -> OpBatch:
        """Ops that share family, variant and dimension names, as one batch.

        A dimension is ragged if any op gives it as a tuple; an op's ragged dimensions have equal
        lengths, and a plain integer beside them counts for each of its sequences.
        """
        first = ops[0]
        rows = [dict(op.dims) for op in ops]
        ragged = frozenset(n for row in rows for n, v in row.items() if isinstance(v, tuple))
        dims: dict[str, I64] = {}
        offsets: I64 | None = None
        if ragged:
            counts = [max(len(v) for v in row.values() if isinstance(v, tuple)) for row in rows]
            offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
            for name in sorted(ragged):
                flat: list[int] = []
                for row, count in zip(rows, counts, strict=True):
                    value = row[name]
                    flat.extend(value if isinstance(value, tuple) else [value] * count)  # type: ignore[list-item]
                dims[name] = np.array(flat, dtype=np.int64)
        for name, _ in first.dims:
            if name not in ragged:
                dims[name] = np.array([row[name] for row in rows], dtype=np.int64)
        return OpBatch(first.family, first.variant, dims, offsets, ragged)


TRUE_BY_DEFAULT = frozenset(("causal", "gated", "master", "fp32_states"))
"""Flags that are true where they are missing; all others are false there."""
TRUE_IN_ENGINES = frozenset(("append", "rope"))
"""Flags of attention that are true in calls of engines where they are missing."""
DEFAULT_SIZES: frozenset[tuple[str, Dim]] = frozenset(
    (("window", 0), ("q_len", 1), ("mask_bytes", 0))
)
"""Sizes that mean the same as a missing size: no window, one query in decode, no mask."""
DEFAULT_LAUNCH = "graph"
OTHER_FUNCTIONS = frozenset(("grouped_mm",))
"""Names of kernels that compute another function of operands of the same sizes: the rows of each
group are data. All other names only tell which library runs the op."""

Identity = tuple[str, tuple[tuple[str, Dim], ...], str, str, tuple[tuple[str, bool], ...], str, str]


def identity(op: Op) -> Identity:
    """What an op computes: family, sizes, formats, flags that are not at their default, the name of
    another function, launch; not the library that runs it, nor the state of the caches.

    >>> from silicast.workload.graphs.op import Variant
    >>> table = Op.make("gemm", Variant(flags=(("includes_quantize", False),)), m=8, n=8, k=8)
    >>> identity(table) == identity(Op.make("gemm", Variant(launch="graph"), m=8, n=8, k=8))
    True
    >>> groups = Op.make("gemm", Variant(kernel="grouped_mm"), m=8, n=8, k=8)
    >>> identity(groups) == identity(table)
    False
    """
    variant = op.variant
    dims = tuple(each for each in op.dims if not _is_default(op.family, each))
    flags = tuple(
        (name, value)
        for name, value in variant.flags
        if value != (name in TRUE_BY_DEFAULT)
        or (name in TRUE_IN_ENGINES and variant.library in entries("engines"))
    )
    launch = variant.launch or DEFAULT_LAUNCH
    function = variant.kernel if variant.kernel in OTHER_FUNCTIONS else ""
    return op.family, dims, variant.dtype, variant.kv_dtype, flags, function, launch


def _is_default(family: str, dim: tuple[str, Dim]) -> bool:
    name, size = dim
    if not isinstance(size, int) or (name, size) not in DEFAULT_SIZES:
        return False
    return name != "q_len" or family == "attention_decode"
