"""Which layers of Qwen models have experts."""

from __future__ import annotations

from silicast.workload.families._family import Fields


def dense_layers(fields: Fields, layers: int) -> tuple[int, ...]:
    """Those named in ``mlp_only_layers``, and all but every ``decoder_sparse_step``-th."""
    step = max(fields.integer("decoder_sparse_step", default=1), 1)
    named = set(fields.integers("mlp_only_layers"))
    return tuple(i for i in range(layers) if i in named or (i + 1) % step)
