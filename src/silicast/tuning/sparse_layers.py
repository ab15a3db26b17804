"""Which products of a model gain by 2:4 sparse weights on a device.

>>> rows = sparse_layers("Llama-3.1-8B", "h100", 4096)
>>> all(row.dense_us > 0.0 for row in rows)
True
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from silicast.core.dtypes import recipe_for
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.products.gemm_shapes import gemm_sizes
from silicast.kernels.products.sparsity import FLAG, compression_s
from silicast.learning.dispatch import KernelTime, times
from silicast.workload.graphs.op import Op
from silicast.workload.models.lookup import find_model
from silicast.workload.models.model import ModelConfig
from silicast.workload.transformers.decoder import build_graph

US = 1e6
MOST_TOKENS = 1 << 20


@final
@dataclass(frozen=True)
class SparseLayer:
    """One product of a model.

    Attributes:
        name: its role; count: how often a pass runs it; m, n, k: its sizes.
        dense_us, sparse_us: of one run; p05_us, p95_us: of the sparse one.
        compression_us: once, for its weights.
    """

    name: str
    count: int
    m: int
    n: int
    k: int
    dense_us: float
    sparse_us: float
    p05_us: float
    p95_us: float
    compression_us: float

    @property
    def saved_pct(self) -> float:
        """Of the dense time; negative where the sparse one is slower."""
        return 100.0 * (1.0 - self.sparse_us / self.dense_us)

    @property
    def pays(self) -> bool:
        """Whether it is faster even at the far end of its interval."""
        return self.p95_us < self.dense_us


def sparse_layers(
    model: str | ModelConfig, device: str | Device, tokens: int, dtype: str = ""
) -> list[SparseLayer]:
    """Products of one pass over ``tokens`` new tokens, dense and with 2:4 sparse weights.

    Args:
        model, device: or their names in the catalog.
        dtype: recipe of the products; "" = as the checkpoint says.

    Raises:
        SilicastError: the device or format has no such mode; an unknown name.
    """
    if not 1 <= tokens <= MOST_TOKENS:
        raise SilicastError(f"expected 1 to {MOST_TOKENS}, found {tokens}", field="tokens")
    config = find_model(model) if isinstance(model, str) else model
    board = find_device(device) if isinstance(device, str) else device
    counts: dict[tuple[str, Op], int] = {}
    for block, node in build_graph(config).nodes():
        if node.op.family == "gemm" and "m" in dict(node.op.dims):
            key = (node.name, _concrete(node.op, tokens, dtype))
            counts[key] = counts.get(key, 0) + block.count
    dense = [op for _, op in counts]
    result = times([*dense, *(_sparse(op) for op in dense)], board)
    rows = zip(counts.items(), result[: len(dense)], result[len(dense) :], strict=True)
    return [_layer(name, count, one, other, board) for ((name, _), count), one, other in rows]


def _concrete(op: Op, tokens: int, dtype: str) -> Op:
    """A product over all tokens of a pass."""
    variant = replace(op.variant, dtype=dtype) if dtype else op.variant
    sizes = {name: size if isinstance(size, int) else tokens for name, size in op.dims}
    return Op.make("gemm", variant, **sizes)


def _sparse(op: Op) -> Op:
    flags = tuple(sorted({**dict(op.variant.flags), FLAG: True}.items()))
    return replace(op, variant=replace(op.variant, flags=flags))


def _layer(
    name: str, count: int, dense: KernelTime, sparse: KernelTime, device: Device
) -> SparseLayer:
    m, n, k, _ = gemm_sizes(dense.op)
    recipe = recipe_for(dense.op.variant.dtype)
    return SparseLayer(
        name, count, m, n, k, US * dense.estimate_s, US * sparse.estimate_s, US * sparse.p05_s,
        US * sparse.p95_s, US * compression_s(n, k, recipe, device),
    )  # fmt: skip
