"""Models that share devices on one screen: each one's latencies, and how much slower than alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from silicast.report.drawing.numbers import Shown, duration, rounded
from silicast.report.drawing.tables import listing

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
