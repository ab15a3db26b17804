"""`silicast diagnose`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from silicast.app import status
from silicast.app.arguments import described
from silicast.app.console import show, write_json
from silicast.app.flags import Json, kernel_scenario
from silicast.core.errors import SilicastError


@described()
def diagnose(
    op: str,
    /,
    *fields: str,
    device: str = "",
    measured_us: Annotated[str, Parameter(name=["--measured-us"])] = "",
    model: str = "",
    plot: Path | None = None,
    json: Json = False,
) -> int:
    """Find one reason for a slow kernel, and a faster configuration.

    As in `silicast diagnose moe tokens=64 experts=128 topk=8 hidden=2048 intermediate=768 part=w13
    --device H20 --measured-us 410,412,411`.

    Args:
        op: moe (part=w13 or part=w2) or gemm; or a file that `silicast import` or `silicast
            measure` wrote, whose kernels are all diagnosed.
        fields: its dimensions and properties as key=value; what ran as configuration.tile_m=64 ...
        measured_us: what was measured, repeats with commas between them.
        model: a model with experts: what its decode step gains if all layers are tuned so.
        plot: a drawing of the causes (.svg, .png, .pdf).
    """
    _check_asked(op, device, measured_us)
    if Path(op).is_file():
        return _files([Path(op), *(Path(name) for name in fields)], device, json=json)

    from silicast.app.number_lists import positive_numbers
    from silicast.report.tasks.tuning import diagnosis_report, model_line
    from silicast.scenario.answers.diagnose.answerer import diagnose as diagnosed
    from silicast.scenario.answers.diagnose.answerer import gain_in_model
    from silicast.tuning.diagnosis import diagnosis_data, saved_us

    kernel = kernel_scenario(op, list(fields), device)["workload"]["kernel"]
    result = diagnosed(kernel, device, positive_numbers(measured_us, "measured_us"))
    title = f"{op} {' '.join(fields)} on {device}"
    if plot:
        from silicast.report.drawing.tuning_plots import plot_causes

        plot_causes(result, title, plot)
    gain = None
    if model:
        gain = gain_in_model(model, device, int(kernel.get("tokens", 1)), saved_us(result))
    if json:
        write_json({**diagnosis_data(result), **({"model": gain} if gain else {})})
    else:
        show(diagnosis_report(title, result))
        if gain:
            show(model_line(gain))
    return status.ANSWERED


def _check_asked(op: str, device: str, measured_us: str) -> None:
    """The file is there, or a kernel has all that belongs to it."""
    if Path(op).is_file():
        return
    if len(Path(op).parts) != 1 or Path(op).suffix or Path(op).is_dir():  # no kernel is named so
        wrong = "is a folder, not a file" if Path(op).is_dir() else "cannot be read as a file"
        raise SilicastError(
            wrong, kind="io", file=op, hint="name a file of measurements, or a kernel: moe or gemm"
        )
    if not device:
        raise SilicastError("is missing", field="--device", hint="for example --device H20")
    if not measured_us:
        raise SilicastError(
            "is missing", field="--measured-us", hint="for example --measured-us 410.5,412"
        )


def _files(paths: list[Path], device: str, *, json: bool) -> int:
    """Diagnoses of all kernels of measurement files."""
    from silicast.measurement.trials.diagnosed import diagnose_files
    from silicast.report.tasks.tuning import rows_data, rows_report

    rows, notes = diagnose_files(paths, device)
    if json:
        write_json({"kernels": rows_data(rows), "notes": notes})
    else:
        show(rows_report(rows, notes))
    return status.ANSWERED if any(row.diagnosis for row in rows) else status.NOT_ANSWERED
