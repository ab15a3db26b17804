"""`silicast kernel`."""

from __future__ import annotations

from silicast.app.flags import Json, Strict, kernel_scenario
from silicast.app.predict import predicted, print_reply


def kernel(
    op: str, /, *fields: str, device: str, strict: Strict = False, json: Json = False
) -> int:
    """Predict one kernel, as in `silicast kernel gemm m=4096 n=4096 k=4096 --device h100`.

    Args:
        op: operation, such as gemm, attention_prefill, attention_decode or rmsnorm.
        fields: its dimensions and properties as key=value; lists as q_lens=512,1024.
        device: catalog name, or path to a device file.
        strict: refuse what lies outside measured ground instead of widening the interval.
        json: print the answer as JSON instead of a table.
    """
    scenario = kernel_scenario(op, list(fields), device)
    reply = predicted(scenario)

    from silicast.report.answers import answer_report

    return print_reply(
        reply, lambda answer: answer_report(scenario, answer), json=json, strict=strict
    )
