"""One inference of a whole network on the NPU of a board."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from silicast.accelerator.design.architecture_file import design_path
from silicast.composition.engines.engine import default_engine
from silicast.core.calibrated import Blended
from silicast.core.decode import read_toml
from silicast.core.errors import SilicastError, unsupported
from silicast.core.prediction import Domain, Quantity, Tier
from silicast.learning.board_networks import (
    SPACE,
    Board,
    NpuLatency,
    NpuNetwork,
    board_named,
    counted,
    latency_on,
    networks_named,
    npu_latencies,
    precision_named,
    runtime_named,
)
from silicast.scenario.answer import Answer, answer
from silicast.scenario.decode import Scenario
from silicast.scenario.resolving.calibrations import calibrations_of
from silicast.scenario.schema import EngineTable, PrecisionTable
from silicast.scenario.workloads import GraphWorkload, InferenceWorkload, Workload
from silicast.workload.front_ends import read_program, suffixes
from silicast.workload.front_ends.packages import is_packaged, packaged_graph
from silicast.workload.graphs.networks import network_file
from silicast.workload.graphs.op_graph import graph_of_file, read_graph_file
from silicast.workload.spaces.space import architecture, is_architecture

OP_GRAPH: Final = ".json"
RUNTIME = "tflite"
"""Where none is named."""
METRICS: Mapping[str, tuple[str, ...]] = {
    "graph": ("e2e_ms", "forward_ms"),
    "inference": ("prefill_ms", "total_ms"),
}
"""Task -> what the latency of one inference answers."""


def board_answer(scenario: Scenario) -> Answer:
    """The answer to one inference, of task ``graph`` or ``inference``; of a model of several
    components, one of each.

    Raises:
        SilicastError: training, a batch, a network whose work is not known, or a runtime or a
            precision that is not modelled; a tier that it has not.
    """
    if scenario.raw.tier == "scaled" or scenario.raw.tier in ON_NEST:
        raise unsupported(
            f"no {scenario.raw.tier} tier in task {scenario.raw.task} on the NPU of a board",
            "tier",
            "leave it out; task graph has the tiers analytic and bound of networks with a graph",
        )
    name = _one_inference(scenario.workload) or scenario.raw.model
    if not isinstance(name, str):
        raise SilicastError("expected the name of a network", field="model")
    board = board_named(str(scenario.raw.device))
    runtime = runtime_named(scenario.engine.name if scenario.engine else RUNTIME)
    precision = _precision(scenario.raw.precision)
    blend = _blend(scenario, board)
    parts = _networks(name, scenario.folder)
    published = npu_latencies()
    latencies = [latency_on(board, each, precision, runtime, published, blend) for each in parts]
    return _answer(
        board, parts, latencies, blend, f"{precision}, {runtime}", METRICS[scenario.raw.task]
    )


ON_NEST: Final = ("analytic", "bound")
"""Tiers of the loop nest of a board's NPU."""
FLOAT: Final = "fp16"
"""What NPUs multiply where the precision is float."""
RULES: Mapping[str, str] = {"qnn": "qnn", "tflite": "litert", "onnx": "onnxruntime"}
"""Runtime of boards -> the file of its rules, catalog/runtimes."""


def on_nest(scenario: Scenario) -> Scenario:
    """The scenario on the loop nest of the board's NPU: the design of its generation, with the
    operations, the bandwidth and the tightly coupled memory of the board.

    Raises:
        SilicastError: a network that is known by counts alone, without a graph; no such runtime.
    """
    name = _one_inference(scenario.workload) or scenario.raw.model
    board = board_named(str(scenario.raw.device))
    is_graph = isinstance(name, str) and (
        Path(name).suffix.casefold() in (OP_GRAPH, *suffixes())
        or network_file(name) is not None
        or is_architecture(name)
        or is_packaged(name)
    )
    if not is_graph or not isinstance(scenario.workload, GraphWorkload):
        raise unsupported(
            f"the {scenario.raw.tier} tier of an NPU needs the graph of a network",
            "tier",
            "name a file, a package's model (torchvision:resnet50) or resnet50 in task graph, or "
            "leave tier out",
        )
    assert isinstance(name, str)
    precision, stated = scenario.raw.precision, _precision(scenario.raw.precision)
    if network_file(name) is not None:
        precision = PrecisionTable(recipe=FLOAT if stated == "float" else stated)
    elif stated == "float":
        precision = None  # of programs: as they are
    raw = msgspec.structs.replace(
        scenario.raw,
        device=_nest(board),
        model=None,
        precision=precision,
        engine=_engine(scenario.engine),
    )
    workload = msgspec.structs.replace(scenario.workload, graph=name)
    return msgspec.structs.replace(scenario, raw=raw, workload=workload)


def _engine(stated: EngineTable | None) -> EngineTable:
    """The usual framework, whose rules and host time a runtime of NPUs replaces, with the runtime
    that is stated as an engine or as an option; qnn where none is.

    >>> _engine(EngineTable("tflite")).options, _engine(None).options
    ({'runtime': 'litert'}, {'runtime': 'qnn'})
    """
    if stated is not None and "runtime" in stated.options:
        return stated
    runtime = "qnn" if stated is None else runtime_named(stated.name)
    return EngineTable(default_engine("graph"), options={"runtime": RULES[runtime]})


