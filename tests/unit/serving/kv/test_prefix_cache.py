"""What is found of earlier requests, and what is evicted first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.serving.kv.host_cache import HostLink, KvTier
from silicast.serving.kv.kv_pool import KvLayout
from silicast.serving.simulation.scheduler import Limits, QueueGroup, SimulatedRequests
from silicast.serving.traffic.requests import Content, Requests
from tests.property.serving_cases import PlainPrices, ServingCase
from tests.sampling import examples
from tests.unit.serving.scheduler_laws import shared_prompts


def content(*chains: list[tuple[int, int]], outputs: list[int] | None = None) -> Content:
    """Content of prompts that are chains of (segment, tokens)."""
    flat = [pair for chain in chains for pair in chain]
    offsets = np.cumsum([0, *(len(chain) for chain in chains)])
    segments = np.array([name for name, _ in flat], dtype=np.int64)
    tokens = np.array([size for _, size in flat], dtype=np.int64)
    return Content(segments, tokens, offsets, np.array(outputs or [-1] * len(chains)))


def group(
    prompts: list[int], shared: Content | None, blocks: int = 1000, size: int = 16
) -> QueueGroup:
    sequences = SimulatedRequests(np.array(prompts), np.full(len(prompts), 100), shared)
    return QueueGroup(
        sequences, KvLayout.plain(size), Limits(64, 8192, blocks, prefix_caching=True)
    )


def tiered(
    prompts: list[int],
    shared: Content,
    blocks: int,
    on_host: int,
    hits: int = 1,
    on_disk: int = 1000,
) -> QueueGroup:
    """With so many blocks in the host's memory and on a disk below it; a block is a byte."""
    sequences = SimulatedRequests(np.array(prompts), np.full(len(prompts), 100), shared)
    limits = Limits(
        64, 8192, blocks, prefix_caching=True, host=HostLink(1, 1, 1e9),
        kv_tiers=(KvTier("disk", on_disk, 1e9, 0.5),),
    )  # fmt: skip
    g = QueueGroup(sequences, KvLayout.plain(16), limits)
    g.keep_on_host(on_host, hits)
    return g


def serve(g: QueueGroup, request: int) -> int:
    """A request runs from its prompt to its first token and ends; returns what it reused."""
    sequences = g.sequences
    reused, _ = g.lookup(request)
    g.start(request, reused)
    assert g.grow(request, int(sequences.todo[request]))
    sequences.cached[request] = sequences.todo[request]
    g.publish(request, int(sequences.todo[request]))
    end(g, request)
    return reused


def end(g: QueueGroup, request: int) -> None:
    g.release(request)
    g.running.remove(request)
    if request in g.filling:
        g.filling.remove(request)


def test_whole_blocks_match_and_one_token_is_computed() -> None:
    same = content([(1, 100)], [(1, 100)], [(1, 100), (2, 50)])
    g = group([100, 100, 150], same)
    assert [serve(g, each) for each in range(3)] == [0, 96, 96]
    g = group([96, 96], content([(1, 96)], [(1, 96)]))
    assert [serve(g, each) for each in range(2)] == [0, 80]


def test_pages_of_one_token_match_to_the_token() -> None:
    g = group([100, 100, 150], content([(1, 100)], [(1, 100)], [(1, 100), (2, 50)]), size=1)
    assert [serve(g, each) for each in range(3)] == [0, 99, 100]


def test_what_a_prompt_has_for_itself_is_found_by_nobody() -> None:
    g = group([100, 100], content([(1, 32)], [(1, 32)]))
    assert [serve(g, each) for each in range(2)] == [0, 32]


def test_a_later_turn_finds_the_answer_of_the_one_before() -> None:
    g = group([64, 200], content([(1, 64)], [(1, 64), (9, 48), (2, 88)], outputs=[9, -1]))
    sequences = g.sequences
    reused, _ = g.lookup(0)
    g.start(0, reused)
    g.grow(0, 64)
    sequences.cached[0], sequences.made[0] = 64, 1
    g.grow(0, 64 + 47)
    sequences.cached[0], sequences.made[0] = 64 + 47, 48  # of the last token nothing is cached
    end(g, 0)
    assert g.lookup(1)[0] == 64 + 32


def test_blocks_that_several_hold_are_counted_once() -> None:
    g = group([64, 64, 64], content(*[[(1, 64)]] * 3), blocks=20)
    for request in range(3):
        reused, _ = g.lookup(request)
        g.start(request, reused)
        g.grow(request, 64)
        g.publish(request, 64)
    assert 20 - g.free == 4  # the last one, which each computes, is kept once
    g.sequences.cached[:] = 64
    for request in range(3):
        end(g, request)
    assert g.free == 20


def test_the_end_of_what_was_released_first_is_evicted_first() -> None:
    g = group([160, 160, 160], content([(1, 160)], [(2, 160)], [(1, 160)]), blocks=20)
    serve(g, 0)
    serve(g, 1)
    assert g.prefix is not None
    assert g.prefix.idle == 20
    g.free -= 4  # somebody takes four blocks
    assert g.lookup(2)[0] == 96
    assert g.prefix.idle == 16


def test_a_preempted_sequence_finds_what_is_left_of_it() -> None:
    g = group([160, 160], None, blocks=30)
    sequences = g.sequences
    for request in (0, 1):
        g.start(request)
        g.grow(request, 160)
        sequences.cached[request] = 160
        g.filling.remove(request)
    sequences.made[:] = 5
    g.preempt(1)
    assert g.lookup(1)[0] == 160
    assert g.grow(0, 160 + 16 * 13)  # of twenty free blocks seven are left
    assert g.lookup(1)[0] == 16 * 7


