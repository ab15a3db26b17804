"""Kernel by kernel: PyTorch's profiler, Nsight Systems, Nsight Compute, plain tables."""

from __future__ import annotations

import gzip
import json
import math
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from silicast.formats.source import Source
from silicast.measurement.importers.importer import FileReading, Options, importer_of
from silicast.measurement.records.records import CollectiveRow, HostRow, KernelRow, UnreadRow
from silicast.scenario.kernels.kernel_case import kernel_case
from tests.unit.measurement.importers import samples as s


def read(path: Path, expected: str, **options: Any) -> FileReading:
    """A file through the importer that recognises it, which must be the one expected."""
    source = Source(path)
    importer = importer_of(source)
    assert importer.name == expected
    return importer.read(source, Options(**options))


def kernels(reading: FileReading) -> list[KernelRow]:
    return [row for row in reading.records if isinstance(row, KernelRow)]


def assert_nothing_lost(reading: FileReading, total_us: float, launches: int) -> None:
    """All time and all launches of the file are in rows or listed."""
    assert reading.total_us == pytest.approx(total_us, rel=1e-9)
    listed = math.fsum(row.total_us for row in reading.rejected)
    assert reading.understood_us + listed == pytest.approx(total_us, rel=1e-9)
    count = sum(row.count for row in reading.rejected)
    for row in reading.records:
        if isinstance(row, KernelRow | CollectiveRow):
            count += row.spread.repeats if row.spread else 1
    assert count == launches


