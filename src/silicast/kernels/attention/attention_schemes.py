"""Which attention kernel a library runs on an architecture, and its tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from silicast.core import xp
from silicast.core.numerics import F64, I64, ceil_div
from silicast.core.releases import is_before
from silicast.hardware.device import Device
from silicast.kernels.engine_kernels import kernels_of
from silicast.workload.graphs.op import Variant
from silicast.workload.libraries.catalog import first_rule, kernel_rule, library
from silicast.workload.libraries.library_file import AttentionRule, Library, Mainloop, RuleFacts

BoolArray = NDArray[np.bool_]

_CALL = "attention_prefill"
"""The op whose call is looked up in an engine's file; the call of the other one is the same."""


@final
@dataclass(frozen=True)
class Scheme:
    """How one kernel cuts and orders attention, and the other work of its call. Fields that are not
    listed are those of :class:`~silicast.workload.libraries.library_file.AttentionRule` and
    :class:`~silicast.workload.libraries.library_file.AttentionCall`.

    Attributes:
        library: the kernel library ("fa2", "fa3", "flashinfer", "trtllm", "triton").
        caller: whose constants to use: the engine's where one is named, else the library's.
        borrows: they are of this library, since the kernel itself was not measured; "" = its own.
        appends: the call also writes the new keys and values to the cache.
        rotates: the call also applies RoPE to queries and keys, in a kernel of its own.
        omitted: kernels that the engine's call holds and this one does not (append, RoPE).
        visits_masked: tiles wholly outside a window are looked at and skipped one by one.
        encoder: every query sees every key, and there is no cache: a vision or text encoder.
        casts: operands of 8 bits take kernels of their own.
    """

    library: str
    caller: str
    borrows: str = ""
    mainloop: Mainloop = "mma"
    matrix_share: float = 1.0
    packs: bool = False
    packs_single: bool = False
    longest_first: bool = False
    splits: bool = False
    plans: bool = False
    small_tiles: bool = False
    decode_rows: int = 16
    most_splits: int = 128
    packs_groups: bool = False
    by_head: bool = False
    widths: tuple[int, ...] = ()
    appends: bool = False
    rotates: bool = False
    omitted: int = 0
    visits_masked: bool = False
    widens_cache: bool = False
    single_head_kernel: bool = False
    encoder: bool = False
    casts: bool = False
    backward_cost: float = 0.0


def resolve_library(library: str, kernel: str, architecture: str) -> str:
    """The kernel library behind an engine's name or a table's kernel name.

    >>> resolve_library("vllm", "", "hopper"), resolve_library("sglang", "", "ampere")
    ('fa3', 'flashinfer')
    """
    return _kernel(RuleFacts(library=library, kernel=kernel, architecture=architecture))[0]


def attention_rule(facts: RuleFacts) -> AttentionRule:
    """The mechanisms of the attention kernel that runs."""
    return _kernel(facts)[1]


def _kernel(facts: RuleFacts) -> tuple[str, AttentionRule]:
    """The kernel library and its kernel; an engine's own choice stands before general rules."""
    called = kernels_of(facts.library).library(_CALL, facts.architecture)
    engine = [AttentionRule(like=called)] if called else []

    def own(library: Library) -> Sequence[AttentionRule]:
        return engine if engine and library.name == facts.library != called else library.attention

    kernel = first_rule(facts, own, lambda library: library.attention_by_name)
    assert kernel is not None, "catalog/libraries/any.toml has a rule for every kernel"
    return kernel


def scheme_for(variant: Variant, device: Device) -> Scheme:
    """The attention kernel that ``variant.library`` runs on ``device``."""
    return _scheme(variant, device.architecture)


@lru_cache(maxsize=4096)
def _scheme(variant: Variant, architecture: str) -> Scheme:
    name, kernel = _kernel(RuleFacts.from_variant(variant, architecture))
    call = kernels_of(variant.library)
    calls = call.holds(_CALL, "append") and not kernel.own_constants
    borrows = "" if calls else kernel.constants_of
    caller = variant.library if calls else borrows or name
    causal = variant.flag("causal", default=True)  # else there is no cache to add to
    timed = library(variant.library).attention_call
    late = not is_before(variant.version, timed.appends_from)
    appends = variant.flag("append", default=causal and late and call.holds(_CALL, "append"))
    rotates = variant.flag("rope", default=causal and call.holds(_CALL, "rope"))
    around = library(caller).attention_call
    return Scheme(
        library=name, caller=caller, borrows=borrows, mainloop=kernel.mainloop,
        matrix_share=kernel.matrix_share, packs=kernel.packs,
        packs_single=kernel.packs_single or architecture in around.packs_single,
        longest_first=kernel.longest_first, splits=kernel.splits, plans=kernel.plans,
        small_tiles=kernel.small_tiles, decode_rows=kernel.decode_rows,
        most_splits=kernel.most_splits, packs_groups=kernel.packs_groups,
        by_head=kernel.by_head,
        widths=tuple(kernel.widths), appends=appends, rotates=rotates,
        omitted=int(call.holds(_CALL, "append") and not appends)
        + int(call.holds(_CALL, "rope") and not rotates),
        visits_masked=name in timed.visits_masked,
        widens_cache=around.widens_cache and not kernel.plans,
        single_head_kernel=around.single_head_kernel,
        encoder=not (causal or appends),
        casts=name in timed.casts and not is_before(variant.version, timed.casts_from),
        backward_cost=kernel.backward_cost,
    )  # fmt: skip


