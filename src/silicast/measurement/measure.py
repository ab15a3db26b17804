"""``silicast measure`` without its command line: finds the machine, measures it, sums up."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from silicast.core.errors import SilicastError
from silicast.core.hashing import content_hash
from silicast.hardware.device import Device
from silicast.measurement.budget import WEIGHTS, seconds_of
from silicast.measurement.collectives import measure_collectives
from silicast.measurement.design import Design
from silicast.measurement.host_costs import measure_hosts
from silicast.measurement.identify import AUTO, Found, find_machine
from silicast.measurement.machine import Machine
from silicast.measurement.measured_rates import last_cache_bytes, measured_rates, with_rates
from silicast.measurement.prepared import (
    SEED,
    DesignChooser,
    KernelTimer,
    Wanted,
    candidates_of,
    reference_kernel,
    session_of,
    with_device,
)
from silicast.measurement.progress import Outcome, Progress
from silicast.measurement.records import Columns, FailedRow, RunRow
from silicast.measurement.session import MODELS_SHARE, Measuring, Tell, Tools
from silicast.measurement.stopping import stopping
from silicast.measurement.store import MeasurementFile, check_place, read_measurements
from silicast.measurement.summary import Summary, family_of, predictions_of, summary_of

Say = Callable[[str], object]


@final
@dataclass(frozen=True)
class Asked:
    """What the user asks for.

    Attributes:
        budget: a duration ("2m"); device: "auto", "cpu", "cuda:0", a name or a file.
        models: measure whole models too.
        seed: another one measures other kernels.
    """

    budget: str = "2m"
    device: str = AUTO
    wanted: Wanted = Wanted()
    models: bool = False
    seed: int = SEED


@final
@dataclass(frozen=True)
class Result:
    """What came of it."""

    machine: Machine
    outcome: Outcome
    summary: Summary


@final
@dataclass(frozen=True)
class PlannedFamily:
    """A family of a plan.

    Attributes:
        candidates: that there are; chosen: of them, if they take as long as predicted.
    """

    name: str
    candidates: int
    chosen: tuple[Columns, ...]


@final
@dataclass(frozen=True)
class Plan:
    """What a sweep would measure.

    Attributes:
        kernels_s, models_s: how the budget is divided.
    """

    machine: Machine
    families: tuple[PlannedFamily, ...]
    kernels_s: float
    models_s: float


def measure(
    asked: Asked, output: Path, *, say: Say, watch: Callable[[Progress], None] = lambda _: None
) -> Result:
    """Measures the machine at hand into a file, which is continued if it is there.

    Args:
        say: is told what the user should know; watch: how far it is.

    Raises:
        SilicastError: no PyTorch, no such device, a family that is not measured, a file that
            cannot be written.
    """
    started_s = time.monotonic()
    budget_s = seconds_of(asked.budget)
    _check_output(output)
    found = find_machine(asked.device)
    candidates = candidates_of(found.machine, asked.wanted, budget_s, asked.seed)
    machine = with_device(found, output, say)
    for note in machine.notes:
        say(note)
    device = _device_of(machine)
    with MeasurementFile.open(output, session_of(machine)) as file, stopping() as stop:
        for note in file.notes:
            say(note)
        if file.resumed:
            say(f"goes on with {file.before.rows_of(file.session.id)} rows of this machine")
        timer = KernelTimer(machine)
        try:
            tools = Tools(
                timer,
                DesignChooser(device, candidates, asked.seed),
                hosts=lambda: measure_hosts(machine),
                collectives=lambda: measure_collectives(machine) if machine.count > 1 else (),
                models=_models(machine) if asked.models else None,
                reference=reference_kernel(machine),
            )
            outcome = Measuring(
                file, tools, budget_s, stop=lambda: stop.asked, watch=watch, started_s=started_s
            ).run()
        finally:
            timer.close()
        session = file.session
    summary = summary_of(read_measurements(output), session.id, session.device)
    return Result(machine, outcome, summary)


def plan(asked: Asked) -> Plan:
    """What a sweep would measure; nothing is measured or written, and PyTorch is not needed.

    Raises:
        SilicastError: as :func:`measure`.
    """
    budget_s = seconds_of(asked.budget)
    found = find_machine(asked.device, need_torch=False)
    device = found.machine.device or _drafted(found)
    candidates = candidates_of(found.machine, asked.wanted, budget_s, asked.seed)
    models_s = MODELS_SHARE * budget_s if asked.models else 0.0
    kernels_s = budget_s - models_s
    answers = predictions_of(
        candidates, found.machine.named or (found.draft.table if found.draft else device.name)
    )
    times = {_key(kernel): answer for kernel, answer in zip(candidates, answers, strict=True)}
    all_of = Counter(family_of(kernel) for kernel in candidates)
    chosen: dict[str, list[Columns]] = {name: [] for name in all_of}
    design = Design(device, candidates, asked.seed, weights=WEIGHTS, budget_s=kernels_s)
    while (kernel := design.next()) is not None:
        answer = times[_key(kernel)]
        chosen[family_of(kernel)].append(kernel)
        if answer is None:
            design.failed(kernel)
        else:
            design.tell(kernel, answer.metrics["latency_us"].estimate)
    families = tuple(
        PlannedFamily(name, count, tuple(chosen[name])) for name, count in all_of.items()
    )
    return Plan(replace(found.machine, device=device), families, kernels_s, models_s)


def _key(kernel: Columns) -> str:
    return content_hash(sorted((name, str(value)) for name, value in kernel.items()))


def draft(device: str, output: Path, say: Say) -> Device:
    """Writes only the device file of the machine at hand.

    Raises:
        SilicastError: the catalog knows the machine, or the file cannot be written.
    """
    found = find_machine(device, need_torch=False)
    if found.draft is None:
        assert found.machine.device is not None
        raise SilicastError(
            f"the catalog knows this machine: {found.machine.device.name}",
            field="--draft-device",
            hint=f"silicast devices show {found.machine.device.name!r}",
        )
    made = found.draft
    if found.machine.torch:
        made = with_rates(made, measured_rates(found.machine, last_cache_bytes(made.device)))
    else:
        say("PyTorch is not installed: nothing was measured to check the drafted rates")
    drafted = made.device
    made.save(output)
    return drafted


def _drafted(found: Found) -> Device:
    assert found.draft is not None
    return found.draft.device


def _device_of(machine: Machine) -> Device:
    assert machine.device is not None
    return machine.device


def _check_output(output: Path) -> None:
    """Refuses what cannot be written to, before anything is measured."""
    check_place(output)
    if output.suffix == ".toml":
        raise SilicastError(
            "measurements are JSON Lines", file=str(output), hint=f"{output.stem}.jsonl"
        )


def _models(machine: Machine) -> Callable[[MeasurementFile, float, Tell], object]:
    """Whole models; what does not run on this machine is no row."""

    def run(file: MeasurementFile, seconds: float, tell: Tell) -> object:
        from silicast.measurement.models.runner import Row, measure_models

        def told(row: Row) -> None:
            if isinstance(row, (RunRow, FailedRow)):
                tell(row)

        return measure_models(machine, file, budget_s=seconds, tell=told)

    return run
