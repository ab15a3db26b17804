"""Whether two ops are the same work: one read from a table of measurements, one from a traced
program, one from a pass of an engine.

Tables state flags that traced programs leave out, and passes state what their attention kernels
leave to others. These differences do not change the kernel, so identity ignores them.
"""

from __future__ import annotations

from silicast.core.compiled import entries
from silicast.workload.graphs.op import Dim, Op

TRUE_BY_DEFAULT = frozenset(("causal", "gated", "master", "fp32_states"))
"""Flags that are true where they are missing; all others are false there."""
TRUE_IN_ENGINES = frozenset(("append", "rope"))
"""Flags of attention that are true in calls of engines where they are missing."""
DEFAULT_SIZES: frozenset[tuple[str, Dim]] = frozenset((("window", 0), ("q_len", 1)))
"""Sizes that mean the same as a missing size: no window, the one query of a decode step."""
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