def test_a_segment_within_a_block_does_not_hold_what_is_before_it_in_the_host() -> None:
    """Three prompts of 3 blocks, then the second and the first again: room for 4 on the device, for
    3 in the host. The first is 24 tokens (1 block), 4 (none) and 20 (2). By hand: all 3 blocks of
    each move to the disk as the next one comes (the last two push out the third and the second),
    so 12 are written there, and both prompts are read from there as a whole.
    """
    first, second = [(1, 24), (2, 4), (3, 20)], [(4, 48)]
    g = tiered([49] * 5, content(first, second, [(5, 48)], second, first), 4, 3)
    assert [serve(g, each) for each in range(5)] == [0, 0, 0, 48, 48]
    assert g.sequences.traffic.tiers == {"disk": {"stored_bytes": 12, "loaded_bytes": 6}}


def test_a_segment_within_a_block_is_not_read_from_the_disk() -> None:
    """Blocks go to the host when the device evicts them: 3 fit here, 2 there. A prompt of 2 blocks,
    24 tokens, 4 and 4, leaves its end on the disk, and the 4 before it with that. Another one goes
    on from the 28 with an end of its own, and both its blocks are in the host at last: nothing is
    read from the disk.
    """
    one, other = [(1, 24), (2, 4), (3, 4)], [(1, 24), (2, 4), (4, 4)]
    chains = [one, [(5, 32)], [(6, 16)], other, [(7, 32)], other, one]
    g = tiered([33, 33, 17, 33, 33, 33, 33], content(*chains), 3, 2, hits=0)
    assert [serve(g, each) for each in range(5)] == [0, 0, 0, 16, 0]
    assert g.lookup(5)[0] == g.lookup(6)[0] == 32
    assert g.prefix is not None
    assert g.prefix.absent(5, 32) == 32
    assert g.prefix.below(5, 32) == []
    assert [blocks for _, blocks in g.prefix.below(6, 32)] == [1]


def test_the_beginning_of_a_prompt_does_not_leave_the_disk_for_its_end() -> None:
    """Room for 3 blocks here, for 1 in the host, for 2 on the disk. By hand: request 3 loads its
    first block from the disk, where it stays, and request 4 drives its second into the host. Then
    request 5 refers to the other block of the disk, and drives that second one out of the host:
    there is no room for it but where the first one is, without which nobody would find it.
    """
    both = [(1, 16), (2, 16)]
    chains = [[(1, 16)], [(5, 32)], [(6, 16)], both, [(7, 32)], [(6, 16)], both]
    g = tiered([17, 33, 17, 33, 33, 17, 33], content(*chains), 3, 1, hits=0, on_disk=2)
    assert [serve(g, each) for each in range(6)] == [0, 0, 0, 16, 0, 16]
    assert g.lookup(6) == (16, 0)
    assert g.prefix is not None
    assert [(place.used, blocks) for place, blocks in g.prefix.below(6, 16)] == [(2, 1)]


def test_nothing_is_kept_of_prompts_that_share_nothing() -> None:
    g = group([160] * 5, None)
    assert [serve(g, each) for each in range(5)] == [0] * 5
    assert g.prefix is not None
    assert g.prefix.idle == 0


class Naive:
    """Hashes of whole blocks, one entry a block: what the tree stands for; nothing is evicted."""

    def __init__(self, shared: Content, prompts: np.ndarray, size: int) -> None:
        self.shared, self.prompts, self.size = shared, prompts, size
        self.seen: set[tuple[tuple[int, int], ...]] = set()

    def chains(self, request: int) -> list[tuple[tuple[int, int], ...]]:
        tokens = [(name, index) for name, n in self.shared.prompt(request) for index in range(n)]
        current = range(int(self.prompts[request]) - len(tokens))
        tokens += [(-1 - request, index) for index in current]
        blocks = len(tokens) // self.size
        return [tuple(tokens[: (each + 1) * self.size]) for each in range(blocks)]

    def serve(self, request: int) -> int:
        chains, result = self.chains(request), 0
        for chain in chains:
            if chain not in self.seen or len(chain) > self.prompts[request] - 1:
                break
            result = len(chain)
        self.seen.update(chains)
        return result


@given(seed=st.integers(0, 1 << 30), size=st.sampled_from([1, 4, 16]))
@examples(60)
def test_the_tree_finds_what_a_table_of_hashes_finds(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    prompts = rng.integers(1, 150, 12)
    shared = shared_prompts(rng, prompts)
    shared.outputs[:] = -1
    g = group(prompts.tolist(), shared, blocks=100_000, size=size)
    naive = Naive(shared, prompts, size)
    assert [serve(g, each) for each in range(12)] == [naive.serve(each) for each in range(12)]


@pytest.mark.parametrize("policy", ["vllm-v1", "sglang", "trtllm"])
def test_shared_prompts_are_served_faster(policy: str) -> None:
    count = 40
    chains = [[(1, 960)]] * count

    def mean_ttft(shared: Content | None) -> float:
        arrival = np.arange(count) * 20_000_000
        requests = Requests.from_arrays(
            arrival, np.full(count, 1000), np.full(count, 10), content=shared
        )
        limits = Limits(16, 2048, 4000, prefix_caching=True)
        records = ServingCase(requests, PlainPrices(token_s=5e-5), limits, policy).run()
        assert shared is None or records.reused.sum() >= 960 * (count - 3)
        return float(records.ttft_s().mean())

    assert mean_ttft(content(*chains)) < 0.5 * mean_ttft(None)
