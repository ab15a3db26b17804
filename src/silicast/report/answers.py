"""Answers as text: a headline, one table of metrics, what bounds them, what to know."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.core.metrics import metric_of, words_and_unit
from silicast.kernels.limits import NO_BOUND
from silicast.report.drawing.numbers import Shown, percent, rounded
from silicast.report.drawing.tables import listing
from silicast.report.reasons.causes import uncertainty_line, uncertainty_table
from silicast.report.reasons.why import (
    FAR_FROM_BOUND,
    also_words,
    bound_words,
    cause_of,
    ceiling,
    find_part,
    has_parts,
    verdict,
    waits_table,
    why_table,
)
from silicast.report.tasks.sequences import counts_sequences, without_tokens
from silicast.scenario.reading.usual_lengths import generates

Answer = Mapping[str, Any]
"""An answer or refusal as plain tables, as ``silicast batch`` writes it."""

TIER_WORDS = {
    "bound": "physical limit only",
    "analytic": "analytic model, constants per architecture",
    "cross-device": "corrected by measured kernels of its architecture",
    "scaled": "measured on another device of yours",
    "calibrated": "measured on this device",
}
DOMAIN_WORDS = {
    "in": "inside measured ground",
    "near": "near measured ground",
    "out": "outside measured ground",
}


WORTH_SAYING = 0.15
"""Of the cores' time, how much must be idle in a last round."""


def title(scenario: Mapping[str, Any]) -> str:
    """One line that says what was asked.

    >>> title({"task": "inference", "model": "Qwen3-8B", "device": "h100", "parallel": {"tp": 2},
    ...        "workload": {"batch": 8, "input_len": 1024, "output_len": 128}})
    'Qwen3-8B on h100, tp 2, batch 8, 1,024 tokens in, 128 out'
    """
    subject = _name(scenario.get("model")) or str(scenario.get("task", "scenario"))
    workload = scenario.get("workload")
    kernel = scenario.get("kernel")
    if isinstance(workload, Mapping):
        kernel = workload.get("kernel", kernel)
        subject = str(workload.get("graph") or subject)
    if isinstance(kernel, Mapping):
        fields = [f"{key}={_plain(value)}" for key, value in kernel.items() if key != "op"]
        subject = " ".join((str(kernel.get("op", "kernel")), *fields))
    words = [f"{subject} on {_name(scenario.get('device'))}" if "device" in scenario else subject]
    parallel = scenario.get("parallel")
    if isinstance(parallel, Mapping):
        words += [f"{key} {value}" for key, value in parallel.items() if value not in (1, None)]
    words += [name for key in ("engine",) if (name := _name(scenario.get(key)))]
    if isinstance(workload, Mapping):
        words += _work(str(scenario.get("task")), _told(workload, scenario.get("model")))
    return ", ".join(words)


def _work(task: str, workload: Mapping[str, Any]) -> Iterable[str]:
    """What a batch, a traffic or a search is of."""
    if task == "inference":
        return _lengths(workload)
    if task == "fits":
        users = int(workload.get("users", 1))
        each = f"{int(workload.get('context', 4096)):,} tokens"
        return [f"{users} users with {each} each" if users > 1 else f"a context of {each}"]
    if task == "serving":
        return _traffic(workload)
    return _carried(workload) if task == "capacity" else ()


def _told(workload: Mapping[str, Any], model: object) -> Mapping[str, Any]:
    """A workload without the single token out that stands for a model's generating none."""
    traffic = workload.get("traffic")
    if isinstance(traffic, Mapping):
        return {**workload, "traffic": _told(traffic, model)}
    if workload.get("output_len") != 1 or generates(model):
        return workload
    return {name: value for name, value in workload.items() if name != "output_len"}


