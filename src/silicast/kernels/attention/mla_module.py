"""A whole block of latent attention: from the layer's input to its projected output.

A context pass makes keys and values out of the latent; a generation pass (flag ``generation``)
brings queries to the latent and results back. Linear layers are in the format of the flag
``gemm_<recipe>``, attention in ``Variant.dtype``, the cache in ``Variant.kv_dtype``.
docs/explanation/attention.md has the parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, final

from silicast.core import xp
from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.attention.attention_work import AttentionSequences, column, live_scores
from silicast.kernels.attention.mla_schemes import CALL, mla_scheme
from silicast.kernels.attention.mla_work import MLA_DIMS, Widths
from silicast.kernels.composite import (
    Composite,
    ModuleWork,
    is_decode,
    linear_recipe,
    module_style,
    weight_bytes,
)
from silicast.kernels.engine_kernels import kernels_of
from silicast.kernels.physics.formats import with_format
from silicast.kernels.registry import register
from silicast.kernels.timed_parts import PartBatch
from silicast.workload.graphs.op import OpBatch, Variant
from silicast.workload.libraries.catalog import absorbed_up_to
from silicast.workload.libraries.library_file import RuleFacts

ATTENTION = ("batch", "q_len", "kv_len", *MLA_DIMS)


@register
@final
class MlaModule(Composite):
    """``mla_module``: q_len new tokens a sequence; kv_len as for prefill or decode attention.

    Dimensions ``hidden`` and ``q_lora_rank`` (0 = queries straight from the input) belong to the
    block.
    """

    family: ClassVar[str] = "mla_module"
    group: ClassVar[str] = "mla_module"
    dtypes: ClassVar[tuple[str, ...]] = ("bf16", "fp8")
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "batch": (1, 1 << 12),
        "q_len": (1, 1 << 17),
        "kv_len": (0, 1 << 20),
        "hidden": (64, 1 << 15),
        "q_lora_rank": (0, 1 << 13),
        **MLA_DIMS,
        "num_heads": (1, 512),
    }
    ragged: ClassVar[frozenset[str]] = frozenset({"q_len", "kv_len"})

    def style(self, variant: Variant, device: Device) -> str:
        """Engine and phase; releases with other kernels apart."""
        engine, suffix = module_style(self.family, variant, device)
        return f"{engine}{suffix}_{'generation' if is_decode(variant) else 'context'}"

    def host_floor_s(self, batch: OpBatch, c: Mapping[str, float]) -> F64 | float:  # noqa: ARG002
        """See :meth:`Composite.host_floor_s`: prefills of wide expert parallelism run eagerly."""
        return c["host_s"]

    def work(self, batch: OpBatch, device: Device | None) -> ModuleWork:
        """See :meth:`Composite.work`. Weights of the block, its input, the cached latent; its
        output and new latent vectors.
        """
        block = _Block(batch, device)
        w, recipe = block.widths, linear_recipe(batch.variant)
        q_rank, hidden = block.q_rank, block.hidden
        heads_in = xp.where(q_rank > 0, q_rank, hidden)
        linear = (
            hidden * (q_rank + w.cached) + heads_in * w.heads * w.query + w.heads * w.value * hidden
        )
        weights = weight_bytes(recipe, linear)
        up = w.rank * w.heads * (w.nope + w.value)  # the products around the latent may be narrow
        stored = 1 if _narrow(batch.variant) else 2
        past = xp.maximum(block.kv_tokens - block.tokens, 0)
        # at most what a token's input holds, so that new tokens for cached ones are never less
        cache_bytes = past * xp.minimum(w.cached * stored, hidden * 2)
        chosen = device is not None and not is_decode(batch.variant)
        return ModuleWork(
            parts=block.parts(),
            read_bytes=weights + up + cache_bytes + block.tokens * hidden * 2,
            written_bytes=block.tokens * (hidden * 2 + w.cached * stored),
            # of a prefill, keys and values made out of the latent, or queries brought to it
            chosen_products_s=block.least_products_s() if chosen else 0.0,
        )


def _narrow(variant: Variant) -> bool:
    return variant.kv_dtype in ("fp8", "int8") or (not variant.kv_dtype and variant.dtype == "fp8")


@final
class _Block:
    """The parts of a batch of blocks; arrays are of shape (ops,)."""

    def __init__(self, batch: OpBatch, device: Device | None) -> None:
        self.batch, self.device = batch, device
        self.decode = is_decode(batch.variant)
        self.work = work = AttentionSequences.from_batch(batch, decode=self.decode)
        self.longest = work.largest(xp.float64(work.q))
        self.tokens = _whole(work.total(xp.float64(work.q)))
        self.once = self.tokens * 0 + 1
        self.kv_tokens = _whole(work.total(xp.float64(work.kv)))
        self.widths = Widths.from_batch(batch)
        self.hidden, self.q_rank = column(batch, "hidden", 7168), column(batch, "q_lora_rank", 1536)
        self.kinds = _Kinds.from_variant(batch.variant)

    def parts(self) -> list[PartBatch]:
        """In the order in which they run."""
        w, tokens = self.widths, self.tokens
        has_rank = xp.int64(self.q_rank > 0)
        rank = xp.maximum(self.q_rank, 1)
        return [
            self._product(tokens, self.q_rank + w.cached, self.hidden),
            self._norm(rank, has_rank),
            self._norm(w.rank, 1),
            self._product(tokens, w.heads * w.query, rank, has_rank),
            self._product(tokens, w.heads * w.query, self.hidden, 1 - has_rank),
            *([] if self.kinds.calls else self._cache()),
            *self._attention(),
            self._product(tokens, self.hidden, w.heads * w.value),
            self._moves("moves", tokens * self.hidden),
            self._moves("head_moves", tokens * w.heads * w.query),
        ]

    def _cache(self) -> list[PartBatch]:
        """Rotation and the update of the cache, kernels of their own."""
        w, tokens = self.widths, self.tokens
        rotated = {
            "tokens": tokens,
            "num_heads": w.heads,
            "num_kv_heads": self.once,
            "head_dim": w.rope,
        }
        copied = {"tokens": tokens, "num_kv_heads": self.once, "head_dim": (w.cached + 1) // 2}
        return [
            PartBatch("small", self.batch.beside("rope", self.kinds.plain, rotated)),
            PartBatch("small", self.batch.beside("kv_copy", self.kinds.cached, copied)),
        ]

    def _moves(self, name: str, elements: I64) -> PartBatch:
        """Copies and conversions that an engine makes between its kernels, as one copy; the
        constant of the part says how many it makes.
        """
        sizes = {"elements": elements, "inputs": self.once}
        return PartBatch(name, self.batch.beside("elementwise", self.kinds.copy, sizes))

    def _product(self, m: I64, n: I64, k: I64, count: int | I64 = 1) -> PartBatch:
        kind = self.kinds.linear
        sizes = {"m": m, "n": n, "k": k, "batch": self.once}
        return PartBatch(f"linear_{kind.dtype}", self.batch.beside("gemm", kind, sizes), count)

    def _latent(self, count: int | I64, least: int | None, **sizes: I64) -> PartBatch:
        """A product from or to the latent."""
        sizes.setdefault("batch", self.once)
        return PartBatch("latent", self.batch.beside("gemm", self.kinds.plain, sizes), count, least)

    def _norm(self, hidden: I64, count: int | I64) -> PartBatch:
        sizes = {"tokens": self.tokens, "hidden": hidden}
        return PartBatch("small", self.batch.beside("rmsnorm", self.kinds.plain, sizes), count)

    def _attention(self) -> list[PartBatch]:
        """Attention with the products around the latent: expanded, or absorbed."""
        if self.decode:
            return self._absorbed(1)
        limit = _absorbed_up_to(self.batch.variant, self.device)
        absorbed = xp.int64(self.longest <= limit)
        ways = self._expanded(1 - absorbed)
        if xp.any_of(absorbed):
            ways += self._absorbed(absorbed, 0)
        return ways

    def least_products_s(self) -> F64:
        """Time at the bound rates of the products of a prefill's cheaper way."""
        assert self.device is not None
        w, work = self.widths, self.work
        none = work.q * 0
        scores = work.total(xp.float64(live_scores(work.q, work.kv, none, causal=True)))
        around = 2.0 * w.heads * w.rank * (w.nope + w.value)
        per_s = _bound_per_s(self.device, "bf16")
        math = mla_scheme(self.kinds.attention, self.device).math
        scored_s = 2.0 * scores * w.heads / _bound_per_s(self.device, math)
        expanded = self.kv_tokens * around / per_s + scored_s * (w.query + w.value)
        absorbed = self.tokens * around / per_s + scored_s * (w.cached + w.rank)
        return xp.minimum(expanded, absorbed)

    def _expanded(self, count: I64) -> list[PartBatch]:
        w = self.widths
        wide = w.heads * (w.nope + w.value)
        return [
            self._latent(count, 0, m=self.kv_tokens, n=wide, k=w.rank),
            self._kernel("mla_prefill", self.work.kv, count, 0),
        ]

    def _absorbed(self, count: int | I64, least: int | None = None) -> list[PartBatch]:
        w, tokens = self.widths, self.tokens
        # decode counts cached tokens without the new ones, prefill all of them
        past = self.work.kv - self.work.q
        return [
            self._latent(count, least, m=tokens, n=w.rank, k=w.nope, batch=w.heads),
            self._kernel("mla_decode", past, count, least),
            self._latent(count, least, m=tokens, n=w.value, k=w.rank, batch=w.heads),
        ]

    def _kernel(self, family: str, kv_len: I64, count: int | I64, least: int | None) -> PartBatch:
        batch = self.batch
        dims = {n: v for n, v in batch.dims.items() if n in ATTENTION}
        lengths = {"q_len": self.work.q, "kv_len": kv_len}
        ragged = frozenset() if batch.offsets is None else frozenset(lengths)
        op_batch = OpBatch(
            family, self.kinds.attention, dims | lengths, batch.offsets, ragged, batch.numbers
        )
        name = "attention_narrow" if _narrow(batch.variant) else "attention"
        return PartBatch(name, op_batch, count, least)