class TestKineto:
    def test_kernels_get_the_sizes_of_their_operators(self, tmp_path: Path) -> None:
        reading = read(s.written(tmp_path, "t.json", s.gpu_trace()), "kineto")
        rows = {row.kernel["op"]: row for row in kernels(reading)}
        assert rows["gemm"].kernel == {"op": "gemm", "m": 8, "n": 32, "k": 64, "dtype": "bf16"}
        assert rows["gemm"].latency_us == pytest.approx((5.0 + 8.5) / 2)  # 7.0 with its reduction
        assert rows["gemm"].spread is not None
        assert rows["gemm"].spread.repeats == 2
        assert rows["elementwise"].kernel == {
            "op": "elementwise", "kind": "add", "inputs": 2, "elements": 256, "dtype": "bf16"
        }  # fmt: skip
        attention = rows["attention_prefill"].kernel
        assert attention["causal"] is True
        assert (attention["variant"], attention["library"]) == ("sdpa_flash", "fa2")
        for row in rows.values():
            kernel_case(row.kernel)

    def test_the_device_is_found_in_the_catalog(self, tmp_path: Path) -> None:
        reading = read(s.written(tmp_path, "t.json", s.gpu_trace()), "kineto")
        assert reading.session.device == "H100-SXM-80GB"
        assert reading.session.device_reported == s.H100

    def test_nothing_is_lost(self, tmp_path: Path) -> None:
        trace = s.gpu_trace()
        reading = read(s.written(tmp_path, "t.json", trace), "kineto")
        on_device = [
            e for e in trace["traceEvents"] if e.get("cat", "").startswith(("kernel", "gpu_"))
        ]
        # the reduction belongs to the product's launch
        assert_nothing_lost(reading, sum(e["dur"] for e in on_device), len(on_device) - 1)

    def test_a_graphs_kernels_have_no_sizes(self, tmp_path: Path) -> None:
        events = s.gpu_trace()["traceEvents"]
        for event in events:  # the replay happens inside an operator that is understood
            if event.get("args", {}).get("correlation") == 110:
                event["args"]["External id"] = 2
        reading = read(s.written(tmp_path, "t.json", s.kineto(events)), "kineto")
        gemm = next(row for row in kernels(reading) if row.kernel["op"] == "gemm")
        assert gemm.spread is not None
        assert gemm.spread.repeats == 2
        assert any(row.name == s.GEMM and row.total_us == 4.5 for row in reading.rejected)

    def test_what_is_unread_says_its_family(self, tmp_path: Path) -> None:
        reading = read(s.written(tmp_path, "t.json", s.gpu_trace()), "kineto")
        reasons = {row.name: row.reason for row in reading.rejected}
        assert reasons[s.GEMM].startswith("gemm (bf16 cublas 128x128)")
        assert "aten::sort: sort" in reasons["void at::native::radixSortKVInPlace<2>"]
        assert reasons["somebody_elses"] == "no kernel that is known by its name"

    def test_a_collective_has_the_size_that_nccl_tests_counts(self, tmp_path: Path) -> None:
        reading = read(s.written(tmp_path, "t.json", s.gpu_trace()), "kineto")
        (row,) = [row for row in reading.records if isinstance(row, CollectiveRow)]
        assert row.collective == {
            "op": "all_reduce", "bytes": 8192, "gpus": 8, "dtype": "bf16",
            "implementation": "nccl",
        }  # fmt: skip
        assert row.flags == ["waits"]

    def test_packed(self, tmp_path: Path) -> None:
        raw = json.dumps(s.gpu_trace()).encode()
        packed = read(s.written(tmp_path, "a.pt.trace.json.gz", gzip.compress(raw)), "kineto")
        plain = read(s.written(tmp_path, "a.json", raw), "kineto")
        assert packed.records == plain.records

    def test_tf32_is_seen_by_the_kernels_name(self, tmp_path: Path) -> None:
        events = [
            s.cpu_op(1, "aten::mm", 0, 9, [[8, 64], [64, 32]], ["float", "float"]),
            s.on_device("cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4", 5, 3.0, 1),
        ]
        reading = read(s.written(tmp_path, "t.json", s.kineto(events)), "kineto")
        assert kernels(reading)[0].kernel["dtype"] == "tf32"

    def test_host_times_are_medians_of_calls(self, tmp_path: Path) -> None:
        events = s.gpu_trace()["traceEvents"]
        events += [s.runtime("cudaLaunchKernel", 1000 + 20 * i, 5.0, 500 + i) for i in range(20)]
        reading = read(s.written(tmp_path, "t.json", s.kineto(events)), "kineto")
        hosts = {row.quantity: row for row in reading.records if isinstance(row, HostRow)}
        assert reading.session.machine["launch_call_us"] == 5.0
        assert hosts["dispatch"].value_us == 20.0
        assert hosts["dispatch"].flags == ["profiled"]
        assert "graph_launch" not in hosts  # one call is no median

    def test_different_devices_are_refused(self, tmp_path: Path) -> None:
        events = s.gpu_trace()["traceEvents"]
        events.append(s.on_device(s.GEMM, 400, 5.0, more={"device": 1}))
        trace = s.kineto(events, (s.H100, "NVIDIA A100-SXM4-80GB"))
        with pytest.raises(Exception, match="different devices"):
            read(s.written(tmp_path, "t.json", trace), "kineto")

    def test_events_without_arguments(self, tmp_path: Path) -> None:
        events = s.gpu_trace()["traceEvents"]
        bare = [s.on_device(s.GEMM, 400, 2.0) | {"args": None}, s.on_device(s.GEMM, 410, 2.0)]
        del bare[1]["args"]
        reading = read(s.written(tmp_path, "t.json", s.kineto(events + bare)), "kineto")
        assert reading.session.devices == 1
        assert any(row.name == s.GEMM and row.total_us == 8.5 for row in reading.rejected)

    def test_without_shapes_all_is_listed(self, tmp_path: Path) -> None:
        events = [s.cpu_op(1, "aten::mm", 0, 9), s.on_device(s.GEMM, 5, 3.0, 1)]
        reading = read(s.written(tmp_path, "t.json", s.kineto(events)), "kineto")
        assert kernels(reading) == []
        assert reading.rejected[0].total_us == 3.0

    @pytest.mark.parametrize(
        ("name", "dims", "types", "values", "reason"),
        [
            ("aten::mm", [[0, 64], [64, 32]], ["float"] * 2, [], "works on nothing"),
            ("aten::add", [[8, 64], [8, 64]], ["long int"] * 2, [], "long int"),
            ("aten::add", [[8, 1], [1, 8]], ["float"] * 2, [], "broadcast"),
            ("aten::_softmax", [[8, 64, 2], [], []], ["float", "Scalar", "Scalar"],
             ["", "1", "False"], "another axis"),
            ("aten::cat", [[[8, 64], [8, 64]], []], ["TensorList", "Scalar"], ["", "0"],
             "no kernel model"),
            ("aten::copy_", [[8, 64], [8, 64]], ["float", "c10::Half"], [], "cast"),
            ("aten::copy_", [[], []], ["float", "double"], [], "on scalars"),
        ],
    )  # fmt: skip
    def test_operators_that_are_no_kernel_say_why(
        self, tmp_path: Path, name: str, dims: Any, types: Any, values: Any, reason: str
    ) -> None:
        events = [s.cpu_op(1, name, 0, 9, dims, types, values)]
        reading = read(s.written(tmp_path, "t.json", s.kineto(events)), "kineto")
        assert kernels(reading) == []
        assert reason in reading.rejected[0].reason

    @pytest.mark.parametrize(
        ("name", "strides", "count"),
        [
            ("aten::copy_", [[64, 1], [64, 1]], 1),
            ("aten::copy_", [[64, 1], [1, 8]], 0),  # a transposition
            ("aten::copy_", [[1, 8], [1, 8]], 1),  # both transposed: a plain stream
            ("aten::add", [[1, 8], [1, 8]], 1),
            ("aten::add", [[128, 1], [128, 1]], 0),  # with gaps
            ("aten::add", [[64, 1], [1, 8]], 0),
            ("aten::relu", [[1, 8]], 1),
            ("aten::clone", [[1, 8]], 0),
        ],
    )
    def test_a_plain_stream_has_one_order_and_no_gaps(
        self, tmp_path: Path, name: str, strides: Any, count: int
    ) -> None:
        dims = [[8, 64]] * len(strides)
        events = [s.cpu_op(1, name, 0, 9, dims, ["float"] * len(dims), [], strides)]
        reading = read(s.written(tmp_path, "t.json", s.kineto(events)), "kineto")
        assert len(kernels(reading)) == count

    def test_a_convolution(self, tmp_path: Path) -> None:
        values = ["", "", "", "[2, 2]", "[3, 3]", "[1, 1]", "False", "[0, 0]", "1"]
        dims = [[4, 3, 224, 224], [64, 3, 7, 7], [], [], [], [], [], [], []]
        types = [s.BF16, s.BF16, "", *["ScalarList"] * 3, "Scalar", "ScalarList", "Scalar"]
        events = [s.cpu_op(1, "aten::convolution", 0, 9, dims, types, values)]
        reading = read(s.written(tmp_path, "t.json", s.kineto(events)), "kineto")
        table = kernels(reading)[0].kernel
        assert (table["kernel"], table["stride"], table["padding"]) == (7, 2, 3)
        assert (table["batch"], table["in_channels"], table["out_channels"]) == (4, 3, 64)

    def test_decoding_attention_counts_the_cached_tokens(self, tmp_path: Path) -> None:
        dims = [[4, 32, 1, 128], [4, 8, 1000, 128], [4, 8, 1000, 128], [], []]
        types, values = [s.BF16] * 3 + ["Scalar"] * 2, ["", "", "", "0.", "False"]
        name = "aten::_scaled_dot_product_flash_attention"
        events = [s.cpu_op(1, name, 0, 9, dims, types, values), s.on_device(s.FLASH, 5, 3.0, 1)]
        reading = read(s.written(tmp_path, "t.json", s.kineto(events)), "kineto")
        table = kernels(reading)[0].kernel
        assert (table["op"], table["kv_len"], table["num_kv_heads"]) == ("attention_decode", 999, 8)

    @pytest.mark.parametrize(
        ("name", "dims", "values", "table"),
        [
            ("_C::fused_add_rms_norm", [[7, 64], [7, 64], [64], []], [],
             {"op": "rmsnorm", "tokens": 7, "hidden": 64, "residual": True}),
            ("sgl_kernel::rmsnorm", [[7, 64], [7, 64], [64], []], [],
             {"op": "rmsnorm", "tokens": 7, "hidden": 64}),
            ("_C::silu_and_mul", [[7, 64], [7, 128]], [],
             {"op": "silu_mul", "tokens": 7, "width": 128}),
            ("_C::rotary_embedding", [[7], [7, 1024], [7, 256], [], [4096, 128]],
             ["", "", "", "128", ""],
             {"op": "rope", "tokens": 7, "num_heads": 8, "num_kv_heads": 2, "head_dim": 128}),
            ("_C_cache_ops::reshape_and_cache_flash", [[7, 2, 128]] * 2, [],
             {"op": "kv_copy", "tokens": 7, "num_kv_heads": 2, "head_dim": 128}),
            ("flash_attn::_flash_attn_forward", [[2, 9, 8, 64], *[[2, 12, 4, 64]] * 2, [], [], []],
             ["", "", "", "0.", "0.125", "True", "-1"],
             {"op": "attention_prefill", "q_len": 9, "kv_len": 12, "batch": 2, "num_heads": 8,
              "num_kv_heads": 4, "head_dim": 64, "causal": True}),
        ],
    )  # fmt: skip
    def test_operators_of_engines(
        self, tmp_path: Path, name: str, dims: Any, values: Any, table: dict[str, Any]
    ) -> None:
        types = [s.BF16 if shape else "Scalar" for shape in dims]
        events = [s.cpu_op(1, name, 0, 9, dims, types, values), s.on_device("k", 5, 3.0, 1)]
        reading = read(s.written(tmp_path, "t.json", s.kineto(events)), "kineto")
        library = {"sgl_kernel": "sglang", "flash_attn": "fa2"}.get(name.partition("::")[0], "vllm")
        assert kernels(reading)[0].kernel == {**table, "dtype": "bf16", "library": library}

    def test_operators_of_a_cpu_share_their_time(self, tmp_path: Path) -> None:
        events = [
            s.cpu_op(1, "aten::linear", 0, 100, [[8, 64], [32, 64], []], ["float", "float", ""]),
            s.cpu_op(2, "aten::addmm", 10, 80, [[32], [8, 64], [64, 32]], ["float"] * 3),
            s.cpu_op(3, "aten::expand", 12, 5, [[32], [], []], ["float", "", ""]),
            s.cpu_op(4, "aten::copy_", 20, 10, [[8, 32], [8, 32]], ["float"] * 2),
        ]
        reading = read(s.written(tmp_path, "t.json", s.kineto(events, ())), "kineto")
        rows = {row.kernel["op"]: row for row in kernels(reading)}
        assert rows["gemm"].latency_us == 70.0  # its own and the view's, not the copy's
        assert rows["gemm"].kernel["library"] == "torch"
        assert rows["elementwise"].latency_us == 10.0
        assert [(row.name, row.total_us) for row in reading.rejected] == [("aten::linear", 20.0)]
        assert reading.total_us == 100.0


