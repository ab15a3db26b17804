"""Imports lose no time and no launch, and refuse what they cannot read in one way only."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.core.errors import SilicastError
from silicast.formats.source import Source
from silicast.measurement.importers.importer import Options, importer_of, importers
from silicast.measurement.importers.kernel_names import parse_name, rejection_reason
from silicast.measurement.records.records import CollectiveRow, KernelRow
from silicast.scenario.kernels.kernel_case import kernel_case
from silicast.workload.libraries.catalog import library_names
from tests.sampling import examples
from tests.unit.measurement.importers import samples as s

SHAPES = st.lists(st.integers(0, 5000), max_size=5)
NAMES = st.sampled_from([
    "aten::mm", "aten::addmm", "aten::bmm", "aten::linear", "aten::add", "aten::mul_", "aten::pow",
    "aten::copy_", "aten::_softmax", "aten::native_layer_norm", "aten::convolution", "aten::relu",
    "aten::_scaled_dot_product_flash_attention", "aten::embedding", "aten::view", "aten::sort",
])  # fmt: skip
TYPES = st.sampled_from(["float", "c10::BFloat16", "long int", "Scalar", "", "ScalarList"])
VALUES = st.sampled_from(["", "1", "-1", "0.5", "True", "[1, 1]", "[512]", "junk", "[x]"])


@st.composite
def operators(draw: st.DrawFn, start: float, took: float, depth: int) -> list[dict[str, Any]]:
    """An operator and those in it, each within the time of the one around it."""
    count = draw(st.integers(0, 4))
    dims = [draw(SHAPES) for _ in range(count)]
    types = [draw(TYPES) for _ in range(count)]
    values = [draw(VALUES) for _ in range(count)]
    events = [s.cpu_op(draw(st.integers(1, 40)), draw(NAMES), start, took, dims, types, values)]
    parts = draw(st.integers(0, 3)) if depth else 0
    for part in range(parts):
        share = took / (parts + 1)
        events += draw(operators(start + part * share, share * 0.75, depth - 1))
    return events


@st.composite
def traces(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Trees of operators, one after the other."""
    count = draw(st.integers(1, 4))
    return [
        event
        for root in range(count)
        for event in draw(operators(1000.0 * root, float(draw(st.integers(1, 900))), 3))
    ]


LAUNCHES = st.lists(
    st.tuples(
        st.sampled_from([s.GEMM, s.ADD, s.FLASH, s.NCCL_KERNEL, "x", "Memcpy HtoD", ""]),
        st.floats(0, 1e6, allow_nan=False), st.integers(0, 40), st.integers(0, 5),
    ),
    min_size=1, max_size=25,
)  # fmt: skip


def imported(path: Path, events: list[dict[str, Any]]) -> Any:
    source = Source(s.written(path, "t.json", s.kineto(events)))
    return importer_of(source).read(source, Options())


def assert_kept(reading: Any, total: float) -> None:
    assert math.isclose(reading.total_us, total, rel_tol=1e-6, abs_tol=1e-3)
    listed = math.fsum(row.total_us for row in reading.rejected)
    assert math.isclose(reading.understood_us + listed, total, rel_tol=1e-6, abs_tol=1e-3)
    for row in reading.records:
        if isinstance(row, KernelRow):
            kernel_case(row.kernel)


@given(events=traces())
def test_operators_of_a_cpu_keep_their_time(
    tmp_path_factory: pytest.TempPathFactory, events: list[dict[str, Any]]
) -> None:
    roots = [event for event in events if event["ts"] % 1000 == 0]
    total = sum(
        event["dur"] for event in roots if event["dur"] == max(
            other["dur"] for other in roots if other["ts"] == event["ts"])
    )  # fmt: skip
    # an operator's first part may start with it: of the same start the longest is around the rest
    assert_kept(imported(tmp_path_factory.mktemp("t"), events), total)


@given(events=traces(), launches=LAUNCHES)
def test_kernels_keep_their_time(
    tmp_path_factory: pytest.TempPathFactory,
    events: list[dict[str, Any]],
    launches: list[tuple[str, float, int, int]],
) -> None:
    for name, took, number, correlation in launches:
        events.append(s.on_device(name, 10.0, took, number, correlation))
    events.append(s.runtime("cudaGraphLaunch", 0, 1, 1))
    reading = imported(tmp_path_factory.mktemp("t"), events)
    assert_kept(reading, math.fsum(took for _, took, _, _ in launches))
    count = sum(row.count for row in reading.rejected)
    for row in reading.records:
        if isinstance(row, KernelRow | CollectiveRow):
            count += row.spread.repeats if row.spread else 1
    assert count <= len(launches)


@given(name=st.text(max_size=80))
def test_any_name_is_a_kernels(name: str) -> None:
    assert parse_name(name).library in (*library_names().names, "")
    assert rejection_reason(name)


WHOLE = [
    ("t.json", json.dumps(s.gpu_trace())), ("b.json", json.dumps(s.VLLM)),
    ("g.json", json.dumps(s.GENAI)), ("a.json", json.dumps(s.AIPERF)),
    ("g.csv", s.GENAI_CSV), ("r.json", json.dumps(s.TRTLLM)), ("r.txt", s.TRTLLM_PRINT),
    ("s.jsonl", json.dumps(s.SGLANG)), ("n.txt", s.NCCL), ("c.csv", s.NCU_RAW),
    ("d.csv", s.NCU_DETAILS), ("e.csv", s.NSYS_TRACE), ("f.csv", s.NSYS_SUM),
    ("l.json", json.dumps(s.guidellm({"type_": "concurrent", "streams": 8}))),
    ("k.csv", "op,m,n,k,latency_us\ngemm,8,8,8,5\n"), ("m.md", s.LLAMA_BENCH),
    ("o.log", s.STEPS), ("p.txt", s.ONE_BATCH), ("q.txt", s.BATCH_LATENCY),
    *((f"{tool}.txt", text) for tool, text in s.OFFLINE.items()),
]  # fmt: skip


def test_every_file_has_one_importer_and_every_importer_a_file(tmp_path: Path) -> None:
    paths = [s.written(tmp_path, name, text) for name, text in WHOLE]
    paths.append(s.nsys(tmp_path / "r.sqlite"))
    paths.append(s.written(tmp_path, "run.0.et", ""))  # known by its name
    taken = set()
    for path in paths:
        items = [name for name, each in importers().items() if each.recognises(Source(path))]
        assert len(items) == 1, (path, items)
        taken |= set(items)
    assert taken == importers().keys()


@pytest.mark.parametrize(("name", "text"), WHOLE, ids=[name for name, _ in WHOLE])
@examples(40)
@given(place=st.floats(0, 1), cut=st.integers(0, 40), put=st.binary(max_size=12))
def test_a_damaged_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, text: str,
    place: float, cut: int, put: bytes,
) -> None:  # fmt: skip
    raw = text.encode()
    at = int(place * len(raw))
    path = s.written(tmp_path_factory.mktemp("t"), name, raw[:at] + put + raw[at + cut :])
    source = Source(path)
    with suppress(SilicastError):
        importer_of(source).read(source, Options("h100", {"model": "Llama-3.1-8B"}))
