"""`silicast kernel`."""

from __future__ import annotations

from silicast.app.arguments import described
from silicast.app.flags import Calibrations, Json, Strict, kernel_scenario
from silicast.app.predict import predicted, print_reply, screen_of, with_calibrations


@described()
def kernel(
    op: str,
    /,
    *fields: str,
    device: str,
    calibration: Calibrations = None,
    strict: Strict = False,
    json: Json = False,
) -> int:
    """Predict one kernel, as in `silicast kernel gemm m=4096 n=4096 k=4096 --device h100`.

    Args:
        op: operation, such as gemm, attention_prefill, attention_decode or rmsnorm.
        fields: its dimensions and properties as key=value; lists as q_lens=512,1024.
    """
    scenario = with_calibrations(kernel_scenario(op, list(fields), device), calibration)
    reply = predicted(scenario)

    return print_reply(reply, screen_of(scenario), json=json, strict=strict)