@final
@dataclass(frozen=True)
class _Kinds:
    """Variants of a module's kernels.

    Attributes:
        linear: linear layers; plain: other products, norms and rotations.
        copy: copies and conversions; cached: the update of the cache.
        attention: the kernel alone, or with rotation and the update of the cache (``calls``).
    """

    linear: Variant
    plain: Variant
    copy: Variant
    cached: Variant
    attention: Variant
    calls: bool

    @staticmethod
    @lru_cache(maxsize=1024)
    def from_variant(variant: Variant) -> _Kinds:
        recipe = linear_recipe(variant)
        flags = (("includes_quantize", True),) if recipe.quantizes else ()
        plain = Variant(cache=variant.cache)
        # whether the engine's attention call rotates and updates the cache itself
        calls = kernels_of(variant.library).holds(CALL, "rope")
        of_attention = (("absorb", False), ("append", calls), ("causal", True), ("project", False))
        return _Kinds(
            linear=replace(plain, library=variant.library, dtype=recipe.name, flags=flags),
            plain=plain,
            copy=replace(plain, flags=(("copy", True),)),
            cached=replace(plain, kv_dtype=variant.kv_dtype),
            attention=replace(variant, launch="", flags=of_attention),
            calls=calls,
        )


def _bound_per_s(device: Device, dtype: str) -> float:
    able, _ = with_format(device, dtype)
    return able.bound_per_s(able.matrix_pipe(dtype), dtype)


def _absorbed_up_to(variant: Variant, device: Device | None) -> int:
    """New tokens that the engine gives to its decode kernels."""
    if device is None:
        return 0
    facts = RuleFacts.from_variant(variant, device.architecture, narrow=_narrow(variant))
    return absorbed_up_to(MlaModule.family, facts)


def _whole(values: F64) -> I64:
    whole: I64 = xp.int64(xp.rint(values))
    return whole
