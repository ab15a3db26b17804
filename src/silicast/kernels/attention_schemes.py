"""Which attention kernel a library runs on an architecture, and its tiles.

Facts of the libraries' sources: FlashAttention-2 (2307.08691), FlashAttention-3 (2407.08608),
FlashInfer (2501.01005), TensorRT-LLM's generated kernels for Hopper and Blackwell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from silicast.core.numerics import I64, ceil_div
from silicast.hardware.device import Device
from silicast.workload.op import Variant

Mainloop = Literal["fa2", "fa3", "fmha100"]


@final
@dataclass(frozen=True)
class Scheme:
    """How one kernel cuts and orders prefill attention.

    Attributes:
        library: the kernel library ("fa2", "fa3", "flashinfer", "trtllm", "triton").
        caller: whose constants to use: the engine where one is named, else the library.
        mainloop: "fa2" (mma.sync, softmax in line with it), "fa3" (wgmma, two consumer groups in
            ping-pong), "fmha100" (tcgen05, two query tiles a CTA).
        packs: query heads of a group share a tile (rows = tokens x group).
        longest_first: tiles with most keys start first.
        splits: long caches are split where tiles are too few to fill the device.
        appends: the call also writes the new keys and values to the cache.
        rotates: the call also applies RoPE to queries and keys, in a kernel of its own.
    """

    library: str
    caller: str
    mainloop: Mainloop
    packs: bool
    longest_first: bool
    splits: bool
    appends: bool
    rotates: bool


ENGINES = frozenset({"vllm", "sglang", "trtllm"})
"""Libraries whose call is an engine's attention layer: kernel and cache update."""

_ENGINE_KERNELS: dict[tuple[str, str], str] = {
    ("vllm", "hopper"): "fa3",
    ("vllm", "blackwell"): "trtllm",
    ("vllm", ""): "fa2",
    ("sglang", "hopper"): "fa3",
    ("sglang", "blackwell"): "trtllm",
    ("sglang", ""): "flashinfer",
    ("", "hopper"): "fa3",
    ("", "blackwell"): "trtllm",
    ("", ""): "flashinfer",
}


def resolve_library(library: str, kernel: str, architecture: str) -> str:
    """The kernel library behind an engine's name or a table's kernel name.

    >>> resolve_library("vllm", "", "hopper"), resolve_library("sglang", "", "ampere")
    ('fa3', 'flashinfer')
    """
    if "triton" in kernel or library == "triton":
        return "triton"
    if kernel.startswith("vllm_flashinfer_fi") or kernel.endswith("flashinfer"):
        return "trtllm" if architecture == "blackwell" else "flashinfer"
    known = _ENGINE_KERNELS.get((library, architecture)) or _ENGINE_KERNELS.get((library, ""))
    if known:
        return known
    if library == "fa3" and architecture != "hopper":
        return "fa2"
    return library


def scheme_for(variant: Variant, device: Device) -> Scheme:
    """The attention kernel that ``variant.library`` runs on ``device``."""
    architecture = device.architecture
    name = resolve_library(variant.library, variant.kernel, architecture)
    engine = variant.library in ENGINES
    caller = "triton" if name == "triton" else variant.library or name
    appends = variant.flag("append", default=engine)
    rotates = variant.flag("rope", default=variant.library == "trtllm")
    if architecture == "hopper" and name not in ("fa2", "triton"):
        packs = name != "trtllm"
        splits = name == "fa3"
        return Scheme(name, caller, "fa3", packs, True, splits, appends, rotates)
    if architecture == "blackwell" and name != "triton":
        return Scheme(name, caller, "fmha100", False, True, False, appends, rotates)
    fi = name == "flashinfer"
    return Scheme(name, caller, "fa2", fi, name == "trtllm", fi, appends, rotates)


def query_rows(scheme: Scheme, head_dim: I64, packed_rows: I64) -> I64:
    """Rows of a query tile: smaller ones where a sequence brings few."""
    if scheme.mainloop == "fmha100":
        return np.full_like(head_dim, 256)
    if scheme.mainloop == "fa3":
        return np.full_like(head_dim, 128)
    widest = np.where(head_dim > 128, 64, 128)
    if scheme.packs:
        widest = np.where(packed_rows > 64, widest, np.where(packed_rows > 16, 64, 16))
    return widest


def key_rows(scheme: Scheme, head_dim: I64) -> I64:
    """Keys of one inner step."""
    if scheme.mainloop == "fa2":
        return np.where(head_dim <= 64, 128, np.where(head_dim <= 128, 64, 32))
    return np.where(head_dim <= 128, 128, 64)


def resident_ctas(scheme: Scheme, head_dim: I64, tile_q: I64, tile_kv: I64, device: Device) -> I64:
    """CTAs that share one core: shared memory for one query and two key-value tiles each."""
    if scheme.mainloop != "fa2":
        return np.ones_like(head_dim)
    smem = device.memory.get("smem")
    capacity = int(smem.capacity_bytes) if smem else 65536
    needed = 2 * head_dim * (tile_q + 2 * tile_kv)
    return np.clip(capacity // needed, 1, 2)


def token_tile(rows: I64, group: I64) -> I64:
    """Tokens of a tile of ``rows`` rows shared by ``group`` heads: a power of two, at least 1."""
    tokens = np.ones_like(rows)
    for size in (2, 4, 8, 16, 32, 64, 128, 256):
        tokens = np.where(size * group <= rows, size, tokens)
    return tokens


def padded_rows(rows: I64, unit: int) -> I64:
    """Rows rounded up to what one matrix instruction takes."""
    return ceil_div(rows, unit) * unit
