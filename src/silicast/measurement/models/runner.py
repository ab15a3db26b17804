"""Measures whole models: a row for each case and mode, within a time budget."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, final

from silicast.core.errors import unknown_name
from silicast.measurement.machine.conditions import watch_of
from silicast.measurement.machine.measured_machine import MeasuredMachine
from silicast.measurement.models.model_case import (
    ENGINES,
    LARGE,
    MODES,
    SMALL,
    Mode,
    ModelCase,
    Place,
    model_cases,
)
from silicast.measurement.models.python_overhead import python_overhead
from silicast.measurement.records.records import (
    Columns,
    FailedRow,
    HostRow,
    RepeatSpread,
    RunRow,
    utc_now,
)
from silicast.measurement.records.store import MeasurementFile
from silicast.measurement.sweeps.runtime import runtime_of
from silicast.measurement.sweeps.session import given_up, reason_of
from silicast.measurement.sweeps.timing import flags_of, spread_of
from silicast.workload.front_ends import graph_of
from silicast.workload.graphs.op_graph import write_op_graph

SHORTEST_S, LONGEST_S = 0.5, 5.0
"""Seconds of repeats of a case in a mode."""
FEWEST, MOST, WARM_UP = 3, 400, 2
"""Repeats, and calls before them."""
COMPILED: Mode = "compiled"
"""The mode that cannot be interrupted: it starts only if one as long as before fits."""
MILLI = 1e3
MOST_SAID = 2000


@final
@dataclass(frozen=True)
class Skipped:
    """A case that was not measured in a mode, and why."""

    name: str
    mode: Mode
    why: str


Row = RunRow | FailedRow | Skipped


def chosen(machine: MeasuredMachine, names: Iterable[str] | None = None) -> list[ModelCase]:
    """Cases of a machine: small ones on a CPU, large ones on a GPU.

    Args:
        names: of cases of any scale, or their beginnings ("decoder"); None = all of the machine's
            scale, the first case of each model before the second of any.

    Raises:
        SilicastError: no case has such a name.
    """
    every = model_cases()
    scale = SMALL if machine.kind == "cpu" else LARGE
    table: dict[str, ModelCase] = {}
    if names is None:
        count: Counter[str] = Counter()
        turns: list[tuple[int, ModelCase]] = []
        for case in (case for case in every.values() if case.scale == scale):
            model = case.name.partition("-")[0]
            turns.append((count[model], case))
            count[model] += 1
        return [case for _, case in sorted(turns, key=lambda each: each[0])]
    for name in names:
        of_scale = [
            case
            for case in every.values()
            if case.name == name or (case.name.startswith(name) and case.scale == scale)
        ]
        if not of_scale:
            raise unknown_name(
                f"no model is called {name[:80]!r}", "names", f"known: {', '.join(every)}"
            )
        table |= {case.name: case for case in of_scale}
    return list(table.values())


def measure_models(
    machine: MeasuredMachine,
    file: MeasurementFile,
    *,
    names: Sequence[str] | None = None,
    modes: Sequence[Mode] | None = None,
    budget_s: float = 120.0,
    dtype: str = "",
    tell: Callable[[Row], object] = lambda _: None,
) -> list[Row]:
    """Measures whole models with random weights, and appends a row for each case and mode.

    What the file's session holds already is not measured again. The op graph of each case is
    written beside the file, so that ``silicast run`` answers the row's scenario.

    Args:
        names: of cases (:func:`chosen`); modes: None = all of the machine.
        budget_s: including traces and compilation; what does not fit is skipped.
        dtype: of weights and inputs; "" = the machine's usual format.
        tell: is called with each row.

    Raises:
        SilicastError: PyTorch is missing, a name is unknown, or the file cannot be written.
    """
    from silicast.workload.front_ends.programs import require_torch

    require_torch()
    supported = [each for each in MODES if each != "graph" or machine.kind == "cuda"]
    wanted = list(modes) if modes is not None else supported
    plan = chosen(machine, names)
    run = _ModelRun(machine, file, dtype or machine.dtypes[0], time.monotonic() + budget_s, tell)
    left = len(plan) * len(wanted)
    try:
        run.host()
        for mode in wanted:
            for case in plan:
                run.case(case, mode, left)
                left -= 1
    finally:
        run.watch.close()
    return run.rows


@final
class _ModelRun:
    """One call of :func:`measure_models`.

    Attributes:
        rows: its result; longest_s: of a compiled case.
        done: names of rows that the session holds; graphs: case -> file of its op graph.
    """

    def __init__(
        self,
        machine: MeasuredMachine,
        file: MeasurementFile,
        dtype: str,
        end: float,
        tell: Callable[[Row], object],
    ) -> None:
        self.machine, self.file, self.dtype, self.end, self.tell = machine, file, dtype, end, tell
        self.runtime, self.watch = runtime_of(machine), watch_of(machine)
        self.session = file.session.id
        self.rows: list[Row] = []
        self.longest_s = 0.0
        self.graphs: dict[str, str] = {}
        before = file.before
        failed = given_up(row for row in before.failed if row.session == self.session)
        self.done = {row.name for row in before.runs if row.session == self.session}
        self.done |= {_label(row.what) for row in failed if row.what.get("task") == "graph"}

    def case(self, case: ModelCase, mode: Mode, left: int) -> None:
        """Measures one program in one mode.

        Args:
            left: programs and modes that remain, including this one.
        """
        name = f"{case.name}-{self.dtype} {mode}"
        if name in self.done:
            return
        begun = time.monotonic()
        if begun + (self.longest_s if mode == COMPILED else 0.0) > self.end:
            self._say(Skipped(case.name, mode, "the time budget is used up"))
            return
        scenario = self._scenario(f"{case.name}-{self.dtype}", mode)
        try:
            if case.name not in self.graphs:
                self.graphs[case.name] = write_graph(case, self.dtype, self.file.path)
            scenario = self._scenario(self.graphs[case.name], mode)
            program = case.program(Place(self.machine.torch_device, self.dtype))
            why = program.why_not(mode, self.machine)
            if why:
                self._say(Skipped(case.name, mode, why))
                return
            with self.runtime.ready():
                call = program.prepared(mode)
                seconds = (self.end - time.monotonic()) / left
                with self.watch:
                    times = repeated(
                        call, self.runtime.synchronize, min(max(seconds, SHORTEST_S), LONGEST_S)
                    )
        except Exception as error:  # PyTorch raises any; the sweep continues
            reason, message = reason_of(error)
            self._append(FailedRow(self.session, scenario, reason, message[:MOST_SAID], utc_now()))
            return
        finally:
            self.runtime.release()
            if mode == COMPILED:
                self.longest_s = max(self.longest_s, time.monotonic() - begun)
        spread = spread_ms(times)
        flags = dict.fromkeys([*flags_of(times, spread), *self.watch.read()[1]])
        e2e_ms = float(f"{median(times) * MILLI:.6g}")
        self._append(
            RunRow(
                self.session,
                scenario,
                {"e2e_ms": e2e_ms},
                {"e2e_ms": spread},
                utc_now(),
                list(flags),
                name,
            )
        )

    def host(self) -> None:
        """On a CPU, measures the time of Python between two operations."""
        hosts = self.file.before.hosts
        is_measured = any(
            row.session == self.session and row.quantity == "between" for row in hosts
        )
        if self.machine.kind != "cpu" or is_measured:
            return
        result = python_overhead()
        spread = RepeatSpread(result.p05_us, result.p95_us, result.repeats)
        states: Columns = {"operations": result.operations}
        self.file.append(
            HostRow(
                self.session,
                "between",
                result.between_us,
                "torch-eager",
                self.machine.torch,
                states,
                utc_now(),
                spread,
            )
        )

    def _scenario(self, graph: str, mode: Mode) -> Columns:
        machine = self.machine
        device = machine.named or (machine.device.name if machine.device else "")
        table: dict[str, Any] = {
            "task": "graph",
            "engine": ENGINES[mode],
            "workload": {"graph": graph},
        }
        return {**table, "device": device} if device else table

    def _append(self, row: RunRow | FailedRow) -> None:
        self.file.append(row)
        self._say(row)

    def _say(self, row: Row) -> None:
        self.rows.append(row)
        self.tell(row)


def _label(scenario: Columns) -> str:
    """Name of the row of a scenario."""
    graph = str(dict(scenario.get("workload", {})).get("graph", ""))
    mode = next((m for m in MODES if ENGINES[m] == scenario.get("engine")), "")
    return f"{graph.rpartition('/')[2].removesuffix('.json')} {mode}"


def repeated(
    call: Callable[[], object],
    wait: Callable[[], object],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Times of a call until ``seconds`` are over, at least three, in order.

    Args:
        wait: returns once the call's work is finished.
    """
    for _ in range(WARM_UP):
        call()
        wait()
    times: list[float] = []
    end = clock() + seconds
    while len(times) < FEWEST or (clock() < end and len(times) < MOST):
        start = clock()
        call()
        wait()
        times.append(clock() - start)
    return times


def spread_ms(times: Sequence[float]) -> RepeatSpread:
    """Spread of times in milliseconds.

    >>> spread_ms([0.001, 0.001, 0.002])
    RepeatSpread(p05=1.0, p95=1.9, repeats=3, drift=1.0)
    """
    result = spread_of(times)
    p05, p95 = (round(us / MILLI, 6) for us in (result.p05, result.p95))
    return RepeatSpread(p05, p95, result.repeats, result.drift)


def write_graph(case: ModelCase, dtype: str, measurements: Path) -> str:
    """Exports a program's op graph, from tensors without data, to a folder beside a file of
    measurements; returns its path relative to that file.

    Raises:
        SilicastError: it cannot be exported, or the folder cannot be written.
    """
    program = case.program(Place("meta", dtype))
    graph = graph_of(program.traced or program.module, program.args, name=case.name)
    folder = measurements.with_suffix(".graphs")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{case.name}-{dtype}.json"
    write_op_graph(graph, path)
    return f"{folder.name}/{path.name}"
