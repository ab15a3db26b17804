"""An op of a graph as one engine runs it: library, format, cache state, and what its call holds."""

from __future__ import annotations

from dataclasses import replace

from silicast.composition.engine import Engine
from silicast.workload.op import Op
from silicast.workload.plan import Plan

COLLECTIVES = frozenset(
    ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv")
)
READ_FROM_MEMORY = frozenset(("gemm", "moe", "attention_decode", "mla_decode", "embedding"))
"""Between two uses of a layer's weights and cached keys the whole model passes through L2."""
DECODES_FROM_MEMORY = frozenset(("sparse_attention", "indexer_logits"))
"""As :data:`READ_FROM_MEMORY`, of families that prefills have too: there the keys are new."""
STREAMED = frozenset(("rmsnorm", "layernorm", "silu_mul", "rope", "elementwise", "softmax"))
"""In a pass, products whose weights stream through the L2 run between these."""

OWN_NODES = {
    "attention_prefill": (("append", False), ("rope", False)),
    "attention_decode": (("append", False), ("rope", False)),
    "mla_prefill": (("append", False), ("project", False)),
    "mla_decode": (("append", False), ("project", False)),
}
"""Cache update, rotation and projections of the latent, which engines' attention calls may hold,
have nodes of their own."""


def _from_memory(op: Op) -> bool:
    """Whether its operands come from memory; of recurrent mixers, states that a step updates."""
    if op.family in DECODES_FROM_MEMORY:
        return op.variant.flag("decode")
    return op.family in READ_FROM_MEMORY or op.variant.flag("generation")


def _cache_state(op: Op) -> str:
    if _from_memory(op):
        return "cold"
    return "between" if op.family in STREAMED else op.variant.cache


def as_run(op: Op, engine: Engine, architecture: str, plan: Plan = Plan()) -> Op:
    """The op with the library and kernel that the engine takes for it on an architecture.

    Kernels follow each other without gaps on the device, so all are timed as in a graph; what
    launching costs is a part of the step.
    """
    kernels, family = engine.kernels, op.family
    library = kernels.library(family, architecture)
    dtype = kernels.recipe(family, architecture, op.variant.dtype)
    named = "" if plan.attention_dp > 1 else kernels.kernel(family, architecture, dtype)
    variant = replace(
        op.variant,
        dtype=dtype,
        kernel=op.variant.kernel or named,
        library=engine.collectives if family in COLLECTIVES else library,
        cache=_cache_state(op),
        launch="graph",
        flags=tuple(sorted((*op.variant.flags, *OWN_NODES.get(family, ())))),
    )
    return replace(op, variant=variant)
