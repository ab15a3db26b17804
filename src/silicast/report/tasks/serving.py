"""Answers of the task ``serving`` on one screen: latencies, throughput, what limits them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from silicast.core.metrics import words_and_unit
from silicast.report.drawing.numbers import Shown, against, duration, percent, rounded
from silicast.report.drawing.tables import listing
from silicast.report.tasks.sequences import counts_sequences, without_tokens

ROWS: Final = {
    "ttft_p99": "TTFT p99",
    "tpot_mean": "TPOT mean",
    "tpot_p99": "TPOT p99",
    "e2e_p99": "E2E p99",
}
MODES: Final = {
    "time_slice": "in turns (time slices)",
    "mps": "at once (MPS)",
    "mig": "in parts of their own (MIG)",
}


def colocation_parts(answer: Mapping[str, Any]) -> list[RenderableType]:
    """A table of every model's latencies against alone, and lines about the device."""
    metrics, why = answer["metrics"], answer["why"]
    pools = why["colocation"]["pools"]
    columns = {
        "": "left",
        "latency": "left",
        "together": "right",
        "90 % interval": "right",
        "alone": "right",
        "times": "right",
        "90 % of times": "right",
    }
    rows = []
    for name, pool in pools.items():
        title = f"{name}: {why['pools'][name]['model']}"
        for key, label in ROWS.items():
            metric, ratio = metrics.get(f"{name}.{key}_ms"), metrics.get(f"{name}.{key}_ratio")
            if metric is None or ratio is None:
                continue
            shown = Shown(f"{key}_ms", metric)
            times = [f"{rounded(ratio[which])}" for which in ("estimate", "p05", "p95")]
            alone = duration(pool["alone"][f"{key}_ms"] * 1e-3)
            rows.append(
                [title, label, shown.value, shown.interval, alone, times[0], "-".join(times[1:])]
            )
            title = ""
    lines = [f"the models run {MODES[why['colocation']['mode']]}"]
    for name, pool in pools.items():
        rate = Shown("output_tokens_per_s", metrics[f"{name}.output_tokens_per_s"])
        part = f"{pool['part']}, " if pool["part"] else ""
        cache = pool["engine_limits"]
        lines.append(
            f"{name}: {part}{rate.estimate} output tokens/s, "
            f"KV cache of {cache['kv_blocks'] * cache['block_tokens']:,} tokens"
        )
    return [listing(columns, rows), Text(""), *(Text(line) for line in lines)]


Metrics = Mapping[str, Mapping[str, float]]

LATENCIES: Final = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E"}
ONE_LATENCY: Final = {"e2e": "latency"}
"""Of a model that generates no tokens."""
STATISTICS: Final = ("mean", "p50", "p90", "p95", "p99")
WIDE: Final = 110
"""Columns from which on more statistics have their interval beside them."""
NARROW: Final = 90
"""Columns below which p95 is left out."""
RATES: Final = (
    "sequences_per_s",
    "sequences_per_s_per_gpu",
    "output_tokens_per_s",
    "output_tokens_per_s_per_gpu",
    "total_tokens_per_s",
    "requests_per_s",
    "goodput_per_s",
)
WAITS: Final = {
    "kv_cache": "the KV cache is full",
    "sequences": "as many sequences run as the engine lets",
    "step_tokens": "steps have all the tokens they may",
    "order": "a step is under way",
}
COUNTED: Final = {"sequence": "a sequence", "output_token": "an output token"}
"""What energy and cost are told of: the first that an answer counts."""
HARDLY: Final = 0.1
"""Share of the time in which requests may wait without anything to say of it."""


@final
class LatencyTable:
    """A row for each latency; a wide terminal shows more intervals."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draws it at the width that there is."""
        spread: Sequence[str]
        spread = ("mean", "p90", "p99") if options.max_width >= WIDE else ("mean", "p99")
        if all(each["p05"] == each["p95"] for each in self._metrics.values()):
            spread = ()
        narrow = options.max_width < NARROW
        statistics = [name for name in STATISTICS if not (narrow and name == "p95")]
        columns = {"": "left"}
        for name in statistics:
            columns[name] = "right"
            if name in spread:
                columns[f"90 % of {name}"] = "right"
        yield listing(columns, list(self.rows(statistics, spread)))

    def rows(self, statistics: Sequence[str], spread: Sequence[str]) -> Iterator[list[str]]:
        """Cells of each latency: its name, and statistics with intervals behind some of them."""
        latencies = ONE_LATENCY if counts_sequences(self._metrics) else LATENCIES
        for latency, label in latencies.items():
            cells = [label]
            for name in statistics:
                metric = f"{latency}_{name}_ms"
                quantity = self._metrics.get(metric)
                shown = None if quantity is None else Shown(metric, quantity)
                cells.append(shown.value if shown else "")
                if name in spread:
                    cells.append(shown.cell if shown else "")
            if any(cells[1:]):
                yield cells


