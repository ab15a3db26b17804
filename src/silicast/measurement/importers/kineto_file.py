"""The JSON of PyTorch's profiler (Kineto), as far as it is read."""

from __future__ import annotations

from typing import Any, final

import msgspec


@final
class Args(msgspec.Struct, frozen=True):
    """What an event says besides its time; versions of PyTorch differ in what they write."""

    external_id: Any = msgspec.field(name="External id", default=None)
    external_id_before: Any = msgspec.field(name="external id", default=None)
    correlation: Any = None
    device: Any = None
    dims: Any = msgspec.field(name="Input Dims", default=None)
    types: Any = msgspec.field(name="Input type", default=None)
    values: Any = msgspec.field(name="Concrete Inputs", default=None)
    strides: Any = msgspec.field(name="Input Strides", default=None)
    collective: Any = msgspec.field(name="Collective name", default=None)
    elements_in: Any = msgspec.field(name="In msg nelems", default=None)
    elements_out: Any = msgspec.field(name="Out msg nelems", default=None)
    group_size: Any = msgspec.field(name="Group size", default=None)
    dtype: Any = None

    @property
    def operator(self) -> int:
        """Number of the operator that an event belongs to, 0 = none."""
        found = self.external_id if self.external_id is not None else self.external_id_before
        return found if isinstance(found, int) else 0


@final
class Event(msgspec.Struct, frozen=True):
    """One event; times in microseconds."""

    ph: str = ""
    cat: str = ""
    name: Any = ""
    ts: float | str = 0.0
    dur: float | str = 0.0
    pid: Any = None
    tid: Any = None
    args: Args | None = None


@final
class Trace(msgspec.Struct, frozen=True):
    """The file."""

    traceEvents: list[Event]  # noqa: N815 - the file's own name
    deviceProperties: list[dict[str, Any]] = []  # noqa: N815
    schemaVersion: Any = None  # noqa: N815
    host_name: str = ""
    traceName: str = ""  # noqa: N815
    cuda_runtime_version: Any = None
    cuda_driver_version: Any = None
