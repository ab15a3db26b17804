"""`silicast tune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from silicast.app import status
from silicast.app.arguments import described
from silicast.app.console import show, warn, write_json
from silicast.app.flags import Count, Json

if TYPE_CHECKING:
    from silicast.hardware.device import Device
    from silicast.tuning.plan import TuningPlan
    from silicast.workload.models.model import ModelConfig

tune = App(
    name="tune",
    help="Write the files of tuned configurations that engines read.",
    help_format="plaintext",
)

Output = Annotated[Path | None, Parameter(name=["--output", "-o"])]


@tune.command
@described()
def moe(
    *,
    model: str,
    device: str,
    engine: str = "vllm",
    dtype: str = "",
    tp: str = "1,2,4,8",
    ep: int = 1,
    tokens: str = "",
    existing: Path | None = None,
    triton: str = "",
    routing: str = "balanced",
    measure: Annotated[bool, Parameter(negative="")] = False,
    trials: int = 10,
    top: Count = 1,
    plot: Path | None = None,
    output: Output = None,
    json: Json = False,
) -> int:
    """Configurations of fused experts in Triton.

    Args:
        engine: vllm or sglang.
        dtype: format of the experts; left out, the checkpoint's.
        tp: tensor-parallel degrees, one file each.
        tokens: numbers of tokens, as 1,64,4096; left out, those that tuners use.
        existing: a file of the engine; says what its entries leave on the table.
        triton: version of Triton that the files are for.
        routing: how tokens spread over a rank's experts: balanced (what tuners time), uniform,
            power_law_1.2, ..., or one share an expert, as 3,1,1,1.
        measure: time the best candidates on the GPU at hand, and write the fastest.
        trials: candidates to time for each number of tokens.
        top: the best of the ranking to show for each number of tokens.
        plot: a drawing of the first file's entries (.svg, .png, .pdf).
        output: folder to write the files into; left out, they are only shown.
    """
    from silicast.app.number_lists import name_or_shares, whole_numbers
    from silicast.measurement.trials.tuning_trials import measured_plan
    from silicast.tuning.plan import tune_experts

    plan = tune_experts(
        *_resolved(model, device),
        engine,
        dtype=dtype,
        tp=whole_numbers(tp, "tp"),
        ep=ep,
        tokens=whole_numbers(tokens, "tokens"),
        existing=existing,
        compiler=triton,
        routing=name_or_shares(routing, "routing"),
        top=top,
    )
    if measure:
        plan = measured_plan(plan, trials, output or Path())
    if plot:
        from silicast.report.drawing.tuning_plots import plot_gains

        plot_gains(plan, plot)
    return _answered(plan, output, as_json=json)


@tune.command
@described()
def gemm(
    *,
    model: str,
    device: str,
    engine: str = "vllm",
    dtype: str = "fp8_block",
    tp: str = "1",
    tokens: str = "",
    existing: Path | None = None,
    top: Count = 1,
    output: Output = None,
    json: Json = False,
) -> int:
    """Configurations of a model's plain products with scaled blocks in Triton.

    Args:
        engine: vllm or sglang.
        dtype: format of the products.
        tp: tensor-parallel degrees.
        tokens: numbers of tokens, as 1,64,4096; left out, those that tuners use.
        existing: a file of the engine; says what its entries leave on the table.
        top: the best of the ranking to show for each number of tokens.
        output: folder to write the files into; left out, they are only shown.
    """
    from silicast.app.number_lists import whole_numbers
    from silicast.tuning.plan import tune_products

    plan = tune_products(
        *_resolved(model, device),
        engine,
        dtype=dtype,
        tp=whole_numbers(tp, "tp"),
        tokens=whole_numbers(tokens, "tokens"),
        existing=existing,
        top=top,
    )
    return _answered(plan, output, as_json=json)


@tune.command
@described()
def sparsity(
    *, model: str, device: str, tokens: int = 4096, dtype: str = "", json: Json = False
) -> int:
    """Which products of a model gain by 2:4 sparse weights.

    Args:
        tokens: new tokens of a pass.
        dtype: format of the products; left out, the checkpoint's.
    """
    from dataclasses import asdict

    from silicast.report.tasks.tuning import sparse_report
    from silicast.tuning.layers import sparse_layers

    rows = sparse_layers(*_resolved(model, device), tokens, dtype)
    if json:
        write_json([{**asdict(row), "saved_pct": row.saved_pct, "pays": row.pays} for row in rows])
    else:
        show(sparse_report(f"{model} on {device}, {tokens} tokens, 2:4 sparse weights", rows))
    return status.ANSWERED


def _answered(plan: TuningPlan, output: Path | None, *, as_json: bool) -> int:
    """Writes a plan's files where a folder is given, and shows the plan."""
    from silicast.report.tasks.tuning import plan_report
    from silicast.tuning.plan import plan_data

    written = plan.write(output) if output else []
    if as_json:
        write_json({**plan_data(plan), "written": [str(path) for path in written]})
        return status.ANSWERED
    show(plan_report(plan))
    for path in written:
        warn(f"wrote {path}")
    return status.ANSWERED


def _resolved(model: str, device: str) -> tuple[ModelConfig, Device]:
    """A model and a device by names or paths."""
    from silicast.scenario.resolve import find_any_device, find_any_model

    return find_any_model(model, Path()), find_any_device(device, Path())
