"""An engine with the host constants that a user measured in place of its file's.

====================== =====================================================================
measured               what takes it
====================== =====================================================================
``dispatch_us``        launches of an engine that launches kernels one by one
``backward_us``        the same in a backward pass; with ``dispatch_us`` alone it moves with that
``between_us``         Python between operations of a framework
``piece_us``           pieces of a pass whose graphs are piecewise
``step_us``, ``gap_us``, ``request_us``, ``token_us``, ``transport_us``   work between two steps
``front_us``, ``front_token_us``, ``back_us``   an engine that serves, before and after its steps
``round_trip_us``      answers that the host waits for
``graph_launch_us``    between two passes of a bare framework that replays a graph
``launch_us``          nothing: kernels that were measured hold it
====================== =====================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import msgspec

from silicast.composition.engines.engine import Engine, EngineHostTable, ServingTable
from silicast.core.calibrated import HostConstant
from silicast.hardware.host import Host

LAUNCHES = ("dispatch_us", "backward_us", "piece_us")
BETWEEN = "between_us"
WORK = ("step_us", "gap_us", "request_us", "token_us", "transport_us")
SERVING = ("front_us", "front_token_us", "back_us")
ROUND_TRIP, GRAPH_LAUNCH = "round_trip_us", "graph_launch_us"
APPLIED = (*LAUNCHES, BETWEEN, *WORK, *SERVING, ROUND_TRIP, GRAPH_LAUNCH)
"""Constants that a measured value of takes the place of."""


@final
@dataclass(frozen=True)
class WithMeasured:
    """An engine with measured constants.

    Attributes:
        used: the constants that were.
    """

    engine: Engine
    used: tuple[HostConstant, ...]


def with_measured_host(
    engine: Engine, constants: Sequence[HostConstant], measured_on: Host, stated: Host | None
) -> WithMeasured:
    """``engine`` with the constants that apply to it.

    Args:
        constants: those of the engine go before those of any; of equals the first counts.
        measured_on: the host that they were measured on.
        stated: the host that is asked for; None = the one that was measured.
    """
    factor = 1.0 if stated is None else measured_on.factor
    chosen: dict[str, HostConstant] = {}
    for name in (engine.name, ""):
        for each in constants:
            if each.engine == name and _takes(engine, each.constant):
                chosen.setdefault(each.constant, each)
    if not chosen:
        return WithMeasured(engine, ())
    values = {name: factor * each.value_us for name, each in chosen.items()}
    serving = {name: values.pop(name) for name in SERVING if name in values}
    table = msgspec.structs.replace(engine.host, **_values(engine.host, values))
    spreads = {name: each.log_sd for name, each in chosen.items()}
    if GRAPH_LAUNCH in spreads:
        spreads["step_us"] = spreads.pop(GRAPH_LAUNCH)
    table = msgspec.structs.replace(
        table,
        log_sd=_log_sd(table, WORK, spreads),
        # an engine has one of them on a device
        launch_log_sd=spreads.get(BETWEEN, _log_sd(table, LAUNCHES, spreads)),
    )
    server = engine.serving
    if server is not None and serving:
        server = msgspec.structs.replace(server, **serving)
        server = msgspec.structs.replace(server, log_sd=_log_sd(server, SERVING, spreads))
    used = tuple(chosen.values())
    return WithMeasured(msgspec.structs.replace(engine, host=table, serving=server), used)


def _takes(engine: Engine, constant: str) -> bool:
    """Whether an engine has a use for a constant."""
    if constant == GRAPH_LAUNCH:
        return engine.kind == "framework" and engine.launch.decode == "graph"
    if constant in SERVING:
        return engine.serving is not None
    return constant in APPLIED


def _values(host: EngineHostTable, measured: dict[str, float]) -> dict[str, float]:
    """Fields of the engine's table, on the reference host."""
    values = dict(measured)
    if GRAPH_LAUNCH in values:
        values["step_us"] = values.pop(GRAPH_LAUNCH)
    if "dispatch_us" in values and "backward_us" not in values and host.dispatch_us:
        values["backward_us"] = host.backward_us * values["dispatch_us"] / host.dispatch_us
    return values


def constant_us(engine: Engine, name: str) -> float:
    """A constant of an engine's host, microseconds; 0 where it has none.

    >>> from silicast.composition.engines.engine import find_engine
    >>> constant_us(find_engine("torch-eager"), "front_us")
    0.0
    """
    constant_us: float = getattr(engine.serving if name in SERVING else engine.host, name, 0.0)
    return constant_us


def _log_sd(
    host: EngineHostTable | ServingTable, names: Sequence[str], measured: dict[str, float]
) -> float:
    """Of the sum of constants that all err by their own: each by its share, the unmeasured by the
    engine's.
    """
    usual = host.log_sd
    if not any(name in measured for name in names):
        return usual
    every: dict[str, float] = {name: getattr(host, name) for name in names}
    weights = {name: value for name, value in every.items() if value > 0.0}
    if "backward_us" in weights and "backward_us" not in measured and "dispatch_us" in measured:
        weights.pop("backward_us")
    whole = sum(weights.values())
    if whole <= 0.0:
        return usual
    return sum(value * measured.get(name, usual) for name, value in weights.items()) / whole


def with_operator_us(engine: Engine, operator_us: float) -> Engine:
    """A framework whose operators start in a runtime of whole networks: its time between two of
    them in place of the framework's; 0 = the network is one call, and nothing of the host is left.
    """
    host, launch = engine.host, engine.launch
    host = msgspec.structs.replace(host, dispatch_us=operator_us, between_us=operator_us)
    if not operator_us:
        host = msgspec.structs.replace(host, step_us=0.0)
        launch = msgspec.structs.replace(launch, prefill="graph", decode="graph")
    return msgspec.structs.replace(engine, host=host, launch=launch)
