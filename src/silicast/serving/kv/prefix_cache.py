"""Keys and values of earlier requests that later ones find: a radix tree over what prompts share.

Where an engine hashes whole blocks, a chain of hashes is a path of this tree cut at block ends;
where it keeps a radix tree of tokens, a block is a token (or a page). Both evict what nobody refers
to, least recently released first, the end of a sequence before its beginning.

With a :class:`~silicast.serving.kv.host_cache.HostCache` blocks have a second tier, in the host's
memory: what the device evicts stays there, as long as it was copied there and is not evicted from
there, by the same order. A request that finds blocks there alone takes blocks of the device for
them, into which they are loaded. Below the host there may be further places (disk, a remote store):
what one of them evicts moves to the next, and what is loaded moves back to the host.

Sources: vLLM 0.19, v1/core/block_pool.py and kv_cache_manager.py (only whole blocks match, one
token at least is computed, freed blocks stay until they are needed); SGLang 0.5.23,
mem_cache/radix_cache.py and unified_cache/unified_tree_core.py; vLLM 0.33, v1/kv_offload.
"""

from __future__ import annotations

import heapq
from typing import final

from silicast.core.numerics import I64
from silicast.serving.kv.host_cache import HostCache
from silicast.serving.kv.kv_pool import KvLayout
from silicast.serving.traffic.requests import Content

_OPEN = 1 << 62


@final
class _Node:
    """Tokens ``start``..``end`` of a path; ``name`` is of the segment they belong to.

    Attributes:
        locks: running sequences that refer to it; ``released``: when the last one let go;
            ``hits``: how many have referred to it so far.
        blocks: whole ones between its ends, the one that holds its first token with it.
        here: they are on the device; ``stored``: where they are beside, None = nowhere. One that is
            here has a parent that is here.
        here_below, stored_below: children of which the same is true.
    """

    __slots__ = (
        "blocks", "children", "end", "here", "here_below", "hits", "locks", "name", "parent",
        "released", "start", "stored", "stored_below",
    )  # fmt: skip

    def __init__(self, parent: _Node | None, name: int, start: int, end: int) -> None:
        self.parent, self.name, self.start, self.end = parent, name, start, end
        self.children: dict[int, _Node] = {}
        self.locks, self.released, self.blocks, self.hits = 0, 0, 0, 0
        self.here = False
        self.stored: HostCache | None = None
        self.here_below = self.stored_below = 0


