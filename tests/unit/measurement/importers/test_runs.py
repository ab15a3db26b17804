"""Benchmarks of servers and of collectives."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.formats.source import Source
from silicast.measurement.importers.importer import FileReading, Options, importer_of
from silicast.measurement.records.records import CollectiveRow, RunRow, UnreadRow
from silicast.scenario.decode import decode
from tests.unit.measurement.importers import samples as s

VLLM = {"engine__name": "vllm"}
"""Of benchmarks that do not know whom they ask."""
MODEL = {"model": "Llama-3.1-8B"}


def read(path: Path, expected: str, device: str = "", **fields: Any) -> FileReading:
    source = Source(path)
    importer = importer_of(source)
    assert importer.name == expected
    return importer.read(
        source, Options(device, {k.replace("__", "."): v for k, v in fields.items()})
    )


def run(reading: FileReading) -> RunRow:
    (row,) = [row for row in reading.records if isinstance(row, RunRow)]
    decode(row.scenario)
    return row


class TestServing:
    def test_vllm(self, tmp_path: Path) -> None:
        path = s.written(tmp_path, "x", s.VLLM)
        reading = read(path, "vllm-bench", "h100", engine__version="0.10", parallel__tp=2)
        row = run(reading)
        assert row.scenario["workload"] == {
            "arrival": {"kind": "closed", "concurrency": 8}, "requests": 80, "input_len": 1024,
            "output_len": 128,
        }  # fmt: skip
        assert row.scenario["engine"] == {"name": "vllm", "version": "0.10"}
        assert row.scenario["parallel"] == {"tp": 2}
        assert reading.session.devices == 2
        assert row.metrics == {
            "ttft_mean_ms": 62.5, "ttft_p50_ms": 60.0, "ttft_p99_ms": 90.0, "tpot_mean_ms": 7.75,
            "tpot_p50_ms": 7.5, "tpot_p99_ms": 8.5, "itl_mean_ms": 7.6, "itl_p50_ms": 7.4,
            "itl_p99_ms": 15.0, "e2e_mean_ms": 1046.0, "e2e_p90_ms": 1100.0,
            "e2e_p95_ms": 1150.0, "output_tokens_per_s": 409.6, "requests_per_s": 3.2,
        }  # fmt: skip

    def test_vllm_appends_runs(self, tmp_path: Path) -> None:
        poisson = {**s.VLLM, "request_rate": 4.0, "max_concurrency": None}
        bursty = {**s.VLLM, "request_rate": 4.0, "burstiness": 0.25, "max_concurrency": 64}
        at_once = {**s.VLLM, "max_concurrency": None}
        dead = {**s.VLLM, "completed": 0}
        text = "\n".join(json.dumps(each) for each in (poisson, bursty, at_once, dead))
        reading = read(s.written(tmp_path, "x", text), "vllm-bench", "h100")
        runs = [row for row in reading.records if isinstance(row, RunRow)]
        assert [row.scenario["workload"]["arrival"] for row in runs] == [
            {"kind": "poisson", "rate_per_s": 4.0, "exact_rate": True},
            {"kind": "gamma", "rate_per_s": 4.0, "cv": 2.0, "concurrency": 64, "exact_rate": True},
            {"kind": "closed", "concurrency": 80},
        ]
        assert not any(row.flags for row in runs)
        (listed,) = [row for row in reading.records if isinstance(row, UnreadRow)]
        assert (listed.reason, listed.row) == ("no request was completed", 4)

    def test_runs_in_a_list(self, tmp_path: Path) -> None:
        reading = read(s.written(tmp_path, "x", [s.VLLM, s.VLLM]), "vllm-bench", "h100")
        assert [row.row for row in reading.records if isinstance(row, RunRow)] == [1, 2]

    def test_vllm_lengths_of_each_request(self, tmp_path: Path) -> None:
        result = {**s.VLLM, "completed": 3, "input_lens": [10, 20, 30], "output_lens": [5, 5, 5]}
        row = run(read(s.written(tmp_path, "x", result), "vllm-bench", "h100"))
        assert row.scenario["workload"]["input_len"] == {"kind": "values", "values": [10, 20, 30]}
        assert row.scenario["workload"]["output_len"] == 5

    def test_sglang_writes_infinity(self, tmp_path: Path) -> None:
        text = json.dumps(s.SGLANG) + "\n" + json.dumps({**s.SGLANG, "request_rate": 2.0}) + "\n"
        assert "Infinity" in text
        reading = read(s.written(tmp_path, "x", text), "sglang-bench", "h100")
        first, second = [row for row in reading.records if isinstance(row, RunRow)]
        assert first.scenario["workload"]["arrival"] == {"kind": "closed", "concurrency": 16}
        assert first.scenario["parallel"] == {"tp": 2, "attention_dp": 2}
        assert first.scenario["engine"] == {"name": "sglang", "version": "0.5.2"}
        assert first.scenario["model"] == "Qwen/Qwen2.5-7B-Instruct"
        assert first.metrics["e2e_p99_ms"] == 4300.0
        arrival = {"kind": "poisson", "rate_per_s": 2.0, "concurrency": 16}
        assert second.scenario["workload"]["arrival"] == arrival
        assert reading.session.devices == 4

    def test_lengths_that_sglang_drew_from_a_range(self, tmp_path: Path) -> None:
        for ratio in (0.0, 0.5):
            drawn = {**s.SGLANG, "random_range_ratio": ratio, "total_input_tokens": 90_000}
            work = run(read(s.written(tmp_path, "x", drawn), "sglang-bench", "h100")).scenario[
                "workload"
            ]
            assert (work["input_len"], work["output_len"]) == (1024, 256)
            assert work["range_ratio"] == ratio
            other = {**drawn, "dataset_name": "sharegpt"}
            work = run(read(s.written(tmp_path, "x", other), "sglang-bench", "h100")).scenario[
                "workload"
            ]
            assert (work["input_len"], "range_ratio" in work) == (round(90_000 / 160), False)

    def test_times_and_lengths_of_each_request_are_a_trace(self, tmp_path: Path) -> None:
        detailed = {
            **s.VLLM, "completed": 3, "request_rate": 4.0, "max_concurrency": None,
            "input_lens": [10, 20, 30], "output_lens": [5, 6, 7], "start_times": [7.5, 7.0, 9.25],
        }  # fmt: skip
        row = run(read(s.written(tmp_path, "x", detailed), "vllm-bench", "h100"))
        rows = [[0.0, 20, 6], [0.5, 10, 5], [2.25, 30, 7]]
        assert row.scenario["workload"] == {"arrival": {"kind": "trace", "rows": rows}}

    @pytest.mark.parametrize(
        "change",
        [
            {"max_concurrency": 8},  # then answers decide when requests are sent
            {"start_times": [7.5, 7.0]},
            {"output_lens": [5, 0, 7]},
            {"output_lens": []},
        ],
    )
    def test_no_trace_where_it_is_not_known_when_requests_came(
        self, tmp_path: Path, change: dict[str, Any]
    ) -> None:
        detailed = {
            **s.VLLM, "completed": 3, "request_rate": 4.0, "max_concurrency": None,
            "input_lens": [10, 20, 30], "output_lens": [5, 6, 7], "start_times": [7.5, 7.0, 9.25],
        }  # fmt: skip
        detailed |= change
        row = run(read(s.written(tmp_path, "x", detailed), "vllm-bench", "h100"))
        assert row.scenario["workload"]["arrival"]["kind"] == "poisson"

    def test_a_stated_load_stands_for_a_trace(self, tmp_path: Path) -> None:
        detailed = {
            **s.VLLM, "completed": 2, "request_rate": 4.0, "max_concurrency": None,
            "input_lens": [10, 20], "output_lens": [5, 6], "start_times": [7.0, 7.5],
        }  # fmt: skip
        path = s.written(tmp_path, "x", detailed)
        row = run(read(path, "vllm-bench", "h100", workload__arrival__concurrency=2))
        assert row.scenario["workload"]["arrival"] == {"kind": "closed", "concurrency": 2}

    def test_genai_perf_calls_tpot_itl(self, tmp_path: Path) -> None:
        row = run(read(s.written(tmp_path, "x", s.GENAI), "genai-perf", "h100", **VLLM))
        assert row.metrics["tpot_mean_ms"] == 7.7
        assert not any(name.startswith("itl") for name in row.metrics)
        assert row.metrics["output_tokens_per_s"] == 416.0
        assert row.scenario["workload"]["arrival"] == {"kind": "closed", "concurrency": 8}
        assert row.scenario["workload"]["output_len"] == 128

    def test_requests_that_are_not_counted_are_left_out(self, tmp_path: Path) -> None:
        result = {name: value for name, value in s.GENAI.items() if name != "request_count"}
        row = run(read(s.written(tmp_path, "x", result), "genai-perf", "h100", **VLLM))
        assert "requests" not in row.scenario["workload"]

    def test_genai_perf_csv_has_the_same_metrics(self, tmp_path: Path) -> None:
        stated = {"model": "Llama-3.1-8B", "workload__arrival__concurrency": 8}
        csv = run(
            read(s.written(tmp_path, "x", s.GENAI_CSV), "genai-perf", "h100", **VLLM, **stated)
        )
        json_ = run(read(s.written(tmp_path, "y", s.GENAI), "genai-perf", "h100", **VLLM))
        assert csv.metrics == json_.metrics
        assert csv.scenario["workload"] == json_.scenario["workload"]

    def test_guidellm_has_a_run_of_each_strategy(self, tmp_path: Path) -> None:
        content = s.guidellm(
            {"type_": "concurrent", "streams": 8},
            {"type_": "synchronous"},
            {"type_": "poisson", "rate": 3.0, "max_concurrency": 64},
            {"type_": "constant", "rate": 3.0},
        )
        reading = read(s.written(tmp_path, "x", content), "guidellm", "h100")
        runs = [row for row in reading.records if isinstance(row, RunRow)]
        assert [row.scenario["workload"]["arrival"] for row in runs] == [
            {"kind": "closed", "concurrency": 8},
            {"kind": "closed", "concurrency": 8},
            {"kind": "poisson", "rate_per_s": 3.0, "concurrency": 64},
            {"kind": "gamma", "rate_per_s": 3.0, "cv": 0.0},
        ]
        for row in runs:
            decode(row.scenario)
            assert row.scenario["engine"] == {"name": "vllm"}
            assert row.metrics["tpot_mean_ms"] == 7.7
            assert row.metrics["e2e_p99_ms"] == 4200.0
            assert row.metrics["ttft_p50_ms"] == 61.0
            assert {"engine_assumed", "failed_requests"} <= set(row.flags)
        assert [("mean_concurrency" in row.flags) for row in runs] == [False, True, False, False]

    def test_a_file_of_guidellm_without_runs_is_refused(self, tmp_path: Path) -> None:
        content = {**s.guidellm(), "benchmarks": "none"}
        with pytest.raises(SilicastError, match="benchmarks"):
            read(s.written(tmp_path, "x", content), "guidellm", "h100")

    def test_aiperf(self, tmp_path: Path) -> None:
        row = run(read(s.written(tmp_path, "x", s.AIPERF), "aiperf", "h100", **VLLM))
        assert row.metrics["itl_mean_ms"] == 7.9
        assert row.metrics["tpot_p90_ms"] == 8.0
        assert row.scenario["workload"]["arrival"] == {"kind": "poisson", "rate_per_s": 4.0}

    def test_aiperf_phases(self, tmp_path: Path) -> None:
        config = {
            "models": {"items": [{"name": "Llama-3.1-8B"}]},
            "phases": [
                {"name": "warmup", "concurrency": 1},
                {"name": "profiling", "concurrency": 4},
            ],
        }
        row = run(
            read(
                s.written(tmp_path, "x", {**s.AIPERF, "input_config": config}),
                "aiperf",
                "h100",
                **VLLM,
            )
        )
        assert row.scenario["workload"]["arrival"] == {"kind": "closed", "concurrency": 4}

    def test_trtllm_report_and_print_agree(self, tmp_path: Path) -> None:
        report = run(read(s.written(tmp_path, "x", s.TRTLLM), "trtllm-bench", "h100"))
        printed = run(read(s.written(tmp_path, "y", s.TRTLLM_PRINT), "trtllm-bench", "h100"))
        assert report.scenario == printed.scenario
        assert report.scenario["parallel"] == {"tp": 2}
        # it hands requests to the engine in its own process
        assert report.scenario["engine"]["options"] == {"http_server": False}
        assert report.scenario["workload"]["arrival"] == {"kind": "closed", "concurrency": 64}
        assert report.flags == ["mean_concurrency"]
        assert report.metrics["ttft_p50_ms"] == pytest.approx(85.0)  # nanoseconds in the report
        for name in printed.metrics:
            assert report.metrics[name] == pytest.approx(printed.metrics[name])

    @pytest.mark.parametrize(
        ("change", "field", "hint"),
        [
            ({"model_id": ""}, "model", "--set model="),
            ({"model_id": "/data/mine"}, "model", "--set model="),
            ({"request_rate": None, "max_concurrency": None}, "workload.arrival", "concurrency"),
            ({"mean_ttft_ms": 1e12}, "row 1", "unit"),
        ],
    )
    def test_what_is_missing_is_named(
        self, tmp_path: Path, change: dict[str, Any], field: str, hint: str
    ) -> None:
        path = s.written(tmp_path, "x", {**s.VLLM, **change})
        with pytest.raises(SilicastError) as caught:
            read(path, "vllm-bench", "h100")
        assert caught.value.field == field
        assert hint in caught.value.hint
        assert caught.value.file == str(path)

    def test_the_engine_is_asked_for_where_a_tool_does_not_know_it(self, tmp_path: Path) -> None:
        with pytest.raises(SilicastError, match=r"engine\.name"):
            read(s.written(tmp_path, "x", s.GENAI), "genai-perf", "h100")
        endpoint = {"service_kind": "triton", "type": "kserve", "backend": "tensorrtllm"}
        config = {**s.GENAI["input_config"], "endpoint": endpoint}
        row = run(read(s.written(tmp_path, "x", {**s.GENAI, "input_config": config}), "genai-perf",
                       "h100"))  # fmt: skip
        assert row.scenario["engine"] == {"name": "trtllm"}

    def test_an_openai_endpoint_is_taken_for_vllm_and_flagged(self, tmp_path: Path) -> None:
        result = {**s.VLLM, "backend": "openai-chat"}
        row = run(read(s.written(tmp_path, "x", result), "vllm-bench", "h100"))
        assert (row.scenario["engine"], row.flags) == ({"name": "vllm"}, ["engine_assumed"])

    def test_degrees_that_nobody_states_are_noted(self, tmp_path: Path) -> None:
        path = s.written(tmp_path, "x", s.VLLM)
        assert "one device" in read(path, "vllm-bench", "h100").session.notes[0]
        assert read(path, "vllm-bench", "h100", parallel__tp=2).session.notes == []

    def test_the_device_is_asked_for(self, tmp_path: Path) -> None:
        with pytest.raises(SilicastError, match="--device"):
            read(s.written(tmp_path, "x", s.VLLM), "vllm-bench")


class TestPrintedTables:
    def test_vllm(self, tmp_path: Path) -> None:
        """What stands before the table says how requests came."""
        text = f"INFO 11-28 10:00:00 starting\n{s.VLLM_PRINT}done\n"
        row = run(read(s.written(tmp_path, "x", text), "vllm-bench", "h100", **VLLM, **MODEL))
        assert row.scenario["workload"] == {
            "arrival": {"kind": "closed", "concurrency": 8}, "requests": 80, "input_len": 1024,
            "output_len": 128,
        }  # fmt: skip
        assert row.metrics == {
            "ttft_mean_ms": 62.5, "ttft_p50_ms": 60.0, "ttft_p99_ms": 90.0, "tpot_mean_ms": 7.75,
            "tpot_p50_ms": 7.5, "tpot_p99_ms": 8.5, "output_tokens_per_s": 409.6,
            "requests_per_s": 3.2,
        }  # fmt: skip

    def test_a_table_alone_leaves_the_load_open(self, tmp_path: Path) -> None:
        _, _, table = s.VLLM_PRINT.partition("\n")
        path = s.written(tmp_path, "x", table)
        reading = read(path, "vllm-bench", "h100", **VLLM, **MODEL)
        arrival = run(reading).scenario["workload"]["arrival"]
        assert arrival == {"kind": "closed", "concurrency": 80}
        assert any("taken as all at once" in note for note in reading.session.notes)
        stated = {"workload__arrival__concurrency": 16}
        reading = read(path, "vllm-bench", "h100", **VLLM, **MODEL, **stated)
        arrival = run(reading).scenario["workload"]["arrival"]
        assert arrival == {"kind": "closed", "concurrency": 16}
        assert not any("at once" in note for note in reading.session.notes)

    def test_each_table_is_a_run(self, tmp_path: Path) -> None:
        other = s.VLLM_PRINT.replace("409.60", "500.00").replace(": 8\n", ": 16\n")
        path = s.written(tmp_path, "x", s.VLLM_PRINT + other)
        reading = read(path, "vllm-bench", "h100", **VLLM, **MODEL)
        runs = [row for row in reading.records if isinstance(row, RunRow)]
        assert [row.metrics["output_tokens_per_s"] for row in runs] == [409.6, 500.0]
        arrivals = [row.scenario["workload"]["arrival"]["concurrency"] for row in runs]
        assert arrivals == [8, 16]

    def test_sglang(self, tmp_path: Path) -> None:
        row = run(read(s.written(tmp_path, "x", s.SGLANG_PRINT), "sglang-bench", "h100", **MODEL))
        assert row.scenario["engine"] == {"name": "sglang"}
        assert row.scenario["workload"] == {
            "arrival": {"kind": "poisson", "rate_per_s": 4.0}, "requests": 100, "input_len": 512,
            "output_len": 256,
        }  # fmt: skip
        assert row.metrics["e2e_mean_ms"] == 2100.0


class TestRequestsThatFailed:
    @pytest.mark.parametrize(
        ("change", "flags", "note"),
        [
            ({"completed": 60, "failed": 20}, ["failed_requests", "many_failed"], "20 of 80"),
            ({"completed": 60}, ["failed_requests", "many_failed"], "20 of 80"),  # early versions
            ({"num_prompts": 800, "completed": 799}, ["failed_requests"], "1 of 800"),
            ({}, [], ""),
        ],
    )
    def test_they_are_counted(
        self, tmp_path: Path, change: dict[str, int], flags: list[str], note: str
    ) -> None:
        reading = read(s.written(tmp_path, "x", {**s.VLLM, **change}), "vllm-bench", "h100")
        assert run(reading).flags == flags
        remarks = [text for text in reading.session.notes if "failed" in text]
        assert [note in text for text in remarks] == [True] * bool(note)

    def test_a_cancelled_run_says_so(self, tmp_path: Path) -> None:
        errors = {"unit": "requests", "avg": 5}
        result = {**s.AIPERF, "was_cancelled": True, "error_request_count": errors}
        reading = read(s.written(tmp_path, "x", result), "aiperf", "h100", **VLLM)
        assert run(reading).flags == ["cancelled", "failed_requests", "many_failed"]
        notes = " ".join(reading.session.notes)
        assert "was cancelled" in notes
        assert "5 of 105 requests failed" in notes


class TestNccl:
    @pytest.mark.parametrize(
        "label",
        ["[1,0]<stdout>: ", "[1,0]<stdout>:", "0: ", "[0] ", "node-7: ", "2026-11-28T10:00:{n}Z "],
    )
    def test_what_a_launcher_puts_before_each_line(self, tmp_path: Path, label: str) -> None:
        lines = [
            label.replace("{n}", f"{10 + number}") + line
            for number, line in enumerate(s.NCCL.splitlines())
        ]
        lines.insert(3, "node-7:313:400 [0] NCCL INFO cudaDriverVersion 12080")
        reading = read(s.written(tmp_path, "x", "\n".join(lines)), "nccl-tests")
        assert [r.latency_us for r in reading.records if isinstance(r, CollectiveRow)] == [
            20.5, 20.25, 50.0, 49.0,
        ]  # fmt: skip
        assert reading.session.devices == 8

    def test_rows(self, tmp_path: Path) -> None:
        reading = read(s.written(tmp_path, "x", s.NCCL), "nccl-tests")
        rows = [row for row in reading.records if isinstance(row, CollectiveRow)]
        assert [row.latency_us for row in rows] == [20.5, 20.25, 50.0, 49.0]
        assert rows[0].collective == {
            "op": "all_reduce", "bytes": 1024, "gpus": 8, "dtype": "fp16",
            "implementation": "nccl",
        }  # fmt: skip
        assert [row.flags for row in rows] == [[], ["in_place"]] * 2
        assert rows[0].gpus_per_node == 8
        assert (reading.total_us, reading.understood_us) == (139.75, 139.75)
        assert reading.session.device == "H100-SXM-80GB"
        assert reading.session.protocol is not None
        assert reading.session.protocol.repeats == 20

    def test_the_bus_bandwidth_says_which_collective(self, tmp_path: Path) -> None:
        scattered = s.NCCL.replace("73.40", "36.70")
        reading = read(s.written(tmp_path, "x", scattered), "nccl-tests")
        assert _ops(reading) == {"reduce_scatter"}
        gathered = scattered.replace("     sum ", "    none ")
        with pytest.raises(SilicastError, match=r"collective\.op"):
            read(s.written(tmp_path, "x", gathered), "nccl-tests")
        reading = read(
            s.written(tmp_path, "x", gathered), "nccl-tests", collective__op="all_gather"
        )
        assert _ops(reading) == {"all_gather"}

    def test_tests_after_each_other(self, tmp_path: Path) -> None:
        both = (
            "# Collective test starting: all_gather_perf\n" + s.NCCL
            + "# Collective test concluded: all_gather_perf\n"
            + "# Collective test starting: alltoall_perf\n" + s.NCCL.replace("graph: 0", "graph: 5")
        )  # fmt: skip
        reading = read(s.written(tmp_path, "x", both), "nccl-tests")
        assert _ops(reading) == {"all_gather", "all_to_all"}
        launches = [
            r.collective.get("launch") for r in reading.records if isinstance(r, CollectiveRow)
        ]
        assert launches == [None] * 4 + ["graph"] * 4

    def test_formats_without_a_kernel_are_listed(self, tmp_path: Path) -> None:
        reading = read(s.written(tmp_path, "x", s.NCCL.replace("half", "f9e9")), "nccl-tests",
                       collective__op="all_reduce")  # fmt: skip
        assert {type(row) for row in reading.records} == {UnreadRow}
        listed = math.fsum(row.total_us for row in reading.rejected)
        assert (reading.understood_us, listed) == (0, 139.75)

    def test_a_cut_off_file_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SilicastError, match="no row"):
            read(s.written(tmp_path, "x", s.NCCL_HEAD), "nccl-tests")

    def test_wrong_results_and_failures_are_told(self, tmp_path: Path) -> None:
        """Rows as nccl-tests prints them where a check fails, and its last words where it fails."""
        text = s.NCCL.replace("73.40      0", "73.40     24").replace("0 OK", "24 FAILED")
        text += "n1: Test NCCL failure common.cu:1005 'unhandled cuda error'\n"
        reading = read(s.written(tmp_path, "x", text), "nccl-tests", collective__op="all_reduce")
        rows = [row for row in reading.records if isinstance(row, CollectiveRow)]
        assert [row.flags for row in rows] == [[], ["in_place"], ["wrong_results"], ["in_place"]]
        wrong, failed = reading.session.notes
        assert "1 of 2 sizes gave wrong results" in wrong
        assert "after 2 sizes: n1: Test NCCL failure common.cu:1005" in failed
        with pytest.raises(SilicastError) as caught:
            read(s.written(tmp_path, "y", s.NCCL_HEAD + text.splitlines()[-1]), "nccl-tests")
        assert "unhandled cuda error" in caught.value.hint

    def test_long_lines_take_no_longer_than_their_text(self, tmp_path: Path) -> None:
        for line in ("x" * 300_000, "NCCL " * 60_000, "# " + "a_" * 150_000, "on " * 100_000):
            path = s.written(tmp_path, "x", f"{s.NCCL}{line}\n{'y' * 99} NCCL error {line}\n")
            start = time.process_time()
            notes = read(path, "nccl-tests", collective__op="all_reduce").session.notes
            assert time.process_time() - start < 5
            (note,) = (note for note in notes if "NCCL error" in note)
            assert len(note) < 300


def _ops(reading: FileReading) -> set[str]:
    return {row.collective["op"] for row in reading.records if isinstance(row, CollectiveRow)}