class TestNsight:
    def test_a_database_with_ranges(self, tmp_path: Path) -> None:
        reading = read(s.nsys(tmp_path / "r.sqlite"), "nsys")
        rows = {row.kernel["op"]: row for row in kernels(reading)}
        assert rows["gemm"].kernel == {"op": "gemm", "m": 8, "n": 32, "k": 64, "dtype": "bf16"}
        assert rows["gemm"].latency_us == 5.0
        assert rows["elementwise"].kernel["elements"] == 256
        assert reading.session.stack == {"nsys": "2025.1.1"}
        assert reading.session.device == "H100-SXM-80GB"
        total = sum(end - start for _, start, end, _, _ in s.NSYS_KERNELS) / 1e3 + 1.5
        assert_nothing_lost(reading, total, len(s.NSYS_KERNELS) + 1)

    def test_processes_number_their_calls_by_themselves(self, tmp_path: Path) -> None:
        path = s.nsys(tmp_path / "r.sqlite")
        with closing(sqlite3.connect(path)) as base:  # another process's
            base.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN globalPid INTEGER")
            base.execute(f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = {7 << 24}")
            base.commit()
        assert kernels(read(path, "nsys")) == []
        with closing(sqlite3.connect(path)) as base:
            for table in ("CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"):
                base.execute(f"UPDATE {table} SET globalTid = globalTid + {7 << 24}")
            base.commit()
        assert len(kernels(read(path, "nsys"))) == 2

    def test_launches_are_host_times(self, tmp_path: Path) -> None:
        reading = read(s.nsys(tmp_path / "r.sqlite"), "nsys")
        hosts = {row.quantity: row for row in reading.records if isinstance(row, HostRow)}
        assert reading.session.machine["launch_call_us"] == pytest.approx(0.25)
        assert hosts["dispatch"].value_us == pytest.approx(0.9)

    def test_without_ranges_all_is_listed(self, tmp_path: Path) -> None:
        reading = read(s.nsys(tmp_path / "r.sqlite", nvtx=False), "nsys")
        assert kernels(reading) == []
        assert len(reading.rejected) == 5
        assert any("emit_nvtx" in note for note in reading.notes)

    def test_different_devices_are_refused(self, tmp_path: Path) -> None:
        path = s.nsys(tmp_path / "r.sqlite", devices=(s.H100, "NVIDIA L4"))
        with pytest.raises(Exception, match="different devices"):
            read(path, "nsys")

    @pytest.mark.parametrize(
        ("text", "total", "launches"), [(s.NSYS_TRACE, 8.5, 3), (s.NSYS_SUM, 10.0, 3)]
    )
    def test_csv_lists_all(self, tmp_path: Path, text: str, total: float, launches: int) -> None:
        reading = read(s.written(tmp_path, "x", "Processing [r.sqlite] ...\n\n" + text), "nsys-csv")
        assert_nothing_lost(reading, total, launches)
        assert {type(row) for row in reading.records} == {UnreadRow}

    def test_compute_pages(self, tmp_path: Path) -> None:
        raw = read(s.written(tmp_path, "x", s.NCU_RAW), "ncu")
        (row,) = kernels(raw)
        assert row.kernel["op"] == "gemm"
        assert (row.kernel["cache"], row.latency_us) == ("cold", 5.5)
        assert_nothing_lost(raw, 1008.0, 2)
        assert raw.session.device == "H100-SXM-80GB"
        assert_nothing_lost(read(s.written(tmp_path, "y", s.NCU_DETAILS), "ncu"), 13.0, 2)


class TestTables:
    def test_csv_and_lines_give_the_same_rows(self, tmp_path: Path) -> None:
        text = (
            "op,m,n,k,dtype,latency_us\ngemm,8,32,64,bf16,5\ngemm,8,32,64,bf16,7\nnone,1,1,1,,2\n"
        )
        lines = (
            '{"op":"gemm","m":8,"n":32,"k":64,"dtype":"bf16","latency_ms":0.005}\n'
            '{"op":"gemm","m":8.0,"n":32,"k":64,"dtype":"bf16","latency_ms":0.007}\n'
            '{"op":"none","m":1,"n":1,"k":1,"latency_ms":0.002}\n'
        )
        first = read(s.written(tmp_path, "x.txt", text), "table")
        second = read(s.written(tmp_path, "y.txt", lines), "table")
        assert [row.kernel for row in kernels(first)] == [row.kernel for row in kernels(second)]
        assert_nothing_lost(first, 14.0, 3)
        assert_nothing_lost(second, 14.0, 3)
        assert "unknown op" in first.rejected[0].reason

    def test_what_rows_have_in_common_is_stated(self, tmp_path: Path) -> None:
        path = s.written(tmp_path, "x.csv", "m,n,k,seconds\n8,32,64,5e-6\n")
        reading = read(path, "table", fields={"kernel.op": "gemm", "kernel.dtype": "fp16"})
        assert kernels(reading)[0].kernel == {
            "m": 8,
            "n": 32,
            "k": 64,
            "op": "gemm",
            "dtype": "fp16",
        }
        assert kernels(reading)[0].latency_us == pytest.approx(5.0)

    def test_parquet(self, tmp_path: Path) -> None:
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet as pq

        columns = {"op": ["gemm"], "m": [8], "n": [32], "k": [64], "latency_us": [5.0]}
        pq.write_table(pa.table(columns), tmp_path / "x.dat")
        reading = read(tmp_path / "x.dat", "table")
        assert kernels(reading)[0].latency_us == 5.0


def test_a_step_of_training(tmp_path: Path) -> None:
    """Operators of autograd launch kernels of known sizes; collectives come with theirs; what
    overlaps on another stream loses nothing.
    """
    bf16 = s.BF16
    names = {
        "AllGather": "_allgather_base", "AllReduce": "allreduce_coalesced",
        "ReduceScatter": "_reduce_scatter_base",
    }  # fmt: skip

    def nccl(name: str, start: float, given: int, got: int) -> dict[str, Any]:
        return s.on_device(
            f"ncclDevKernel_{name}_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", start, 40.0,
            more={"In msg nelems": given, "Out msg nelems": got, "Group size": 4,
                  "dtype": "BFloat16", "stream": 20,
                  "Collective name": names[name]},
        )  # fmt: skip

    events = [
        s.cpu_op(1, "aten::mm", 0, 20, [[8, 64], [64, 32]], [bf16, bf16]),
        s.cpu_op(2, "autograd::engine::evaluate_function: MmBackward0", 30, 60),
        s.cpu_op(3, "MmBackward0", 32, 55),
        s.cpu_op(4, "aten::mm", 35, 20, [[64, 8], [8, 32]], [bf16, bf16]),
        s.cpu_op(5, "aten::mm", 60, 20, [[8, 32], [32, 64]], [bf16, bf16]),
        s.on_device(s.GEMM, 100, 5.0, 1, 101), s.on_device(s.GEMM, 110, 7.0, 4, 102),
        s.on_device(s.GEMM, 120, 9.0, 5, 103), nccl("AllGather", 100, 1 << 20, 1 << 22),
        nccl("ReduceScatter", 140, 1 << 22, 1 << 20), nccl("AllReduce", 180, 4096, 4096),
    ]  # fmt: skip
    result = read(s.written(tmp_path, "t.json", s.kineto(events)), "kineto")
    assert_nothing_lost(result, 141.0, 6)
    sizes = {(r.kernel["m"], r.kernel["n"], r.kernel["k"]): r.latency_us for r in kernels(result)}
    assert sizes == {(8, 32, 64): 5.0, (64, 32, 8): 7.0, (8, 64, 32): 9.0}
    calls = [row for row in result.records if isinstance(row, CollectiveRow)]
    assert {tuple(row.collective[name] for name in ("op", "bytes", "gpus")) for row in calls} == {
        ("all_gather", 1 << 23, 4), ("reduce_scatter", 1 << 23, 4), ("all_reduce", 8192, 4),
    }  # fmt: skip
    assert result.rejected == ()
