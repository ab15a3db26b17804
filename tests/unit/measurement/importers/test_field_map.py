"""Field maps, profilers' tables and patterns of kernel names: data that describe other tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.formats.source import Source
from silicast.measurement.importers import kernel_names
from silicast.measurement.importers.field_map import FieldMap, Result
from silicast.measurement.importers.importer import Options, from_catalog, importer_of, importers
from silicast.measurement.records.records import RunRow
from tests.unit.measurement.importers import samples as s

MAP = """
tool = "MyBench"
reads = "MyBench: report.json"
files = [{ kind = "json", holds = ["mybench_version"] }]
[fields]
model = ["config.model", "config.models.*.name"]
engine = "config.backend"
requests = "done"
concurrency = "config.phases.*.clients"
input_len = "in"
output_len = "out"
[only_if]
engine = { "config.kind" = "local*" }
[skipped]
name = "warmup"
[means_ms]
ttft = "mean_ttft_ms"
[latencies]
ttft = "ttft.{statistic}"
e2e = "e2e.{statistic}"
[engines]
vllm = "vllm"
"""
RESULT: dict[str, Any] = {
    "mybench_version": 1, "done": 10, "in": 100, "out": 20, "mean_ttft_ms": 50.0,
    "config": {"models": [{"name": "Llama-3.1-8B"}], "backend": "vllm-serve", "kind": "local-1",
               "phases": {"warmup": {"clients": 1}, "run": {"clients": 4}}},
    "ttft": {"average": 0.05, "p50": 0.04, "p95": 0.09},
    "e2e": {"unit": "s", "p90": "1,200.5"},
}  # fmt: skip


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's own catalog."""
    monkeypatch.setenv("SILICAST_CATALOG", str(tmp_path / "catalog"))
    for folder in ("field_maps", "profiler_tables", "kernel_names"):
        (tmp_path / "catalog" / folder).mkdir(parents=True)
    importers.cache_clear()
    yield tmp_path / "catalog"
    importers.cache_clear()
    kernel_names._patterns.cache_clear()
    kernel_names.parse_name.cache_clear()


def test_a_users_own_tool_is_one_file(catalog: Path) -> None:
    (catalog / "field_maps" / "mybench.toml").write_text(MAP)
    source = Source(s.written(catalog, "x", RESULT))
    reader = importer_of(source)
    assert reader.name == "mybench"
    (row,) = reader.read(source, Options("h100")).records
    assert isinstance(row, RunRow)
    assert row.scenario["workload"]["arrival"] == {"kind": "closed", "concurrency": 4}
    assert (row.scenario["model"], row.scenario["engine"]) == ("Llama-3.1-8B", {"name": "vllm"})
    assert row.metrics == {
        "ttft_mean_ms": 50.0, "ttft_p50_ms": 40.0, "ttft_p95_ms": 90.0, "e2e_p90_ms": 1_200_500.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("requests =", "request =", "request"),
        ('reads = "MyBench: report.json"', "", "reads"),
        ("[latencies]", "[latency]", "latency"),
        ('kind = "json"', 'kind = "xml"', "xml"),
        ("[fields]", "[fields", "not valid TOML"),
    ],
)
def test_a_map_of_another_form_is_named(catalog: Path, old: str, new: str, said: str) -> None:
    path = catalog / "field_maps" / "mybench.toml"
    path.write_text(MAP.replace(old, new))
    with pytest.raises(SilicastError) as caught:
        from_catalog("field_maps", FieldMap)
    assert caught.value.file == str(path)
    assert said in str(caught.value)


def test_a_field_holds_one_value_or_none() -> None:
    import msgspec

    field_map = msgspec.toml.decode(MAP, type=FieldMap)
    two = {**RESULT["config"], "models": [{"name": "a"}, {"name": "b"}], "kind": "remote"}
    result = Result(field_map, {**RESULT, "config": two})
    assert result.text("model") == ""
    assert result.text("engine") == ""  # only_if
    assert result.count("requests") == 10
    assert Result(field_map, {"done": float("inf")}).count("requests") == 0


def test_a_profilers_table_is_one_file(catalog: Path) -> None:
    (catalog / "profiler_tables" / "rocprof.toml").write_text(
        'tool = "rocprof"\nreads = "rocprof: CSV"\nnote = "n"\nrecord = "r"\n'
        'protocol = { timer = "rocprof" }\n'
        '[[tables]]\nheader = ["Kernel", "Took (*"]\nname = "Kernel"\ntime = "Took (*"\n'
    )
    source = Source(s.written(catalog, "x", "Kernel,Took (us)\nCijk_gemm,5\nx,2.5\n"))
    reading = importer_of(source).read(source, Options())
    assert (reading.session.source, reading.total_us) == ("rocprof", 7.5)


def test_patterns_of_names_can_be_added(catalog: Path) -> None:
    path = catalog / "kernel_names" / "mine.toml"
    path.write_text('rules = [["gemm", "rocblas", \'^Cijk_\']]\n')
    kernel_names._patterns.cache_clear()
    kernel_names.parse_name.cache_clear()
    assert kernel_names.parse_name("Cijk_Alik").library == "rocblas"
    path.write_text('rules = [["gemm", "rocblas", \'(\']]\n')
    kernel_names._patterns.cache_clear()
    with pytest.raises(SilicastError, match="no pattern"):
        kernel_names.parse_name("somebody_elses")


def test_a_run_that_failed_whole_is_listed(tmp_path: Path) -> None:
    text = "\n".join(json.dumps(each) for each in (s.VLLM, {**s.VLLM, "completed": 0}))
    source = Source(s.written(tmp_path, "x", text))
    reading = importer_of(source).read(source, Options("h100"))
    assert [(row.count, row.reason) for row in reading.rejected] == [
        (0, "no request was completed")
    ]
