"""The scenario of `silicast recommend` and `silicast.recommend`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from silicast.app.flags import flags_of
from silicast.app.serve_flags import ServeFlags, serving_scenario
from silicast.app.slo_flag import EXAMPLE, FLAG
from silicast.core.errors import SilicastError
from silicast.core.plain_data import value_of_word

VARY = "--vary"


def recommend_scenario(
    arguments: Mapping[str, Any],
    gpus: int,
    engines: list[str],
    dtypes: list[str],
    varied: Mapping[str, Sequence[Any]] | None = None,
) -> dict[str, Any]:
    """A scenario of task ``plan`` with a traffic.

    Args:
        arguments: what serves which requests, by name; engine and format are not read.
        gpus: the most devices.
        engines, dtypes: to choose among; one is stated, () = the default.
        varied: field of a scenario of task serving -> its values to choose among.

    Raises:
        SilicastError: no objective, or flags that contradict each other.

    >>> asked = {"model": "Llama-3.1-8B", "device": "h100", "slo": "ttft_p99=1s", "rate": 20.0}
    >>> recommend_scenario(asked, 8, ["vllm", "sglang"], [])["workload"]["search"]
    {'vary': {'engine.name': ['vllm', 'sglang']}}
    """
    serve_flags = flags_of(ServeFlags, {**arguments, "engine": None, "dtype": None})
    if serve_flags.slo is None:
        raise SilicastError("says what must be kept: give it", field=FLAG, hint=EXAMPLE)
    if gpus < 1:
        raise SilicastError(f"expected at least 1, found {gpus}", field="--gpus")
    if serve_flags.rate is None and serve_flags.trace is None:
        raise SilicastError(
            "nothing says how requests come", field="--rate", hint="give --rate or --trace"
        )
    scenario = serving_scenario(serve_flags, {})
    choices = {"engine.name": engines, "precision.recipe": dtypes}
    vary: dict[str, Any] = {field: each for field, each in choices.items() if len(each) > 1}
    for field, values in (varied or {}).items():
        if field in vary:
            raise SilicastError(f"{field} is varied by a flag of its own too", field=VARY)
        vary[field] = list(values)
    if len(engines) == 1:
        scenario["engine"] = engines[0]
    if len(dtypes) == 1:
        scenario["precision"] = {**scenario.get("precision", {}), "recipe": dtypes[0]}
    workload: dict[str, Any] = {"objective": "cost", "serving": scenario["workload"]}
    if vary:
        workload["search"] = {"vary": vary}
    cluster = {**scenario.get("cluster", {}), "gpus": gpus}
    return {**scenario, "task": "plan", "cluster": cluster, "workload": workload}


def varied_fields(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Fields and the values to choose among, as the command line states them.

    Raises:
        SilicastError: no field, no value, or one twice.

    >>> varied_fields(["engine.options.max_num_seqs=64,256", "engine.options.overlap=true,false"])
    {'engine.options.max_num_seqs': [64, 256], 'engine.options.overlap': [True, False]}
    """
    fields: dict[str, list[Any]] = {}
    for text in texts:
        field, equals, words = text.partition("=")
        if not field or not equals:
            hint = "for example engine.options.max_num_seqs=64,256"
            raise SilicastError(f"expected FIELD=VALUES, found {text!r:.60}", field=VARY, hint=hint)
        if field in fields:
            raise SilicastError(f"{field} is given twice", field=VARY)
        if not words.strip():
            hint = f"for example {field}=64,256"
            raise SilicastError(f"{field} has no values", field=VARY, hint=hint)
        fields[field] = [value_of_word(word) for word in names_of(words, VARY)]
    return fields


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
