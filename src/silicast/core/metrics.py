"""What each metric of an answer means: its unit, what kind of amount it is, and a sentence.

Whoever needs to know how a metric moves when a run takes longer, or which of two answers is the
better one, asks here and does not look at the metric's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, final

Kind = Literal["time", "rate", "use", "energy", "yield", "cost", "power", "size", "share", "count"]
"""A rate is work over a time, a use the part of what devices could do in that time, a yield what
one unit of energy or money brings."""

_PER_TIME: Mapping[Kind, int] = {
    "time": 1,
    "energy": 1,
    "cost": 1,
    "rate": -1,
    "use": -1,
    "yield": -1,
}
_UNITS = (
    ("_per_s_per_gpu", "/s/GPU"), ("_tflops_per_gpu", "TFLOP/s/GPU"), ("_per_s", "/s"),
    ("_gbs", "GB/s"), ("_gb", "GB"), ("_mj", "mJ"), ("_us", "us"), ("_ms", "ms"), ("_s", "s"),
    ("_w", "W"), ("_j", "J"),
)  # fmt: skip
"""How a name ends -> its unit."""

LATENCIES = {
    "ttft": "from sending a request until the client has its first token",
    "tpot": "from the first token to the last, over output tokens less one; of requests with two "
    "and more",
    "itl": "between two tokens of a request; over all gaps of all requests",
    "e2e": "from sending a request until the client has its last token",
}
"""Times of a request under load."""
STATISTICS = ("mean", "p50", "p90", "p95", "p99")


@final
@dataclass(frozen=True)
class Metric:
    """One metric of answers.

    Attributes:
        text: what it is, in a sentence without its end.
        label: what screens call it; "" = its name in words.
        latency, statistic: of a time of a request ("ttft", "p99"); "" = it is none.
    """

    name: str
    kind: Kind
    text: str
    label: str = ""
    latency: str = ""
    statistic: str = ""

    @property
    def unit(self) -> str:
        """Its unit; "" = a plain number."""
        return words_and_unit(self.name)[1]

    @property
    def per_time(self) -> int:
        """The power of the time of a run that it grows with: 1, -1 or 0."""
        return _PER_TIME.get(self.kind, 0)


def words_and_unit(name: str) -> tuple[str, str]:
    """A metric's name as words, and its unit.

    >>> words_and_unit("decode_step_ms"), words_and_unit("output_tokens_per_s")
    (('decode step', 'ms'), ('output tokens', '/s'))
    """
    for ending, unit in _UNITS:
        if name.endswith(ending):
            return name.removesuffix(ending).replace("_", " "), unit
    return name.replace("_", " "), ""


_ALL: tuple[tuple[str, Kind, str] | tuple[str, Kind, str, str], ...] = (
    # kernels and collectives
    ("latency_us", "time", "of one call"),
    ("energy_mj", "energy", "of one call on a busy board"),
    ("best_us", "time", "of the best configuration", "best configuration"),
    ("gain_pct", "share", "by which the best configuration is quicker", "gain, %"),
    ("bus_bandwidth_gbs", "rate", "of a collective, as nccl-tests counts it"),
    ("algorithm_bandwidth_gbs", "rate", "bytes of a collective over its time"),
    # whole models
    ("prefill_ms", "time", "of all prompts of a batch", "prefill (first token)"),
    ("decode_step_ms", "time", "of the median step of a batch", "each further token"),
    ("total_ms", "time", "of a batch from the first kernel to the last token", "whole batch"),
    ("forward_ms", "time", "of a forward pass"),
    ("backward_ms", "time", "of a backward pass"),
    ("optimizer_ms", "time", "of an update of all weights"),
    ("e2e_ms", "time", "of a pass as a whole"),
    ("memory_gb", "size", "the most that is held at once on a device", "memory a device"),
    ("memory_allocated_gb", "size", "the most that an allocator handed out", "allocated of it"),
    ("memory_reserved_gb", "size", "the most that an allocator held", "reserved of it"),
    ("host_memory_gb", "size", "that a node of hosts holds for its devices"),
    ("power_w", "power", "average watts of a device, where its power is modelled",
     "power a device"),
    ("energy_j", "energy", "of all devices", "energy in all"),
    ("energy_per_token_j", "energy", "of all devices, a token", "energy a token"),
    # training
    ("step_time_s", "time", "of an optimizer step"),
    ("step_time_slowed_s", "time", "of an optimizer step beside slower devices"),
    ("step_time_with_checkpoints_s", "time", "of an optimizer step, checkpoints shared out"),
    ("tokens_per_s", "rate", "tokens that all devices train on"),
    ("tokens_per_s_per_gpu", "rate", "tokens that a device trains on"),
    ("model_tflops_per_gpu", "rate", "FLOPs of the model over the time of a step"),
    ("padded_share", "share", "of the computed tokens, that belong to no document"),
    ("goodput", "share", "of the time, that is not lost to failures"),
    # serving
    ("output_tokens_per_s", "rate",
     "output tokens over the time from the first request sent to the last token"),
    ("output_tokens_per_s_per_gpu", "rate", "the same, over all devices of all replicas"),
    ("total_tokens_per_s", "rate", "prompt and output tokens over that time"),
    ("requests_per_s", "rate", "answered requests over that time"),
    ("sequences_per_s", "rate", "answered sequences of a model that generates no tokens"),
    ("sequences_per_s_per_gpu", "rate", "the same, over all devices of all replicas"),
    ("goodput_per_s", "rate",
     ("answered requests that keep every limit of workload.slo, over that time; a limit on a "
     "quantile is a limit on each request; none counts while a mean is above its limit")),
    ("queue_mean_ms", "time",
     "from the moment the engine knows of a request until its first step starts"),
    ("queue_depth_mean", "count",
     ("requests that the engine knows of and has not begun: mean over time (rate x queue_mean_ms, "
     "Little's law)")),
    ("queue_depth_max", "count",
     "the most of them at once; what waits again after a preemption has begun and is not counted"),
    ("preemptions", "count", "how often a running sequence lost its blocks"),
    ("swaps", "count", "preemptions that left a sequence's blocks in the host's memory"),
    ("kv_utilisation", "share", "of the KV cache's blocks in use, mean over the time of steps"),
    ("kv_utilisation_max", "share", "of the KV cache's blocks in use, at most"),
    ("kv_cache_tokens", "count",
     ("tokens that the KV cache of one group of ranks holds, as its engine prints it: as if every "
     "layer kept every token")),
    ("kv_cache_concurrency", "count",
     "sequences as long as the engine takes that this cache holds at once; need not be whole"),
    ("kv_fragmentation", "share",
     "of the blocks in use, that holds no token (the rest of last blocks)"),
    ("acceptance_length", "count",
     "tokens that a verified step of speculative decoding leaves, the bonus token included"),
    ("prefix_hit_rate", "share",
     ("of the answered requests' prompt tokens that a prefix cache held, where prompts have known "
     "content")),
    ("host_hit_rate", "share", "of them that was in the host's memory or a tier below it alone"),
    ("host_to_device_bytes", "size", "that moved over the links from the hosts, of all devices"),
    ("device_to_host_bytes", "size", "that moved over the links to the hosts, of all devices"),
    ("mfu", "use",
     ("FLOPs of the model for what was answered, over peak FLOP/s of all devices in the format of "
     "the products; prompt tokens that a cache held and work done twice do not count")),
    ("mfu_16_bit", "use",
     "mfu over the peak in 16 bits, as people quote it, where products run in fewer bits"),
    ("memory_bandwidth_utilisation", "use",
     ("bytes that steps must read (weights once a step, of experts those that its tokens reach in "
     "the mean; keys and values of decoding sequences), over the bandwidth of main memory")),
    ("energy_per_request_j", "energy", "of all devices, idle time included, a request"),
    ("energy_per_output_token_j", "energy", "of all devices, idle time included, an output token",
     "energy an output token"),
    ("energy_per_sequence_j", "energy", "of all devices, idle time included, a sequence",
     "energy a sequence"),
    ("output_tokens_per_joule", "yield", "the inverse of energy_per_output_token_j"),
    ("cost_per_hour", "cost", "of all devices for an hour, in the currency of their prices"),
    ("cost_per_million_output_tokens", "cost",
     ("where the price of every device is stated (cluster.price_per_gpu_hour, or of each pool), in "
     "its currency"), "cost of a million output tokens"),
    ("cost_per_million_sequences", "cost", "likewise, of a model that generates no tokens",
     "cost of a million sequences"),
    ("output_tokens_per_cost", "yield", "output tokens for one unit of the currency"),
    # workflows
    ("items_per_s", "rate", "items of a workflow over the time from first start to last end"),
    ("samples_per_s", "rate", "sequences that training steps of a workflow learn from, over it"),
    ("idle_share", "share", "of the time of a pool's servers, in which they have no work"),
    ("energy_per_item_j", "energy", "of all devices, idle time included, an item of a workflow"),
    ("cost_per_item", "cost", "of all devices, an item of a workflow, in their prices' currency"),
    # capacity
    ("max_rate_per_s", "rate", "the most requests a second that keep the objective"),
    ("safe_rate_per_s", "rate",
     "the most requests a second that keep it with 90 % probability, by the error of the model"),
    ("max_concurrency", "count", "the most clients that each wait for their answers"),
    ("safe_concurrency", "count", "the most of them that keep it with 90 % probability"),
    ("gpus", "count", "devices of all replicas, the fewest where they are sought"),
    ("users_that_fit", "count",
     "requests, each as long as the longest, that the KV cache or the engine holds at once"),
    ("longest_context_tokens", "count", "tokens of one request that the KV cache holds alone"),
    # fleets in time
    ("gpu_hours", "count", "devices of replicas that come and go, over the time of a traffic"),
    ("gpu_hours_static", "count", "of the fewest devices that keep the objective all the time"),
    ("gpu_hours_least", "count",
     ("of the fewest devices that keep it in each period, by who knows the traffic and whose "
     "replicas need no time to start")),
    ("gpus_mean", "count", "devices that cost, mean over time"),
    ("gpus_peak", "count", "devices that cost at once, at most"),
    ("late_share", "share", "of the requests, that break a limit of the objective"),
    ("late_share_static", "share", "the same of the fleet that does not change"),
    ("late_time_share", "share", "of the time, in which more requests break a limit than may"),
    ("missed_probability", "share",
     "probability that more requests than may break a limit, by the error of the model"),
    ("missed_probability_static", "share", "the same of the fleet that does not change"),
    ("cost", "cost", "of all devices over the time of a traffic, in the currency of their prices"),
    ("cost_static", "cost", "the same of the fleet that does not change"),
)  # fmt: skip


def _times() -> Iterator[Metric]:
    for latency, text in LATENCIES.items():
        for statistic in STATISTICS:
            yield Metric(f"{latency}_{statistic}_ms", "time", text, "", latency, statistic)
    for statistic in STATISTICS:
        text = "from the moment a stage's job could run until it has ended"
        yield Metric(f"stage_{statistic}_ms", "time", text)
        text = "of it, until the job left the queue"
        yield Metric(f"wait_{statistic}_ms", "time", text)
    for statistic in STATISTICS:
        text = "in which a cache moves from prefill to decode, with the wait for the link"
        yield Metric(f"kv_transfer_{statistic}_ms", "time", text)


METRICS: Mapping[str, Metric] = {
    metric.name: metric for metric in (*_times(), *(Metric(*each) for each in _ALL))
}
"""Every metric by its name; those of several pools have the pool's name and a dot before it."""


