"""ASTRA-sim's analytical backends: its files in, and the times of its collectives.

As ASTRA-sim's system layer has it: a chunk passes the dimensions one after the other. A
reduce-scatter begins with the first one and hands on its share, an all-gather begins with the last
one and hands on what it gathered, an all-to-all passes its whole buffer through each. An all-reduce
is one all-reduce a dimension ("baseline"), or ("localBWAware") a reduce-scatter in all but the last
dimension, an all-reduce in the last, and an all-gather back.

A ring collective (version 2 of the backends) is cut into splits, of which some are active at once;
each goes round the rings of the dimensions in steps of its own. Times are whole nanoseconds,
rounded down where ASTRA-sim does. With contention ("aware") a message waits for its links, one
after the other; without ("unaware") it takes the latency of all links and its bytes once. More
dimensions than one are without. Every step ends with the endpoint's delay; what was reduced is also
written to local memory once and read twice.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import Final, Literal, final

from silicast.core.errors import SilicastError, unknown_name, unsupported
from silicast.formats.astra_sim import IN_ORDER, RING, AstraNetwork, AstraSystem, NetworkDimension


@final
@dataclass(frozen=True)
class RingPhase:
    """A ring collective of one chunk in one dimension.

    Attributes:
        place: of the dimension; ``along`` it.
        message: bytes of each step.
        delays: nanoseconds at the endpoint after each step.
    """

    place: int
    along: NetworkDimension
    message: int
    delays: tuple[int, ...]


def phases_of(op: str, chunk: int, network: AstraNetwork, system: AstraSystem) -> list[RingPhase]:
    """What a chunk does.

    Args:
        chunk: bytes of one NPU's input.

    Raises:
        SilicastError: less than a byte is left for a NPU.
    """
    last = len(network.dimensions) - 1
    ways = [(op, position) for position in range(last + 1)]
    if op == "all_gather":
        ways.reverse()
    elif op == "all_reduce" and system.collective_optimization != "baseline":
        shared = [("reduce_scatter", position) for position in range(last)]
        back = [("all_gather", position) for position in reversed(range(last))]
        ways = [*shared, (op, last), *back]
    phases, held = [], chunk
    for name, position in ways:
        along = network.dimensions[position]
        message = held if name == "all_gather" else held // along.npus
        if message < 1:
            raise SilicastError(
                f"{chunk} bytes of a chunk for {network.npus} NPUs",
                field="bytes",
                hint="at least one byte a NPU and split",
            )
        phases.append(
            RingPhase(position, along, message, _delays(name, message, along.npus, system))
        )
        held = {"all_gather": held * along.npus, "reduce_scatter": message}.get(name, held)
    return phases


def _delays(op: str, message: int, npus: int, system: AstraSystem) -> tuple[int, ...]:
    """Nanoseconds at the endpoint after each step."""
    memory = 3 * int(message / system.local_mem_bw) if system.local_mem_bw else 0
    around = npus - 1
    reduced = around if op in ("all_reduce", "reduce_scatter") else 0
    plain = {"all_reduce": around, "all_gather": around, "all_to_all": npus * around // 2}
    wait = system.endpoint_delay
    return (*[wait + memory] * reduced, *[wait] * plain.get(op, 0))


def unaware_time(phases: list[RingPhase], splits: int, system: AstraSystem) -> int:
    """Nanoseconds until all chunks are through, if messages never wait for links.

    A dimension works on as many chunks at once as may be active in it; others wait.

    Raises:
        SilicastError: chunks that are on their way out and chunks on their way back wait for the
            same dimension; which of them ASTRA-sim takes is not reproduced.
    """
    lasts = [_unaware(phase, system) for phase in phases]
    waiting: dict[int, dict[int, int]] = {phase.place: {} for phase in phases}
    free = dict.fromkeys(waiting, system.active_chunks_per_dimension)
    waiting[phases[0].place][0] = splits
    running: list[tuple[int, int, int]] = []  # (end, phase, chunks)
    now = 0
    while True:
        for position, queue in waiting.items():
            if free[position] < sum(queue.values()) and len(queue) > 1:
                raise unsupported(
                    f"chunks of {splits} splits wait for dimension {position + 1} on their way out "
                    "and back; which one ASTRA-sim takes first is not reproduced",
                    "preferred-dataset-splits",
                    f"at most {system.active_chunks_per_dimension}, as many as are active",
                )
            for number, chunks in list(queue.items()):
                begun = min(free[position], chunks)
                free[position] -= begun
                queue[number] -= begun
                if begun:
                    heapq.heappush(running, (now + lasts[number], number, begun))
                if not queue[number]:
                    del queue[number]
        if not running:
            return now
        now = running[0][0]
        while running and running[0][0] == now:
            _, number, chunks = heapq.heappop(running)
            free[phases[number].place] += chunks
            if number + 1 < len(phases):
                queue = waiting[phases[number + 1].place]
                queue[number + 1] = queue.get(number + 1, 0) + chunks


def _unaware(phase: RingPhase, system: AstraSystem) -> int:
    """Nanoseconds of one phase: all links' latency and the bytes once, each step."""
    along = phase.along
    step = int(along.hops * along.latency_ns + phase.message / along.bytes_per_ns)
    return system.endpoint_delay + sum(step + delay for delay in phase.delays)


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
        SilicastError: another operation, algorithm or schedule, contention in more dimensions than
            one, or fewer bytes than one a NPU and split.

    >>> from silicast.formats.astra_sim import NetworkDimension
    >>> hgx = AstraNetwork((NetworkDimension("Switch", 8, 400.0, 936.25),))
    >>> system = AstraSystem(RING, RING, RING, RING, 10, 4, 2, 3350.0)
    >>> [astra_time(op, 1 << 20, hgx, system) for op in OPERATIONS]
    [57426, 44058, 28950, 114000]
    >>> [astra_time(op, 1 << 20, hgx, system, "unaware") for op in OPERATIONS]
    [55222, 34908, 27810, 109668]
    """
    if op not in OPERATIONS:
        raise unknown_name(f"ASTRA-sim has no {op!r}", "op", f"one of {', '.join(OPERATIONS)}")
    _check(op, network, system)
    if backend not in backends_of(network):
        raise unsupported(
            f"{len(network.dimensions)} dimensions; ASTRA-sim counts contention in one only",
            "topology",
            "its times without contention",
        )
    split = size // system.preferred_dataset_splits
    phases = phases_of(op, split, network, system)
    splits = -(-size // split)
    if backend == "unaware":
        return unaware_time(phases, splits, system)
    return _aware(phases[0], splits, system)


def backends_of(network: AstraNetwork) -> tuple[Backend, ...]:
    """The backends that take a network: contention is counted in one dimension only."""
    return BACKENDS if len(network.dimensions) == 1 else ("unaware",)


def whole_bytes(op: str, size: int, npus: int) -> int:
    """The size as nccl-tests counts it, which counts the output of an all_gather.

    >>> whole_bytes("all_gather", 1 << 20, 8) >> 20, whole_bytes("all_reduce", 1 << 20, 8) >> 20
    (8, 1)
    """
    return size * npus if op == "all_gather" else size


def _check(op: str, network: AstraNetwork, system: AstraSystem) -> None:
    """Refuses settings of ASTRA-sim that are not reproduced."""
    named, dimensions = system.implementation(op), len(network.dimensions)
    field = f"{op.replace('_', '-')}-implementation"
    if set(named) != set(RING):
        raise unsupported(
            f"{op} by {', '.join(named)}; ASTRA-sim's numbers are reproduced for rings",
            field,
            "ring",
        )
    if len(named) != dimensions:
        raise SilicastError(
            f"has {len(named)} entries, and the network {dimensions} dimensions",
            field=field,
            hint="one a dimension",
        )
    if dimensions > 1 and system.inter_dimension_scheduling not in IN_ORDER:
        raise unsupported(
            f"{system.inter_dimension_scheduling[:40]!r}",
            "inter-dimension-scheduling",
            f"{IN_ORDER[0]}: every chunk takes the dimensions in their order",
        )


def _aware(phase: RingPhase, splits: int, system: AstraSystem) -> int:
    """All splits, as many at once as may be; all NPUs do the same, so that one's links suffice."""
    along, message, delays = phase.along, phase.message, phase.delays
    busy_ns = int(message / along.bytes_per_ns)
    hop_ns = math.floor(along.latency_ns + message / along.bytes_per_ns)
    free = [0] * along.hops
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
