"""The KV cache as engines print it when they start: its tokens, and how many sequences as long as
the model allows it holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from silicast.composition.memory.memory import GIB
from silicast.composition.passes.deployment import Deployment
from silicast.core.prediction import Z90, Quantity
from silicast.serving.kv.kv_pool import KvLayout
from silicast.serving.simulation.launch import serving_table, start_of, usual_sequences
from silicast.serving.simulation.limits import UNBOUNDED, Limits

NO_START = (
    "{} does not start at the context of {}, {} tokens: its KV cache has {}; predicted as launched "
    "with engine.options.max_model_len = {}"
)
FEWER = (
    "max_num_seqs = {} is assumed: at {}, the default of {} on {}, the KV cache does not hold the "
    "longest request; engine.options.max_num_seqs states it"
)


@final
@dataclass(frozen=True, slots=True)
class PrintedCache:
    """The cache of one group of ranks.

    Attributes:
        tokens: that it holds where every layer keeps every token.
        gib: on one device, 2^30 bytes.
        model_tokens: of the longest sequence that the engine takes; 0 = not known.
        concurrency: sequences as long as that which it holds at once; need not be whole.
        parts: what the start sets aside on one device, 2^30 bytes; {} where the blocks are stated.
        unsure_gib: of the cache, by which 90 % of devices are above or below.
    """

    tokens: int
    gib: float
    model_tokens: int
    concurrency: float
    parts: dict[str, float]
    unsure_gib: float

    @property
    def unsure_share(self) -> float:
        """Of the cache, by which 90 % of devices are above or below."""
        return min(self.unsure_gib / self.gib, 1.0) if self.gib else 0.0

    def beliefs(self) -> dict[str, Quantity]:
        """The metrics that answers state."""
        share = self.unsure_share
        values = {"kv_cache_tokens": float(self.tokens), "kv_cache_concurrency": self.concurrency}
        return {
            name: Quantity(value, value * (1.0 - share), value * (1.0 + share))
            for name, value in values.items()
            if name != "kv_cache_concurrency" or self.model_tokens
        }

    def why(self) -> dict[str, Any]:
        """Numbers of an answer."""
        return {
            "tokens": self.tokens,
            "gib": round(self.gib, 3),
            "model_tokens": self.model_tokens,
            "max_concurrency": round(self.concurrency, 3),
        } | ({"launch_gib": self.parts} if self.parts else {})


def printed_cache(deployment: Deployment, limits: Limits, layout: KvLayout) -> PrintedCache:
    """The cache of a deployment under the limits with which its engine started."""
    longest = deployment.model.max_positions
    if limits.model_tokens < UNBOUNDED:
        longest = min(longest, limits.model_tokens) if longest else limits.model_tokens
    each = layout.of_one(longest) if longest else 0
    parts, unsure = {}, 0.0
    launch = deployment.engine.launch_memory
    if not serving_table(deployment).blocks:
        memory = start_of(deployment, limits).memory
        parts = memory.parts
        if launch is not None:
            aside = memory.usable - memory.weights - memory.cache
            unsure = Z90 * launch.log_sd * aside / GIB
    return PrintedCache(
        tokens=limits.blocks * layout.block_tokens,
        gib=limits.blocks * layout.block_bytes / GIB,
        model_tokens=longest,
        concurrency=limits.blocks / each if each else 0.0,
        parts=parts,
        unsure_gib=unsure,
    )


def launch_remarks(deployment: Deployment, limits: Limits, layout: KvLayout) -> list[str]:
    """What a reader must know of limits that nobody stated."""
    printed, engine = printed_cache(deployment, limits, layout), deployment.engine
    remarks = []
    usual = usual_sequences(deployment)
    if limits.sequences < usual:
        remarks.append(FEWER.format(limits.sequences, usual, engine.name, deployment.device.name))
    short = printed.model_tokens and printed.concurrency < 1.0
    refuses = engine.launch_memory is not None and engine.memory.fraction_of == "device"
    if short and refuses and limits.model_tokens == UNBOUNDED:
        longest = (printed.model_tokens, printed.tokens)
        fits = _most(layout, limits, printed.model_tokens)
        remarks.append(NO_START.format(engine.name, deployment.model.name, *longest, fits))
    return remarks


def _most(layout: KvLayout, limits: Limits, most: int) -> int:
    from silicast.serving.capacity.room import longest_sequence

    return longest_sequence(limits, layout, most)
