"""Which attention kernel a library runs on an architecture, and its tiles.

Facts of the libraries' sources: FlashAttention-2 (2307.08691), FlashAttention-3 (2407.08608),
FlashInfer (2501.01005), TensorRT-LLM's generated kernels for Hopper and Blackwell.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from silicast.core import xp
from silicast.core.numerics import F64, I64, ceil_div
from silicast.hardware.device import Device
from silicast.kernels.engine_kernels import kernels_of
from silicast.workload.op import Variant

BoolArray = NDArray[np.bool_]
Mainloop = Literal["fa2", "fa3", "fmha100"]

_CALL = "attention_prefill"
"""Of an engine's attention calls the one that is asked: prefill and decode are alike."""


@final
@dataclass(frozen=True)
class Scheme:
    """How one kernel cuts and orders prefill attention.

    Attributes:
        library: the kernel library ("fa2", "fa3", "flashinfer", "trtllm", "triton").
        caller: whose constants to use: the engine's where one is named, else the library's.
        mainloop: "fa2" (mma.sync, softmax in line with it), "fa3" (wgmma, two consumer groups in
            ping-pong), "fmha100" (tcgen05, two query tiles a CTA).
        packs: query heads of a group share a tile (rows = tokens x group).
        packs_single: they do so when every sequence brings one token.
        longest_first: tiles with most keys start first.
        splits: long caches are split where tiles are too few to fill the device.
        appends: the call also writes the new keys and values to the cache.
        rotates: the call also applies RoPE to queries and keys, in a kernel of its own.
        omitted: kernels that the engine's call holds and this one does not (append, RoPE).
        visits_masked: tiles wholly outside a window are looked at and skipped one by one.
        encoder: every query sees every key, and there is no cache: a vision or text encoder.
        plans: FlashInfer's plan decides on tiles and parts (:mod:`~.attention_plan`).
    """

    library: str
    caller: str
    mainloop: Mainloop
    packs: bool
    packs_single: bool
    longest_first: bool
    splits: bool
    appends: bool
    rotates: bool
    omitted: int
    visits_masked: bool
    encoder: bool
    plans: bool


_USUAL = {"hopper": "fa3", "blackwell": "trtllm"}
"""Architecture -> library where none is named."""


def resolve_library(library: str, kernel: str, architecture: str) -> str:
    """The kernel library behind an engine's name or a table's kernel name.

    >>> resolve_library("vllm", "", "hopper"), resolve_library("sglang", "", "ampere")
    ('fa3', 'flashinfer')
    """
    if "triton" in kernel or library == "triton":
        return "triton"
    if kernel.startswith("vllm_flashinfer_fi") or kernel.endswith("flashinfer"):
        return "trtllm" if architecture == "blackwell" else "flashinfer"
    known = kernels_of(library).library("attention_prefill", architecture)
    if known:
        return known
    if library == "":
        return _USUAL.get(architecture, "flashinfer")
    if library == "fa3" and architecture != "hopper":
        return "fa2"
    return library


def scheme_for(variant: Variant, device: Device) -> Scheme:
    """The attention kernel that ``variant.library`` runs on ``device``."""
    return _scheme(variant, device.architecture)


@lru_cache(maxsize=4096)
def _scheme(variant: Variant, architecture: str) -> Scheme:
    name = resolve_library(variant.library, variant.kernel, architecture)
    call = kernels_of(variant.library)
    caller = variant.library if call.holds(_CALL, "append") else name
    caller = "triton" if name == "triton" else caller
    causal = variant.flag("causal", default=True)  # else there is no cache to add to
    appends = variant.flag("append", default=causal and call.holds(_CALL, "append"))
    rotates = variant.flag("rope", default=causal and call.holds(_CALL, "rope"))
    usual = kernels_of(caller)
    mainloop: Mainloop = "fa2"
    if name != "triton":
        mainloop = "fa3" if architecture == "hopper" and name != "fa2" else mainloop
        mainloop = "fmha100" if architecture == "blackwell" else mainloop
    packs = name == "fa3" or (name == "flashinfer" and mainloop == "fa2")
    return Scheme(
        library=name,
        caller=caller,
        mainloop=mainloop,
        packs=packs and mainloop != "fmha100",
        packs_single=packs or name == "fa2" or (mainloop == "fmha100" and caller == "vllm"),
        longest_first=mainloop != "fa2" or name == "trtllm",
        splits=name == "fa3" or (name == "flashinfer" and mainloop == "fa2"),
        appends=appends,
        rotates=rotates,
        omitted=int(usual.holds(_CALL, "append") and not appends)
        + int(usual.holds(_CALL, "rope") and not rotates),
        visits_masked=name == "triton" and variant.library == "sglang",
        encoder=not (causal or appends),
        plans=name == "flashinfer" and mainloop == "fa2",
    )


_OWN_KERNELS = {"flashinfer": "flashinfer", "torch_flow_flashinfer": "flashinfer"}
"""Named kernels that share a model with others, but are not those that an engine usually runs."""


