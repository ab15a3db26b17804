"""What one chunk of a collective does, dimension by dimension, and when many of them are through.

As ASTRA-sim's system layer has it: a chunk passes the dimensions one after the other. A
reduce-scatter begins with the first one and hands on its share, an all-gather begins with the last
one and hands on what it gathered, an all-to-all passes its whole buffer through each. An all-reduce
is one all-reduce a dimension ("baseline"), or ("localBWAware") a reduce-scatter in all but the last
dimension, an all-reduce in the last, and an all-gather back.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import final

from silicast.core.errors import SilicastError, unsupported
from silicast.formats.astra_sim import AstraNetwork, AstraSystem, NetworkDimension


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
    lasts = [_unaware(each, system) for each in phases]
    waiting: dict[int, dict[int, int]] = {each.place: {} for each in phases}
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
