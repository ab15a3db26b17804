"""Laws of the host's memory beside a KV cache, on random conversations, engines and sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from silicast.serving.kv.host_cache import HostCache, HostLink, KvTier
from silicast.serving.kv.prefix_cache import PrefixCache, _Node
from silicast.serving.simulation.group import QueueGroup
from silicast.serving.simulation.scheduler import Limits
from silicast.serving.statistics.records import Records
from silicast.serving.traffic.requests import Content, Requests
from tests.property.serving_cases import PlainPrices, ServingCase
from tests.property.test_serving_laws import check_conserved, single_steps, times
from tests.sampling import number

FEW = number(100)
MIB = float(1 << 20)
GIB = 1024 * MIB


def conversations(rng: np.random.Generator) -> tuple[Requests, int]:
    """Requests of which each goes on where an earlier one of its conversation ended; and blocks of
    the longest.
    """
    talks, turns = int(rng.integers(1, 8)), int(rng.integers(2, 8))
    common = int(rng.integers(0, 100))
    names, sizes, offsets, prompts, after = [], [], [0], [], []
    chains: list[list[tuple[int, int]]] = [[(9999, common)] if common else [] for _ in range(talks)]
    last = [-1] * talks
    outputs = rng.integers(1, 200, talks * turns)
    for request in range(talks * turns):
        talk = int(rng.integers(talks))
        chains[talk].append((10_000 + request, int(rng.integers(1, 200))))
        chain = chains[talk]
        names += [name for name, _ in chain]
        sizes += [size for _, size in chain]
        offsets.append(len(names))
        prompts.append(sum(size for _, size in chain))
        after.append(last[talk])
        last[talk] = request
        chain.append((20_000 + request, int(outputs[request])))
    count = talks * turns
    content = Content(
        np.array(names), np.array(sizes), np.array(offsets), 20_000 + np.arange(count)
    )
    gaps = rng.exponential(10.0 ** rng.uniform(-3, -1), count)
    requests = Requests(
        np.cumsum(gaps * 1e9).astype(np.int64), np.array(prompts), outputs, np.array(after),
        np.zeros(count, dtype=np.int64) + int(rng.integers(0, 50_000_000)),
        int(rng.integers(0, 6)), content,
    )  # fmt: skip
    longest = int((requests.input_tokens + requests.output_tokens).max())
    return requests, -(-longest // 16) + 1


def host_case(seed: int, policy: str = "") -> ServingCase:
    """A cache too small for all conversations, and some of the host's memory."""
    rng = np.random.default_rng(seed)
    requests, longest = conversations(rng)
    policy = policy or str(rng.choice(["vllm-v1", "sglang", "vllm-v0"]))
    rate = 10.0 ** rng.uniform(6, 10)  # of blocks of 16 KiB
    link = HostLink(16_384, int(rng.integers(1, 3)), rate, float(rng.choice([0.0, 5e4])))
    room = 10.0 ** rng.uniform(-1.5, 1.5)
    blocks = longest + int(rng.integers(0, longest))
    options: dict[str, float | str] = {
        "vllm-v1": {"kv_offloading_size": room * MIB / GIB},
        "vllm-v0": {"preemption_mode": "swap", "swap_space": room * MIB / GIB},
        "sglang": {
            "enable_hierarchical_cache": 1, "hicache_ratio": room,
            "hicache_write_policy": str(
                rng.choice(["write_through", "write_through_selective", "write_back"])
            ),
        },
    }[policy]  # fmt: skip
    return ServingCase(
        requests,
        PlainPrices(
            work_s=float(rng.choice([0.0, 1e-3])), asynchronous=bool(rng.random() < 0.5),
            stages=2 if rng.random() < 0.1 else 1,
        ),
        Limits(
            int(rng.integers(1, 12)), int(rng.integers(16, 600)), blocks, prefix_caching=True,
            options=options, host=link,
        ),
        policy=policy, groups=2 if rng.random() < 0.1 else 1,
    )  # fmt: skip


def tier_case(seed: int) -> ServingCase:
    """With one or two places below the host's memory, of a few blocks or of many."""
    case = host_case(seed, ("vllm-v1", "sglang")[seed % 2])
    rng = np.random.default_rng((seed, 1))
    assert case.limits.host is not None
    block = case.limits.host.bytes_of(1)
    tiers = tuple(
        KvTier(name, block * 10.0 ** rng.uniform(0, 3), 10.0 ** rng.uniform(6, 10), latency)
        for name, latency in (("disk", 0.0), ("remote", 1e-3))[: int(rng.integers(1, 3))]
    )
    return replace(case, limits=replace(case.limits, kv_tiers=tiers))


def one_by_one(case: ServingCase) -> ServingCase:
    """Each request waits for the answer of the one before it, so that their order is the same
    whatever they find. One client alone is not enough: what is read from a slow tier makes an
    answer later, another conversation may go on before it, and what was released last is another.
    """
    after = np.arange(len(case.requests.after)) - 1
    return replace(case, requests=replace(case.requests, concurrency=1, after=after), groups=1)


