"""`silicast measure`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from silicast.app import status
from silicast.app.console import live_line, show, warn
from silicast.core.errors import SilicastError

if TYPE_CHECKING:
    from silicast.measurement.sweeps.measure import SweepRequest

Names = Annotated[str | None, Parameter(show_default=False)]


def measure(
    *,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    budget: str = "2m",
    device: str = "auto",
    families: Names = None,
    dtypes: Names = None,
    models: Annotated[bool, Parameter(negative=())] = False,
    scenario: Path | None = None,
    seed: int = 1,
    plan: Annotated[bool, Parameter(negative=())] = False,
    draft: Annotated[Path | None, Parameter(name="--draft-device")] = None,
) -> int:
    """Measure the machine at hand: as many kernels as fit into a time budget.

    Rows are written one by one; the same command continues an interrupted one. Needs PyTorch: pip
    install 'silicast[torch]'. Then calibrate with the measurements.

    Args:
        output: the file of measurements (JSON Lines), new or to be continued.
        budget: a duration: 2m for a first calibration, 10m or 30m for a more accurate one.
        device: cpu, cuda:0, or this machine's device as a catalog name or file; by default the
            first GPU, else the CPU.
        families: only these ops, separated by commas (gemm,attention_prefill).
        dtypes: only these formats (bf16,fp32); by default those that the device computes in.
        models: also measure whole models with random weights, in the last part of the time.
        scenario: only kernels that this scenario runs.
        seed: another number draws other kernels, to score a calibration on.
        plan: print what would be measured, and measure nothing.
        draft: write the device file of a machine that the catalog does not contain, and nothing
            else.
    """
    from silicast.measurement.design.candidates import KernelSelection
    from silicast.measurement.sweeps.measure import SweepRequest, draft_device

    if seed < 0:
        raise SilicastError(f"expected 0 or more, found {seed}", field="--seed")
    if draft is not None:
        drafted = draft_device(device, draft, warn)
        show(f"{draft}: {drafted.name}")
        show(f"silicast validate {draft}")
        return status.ANSWERED
    kernels = None
    if scenario is not None:
        from silicast.measurement.sweeps.scenario_kernels import kernels_of_scenario

        kernels = tuple(kernels_of_scenario(scenario))
    selection = KernelSelection(_names(families), _names(dtypes), kernels)
    request = SweepRequest(budget, device, selection, models, seed)
    if plan:
        return _plan(request)
    if output is None:
        raise SilicastError("is missing", field="--output", hint="-o measured.jsonl")
    return _measure(request, output)


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise SilicastError("expected names separated by commas", field="--families, --dtypes")
    return names


def _plan(request: SweepRequest) -> int:
    from silicast.measurement.sweeps.measure import plan_sweep
    from silicast.report.measurements.measuring import plan_parts

    show(*plan_parts(plan_sweep(request)))
    return status.ANSWERED


def _measure(request: SweepRequest, output: Path) -> int:
    from silicast.measurement.sweeps.measure import measure
    from silicast.report.measurements.measuring import result_parts

    with live_line() as line:
        result = measure(request, output, say=warn, watch=lambda progress: line(str(progress)))
    show(*result_parts(result, output))
    return status.INTERRUPTED if result.outcome.ended else status.ANSWERED
