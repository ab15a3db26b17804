"""Whether a server starts on its devices: what it sets aside, and the cache that this leaves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import final

from silicast.composition.memory.memory import GIB, LaunchMemory, launch_memory
from silicast.composition.memory.memory_advice import less_on_device, weights_on_host
from silicast.composition.passes.deployment import Deployment
from silicast.core.errors import SilicastError
from silicast.core.monotone import largest
from silicast.serving.kv.kv_pool import KvLayout
from silicast.workload.models.counting import state_bytes

MOST_TP = 64
MIB = float(1 << 20)
SHARES = (0.9, 0.92, 0.95, 0.97, 0.98)
"""Shares of memory that people set; beyond the last one a device runs out of memory."""
_WORDS = {
    "weights": "weights",
    "results": "results of the profiled step and its sampler",
    "process": "process",
    "collectives": "collectives",
    "graphs": "captured graphs",
}


@final
@dataclass(frozen=True)
class ServerStart:
    """A server as it starts on one group of ranks.

    Attributes:
        sequences: most that run at once; tokens: most new ones of a step.
        share: of memory that it may fill; 0 = the engine's default.
        alone: it may fill more than its share.
    """

    deployment: Deployment
    sequences: int
    tokens: int
    share: float = 0.0
    alone: bool = True

    @cached_property
    def memory(self) -> LaunchMemory:
        """What its fullest device holds when the server starts."""
        rows = min(self.sequences, self.tokens)
        return launch_memory(self.deployment, self.tokens, rows, self.share)

    @cached_property
    def layout(self) -> KvLayout:
        return KvLayout.from_deployment(self.deployment)

    @property
    def blocks(self) -> int:
        """Blocks that the KV cache has room for."""
        return max(self.memory.cache // self.layout.block_bytes, 0)

    @cached_property
    def state_bytes(self) -> int:
        """Of the states of a sequence on a device; 0 where no pool holds them."""
        deployment = self.deployment
        table = deployment.engine.serving
        if table is None or table.state_pool is None:
            return 0
        model, plan, policy = deployment.model, deployment.plan, deployment.policy
        return state_bytes(model, plan, deployment.precision, policy)

    def holds(self, tokens: int) -> bool:
        """Whether its cache holds one sequence of so many tokens."""
        return self.layout.of_one(max(tokens, 1)) <= self.blocks

    def require(self, tokens: int) -> None:
        """Refuses a start that fails: without room for one sequence of so many tokens.

        Raises:
            SilicastError: it does not fit; names what takes how much, and the smallest changes
                with which it starts.
        """
        if not self.holds(tokens):
            message, hint = _refusal(self, tokens)
            raise SilicastError(message, field="parallel", hint=hint)

    def refusal(self, tokens: int) -> tuple[str, str]:
        """The message about a start that fails, and what to do about it."""
        deployment, memory = self.deployment, self.memory
        needed = self.layout.of_one(max(tokens, 1)) * self.layout.block_bytes
        missing = (needed - memory.cache) / GIB
        parts = memory.parts
        taken = ", ".join(f"{words} {parts[n]:.2f}" for n, words in _WORDS.items() if n in parts)
        subject = f"a KV cache of {tokens} tokens (max_model_len)" if tokens else "a KV cache"
        remedies = list(self._remedies(tokens)) or weights_on_host(
            deployment, lambda other: replace(self, deployment=other).holds(tokens)
        )
        hint = f"it starts with {' or '.join(remedies)}" if remedies else ""
        message = (
            f"{deployment.engine.name} does not start with {deployment.model.name} on "
            f"{deployment.plan.gpus} x {deployment.device.name}: {missing:.2f} GiB a device are "
            f"missing for {subject}; it may fill {parts['usable']:.2f} GiB: {taken}"
        )
        return message, hint or "more or larger devices, or a smaller format of the weights"

    def _remedies(self, tokens: int) -> Iterator[str]:
        """The smallest changes with which it starts, one of each kind."""
        usable_share = self.share or self.deployment.engine.memory.usable_fraction
        for share in SHARES:
            if self.alone and share > usable_share and replace(self, share=share).holds(tokens):
                yield f"gpu_memory_utilization = {share:g}"
                break
        fewer = largest(
            lambda count: replace(self, sequences=count).holds(tokens), self.sequences - 1
        )
        if fewer:
            yield f"max_num_seqs = {fewer}"
        if tokens and self.blocks:
            yield f"max_model_len = {self._longest(tokens)}"
        if less := less_on_device(
            self.deployment, lambda other: replace(self, deployment=other).holds(tokens)
        ):
            yield less
        wider = self._wider(tokens)
        if wider:
            yield f"tp = {wider}"

    def _longest(self, most: int) -> int:
        return largest(self.holds, most)

    def _wider(self, tokens: int) -> int:
        """The smallest tensor-parallel degree that the model allows and that fits; 0 = none."""
        plan, degree = self.deployment.plan, self.deployment.plan.tp * 2
        while degree <= MOST_TP:
            try:
                wider = replace(self.deployment, plan=replace(plan, tp=degree))
                if replace(self, deployment=wider).holds(tokens):
                    return degree
            except SilicastError:
                return 0  # the model cannot be cut so finely
            degree *= 2
        return 0


@lru_cache(maxsize=256)
def _refusal(start: ServerStart, tokens: int) -> tuple[str, str]:
    """:meth:`ServerStart.refusal`, whose remedies are found by trial, once."""
    return start.refusal(tokens)


def pooled(start: ServerStart, drafted: int, *, caching: bool) -> tuple[int, int]:
    """Sequences and blocks of a server that keeps states of recurrent layers in a pool: as many
    sequences run as it has states for. Without such layers or such a pool, those of the start.

    Args:
        drafted: tokens that a step verifies for a sequence beside its own, each with a state.
        caching: prompts that begin alike share what is cached, which keeps states too.

    Raises:
        SilicastError: the pool leaves nothing to the other layers' cache.
    """
    deployment, table = start.deployment, start.deployment.engine.serving
    pool, state = table.state_pool if table is not None else None, start.state_bytes
    if table is None or pool is None or not state:
        return start.sequences, start.blocks
    sequences, free = start.sequences, start.memory.cache
    if drafted:
        sequences = min(sequences, pool.drafted_sequences or sequences)
        free -= sequences * drafted * state
    states = table.states // deployment.plan.attention_dp
    states = states or int(max(free, 0) * pool.ratio / (1.0 + pool.ratio)) // state
    each = pool.states_a_request if caching else 1
    sequences = min(sequences, states // each)
    remaining = free - states * state
    if not sequences or remaining < start.layout.block_bytes:
        raise SilicastError(
            f"{states} states of {state / MIB:.1f} MiB leave {remaining / GIB:.2f} GiB a device to "
            f"the KV cache of {deployment.model.name}, and room for {sequences} sequences",
            field="engine.options.max_mamba_cache_size",
            hint="fewer states, or more or larger devices",
        )
    return sequences, (remaining + sequences * state) // start.layout.block_bytes
