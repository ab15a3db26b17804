"""What a call of ``silicast measure`` is going to measure, on which machine, into which session."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import load_device_file
from silicast.hardware.device import Device
from silicast.measurement.benches import BENCHES, Bench
from silicast.measurement.budget import WEIGHTS
from silicast.measurement.conditions import Watch, watch_of
from silicast.measurement.design import Design, candidates_from
from silicast.measurement.identify import Found, draft_beside
from silicast.measurement.machine import Machine
from silicast.measurement.measured_rates import last_cache_bytes, measured_rates, with_rates
from silicast.measurement.records import Columns, FailedRow, KernelRow, Session
from silicast.measurement.session import new_id, now
from silicast.measurement.timing import as_timed, measure_kernel, usual_protocol
from silicast.scenario.strict import near

CANDIDATES, MOST_CANDIDATES = 400, 4000
"""Of each op, among which the design chooses: at least and at most."""
CHOICE = 2.0
"""Candidates for every kernel that there is time for."""
QUICK_S = 0.15
"""What measuring a kernel takes where they are quick."""
SEED = 1
"""Of the candidates: a file that is continued is offered the same."""


@final
@dataclass(frozen=True)
class Wanted:
    """What of a machine is to be measured.

    Attributes:
        families: ops; None = all that there are benches for.
        dtypes: formats; None = those that the machine computes in.
        kernels: just these, instead of candidates.
    """

    families: tuple[str, ...] | None = None
    dtypes: tuple[str, ...] | None = None
    kernels: tuple[Columns, ...] | None = None


def with_device(found: Found, output: Path, say: Callable[[str], object]) -> Machine:
    """The machine with a device to predict it by.

    What the catalog does not know gets a device file beside the measurements, once; some seconds
    of copies and a product make sure that it bounds nothing too low.

    Args:
        output: the file of measurements; say: is told what was done.

    Raises:
        SilicastError: the file that is there describes another machine, or none can be written.
    """
    machine, draft = found.machine, found.draft
    if machine.device is not None:
        if not machine.named.endswith(".toml"):
            return machine
        # paths in a file of measurements start in its folder
        named = os.path.relpath(machine.named, output.parent)
        return replace(machine, named=Path(named).as_posix())
    path = draft_beside(output)
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
    rates = measured_rates(machine, last_cache_bytes(draft.device))
    draft = with_rates(draft, rates)
    device = draft.device
    draft.save(path)
    say(
        f"the catalog does not know {machine.device_name or 'this machine'}: its device file was "
        f"drafted, {path} (numbers in doubt: {', '.join(device.unknowns)})"
    )
    return replace(machine, device=device, named=path.name)


def candidates_of(
    machine: Machine, wanted: Wanted, budget_s: float = 0.0, seed: int = SEED
) -> list[Columns]:
    """Kernels that a sweep of a machine may choose from, with launch and cache as they are timed.

    Args:
        budget_s: of the sweep; a long one chooses from more.
        seed: another one draws other kernels.

    Raises:
        SilicastError: a family or format that is not measured here.
    """
    protocol = usual_protocol(machine)
    benches = _benches(wanted.families)
    if wanted.kernels is not None:
        return _those(wanted.kernels, machine, benches)
    _check_dtypes(machine, benches, wanted.dtypes)
    found: list[Columns] = []
    total = sum(WEIGHTS.get(op, 1.0) for op in benches)
    for op, bench in benches.items():
        share = WEIGHTS.get(op, 1.0) / total
        count = round(CHOICE * budget_s / QUICK_S * share)
        ranges = bench.ranges(machine)
        if wanted.dtypes is not None:
            kept = [dtype for dtype in ranges.choices.get("dtype", ()) if dtype in wanted.dtypes]
            if not kept:
                continue
            ranges = replace(ranges, choices={**ranges.choices, "dtype": kept})
        kernels = candidates_from(ranges, min(max(count, CANDIDATES), MOST_CANDIDATES), seed)
        found += [as_timed(kernel, machine, protocol) for kernel in kernels]
    return found


def _those(
    kernels: tuple[Columns, ...], machine: Machine, benches: Mapping[str, Bench]
) -> list[Columns]:
    """Kernels that were named, as far as there are benches for them.

    Raises:
        SilicastError: there is none for any of them.
    """
    protocol = usual_protocol(machine)
    found = [as_timed(kernel, machine, protocol) for kernel in kernels if kernel["op"] in benches]
    if not found:
        ops = ", ".join(sorted({str(kernel["op"]) for kernel in kernels})) or "none"
        raise SilicastError(
            f"none of the kernels that are asked for is measured here: {ops}",
            kind="unsupported",
            field="--scenario",
            hint=f"measured are {', '.join(benches)}",
        )
    return found


def _benches(families: tuple[str, ...] | None) -> Mapping[str, Bench]:
    for name in families or ():
        if name not in BENCHES:
            raise SilicastError(
                f"{name[:60]!r} is not measured here",
                kind="unknown_name",
                field="--families",
                hint=near(name, BENCHES),
            )
    return {op: bench for op, bench in BENCHES.items() if families is None or op in families}


def _check_dtypes(
    machine: Machine, benches: Mapping[str, Bench], dtypes: tuple[str, ...] | None
) -> None:
    known = {
        str(dtype)
        for bench in benches.values()
        for dtype in bench.ranges(machine).choices.get("dtype", ())
    }
    for dtype in dtypes or ():
        if dtype not in known:
            raise SilicastError(
                f"{dtype[:40]!r} is not measured on this machine",
                field="--dtypes",
                hint=f"one of {', '.join(sorted(known))}",
            )


def reference_kernel(machine: Machine) -> Columns:
    """A product that keeps every core busy and is over in some milliseconds."""
    side = 512 if machine.kind == "cpu" else 4096
    kernel: Columns = {"op": "gemm", "m": side, "n": side, "k": side, "dtype": machine.dtypes[0]}
    if machine.kind == "cpu":
        kernel["library"] = "torch"
    return as_timed(kernel, machine, usual_protocol(machine))


def session_of(machine: Machine) -> Session:
    """The record that a file has of a machine."""
    return Session(
        id=new_id(),
        started=now(),
        device=machine.named,
        device_reported=machine.device_name,
        host=machine.host,
        stack=dict(machine.stack),
        machine=dict(machine.facts),
        protocol=usual_protocol(machine),
        notes=list(machine.notes),
    )


@final
class DesignChooser:
    """Asks the design for kernels that fit into the time that is left.

    Args:
        device: that is measured; candidates: that there are; seed: of what is drawn at random.
    """

    def __init__(self, device: Device, candidates: Sequence[Columns], seed: int = SEED) -> None:
        self._design = Design(device, candidates, seed, weights=WEIGHTS)

    @property
    def rows(self) -> dict[str, int]:
        """Family and format -> rows so far."""
        return self._design.rows

    def next(self, left_s: float) -> Columns | None:
        """See :class:`silicast.measurement.session.Chooser`."""
        self._design.left_s = left_s
        return self._design.next()

    def tell(self, kernel: Columns, latency_us: float) -> None:
        """See :class:`silicast.measurement.session.Chooser`."""
        self._design.tell(kernel, latency_us)

    def failed(self, kernel: Columns, reason: str) -> None:
        """See :class:`silicast.measurement.session.Chooser`."""
        self._design.failed(kernel, reason)


@final
class KernelTimer:
    """Times kernels of a machine while its state is watched; closed in the end."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._watch: Watch = watch_of(machine)

    def __call__(self, kernel: Columns) -> KernelRow | FailedRow:
        """One kernel."""
        return measure_kernel(kernel, self._machine, watch=self._watch)

    def close(self) -> None:
        """Ends what watches the machine."""
        self._watch.close()
