"""The algorithm that a library runs for each size, and its time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import final

import numpy as np

from silicast.communication.algorithms.algorithm import Collective, Constants, algorithm
from silicast.communication.library import AlgorithmChoice, choices, only, usual_library
from silicast.communication.protocol import MICRO
from silicast.communication.topology import Topology
from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.physics.constants import Physics, load_physics
from silicast.workload.libraries.catalog import libraries


@cache
def skewed_launches() -> frozenset[str]:
    """Launches whose times include the wait of the first rank for the last: those of a library."""
    return frozenset(entry.name for entry in libraries() if entry.measures_skew)


def launches() -> tuple[str, ...]:
    """How a collective may be launched; see :func:`~.collective.collective_times`."""
    return ("graph", "eager", *sorted(skewed_launches()))


Sections = Mapping[str, Constants]
"""Section name -> its constants without the prefix, over the common ones; "" -> the common."""


def sections(constants: Constants) -> Sections:
    """Constants ("nvlink.base_us", ...) by section.

    >>> sections({"eager_floor_us": 20.0, "ring.base_us": 5.0})["ring"]
    {'eager_floor_us': 20.0, 'base_us': 5.0}
    """
    common = {name: value for name, value in constants.items() if "." not in name}
    sections: dict[str, dict[str, float]] = {"": common}
    for name, value in constants.items():
        section, dot, constant = name.partition(".")
        if dot:
            sections.setdefault(section, dict(common))[constant] = value
    return sections


NOTHING: Constants = {}
FLOOR = "_floor_us"
"""End of names of times that do not scale with the device's clock."""


def constants_of(physics: Physics, device: Device) -> Constants:
    """The constants of a device.

    An architecture without measurements takes the means of the others'; times that kernels wait are
    scaled to its clock, because they are a number of cycles.
    """
    architecture = device.architecture
    constants = physics.constants(architecture)
    measured = physics.is_measured(architecture) or architecture in physics.fallback
    if measured or device.execution_model != "simt":
        return constants
    scale = constants["reference_clock_hz"] / device.clocks.max_hz
    return {name: value * scale if waits(name) else value for name, value in constants.items()}


def waits(name: str) -> bool:
    """Whether a constant is a time that scales with the clock."""
    return name.endswith("_us") and not name.endswith(FLOOR)


@cache
def shipped_sections(device: Device) -> Sections:
    """The shipped constants of one device."""
    return sections(constants_of(load_physics("communication"), device))


@final
@dataclass(frozen=True)
class Selection:
    """The algorithm and time of each size; arrays of shape (n,), seconds.

    Attributes:
        time_s: the whole operation.
        latency_s: the part that does not depend on the size.
        picked: index into ``names`` of the algorithm.
        names: candidate algorithms.
        floor_s: least time of a call, set by the host or the ranks' skew.
        rule: index of the library's rule that serves the size; limit: the largest size it serves.
        copy_s: the part of an engine's own copy.
    """

    time_s: F64
    latency_s: F64
    picked: I64
    names: tuple[str, ...]
    floor_s: float
    rule: I64
    limit: I64
    copy_s: F64


def select(
    op: Collective,
    size: I64,
    topology: Topology,
    constants: Sections,
    library: str,
    launch: str = "graph",
    dtype: str = "bf16",
    version: str = "",
    forced: str = "",
    between: Constants = NOTHING,
) -> Selection:
    """The algorithm that ``library`` runs for every size, and its time.

    Args:
        forced: the only algorithm that it may take, "" = any.
        between: constants of the network between nodes.
    """
    bytes_ = size.astype(np.float64)
    rules = choices(library, op, topology, dtype, version)
    if forced:
        rules = only(forced, rules, op, topology)
    if between:
        constants = {name: {**constant, **between} for name, constant in constants.items()}
    time, latency, picked, names, rule = _by_rule(rules, op, size, bytes_, topology, constants)
    floor = _floor(op, topology, constants, launch)
    copy = np.zeros(len(size))
    own_kernels = library not in ("", usual_library())
    if launch == "eager" and own_kernels and op == "all_reduce":
        copy = _copy(bytes_, topology, constants[""])
        time = time + copy
    if floor > 0.0:
        # symmetric memory: a copy in and a copy out beside the kernel, each launched by the host
        calls = constants[""]["multimem_calls"]
        table = np.array([floor * calls if name == "multimem" else floor for name in names])
        time, latency = np.maximum(time, table[picked]), np.maximum(latency, table[picked])
    sent = size > 0
    return Selection(
        time_s=np.where(sent, time, 0.0),
        latency_s=np.where(sent, latency, 0.0),
        picked=picked,
        names=names,
        floor_s=floor,
        rule=rule,
        limit=np.array([rule_.largest for rule_ in rules], dtype=np.int64)[rule],
        copy_s=copy,
    )


def _by_rule(
    rules: list[AlgorithmChoice],
    op: Collective,
    size: I64,
    bytes_: F64,
    topology: Topology,
    constants: Sections,
) -> tuple[F64, F64, I64, tuple[str, ...], I64]:
    """Each row takes the first rule that serves its size, and that rule's fastest candidate."""
    time, latency = np.zeros(len(size)), np.zeros(len(size))
    picked = np.zeros(len(size), dtype=np.int64)
    names: list[str] = []
    open_rows = np.ones(len(size), dtype=bool)
    number = np.zeros(len(size), dtype=np.int64)
    for index, rule in enumerate(rules):
        rows = np.flatnonzero(open_rows & (size <= rule.largest))
        if not len(rows):
            continue
        open_rows[rows] = False
        number[rows] = index
        best = np.full(len(rows), np.inf)
        for name, section in rule.candidates:
            times = algorithm(name).times(op, bytes_[rows], topology, constants[section])
            better = times.time_s < best
            best = np.where(better, times.time_s, best)
            taken = rows[better]
            time[taken], latency[taken] = times.time_s[better], times.latency_s[better]
            picked[taken] = len(names)
            names.append(name)
    return time, latency, picked, tuple(names), number


def _floor(op: str, topology: Topology, constants: Sections, launch: str) -> float:
    """Least seconds of a call, set by the host or the ranks' skew.

    Eager: Python, dispatch and launch of an engine's all-reduce, by its CPU. Skewed: timings of
    the first rank include its wait for the last; a pair's send and receive shows none.
    """
    if launch == "graph" or (launch in skewed_launches() and op == "send_recv"):
        return 0.0
    if launch in skewed_launches():
        return constants[topology.section][launch + FLOOR] * MICRO
    name = "grace_eager_floor_us" if topology.grace_host else "eager_floor_us"
    return constants[""][name] * MICRO


def _copy(bytes_: F64, topology: Topology, common: Constants) -> F64:
    """An engine's eager path copies the tensor once in device memory: read and write."""
    rate = topology.device.dram.bandwidth_bytes_per_s * common["copy_efficiency"]
    return bytes_ * (2.0 / rate)
