"""Sizes of messages as people write them, and one collective at many of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from silicast.core.errors import SilicastError

FIELD: Final = "--bytes"
EXAMPLE: Final = "for example 256MB, 1MiB, 1KiB..1GiB or 1MiB,4MiB..1GiB"
MOST: Final = 64
"""Sizes of a sweep."""
UNITS: Final = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20,
    "gib": 1 << 30, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30,
}  # fmt: skip
"""A bare k, m or g is the one of nccl-tests, a power of two."""

_SIZE = re.compile(r"([0-9][0-9_]*(?:\.[0-9]+)?)\s*([a-z]*)")


def size_of(text: str) -> int:
    """Bytes.

    >>> size_of("256MB"), size_of("1.5 KiB"), size_of("8M")
    (256000000, 1536, 8388608)

    Raises:
        SilicastError: not a size, or no whole number of bytes.
    """
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None or match.group(2) not in UNITS:
        raise _wrong(f"{text[:40]!r} is not a size")
    value = float(match.group(1)) * UNITS[match.group(2)]
    if value != int(value) or value < 1.0:
        raise _wrong(f"{text[:40]!r} is not a whole number of bytes from 1 on")
    return int(value)


def sizes_of(text: str) -> tuple[int, ...]:
    """One size, or several in ascending order; two points go on by the ratio of the two before, or
    by doubling after a single one.

    >>> sizes_of("1KiB..8KiB"), sizes_of("1MB,4MB..20MB")
    ((1024, 2048, 4096, 8192), (1000000, 4000000, 16000000, 20000000))

    Raises:
        SilicastError: not of that form, not ascending, or more than :data:`MOST`.
    """
    sizes: list[int] = []
    for word in text.split(","):
        first, dots, last = word.partition("..")
        sizes.append(size_of(first))
        if dots:
            sizes += _going_on(sizes, size_of(last))
    if sizes != sorted(set(sizes)):
        raise _wrong(f"{text[:60]!r}: sizes must grow")
    if len(sizes) > MOST:
        raise _wrong(f"{len(sizes)} sizes, and at most {MOST} are swept")
    return tuple(sizes)


def _going_on(sizes: list[int], last: int) -> list[int]:
    now = sizes[-1]
    if last <= now:
        raise _wrong(f"{now}..{last} does not grow")
    ratio = now / sizes[-2] if len(sizes) > 1 else 2.0
    if not ratio > 1.0:
        raise _wrong("sizes must grow")
    further: list[int] = []
    while round(now * ratio) < last and len(further) <= MOST:
        now = round(now * ratio)
        further.append(now)
    return [*further, last]


def _wrong(message: str) -> SilicastError:
    return SilicastError(message, field=FIELD, hint=EXAMPLE)


@final
@dataclass(frozen=True)
class AstraSimTime:
    """What ASTRA-sim prints for one collective.

    Attributes:
        size: bytes as ASTRA-sim counts them; whole_size: as nccl-tests and Silicast do.
        aware_ns, unaware_ns: with and without waiting for links; None = the network has more
            dimensions than ASTRA-sim counts that in.
    """

    size: int
    whole_size: int
    aware_ns: int | None
    unaware_ns: int


def astra_points(
    op: str, sizes: tuple[int, ...], network: Path, system: Path
) -> tuple[int, list[AstraSimTime]]:
    """The number of NPUs, and ASTRA-sim's times of an operation, from its own files.

    Raises:
        SilicastError: a file that cannot be read, or what it describes not be reproduced.
    """
    from silicast.communication.astra_sim import astra_time, backends_of, whole_bytes
    from silicast.formats.astra_sim import read_network, read_system

    joined, layer = read_network(network), read_system(system)
    aware = "aware" in backends_of(joined)
    points = [
        AstraSimTime(
            size,
            whole_bytes(op, size, joined.npus),
            astra_time(op, size, joined, layer) if aware else None,
            astra_time(op, size, joined, layer, "unaware"),
        )
        for size in sizes
    ]
    return joined.npus, points


def without_launch(scenario: Mapping[str, Any]) -> dict[str, Any] | None:
    """The same collective replayed in a graph; None where it is that already."""
    workload = scenario["workload"]
    if workload.get("launch", "graph") == "graph":
        return None
    return {**scenario, "workload": {**workload, "launch": "graph"}}


def usual_gpus(scenario: Mapping[str, Any]) -> int:
    """Participants where none are stated: the devices of a node, at least two."""
    from silicast.scenario.decode import decode
    from silicast.scenario.resolve import cluster_of, device_of

    workload = {**scenario["workload"], "gpus": 2, "bytes": 1}
    requested = decode({**scenario, "workload": workload})
    return max(cluster_of(requested, device_of(requested)).gpus_per_node, 2)