def _nest(board: Board) -> dict[str, Any]:
    """The architecture file of a board's NPU."""
    design = f"hexagon-{board.npu.rpartition(' ')[2]}"
    table = read_toml(design_path(design))
    units = math.prod(size for level in table["level"] for size in level.get("mesh", ()))
    clock_hz = board.tops * 1e12 / (2.0 * units)
    bytes_per_s = board.memory_gb_per_s * 1e9
    ddr, tcm, system = table["level"][0], table["level"][1], table["system"]
    port = ddr["port"][0]
    design_bytes_per_s = system["memory_gb_per_s"] * 1e9
    reached = port["words_per_cycle"] * table["clock_mhz"] * 1e6 / design_bytes_per_s
    port["words_per_cycle"] = reached * bytes_per_s / clock_hz
    tcm["capacity_kib"] = board.tcm_mb * 1024
    system["memory_gb_per_s"] = board.memory_gb_per_s
    return {**table, "name": f"{board.name}, {design}", "clock_mhz": clock_hz / 1e6}


def _networks(name: str, folder: Path) -> tuple[NpuNetwork, ...]:
    """The networks of a name; of a file, or a package's model that is not listed, what its graph
    counts.
    """
    path = folder / name
    if path.suffix.casefold() == OP_GRAPH:
        return (counted(graph_of_file(read_graph_file(path), path.stem, {})),)
    if path.suffix.casefold() in suffixes():
        return (counted(read_program(path)),)
    if is_architecture(name):
        space, choices = architecture(name)
        return (counted(space.graph(choices)),)
    try:
        return networks_named(name)
    except SilicastError:
        if not is_packaged(name):
            raise
    return (counted(packaged_graph(name)[0]),)


def _precision(table: PrecisionTable | None) -> str:
    """The precision of a scenario's table; weights of 8 bits with activations of 16 are w8a16."""
    if table is None:
        return precision_named("")
    stated = precision_named(table.recipe or table.weights or "")
    if stated == "w8a8" and table.activations in ("int16", "a16"):
        return "w8a16"
    return stated


def _one_inference(work: Workload | None) -> str:
    """The program that a workload names; raises where it is more than one inference."""
    if isinstance(work, GraphWorkload):
        other = work.mode != "inference" or work.sizes or (work.seq_len or 1) != 1
        program = work.graph or ""
    else:
        assert isinstance(work, InferenceWorkload)
        other, program = work.output_len > 1, ""
    if other or (work.batch or 1) != 1:
        raise unsupported(
            "NPUs of boards are modelled for one inference of the network's usual input",
            "workload",
            "leave out training, batch, seq_len and sizes; output_len = 1",
        )
    return program


def _blend(scenario: Scenario, board: Board) -> Blended | None:
    """What a calibration says of the board."""
    if scenario.raw.tier not in ("auto", "calibrated"):
        return None
    for calibration in calibrations_of(scenario.raw.calibration, scenario.folder):
        if not calibration.is_of(board.name):
            raise SilicastError(
                f"measured on {calibration.scope.device}, used for {board.name}",
                field="calibration",
                hint="calibrate on the board itself, or leave the calibration out",
            )
        for blend in calibration.blends:
            if blend.space == SPACE:
                return blend
    return None


def _answer(
    board: Board,
    parts: tuple[NpuNetwork, ...],
    latencies: list[NpuLatency],
    blend: Blended | None,
    how: str,
    metrics: tuple[str, ...],
) -> Answer:
    """Latencies of all components as one answer."""
    total = math.fsum(each.ms for each in latencies)
    wide = max(each.log_sd for each in latencies)
    if blend is not None and all(each.seen_network for each in latencies):
        wide = blend.log_sd
    belief = Quantity.around(total, wide)
    unseen = [part for part, each in zip(parts, latencies, strict=True) if not each.seen_network]
    warnings = [
        f"{part.name} was not measured in this precision: predicted by {part.gmacs:g} G "
        f"multiplications, {part.mparams:g} M parameters and {part.operators:g} operators"
        for part in unseen
    ]
    if not all(each.seen_board for each in latencies):
        warnings.append(
            f"{board.name} was not measured: predicted by {board.tops:g} TOPS and "
            f"{board.memory_gb_per_s:g} GB/s, as published; ten networks of it and silicast "
            "calibrate narrow the interval"
        )
    if len(parts) > 1:
        warnings.append(f"the sum of {', '.join(part.component for part in parts)}, one run each")
    tier: Tier = "calibrated" if blend is not None else "cross-device"
    domain: Domain = "in" if not warnings else "out" if unseen else "near"
    return answer(
        metrics=dict.fromkeys(metrics, belief),
        bound={},
        tier=tier,
        domain=domain,
        warnings=warnings,
        why=_why(board, parts, latencies, total, how),
    )


def _why(
    board: Board, parts: tuple[NpuNetwork, ...], latencies: list[NpuLatency], total: float, how: str
) -> dict[str, Any]:
    return {
        "name": f"{board.npu}, {how}",
        "exposed_ms": total,
        "share": 1.0,
        "components": [
            {
                "name": part.name,
                "exposed_ms": each.ms,
                "share": round(each.ms / total, 6),
                "gmacs": part.gmacs,
            }
            for part, each in zip(parts, latencies, strict=True)
        ],
    }
