"""The queues and the KV cache of one group of ranks, as a policy sees and changes them."""

from __future__ import annotations

from collections import deque
from typing import final

import numpy as np

from silicast.core.errors import SilicastError
from silicast.core.numerics import I64
from silicast.serving.kv.host_cache import HostCache, HostLink, HostTraffic, KvTier
from silicast.serving.kv.kv_pool import KvLayout
from silicast.serving.kv.prefix_cache import PrefixCache
from silicast.serving.simulation.cohort import Cohort
from silicast.serving.simulation.limits import Limits
from silicast.serving.traffic.requests import Content


@final
class SimulatedRequests:
    """All requests of a simulation as their engines see them; int64 arrays of shape (n,).

    ``at_cached``, ``at_made`` and ``at_held`` are the same one by one, quickly, of sequences that
    are in no :class:`~.cohort.Cohort`.

    Attributes:
        prompt: tokens of the prompt; ``limit``: of output, as the client states it at most.
        content: what prompts share, if that is known.
        todo: tokens to be cached before the next one comes: the prompt, after a preemption with
            what was generated before.
        cached: tokens whose keys and values are there; ``made``: generated; ``held``: blocks to
            which it refers, shared ones too.
        reused: tokens of the prompt that were found in a cache; ``loaded``: those of them that were
            in the host's memory alone.
        swaps: how many of its preemptions left its blocks in the host's memory.
        traffic: what moved there and back.
    """

    def __init__(self, prompt: I64, limit: I64, content: Content | None = None) -> None:
        count = len(prompt)
        self.prompt, self.limit, self.content = prompt, limit, content
        self.todo = prompt.copy()
        self.preemptions, self.reused, self.loaded, self.swaps = (
            np.zeros(count, dtype=np.int64) for _ in range(4)
        )
        # as they were when a cohort last settled; ``want``, ``end``, ``base`` are of cohorts alone
        self.cached_then, self.made_then, self.held_then, self.want, end, base = (
            np.zeros(count, dtype=np.int64) for _ in range(6)
        )
        self.at_cached, self.at_made, self.at_held, self.at_want, self.at_end, self.at_base = (
            each.data
            for each in (self.cached_then, self.made_then, self.held_then, self.want, end, base)
        )
        self.unsettled: set[Cohort] = set()
        self.traffic = HostTraffic()

    @property
    def cached(self) -> I64:
        """Tokens whose keys and values are there."""
        self._settle()
        return self.cached_then

    @property
    def made(self) -> I64:
        """Generated tokens."""
        self._settle()
        return self.made_then

    @property
    def held(self) -> I64:
        """Blocks to which each refers."""
        self._settle()
        return self.held_then

    def _settle(self) -> None:
        while self.unsettled:
            self.unsettled.pop().settle()


