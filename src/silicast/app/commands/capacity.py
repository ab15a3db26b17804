"""`silicast capacity`."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any

from cyclopts import Parameter

from silicast.app.arguments import described
from silicast.app.comparing import answered_for, devices_of, refuse_with_several
from silicast.app.flags import Calibrations, Degrees, Json, Strict, key_values
from silicast.app.predict import predicted, print_reply, screen_of, with_calibrations
from silicast.app.price_flag import price_of, price_words, with_line, with_price_line
from silicast.app.serve_flags import ServeFlags, serving_scenario
from silicast.app.slo_flag import EXAMPLE, FLAG
from silicast.core.errors import SilicastError

AUTOSCALE = "--autoscale"
PATTERN = {"kind": "poisson", "rate_per_s": 1.0}
"""Arrivals where the highest rate is asked for."""


@described()
def capacity(
    serve_flags: ServeFlags,
    degrees: Degrees | None = None,
    *,
    users: Annotated[bool, Parameter(negative="")] = False,
    max_gpus: int | None = None,
    autoscale: str | None = None,
    api_price: str | None = None,
    calibration: Calibrations = None,
    strict: Strict = False,
    json: Json = False,
) -> int:
    """Find the most load under an objective, or with --rate the fewest devices that carry it.

    --device takes several with commas between them: they are shown side by side, the best first.

    Args:
        users: the most clients that each wait for their answers, in place of the highest rate.
        max_gpus: devices to try at most.
        autoscale: replicas come and go with the requests of a --trace or --rate: by queue,
            utilisation, predicted, or all; and words such as headroom=0.3,disk_gb_per_s=2.
        api_price: what an API takes for a million tokens of prompts, outputs (0.15,0.6): from which
            load on servers at --price cost less.
    """
    plan, devices = (degrees or Degrees()).given, devices_of(serve_flags.device)
    serve_flags = replace(serve_flags, device=devices[0]) if len(devices) == 1 else serve_flags
    if autoscale is not None and api_price is not None:
        raise SilicastError("compares fleets that do not change", field="--api-price")
    prices = {}
    if len(devices) > 1:
        refuse_with_several({"--api-price": api_price, AUTOSCALE: autoscale})
        prices = price_words(serve_flags.price, serve_flags.price_where, devices)

    def of_device(name: str) -> dict[str, Any]:
        flags = serve_flags
        if len(devices) > 1:
            flags = replace(flags, device=name, price=prices.get(name), price_where=None)
        return with_calibrations(
            capacity_scenario(flags, plan, max_gpus, users=users, autoscale=autoscale), calibration
        )

    if len(devices) > 1:
        return answered_for(devices, of_device, "capacity", json=json, strict=strict)
    scenario = of_device(devices[0])
    reply = predicted(scenario)

    price = price_of(serve_flags.price, serve_flags.price_where, serve_flags.device)
    even = None
    if api_price is not None:
        from silicast.exploration.api_price import ApiPrice, break_even

        if price is None:
            raise SilicastError("is compared with servers that have a --price", field="--api-price")
        even = break_even(reply.get("metrics", {}), ApiPrice.parse(api_price), price)
        reply["why"]["break_even"] = asdict(even)
    return print_reply(
        reply,
        lambda answer: with_line(
            with_price_line(screen_of(scenario)(answer), price), even and even.words()
        ),
        json=json,
        strict=strict,
    )


def capacity_scenario(
    serve_flags: ServeFlags,
    parallel: dict[str, int],
    max_gpus: int | None = None,
    *,
    users: bool = False,
    autoscale: str | None = None,
) -> dict[str, Any]:
    """The scenario that the flags stand for.

    Raises:
        SilicastError: no objective, or flags that contradict each other.

    >>> asked = ServeFlags(model="Llama-3.1-8B", device="h100", slo="ttft_p99=1s", rate=20.0)
    >>> capacity_scenario(asked, {})["workload"]["objective"]
    'min_gpus'
    """
    if serve_flags.slo is None:
        raise SilicastError("says what counts as carried: give it", field=FLAG, hint=EXAMPLE)
    loaded = serve_flags.rate is not None or serve_flags.concurrency is not None
    if users and loaded:
        raise SilicastError("is searched for, so no load is given", field="--users")
    pattern = None if loaded or serve_flags.trace is not None else PATTERN
    scenario = serving_scenario(serve_flags, parallel, pattern)
    traffic = scenario["workload"]
    objective = "min_gpus" if loaded else "max_concurrency" if users else "max_rate"
    if autoscale is not None:
        if serve_flags.trace is None and serve_flags.rate is None:
            raise SilicastError("goes with --trace or --rate", field=AUTOSCALE)
        objective = "min_gpus"
    workload = {"objective": objective, "slo": traffic.pop("slo"), "traffic": traffic}
    if max_gpus is not None:
        workload["search"] = {"max_gpus": max_gpus}
    if autoscale is not None:
        workload["autoscale"] = autoscale_of(autoscale)
    return {**scenario, "task": "capacity", "workload": workload}


def autoscale_of(text: str) -> dict[str, Any]:
    """The ``autoscale`` table of a scenario: names of policies, or "all", and fields.

    Raises:
        SilicastError: a field that stands twice or has no value.

    >>> autoscale_of("queue,predicted,headroom=0.3")
    {'policy': ['queue', 'predicted'], 'headroom': 0.3}
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    names = [word for word in words if "=" not in word and word != "all"]
    fields = key_values([word for word in words if "=" in word], AUTOSCALE, "all,headroom=0.3")
    return ({"policy": names} if names else {}) | fields
