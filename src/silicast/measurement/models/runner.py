"""Measures whole models: every case in every mode, a row each, within a time budget."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any, final

from silicast.core.errors import SilicastError
from silicast.measurement.conditions import watch_of
from silicast.measurement.lost import given_up
from silicast.measurement.machine import Machine
from silicast.measurement.models.between import between_operations
from silicast.measurement.models.case import LARGE, SMALL, Case, Place, cases
from silicast.measurement.models.modes import ENGINES, MODES, Mode, prepared, why_not
from silicast.measurement.models.repeats import repeated, spread_ms
from silicast.measurement.models.traced import traced
from silicast.measurement.records import Columns, FailedRow, HostRow, RunRow, Spread
from silicast.measurement.runtime import reason_of, runtime_of
from silicast.measurement.store import MeasurementFile
from silicast.measurement.timing import flags_of

SHORTEST_S, LONGEST_S = 0.5, 5.0
"""Seconds of repeats of one case in one mode."""

COMPILED: Mode = "compiled"
"""The mode that cannot be cut short: it is begun while there is time for another as long."""
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


def chosen(machine: Machine, names: Iterable[str] | None = None) -> list[Case]:
    """The cases of a machine: small ones on a CPU, large ones on a GPU.

    Args:
        names: of cases of any scale, or how they begin ("decoder"); None = all of the machine's.

    Raises:
        SilicastError: no case begins so.
    """
    every = cases()
    scale = SMALL if machine.kind == "cpu" else LARGE
    if names is None:
        return _in_turns([case for case in every.values() if case.scale == scale])
    found: dict[str, Case] = {}
    for name in names:
        begins = [case for case in every.values() if case.name.startswith(name)]
        of_scale = [case for case in begins if case.scale == scale or case.name == name]
        if not of_scale:
            raise SilicastError(
                f"no model is called {name[:80]!r}",
                kind="unknown_name",
                field="names",
                hint=f"known: {', '.join(every)}",
            )
        found |= {case.name: case for case in of_scale}
    return list(found.values())


def _in_turns(found: Sequence[Case]) -> list[Case]:
    """The first case of each model, then the second of each: little time sees all models."""
    seen: Counter[str] = Counter()
    turns: list[tuple[int, Case]] = []
    for case in found:
        model = case.name.partition("-")[0]
        turns.append((seen[model], case))
        seen[model] += 1
    return [case for _, case in sorted(turns, key=lambda each: each[0])]


def measure_models(
    machine: Machine,
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
        names: of cases (:func:`chosen`); modes: None = all that the machine has.
        budget_s: seconds, traces and compilation among them; what does not fit is skipped.
        dtype: of weights and inputs; "" = the machine's usual format.
        tell: is called with each row.

    Raises:
        SilicastError: PyTorch is missing, a name is unknown, or the file cannot be written.
    """
    from silicast.workload.front_ends.programs import require_torch

    require_torch()
    own = [each for each in MODES if each != "graph" or machine.kind == "cuda"]
    wanted = list(modes) if modes is not None else own
    plan = chosen(machine, names)
    run = _Run(machine, file, dtype or machine.dtypes[0], time.monotonic() + budget_s, tell)
    left = len(plan) * len(wanted)
    try:
        run.host()
        for mode in wanted:  # as MODES says, or as asked
            for case in plan:
                run.case(case, mode, left)
                left -= 1
    finally:
        run.watch.close()
    return run.rows


@final
class _Run:
    """One call of :func:`measure_models`.

    Attributes:
        rows: what came of it; longest_s: that a compiled case took.
        done: names of rows that the session holds; graphs: case -> its file.
    """

    def __init__(
        self, machine: Machine, file: MeasurementFile, dtype: str, end: float,
        tell: Callable[[Row], object],
    ) -> None:  # fmt: skip
        self.machine, self.file, self.dtype, self.end, self.tell = machine, file, dtype, end, tell
        self.runtime, self.watch = runtime_of(machine), watch_of(machine)
        self.rows: list[Row] = []
        self.longest_s = 0.0
        self.graphs: dict[str, str] = {}
        session, before = file.session.id, file.before
        self.done = {row.name for row in before.runs if row.session == session}
        self.done |= {
            _label(row.what)
            for row in given_up(row for row in before.failed if row.session == session)
            if row.what.get("task") == "graph"
        }  # fmt: skip
        self.host_known = any(
            row.session == session and row.quantity == "between" for row in before.hosts
        )

    def case(self, case: Case, mode: Mode, left: int) -> None:
        """One program in one mode.

        Args:
            left: programs and modes that are still to come, this one among them.
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
            scenario = self._scenario(self._graph(case), mode)
            program = case.program(Place(self.machine.torch_device, self.dtype))
            why = why_not(mode, self.machine, program)
            if why:
                self._say(Skipped(case.name, mode, why))
                return
            with self.runtime.ready():
                call = prepared(mode, program)
                wait = self.runtime.synchronize
                seconds = (self.end - time.monotonic()) / left
                with self.watch:
                    times = repeated(call, wait, min(max(seconds, SHORTEST_S), LONGEST_S))
        except Exception as error:  # PyTorch raises any; the sweep goes on
            self._failed(scenario, error)
            return
        finally:
            self.runtime.release()
            if mode == COMPILED:
                self.longest_s = max(self.longest_s, time.monotonic() - begun)
        spread = spread_ms(times)
        flags = [*flags_of(times, spread), *self.watch.read()[1]]
        row = RunRow(
            self.file.session.id,
            scenario,
            {"e2e_ms": float(f"{median(times) * MILLI:.6g}")},
            {"e2e_ms": spread},
            at=_now(),
            flags=list(dict.fromkeys(flags)),
            name=name,
        )
        self.file.append(row)
        self._say(row)

    def _graph(self, case: Case) -> str:
        """The op graph of a case, written once."""
        if case.name not in self.graphs:
            self.graphs[case.name] = traced(case, self.dtype, self.file.path)
        return self.graphs[case.name]

    def host(self) -> None:
        """On a CPU, what Python takes between two operations."""
        if self.machine.kind != "cpu" or self.host_known:
            return
        found = between_operations()
        per_us = Spread(found.p05_us, found.p95_us, found.repeats)
        states: Columns = {"operations": found.operations}
        self.file.append(
            HostRow(
                self.file.session.id, "between", found.between_us, "torch-eager",
                self.machine.torch, states, _now(), per_us,
            )
        )  # fmt: skip

    def _scenario(self, graph: str, mode: Mode) -> Columns:
        machine = self.machine
        device = machine.named or (machine.device.name if machine.device else "")
        found: dict[str, Any] = {
            "task": "graph", "engine": ENGINES[mode], "workload": {"graph": graph},
        }  # fmt: skip
        return {**found, "device": device} if device else found

    def _failed(self, scenario: Columns, error: Exception) -> None:
        reason, said = reason_of(error)
        row = FailedRow(self.file.session.id, scenario, reason, said[:MOST_SAID], _now())
        self.file.append(row)
        self._say(row)

    def _say(self, row: Row) -> None:
        self.rows.append(row)
        self.tell(row)


def _label(scenario: Columns) -> str:
    """The name of the row that a scenario would have had."""
    graph = str(dict(scenario.get("workload", {})).get("graph", ""))
    mode = next((m for m in MODES if ENGINES[m] == scenario.get("engine")), "")
    return f"{graph.rpartition('/')[2].removesuffix('.json')} {mode}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
