"""Files that cannot be read are refused with the file, the field and what to do."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.formats.source import Source
from silicast.measurement.importers.importer import Options, importer_of, importers
from silicast.scenario.set_fields import with_fields
from tests.unit.measurement.importers import samples as s

DEEP = (
    b'{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [{"args": {"Input Dims": '
    + b"[" * 200_000
)


def refused(path: Path, name: str = "", **options: Any) -> SilicastError:
    source = Source(path, options.pop("max_bytes", 1 << 24))
    with pytest.raises(SilicastError) as caught:
        importer_of(source, name).read(source, Options(**options))
    assert caught.value.file == str(path)
    assert caught.value.field or caught.value.kind == "io"
    return caught.value


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert refused(tmp_path / "no").kind == "io"


def test_a_folder(tmp_path: Path) -> None:
    assert refused(tmp_path).kind == "io"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04....", "zip archive"),
        (b"\x00\x01\x02" * 100, "binary data"),
        (b'{"a": 1, "b": [2]}', "JSON"),
        (b"hello, world\n1,2\n", "a table with the columns hello, world"),
        (b"hello world\n1,2\n", "text of 2 lines"),
        (b'{"record":"session","id":"x"}\n', "file of measurements"),
        (b"\x1f\x8b\x08\x00garbage", "damaged gzip"),
    ],
)
def test_unknown_files_are_said_what_they_look_like(
    tmp_path: Path, content: bytes, said: str
) -> None:
    error = refused(s.written(tmp_path, "x", content))
    assert said in error.message


def test_a_format_that_is_forced_is_still_checked(tmp_path: Path) -> None:
    for name in importers():
        refused(s.written(tmp_path, "x", b"hello, world\n1,2\n"), name)
        refused(s.written(tmp_path, "y", b"[1, 2"), name)


def test_an_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(SilicastError, match="kineto"):
        importer_of(Source(s.written(tmp_path, "x", "a")), "nothing")


class TestKineto:
    def test_cut_off(self, tmp_path: Path) -> None:
        raw = json.dumps(s.gpu_trace()).encode()
        assert "not valid JSON" in refused(s.written(tmp_path, "x", raw[:-200])).message
        packed = gzip.compress(raw)
        assert "damaged gzip" in refused(s.written(tmp_path, "y", packed[:-20])).message

    def test_a_bomb_is_not_unpacked(self, tmp_path: Path) -> None:
        raw = json.dumps(s.kineto([])).encode() + b" " * (8 << 20)
        path = s.written(tmp_path, "x", gzip.compress(raw))
        assert path.stat().st_size < 20_000
        assert refused(path, max_bytes=1 << 20).kind == "limit"

    def test_deep_json(self, tmp_path: Path) -> None:
        assert refused(s.written(tmp_path, "x", DEEP)).kind == "limit"

    def test_text_that_is_no_utf8(self, tmp_path: Path) -> None:
        raw = json.dumps(s.gpu_trace()).encode().replace(b"somebody", b"some\xff\xfe!!")
        assert "not valid JSON" in refused(s.written(tmp_path, "x", raw)).message

    @pytest.mark.parametrize("took", [-1.0, 4e9, "soon"])
    def test_absurd_times(self, tmp_path: Path, took: Any) -> None:
        events = [s.on_device(s.GEMM, 0, 1.0) | {"dur": took}]
        error = refused(s.written(tmp_path, "x", s.kineto(events)))
        assert "traceEvents" in error.field or "row" in error.field

    @pytest.mark.parametrize("number", [[], {}, [1]])
    def test_a_correlation_that_is_no_number(self, tmp_path: Path, number: Any) -> None:
        trace = s.gpu_trace()
        for event in trace["traceEvents"]:
            if event.get("args", {}).get("correlation") == 104:
                event["args"]["correlation"] = number
        error = refused(s.written(tmp_path, "x", trace))
        assert error.field.endswith("args.correlation")
        error = refused(
            s.written(tmp_path, "y", {**s.gpu_trace(), "deviceProperties": [{"id": number}]})
        )
        assert error.field == "deviceProperties[0].id"

    def test_nothing_in_it(self, tmp_path: Path) -> None:
        error = refused(s.written(tmp_path, "x", s.kineto([])))
        assert "ProfilerActivity" in error.hint

    def test_another_kind_of_value(self, tmp_path: Path) -> None:
        trace = {**s.kineto([]), "traceEvents": {"a": 1}}
        assert refused(s.written(tmp_path, "x", trace)).field == "traceEvents"

    def test_another_device_than_stated(self, tmp_path: Path) -> None:
        error = refused(s.written(tmp_path, "x", s.gpu_trace()), device="a100")
        assert error.field == "--device"

    @pytest.mark.parametrize(
        "dims", [[["a", "b"], [3, 4]], [[1e99, 2], [2, 3]], "no", [[2], [3]], [None, [1]]]
    )
    def test_shapes_of_another_form_are_listed(self, tmp_path: Path, dims: Any) -> None:
        events = [
            s.cpu_op(1, "aten::mm", 0, 5, dims, ["float"] * 2),
            s.on_device(s.GEMM, 1, 2.0, 1),
        ]
        source = Source(s.written(tmp_path, "x", s.kineto(events)))
        reading = importer_of(source).read(source, Options())
        assert [row.total_us for row in reading.rejected] == [2.0]


class TestNsight:
    def test_a_database_of_another_tool(self, tmp_path: Path) -> None:
        with closing(sqlite3.connect(tmp_path / "x")) as base:
            base.execute("CREATE TABLE things (a INTEGER)")
            base.commit()
        assert "another tool" in refused(tmp_path / "x").message
        assert "CUPTI_ACTIVITY_KIND_KERNEL" in refused(tmp_path / "x", "nsys").message

    def test_a_damaged_database(self, tmp_path: Path) -> None:
        raw = bytearray(s.nsys(tmp_path / "x").read_bytes())
        raw[4096:8192] = b"\xff" * 4096
        refused(s.written(tmp_path, "y", bytes(raw)), "nsys")

    def test_a_view_is_no_table(self, tmp_path: Path) -> None:
        path = s.nsys(tmp_path / "x")
        with closing(sqlite3.connect(path)) as base:
            base.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO t")
            base.execute(
                "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE c(x) AS "
                "(SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS start FROM c"
            )
            base.commit()
        assert "no CUDA kernel" in refused(path).message

    def test_times_that_cannot_be(self, tmp_path: Path) -> None:
        path = s.nsys(tmp_path / "x")
        with closing(sqlite3.connect(path)) as base:
            base.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 5")
            base.commit()
        assert refused(path).field == "CUPTI_ACTIVITY_KIND_KERNEL.end"

    def test_csv_that_is_cut_off(self, tmp_path: Path) -> None:
        assert "cells" in refused(s.written(tmp_path, "x", s.NSYS_TRACE + "1,2\n")).message
        text = s.NSYS_TRACE.replace("5000", "many")
        assert refused(s.written(tmp_path, "y", text)).field == "line 2"

    def test_units_that_nobody_knows(self, tmp_path: Path) -> None:
        text = s.NCU_RAW.replace('"us","%"', '"fortnights","%"')
        assert "fortnights" in refused(s.written(tmp_path, "x", text)).message

    def test_a_comma_that_is_a_decimal_point_leaves_no_other_sure(self, tmp_path: Path) -> None:
        """Beside "5,5", "1,002" may be 1.002 or 1002 us."""
        text = s.NCU_RAW.replace('"5.5"', '"5,5"').replace('"1,002.5"', '"1,002"')
        error = refused(s.written(tmp_path, "x", text))
        assert "a comma is the decimal point" in error.message
        assert error.field == "line 5"


class TestServing:
    def test_another_kind_of_value(self, tmp_path: Path) -> None:
        refused(s.written(tmp_path, "x", [s.VLLM, 3]), "vllm-bench")

    def test_a_line_that_is_cut_off_is_named(self, tmp_path: Path) -> None:
        text = json.dumps(s.VLLM) + "\n" + json.dumps(s.VLLM)[:-40]
        assert refused(s.written(tmp_path, "x", text), device="h100").field == "line 2"

    def test_a_latency_in_another_unit(self, tmp_path: Path) -> None:
        result = {**s.GENAI, "request_latency": {"unit": "parsecs", "avg": 3.0}}
        assert refused(s.written(tmp_path, "x", result), device="h100").field == "request_latency"

    def test_a_collective_of_one_device(self, tmp_path: Path) -> None:
        lines = [line for line in s.NCCL.splitlines() if "Rank" not in line]
        assert "collective.gpus" in refused(s.written(tmp_path, "x", "\n".join(lines))).hint


class TestTable:
    @pytest.mark.parametrize("time", ["0", "-3", "fast", "nan"])
    def test_times(self, tmp_path: Path, time: str) -> None:
        path = s.written(tmp_path, "x", f"op,m,n,k,latency_us\ngemm,8,8,8,{time}\n")
        assert refused(path).field == "row 1"

    def test_devices(self, tmp_path: Path) -> None:
        path = s.written(tmp_path, "x", "op,m,n,k,latency_us,device\n"
                         "gemm,8,8,8,1,h100\ngemm,8,8,8,1,a100\n")  # fmt: skip
        assert "different devices" in refused(path).message


class TestStated:
    def test_a_field_of_no_table(self) -> None:
        with pytest.raises(SilicastError, match="parallel") as caught:
            Options(fields={"paralel.tp": 2})
        assert caught.value.field == "--set"

    def test_a_value_is_no_table(self) -> None:
        with pytest.raises(SilicastError, match="not a table"):
            with_fields({"model": "x"}, {"model.name": "y"})
        with pytest.raises(SilicastError, match="no field"):
            with_fields({}, {"model..name": "y"})


def test_a_printed_total_of_inf_is_no_length(tmp_path: Path) -> None:
    total = next(line for line in s.VLLM_PRINT.splitlines() if "Total generated tokens" in line)
    text = s.VLLM_PRINT.replace(total, "Total generated tokens:    inf")
    fields = {"model": "Llama-3.1-8B", "engine.name": "vllm", "workload.input_len": 512}
    error = refused(s.written(tmp_path, "run.txt", text), device="h100", fields=fields)
    assert error.field == "workload.output_len"


@pytest.mark.parametrize(
    "command",
    [
        "python -m vllm.entrypoints.openai.api_server \\\n  --model m --tensor-parallel-size 2",
        "vllm  serve m --max-num-seqs 64",
        "exec python3 -m sglang.launch_server --model-path m --tp 4",
    ],
)
def test_a_script_that_starts_a_server_is_told_from_text(tmp_path: Path, command: str) -> None:
    error = refused(s.written(tmp_path, "run.sh", f"#!/bin/bash\n{command}\n".encode()))
    assert "silicast serve" in error.hint
    assert "--from-log" in error.hint


def test_a_yaml_that_is_cut_off_names_the_line(tmp_path: Path) -> None:
    error = refused(s.written(tmp_path, "run.yaml", b'model: x\nlist: [1, 2\nother: "a\n'))
    assert "YAML" in error.message
    assert "line" in error.message + error.field
