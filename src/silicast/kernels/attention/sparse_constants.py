"""Constants (physics/sparse.json), shared errors and memory bounds of sparse attention."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from silicast.core import xp
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.attention.attention_memory import L2_BYTES_PER_CLOCK_AND_CORE
from silicast.kernels.physics.constants import has_physics, load_physics, shared_errors
from silicast.workload.graphs.op import OpBatch

GROUP = "sparse"
MODULES = "sparse_modules"
"""Constants of kernels that were timed inside modules only: those of a library's own attention."""


@lru_cache(maxsize=1024)
def sparse_constants(family: str, architecture: str, style: str = "") -> Mapping[str, float]:
    """Constants of one family, "<family>.<name>" in the file, under their plain names; those of a
    style, "<family>.<style>.<name>", and before them of its first word are put over them.
    """
    own_table = load_physics(MODULES).constants(architecture) if has_physics(MODULES) else {}
    table = {**load_physics(GROUP).constants(architecture), **own_table}
    prefix = family + "."
    entries = {k.removeprefix(prefix): v for k, v in table.items() if k.startswith(prefix)}
    plain = {k: v for k, v in entries.items() if "." not in k}
    for over in dict.fromkeys((style.partition("_")[0], style)):
        dotted = over + "."
        plain |= {k.removeprefix(dotted): v for k, v in entries.items() if k.startswith(dotted)}
    return plain


def library_style(batch: OpBatch) -> str:
    """Whose constants: a library's own kernel in a phase, of compressed entries or of blocks of
    keys apart; "" = the usual kernel.

    >>> import numpy as np
    >>> from silicast.workload.graphs.op import Variant
    >>> trtllm = Variant(library="trtllm", flags=(("decode", True),))
    >>> library_style(OpBatch("topk", trtllm, {"kv_len": np.array([9])}))
    'trtllm_decode'
    """
    variant = batch.variant
    kind = "blocks" if "pool" in batch.dims else "compressed" if "ratio" in batch.dims else ""
    if not variant.library:
        return kind
    phase = "decode" if variant.flag("decode") else "prefill"
    return "_".join(word for word in (kind, variant.library, phase) if word)


def sparse_errors(family: str, device: Device) -> Mapping[str, float]:
    """Log sd of the errors that all kernels of a family make."""
    c = sparse_constants(family, device.architecture)
    return shared_errors(family, c)


def memory_bounds(
    device: Device, read: F64, written: F64, cache: str
) -> tuple[F64, dict[str, F64]]:
    """Bytes that must come from memory in a cache state, and resource -> time at its peak."""
    beyond = xp.maximum(read + written - device.l2.capacity_bytes, 0.0)
    forced = xp.maximum(read, beyond) if cache == "cold" else beyond
    ports = device.cores * device.clocks.max_hz * L2_BYTES_PER_CLOCK_AND_CORE
    return forced, {
        "dram": forced / device.dram.bandwidth_bytes_per_s,
        "l2": (read + written) / ports,
    }