def style_of(variant: Variant, device: Device) -> str:
    """What corrections take a kernel for: the library that runs, or a kernel beside its usual one.

    >>> from silicast.hardware.catalog import find_device
    >>> style_of(Variant(library="vllm", kernel="vllm_flash_attn_fa4"), find_device("H100"))
    'fa4'
    """
    scheme = scheme_for(variant, device)
    if scheme.encoder:
        return scheme.library
    if variant.kernel.endswith("fa4"):
        return "fa4"
    return _OWN_KERNELS.get(variant.kernel, scheme.library)


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
    scheme: Scheme,
    group: I64,
    window: I64,
    q_len: I64,
    blocks: F64,
    *,
    narrow: bool,
    cores: int,
) -> DecodeTasks:
    """Tasks of a decode call; ``blocks`` are its 128-key blocks over sequences and heads.

    FlashAttention-2 packs a group, and splits, only without a window and with more than one head
    a group. TensorRT-LLM's grouped kernel (XQA) takes 2 to 32 heads a group, and 16-bit caches
    only where four times ``blocks`` exceed the cores; else its one-head kernel (MMHA) runs.
    8-bit caches are not split before Hopper; Blackwell kernels leave only groups above 32 to
    MMHA. Triton kernels of both engines cut a cache into at most 16 parts. From their sources.
    """
    packed: BoolArray = group > 0
    scalar: BoolArray = group < 1
    most = xp.full_like(group, 128)
    unit = 16
    if scheme.library == "fa2":
        packed, unit = window == 0, 64
        most = xp.where(packed & (group > 1), most, 1)
    elif scheme.caller == "trtllm":
        scalar = group > 32
        if scheme.mainloop != "fmha100":
            scalar = scalar | (group == 1)
            if not narrow:
                scalar = scalar | (blocks * 4.0 <= cores)
            elif scheme.mainloop == "fa2":
                most = xp.where(scalar, most, 1)
        packed = xp.logical_not(scalar)
    elif scheme.library == "triton":
        most = xp.full_like(group, 16)
    elif scheme.library == "fa3":
        unit = 64
    shared = xp.where(packed, group, 1)
    return DecodeTasks(shared, ceil_div(q_len * shared, unit) * unit, most, scalar)


SMALL_SHARED_MEMORY = 131_072
"""Cores with less (compute capability 8.6, 8.9, 12.0: 100 KiB) run smaller tiles."""


def query_rows(scheme: Scheme, head_dim: I64, packed_rows: I64, device: Device) -> I64:
    """Rows of a query tile: smaller ones where a sequence brings few.

    FlashAttention-2 takes 64 x 64 tiles for causal heads 65 to 128 wide where shared memory is
    small (its launch template).
    """
    if scheme.mainloop == "fmha100":
        return xp.full_like(head_dim, 256)
    if scheme.mainloop == "fa3":
        return xp.full_like(head_dim, 128)
    widest = xp.where(head_dim > 128, 64, 128)
    smem = device.memory.get("smem")
    if scheme.library == "fa2" and smem and smem.capacity_bytes < SMALL_SHARED_MEMORY:
        widest = xp.where(head_dim > 64, 64, widest)
    if scheme.packs:
        widest = xp.where(packed_rows > 64, widest, xp.where(packed_rows > 16, 64, 16))
    return widest


def key_rows(scheme: Scheme, head_dim: I64) -> I64:
    """Keys of one inner step."""
    if scheme.mainloop == "fa2":
        return xp.where(head_dim <= 64, 128, xp.where(head_dim <= 128, 64, 32))
    return xp.where(head_dim <= 128, 128, 64)


WIDTHS = {
    "fa2": (32, 64, 96, 128, 192, 256, 512),
    "fa3": (64, 96, 128, 192, 256, 512),
    "triton": (16, 32, 64, 128, 256, 512),
}
"""Library -> head widths that it compiles; others are padded to the next."""


def padded_width(scheme: Scheme, head_dim: I64) -> I64:
    """Head width that the matrix products are made with; above all compiled ones, its own.

    >>> import numpy as np
    >>> from silicast.hardware.catalog import find_device
    >>> fa3 = scheme_for(Variant(library="fa3"), find_device("H100"))
    >>> padded_width(fa3, np.array([64, 80, 600])).tolist()
    [64, 96, 600]
    """
    found = head_dim
    if xp.all_of(head_dim == 128):  # the usual case
        return found
    for width in reversed(WIDTHS.get(scheme.library, ())):
        found = xp.where(head_dim <= width, width, found)
    return found


def resident_ctas(scheme: Scheme, head_dim: I64, tile_q: I64, tile_kv: I64, device: Device) -> I64:
    """CTAs that share one core: shared memory for one query and two key-value tiles each."""
    if scheme.mainloop != "fa2":
        return xp.full_like(head_dim, 1)
    smem = device.memory.get("smem")
    capacity = int(smem.capacity_bytes) if smem else 65536
    needed = 2 * head_dim * (tile_q + 2 * tile_kv)
    fit: I64 = xp.minimum(xp.maximum(capacity // needed, 1), 2)
    return fit


def token_tile(rows: I64, group: I64) -> I64:
    """Tokens of a tile of ``rows`` rows shared by ``group`` heads: a power of two, at least 1."""
    share = rows // group
    tokens: I64 = _FLOOR_POWER[xp.minimum(share, 256)]
    return tokens if isinstance(share, np.ndarray) else tokens.item()


_FLOOR_POWER = np.array([1] + [1 << (n.bit_length() - 1) for n in range(1, 257)], dtype=np.int64)
