"""`silicast measure`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from silicast.app import status
from silicast.app.console import live_line, show, warn
from silicast.core.errors import SilicastError

if TYPE_CHECKING:
    from silicast.measurement.measure import Asked

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
    draft_device: Path | None = None,
) -> int:
    """Measure the machine at hand, as many kernels as fit into a time.

    Rows are written one by one; the same command goes on where it was ended or killed. Needs
    PyTorch: pip install 'silicast[torch]'. Then calibrate by what was measured.

    Args:
        output: the file of measurements (JSON Lines), new or to be continued.
        budget: a duration: 2m for a first calibration, 10m or 30m for a sharper one.
        device: cpu, cuda:0, or the catalog's name or the file of what this machine is; left out,
            the first GPU, else the CPU.
        families: only these ops, with commas between (gemm,attention_prefill).
        dtypes: only these formats (bf16,fp32); left out, those that the device computes in.
        models: measure whole models with random weights too, in the last part of the time.
        scenario: only kernels that this scenario runs.
        seed: another number measures other kernels, to score a calibration on.
        plan: print what would be measured, and measure nothing.
        draft_device: write the device file of a machine that the catalog does not know, and
            nothing else.
    """
    from silicast.measurement.measure import Asked, draft
    from silicast.measurement.prepared import Wanted

    if seed < 0:
        raise SilicastError(f"expected 0 or more, found {seed}", field="--seed")
    if draft_device is not None:
        drafted = draft(device, draft_device, warn)
        show(f"{draft_device}: {drafted.name}")
        show(f"silicast validate {draft_device}")
        return status.ANSWERED
    kernels = None
    if scenario is not None:
        from silicast.measurement.scenario_kernels import kernels_of_scenario

        kernels = tuple(kernels_of_scenario(scenario))
    wanted = Wanted(_names(families), _names(dtypes), kernels)
    asked = Asked(budget, device, wanted, models, seed)
    if plan:
        return _plan(asked)
    if output is None:
        raise SilicastError("is missing", field="--output", hint="-o measured.jsonl")
    return _measure(asked, output)


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if not found:
        raise SilicastError("expected names with commas between", field="--families, --dtypes")
    return found


def _plan(asked: Asked) -> int:
    from silicast.measurement.measure import plan
    from silicast.report.measuring import plan_parts

    show(*plan_parts(plan(asked)))
    return status.ANSWERED


def _measure(asked: Asked, output: Path) -> int:
    from silicast.measurement.measure import measure
    from silicast.report.measuring import result_parts

    with live_line() as line:
        result = measure(asked, output, say=warn, watch=lambda progress: line(str(progress)))
    show(*result_parts(result, output))
    return status.INTERRUPTED if result.outcome.ended else status.ANSWERED
