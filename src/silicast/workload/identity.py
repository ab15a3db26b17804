"""When two ops are the same work, however they came about: named by a table, traced, or in a pass.

A table states flags that a traced program leaves out, and a pass notes what its attention kernels
do not do. None of that makes another kernel of it.
"""

from __future__ import annotations

from silicast.core.compiled import entries
from silicast.workload.op import Dim, Op

SET_UNLESS_SAID = frozenset(("causal", "gated", "master", "fp32_states"))
"""Flags whose absence means that they are set; the absence of others means that they are not."""
HELD_BY_CALLS = frozenset(("append", "rope"))
"""Flags that engines' attention calls set unless an op states them."""
NOTHING: frozenset[tuple[str, Dim]] = frozenset((("window", 0), ("q_len", 1)))
"""Sizes that say nothing: no window, the one query of a decode step."""
USUAL_LAUNCH = "graph"
OTHER_FUNCTIONS = frozenset(("grouped_mm",))
"""Names of kernels that are another function of operands of the same sizes: rows of each group end
where data says. All other names say who carries an op out."""

Identity = tuple[
    str, tuple[tuple[str, Dim], ...], str, str, tuple[tuple[str, bool], ...], str, str
]  # fmt: skip


def identity(op: Op) -> Identity:
    """What an op computes: family, sizes, formats, flags that change anything, the name of another
    function, launch; not who runs it, nor in which cache state.

    >>> from silicast.core.compiled import entries
    from silicast.workload.op import Variant
    >>> table = Op.make("gemm", Variant(flags=(("includes_quantize", False),)), m=8, n=8, k=8)
    >>> identity(table) == identity(Op.make("gemm", Variant(launch="graph"), m=8, n=8, k=8))
    True
    >>> groups = Op.make("gemm", Variant(kernel="grouped_mm"), m=8, n=8, k=8)
    >>> identity(groups) == identity(table)
    False
    """
    variant = op.variant
    dims = tuple(each for each in op.dims if not _says_nothing(op.family, each))
    flags = tuple(
        (name, value)
        for name, value in variant.flags
        if value != (name in SET_UNLESS_SAID)
        or (name in HELD_BY_CALLS and variant.library in entries("engines"))
    )
    launch = variant.launch or USUAL_LAUNCH
    function = variant.kernel if variant.kernel in OTHER_FUNCTIONS else ""
    return op.family, dims, variant.dtype, variant.kv_dtype, flags, function, launch


def _says_nothing(family: str, dim: tuple[str, Dim]) -> bool:
    name, size = dim
    if not isinstance(size, int) or (name, size) not in NOTHING:
        return False
    return name != "q_len" or family == "attention_decode"