def serving_parts(answer: Mapping[str, Any]) -> list[RenderableType]:
    """Tables and lines of an answer, above what all answers say."""
    metrics = answer["metrics"]
    if "colocation" in answer["why"]:
        return colocation_parts(answer)
    parts: list[RenderableType] = [LatencyTable(metrics), Text("")]
    if any(name in metrics for name in RATES):
        parts += [rates_table(metrics), Text("")]
    return [*parts, *(Text(line) for line in serving_lines(answer))]


def partial_report(head: str, values: Mapping[str, float]) -> RenderableType:
    """What was measured of a simulation that was interrupted, without intervals."""
    metrics = {name: {"estimate": v, "p05": v, "p95": v} for name, v in values.items()}
    tables = (LatencyTable(metrics), Text(""), rates_table(metrics))
    return Group(Text(head, "bold"), Text(""), *tables)


def rates_table(metrics: Metrics) -> RenderableType:
    """Throughput, one line each."""
    told = without_tokens(metrics)
    names = [name for name in RATES if name in told]
    columns = {"": "left", "estimate": "right"}
    if any(metrics[name]["p05"] != metrics[name]["p95"] for name in names):
        columns["90 % interval"] = "right"
    rows = []
    for name in names:
        shown = Shown(name, metrics[name])
        words = words_and_unit(name)[0] + (" a device" if name.endswith("_per_gpu") else "")
        rows.append([words, shown.value, shown.cell])
    return listing(columns, [row[: len(columns)] for row in rows])


def serving_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """The objective, the KV cache, the queue, the use of the devices, limits and the knee."""
    why, told = answer["why"], without_tokens(answer["metrics"])
    values = {n: float(q["estimate"]) for n, q in told.items()}
    yield from cache_lines(why.get("kv_cache"))
    yield from slo_lines(why.get("slo", {}))
    yield from span_lines(why)
    if "kv_utilisation" in values:
        yield _kv_line(values)
        if "host_hit_rate" in values:
            yield host_line(values)
    yield from _saved_lines(values, why)
    if "queue_depth_mean" in values:
        yield _queue_line(values, why)
    if "kv_transfer_mean_ms" in values:
        mean, most = (duration(values[f"kv_transfer_{s}_ms"] * 1e-3) for s in ("mean", "p99"))
        yield f"caches move from prefill to decode in {mean} on average, p99 {most}"
    if "mfu" in values:
        read = values.get("memory_bandwidth_utilisation")
        memory = f", {percent(read)} of memory bandwidth" if read is not None else ""
        yield f"use of the devices: {percent(values['mfu'])} of peak FLOP/s (MFU){memory}"
    if "power_w" in values:
        watts = Shown("power_w", answer["metrics"]["power_w"])
        each, unit = next(
            (values[f"energy_per_{unit}_j"], words)
            for unit, words in COUNTED.items()
            if f"energy_per_{unit}_j" in values
        )
        yield (
            f"power: {watts.estimate} W a device on average ({watts.interval}), "
            f"{rounded(each)} J {unit}"
        )
    for unit in COUNTED:
        if (cost := values.get(f"cost_per_million_{unit}s")) is not None:
            yield f"cost: {rounded(cost)} per million {unit.replace('_', ' ')}s"
    if isinstance(why.get("queued"), Mapping):
        yield limit_line(why["queued"])
        yield from front_lines(why.get("ttft_ms", {}))
    if isinstance(why.get("knee"), Mapping):
        requests = why.get("requests", {})
        offered = requests.get("sent_per_s", requests.get("offered_per_s"))
        load = values.get("requests_per_s", 0.0) if offered is None else offered
        steady = why.get("steady_state")
        grows = load > why["knee"]["most_per_s"] if steady is None else not steady["keeps_up"]
        yield knee_line(why["knee"], load, grows=grows)