def without(case: ServingCase) -> ServingCase:
    return replace(case, limits=replace(case.limits, options={}, host=None))


def nodes(cache: PrefixCache) -> Iterator[_Node]:
    todo = list(cache._root.children.values())
    while todo:
        node = todo.pop()
        yield node
        todo += node.children.values()


def check_tiers(group: QueueGroup) -> None:
    """No block twice, none lost, none beyond what there is."""
    cache = group.prefix
    assert cache is not None
    every = list(nodes(cache))
    assert all(node.here or node.stored for node in every), "somewhere"
    for node in every:
        below = list(node.children.values())
        assert node.here or not node.here_below, "what is here has all before it here"
        assert node.here_below == sum(each.here for each in below)
        assert node.stored_below == sum(bool(each.stored) for each in below)
        assert node.here or not node.locks
        assert [each.start for each in below] == [node.end] * len(below)
    idle = sum(node.blocks for node in every if node.here and not node.locks)
    assert idle == cache.idle
    shared = sum(node.blocks for node in every if node.locks)
    sequences = group.sequences
    rows = [*group.running, *group.loading, *group.fetched]
    private = sum(int(sequences.held[each]) - cache.blocks(each) for each in rows)
    if len(sequences.held[sequences.held > 0]) == len(rows):  # one group
        assert group.free + shared + private == group.limits.blocks
    place: HostCache | None = cache.host
    if place is not None:
        while place is not None:
            assert place.used == sum(node.blocks for node in every if node.stored is place)
            assert 0 <= place.used <= place.blocks
            place = place.below
    else:
        assert not any(node.stored for node in every)


def same(one: Records, other: Records) -> bool:
    pairs = [*zip(times(one), times(other), strict=True), (one.reused, other.reused)]
    pairs += [(one.log.table(), other.log.table())]
    return all(a.shape == b.shape and bool((a == b).all()) for a, b in pairs)


def test_requests_and_blocks_of_both_places_are_conserved() -> None:
    moved = swapped = 0
    for seed in range(FEW):
        case = host_case(seed)
        check_conserved(replace(case))
        simulation = case.simulation()
        while simulation.next_ns >= 0:
            simulation.advance()
            for replica in simulation.replicas:
                for group in replica.groups:
                    check_tiers(group)
        sequences = simulation.sequences
        assert (sequences.loaded <= sequences.reused).all()
        assert sequences.traffic.swapped_in_bytes == sequences.traffic.swapped_out_bytes
        assert (sequences.swaps <= sequences.preemptions).all()
        moved += sequences.traffic.loaded_bytes > 0
        swapped += sequences.traffic.swapped_out_bytes > 0
    assert moved > FEW // 10
    assert swapped > FEW // 20


def test_a_stretch_is_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(FEW):
        case = host_case(seed)
        long = case.run()
        with monkeypatch.context() as patched:
            single_steps(patched)
            short = case.run()
        for one, other in zip(times(long), times(short), strict=True):
            assert (one == other).all(), seed
        assert long.sequences.traffic.by_name == short.sequences.traffic.by_name, seed


def test_the_same_seed_gives_the_same_bytes() -> None:
    for seed in range(20):
        one, other = host_case(seed).run(), host_case(seed).run()
        assert same(one, other)
        assert one.sequences.traffic.by_name == other.sequences.traffic.by_name


def test_no_room_is_no_tier() -> None:
    for seed in range(FEW):
        case = host_case(seed)
        nothing = dict.fromkeys(("kv_offloading_size", "swap_space", "hicache_ratio"), 0.0)
        options = {n: nothing.get(n, v) for n, v in case.limits.options.items()}
        empty = replace(case, limits=replace(case.limits, options=options))
        assert same(empty.run(), without(case).run()), seed


@pytest.mark.parametrize("policy", ["vllm-v1", "sglang"])
def test_a_link_that_takes_no_time_never_makes_one_client_wait(policy: str) -> None:
    """One request at a time: with several, other batches may be made."""
    faster = 0
    for seed in range(FEW):
        case = host_case(seed, policy)
        case = replace(case, requests=replace(case.requests, concurrency=1), groups=1)
        assert case.limits.host is not None
        link = replace(case.limits.host, bytes_per_s=math.inf)
        quick = replace(case, limits=replace(case.limits, host=link))
        one, other = quick.run(), without(case).run()
        spans = [each.first_ns - each.sent_ns for each in (one, other)]
        assert (spans[0] <= spans[1]).all(), seed
        faster += bool((spans[0] < spans[1]).any())
    assert faster > FEW // 5


def test_a_larger_tier_of_one_client_finds_no_less() -> None:
    for seed in range(FEW):
        case = one_by_one(host_case(seed, "vllm-v1"))
        items = []
        for size in (0.0, 1.0, 8.0):
            limits = replace(case.limits, options={"kv_offloading_size": size})
            items.append(int(replace(case, limits=limits).run().reused.sum()))
        assert items[0] <= items[1], seed
        assert items[1] == items[2], "either holds everything"


