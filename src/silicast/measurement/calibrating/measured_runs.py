"""Runs of whole models and of servers: which can be right, and which metrics are fitted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from silicast.composition.engines.engine import Engine
from silicast.core.errors import SilicastError
from silicast.hardware.device import Device
from silicast.measurement.calibrating.calibrate_kernels import SCALE, WRONG_UNIT
from silicast.measurement.calibrating.scoring import scored
from silicast.measurement.records.cases import TIMES_OF_RUNS, TOTALS, Case, run_cases
from silicast.measurement.records.dataset import DatasetRow, RejectedRows
from silicast.measurement.records.records import RunRow
from silicast.scenario.decode import decode
from silicast.scenario.resolve import find_any_device
from silicast.scenario.resolving.chosen_engine import chosen_engine

SERVED = {
    "ttft_mean_ms": "ttft_p50_ms",
    "ttft_p99_ms": "",
    "tpot_mean_ms": "tpot_p50_ms",
    "e2e_mean_ms": "e2e_p50_ms",
}
"""Metrics of serving that are fitted -> what stands for one that was not measured.

Medians jump where prompts come in waves, and tails of TPOT and ITL depend on chunks of the stream.
"""
THROUGHPUT = "output_tokens_per_s"
"""Fitted where clients wait for answers and no time was measured; at a rate it says little."""
SCORED_ONLY = "rates, medians, ITL and tails of serving are scored, not fitted"


def checked_runs(
    rows: Sequence[DatasetRow[RunRow]], device: Device, named: str, rejected: RejectedRows
) -> tuple[dict[str, list[Case]], list[str]]:
    """Predicted times of runs by engine, and notes on unused times; incredible rows are added to
    ``rejected``.
    """
    cases: list[Case] = []
    unused: Counter[str] = Counter()
    for each in rows:
        try:
            every = run_cases(each, named)
            result = _fitted(every)
            other = (
                find_any_device(result[0].tree["device"], each.file.parent) if result else device
            )
        except SilicastError as error:
            rejected.add(f"are not understood: {error}", each.number, each.file)
            continue
        if other.name != device.name:
            rejected.add(f"are of another device ({other.name})", each.number, each.file)
            continue
        unused["no time of a step was measured"] += not result
        if result and is_served(result[0]):
            unused[SCORED_ONLY] += len(every) - len(result)
        cases += result
    cases_by_engine: dict[str, list[Case]] = {}
    for row in scored(cases):
        case = row.case
        if not row.answered:
            unused[row.reason] += 1
        elif not 1.0 / SCALE < case.measured / row.estimate < SCALE:
            rejected.add(WRONG_UNIT, case.number, case.file)
        else:
            cases_by_engine.setdefault(engine_of(case).name, []).append(case)
    notes = [
        f"{count} time{'' if count == 1 else 's'} of runs not used: {why}"
        for why, count in (+unused).items()
    ]
    return dict(sorted(cases_by_engine.items())), notes


def is_served(case: Case) -> bool:
    """Whether it is of requests that were served."""
    return case.tree.get("task") == "serving"


def _fitted(cases: Sequence[Case]) -> list[Case]:
    """Metrics of a run that are fitted."""
    if not any(map(is_served, cases)):
        return [case for case in cases if case.metric in (*TIMES_OF_RUNS, *TOTALS)]
    measured = {case.metric for case in cases}
    wanted = {name if name in measured else other for name, other in SERVED.items()}
    times = [case for case in cases if case.metric in wanted]
    waits = cases[0].tree["workload"]["arrival"]["kind"] == "closed"
    return times or [case for case in cases if waits and case.metric == THROUGHPUT]


def engine_of(case: Case) -> Engine:
    """The engine of a run."""
    scenario = decode(dict(case.tree), folder=case.folder)
    options = ("attention", "autocast")
    return chosen_engine(scenario, options)[0]
