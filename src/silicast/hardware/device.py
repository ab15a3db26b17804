"""A device as a tree of compute levels with pipes, memory levels, clocks, power and links.

Every number is a datasheet or architecture fact with a source; nothing here is learned.
Physical quantities are SI (hertz, bytes, bytes/s, watts, seconds); files use the units in their
key names and are converted once, by :mod:`silicast.hardware.catalog`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, final

from silicast.core.errors import unsupported

ExecutionModel = Literal["simt", "systolic", "vector_cpu", "loop_nest"]
PowerState = Literal["cool", "hot", "boost"]
Scope = Literal["core", "partition", "device", "board"]

UPLINK = "uplink"
"""The name of the link of a cluster's pods; no device has it of its own."""

NETWORK = "network"
"""The name of a link between nodes of which only the rate is known, not the kind."""

OPTIONAL_LINKS = frozenset({"pcie", "nvlink_bridge", "xgmi_bridge", "nvlink_c2c", UPLINK, NETWORK})
"""Links that do not join the devices of a node unless a system says so."""


NO_CAP = "power.cap_w is missing"
"""Among a device's unknowns where its file states no power limit. Steps lift the limit of a device,
so that its absence says nothing."""


@final
@dataclass(frozen=True)
class Pipe:
    """An execution pipe of one core.

    Attributes:
        name: "tensor", "fma", "xu" (transcendentals), "alu".
        rate: operations per clock and core by compute format; a fused multiply-add counts 2.
    """

    name: str
    rate: Mapping[str, float]


@final
@dataclass(frozen=True)
class MatrixArray:
    """The arrays of multipliers in one core: systolic arrays, matrix engines.

    Attributes:
        rows: depth of the array, along the reduction; a shorter k is padded to it.
        columns: width of the array, along the stationary operand's other side.
        count: arrays in one core.
    """

    rows: int
    columns: int
    count: int = 1


@final
@dataclass(frozen=True)
class ComputeLevel:
    """A level of the compute hierarchy: ``count`` units of it inside one unit of its parent.

    The innermost level (``children`` empty) is the core: an SM, a compute unit, a CPU core, a
    TensorCore of a TPU. ``array`` is the shape of its matrix units where that matters (systolic
    devices).
    """

    name: str
    count: int
    pipes: Mapping[str, Pipe] = field(default_factory=dict)
    children: tuple[ComputeLevel, ...] = ()
    array: MatrixArray | None = None

    @cached_property
    def facts(self) -> int:
        """A hash of what distinguishes it; the same device at many clocks has one and the same."""
        pipes = tuple((name, tuple(pipe.rate.items())) for name, pipe in self.pipes.items())
        below = tuple(child.facts for child in self.children)
        return hash((self.name, self.count, self.array, pipes, below))


@final
@dataclass(frozen=True)
class MemoryLevel:
    """A level of the memory hierarchy.

    Attributes:
        name: "smem", "l2", "dram" (and "l1", "mall" where a device has them).
        scope: what shares one instance of it.
        capacity_bytes: of one instance.
        bandwidth_bytes_per_s: of one instance, at the boost clock where it is clocked with the
            cores; 0 where it is not known.
        latency_s: load-to-use latency; 0 where it is not known.
        technology: "HBM3", "GDDR6", ... or "".
        inline_ecc: error correction is on and its words share the chips and the bus with data
            (GDDR5 and GDDR6 boards for servers; HBM and GDDR7 carry them apart).
        peak_bytes_per_s: what the wires allow at the largest clock, for bounds; never below
            ``bandwidth_bytes_per_s``, which is what a kernel can sustain or the vendor states.
    """

    name: str
    scope: Scope
    capacity_bytes: float
    bandwidth_bytes_per_s: float
    latency_s: float = 0.0
    technology: str = ""
    inline_ecc: bool = False
    peak_bytes_per_s: float = 0.0

    def __post_init__(self) -> None:
        if self.peak_bytes_per_s < self.bandwidth_bytes_per_s:
            object.__setattr__(self, "peak_bytes_per_s", self.bandwidth_bytes_per_s)