def answer_report(scenario: Mapping[str, Any], answer: Answer) -> RenderableType:
    """Everything a person needs of one answer."""
    parts: list[RenderableType] = [Text(title(scenario), "bold")]
    parts += [Text(line, "dim") for line in setup_lines(answer["why"])]
    parts.append(Text(""))
    if scenario.get("task") == "serving":
        from silicast.report.tasks.serving import serving_parts

        parts += serving_parts(answer)
    elif scenario.get("task") == "capacity":
        from silicast.report.tasks.capacity import capacity_parts

        parts += capacity_parts(answer)
    elif scenario.get("task") == "fits":
        from silicast.report.tasks.fits import fits_parts

        parts += fits_parts(scenario, answer)
    elif "recommendation" in answer["why"]:
        from silicast.report.tasks.recommendation import recommendation_report

        return recommendation_report(answer)
    else:
        parts += [metrics_table(shown_metrics(answer)), Text("")]
    parts += [Text(line) for line in notes(answer)]
    parts += [Text(f"warning: {line}", "yellow") for line in answer["warnings"]]
    return Group(*parts)


def setup_lines(why: Mapping[str, Any]) -> list[str]:
    """What the names of a scenario were resolved to; a line for each pool.

    >>> setup = {"model": "m", "format": "bf16", "devices": 2, "device": "d", "engine": "e"}
    >>> setup_lines({"deployment": setup})
    ['m in bf16, 2 x d, e']
    >>> setup_lines({"deployment": setup, "pools": {"a": setup, "b": {**setup, "devices": 1}}})
    ['a: m in bf16, 2 x d, e', 'b: m in bf16, d, e']
    """
    setup = why.get("deployment")
    if not isinstance(setup, Mapping):
        return []
    pools: Mapping[str, Mapping[str, Any]] = why.get("pools") or {"": setup}
    return [f"{name}: {_setup(each)}" if name else _setup(each) for name, each in pools.items()]


def _setup(setup: Mapping[str, Any]) -> str:
    count = int(setup["devices"])
    devices = f"{count} x {setup['device']}" if count > 1 else setup["device"]
    engine = str(setup["engine"]).removesuffix(" -")  # of no version in particular
    return f"{setup['model']} in {setup['format']}, {devices}, {engine}"


def shown_metrics(answer: Answer) -> Answer:
    """The answer without what says nothing beside another metric: of one device, a share of it; of
    stages of a workflow, what is not of them, and all quantiles but the last.
    """
    metrics = without_tokens(answer["metrics"])
    if "items_per_s" in metrics:
        metrics = {name: each for name, each in metrics.items() if _of_stages(name)}
    shown = {
        name: quantity
        for name, quantity in metrics.items()
        if not name.endswith("_per_gpu") or metrics.get(name.removesuffix("_per_gpu")) != quantity
    }
    return {**answer, "metrics": shown}


STAGES = ("stage_mean_ms", "stage_p99_ms", "wait_mean_ms", "idle_share")
"""Metrics of a stage or a pool of a workflow that screens show."""


def _of_stages(metric: str) -> bool:
    """Whether screens show a metric of a workflow: of all items, or one of a stage.

    >>> [_of_stages(each) for each in ("ttft_p50_ms", "chat.ttft_p50_ms", "chat.idle_share")]
    [True, False, True]
    """
    return "." not in metric or metric.rpartition(".")[2] in STAGES


def metrics_table(answer: Answer) -> RenderableType:
    """One line a metric: estimate, 90 % interval, bound."""
    columns = {"": "left", "estimate": "right", "90 % interval": "right", "bound": "right"}
    rows = []
    for name, quantity in answer["metrics"].items():
        shown = Shown(name, quantity)
        bound = answer["bound"].get(name)
        limit = Shown(name, bound).value if bound else ""
        words = label(name, answer["metrics"])
        if name == "decode_step_ms" and "speculation" in answer["why"]:
            words = VERIFIED
        rows.append([words, shown.value, shown.interval, limit])
    return listing(columns, rows)


def label(metric: str, beside: Collection[str]) -> str:
    """A metric's name for people.

    Args:
        beside: all metrics of the answer: where none counts tokens, none is the first.

    >>> label("prefill_ms", ["output_tokens_per_s"]), label("prefill_ms", ["sequences_per_s"])
    ('prefill (first token)', 'prefill')
    """
    if metric == "prefill_ms" and not {"output_tokens_per_s", "decode_step_ms"} & set(beside):
        return "prefill"
    if metric.startswith("e2e_") and counts_sequences(beside):
        return words_and_unit(metric.replace("e2e", "latency", 1))[0]
    meaning = metric_of(metric)
    return (meaning.label if meaning else "") or words_and_unit(metric)[0]


