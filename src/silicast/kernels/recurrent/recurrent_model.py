"""Time of one kernel of a recurrent mixer: bytes, the busiest core's work, and the serial chain.

    t = launch + first tokens + largest(memory, core, chain) + serial x the others

memory: rows, states and intermediate results, from DRAM as far as they outgrow the L2; core: what
the cores issue for every token and lane, whole chunks as far as they are padded; chain: chunks of
one sequence one after another, as often as blocks exceed what the device holds at once; first
tokens: those of one chunk, which its block takes one by one before anything else can go on.
docs/explanation/attention.md derives the terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Literal, final

import msgspec
from msgspec import Struct

from silicast.core import xp
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.physics.device_rates import cache_rate, data_rate
from silicast.kernels.recurrent.recurrent_work import MixerShape, RecurrentWork
from silicast.workload.graphs.op import Variant
from silicast.workload.libraries.catalog import ANY, kernel_rule, library, recurrent_styles
from silicast.workload.libraries.library_file import RecurrentStyle, RuleFacts

Phase = Literal["context", "generation", "verify"]
Kind = Literal["conv", "scan"]


def kind_of(kernel: str) -> Kind | None:
    """Which of a mixer's two kernels a name means; None = both (no name).

    >>> kind_of("causal_conv1d_update"), kind_of("chunk_kda"), kind_of("")
    ('conv', 'scan', None)
    """
    if not kernel:
        return None
    return "conv" if "conv" in kernel else "scan"


@lru_cache(maxsize=1024)
def style_of(
    family: str, kind: Kind, phase: Phase, variant: Variant, architecture: str
) -> RecurrentStyle:
    """The style of one of a mixer's kernels.

    Args:
        family: "gdn", "kda" or "mamba2".
        kind: which of its two kernels.
        phase: of the step.
        variant: names the kernel, or the library and its version; neither = what serving engines
            run today.
        architecture: of the device.

    >>> style_of("gdn", "scan", "context", Variant(), "hopper").name
    'delta_flashinfer'
    """
    rule = kernel_rule(family, RuleFacts.from_variant(variant, architecture, phase=phase), kind)
    assert rule is not None, "catalog/libraries/any.toml has a rule for every kernel"
    style = recurrent_styles()[rule.style]
    campaign = family == "gdn" and bool(variant.kernel or variant.version)
    return msgspec.structs.replace(style, keys_only=style.keys_only and campaign)


def is_known(family: str, kernel: str) -> bool:
    """Whether a kernel's name, if there is one, is one that was measured."""
    patterns = library(ANY).kernel_names.get(family, [])
    return not kernel or any(fnmatchcase(kernel, pattern) for pattern in patterns)


Constants = Mapping[str, float]


@final
class MixerTimes(Struct, frozen=True):
    """Times of one kernel, arrays of shape (n,), seconds; bytes from DRAM and through the L2."""

    time: F64
    memory: F64
    core: F64
    chain: F64
    blocks: F64
    rounds: F64
    dram_bytes: F64
    moved_bytes: F64


def chunks_of(shape: MixerShape, chunk: Any) -> tuple[F64, F64]:
    """Chunks of the longest sequence and of all sequences together; arrays of shape (n,).

    Where sequences differ, each is taken to leave half a chunk empty.
    """
    per_sequence = -(-shape.longest // chunk)
    most = shape.sequences * per_sequence
    even = shape.sequences * shape.longest == shape.tokens
    mixed = shape.tokens / chunk + 0.5 * shape.sequences
    return per_sequence, xp.where(even, most, xp.minimum(xp.maximum(mixed, per_sequence), most))


def estimate(
    shape: MixerShape,
    work: RecurrentWork,
    chunk: Any,
    align: Any,
    device: Device,
    c: Constants,
    cache: str,
) -> MixerTimes:
    """Time of one kernel under the constants of its style.

    Args:
        shape, work: what it does.
        chunk: tokens that a block takes at once.
        align: lengths that are no multiple of this take a slower path.
        device: what it runs on.
        c: constants.
        cache: cache state of the protocol.
    """
    clock = device.clocks.boost_hz
    per_sequence, chunks = chunks_of(shape, chunk)
    padded = chunks * chunk
    counted = shape.tokens + c["padding"] * xp.maximum(padded - shape.tokens, 0.0)
    cycles = counted * work.lanes * c["item_cycles"]
    blocks = shape.sequences * work.lanes
    cycles = cycles + blocks * c["block_cycles"]
    core = cycles / (device.cores * clock)

    held = blocks / (device.cores * c["resident"])
    rounds = xp.maximum(held, 1.0)
    rounds = rounds + c["quantisation"] * (xp.ceil(rounds) - rounds)
    serial_chunks = xp.maximum(per_sequence, chunks / shape.sequences * rounds)
    chain = serial_chunks * (c["chunk_cycles"] / clock)

    moved = work.row_bytes + c["state_passes"] * work.state_bytes
    moved = moved + c["middle_passes"] * work.middle_bytes
    moved = moved + (c["chunk_passes"] * chunks) * work.chunk_bytes
    dram_bytes = moved * _missing(moved, device, c)
    if cache == "cold":
        dram_bytes = xp.maximum(dram_bytes, work.least_bytes)
    memory = xp.maximum(
        dram_bytes / (data_rate(device) * c["dram_efficiency"]),
        moved / (cache_rate(device) * c["l2_efficiency"]),
    )
    largest = xp.maximum(xp.maximum(memory, core), chain)
    others = memory + core + chain - largest
    first = xp.minimum(shape.longest, chunk) * (c["token_cycles"] / clock)
    uneven = xp.where(shape.longest % align != 0.0, c["unaligned"], 1.0)
    # the CPU of a module with host and device (Grace) has slower single threads, which matters to
    # kernels that a campaign launched one by one
    launch_s = c["launch_s"] * (c["module_host"] if device.default_host else 1.0)
    time = launch_s + first + (largest + c["serial"] * others) * uneven
    return MixerTimes(time, memory, core, chain, blocks, rounds, dram_bytes, moved)


def _missing(moved: F64, device: Device, c: Constants) -> F64:
    """Share of the bytes that come from DRAM when the kernel runs again and again.

    A cache that keeps the right bytes saves what it holds; one that evicts what comes next saves
    less, down to nothing (``thrash``).
    """
    kept_bytes = c["kept_share"] * device.l2.capacity_bytes
    beyond = xp.maximum(1.0 - kept_bytes / xp.maximum(moved, 1.0), 0.0)
    missing: F64 = xp.minimum(beyond * c["thrash"], 1.0)
    return missing
