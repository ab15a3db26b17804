"""The scenario of `silicast recommend` and `silicast.recommend`."""

from __future__ import annotations

from typing import Any

from silicast.app.serve_flags import ServeFlags, serving_scenario
from silicast.app.slo_flag import EXAMPLE, FLAG
from silicast.core.errors import SilicastError


def recommend_scenario(
    serve_flags: ServeFlags, gpus: int, engines: list[str], dtypes: list[str]
) -> dict[str, Any]:
    """A scenario of task ``plan`` with a traffic.

    Args:
        serve_flags: what serves which requests, without engine and format.
        gpus: the most devices.
        engines, dtypes: to choose among; one is stated, () = the default.

    Raises:
        SilicastError: no objective, or flags that contradict each other.

    >>> asked = ServeFlags(model="Llama-3.1-8B", device="h100", slo="ttft_p99=1s", rate=20.0)
    >>> recommend_scenario(asked, 8, ["vllm", "sglang"], [])["workload"]["search"]
    {'vary': {'engine': ['vllm', 'sglang']}}
    """
    if serve_flags.slo is None:
        raise SilicastError("says what must be kept: give it", field=FLAG, hint=EXAMPLE)
    if gpus < 1:
        raise SilicastError(f"expected at least 1, found {gpus}", field="--gpus")
    if serve_flags.rate is None and serve_flags.trace is None:
        raise SilicastError(
            "nothing says how requests come", field="--rate", hint="give --rate or --trace"
        )
    scenario = serving_scenario(serve_flags, {})
    choices = {"engine": engines, "precision.recipe": dtypes}
    vary = {field: values for field, values in choices.items() if len(values) > 1}
    if len(engines) == 1:
        scenario["engine"] = engines[0]
    if len(dtypes) == 1:
        scenario["precision"] = {**scenario.get("precision", {}), "recipe": dtypes[0]}
    workload: dict[str, Any] = {"objective": "cost", "serving": scenario["workload"]}
    if vary:
        workload["search"] = {"vary": vary}
    cluster = {**scenario.get("cluster", {}), "gpus": gpus}
    return {**scenario, "task": "plan", "cluster": cluster, "workload": workload}


def names_of(text: str | None, field: str) -> list[str]:
    """Names with commas between them.

    Raises:
        SilicastError: there is a comma and no name, or one twice.
    """
    if text is None:
        return []
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise SilicastError(f"an empty name in {text!r}", field=field)
    if len(set(names)) < len(names):
        raise SilicastError(f"a name twice in {text!r}", field=field)
    return names