def notes(answer: Answer) -> list[str]:
    """What bounds the answer and how much is known, a line each."""
    why = answer["why"]
    lines = [
        line
        for line in (
            memory_line(why),
            one_pass_line(why),
            drafts_line(why),
            room_line(why),
            coverage_line(why),
        )
        if line
    ]
    if has_parts(why):
        named = [find_part(why, name) for name in ("prefill", "decode")]
        verdicts = [verdict(node) for node in named if node is not None] or [verdict(why)]
        lines += [line for line in verdicts if line]
    elif "of_bound" in why:
        reached = percent(float(why["of_bound"]))
        limit = bound_words(str(why["bound_by"]))
        if cause_of(why) == "latency":
            lines.append(f"too short to use the device: at {reached} of what {limit} would allow")
        elif cause_of(why) == "link_latency":
            links = bound_words("link")
            lines.append(
                f"bound by the latency of its steps: at {reached} of what {links} would allow"
            )
        elif float(why["of_bound"]) < FAR_FROM_BOUND <= float(why.get("of_memory", 0.0)):
            memory = f"{percent(float(why['of_memory']))} of what {bound_words('dram')} would allow"
            lines.append(f"at {memory}, and {reached} of its bound, were its operands in the cache")
        elif why["bound_by"] in NO_BOUND:
            holds = "held" if why["bound_by"] == "power" else "bound"
            lines.append(f"{holds} by {limit}{also_words(why)}, at {reached} of its bound")
        else:
            lines.append(f"at {reached} of what {limit} would allow")
        lines += [line for line in (ceiling_line(why), balance_line(why)) if line]
    lines += [
        f"expected {key}: {why[key]}" for key in ("configuration", "algorithm") if why.get(key)
    ]
    if any(name.startswith("cost_") for name in answer["metrics"]):
        lines.append("costs are in the currency of the stated price")
    lines += [line for line in (clock_line(why), uncertainty_line(why)) if line]
    lines.append(
        f"{answer['tier']} tier ({TIER_WORDS[answer['tier']]}), {DOMAIN_WORDS[answer['domain']]}"
    )
    return lines


VERIFIED = "each step, with drafts"


def drafts_line(why: Mapping[str, Any]) -> str:
    """What drafts bring to a static batch.

    >>> table = {"acceptance_length_expected": 2.5, "tpot_ms": 8.0, "tpot_without_ms": 16.0,
    ...          "total_speedup": 1.9}
    >>> drafts_line({"speculation": table})  # doctest: +NORMALIZE_WHITESPACE
    'speculation: 2.50 tokens a step, a token in 8.00 ms (16.0 without), the batch 1.90 times as
    quick'
    """
    table = why.get("speculation", {})
    if "total_speedup" not in table:
        return ""
    token, alone = rounded(table["tpot_ms"]), rounded(table["tpot_without_ms"])
    return (
        f"speculation: {table['acceptance_length_expected']:.2f} tokens a step, a token in "
        f"{token} ms ({alone} without), the batch {table['total_speedup']:.2f} times as quick"
    )


def ceiling_line(why: Mapping[str, Any]) -> str:
    """How near a kernel is to the quick ones that were measured.

    >>> ceiling_line({"of_bound": 0.6, "of_ceiling": 0.8})
    'the quickest tenth of measured kernels on such sizes: 75 %'
    """
    reached = ceiling(why)
    return f"the quickest tenth of measured kernels on such sizes: {reached}" if reached else ""


