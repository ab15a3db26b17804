"""What a calibration holds beside kernels: host constants, collectives, whole models, its figures.

Everything here is what measurements came to, with the number of rows, what they cover and how far
they lie apart.
"""

from __future__ import annotations

from typing import Annotated, final

from msgspec import Meta

from silicast.core.decode import Strict

_LogRatio = Annotated[float, Meta(ge=-5, le=5)]
_LogSd = Annotated[float, Meta(ge=0, le=5)]
_Rows = Annotated[int, Meta(ge=1)]
_Microseconds = Annotated[float, Meta(gt=0, le=1e9)]
_Name = Annotated[str, Meta(max_length=200)]
_Percent = Annotated[float, Meta(ge=0, le=1e9)]


@final
class HostConstant(Strict, frozen=True):
    """Host time that was measured, of one engine or, with none named, of any.

    Attributes:
        constant: as engines name it ("dispatch_us", "step_us", "request_us", "token_us",
            "round_trip_us", ...), or what was measured: "graph_launch_us", and "launch_us",
            "sync_us" and "call_us", which are kept and predict nothing.
        value_us: on the host that was measured.
        log_sd: how sure it is; rows: measurements behind it.
        engine, version: whose it is, as far as that was said.
        states: what it was taken at, name -> least and most ({"batch": (1, 64)}).
        from_runs: it follows from runs of whole models, not from measuring it alone.
    """

    constant: _Name
    value_us: _Microseconds
    log_sd: _LogSd
    rows: _Rows
    engine: _Name = ""
    version: _Name = ""
    states: dict[str, tuple[float, float]] = {}
    from_runs: bool = False


@final
class CollectiveCurve(Strict, frozen=True):
    """One collective of one implementation among so many devices.

    Attributes:
        op, implementation, launch: as a collective scenario names them.
        gpus: participants; nodes: that they are spread over.
        sizes: bytes that were measured, ascending; log_ratios: of measured over predicted time at
            each; between them it is a straight line in the log of the size, beyond them it fades.
        log_sd: of rows left out in turn; rows: measurements behind it.
    """

    op: _Name
    implementation: _Name
    launch: _Name
    gpus: Annotated[int, Meta(ge=2)]
    nodes: Annotated[int, Meta(ge=1)]
    sizes: Annotated[list[Annotated[int, Meta(ge=1)]], Meta(min_length=1, max_length=4096)]
    log_ratios: list[_LogRatio]
    log_sd: _LogSd
    rows: _Rows

    def __post_init__(self) -> None:
        if len(self.sizes) != len(self.log_ratios):
            raise ValueError(f"{len(self.log_ratios)} ratios for {len(self.sizes)} sizes")
        if any(low >= high for low, high in zip(self.sizes, self.sizes[1:], strict=False)):
            raise ValueError("sizes do not ascend")


@final
class InModels(Strict, frozen=True):
    """How kernels of an engine take longer, or less long, in whole models than predicted.

    Attributes:
        engine, version: what ran the models; mode: how it launches ("eager", "compiled",
            "serving").
        log_ratio: on the time of every kernel, 0 = rows left out came no closer with one.
        log_sd: what composition leaves open of a whole model.
        rows: runs behind it; tasks: theirs; models: what ran, by name.
        seconds: shortest and longest run.
    """

    engine: _Name
    mode: _Name
    log_ratio: _LogRatio
    log_sd: _LogSd
    rows: _Rows
    seconds: tuple[float, float]
    version: _Name = ""
    tasks: list[_Name] = []
    models: list[_Name] = []


@final
class Figures(Strict, frozen=True):
    """How far predictions were from rows, percent.

    Attributes:
        mean, median, p90: of the absolute errors.
        bias: of predicted over measured, less one; None without predictions.
        coverage: rows inside the 90 % interval.
    """

    mean: _Percent
    median: _Percent
    p90: _Percent
    bias: float | None
    coverage: Annotated[float, Meta(ge=0, le=100)]


@final
class HeldOutRows(Strict, frozen=True):
    """Rows that were left out, before and after.

    Attributes:
        kind: "kernels", "collectives", "host" or "models"; name: family and format, op, engine.
        rows: how many were scored.
        how: "cross-validated" (each by a fit of others), "held out", or of whole models "chosen and
            cross-validated on the same rows".
        noise: how far repeats lie from the middle of a row, percent; None = not known.
    """

    kind: _Name
    name: _Name
    rows: _Rows
    how: _Name
    before: Figures
    after: Figures
    noise: _Percent | None = None


@final
class FittedCases(Strict, frozen=True):
    """What else ran than kernels, whose ops stand beside their offsets: content hashes, ascending.

    Nothing that ran among the rows of a calibration says how good it is.
    """

    collectives: list[_Name] = []
    runs: list[_Name] = []
    hosts: list[_Name] = []


@final
class Blended(Strict, frozen=True):
    """Whole networks of one space, from a few samples: a sum of what known devices take and of
    work by kinds of kernel, without negative weights.

    Attributes:
        space: of the networks.
        devices: known device -> its weight, ms over its median; kernels: kind -> ms over its usual
            amount. What weighs nothing is left out.
        slope: of the log of what the boards leave, over features of networks; [] = none.
        log_sd: of networks not sampled.
        rows: samples behind it; strays: those that the rest contradicts.
        least_ms, most_ms: of the samples: outside, the prediction reaches beyond what was seen.
    """

    space: _Name
    devices: dict[_Name, Annotated[float, Meta(ge=0, le=1e12)]]
    kernels: dict[_Name, Annotated[float, Meta(ge=0, le=1e12)]]
    log_sd: _LogSd
    rows: _Rows
    least_ms: Annotated[float, Meta(gt=0, le=1e12)]
    most_ms: Annotated[float, Meta(gt=0, le=1e12)]
    strays: list[str] = []
    slope: list[Annotated[float, Meta(ge=-10, le=10)]] = []