def _saved_lines(values: Mapping[str, float], why: Mapping[str, Any]) -> Iterator[str]:
    """What caches of prefixes and drafts save."""
    if "prefix_hit_rate" in values:
        yield f"prefix cache: {percent(values['prefix_hit_rate'])} of the prompts' tokens held"
    if "acceptance_length" in values:
        yield _drafts_line(values, why)


def _drafts_line(values: Mapping[str, float], why: Mapping[str, Any]) -> str:
    """What drafts bring.

    >>> table = {"tpot_speedup": {"p50": 1.8}, "throughput_speedup": 1.0312}
    >>> _drafts_line({"acceptance_length": 2.5}, {"speculation": table})
    'speculation: 2.50 tokens a verified step; a token 1.80 times as quick, throughput 1.03 times'
    """
    line = f"speculation: {values['acceptance_length']:.2f} tokens a verified step"
    table = why.get("speculation", {})
    if "tpot_speedup" in table:
        line += f"; a token {table['tpot_speedup']['p50']:.2f} times as quick"
        line += f", throughput {table['throughput_speedup']:.2f} times"
    return line


def slo_lines(verdicts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Whether each limit of the objective is kept.

    >>> list(slo_lines({"ttft_p99_ms": {"limit": 1000.0, "value": 1200.0, "kept": False}}))
    ['objective missed: ttft p99 1.20 s, limit 1.00 s']
    >>> list(slo_lines({"tpot_p99_ms": {"limit": 20.0, "value": 20.0142, "kept": False}}))
    ['objective missed: tpot p99 20.01 ms, limit 20.00 ms']
    """
    for name, each in verdicts.items():
        label, _ = words_and_unit(name)
        value, limit = against(*(float(each[which]) * 1e-3 for which in ("value", "limit")))
        yield f"objective {'kept' if each['kept'] else 'missed'}: {label} {value}, limit {limit}"


def span_lines(why: Mapping[str, Any]) -> Iterator[str]:
    """What part of the run the figures are of, where requests come at a rate.

    >>> steady = {"seconds": 80.0, "measured": 960, "warm_up": 20, "drain": 20, "keeps_up": True}
    >>> list(span_lines({"steady_state": steady}))
    ['steady state: 960 requests sent in 80.0 s; 20 of the warm-up and 20 of the drain left out']
    >>> list(span_lines({"requests": {"sent": 100, "queue_growth": 0.0}}))
    ['100 requests from the first sent to the last answered, warm-up and drain included']
    >>> list(span_lines({"requests": {"sent": 64}, "warm_up": {"requests": 16}}))
    ['64 requests from the first sent to the last answered, drain included; 16 before not counted']
    """
    steady, requests = why.get("steady_state"), why.get("requests", {})
    if steady is not None:
        yield (
            f"steady state: {steady['measured']:,} requests sent in "
            f"{duration(steady['seconds'])}; {steady['warm_up']:,} of the warm-up and "
            f"{steady['drain']:,} of the drain left out"
        )
        if not steady["keeps_up"]:
            yield "there is no steady state: more requests come than are answered, and waits grow"
    elif before := why.get("warm_up", {}).get("requests", 0):
        yield (
            f"{requests['sent']:,} requests from the first sent to the last answered, drain "
            f"included; {before:,} before not counted"
        )
    elif "queue_growth" in requests:
        yield (
            f"{requests['sent']:,} requests from the first sent to the last answered, warm-up "
            "and drain included"
        )


def limit_line(queued: Mapping[str, float]) -> str:
    """Why requests wait, the longest reason first.

    >>> limit_line({"waiting": 0.75, "kv_cache": 0.5, "order": 0.25})
    'requests wait 75 % of the time: the KV cache is full (50 %), a step is under way (25 %)'
    >>> limit_line({"waiting": 0.02, "order": 0.02})
    'requests hardly wait for a step (2.0 % of the time)'
    """
    waiting = float(queued["waiting"])
    if waiting < HARDLY:
        return f"requests hardly wait for a step ({percent(waiting)} of the time)"
    reasons = sorted(
        ((float(queued.get(n, 0.0)), words) for n, words in WAITS.items()), reverse=True
    )
    remarks = [
        f"{words} ({percent(share)})" for share, words in reasons if share >= HARDLY * waiting
    ]
    return f"requests wait {percent(waiting)} of the time: {', '.join(remarks)}"


def front_lines(parts: Mapping[str, float]) -> Iterator[str]:
    """That requests wait for the server's front, where it is much of the time to the first token.

    >>> list(front_lines({"http": 4.0, "tokenise": 1.0, "front_queue": 300.0, "prefill": 20.0}))
    ["first tokens wait 300 ms for the server's front, which takes 5.00 ms a request, one by one"]
    >>> list(front_lines({"http": 4.0, "queue": 90.0, "front_queue": 1.0}))
    []
    """
    waits = parts.get("front_queue", 0.0)
    if waits > HARDLY * sum(parts.values()):
        each = parts.get("http", 0.0) + parts.get("tokenise", 0.0)
        yield (
            f"first tokens wait {duration(waits * 1e-3)} for the server's front, which takes "
            f"{duration(each * 1e-3)} a request, one by one"
        )


def knee_line(knee: Mapping[str, float], load: float, *, grows: bool = False) -> str:
    """Where the curve of latency against load bends, how far this load is, and whether its queue
    grows, which the simulation says and not the estimate of the most.

    >>> knee = {"rate_per_s": 3.3, "concurrency": 32, "most_per_s": 5.8, "most_concurrency": 228}
    >>> knee_line(knee, 2.9)
    'knee near 3.30 requests/s (32 in flight), most 5.80 (228): now 2.90, 50 % of the most'
    >>> knee_line(knee, 9.0, grows=True)[-41:]
    '9.00 come, so the queue grows without end'
    """
    most = knee["most_per_s"]
    now = f"now {rounded(load)}, {percent(load / most)} of the most"
    if grows:
        now = f"{rounded(load)} come, so the queue grows without end"
    return (
        f"knee near {rounded(knee['rate_per_s'])} requests/s ({knee['concurrency']:,.0f} in "
        f"flight), most {rounded(most)} ({knee['most_concurrency']:,.0f}): {now}"
    )


def cache_lines(cache: Mapping[str, Any] | None) -> Iterator[str]:
    """What engines print of their cache when they start.

    >>> list(cache_lines({"tokens": 35264, "model_tokens": 32768, "max_concurrency": 1.076}))
    ['KV cache size: 35,264 tokens; maximum concurrency for 32,768 tokens per request: 1.08x']
    """
    if cache is None:
        return
    line = f"KV cache size: {cache['tokens']:,} tokens"
    if cache["model_tokens"]:
        each = f"{cache['model_tokens']:,} tokens per request"
        line += f"; maximum concurrency for {each}: {cache['max_concurrency']:.2f}x"
    yield line


def _kv_line(values: Mapping[str, float]) -> str:
    most, empty = values.get("kv_utilisation_max"), values.get("kv_fragmentation")
    line = f"KV cache: {percent(values['kv_utilisation'])} in use on average"
    line += f", {percent(most)} at most" if most is not None else ""
    line += f", {percent(empty)} of it empty" if empty is not None else ""
    count = values.get("preemptions", 0.0)
    return f"{line}; {count:,.0f} preemption{'' if count == 1 else 's'}"


def host_line(values: Mapping[str, float]) -> str:
    """What the host's memory held, and what moved.

    >>> host_line({"host_hit_rate": 0.25, "host_to_device_bytes": 3e9, "device_to_host_bytes": 4e9,
    ...            "swaps": 1.0})
    "host's memory: 25 % of prompt tokens found there alone, 3.00 GB loaded, 4.00 GB stored; 1 swap"
    """
    count = values["swaps"]
    moved = [
        rounded(values[f"{name}_bytes"] / 1e9) for name in ("host_to_device", "device_to_host")
    ]
    return (
        f"host's memory: {percent(values['host_hit_rate'])} of prompt tokens found there alone, "
        f"{moved[0]} GB loaded, {moved[1]} GB stored; {count:,.0f} swap{'' if count == 1 else 's'}"
    )


def _queue_line(values: Mapping[str, float], why: Mapping[str, Any]) -> str:
    running = why.get("batch", {}).get("running_mean")
    beside = f"; {rounded(float(running))} run on average" if running is not None else ""
    return (
        f"queue: {rounded(values['queue_depth_mean'])} requests on average, "
        f"{values['queue_depth_max']:,.0f} at most, each waits "
        f"{duration(values['queue_mean_ms'] * 1e-3)}{beside}"
    )