def balance_line(why: Mapping[str, Any]) -> str:
    """Whether cores wait for others, where many do; a core may hold several pieces of work.

    >>> balance_line({"waves": 2.25})
    'uneven: the last of 3 rounds of work fills 25 % of the room on the cores'
    >>> balance_line({"waves": 0.25}), balance_line({"waves": 2.9})
    ('uneven: the work fills 25 % of the room on the cores', '')
    """
    waves = float(why.get("waves", 0.0))
    rounds = math.ceil(waves)
    idle = rounds - waves
    if waves <= 0.0 or idle / rounds < WORTH_SAYING:
        return ""
    work = "the work" if rounds == 1 else f"the last of {rounds} rounds of work"
    return f"uneven: {work} fills {percent(1.0 - idle)} of the room on the cores"


def clock_line(why: Mapping[str, Any]) -> str:
    """The clock that the power limit holds, and the state of the board."""
    clocks = why.get("clock_mhz")
    if not isinstance(clocks, Mapping):
        return ""
    held = [f"{float(mhz):,.0f} MHz in {phase}" for phase, mhz in clocks.items()]
    state = f", {why['board']} board" if "board" in why else ""
    return f"clock held: {', '.join(dict.fromkeys(held))}{state}"


def explanation(
    scenario: Mapping[str, Any], answer: Answer, *, depth: int, pipes: bool = False
) -> RenderableType:
    """The why tree of an answer with its verdicts.

    Args:
        depth: levels of the tree; pipes: with what every kernel waits for.
    """
    why = answer["why"]
    lines = [Text(line) for line in notes(answer)]
    warnings = [Text(f"warning: {line}", "yellow") for line in answer["warnings"]]
    shown: list[RenderableType] = [Text(title(scenario), "bold"), Text("")]
    shown += [why_table(why, depth=depth, least=0.005, pipes=pipes), Text("")]
    if (table := waits_table(why)) is not None:
        shown += [table, Text("")]
    if (table := uncertainty_table(why)) is not None:
        shown += [table, Text("")]
    return Group(*shown, *lines, *warnings)


def memory_line(why: Mapping[str, Any]) -> str:
    """Whether it fits: what the fullest device holds against what it may hold, and of inference
    what all hold if they are as full.

    >>> held = {"weights": 35.0, "kv_cache": 5.0, "usable": 76.4, "excess": 0.0}
    >>> memory_line({"memory_gb": held, "deployment": {"devices": 4}})
    'memory fits into 76.4 GB usable: weights 35.0, kv cache 5.00; 160 on 4 devices in all'
    """
    memory = why.get("memory_gb")
    if not isinstance(memory, Mapping):
        return ""
    held = ", ".join(
        f"{name.replace('_', ' ')} {rounded(float(memory[name]))}"
        for name in memory
        if name not in {"usable", "excess"}
    )
    excess = float(memory["excess"])
    fits = f"does not fit by {rounded(excess)} GB into" if excess > 0 else "fits into"
    line = f"memory {fits} {rounded(float(memory['usable']))} GB usable: {held}"
    setup = why.get("deployment")
    devices = int(setup["devices"]) if isinstance(setup, Mapping) else 1
    if devices == 1 or "kv_cache" not in memory:
        return line
    whole = sum(float(size) for name, size in memory.items() if name not in {"usable", "excess"})
    return f"{line}; {rounded(devices * whole)} on {devices} devices in all"


def one_pass_line(why: Mapping[str, Any]) -> str:
    """That a static batch is prefilled at once where an engine takes steps.

    >>> one_pass_line({"one_pass": {"tokens": 16384, "step_tokens": 8192},
    ...                "deployment": {"engine": "vllm"}})
    'prefill of 16,384 tokens in one pass; vllm serves in steps of 8,192, whose activations count'
    """
    one_pass, setup = why.get("one_pass"), why.get("deployment")
    if not isinstance(one_pass, Mapping) or not isinstance(setup, Mapping):
        return ""
    steps = f"{setup['engine']} serves in steps of {one_pass['step_tokens']:,}"
    return f"prefill of {one_pass['tokens']:,} tokens in one pass; {steps}, whose activations count"


ALIKE = 0.03
"""Share by which the room of a batch and that of a server may differ and be one number."""


