"""A simulation as the metrics that its engine would export, in Prometheus' text format.

Names, labels and buckets are files of ``catalog/metric_names``, one for engines that share them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Literal, final

import numpy as np

from silicast.core.catalog import catalog_files
from silicast.core.decode import Strict, read_table
from silicast.core.errors import unsupported
from silicast.core.numerics import F64, I64
from silicast.serving.statistics.metrics import kv_use, queue, rates
from silicast.serving.statistics.records import Records, seconds
from silicast.serving.statistics.use import step_shares

FOLDER = "metric_names"
Distribution = Literal[
    "ttft_s", "itl_s", "tpot_s", "e2e_s", "queue_s", "prefill_s", "decode_s", "inference_s",
    "input_tokens", "output_tokens", "step_tokens",
]  # fmt: skip
Number = Literal[
    "requests", "input_tokens", "output_tokens", "cached_tokens", "preemptions", "running",
    "waiting", "kv_usage", "output_tokens_per_s", "cache_hit_rate",
    "host_tokens", "device_tokens", "loaded_bytes", "stored_bytes",
]  # fmt: skip


class MetricName(Strict, frozen=True):
    """One exported metric.

    Attributes:
        of: what it is of ours; ``buckets``: name of a histogram's.
    """

    kind: Literal["counter", "gauge", "histogram"]
    of: Distribution | Number
    help: str
    buckets: str = ""
    labels: dict[str, str] = {}


@final
class MetricNames(Strict, frozen=True):
    """What engines export.

    Attributes:
        engines: that export it, by their names in the catalog.
        labels: of every metric; ``model_label``: the label that holds the model's name.
        buckets: by name, upper ends in ascending order.
    """

    engines: list[str]
    metrics: dict[str, MetricName]
    buckets: dict[str, list[float]]
    labels: dict[str, str] = {}
    model_label: str = "model_name"


@cache
def _known() -> Mapping[str, MetricNames]:
    table: dict[str, MetricNames] = {}
    for path in catalog_files(FOLDER, ".toml"):
        names = read_table(path, MetricNames, "docs/reference/serving-metrics.md")
        table |= dict.fromkeys(names.engines, names)
    return table


def metric_names(engine: str) -> MetricNames:
    """What an engine exports.

    Raises:
        SilicastError: the catalog has no names of it.
    """
    metric_names = _known().get(engine)
    if metric_names is None:
        raise unsupported(
            f"the metrics that {engine} exports are not known",
            "--metrics-out",
            f"known of {', '.join(_known())}",
        )
    return metric_names


def exposition(records: Records, names: MetricNames, model: str, blocks: Sequence[int]) -> str:
    """The text of a scrape after the run.

    Args:
        model: name of the model; ``blocks``: of the KV cache of each replica.
    """
    totals, all_labels = _numbers(records, blocks), {names.model_label: model, **names.labels}
    lines: list[str] = []
    for name, metric in names.metrics.items():
        lines += [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}"]
        labels = {**all_labels, **metric.labels}
        if metric.kind == "histogram":
            values, counts = _distribution(records, metric.of)
            lines += _histogram(name, labels, names.buckets[metric.buckets], values, counts)
        else:
            lines.append(f"{name}{_labels(labels)} {_shown(totals[metric.of])}")
    return "\n".join(lines) + "\n"


def _histogram(
    name: str, labels: Mapping[str, str], buckets: list[float], values: F64, counts: I64
) -> Iterator[str]:
    order = np.argsort(values, kind="stable")
    running = np.concatenate(([0], np.cumsum(counts[order])))
    indices = np.searchsorted(values[order], buckets, side="right")
    for end, position in zip(buckets, indices.tolist(), strict=True):
        yield f"{name}_bucket{_labels({**labels, 'le': _shown(end)})} {running[position]}"
    total = int(running[-1])
    yield f"{name}_bucket{_labels({**labels, 'le': '+Inf'})} {total}"
    yield f"{name}_sum{_labels(labels)} {_shown(float((values * counts).sum()))}"
    yield f"{name}_count{_labels(labels)} {total}"


def _labels(labels: Mapping[str, str]) -> str:
    r"""Labels in braces, their values escaped.

    >>> _labels({"a": 'x"y'})
    '{a="x\\"y"}'
    """
    escaped = {
        name: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        for name, value in labels.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"


def _shown(value: float) -> str:
    return repr(float(value))


def _distribution(records: Records, metric: str) -> tuple[F64, I64]:
    """Values and how often each occurred."""
    rows, requests = records.finished, records.requests
    if metric == "itl_s":
        gaps, counts = records.gaps.table()
        return seconds(gaps), counts
    if metric == "step_tokens":
        log = records.log.columns()
        return (log["decoding"] + log["prefill_tokens"]).astype(np.float64), log["steps"]
    if metric == "tpot_s":
        values = records.tpot_s()
    elif metric in {"input_tokens", "output_tokens"}:
        values = getattr(requests, metric)[rows].astype(np.float64)
    else:
        start, end = {
            "ttft_s": (records.sent_ns, records.first_ns),
            "e2e_s": (records.sent_ns, records.done_ns),
            "queue_s": (records.arrived_ns, records.scheduled_ns),
            "prefill_s": (records.scheduled_ns, records.first_ns),
            "decode_s": (records.first_ns, records.done_ns),
            "inference_s": (records.scheduled_ns, records.done_ns),
        }[metric]
        values = seconds((end - start)[rows])
    return values, np.ones(len(values), dtype=np.int64)


def _numbers(records: Records, blocks: Sequence[int]) -> dict[str, float]:
    """Totals over answered requests, and means over the run."""
    rows, requests = records.finished, records.requests
    prompt, cached = int(requests.input_tokens[rows].sum()), int(records.reused[rows].sum())
    held = int(records.sequences.loaded[rows].sum())
    return {
        "requests": len(rows),
        "input_tokens": prompt,
        "cached_tokens": cached,
        "host_tokens": held,
        "device_tokens": cached - held,
        "loaded_bytes": records.sequences.traffic.loaded_bytes,
        "stored_bytes": records.sequences.traffic.stored_bytes,
        "output_tokens": int(requests.output_tokens[rows].sum()),
        "preemptions": int(records.sequences.preemptions.sum()),
        "running": step_shares(records)["running_mean"],
        "waiting": queue(records)["queue_depth_mean"],
        "kv_usage": kv_use(records, blocks, [1] * len(blocks))["kv_utilisation"],
        "output_tokens_per_s": rates(records)["output_tokens_per_s"],
        "cache_hit_rate": cached / prompt,
    }