@final
class QueueGroup:
    """The queues and the cache of one group of ranks (one of attention_dp, or the whole replica).

    Attributes:
        waiting: arrived, the first to be served first; ``running``: in order of admission.
        filling: those of ``running`` whose prompts are not complete, in that order.
        flying: those that a step under way holds.
        holding: no tokens of prompts in the next step, as the groups have agreed.
        free: blocks that can be had: unused ones, and cached ones to which nobody refers.
        prefix: what earlier requests left; None = nothing is kept.
        loading: requests whose prefixes move from the host -> when they are here; ``fetched``:
            waiting ones whose prefixes have come, and hold their blocks.
        swapped: preempted, with their blocks in the host's memory; ``swap_free``: blocks for which
            there is room; ``host_bytes``: of that room and of cached blocks, all ranks.
        cohort: its sequences in decode; None = they go on one by one, with drafts or several steps
            in flight.
        now_ns: when something is decided; ``came_ns``: when requests came, only for policies that
            ask for the time.
    """

    def __init__(self, sequences: SimulatedRequests, layout: KvLayout, limits: Limits) -> None:
        self.sequences, self.layout, self.limits = sequences, layout, limits
        self.waiting: deque[int] = deque()
        self.running: list[int] = []
        self.filling: list[int] = []
        self.flying: set[int] = set()
        self.holding = False
        self.free = limits.blocks
        self.loading: dict[int, int] = {}
        self.fetched: set[int] = set()
        self.swapped: deque[int] = deque()
        self.swap_free = self.host_bytes = 0
        self._link_ns = 0
        self.now_ns = 0
        self.came_ns: dict[int, int] = {}
        self.cohort: Cohort | None = None
        self.prefix: PrefixCache | None = None
        if limits.prefix_caching:
            self.prefix = PrefixCache(sequences.content, sequences.prompt, layout)

    @property
    def host(self) -> HostLink:
        """What joins the devices to their host's memory.

        Raises:
            SilicastError: nothing does.
        """
        if self.limits.host is None:
            raise SilicastError(
                "the device has no link to its host's memory",
                field="device",
                hint="links.pcie of the device file",
            )
        return self.limits.host

    def keep_on_host(self, blocks: int, hits: int = 1) -> None:
        """Cached blocks stay in the host's memory, as :class:`HostCache` says."""
        if self.prefix is not None and blocks > 0:
            self.prefix.host = self._cache(blocks, hits, None, self._tiers())
            self.host_bytes += self.host.bytes_of(blocks)

    def _tiers(self) -> HostCache | None:
        """The tiers below the host's memory, the first of them."""
        below: HostCache | None = None
        for tier in reversed(self.limits.kv_tiers):
            below = self._cache(self.host.blocks(tier.size_bytes), 1, tier, below)
        return below

    def _cache(
        self, blocks: int, hits: int, tier: KvTier | None, below: HostCache | None
    ) -> HostCache:
        return HostCache(blocks, hits, self.host, self.sequences.traffic, tier, below)

    def swap_to_host(self, blocks: int) -> None:
        """Preempted sequences may leave so many blocks in the host's memory."""
        self.swap_free = blocks
        self.host_bytes += self.host.bytes_of(blocks)

    @property
    def queued(self) -> int:
        """Sequences that wait, wherever."""
        return len(self.waiting) + len(self.loading) + len(self.swapped)

    def grow(self, request: int, tokens: int) -> bool:
        """Takes the blocks for ``tokens`` cached tokens in all; False if they are not free."""
        self.apart(request)
        held = self.sequences.at_held
        more = self.layout.of_one(tokens) - held[request]
        if more > self.free:
            return False
        if more > 0:
            held[request] += more
            self.free -= more
        return True

    def apart(self, request: int) -> None:
        """A sequence is in no cohort: it goes on alone, or no more."""
        if self.cohort is not None and request in self.cohort:
            self.cohort.leave(request)

    def made(self, request: int) -> int:
        """Tokens that a sequence has generated."""
        if self.cohort is not None and request in self.cohort:
            return self.cohort.made(request)
        return self.sequences.at_made[request]

    def advance(self, requests: list[int]) -> bool:
        """Takes the blocks for one more token of each, and for what is drafted; False, and no
        block, if they are not free.
        """
        if self.cohort is not None:
            self.cohort.become(requests)
            blocks = self.cohort.take(1, self.free)
            self.free -= max(blocks, 0)
            return blocks >= 0
        rows = np.array(requests, dtype=np.int64)
        tokens = self.sequences.cached[rows] + (1 + self.limits.drafted)
        more = np.maximum(self.layout.of_tokens(tokens) - self.sequences.held[rows], 0)
        blocks = int(np.add.reduce(more))
        if blocks > self.free:
            return False
        if blocks:
            self.sequences.held[rows] += more
            self.free -= blocks
        return True

    def lookup(self, request: int) -> tuple[int, int]:
        """Tokens of a waiting request that are cached, and how many of their blocks others hold:
        it needs the blocks of all its tokens, without those, to be free.
        """
        if self.prefix is None:
            return 0, 0
        if request in self.fetched:
            return self.sequences.at_cached[request], self.sequences.at_held[request]
        self._settle(self.prefix)
        return self.prefix.lookup(request, int(self.sequences.todo[request]))

    def start(self, request: int, reused: int = 0) -> int:
        """A sequence that waited runs; its prompt is not complete. Returns in how many nanoseconds
        what it found in the host's memory alone is here.

        Args:
            reused: tokens of it that :meth:`lookup` has just found.
        """
        sequences, load_ns = self.sequences, 0
        self.running.append(request)
        self.filling.append(request)
        if request in self.fetched:
            self.fetched.discard(request)
        elif reused and self.prefix is not None:
            load_ns = self._refer(self.prefix, request, reused)
        if not sequences.preemptions[request]:
            sequences.reused[request] = reused
        return load_ns

    def _refer(self, prefix: PrefixCache, request: int, reused: int) -> int:
        """Takes the blocks that were found; returns how long those of the host take to load."""
        sequences, absent, load_ns = self.sequences, prefix.absent(request, reused), 0
        if absent:
            blocks = self.layout.of_one(reused) - self.layout.of_one(reused - absent)
            sequences.traffic.loaded_bytes += self.host.bytes_of(blocks)
            load_ns = self.host.time_ns(blocks)
            load_ns += sum(tier.read_ns(count) for tier, count in prefix.below(request, reused))
        if not sequences.preemptions[request]:
            sequences.loaded[request] = absent
        self.free -= prefix.pin(request, reused)
        sequences.at_cached[request] = reused
        sequences.at_held[request] = self.layout.of_one(reused)
        return load_ns

    def fetch(self, request: int, reused: int) -> bool:
        """The first that waits gets what is in the host's memory alone before it starts; False if
        there is nothing to wait for.
        """
        prefix = self.prefix
        if prefix is None or prefix.host is None or request in self.fetched:
            return False
        absent = prefix.absent(request, reused)
        blocks = self.layout.of_one(reused) - self.layout.of_one(reused - absent)
        if not (self.host.time_ns(blocks) or prefix.below(request, reused)):
            return False
        self.waiting.popleft()
        load_ns = self._refer(prefix, request, reused)
        self._link_ns = max(self._link_ns, self.now_ns) + load_ns
        self.loading[request] = self._link_ns
        return True

    def land(self) -> None:
        """Those whose prefixes have come wait before all others."""
        landed = [request for request, ready in self.loading.items() if ready <= self.now_ns]
        for request in reversed(landed):
            del self.loading[request]
            self.fetched.add(request)
            self.waiting.appendleft(request)

    def yield_fetched(self) -> bool:
        """The last of those that wait, but for the first, gives back blocks that came for it; False
        if there is none. It may find them again.
        """
        others = [each for each in list(self.waiting)[1:] if each in self.fetched]
        if not others or self.prefix is None:
            return False
        self.fetched.discard(others[-1])
        self._leave(self.prefix, others[-1], keep=False)
        self.sequences.at_cached[others[-1]] = 0
        return True

    def publish(self, request: int, tokens: int) -> None:
        """Others may use what is cached of the first ``tokens`` of a running sequence."""
        prefix = self.prefix
        if prefix is not None and prefix.shares:
            self._settle(prefix)
            self.free += prefix.publish(request, min(tokens, prefix.shared_tokens(request)))

    def release(self, request: int, *, keep: bool = True) -> None:
        """Gives back the blocks of a sequence.

        Args:
            keep: later ones may find its computed tokens, until its blocks are needed.
        """
        sequences, prefix = self.sequences, self.prefix
        self.apart(request)
        held = sequences.at_held[request]
        if prefix is not None and (prefix.shares or prefix.idle or prefix.blocks(request)):
            self._leave(prefix, request, keep=keep)
            return
        self.free += held
        sequences.at_held[request] = 0

    def _leave(self, prefix: PrefixCache, request: int, *, keep: bool) -> None:
        sequences = self.sequences
        self._settle(prefix)
        if keep:
            self.free += prefix.publish(request, sequences.at_cached[request])
        self.free += sequences.at_held[request] - prefix.blocks(request)
        sequences.at_held[request] = 0
        self.free += prefix.unpin(request)

    def hand(self, request: int) -> int:
        """A sequence goes on elsewhere; returns its own blocks, which stay until it has moved."""
        sequences, prefix = self.sequences, self.prefix
        blocks = sequences.at_held[request]
        if prefix is not None:
            self._settle(prefix)
            if prefix.shares:
                self.free += prefix.publish(request, sequences.at_cached[request])
            blocks -= prefix.blocks(request)
        sequences.at_held[request] = 0
        return blocks

    def handed(self, request: int, blocks: int) -> None:
        """It has moved: what :meth:`hand` returned is free."""
        self.free += blocks
        if self.prefix is not None:
            self._settle(self.prefix)
            self.free += self.prefix.unpin(request)

    def _settle(self, prefix: PrefixCache) -> None:
        """Blocks that were taken since are no longer cached."""
        if prefix.idle > self.free:
            prefix.evict(prefix.idle - self.free)

    def preempt(self, request: int, *, keep: bool = True, last: bool = False) -> None:
        """A running sequence loses its blocks and waits again; its prompt and what it generated
        are computed again, but for what is still cached by then.

        Args:
            keep: as of :meth:`release`.
            last: it waits behind all others; else before them.
        """
        sequences = self.sequences
        self.apart(request)
        if self.prefix is not None:
            self._leave(self.prefix, request, keep=keep)
        else:
            self.release(request)
        self.running.remove(request)
        if request in self.filling:
            self.filling.remove(request)
        sequences.at_cached[request] = 0
        sequences.todo[request] = sequences.prompt[request] + sequences.at_made[request]
        sequences.preemptions[request] += 1
        if last:
            self.waiting.append(request)
        else:
            self.waiting.appendleft(request)

    def swap_out(self, request: int) -> int:
        """A decoding sequence loses its blocks, of which the host has copies until it goes on;
        returns how many, 0 if there is no room for them.
        """
        sequences = self.sequences
        self.apart(request)
        tokens = sequences.at_cached[request]
        blocks = self.layout.of_one(tokens)
        if request in self.filling or blocks > self.swap_free:
            return 0
        self.release(request)
        self.running.remove(request)
        self.swap_free -= blocks
        self.swapped.append(request)
        sequences.preemptions[request] += 1
        sequences.swaps[request] += 1
        sequences.traffic.swapped_out_bytes += self.host.bytes_of(blocks)
        return blocks

    def swap_in(self, reserve: int) -> int:
        """The first that was swapped out goes on; returns its blocks, 0 if they are not free.

        Args:
            reserve: blocks that stay free.
        """
        sequences, request = self.sequences, self.swapped[0]
        tokens = sequences.at_cached[request]
        wanted = self.layout.of_one(tokens + 1 + self.limits.drafted)
        if wanted + reserve > self.free:
            return 0
        self.swapped.popleft()
        self.running.append(request)
        self.grow(request, tokens + 1 + self.limits.drafted)
        blocks = self.layout.of_one(tokens)
        self.swap_free += blocks
        sequences.traffic.swapped_in_bytes += self.host.bytes_of(blocks)
        return blocks

    def decoding(self) -> list[int]:
        """Running sequences whose prompts are complete and that no step under way holds."""
        if not self.filling and not self.flying:
            return self.running
        busy = self.flying.union(self.filling)
        return [each for each in self.running if each not in busy]

    def promised(self) -> int:
        """Blocks that running sequences would still take if each came to its limit."""
        sequences, rows = self.sequences, np.array(self.running, dtype=np.int64)
        final_ = self.layout.of_tokens(sequences.prompt[rows] + sequences.limit[rows])
        return int(np.maximum(final_ - sequences.held[rows], 0).sum())

    def steps_to_full(self, cohort: Cohort, most: int) -> int:
        """Decode steps of the cohort, up to ``most``, for which blocks are free."""
        free = self.free
        if len(cohort.order) * self.layout.most_of(most) <= free or cohort.lacking(most) <= free:
            return most
        low, high = 0, most  # those of ``low`` are free, of ``high`` not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if cohort.lacking(middle) <= free else (low, middle)
        return low
