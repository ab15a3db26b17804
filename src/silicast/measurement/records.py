"""What a file of measurements holds: one record a line, JSON.

A file starts with a :class:`Session` (which machine, software and protocol); every line after it
names the session that it belongs to. Kernels and runs are named as a scenario names them, so that a
prediction of the same thing needs no translation.
"""

from __future__ import annotations

from typing import Annotated, Any, final

import msgspec
from msgspec import Meta

FORMAT = 1
"""Layout of the lines."""

Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=0)]
Text = Annotated[str, Meta(max_length=2000)]
Columns = dict[str, Any]
"""A ``kernel`` table or a scenario, as :mod:`silicast.scenario` takes it."""


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="record"):
    """Unknown keys are errors."""


@final
class Protocol(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How times were taken.

    Attributes:
        timer: "perf_counter", "cuda_event", "cuda_graph", or the tool that measured ("nsys").
        warm_up: runs before the first that counts.
        repeats: runs that count at least; seconds: time that they take at most.
        launch: "stream" or "graph"; cache: state of the caches before each run, "warm" or "cold".
        statistic: what ``latency_us`` is of the repeats.
    """

    timer: str
    warm_up: Count = 0
    repeats: Count = 0
    seconds: float = 0.0
    launch: str = "stream"
    cache: str = "warm"
    statistic: str = "median"


@final
class Session(_Record, frozen=True, tag="session"):
    """Where and how a part of the file was measured.

    Attributes:
        id: names it in the file; started: ISO date and time, UTC.
        device: catalog name, or path of a device file; "" = not known.
        device_reported: what the driver or the system calls it.
        devices: how many of them took part; host: CPU that fed them.
        stack: software -> version; machine: everything else that was read of the machine.
        source: the program or tool that measured; notes: what a reader must know.
    """

    id: Text
    started: Text
    format: int = FORMAT
    device: Text = ""
    device_reported: Text = ""
    devices: Annotated[int, Meta(ge=1)] = 1
    host: Text = ""
    stack: dict[str, str] = {}
    machine: dict[str, Any] = {}
    protocol: Protocol | None = None
    source: Text = "silicast measure"
    notes: list[Text] = []


@final
class Spread(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far repeats lie apart.

    Attributes:
        p05, p95: quantiles of the repeats, in the unit of the value; repeats: how many.
        drift: median of the last third over that of the first, minus one.
    """

    p05: float
    p95: float
    repeats: Count
    drift: float = 0.0


@final
class Conditions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """State of the machine while it was measured; None = not to be read here.

    Attributes:
        load: of the host meanwhile, in busy cores that are not ours.
        reference: time of the session's reference kernel just before, over its first time.
    """

    clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    load: float | None = None
    reference: float | None = None


@final
class KernelRow(_Record, frozen=True, tag="kernel"):
    """One kernel.

    Attributes:
        session: its session's id; at: ISO date and time, UTC.
        kernel: a ``kernel`` table of a scenario: op, its sizes, dtype, library, launch, cache.
        latency_us: see the session's protocol.
        flags: what is doubtful about it: "drift", "throttled", "busy", "noisy", "unsteady".
        name: what the tool that measured calls the kernel.
        row: its number in the file that it was imported from, 0 = measured here.
    """

    session: Text
    kernel: Columns
    latency_us: Positive
    at: Text = ""
    spread: Spread | None = None
    conditions: Conditions | None = None
    flags: list[Text] = []
    name: Text = ""
    row: Count = 0


@final
class HostRow(_Record, frozen=True, tag="host"):
    """What the host takes for something, in microseconds.

    Attributes:
        quantity: "dispatch" (one eager op), "between" (on a CPU, Python between two of them, an
            op), "graph_launch", "sync" (an idle device, asked whether it is done), "round_trip"
            (from the end of a kernel whose result is read to the start of the next), "launch" (an
            empty kernel, launched and awaited), "step" (an engine between two steps), "request"
            (an engine, each request).
        engine: whose it is ("torch-eager", "vllm"); version: of it.
        states: what it was taken at ({"batch": 8}).
    """

    session: Text
    quantity: Text
    value_us: Positive
    engine: Text = ""
    version: Text = ""
    states: Columns = {}
    at: Text = ""
    spread: Spread | None = None
    flags: list[Text] = []
    row: Count = 0


@final
class CollectiveRow(_Record, frozen=True, tag="collective"):
    """One collective.

    Attributes:
        collective: the ``workload`` of a collective scenario: op, bytes, gpus, dtype,
            implementation, launch.
        gpus_per_node: 0 = not known.
    """

    session: Text
    collective: Columns
    latency_us: Positive
    gpus_per_node: Count = 0
    at: Text = ""
    spread: Spread | None = None
    flags: list[Text] = []
    row: Count = 0


@final
class RunRow(_Record, frozen=True, tag="run"):
    """A whole model, engine or job.

    Attributes:
        scenario: as ``silicast run`` takes it; file names in it are relative to this file.
        metrics: measured, by their names of the answer ("e2e_ms", "ttft_p50_ms").
        spread: of each metric, where repeats say it.
    """

    session: Text
    scenario: Columns
    metrics: dict[str, Positive]
    spread: dict[str, Spread] = {}
    at: Text = ""
    flags: list[Text] = []
    name: Text = ""
    row: Count = 0


@final
class FailedRow(_Record, frozen=True, tag="failed"):
    """Something that was tried and gave no time; it is not tried again in this file.

    Attributes:
        what: the ``kernel`` table, collective or scenario.
        reason: "out_of_memory", "unsupported", "error", "timeout"; message: what was said.
    """

    session: Text
    what: Columns
    reason: Text
    message: Text = ""
    at: Text = ""


@final
class UnreadRow(_Record, frozen=True, tag="unread"):
    """Something that another tool measured and that could not be understood; listed, not dropped.

    Attributes:
        name: what the tool calls it; count: how often it ran; total_us: what it took in all.
        reason: why it is no kernel that could be predicted.
    """

    session: Text
    name: Text
    count: Count
    total_us: float
    reason: Text = ""
    row: Count = 0


Measurement = KernelRow | HostRow | CollectiveRow | RunRow
Record = Session | KernelRow | HostRow | CollectiveRow | RunRow | FailedRow | UnreadRow
