"""Metrics in Prometheus' text format."""

from __future__ import annotations

import re

import pytest

from silicast.composition.engines.engine import engines_of
from silicast.core.errors import SilicastError
from silicast.serving.statistics.exported import exposition, metric_names
from tests.unit.serving.statistics.test_metrics import records_of

SAMPLE = re.compile(
    r'[a-zA-Z_:][a-zA-Z0-9_:]*\{([a-zA-Z_]\w*="[^"]*",?)+\} ([-+0-9.einf]+)', re.IGNORECASE
)


@pytest.mark.parametrize("engine", ["vllm", "vllm-v0", "sglang"])
def test_names_are_of_engines_and_buckets_grow(engine: str) -> None:
    assert engine in engines_of("serving")
    names = metric_names(engine)
    for buckets in names.buckets.values():
        assert buckets == sorted(set(buckets))
    for name, metric in names.metrics.items():
        assert (metric.kind == "histogram") == (metric.buckets in names.buckets), name
        assert metric.help
    assert {m.buckets for m in names.metrics.values()} - {""} == set(names.buckets)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_scrape_is_well_formed_and_adds_up(engine: str) -> None:
    records = records_of([(0, 0, 0, 10, 30, 3), (5, 5, 10, 25, 25, 1)])
    records.log.add(0, 0, 30_000_000, 1, *[0] * (len(records.log.COLUMNS) - 4))
    text = exposition(records, metric_names(engine), 'a "model"', blocks=[10])
    last: dict[str, float] = {}
    for written in text.splitlines():
        line = written.replace(r"\"", "")
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP|TYPE) \S+ .+", line)
            continue
        assert SAMPLE.fullmatch(line), line
        name, _, remainder = line.partition("{")
        value = float(remainder.rpartition(" ")[2])
        if name.endswith("_bucket"):  # cumulative
            base = name.removesuffix("_bucket")
            assert value >= last.get(base, 0.0) or 'le="0' in remainder
            last[base] = value
        elif name.endswith("_count"):
            assert value == last[name.removesuffix("_count")]
    first = f"{engine}:time_to_first_token_seconds"
    assert f"{first}_count" in text
    total = next(line for line in text.splitlines() if line.startswith(f"{first}_sum"))
    assert float(total.rpartition(" ")[2]) == pytest.approx(0.030)


def test_an_engine_without_names_is_an_error_that_lists_those_with() -> None:
    with pytest.raises(SilicastError, match="not known") as caught:
        metric_names("orca")
    assert "vllm" in caught.value.hint