@final
@dataclass(frozen=True)
class Clocks:
    """Core clocks in hertz.

    Attributes:
        base_hz: guaranteed under full load; 0 where it is not published.
        boost_hz: the clock of the datasheet's peak rates; models run kernels at this clock.
        max_hz: the largest clock the device can hold (``nvidia-smi -q -d CLOCK``, Max SM clock);
            bounds use it. Equal to ``boost_hz`` where nothing higher is published.
        held_hz: what a limit holds, at or above ``boost_hz``: what runs above the boost clock runs
            at no more.
        built_max_hz: the largest clock of the board, where a limit makes ``max_hz`` smaller; 0 =
            ``max_hz``.
        built_boost_hz: the boost clock before that limit; 0 = there is none.
    """

    base_hz: float
    boost_hz: float
    max_hz: float
    held_hz: float = math.inf
    built_max_hz: float = 0.0
    built_boost_hz: float = 0.0

    def with_headroom_hz(self, share: float) -> float:
        """The clock of a board that runs above its rated boost by a share of what is left to its
        largest clock; a limit cuts it off.

        >>> free = Clocks(base_hz=2.0, boost_hz=2.5, max_hz=3.0)
        >>> free.with_headroom_hz(0.5), free.limited_to(2.6).with_headroom_hz(0.5)
        (2.75, 2.6)
        """
        most = self.built_max_hz or self.max_hz
        free_hz = self.boost_hz + share * max(most - self.boost_hz, 0.0)
        return min(free_hz, max(self.max_hz, self.boost_hz), self.held_hz)

    def limited_to(self, hz: float) -> Clocks:
        """With a limit at or above the rated boost."""
        most, boost_hz = self.built_max_hz or self.max_hz, self.built_boost_hz or self.boost_hz
        limited_hz = min(self.max_hz, hz)
        return replace(self, max_hz=limited_hz, built_max_hz=most, built_boost_hz=boost_hz)


@final
@dataclass(frozen=True)
class Cube:
    """A hybrid cube mesh of up to eight: two quads whose members all reach each other, and one
    partner in the other quad.

    Attributes:
        links: of one device.
        pair, three, four: those that a group of so many of one quad can use at best.
    """

    links: int
    pair: int
    three: int
    four: int

    def share(self, local: int) -> float:
        """Share of a device's links that a group of ``local`` can use; rings over more use all.

        >>> Cube(6, 2, 3, 4).share(2), Cube(6, 2, 3, 4).share(8)
        (0.3333333333333333, 1.0)
        """
        usable = {2: self.pair, 3: self.three, 4: self.four}
        return usable.get(local, self.links) / self.links


@final
@dataclass(frozen=True)
class Link:
    """A kind of link between devices.

    Attributes:
        name: "nvlink"; "nvlink_bridge" (an option that joins a pair or four, not there unless a
            cluster says so); "nvlink_c2c" (to the host); "pcie".
        bandwidth_bytes_per_s: per device and direction, all links of the kind together.
        switched: every pair reaches full bandwidth at once (NVSwitch); also rings on a torus,
            whose neighbours do (TPU).
        multicast: the switch reduces and multicasts (NVLink SHARP, NVLS).
        domain: devices that one fabric of it joins in the usual system; 0 = those of a node.
        mesh: every pair of the domain is joined by links of its own, which share the bandwidth
            evenly (Infinity Fabric of eight).
        mesh_boards: sizes of boards that join every pair so although others have a switch.
        cube: how boards without a switch are joined; None where they are not so.
        peer_access: peers read each other's memory; else messages are staged in host memory
            (GeForce drivers, some workstation platforms).
        paths: of pairs of devices over the host's PCIe in its usual hosts: "own", "shared", or "",
            not known.
    """

    name: str
    bandwidth_bytes_per_s: float
    switched: bool = False
    multicast: bool = False
    domain: int = 0
    mesh: bool = False
    mesh_boards: tuple[int, ...] = ()
    cube: Cube | None = None
    peer_access: bool = True
    paths: Literal["", "own", "shared"] = ""

    @property
    def usual_paths(self) -> Literal["", "own", "shared"]:
        """As ``paths``; what is staged in host memory shares its way there."""
        return self.paths or ("" if self.peer_access else "shared")


