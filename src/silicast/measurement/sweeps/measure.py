"""Sweeps of the machine at hand: identifies it, measures it within a budget, sums up."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import final

from silicast.core.errors import SilicastError
from silicast.core.hashing import content_hash
from silicast.hardware.catalog import load_device_file
from silicast.hardware.device import Device
from silicast.measurement.design.candidates import SEED, KernelSelection, candidates_of
from silicast.measurement.design.design import MeasurementDesign
from silicast.measurement.machine.conditions import watch_of
from silicast.measurement.machine.device_draft import checked_by_measuring
from silicast.measurement.machine.identify import AUTO, IdentifiedMachine, draft_path, find_machine
from silicast.measurement.machine.measured_machine import MeasuredMachine
from silicast.measurement.records.records import (
    Columns,
    FailedRow,
    RunRow,
    Session,
    read_measurements,
    utc_now,
)
from silicast.measurement.records.store import MeasurementFile, check_output
from silicast.measurement.sweeps.budget import WEIGHTS, seconds_of
from silicast.measurement.sweeps.collectives import measure_collectives
from silicast.measurement.sweeps.host_costs import measure_hosts
from silicast.measurement.sweeps.session import (
    MODELS_SHARE,
    MeasuringSession,
    SessionProgress,
    SessionResult,
    Tell,
    Tools,
    new_session_id,
)
from silicast.measurement.sweeps.summary import Summary, family_of, predictions_of, summary_of
from silicast.measurement.sweeps.timing import as_timed, measure_kernel, usual_protocol
from silicast.runner.stop_signals import stop_signals

Say = Callable[[str], object]


@final
@dataclass(frozen=True)
class SweepRequest:
    """What the user asks for.

    Attributes:
        budget: a duration ("2m"); device: "auto", "cpu", "cuda:0", a name or a file.
        models: measure whole models too.
        seed: of the drawn kernels.
    """

    budget: str = "2m"
    device: str = AUTO
    selection: KernelSelection = KernelSelection()
    models: bool = False
    seed: int = SEED


@final
@dataclass(frozen=True)
class SweepResult:
    """Result of a sweep."""

    machine: MeasuredMachine
    outcome: SessionResult
    summary: Summary


@final
@dataclass(frozen=True)
class SweepPlan:
    """What a sweep would measure.

    Attributes:
        candidates: family -> number; chosen: family -> kernels, if they take as long as predicted.
        kernels_s, models_s: division of the budget.
    """

    machine: MeasuredMachine
    candidates: Counter[str]
    chosen: dict[str, list[Columns]]
    kernels_s: float
    models_s: float


def measure(
    request: SweepRequest,
    output: Path,
    *,
    say: Say,
    watch: Callable[[SessionProgress], None] = lambda _: None,
) -> SweepResult:
    """Measures the machine at hand into a file, continuing an existing one.

    Args:
        say: is called with what the user should know; watch: with the progress.

    Raises:
        SilicastError: no PyTorch, no such device, a family that cannot be measured, a file that
            cannot be written.
    """
    started_s = time.monotonic()
    budget_s = seconds_of(request.budget)
    check_output(output)
    if output.suffix == ".toml":
        raise SilicastError(
            "measurements are JSON Lines", file=str(output), hint=f"{output.stem}.jsonl"
        )
    result = find_machine(request.device)
    candidates = candidates_of(result.machine, request.selection, budget_s, request.seed)
    machine = with_device(result, output, say)
    for note in machine.notes:
        say(note)
    assert machine.device is not None
    design = MeasurementDesign(machine.device, candidates, request.seed, weights=WEIGHTS)
    with MeasurementFile.open(output, session_of(machine)) as file, stop_signals() as stop:
        for note in file.notes:
            say(note)
        if file.resumed:
            say(f"continues after {file.before.rows_of(file.session.id)} rows of this machine")
        conditions = watch_of(machine)
        try:
            tools = Tools(
                partial(measure_kernel, machine=machine, watch=conditions),
                design,
                hosts=lambda: measure_hosts(machine),
                collectives=lambda: measure_collectives(machine) if machine.count > 1 else (),
                models=partial(_measure_models, machine) if request.models else None,
                reference=reference_kernel(machine),
            )
            outcome = MeasuringSession(
                file, tools, budget_s, stop=stop, watch=watch, started_s=started_s
            ).run()
        finally:
            conditions.close()
        session = file.session
    summary = summary_of(read_measurements(output), session.id, session.device)
    return SweepResult(machine, outcome, summary)


def _measure_models(
    machine: MeasuredMachine, file: MeasurementFile, seconds: float, tell: Tell
) -> None:
    """Measures whole models; those that do not run on this machine give no row."""
    from silicast.measurement.models.runner import Skipped, measure_models

    def told(row: RunRow | FailedRow | Skipped) -> None:
        if not isinstance(row, Skipped):
            tell(row)

    measure_models(machine, file, budget_s=seconds, tell=told)


def plan_sweep(request: SweepRequest) -> SweepPlan:
    """What a sweep would measure; nothing is measured or written, and PyTorch is not needed.

    Raises:
        SilicastError: as :func:`measure`.
    """
    budget_s = seconds_of(request.budget)
    machine = find_machine(request.device, need_torch=False)
    device = machine.device
    candidates = candidates_of(machine.machine, request.selection, budget_s, request.seed)
    models_s = MODELS_SHARE * budget_s if request.models else 0.0
    kernels_s = budget_s - models_s
    named = machine.machine.named or (machine.draft.table if machine.draft else device.name)
    predictions = zip(candidates, predictions_of(candidates, named), strict=True)
    predicted = {_key(kernel): prediction for kernel, prediction in predictions}
    count = Counter(family_of(kernel) for kernel in candidates)
    chosen: dict[str, list[Columns]] = {name: [] for name in count}
    design = MeasurementDesign(
        device, candidates, request.seed, weights=WEIGHTS, budget_s=kernels_s
    )
    while (kernel := design.next()) is not None:
        chosen[family_of(kernel)].append(kernel)
        prediction = predicted[_key(kernel)]
        if prediction.answered:
            design.tell(kernel, prediction.estimate)
        else:
            design.failed(kernel)
    return SweepPlan(replace(machine.machine, device=device), count, chosen, kernels_s, models_s)


def _key(kernel: Columns) -> str:
    return content_hash(sorted((name, str(value)) for name, value in kernel.items()))


def draft_device(device: str, output: Path, say: Say) -> Device:
    """Writes only the device file of the machine at hand.

    Raises:
        SilicastError: the catalog contains the machine, or the file cannot be written.
    """
    machine = find_machine(device, need_torch=False)
    draft = machine.draft
    if draft is None:
        raise SilicastError(
            f"the catalog knows this machine: {machine.device.name}",
            field="--draft-device",
            hint=f"silicast devices show {machine.device.name!r}",
        )
    if machine.machine.torch:
        draft = checked_by_measuring(draft, machine.machine)
    else:
        say("PyTorch is not installed: the drafted rates were not checked by measuring")
    drafted = draft.device
    draft.save(output)
    return drafted


def with_device(identified_machine: IdentifiedMachine, output: Path, say: Say) -> MeasuredMachine:
    """The machine with a device for its predictions.

    If the catalog does not contain it, a device file is drafted beside the measurements, once; some
    seconds of copies and a product ensure that its bounds are not too low.

    Args:
        output: the file of measurements; say: is called with what was done.

    Raises:
        SilicastError: an existing draft describes another machine, or none can be written.
    """
    machine, draft = identified_machine.machine, identified_machine.draft
    if machine.device is not None:
        if not machine.named.endswith(".toml"):
            return machine
        # paths in a file of measurements start in its folder
        named = os.path.relpath(machine.named, output.parent)
        return replace(machine, named=Path(named).as_posix())
    path = draft_path(output)
    if path.exists():
        device = load_device_file(path)
        if device.cores != machine.cores:
            raise SilicastError(
                f"describes a device of {device.cores} cores, this machine has {machine.cores}",
                file=str(path),
                hint="measure into another file, or name the device with --device",
            )
        return replace(machine, device=device, named=path.name)
    assert draft is not None
    draft = checked_by_measuring(draft, machine)
    device = draft.device
    draft.save(path)
    say(
        f"the catalog does not know {machine.device_name or 'this machine'}: its device file was "
        f"drafted, {path} (numbers in doubt: {', '.join(device.unknowns)})"
    )
    return replace(machine, device=device, named=path.name)


def reference_kernel(machine: MeasuredMachine) -> Columns:
    """A product of some milliseconds that occupies every core."""
    side = 512 if machine.kind == "cpu" else 4096
    kernel: Columns = {"op": "gemm", "m": side, "n": side, "k": side, "dtype": machine.dtypes[0]}
    if machine.kind == "cpu":
        kernel["library"] = "torch"
    return as_timed(kernel, machine, usual_protocol(machine))


def session_of(machine: MeasuredMachine) -> Session:
    """A new session record of a machine."""
    return Session(
        id=new_session_id(),
        started=utc_now(),
        device=machine.named,
        device_reported=machine.device_name,
        host=machine.host,
        stack=dict(machine.stack),
        machine=dict(machine.facts),
        protocol=usual_protocol(machine),
        notes=list(machine.notes),
    )