def test_a_swap_takes_the_time_of_its_copies() -> None:
    """Two sequences, room for one and a half: one leaves and comes back over the link."""
    requests = Requests.from_arrays(
        np.zeros(2, dtype=np.int64), np.array([160, 160]), np.array([100, 100])
    )
    link = HostLink(16_384, 1, 16_384 * 1e3)  # a millisecond a block
    spans = []
    for each in (link, replace(link, bytes_per_s=math.inf)):
        options: dict[str, float | str] = {"preemption_mode": "swap", "swap_space": 1.0}
        limits = Limits(8, 8192, 25, options=options, host=each)
        records = ServingCase(requests, PlainPrices(), limits, "vllm-v0").run()
        assert records.sequences.swaps.tolist() == [0, 1]
        spans.append(int(records.done_ns.max()))
        blocks = records.sequences.traffic.swapped_out_bytes // 16_384
    assert spans[0] - spans[1] == 2 * blocks * 1_000_000


def test_blocks_of_every_tier_are_conserved() -> None:
    read = both = 0
    for seed in range(FEW):
        case = tier_case(seed)
        check_conserved(replace(case))
        simulation = case.simulation()
        while simulation.next_ns >= 0:
            simulation.advance()
            for replica in simulation.replicas:
                for group in replica.groups:
                    check_tiers(group)
        sequences = simulation.sequences
        tiers = sequences.traffic.tiers
        assert (sequences.loaded <= sequences.reused).all()
        below = sum(each["loaded_bytes"] for each in tiers.values())
        assert below <= sequences.traffic.loaded_bytes, "what is read comes through the host"
        read += below > 0
        both += len(tiers) > 1
    assert read > FEW // 4
    assert both > FEW // 20


def test_a_tier_below_of_one_client_finds_no_less() -> None:
    more = 0
    for seed in range(0, 2 * FEW, 2):
        case = one_by_one(tier_case(seed))
        found = []
        for size in (0.0, 1e12):
            tiers = (KvTier("disk", size, 1e12),)
            limits = replace(case.limits, kv_tiers=tiers)
            found.append(int(replace(case, limits=limits).run().reused.sum()))
        alone = replace(case, limits=replace(case.limits, kv_tiers=())).run()
        assert found[0] == int(alone.reused.sum()), "no room is no tier"
        assert found[1] >= found[0], seed
        more += found[1] > found[0]
    assert more > FEW // 4


def test_a_disk_for_everything_finds_what_a_host_for_everything_finds() -> None:
    """Where the host has room for the longest request: what a running one refers to stays there."""
    below = 0
    for seed in range(FEW):
        case = one_by_one(host_case(seed, "vllm-v1"))
        assert case.limits.host is not None
        room = case.limits.host.bytes_of(case.limits.blocks) / GIB
        runs = []
        for size, tiers in ((8.0, ()), (room, (KvTier("disk", 1e12, 1e12),))):
            limits = replace(case.limits, options={"kv_offloading_size": size}, kv_tiers=tiers)
            runs.append(replace(case, limits=limits).run())
        assert (runs[0].reused == runs[1].reused).all(), seed
        below += runs[1].sequences.traffic.of_tier("disk")["loaded_bytes"] > 0
    assert below > FEW // 4


def test_a_turn_waits_for_what_it_reads_from_each_tier() -> None:
    """Three conversations of 8 blocks, one after the other, then the first again: room for 10 on
    the device, for 9 in the host, for many on disk. By hand: of the 7 blocks that the first finds
    (one token at least is computed), the disk has all, since the others came later; they take 7
    blocks over the disk, and 7 over the link.
    """
    content = Content(
        np.array([1, 2, 3, 1]), np.array([128] * 4), np.arange(5), np.array([11, 12, 13, 14])
    )
    when = np.arange(4, dtype=np.int64) * 10**12
    requests = Requests.from_arrays(when, np.full(4, 128), np.ones(4, dtype=np.int64), 0, content)
    link = HostLink(16_384, 1, 16_384 * 1e3)  # a millisecond a block
    spans = []
    for rate, latency in ((16_384 * 100.0, 0.25), (math.inf, 0.0)):
        options: dict[str, float | str] = {"kv_offloading_size": 9 * 16_384 / GIB}
        tier = KvTier("disk", 1e9, rate, latency)
        limits = Limits(
            8, 8192, 10, prefix_caching=True, options=options, host=link, kv_tiers=(tier,)
        )
        records = ServingCase(requests, PlainPrices(), limits, "vllm-v1").run()
        assert records.reused.tolist() == [0, 0, 0, 112]
        assert records.sequences.traffic.tiers["disk"]["loaded_bytes"] == 7 * 16_384
        spans.append(int((records.first_ns - records.sent_ns)[3]))
    assert spans[0] - spans[1] == 7 * 10_000_000 + 250_000_000