def room_line(why: Mapping[str, Any]) -> str:
    """What more would fit.

    >>> room_line({"room": {"batch": 84, "concurrency": 82, "concurrency_limited_by": "kv_cache",
    ...                     "context_tokens": 8192}})
    'room for 82 requests at once (KV cache), or one of 8,192 tokens'
    >>> room_line({"room": {"batch": 20, "concurrency": 23, "concurrency_limited_by": "kv_cache",
    ...                     "context_tokens": 8192}}).partition(", or")[0]
    'room for a batch of 20; a server, which takes prompts in turn, for 23 at once (KV cache)'
    """
    room = why.get("room")
    if not isinstance(room, Mapping):
        return ""
    tokens = f"{room['context_tokens']:,} tokens"
    if "concurrency" not in room:
        return f"room for a batch of {room['batch']:,}, or one sequence of {tokens}"
    by = {"kv_cache": "KV cache", "engine": "the engine's limit"}[room["concurrency_limited_by"]]
    held = room["concurrency"]
    if "batch" not in room:
        return f"room for {held:,} requests at once ({by}), {tokens} of context alone"
    alike = abs(room["batch"] - held) <= ALIKE * held
    if alike:  # whole blocks of a cache, or of one of a server that sets some aside
        return f"room for {min(room['batch'], held):,} requests at once ({by}), or one of {tokens}"
    turns = f"a server, which takes prompts in turn, for {held:,} at once ({by})"
    return f"room for a batch of {room['batch']:,}; {turns}, or one of {tokens}"


def coverage_line(why: Mapping[str, Any]) -> str:
    """How much of a program has a model, or what a workflow rests on."""
    coverage = why.get("coverage")
    if not isinstance(coverage, Mapping):
        return ""
    if why.get("name") == "workflow":
        return _rests_on(coverage)
    if "operations" not in coverage:
        return ""
    share = percent(1.0 - float(coverage["time_share"].get("unmodelled", 0.0)))
    counts = f"{coverage['modelled']} of {coverage['operations']} operations have a model"
    return f"{counts}: {share} of the device's time"


def _rests_on(coverage: Mapping[str, Any]) -> str:
    """What the time of a workflow rests on.

    >>> _rests_on({"time_share": {"analytic": 0.9, "given": 0.1}})
    'time rests on: 90 % analytic, 10 % given'
    """
    shares = ", ".join(f"{percent(share)} {name}" for name, share in coverage["time_share"].items())
    largest = coverage.get("largest_unmodelled")
    if largest is None:
        return f"time rests on: {shares}"
    return f"time rests on: {shares}; largest stated part: {largest['stage']}"


def _name(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("name") or value.get("base") or "own")
    return str(value) if value else ""


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(_plain, value))
    return str(value)


def _lengths(workload: Mapping[str, Any]) -> Iterable[str]:
    lengths = workload.get("input_lens")
    if isinstance(lengths, list | tuple):
        yield f"batch {len(lengths)}"
        yield f"{sum(lengths):,} tokens in"
    else:
        yield f"batch {workload.get('batch', 1)}"
        if isinstance(workload.get("input_len"), int):
            yield f"{workload['input_len']:,} tokens in"
    if workload.get("cached_len"):
        yield f"{workload['cached_len']:,} before them cached"
    if isinstance(workload.get("output_len"), int):
        yield f"{workload['output_len']:,} out"


def _carried(workload: Mapping[str, Any]) -> Iterable[str]:
    """The traffic of a capacity search; without what is searched for."""
    traffic = workload.get("traffic")
    if isinstance(traffic, Mapping):
        searched = str(workload.get("objective")).startswith("max")
        yield from _traffic({**traffic, "arrival": None} if searched else traffic)


def _traffic(workload: Mapping[str, Any]) -> Iterable[str]:
    arrival = workload.get("arrival")
    if isinstance(arrival, Mapping):
        if arrival.get("rate_per_s") is not None:
            yield f"{arrival['rate_per_s']:g} requests/s"
        if arrival.get("concurrency") is not None:
            yield f"{arrival['concurrency']} clients"
        if arrival.get("path") is not None:
            yield f"trace {arrival['path']}"
    for name, words in (("input_len", "tokens in"), ("output_len", "out")):
        if isinstance(workload.get(name), int):
            yield f"{workload[name]:,} {words}"
