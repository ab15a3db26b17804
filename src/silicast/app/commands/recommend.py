"""`silicast recommend`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from silicast.app.arguments import described
from silicast.app.commands.deploy import targets_of
from silicast.app.console import warn
from silicast.app.flags import Calibrations, Count, Json, Strict
from silicast.app.predict import predicted, print_reply, with_calibrations
from silicast.app.price_flag import price_of, with_price_line
from silicast.app.recommending import names_of, recommend_scenario, varied_fields
from silicast.core.errors import SilicastError


@described("serve")
def recommend(
    *,
    model: str,
    device: str,
    gpus: int,
    slo: str | None = None,
    rate: float | None = None,
    trace: Path | None = None,
    input_len: int | None = None,
    output_len: int | None = None,
    range_ratio: float | None = None,
    engine: str | None = None,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    vary: Annotated[list[str] | None, Parameter(negative="")] = None,
    seed: int = 0,
    price: str | None = None,
    price_where: str | None = None,
    top: Count = 8,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    target: str | None = None,
    checkpoint: str | None = None,
    calibration: Calibrations = None,
    strict: Strict = False,
    json: Json = False,
) -> int:
    """Find the plan that serves a traffic with the fewest devices, and say how surely it does.

    Plans are tensor, pipeline and expert parallelism, groups of attention, replicas, and prefill
    apart from decode. All are judged in closed form, the best simulated.

    Args:
        gpus: the most devices to use.
        slo: what must be kept: ttft_p99=2s,tpot_p99=40ms.
        engine: one, or several to choose among: vllm,sglang; left out, the default engine.
        dtype: format of the matrix products, or several: bf16,fp8; left out, the checkpoint's.
        vary: a field of task serving and values to choose among, such as
            engine.options.max_num_seqs=64,256; give it once for each field.
        top: plans to show.
        output: a folder for the files that start the best plan, as `silicast deploy` writes them.
        target: of those files: shell, compose, kubernetes, kserve, dynamo, llm-d; several with
            commas; left out, shell.
        checkpoint: repository or path of the weights for them; left out, the name of the model.
    """
    arguments, varied = dict(locals()), varied_fields(vary or [])
    from silicast.report.tasks.recommendation import recommendation_report

    scenario = recommend_scenario(
        arguments, gpus, names_of(engine, "--engine"), names_of(dtype, "--dtype"), varied
    )
    scenario = with_calibrations(scenario, calibration)
    targets = targets_of(target)
    if output is None and (target is not None or checkpoint is not None):
        raise SilicastError("is of files: name a folder with -o", field="--target")
    reply = predicted(scenario)
    if output is not None and reply["ok"]:
        from silicast.report.deploy.written import write_deployment
        from silicast.scenario.answers.plan.serving_plans import LEAST_CONFIDENCE

        best = reply["why"]["recommendation"]["best"]
        files, remarks = write_deployment(best["scenario"], output, targets, checkpoint)
        if best["confidence"] < LEAST_CONFIDENCE:
            remarks.append("the files start the nearest plan, which does not keep the objective")
        for line in (*map(str, files), *(f"warning: {remark}" for remark in remarks)):
            warn(line)
    money = price_of(price, price_where, device)
    return print_reply(
        reply,
        lambda answer: with_price_line(recommendation_report(answer, top), money),
        json=json,
        strict=strict,
    )
