"""`silicast infer`."""

from __future__ import annotations

from silicast.app.flags import Degrees, Deployment, Json, inference_scenario
from silicast.app.predict import predicted, print_reply


def infer(deployment: Deployment, degrees: Degrees | None = None, *, json: Json = False) -> int:
    """Predict one static batch of a model: prefill, each further token, total and memory.

    Args:
        json: print the answer as JSON instead of a table.
    """
    scenario = inference_scenario(deployment, (degrees or Degrees()).given)
    reply = predicted(scenario)

    from silicast.report.answers import answer_report

    return print_reply(reply, lambda answer: answer_report(scenario, answer), json=json)
