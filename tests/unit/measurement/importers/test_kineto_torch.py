"""A trace that PyTorch's profiler makes here, on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="needs PyTorch: pip install silicast[torch]")

from silicast.formats.source import Source  # noqa: E402
from silicast.measurement.importers.importer import FileReading, Options, importer_of  # noqa: E402
from silicast.measurement.records.records import KernelRow  # noqa: E402
from silicast.scenario.kernels.kernel_case import kernel_case  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
RUNS = 3


def profiled(folder: Path, run: Any, name: str = "trace.json.gz") -> FileReading:
    from torch.profiler import ProfilerActivity, profile

    with torch.no_grad():
        run()
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
            for _ in range(RUNS):
                run()
    profiler.export_chrome_trace(str(folder / name))
    source = Source(folder / name)
    importer = importer_of(source)
    assert importer.name == "kineto"
    reading = importer.read(source, Options())
    top = sum(
        event.cpu_time_total
        for event in profiler.events()
        if event.cpu_parent is None and event.name.startswith("aten::")
    )
    assert reading.total_us == pytest.approx(top, rel=0.02, abs=2.0)
    listed = sum(row.total_us for row in reading.rejected)
    assert reading.understood_us + listed == pytest.approx(reading.total_us, rel=1e-6)
    return reading


def tables(reading: FileReading) -> list[dict[str, Any]]:
    """Kernels without their library; each was measured as often as it ran."""
    rows = [row for row in reading.records if isinstance(row, KernelRow)]
    for row in rows:
        assert row.spread is not None
        assert row.spread.repeats % RUNS == 0
        assert row.kernel["library"] == "torch"
        kernel_case(row.kernel)
    return [{k: v for k, v in row.kernel.items() if k != "library"} for row in rows]


def test_products(tmp_path: Path) -> None:
    layer = torch.nn.Linear(256, 128)
    x, batch = torch.randn(4, 16, 256), torch.randn(3, 8, 64)

    def run() -> None:
        layer(x)
        torch.bmm(batch, batch.transpose(1, 2))
        x[0] @ x[1].T

    result = tables(profiled(tmp_path, run))
    assert {"op": "gemm", "m": 64, "n": 128, "k": 256, "dtype": "fp32"} in result
    assert {"op": "gemm", "m": 8, "n": 8, "k": 64, "batch": 3, "dtype": "fp32"} in result
    assert {"op": "gemm", "m": 16, "n": 16, "k": 256, "dtype": "fp32"} in result


def test_rows_and_elements(tmp_path: Path) -> None:
    x, norm = torch.randn(32, 512), torch.nn.LayerNorm(512)
    table, tokens = torch.nn.Embedding(1000, 64), torch.arange(40)
    functional: Any = torch.nn.functional

    def run() -> None:
        functional.softmax(norm(x), dim=-1)
        functional.silu(x) * x
        x + 1.0
        table(tokens)

    result = tables(profiled(tmp_path, run))
    elements = {"op": "elementwise", "elements": 16384, "dtype": "fp32"}
    assert {"op": "layernorm", "tokens": 32, "hidden": 512, "dtype": "fp32"} in result
    assert {"op": "softmax", "rows": 32, "cols": 512, "dtype": "fp32"} in result
    assert {"op": "embedding", "tokens": 40, "hidden": 64, "vocab": 1000, "dtype": "fp32"} in result
    assert {**elements, "kind": "silu", "inputs": 1} in result
    assert {**elements, "kind": "mul", "inputs": 2} in result
    assert {**elements, "kind": "add", "inputs": 1} in result


def test_attention_and_convolution(tmp_path: Path) -> None:
    q, kv = torch.randn(2, 4, 32, 64), torch.randn(2, 4, 100, 64)
    conv, images = torch.nn.Conv2d(8, 16, 3, stride=2, padding=1), torch.randn(2, 8, 32, 32)
    attend: Any = torch.nn.functional.scaled_dot_product_attention

    def run() -> None:
        attend(q, q, q, is_causal=True)
        attend(q[:, :, :1], kv, kv)
        conv(images)

    entries = {table["op"]: table for table in tables(profiled(tmp_path, run))}
    assert entries["attention_prefill"]["causal"] is True
    assert entries["attention_prefill"]["q_len"] == 32
    assert entries["attention_decode"]["kv_len"] == 99
    convolution = entries["conv2d"]
    assert (convolution["stride"], convolution["padding"], convolution["kernel"]) == (2, 1, 3)
    assert (convolution["batch"], convolution["out_channels"], convolution["height"]) == (2, 16, 32)


def test_a_format_of_half_the_bits(tmp_path: Path) -> None:
    x = torch.randn(64, 64, dtype=torch.bfloat16)
    result = tables(profiled(tmp_path, lambda: x @ x, "plain.json"))
    assert {"op": "gemm", "m": 64, "n": 64, "k": 64, "dtype": "bf16"} in result