@final
class PrefixCache:
    """The cached prefixes of one group of ranks.

    A request that shares nothing leaves no trace, unless it is preempted or something that could be
    found would have to be evicted before it.

    Attributes:
        idle: blocks to which nobody refers: free for whom needs them.
        tokens: of the paths that each running request refers to, by request.
        host: the second tier of blocks; None = there is none.
    """

    def __init__(
        self, content: Content | None, prompt: I64, layout: KvLayout, host: HostCache | None = None
    ) -> None:
        self._content, self._prompt, self._layout, self.host = content, prompt, layout, host
        self._root = _Node(None, -1, 0, 0)
        self._ends: dict[int, _Node] = {}
        self._chains: dict[int, list[tuple[int, int]]] = {}
        self._old: list[tuple[int, int, int, _Node]] = []
        self._old_stored: dict[HostCache, list[tuple[int, int, int, _Node]]] = {}
        self._clock, self._offers = 0, 0
        self._seen: tuple[int, int, int] = (-1, -1, -1)
        self._found = (0, 0)
        self.idle = 0
        self.tokens: dict[int, int] = {}

    @property
    def shares(self) -> bool:
        """Whether prompts are known to begin alike."""
        return self._content is not None

    def shared_tokens(self, request: int) -> int:
        """Tokens of a prompt that others may have too."""
        if self._content is None:
            return 0
        chain = self._chain(request)
        own_segments = 1 + (len(chain) > 1 and chain[-2][0] < 0)
        return chain[-own_segments - 1][1] if len(chain) > own_segments else 0

    def lookup(self, request: int, todo: int) -> tuple[int, int]:
        """Tokens of the first ``todo`` that are there, on the device or in the host's memory, one
        less at most, in whole blocks; and how many of their blocks somebody refers to now.
        """
        if not self._root.children:
            return 0, 0
        key = (request, todo, self._clock)
        if key != self._seen:
            self._seen, self._found = key, self._search(request, todo)
        return self._found

    def _search(self, request: int, todo: int) -> tuple[int, int]:
        size = self._layout.block_tokens
        path = self._path(request, (todo - 1) // size * size)
        reached = min(path[-1].end, todo - 1) // size * size if path else 0
        busy = max((node.end for node in path if node.locks), default=0)
        return reached, self._blocks(min(busy, reached))

    def absent(self, request: int, tokens: int) -> int:
        """Of the first ``tokens`` that were found for a request, those that are in the host's
        memory alone.
        """
        if self.host is None:
            return 0
        here = (node.end for node in self._path(request, tokens) if node.here)
        position = max(here, default=0) // self._layout.block_tokens * self._layout.block_tokens
        return max(tokens - position, 0)

    def below(self, request: int, tokens: int) -> list[tuple[HostCache, int]]:
        """Of the first ``tokens`` that were found for a request, those that are neither here nor in
        the host's memory: their places, and blocks of each.
        """
        if self.host is None or self.host.below is None:
            return []
        blocks: dict[HostCache, int] = {}
        for node in self._path(request, tokens):
            if node.here or not node.blocks or node.stored is None:
                continue
            if node.stored is not self.host:
                size = self._blocks(min(node.end, tokens)) - self._blocks(node.start)
                blocks[node.stored] = blocks.get(node.stored, 0) + size
        return list(blocks.items())

    def pin(self, request: int, tokens: int) -> int:
        """A request refers to the first ``tokens`` that were found for it; returns how many free
        blocks that takes: idle ones, and others into which blocks of the host are loaded.
        """
        path = self._path(request, tokens)
        if path[-1].end > tokens:
            self._split(path[-1], tokens)
        self._ends[request], self.tokens[request] = path[-1], tokens
        self._clock += 1
        taken = 0
        for node in path:
            if node.here:
                taken += self._lock(node)
            else:
                taken += node.blocks
                self._come(node)
        self._keep(path)
        return taken

    def publish(self, request: int, tokens: int) -> int:
        """The first ``tokens`` of a running request are there for others; returns how many more
        blocks are free for whom needs them: its own copies of what others had put there meanwhile.
        """
        made: list[_Node] = []
        freed = self._publish(request, tokens, made)
        self._keep(made)
        return freed

    def _publish(self, request: int, tokens: int, made: list[_Node]) -> int:
        """As :meth:`publish`; ``made``: takes the nodes that are there for the request now."""
        node = self._ends.get(request, self._root)
        position, freed = node.end, 0
        self._clock += 1
        for name, end in self._chain(request):
            while position < min(end, tokens):
                child = node.children.get(name)
                if child is None:
                    child = _Node(node, name, position, min(end, tokens))
                    self._measure(child)
                    node.children[name] = child
                    self._come(child)
                elif child.start != position or child.end > min(end, tokens):
                    return freed
                elif child.here:
                    freed += child.blocks - self._lock(child)
                else:  # its own copy is the one that is here
                    self._come(child)
                made.append(child)
                node, position = child, child.end
                self._ends[request], self.tokens[request] = node, position
        return freed

    def blocks(self, request: int) -> int:
        """Blocks here to which a running request refers."""
        return self._blocks(self.tokens.get(request, 0))

    def referenced(self) -> int:
        """Blocks here to which somebody refers."""
        referenced, todo = 0, [self._root]
        while todo:
            node = todo.pop()
            referenced += node.blocks if node.locks else 0
            todo += node.children.values()
        return referenced

    def unpin(self, request: int) -> int:
        """A request refers to nothing any more; returns how many blocks are idle now."""
        node: _Node | None = self._ends.pop(request, None)
        self.tokens.pop(request, None)
        self._chains.pop(request, None)
        self._clock += 1
        freed = 0
        while node is not None and node.parent is not None:
            node.locks -= 1
            above = node.parent
            if not node.locks:
                freed += node.blocks
                node.released = self._clock
                self._offer(node)
            node = above
        self.idle += freed
        return freed

    def evict(self, blocks: int) -> None:
        """Drops idle blocks of the device, those that were released first before others."""
        self._clock += 1
        while blocks > 0:
            released, _, _, node = heapq.heappop(self._old)
            if node.locks or node.here_below or node.released != released or not node.here:
                continue
            node = self._tail(node, blocks)
            self.idle -= node.blocks
            blocks -= node.blocks
            self._go(node)

    def _chain(self, request: int) -> list[tuple[int, int]]:
        """(name, end) of the segments of a request: of its prompt, what is its own, its output."""
        chain = self._chains.get(request)
        if chain is None:
            chain = self._chains[request] = self._segments(request)
        return chain

    def _segments(self, request: int) -> list[tuple[int, int]]:
        prompt, position = int(self._prompt[request]), 0
        chain: list[tuple[int, int]] = []
        content = self._content
        for name, size in content.prompt(request) if content is not None else ():
            position = min(position + size, prompt)
            chain.append((name, position))
        own_name = -2 - request
        output = int(content.outputs[request]) if content is not None else -1
        if position < prompt and output >= 0:
            chain.append((own_name, prompt))
        chain.append((own_name if output < 0 else output, _OPEN))
        return chain

    def _path(self, request: int, tokens: int) -> list[_Node]:
        """Nodes that hold the first ``tokens`` of a request, as far as they are there."""
        node, position = self._root, 0
        path: list[_Node] = []
        for name, end in self._chain(request):
            while position < min(end, tokens):
                child = node.children.get(name)
                if child is None or child.start != position:
                    return path
                path.append(child)
                node, position = child, child.end
                if position > end:
                    return path
        return path

    def _lock(self, node: _Node) -> int:
        """One more refers to a node that is here; returns the blocks that were idle."""
        node.locks += 1
        node.hits += 1
        if node.locks > 1:
            return 0
        size = node.blocks
        self.idle -= size
        return size

    def _come(self, node: _Node) -> None:
        """Blocks that a request holds are those of a node."""
        assert node.parent is not None
        node.here, node.locks = True, node.locks + 1
        node.hits += 1
        node.parent.here_below += 1

    def _go(self, node: _Node) -> None:
        """The device's copy of an idle node is dropped; one that was not stored before goes to the
        host now, or is lost.
        """
        above = node.parent
        assert above is not None
        node.here = False
        above.here_below -= 1
        worth = bool(node.blocks or node.children) and not node.stored
        if worth and self.host is not None and self.host.at_eviction:
            self._store(node, self.host)
        if node.stored:
            self._offer(node)
        else:
            self._lose(node)
        if above.parent is not None:
            self._offer(above)

    def _keep(self, nodes: list[_Node]) -> None:
        """Copies to the host what was asked for as often as it wants, from the beginning on."""
        host = self.host
        if host is None or host.at_eviction:
            return
        for node in nodes:
            above = node.parent
            if above is None or not (above.stored or above.parent is None):
                return
            if node.stored is not host and node.hits >= host.hits:
                self._store(node, host)

    def _store(self, node: _Node, tier: HostCache) -> None:
        """A tier has the copy of a node, or of its beginning, as far as there is room; none of one
        that is lost with what is before it, as room is made.
        """
        oldest = self._old_stored.setdefault(tier, [])
        while tier.used + node.blocks > tier.blocks and oldest and node.parent is not None:
            released, _, _, old = heapq.heappop(oldest)
            if old.stored is tier and old.released == released and self._may_go(old):
                self._forget(self._tail(old, tier.used + node.blocks - tier.blocks))
        if node.parent is None:
            return
        room = tier.blocks - tier.used
        if node.blocks > room:
            if room < 1 or len(self._layout.lengths) > 2:
                return
            tail = self._tail(node, node.blocks - room)
            if not (tail.here or tail.stored):
                self._lose(tail)
        if node.stored is not None:
            node.stored.used -= node.blocks
        else:
            node.parent.stored_below += 1
        node.stored = tier
        tier.take(node.blocks)
        self._offer(node)

    def _may_go(self, node: _Node) -> bool:
        """Whether a node may leave its tier: nobody refers to it, and what follows it is not there
        (of the last tier: is nowhere).
        """
        tier = node.stored
        if node.locks or tier is None or not node.stored_below:
            return not node.locks
        return tier.below is not None and all(
            child.stored is not tier for child in node.children.values()
        )

    def _forget(self, node: _Node) -> None:
        """A copy of a node is dropped from its tier, to the next one where there is room; one
        without a block goes to the next one only to what follows it there.
        """
        above, tier = node.parent, node.stored
        assert above is not None
        assert tier is not None
        node.stored = None
        tier.used -= node.blocks
        if tier.below is not None and (node.blocks or node.stored_below):
            self._store(node, tier.below)
        above.stored_below -= 1  # only now: what is before it does not leave a tier to make room
        if node.parent is None:
            return
        if not (node.here or node.stored):
            self._lose(node)
        if above.parent is not None:
            self._offer(above)

    def _lose(self, node: _Node) -> None:
        """A node that is nowhere leaves the tree, and what only it led to."""
        above = node.parent
        assert above is not None
        del above.children[node.name]
        todo = [node]
        while todo:
            lost = todo.pop()
            if lost.stored:
                assert lost.parent is not None
                lost.parent.stored_below -= 1
                lost.stored.used -= lost.blocks
                lost.stored = None
            todo += lost.children.values()
            lost.parent = None

    def _tail(self, node: _Node, blocks: int) -> _Node:
        """So many blocks at the end of a node as a node of their own; all of it, where it has no
        more, or blocks of the layout are not alike.
        """
        if node.blocks <= blocks or len(self._layout.lengths) > 2:
            return node
        size = self._layout.block_tokens
        return self._split(node, (node.end // size - blocks) * size)

    def _split(self, node: _Node, index: int) -> _Node:
        """What follows a position becomes a node of its own, which is returned."""
        tail = _Node(node, node.name, index, node.end)
        tail.children, tail.locks, tail.released = (node.children, node.locks, node.released)
        tail.here, tail.stored, tail.hits = node.here, node.stored, node.hits
        tail.here_below, tail.stored_below = node.here_below, node.stored_below
        for child in tail.children.values():
            child.parent = tail
        node.children, node.end = {node.name: tail}, index
        node.here_below, node.stored_below = int(tail.here), int(bool(tail.stored))
        self._measure(node)
        self._measure(tail)
        if tail.locks:
            for request, end in self._ends.items():
                if end is node:
                    self._ends[request] = tail
        else:
            self._offer(tail)
        return tail

    def _offer(self, node: _Node) -> None:
        """An idle end of a path may be evicted; one without a block goes at once, or what is before
        it could never leave its tier.
        """
        if node.locks or node.parent is None:
            return
        if not node.blocks:
            if node.here and not node.here_below:
                self._go(node)
            elif node.stored and self._may_go(node):
                self._forget(node)
            return
        self._offers += 1
        entry = (node.released, -node.start, self._offers, node)
        if node.here and not node.here_below:
            heapq.heappush(self._old, entry)
        if node.stored and self._may_go(node):
            heapq.heappush(self._old_stored.setdefault(node.stored, []), entry)

    def _measure(self, node: _Node) -> None:
        """Counts its blocks anew: an end was moved."""
        node.blocks = self._blocks(node.end) - self._blocks(node.start)

    def _blocks(self, tokens: int) -> int:
        """Whole blocks of so many tokens."""
        size = self._layout.block_tokens
        return self._layout.of_one(tokens // size * size)