@dataclass(frozen=True)
class Structure(ABC):
    """What kernel models of an execution model know of a device beyond its units and memories:
    ports, banks, word widths, energies of actions. Compares and hashes by :attr:`key`.

    Attributes:
        key: hash of all that it says.
    """

    key: str

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and other.key == self.key

    @property
    @abstractmethod
    def text(self) -> str:
        """What it is, in one line."""

    @property
    @abstractmethod
    def states_energy(self) -> bool:
        """Whether the energy of every action is stated."""

    @property
    @abstractmethod
    def uncounted(self) -> tuple[str, ...]:
        """What draws power on every chip and has no energy here, such as a clock tree."""

    @property
    @abstractmethod
    def energy_log_sd(self) -> float:
        """Log standard deviation of the error of energies."""

    @property
    @abstractmethod
    def time_log_sd(self) -> float | None:
        """That of times, where some were measured; None = nobody has."""

    @property
    @abstractmethod
    def trains(self) -> bool:
        """Whether software trains on it."""

    @property
    @abstractmethod
    def remarks(self) -> tuple[str, ...]:
        """What a reader of predictions must know of it."""


@final
@dataclass(frozen=True)
class Device:
    """One accelerator, as its datasheet describes it.

    Attributes:
        architecture: the generation ("hopper", "ada"); physics constants are looked up by it.
        compute_capability: vendor's ISA level ("9.0"), or "".
        compute: the compute tree, outermost level first.
        memory: memory levels by name.
        power_cap_w: default board power limit, None where not published.
        least_power_cap_w: where makers of systems choose that limit (laptops), the smallest that
            they do; ``power_cap_w`` is then the largest.
        power_state: how that limit slows what it runs: "cool" = as where a campaign measures one
            kernel, "hot" = as after seconds of the same, "boost" = not at all.
        links: links by name; empty where it has none.
        default_gpus_per_node: devices in its usual server.
        default_host: the CPU that is part of its module (a host of the catalog), or "".
        usual_system: the system of the catalog that it is usually in; "" = the one that lists it,
            else a plain node.
        sources: dotted field path -> where the number is from.
        unknowns: dotted paths of numbers that nobody has published: what stands there is derived
            from a relative or from other figures, and predictions are the less certain for it.
        differs: where its table carries the name of a board of the catalog, in what it differs.
        base: the board of the catalog that it is described as a change of, or "".
        structure: of a device whose kernels are mapped onto it, in place of a library's.
    """

    name: str
    vendor: str
    architecture: str
    execution_model: ExecutionModel
    compute: ComputeLevel
    memory: Mapping[str, MemoryLevel]
    clocks: Clocks
    compute_capability: str = ""
    power_cap_w: float | None = None
    idle_power_w: float | None = None
    least_power_cap_w: float | None = None
    power_state: PowerState = "cool"
    links: Mapping[str, Link] = field(default_factory=dict)
    default_gpus_per_node: int = 8
    default_host: str = ""
    usual_system: str = ""
    aliases: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    unknowns: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()
    base: str = ""
    structure: Structure | None = None

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        inside = self.compute.facts, tuple(self.memory.items()), tuple(self.links.items())
        state = self.clocks, self.power_cap_w, self.power_state
        return hash((self.name, self.architecture, *state, inside, self.structure))

    @cached_property
    def core(self) -> ComputeLevel:
        """The innermost compute level."""
        level = self.compute
        while level.children:
            level = level.children[0]
        return level

    @cached_property
    def cores(self) -> int:
        """Number of cores (SMs) of the whole device."""
        level, total = self.compute, self.compute.count
        while level.children:
            level = level.children[0]
            total *= level.count
        return total

    @property
    def dram(self) -> MemoryLevel:
        return self.memory["dram"]

    @property
    def l2(self) -> MemoryLevel:
        """The memory on the chip that all cores share: "l2", or, where none is called so, the
        largest that one instance of serves the whole device.

        Raises:
            SilicastError: the device describes none ("unsupported").
        """
        memory_level = self.memory.get("l2")
        if memory_level is None:
            shared = [
                level
                for name, level in self.memory.items()
                if name != "dram" and level.scope == "device"
            ]
            if not shared:
                raise unsupported(
                    f"{self.name} has no memory on the chip that all cores share",
                    "memory.l2",
                    'describe it as [memory.l2], or as another level of scope = "device"',
                )
            memory_level = max(shared, key=lambda level: level.capacity_bytes)
        return memory_level

    @cached_property
    def fabric_link(self) -> Link | None:
        """The link that joins the devices of a node without being asked for; None = only PCIe.

        "nvlink", "xgmi", "ici", "neuronlink" or what else the device file has besides PCIe.
        """
        links = [link for name, link in self.links.items() if name not in OPTIONAL_LINKS]
        return links[0] if links else None

    def rate_per_core(self, pipe: str, dtype: str) -> float:
        """Operations per clock and core of ``pipe`` in ``dtype``; 0 where it has no such mode."""
        core_pipe = self.core.pipes.get(pipe)
        return core_pipe.rate.get(dtype, 0.0) if core_pipe else 0.0

    def peak_per_s(self, pipe: str, dtype: str) -> float:
        """Operations per second of the whole device at the boost clock."""
        return self.rate_per_core(pipe, dtype) * self.cores * self.clocks.boost_hz

    def bound_per_s(self, pipe: str, dtype: str) -> float:
        """Operations per second of the whole device at the largest clock: for bounds."""
        return self.rate_per_core(pipe, dtype) * self.cores * self.clocks.max_hz

    def with_cores(self, cores: int) -> Device:
        """The device with another number of cores, and all else as it is."""

        def changed(level: ComputeLevel) -> ComputeLevel:
            if not level.children:
                return replace(level, count=cores)
            return replace(
                level, count=1, children=(changed(level.children[0]), *level.children[1:])
            )

        return replace(self, compute=changed(self.compute))

    def at_clock(self, hz: float) -> Device:
        """The same device running at ``hz``; core-clocked caches slow down with it. Above its boost
        clock that holds back only what runs quicker still (:meth:`Clocks.with_headroom_hz`).
        """
        boost_hz = min(hz, self.clocks.boost_hz)
        clocks = replace(self.clocks, boost_hz=boost_hz, held_hz=hz)
        return self._with_clocks(clocks)

    def clock_limited_to(self, hz: float) -> Device:
        """The same device under a limit of its clock."""
        slower = self.at_clock(hz) if hz < self.clocks.boost_hz else self
        built = replace(slower.clocks, built_boost_hz=self.clocks.boost_hz)
        return replace(slower, clocks=built.limited_to(hz))

    def at_built_clock(self) -> Device:
        """The device without the limit of its clock; itself where it has none."""
        clocks = self.clocks
        if not clocks.built_max_hz:
            return self
        return self._with_clocks(Clocks(clocks.base_hz, clocks.built_boost_hz, clocks.built_max_hz))

    def _with_clocks(self, clocks: Clocks) -> Device:
        ratio = clocks.boost_hz / self.clocks.boost_hz
        memory = {
            name: level
            if level.name == "dram"
            else replace(level, bandwidth_bytes_per_s=level.bandwidth_bytes_per_s * ratio)
            for name, level in self.memory.items()
        }
        return replace(self, clocks=clocks, memory=memory)

    def in_state(self, state: PowerState) -> Device:
        return self if state == self.power_state else replace(self, power_state=state)

    @property
    def matrix_pipes(self) -> tuple[str, ...]:
        """Pipes that multiply matrices, the fastest first; the vector units of a design do not."""
        return ("tensor", "fma") if self.structure is None else ("tensor",)

    def matrix_pipe(self, dtype: str) -> str:
        """The pipe that multiplies matrices in ``dtype``: tensor cores, else FMA.

        Raises:
            SilicastError: the device computes ``dtype`` on neither.
        """
        for pipe in self.matrix_pipes:
            if self.rate_per_core(pipe, dtype) > 0.0:
                return pipe
        pipes = [self.core.pipes[name] for name in self.matrix_pipes if name in self.core.pipes]
        formats = sorted({d for pipe in pipes or self.core.pipes.values() for d in pipe.rate})
        raise unsupported(
            f"{self.name} has no {dtype} matrix arithmetic",
            "dtype",
            f"it computes in {', '.join(formats)}",
        )
