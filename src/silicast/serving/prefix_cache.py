"""Keys and values of earlier requests that later ones find: a radix tree over what prompts share.

Where an engine hashes whole blocks, a chain of hashes is a path of this tree cut at block ends;
where it keeps a radix tree of tokens, a block is a token (or a page). Both evict what nobody refers
to, least recently released first, the end of a sequence before its beginning.

Sources: vLLM 0.19, v1/core/block_pool.py and kv_cache_manager.py (only whole blocks match, one
token at least is computed, freed blocks stay until they are needed); SGLang 0.5.23,
mem_cache/radix_cache.py.
"""

from __future__ import annotations

import heapq
from typing import final

from silicast.core.numerics import I64
from silicast.serving.kv_pool import KvLayout
from silicast.serving.requests import Content

_OPEN = 1 << 62


@final
class _Node:
    """Tokens ``start``..``end`` of a path; ``name`` is of the segment they belong to.

    Attributes:
        locks: running sequences that refer to it; ``released``: when the last one let go.
        blocks: whole ones between its ends, the one that holds its first token with it.
    """

    __slots__ = ("blocks", "children", "end", "locks", "name", "parent", "released", "start")

    def __init__(self, parent: _Node | None, name: int, start: int, end: int) -> None:
        self.parent, self.name, self.start, self.end = parent, name, start, end
        self.children: dict[int, _Node] = {}
        self.locks, self.released, self.blocks = 0, 0, 0


@final
class PrefixCache:
    """The cached prefixes of one group of ranks.

    A request that shares nothing leaves no trace, unless it is preempted or something that could be
    found would have to be evicted before it.

    Attributes:
        idle: blocks to which nobody refers: free for whom needs them.
        tokens: of the paths that each running request refers to, by request.
    """

    def __init__(self, content: Content | None, prompt: I64, layout: KvLayout) -> None:
        self._content, self._prompt, self._layout = content, prompt, layout
        self._root = _Node(None, -1, 0, 0)
        self._ends: dict[int, _Node] = {}
        self._chains: dict[int, list[tuple[int, int]]] = {}
        self._old: list[tuple[int, int, int, _Node]] = []
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
        own = 1 + (len(chain) > 1 and chain[-2][0] < 0)
        return chain[-own - 1][1] if len(chain) > own else 0

    def lookup(self, request: int, todo: int) -> tuple[int, int]:
        """Tokens of the first ``todo`` that are there, one less at most, in whole blocks; and how
        many of their blocks somebody refers to now.
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

    def pin(self, request: int, tokens: int) -> int:
        """A request refers to the first ``tokens`` that were found for it; returns how many idle
        blocks that takes.
        """
        path = self._path(request, tokens)
        if path[-1].end > tokens:
            self._split(path[-1], tokens)
        self._ends[request], self.tokens[request] = path[-1], tokens
        self._clock += 1
        return sum(self._lock(node) for node in path)

    def publish(self, request: int, tokens: int) -> int:
        """The first ``tokens`` of a running request are there for others; returns how many more
        blocks are free for whom needs them: its own copies of what others had put there meanwhile.
        """
        node = self._ends.get(request, self._root)
        place, twice, taken = node.end, 0, 0
        self._clock += 1
        for name, end in self._chain(request):
            while place < min(end, tokens):
                child = node.children.get(name)
                if child is not None:
                    if child.start != place or child.end > min(end, tokens):
                        return twice - taken
                    taken += self._lock(child)
                    twice += child.blocks
                else:
                    child = _Node(node, name, place, min(end, tokens))
                    child.locks = 1
                    self._measure(child)
                    node.children[name] = child
                node, place = child, child.end
                self._ends[request], self.tokens[request] = node, place
        return twice - taken

    def blocks(self, request: int) -> int:
        """Blocks here to which a running request refers."""
        return self._blocks(self.tokens.get(request, 0))

    def referenced(self) -> int:
        """Blocks here to which somebody refers."""
        found, todo = 0, [self._root]
        while todo:
            node = todo.pop()
            found += node.blocks if node.locks else 0
            todo += node.children.values()
        return found

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
        """Drops idle blocks, those that were released first before others."""
        self._clock += 1
        while blocks > 0:
            released, _, _, node = heapq.heappop(self._old)
            if node.locks or node.children or node.released != released or node.parent is None:
                continue
            size = node.blocks
            if size > blocks and len(self._layout.lengths) == 2:
                ends = (node.end // self._layout.block_tokens - blocks) * self._layout.block_tokens
                node.end, self.idle, blocks = ends, self.idle - blocks, 0
                self._measure(node)
                self._offer(node)
            else:
                self.idle -= size
                blocks -= size
                self._drop(node)

    def _chain(self, request: int) -> list[tuple[int, int]]:
        """(name, end) of the segments of a request: of its prompt, what is its own, its output."""
        found = self._chains.get(request)
        if found is None:
            found = self._chains[request] = self._segments(request)
        return found

    def _segments(self, request: int) -> list[tuple[int, int]]:
        prompt, place = int(self._prompt[request]), 0
        chain: list[tuple[int, int]] = []
        content = self._content
        for name, size in content.prompt(request) if content is not None else ():
            place = min(place + size, prompt)
            chain.append((name, place))
        own = -2 - request
        output = int(content.outputs[request]) if content is not None else -1
        if place < prompt and output >= 0:
            chain.append((own, prompt))
        chain.append((own if output < 0 else output, _OPEN))
        return chain

    def _path(self, request: int, tokens: int) -> list[_Node]:
        """Nodes that hold the first ``tokens`` of a request, as far as they are there."""
        node, place = self._root, 0
        path: list[_Node] = []
        for name, end in self._chain(request):
            while place < min(end, tokens):
                child = node.children.get(name)
                if child is None or child.start != place:
                    return path
                path.append(child)
                node, place = child, child.end
                if place > end:
                    return path
        return path

    def _lock(self, node: _Node) -> int:
        """One more refers to a node; returns the blocks that were idle."""
        node.locks += 1
        if node.locks > 1:
            return 0
        size = node.blocks
        self.idle -= size
        return size

    def _split(self, node: _Node, place: int) -> None:
        """What follows a place becomes a node of its own."""
        rest = _Node(node, node.name, place, node.end)
        rest.children, rest.locks, rest.released = node.children, node.locks, node.released
        for child in rest.children.values():
            child.parent = rest
        node.children, node.end = {node.name: rest}, place
        self._measure(node)
        self._measure(rest)
        for request, end in self._ends.items():
            if end is node:
                self._ends[request] = rest
        if not rest.locks:
            self._offer(rest)

    def _offer(self, node: _Node) -> None:
        """An idle end of a path may be evicted; one without a block goes at once."""
        if node.children or node.locks:
            return
        if node.blocks < 1:
            self._drop(node)
        else:
            self._offers += 1
            heapq.heappush(self._old, (node.released, -node.start, self._offers, node))

    def _drop(self, node: _Node) -> None:
        above = node.parent
        assert above is not None
        del above.children[node.name]
        node.parent = None
        if above.parent is not None:
            self._offer(above)

    def _measure(self, node: _Node) -> None:
        """Counts its blocks anew: an end was moved."""
        node.blocks = self._blocks(node.end) - self._blocks(node.start)

    def _blocks(self, tokens: int) -> int:
        """Whole blocks of so many tokens."""
        size = self._layout.block_tokens
        return self._layout.of_one(tokens // size * size)
