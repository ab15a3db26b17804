"""Every kind of file refuses a misspelt field by its name, with the nearest one and its page."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.accelerator.design.architecture_file import read_design
from silicast.composition.engines.engine import load_engine_file
from silicast.core.calibration import load_calibration
from silicast.core.catalog import CATALOG
from silicast.core.compiled import PAGES
from silicast.core.decode import read_table
from silicast.core.errors import SilicastError
from silicast.distributed.search.search_file import SearchFile
from silicast.exploration.space_file import read_space
from silicast.hardware.catalog import load_device_file
from silicast.measurement.records.records import read_measurements
from silicast.measurement.trials.tuning_trials import FILE, read_trials
from silicast.scenario.decode import load
from silicast.workload.graphs.op_graph import read_graph_file
from silicast.workload.libraries.library_file import Library
from silicast.workload.models.lookup import model_from

ROOT = Path(__file__).resolve().parents[2]


class Kind(NamedTuple):
    """A kind of file: a valid one, how it is read, the page that describes it.

    Attributes:
        fields: of the text, to be misspelt; each long enough for one letter to be wrong.
    """

    name: str
    text: str
    read: Callable[[Path], Any]
    page: str
    fields: tuple[str, ...]


def catalog(path: str) -> str:
    return (CATALOG / path).read_text(encoding="utf-8")


SCENARIO = """
task = "serving"
device = "h100"
model = "Llama-3.1-8B"
[limits]
power_w = 300.0
[workload]
input_len = 64
output_len = 8
requests = 4
[workload.arrival]
kind = "closed"
concurrency = 2
"""
SPACE = """
base = "systolic-128"
[[parameter]]
name = "side"
paths = ["level.array.mesh"]
values = [64, 128]
[[objective]]
metric = "energy_pj"
reference = 1e12
"""
MODEL = '{"base": "Llama-3.1-8B", "layers": 3, "precision": {"weights": "fp8"}}'
GRAPH = """{"format": 1, "nodes": [{"name": "a", "op": "gemm", "dtype": "bf16",
 "dims": {"m": 8, "n": 8, "k": 8}, "output_bytes": 128}]}"""
CALIBRATION = """{"format": 5, "scope": {"device": "h100"}, "created": "today", "offsets": [
 {"family": "gemm", "log_offset": 0.1, "log_sd": 0.1, "rows": 3}]}"""
SESSION = """{"record": "session", "id": "a", "started": "", "device": "h100",
 "device_reported": "", "stack": {}, "machine": {}, "protocol": {"timer": "cuda_event"}}""".replace(
    "\n", ""
)
SEARCH = """{"kind": "search of plans", "format": 1, "inputs": {}, "plans": {
 "tp2": {"step_ps": 3, "parts_ps": {}}}}"""
TRIAL = '{"file": "a", "tokens": 1, "configuration": {}, "predicted_us": 1.0, "measured_us": 1.0}\n'

KINDS = [
    Kind(
        "scenario", SCENARIO, load, "docs/reference/scenario.md",
        ("device", "power_w", "output_len", "requests", "concurrency", "arrival"),
    ),
    Kind(
        "device", catalog("devices/nvidia-h100-sxm-80gb.toml"), load_device_file,
        "docs/reference/devices.md", ("vendor", "boost_mhz", "cap_w", "scope", "latency_ns"),
    ),
    Kind(
        "design", catalog("designs/systolic-128.toml"), read_design,
        "docs/how-to/design-an-accelerator.md", ("block_words", "clock_mhz", "capacity_kib"),
    ),
    Kind(
        "space", SPACE, read_space, "docs/how-to/search-designs.md",
        ("parameter", "values", "objective", "metric", "reference"),
    ),
    Kind(
        "model", MODEL, lambda path: model_from(str(path)), "docs/reference/models.md",
        ("layers", "precision", "weights"),
    ),
    Kind("graph", GRAPH, read_graph_file, "docs/reference/op-graph.md", ("nodes", "output_bytes")),
    Kind(
        "engine", catalog("engines/vllm.toml"), load_engine_file, PAGES["engines"],
        ("collectives", "dispatch_us", "framework_gb", "prefix_caching"),
    ),
    Kind(
        "library", catalog("libraries/liger.toml"),
        lambda path: read_table(path, Library, PAGES["libraries"]), PAGES["libraries"],
        ("about", "sources"),
    ),
    Kind(
        "calibration", CALIBRATION, load_calibration, "docs/explanation/calibration.md",
        ("scope", "created", "offsets", "log_offset", "family"),
    ),
    Kind(
        "measurements", SESSION + "\n", read_measurements, "docs/how-to/measure-a-machine.md",
        ("started", "machine", "protocol", "timer"),
    ),
    Kind(
        "search", SEARCH, lambda path: SearchFile.open(path, {}), "docs/how-to/predict-training.md",
        ("format", "inputs", "plans", "step_ps", "parts_ps"),
    ),
    Kind(
        "trials", TRIAL * 2, read_trials, "docs/how-to/tune-a-kernel.md",
        ("tokens", "configuration", "measured_us"),
    ),
]  # fmt: skip


@st.composite
def misspelt(draw: st.DrawFn) -> tuple[Kind, str, str]:
    """A kind of file, a field of it, and the field with one letter missing, twice or moved."""
    kind = draw(st.sampled_from(KINDS))
    field = draw(st.sampled_from(kind.fields))
    position = draw(st.integers(1, len(field) - 2))
    letters = field[position : position + 2]
    changed = draw(st.sampled_from([letters[0], letters[0] + letters, letters[::-1]]))
    wrong = field[:position] + changed + field[position + 2 :]
    return kind, field, wrong if wrong != field else f"{field}x"


@given(misspelt())
def test_a_misspelt_field_is_named_with_the_nearest_and_the_page(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[Kind, str, str]
) -> None:
    kind, field, wrong = case
    text, count = re.subn(rf"(?<![\w-]){field}(?=\"\s*:|\s*=|\])", wrong, kind.text, count=1)
    assert count == 1, f"{field} is not in the sample of {kind.name}"
    folder = tmp_path_factory.mktemp("refusal")
    path = folder / (FILE if kind.name == "trials" else _file_name(kind))
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SilicastError) as caught:
        kind.read(path)
    error = caught.value
    assert error.file == str(path)
    assert error.field.rpartition(".")[2] == wrong
    assert f"unknown field {wrong!r}" in error.message
    assert re.search(rf"did you mean [\w ]*\b{field}\b", error.hint), error.hint
    assert f"{kind.page} describes every field" in error.hint


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_sample_is_read_and_its_page_is_there(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / (FILE if kind.name == "trials" else _file_name(kind))
    path.write_text(kind.text, encoding="utf-8")
    assert kind.read(path) is not None
    assert (ROOT / kind.page).is_file()


def _file_name(kind: Kind) -> str:
    is_json = kind.text.lstrip().startswith("{")
    return f"mine.json{'l' if kind.name == 'measurements' else ''}" if is_json else "mine.toml"