def style_of(variant: Variant, device: Device) -> str:
    """The name that corrections know a kernel by: the library that runs, or a kernel beside its
    usual one.

    >>> from silicast.hardware.catalog import find_device
    >>> style_of(Variant(library="vllm", kernel="vllm_flash_attn_fa4"), find_device("H100"))
    'fa4'
    """
    scheme = scheme_for(variant, device)
    beside = None if scheme.encoder else kernel_rule(_CALL, RuleFacts.from_variant(variant))
    return beside.style if beside else scheme.library


@final
class DecodeTasks(Struct, frozen=True):
    """How one decode kernel shares work, one entry a sequence entry.

    Attributes:
        shared: query heads of one task, which read their keys and values together.
        rows: rows of its matrix products, padded.
        most_splits: parts a cache may be cut into.
        scalar: the kernel works one head at a time on the FMA pipe.
    """

    shared: I64
    rows: I64
    most_splits: I64
    scalar: BoolArray


def decode_tasks(
    scheme: Scheme, group: I64, window: I64, q_len: I64, blocks: F64, *, narrow: bool, cores: int
) -> DecodeTasks:
    """Tasks of a decode call; ``blocks`` are its 128-key blocks over sequences and heads.

    A grouped kernel beside a single-head one takes 2 to 32 heads a group, and 16-bit caches only
    where four times ``blocks`` exceed the cores; 8-bit caches are split with asynchronous matrix
    instructions alone. With ``tcgen05`` it takes all groups of up to 32 heads.
    """
    packed: BoolArray = group > 0
    scalar: BoolArray = group < 1
    most = xp.full_like(group, scheme.most_splits)
    if scheme.by_head:
        packed, scalar = group < 1, group > 0
    elif scheme.packs_groups:
        packed = window == 0
        most = xp.where(packed & (group > 1), most, 1)
    elif scheme.single_head_kernel:
        scalar = group > 32
        if scheme.mainloop != "tcgen05":
            scalar = scalar | (group == 1)
            if not narrow:
                scalar = scalar | (blocks * 4.0 <= cores)
            elif scheme.mainloop == "mma":
                most = xp.where(scalar, most, 1)
        packed = xp.logical_not(scalar)
    unit = scheme.decode_rows
    shared = xp.where(packed, group, 1)
    return DecodeTasks(shared, ceil_div(q_len * shared, unit) * unit, most, scalar)


SMALL_SHARED_MEMORY = 131_072
"""Cores with less (compute capability 8.6, 8.9, 12.0: 100 KiB) run smaller tiles."""


def query_rows(scheme: Scheme, head_dim: I64, packed_rows: I64, device: Device) -> I64:
    """Rows of a query tile: smaller ones where a sequence brings few."""
    if scheme.mainloop == "tcgen05":
        return xp.full_like(head_dim, 256)
    if scheme.mainloop == "wgmma":
        return xp.full_like(head_dim, 128)
    widest = xp.where(head_dim > 128, 64, 128)
    smem = device.memory.get("smem")
    if scheme.small_tiles and smem and smem.capacity_bytes < SMALL_SHARED_MEMORY:
        widest = xp.where(head_dim > 64, 64, widest)
    if scheme.packs:
        widest = xp.where(packed_rows > 64, widest, xp.where(packed_rows > 16, 64, 16))
    return widest


def key_rows(scheme: Scheme, head_dim: I64) -> I64:
    """Keys of one inner step."""
    if scheme.mainloop == "mma":
        return xp.where(head_dim <= 64, 128, xp.where(head_dim <= 128, 64, 32))
    return xp.where(head_dim <= 128, 128, 64)


def padded_width(scheme: Scheme, head_dim: I64) -> I64:
    """Head width that the matrix products are made with; above all compiled ones, its own.

    >>> import numpy as np
    >>> from silicast.hardware.catalog import find_device
    >>> fa3 = scheme_for(Variant(library="fa3"), find_device("H100"))
    >>> padded_width(fa3, np.array([64, 80, 600])).tolist()
    [64, 96, 600]
    """
    padded_width = head_dim
    if xp.all_of(head_dim == 128):  # the usual case
        return padded_width
    for width in reversed(scheme.widths):
        padded_width = xp.where(head_dim <= width, width, padded_width)
    return padded_width


def resident_ctas(scheme: Scheme, head_dim: I64, tile_q: I64, tile_kv: I64, device: Device) -> I64:
    """CTAs that share one core: shared memory for one query and two key-value tiles each."""
    if scheme.mainloop != "mma":
        return xp.full_like(head_dim, 1)
    smem = device.memory.get("smem")
    capacity = int(smem.capacity_bytes) if smem else 65536
    needed = 2 * head_dim * (tile_q + 2 * tile_kv)
    fit: I64 = xp.minimum(xp.maximum(capacity // needed, 1), 2)
    return fit


def token_tile(rows: I64, group: I64) -> I64:
    """Tokens of a tile of ``rows`` rows shared by ``group`` heads: a power of two, at least 1."""
    share = rows // group
    tokens: I64 = xp.lookup(_FLOOR_POWER, xp.minimum(share, 256))
    return tokens


_FLOOR_POWER = np.array([1] + [1 << (n.bit_length() - 1) for n in range(1, 257)], dtype=np.int64)
