"""The frame of sparse attention modules: a layer's attention with its projections, as engines time
it.

Flags of the variant: ``generation`` (a decode step, else a prefill), ``gemm_<recipe>`` (format of
the linear layers), ``skip_indexer`` (the layer uses another layer's selection, where it can).
docs/explanation/attention.md lists the modules.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, final

from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.attention.attention_work import column, element_bytes
from silicast.kernels.composite import (
    Composite,
    ModuleWork,
    is_decode,
    launching_s,
    linear_recipe,
    module_styles,
    weight_bytes,
)
from silicast.kernels.timed_parts import PartBatch
from silicast.workload.graphs.op import OpBatch, Variant

UNTIMED = "_graph"
"""Ends the style of prefills that no host holds up: none was timed so."""


class SparseModule(Composite):
    """Dimensions: batch_size, isl (new tokens of a sequence), step (cached ones), num_heads; and
    with defaults the widths of :attr:`defaults`.

    Class attributes:
        defaults: widths of the model that the module comes from, for ops that do not state them.
    """

    group: ClassVar[str] = "sparse_modules"
    dtypes: ClassVar[tuple[str, ...]] = ("bf16", "fp8")
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "batch_size": (1, 1 << 12),
        "isl": (1, 1 << 17),
        "step": (0, 1 << 21),
        "num_heads": (1, 256),
    }
    defaults: ClassVar[Mapping[str, int]]

    @abstractmethod
    def parts(self, s: Sizes, device: Device | None) -> list[PartBatch]:
        """The kernels of every op, in the order in which they run; ``device`` as of
        :meth:`Composite.work`.
        """

    @abstractmethod
    def weights(self, s: Sizes) -> I64:
        """Weights of the linear layers, shape (n,)."""

    @abstractmethod
    def entries(self, s: Sizes) -> I64:
        """Elements of the cache that the whole call must read at least, shape (n,)."""

    @final
    def work(self, batch: OpBatch, device: Device | None) -> ModuleWork:
        s, variant = Sizes(batch, self.defaults), batch.variant
        hidden = s.tokens * s["hidden"] * 2
        stored = int(2 * element_bytes(variant.kv_dtype or variant.dtype))
        cache_bytes = self.entries(s) * stored // 2
        weights = weight_bytes(linear_recipe(variant), self.weights(s))
        return ModuleWork(self.parts(s, device), weights + hidden + cache_bytes, hidden)

    @final
    def style(self, variant: Variant, device: Device) -> str:
        """See :meth:`Implementation.style`: whose constants, and whether the host is in them."""
        constants_style = self.constants_styles(variant, device)[-1]
        return (
            constants_style
            if is_decode(variant) or _with_host(variant)
            else constants_style + UNTIMED
        )

    @final
    def constants_styles(self, variant: Variant, device: Device) -> tuple[str, ...]:
        """See :meth:`Composite.constants_styles`: of the module and phase with any library, and so
        on to the very one.
        """
        return module_styles(self.family.removesuffix("_module"), variant, device)

    @final
    def host_floor_s(self, batch: OpBatch, c: Mapping[str, float]) -> F64 | float:
        """See :meth:`Composite.host_floor_s`. An engine's own call holds what its host takes; a
        module of no engine is launched as any other kernel is.
        """
        if not _with_host(batch.variant):
            return 0.0
        size = Sizes(batch, self.defaults)
        skips = batch.variant.flag("skip_indexer")
        return launching_s(c, size.batch, size.kv, skips=skips)


def _with_host(variant: Variant) -> bool:
    return bool(variant.library) or variant.launch == "stream"


@final
class Sizes:
    """Columns of a batch, int64 arrays of shape (n,): ``sizes["hidden"]`` is a width, with its
    default where the op does not state it.

    Attributes:
        ops: the batch; batch, heads: sequences, and heads of the rank.
        new, past, kv: new tokens of a sequence, cached ones, both.
        tokens: new tokens of all sequences.
    """

    def __init__(self, batch: OpBatch, defaults: Mapping[str, int]) -> None:
        self.ops, self._defaults = batch, defaults
        self.batch, self.heads = batch.dims["batch_size"], batch.dims["num_heads"]
        self.new, self.past = column(batch, "isl", 1), column(batch, "step", 0)
        self.kv = self.past + self.new
        self.tokens = self.batch * self.new

    def __getitem__(self, name: str) -> I64:
        return column(self.ops, name, self._defaults[name])

    def lengths(self, *, decode: bool) -> dict[str, I64]:
        """The sequences as attention kernels count them: a decode step's cache is without the new
        tokens.
        """
        kv = self.past if decode else self.kv
        return {"batch": self.batch, "q_len": self.new, "kv_len": kv}