def metric_of(name: str) -> Metric | None:
    """The metric of an answer's field; None = one that is not listed, as a design's.

    >>> metric_of("chat.requests_per_s").kind
    'rate'
    """
    return METRICS.get(name.rpartition(".")[2])


TERMS: Mapping[str, str] = {
    **LATENCIES,
    "interval": "from p05 to p95: nine of ten measurements are to lie within",
    "bound": "no machine like this does better: peak rates, and every byte moved once",
    "tier": "what a prediction rests on: bound, analytic, cross-device, scaled or calibrated",
    "knee": "the load from which on waiting grows faster than throughput",
    "room": "requests, each as long as the longest, that fit at once",
    "edge": "the rate at which the limited statistic just reaches its limit",
    "spread": "how far a single run moves the edge, as a standard deviation",
    "bubble": "time of a pipeline's stages without work, while it fills and drains",
    "queue": "requests that the engine knows of and has not begun",
    "headroom": "share of what replicas carry that a policy leaves free",
    "late": "beyond a limit of the objective: such a request breaks it",
    "steady state": "the part of a run that its start with an empty server and its end do not show",
}
"""Words of screens that are no metrics."""


def metrics_named(word: str) -> list[Metric]:
    """The metrics that people mean by a word: a name, with or without its unit and the stage or
    pool that it is of, or what screens call it.

    >>> [metrics_named(word)[0].name for word in ("TTFT-p99", "whole batch")]
    ['ttft_p99_ms', 'total_ms']
    >>> [each.name for each in metrics_named("goodput")]
    ['goodput', 'goodput_per_s']
    """
    name = _plain(word.rpartition(".")[2])
    endings = ("", *(unit for unit, _ in _UNITS))
    names = {name + end for end in endings}
    labelled = [entry for entry in METRICS.values() if entry.label and _plain(entry.label) == name]
    return [METRICS[metric_name] for metric_name in METRICS if metric_name in names] or labelled


def _plain(words: str) -> str:
    return words.strip().lower().replace("-", "_").replace(" ", "_")


def term_named(word: str) -> str:
    """The meaning of a word of screens; "" = it is none.

    >>> term_named("Knee"), term_named("TTFT")[:22]
    ('the load from which on waiting grows faster than throughput', 'from sending a request')
    """
    return {_plain(name): text for name, text in TERMS.items()}.get(_plain(word), "")


def meaning(metric: Metric) -> str:
    """A metric in words.

    >>> meaning(METRICS["ttft_p99_ms"])  # doctest: +ELLIPSIS
    'ttft_p99_ms (ms): from sending a request until the client has its first token; 99 % of ...'
    """
    text = metric.text
    if metric.statistic in ("", "mean"):
        text += "; the mean of all requests" if metric.statistic else ""
    else:
        text += f"; {metric.statistic[1:]} % of the requests take no longer"
    unit = words_and_unit(metric.name)[1]
    return f"{metric.name}{f' ({unit})' if unit else ''}: {text}"
