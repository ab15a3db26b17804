"""Times of what a library runs for each size: its rule, the launch, and the constants behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, final

import numpy as np

from silicast.communication.algorithm import Collective, Constants, algorithm
from silicast.communication.library import Choice, choices
from silicast.communication.protocol import MICRO
from silicast.communication.topology import Topology
from silicast.core.numerics import F64, I64
from silicast.kernels.physics import load_physics

Launch = Literal["graph", "eager", "torch"]
LAUNCHES: tuple[Launch, ...] = ("graph", "eager", "torch")

Sections = Mapping[str, Constants]
"""Section name -> its constants without the prefix, over the common ones; "" -> the common."""


def sections(constants: Constants) -> Sections:
    """Constants ("nvlink.base_us", ...) by section.

    >>> sections({"eager_floor_us": 20.0, "ring.base_us": 5.0})["ring"]
    {'eager_floor_us': 20.0, 'base_us': 5.0}
    """
    common = {name: value for name, value in constants.items() if "." not in name}
    found: dict[str, dict[str, float]] = {"": common}
    for name, value in constants.items():
        section, dot, own = name.partition(".")
        if dot:
            found.setdefault(section, dict(common))[own] = value
    return found


@cache
def shipped_sections(architecture: str) -> Sections:
    """The shipped constants for one architecture."""
    return sections(load_physics("communication").constants(architecture))


@final
@dataclass(frozen=True)
class Selection:
    """What runs for each size; arrays of shape (n,), seconds.

    Attributes:
        time_s: the whole operation.
        latency_s: the part that does not depend on the size.
        picked: index into ``names`` of the algorithm.
        names: algorithms in play.
        floor_s: the time that the host or the ranks' skew keep a call from beating.
    """

    time_s: F64
    latency_s: F64
    picked: I64
    names: tuple[str, ...]
    floor_s: float


def select(
    op: Collective,
    size: I64,
    topology: Topology,
    constants: Sections,
    library: str,
    launch: Launch = "graph",
    dtype: str = "bf16",
    version: str = "",
) -> Selection:
    """What ``library`` runs for every size, and how long that takes."""
    bytes_ = size.astype(np.float64)
    rules = choices(library, op, topology, dtype, version)
    time, latency, picked, names = _by_rule(rules, op, size, bytes_, topology, constants)
    floor = _floor(op, topology, constants, launch)
    if launch == "eager" and library not in {"nccl", ""} and op == "all_reduce":
        time = time + _copy(bytes_, topology, constants[""])
    if floor > 0.0:
        # symmetric memory: a copy in and a copy out beside the kernel, each launched by the host
        calls = constants[""]["multimem_calls"]
        table = np.array([floor * calls if name == "multimem" else floor for name in names])
        time, latency = np.maximum(time, table[picked]), np.maximum(latency, table[picked])
    sent = size > 0
    return Selection(np.where(sent, time, 0.0), np.where(sent, latency, 0.0), picked, names, floor)


def _by_rule(
    rules: list[Choice],
    op: Collective,
    size: I64,
    bytes_: F64,
    topology: Topology,
    constants: Sections,
) -> tuple[F64, F64, I64, tuple[str, ...]]:
    """Each row takes the first rule that serves its size, and of that the fastest candidate."""
    time, latency = np.zeros(len(size)), np.zeros(len(size))
    picked = np.zeros(len(size), dtype=np.int64)
    names: list[str] = []
    open_rows = np.ones(len(size), dtype=bool)
    for rule in rules:
        rows = np.flatnonzero(open_rows & (size <= rule.largest))
        if not len(rows):
            continue
        open_rows[rows] = False
        best = np.full(len(rows), np.inf)
        for name, section in rule.candidates:
            found = algorithm(name).times(op, bytes_[rows], topology, constants[section])
            better = found.time_s < best
            best = np.where(better, found.time_s, best)
            taken = rows[better]
            time[taken], latency[taken] = found.time_s[better], found.latency_s[better]
            picked[taken] = len(names)
            names.append(name)
    return time, latency, picked, tuple(names)


def _floor(op: str, topology: Topology, constants: Sections, launch: Launch) -> float:
    """Seconds that the host or the ranks' skew keep a short call from beating.

    Eager: Python, dispatch and launch of an engine's all-reduce, by its CPU. Torch: timings of
    the first rank include its wait for the last; a pair's send and receive shows none.
    """
    if launch == "graph" or (launch == "torch" and op == "send_recv"):
        return 0.0
    if launch == "torch":
        fabric = topology.fabric if topology.fabric in {"pcie", "host"} else "nvlink"
        return constants[fabric]["torch_floor_us"] * MICRO
    name = "grace_eager_floor_us" if topology.grace_host else "eager_floor_us"
    return constants[""][name] * MICRO


def _copy(bytes_: F64, topology: Topology, common: Constants) -> F64:
    """An engine's eager path copies the tensor once in device memory: read and write."""
    rate = topology.device.dram.bandwidth_bytes_per_s * common["copy_efficiency"]
    return bytes_ * (2.0 / rate)
