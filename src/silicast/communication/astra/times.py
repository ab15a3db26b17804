"""Times of ASTRA-sim's analytical backends (version 2) for ring collectives in one dimension.

A collective is cut into splits, of which some are active at once; each goes round the ring in
steps of its own. Times are whole nanoseconds, rounded down where ASTRA-sim does. With contention
("aware") a message waits for its links, one after the other; without ("unaware") it takes the
latency of all links and its bytes once. Every step ends with the endpoint's delay; what was reduced
is also written to local memory once and read twice.
"""

from __future__ import annotations

import heapq
import math
from typing import Final, Literal

from silicast.communication.astra.files import RING, AstraNetwork, AstraSystem
from silicast.core.errors import SilicastError, unknown_name, unsupported

Backend = Literal["aware", "unaware"]
BACKENDS: Final[tuple[Backend, ...]] = ("aware", "unaware")
OPERATIONS: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def astra_time(
    op: str, size: int, network: AstraNetwork, system: AstraSystem, backend: Backend = "aware"
) -> int:
    """Nanoseconds that ASTRA-sim prints for one collective.

    Args:
        op: one of :data:`OPERATIONS`.
        size: bytes as ASTRA-sim counts them: of one NPU's input, for all_gather too, whose output
            is ``network.npus`` times as large.

    Raises:
        SilicastError: another operation or algorithm, no bytes, or fewer than one a NPU and split.

    >>> hgx = AstraNetwork("Switch", 8, 400.0, 936.25)
    >>> system = AstraSystem(RING, RING, RING, RING, 10, 4, 2, 3350.0)
    >>> [astra_time(op, 1 << 20, hgx, system) for op in OPERATIONS]
    [57426, 44058, 28950, 114000]
    >>> [astra_time(op, 1 << 20, hgx, system, "unaware") for op in OPERATIONS]
    [55222, 34908, 27810, 109668]
    """
    if op not in OPERATIONS:
        raise unknown_name(f"ASTRA-sim has no {op!r}", "op", f"one of {', '.join(OPERATIONS)}")
    if (named := system.implementation(op)) != RING:
        raise unsupported(
            f"{op} by {', '.join(named)}; ASTRA-sim's numbers are reproduced for one ring",
            f"{op.replace('_', '-')}-implementation", "ring; or take silicast.communication.flows",
        )  # fmt: skip
    npus = network.npus
    split = size // system.preferred_dataset_splits
    message = split if op == "all_gather" else split // npus
    if message < 1:
        raise SilicastError(
            f"{size} bytes in {system.preferred_dataset_splits} splits for {npus} NPUs",
            field="bytes", hint="at least one byte a NPU and split",
        )  # fmt: skip
    delays = _delays(op, message, npus, system)
    splits = -(-size // split)
    if backend == "unaware":
        step = int(_hops(network) * network.latency_ns + message / network.bytes_per_ns)
        waves = -(-splits // system.active_chunks_per_dimension)
        return waves * (system.endpoint_delay + sum(step + delay for delay in delays))
    return _aware(message, splits, delays, network, system)


def whole_bytes(op: str, size: int, npus: int) -> int:
    """The size as nccl-tests counts it, which counts the output of an all_gather.

    >>> whole_bytes("all_gather", 1 << 20, 8) >> 20, whole_bytes("all_reduce", 1 << 20, 8) >> 20
    (8, 1)
    """
    return size * npus if op == "all_gather" else size


def _delays(op: str, message: int, npus: int, system: AstraSystem) -> list[int]:
    """Nanoseconds at the endpoint after each step."""
    memory = 3 * int(message / system.local_mem_bw) if system.local_mem_bw else 0
    around = npus - 1
    reduced = around if op in ("all_reduce", "reduce_scatter") else 0
    plain = {"all_reduce": around, "all_gather": around, "all_to_all": npus * around // 2}
    wait = system.endpoint_delay
    return [wait + memory] * reduced + [wait] * plain.get(op, 0)


def _hops(network: AstraNetwork) -> int:
    """Links between neighbours of the ring: to the switch and from it, else one."""
    return 2 if network.topology == "Switch" else 1


def _aware(
    message: int, splits: int, delays: list[int], network: AstraNetwork, system: AstraSystem
) -> int:
    """All splits, as many at once as may be; all NPUs do the same, so that one's links suffice."""
    busy_ns = int(message / network.bytes_per_ns)
    hop_ns = math.floor(network.latency_ns + message / network.bytes_per_ns)
    free = [0] * _hops(network)
    waiting = [
        (system.endpoint_delay, split, 0)
        for split in range(min(splits, system.active_chunks_per_dimension))
    ]
    begun, end = len(waiting), 0
    while waiting:
        now, split, step = heapq.heappop(waiting)
        for hop, idle in enumerate(free):
            start = max(now, idle)
            free[hop] = start + busy_ns
            now = start + hop_ns
        now += delays[step]
        if step + 1 < len(delays):
            heapq.heappush(waiting, (now, split, step + 1))
            continue
        end = max(end, now)
        if begun < splits:
            heapq.heappush(waiting, (now + system.endpoint_delay, begun, 0))
            begun += 1
    return end
