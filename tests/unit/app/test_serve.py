"""`silicast serve` as its users meet it: one screen, files, sweeps, errors, interruption."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

from silicast.app.cli import main
from silicast.app.flags import Degrees
from silicast.app.serve_flags import ServeFlags, serving_scenario
from silicast.scenario.answers.serving.answerer import PreparedServing
from silicast.scenario.answers.serving.served import Served
from silicast.scenario.workloads import SloTable
from silicast.serving.simulation.event_loop import Simulation
from silicast.serving.statistics.tables import REQUESTS, STEPS
from tests.unit.report.trace_format import check_trace

SERVE = "serve --model Llama-3.1-8B --device h100 --input-len 300 --output-len 20 --requests 24"

Capture = pytest.CaptureFixture[str]


def run(command: str, capsys: Capture) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command."""
    status = main(command.split())
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.parametrize("load", ["--rate 8", "--concurrency 6"])
def test_one_screen_says_what_a_server_does(load: str, capsys: Capture) -> None:
    status, out, err = run(f"{SERVE} {load} --slo ttft_p99=1s,tpot_p99=50ms", capsys)
    assert (status, err) == (0, "")
    for words in (
        "TTFT", "TPOT", "ITL", "E2E", "90 % of p99", "output tokens a device", "goodput",
        "KV cache", "queue", "MFU", "power", "wait", "knee near", "objective kept: ttft p99",
    ):  # fmt: skip
        assert words in out, words
    assert len(out.splitlines()) < 45


def test_a_price_makes_a_cost_and_says_whose_it_is(capsys: Capture) -> None:
    status, out, err = run(f"{SERVE} --concurrency 6 --replicas 2 --price h100=2.3EUR", capsys)
    assert (status, err) == (0, "")
    assert "per million output tokens" in out
    assert out.splitlines()[-1] == "price: a device is 2.3 EUR an hour"
    _, out, _ = run(f"{SERVE} --concurrency 6 --replicas 2 --price 2.3 --json", capsys)
    metrics = json.loads(out)["metrics"]
    rate = metrics["output_tokens_per_s"]["estimate"]
    cost = metrics["cost_per_million_output_tokens"]["estimate"]
    assert cost == pytest.approx(2 * 2.3 / 3600 / rate * 1e6)
    capacity = "capacity --model Llama-3.1-8B --device h100 --rate 8 --requests 40 --price 2.5"
    status, out, err = run(f"{capacity} --slo ttft_p99=2s", capsys)
    assert (status, err) == (0, "")
    assert "cost: 2.50 an hour" in out
    status, out, err = run("infer --model Llama-3.1-8B --device h100 --price 2.5", capsys)
    assert (status, err) == (0, "")
    assert "cost of a million output tokens" in out
    assert out.splitlines()[-1] == "price: a device is 2.5 USD an hour"


@pytest.mark.parametrize(
    ("price", "said"),
    [
        ("-1", "from 0 on"),
        ("2.5x", "from 0 on"),
        ("h200=2", "not among"),
        ("no.csv", "cannot read"),
    ],
)
def test_a_wrong_price_is_refused(price: str, said: str, capsys: Capture) -> None:
    status, out, err = run(f"{SERVE} --rate 8 --price {price}", capsys)
    assert (status, out) == (2, "")
    assert said in err
    assert "--price" in err


def test_json_is_the_answer_of_the_scenario_file(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "s.json"
    requested = ServeFlags(
        model="Llama-3.1-8B", device="h100", rate=8.0, input_len=300, output_len=20, requests=24,
        slo="e2e=2s",
    )  # fmt: skip
    file.write_text(json.dumps(serving_scenario(requested, Degrees().given)), encoding="utf-8")
    status, by_flags, _ = run(f"{SERVE} --rate 8 --slo e2e=2s --json", capsys)
    assert status == 0
    answer = json.loads(by_flags)
    assert answer == json.loads(run(f"run {file} --json", capsys)[1])
    for name, metric in answer["metrics"].items():
        assert 0 <= metric["p05"] <= metric["estimate"] <= metric["p95"], name
    assert (
        answer["metrics"]["goodput_per_s"]["estimate"]
        <= (answer["metrics"]["requests_per_s"]["estimate"])
    )


def test_flags_are_the_scenario_that_they_stand_for() -> None:
    requested = ServeFlags(
        model="m", device="d", concurrency=8, range_ratio=0.5, engine="sglang", replicas=2,
        option=["attention=flashinfer"], dtype="fp8", kv_dtype="fp8", power_w=500.0, seed=3,
    )  # fmt: skip
    assert serving_scenario(requested, {"tp": 2}) == {
        "format": 1, "task": "serving", "model": "m", "device": "d", "parallel": {"tp": 2},
        "engine": {"name": "sglang", "options": {"attention": "flashinfer"}},
        "precision": {"recipe": "fp8", "kv_cache": "fp8"}, "limits": {"power_w": 500.0},
        "pools": {"replicas": {"count": 2}}, "seed": 3,
        "workload": {
            "arrival": {"kind": "closed", "concurrency": 8}, "input_len": 1024, "output_len": 128,
            "range_ratio": 0.5,
        },
    }  # fmt: skip


def test_a_trace_brings_its_own_lengths(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "t.csv"
    file.write_text("arrival_s,input_len,output_len\n0.0,200,5\n0.1,100,9\n", encoding="utf-8")
    status, out, _ = run(f"serve --model Llama-3.1-8B --device h100 --trace {file} --json", capsys)
    assert status == 0, out
    assert json.loads(out)["why"]["requests"]["answered"] == 2


BAD = {
    "--rate 8 --sped 3": "--sped",
    "--rate 8 --concurrency 4": "both given",
    "": "nothing says how requests come",
    "--trace no/such.csv": "does not exist",
    "--rate 0": "rate_per_s",
    "--rate fast": "--rate",
    "--concurrency 0": "concurrency",
    "--rate 8 --slo ttft_p99=1": "has no unit",
    "--rate 8 --slo latency=1s": "unknown statistic",
    "--rate 8 --option x": "key=value",
    "--rate 8 --requests 0": "requests",
    "--rate 8 --range-ratio 2": "range_ratio",
    "--rate 8 --replicas 0": "count",
    "--rate 8 --requests-out a.xls": "names no format",
    "--rate 8 --steps-out steps": "names no format",
    "--rate 8 --plot a.svg": "--sweep",
    "--rate 8 --sweep rate=1..3": "both given",
    "--sweep rate=3..1": "does not grow",
    "--sweep rate=1..1000": "at most 64",
    "--sweep load=1..3": "expected rate= or concurrency=",
    "--sweep concurrency=0.5,1": "whole number",
    "--sweep rate=1..3 --plot a.txt": "names no format",
    "--sweep rate=1..3 --requests-out a.csv": "of one load",
}


@pytest.mark.parametrize("flags", BAD)
def test_bad_input_is_one_line_that_says_what(flags: str, capsys: Capture) -> None:
    status, out, err = run(f"{SERVE} {flags}", capsys)
    assert status in (2, 3)
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert BAD[flags] in err


def test_files_hold_what_was_simulated(tmp_path: Path, capsys: Capture) -> None:
    names = {
        "requests": tmp_path / "r.csv", "steps": tmp_path / "s.jsonl",
        "trace": tmp_path / "t.json", "metrics": tmp_path / "m.txt",
    }  # fmt: skip
    flags = " ".join(f"--{name}-out {path}" for name, path in names.items())
    status, out, err = run(f"{SERVE} --rate 8 --json {flags}", capsys)
    assert status == 0
    assert all(str(path) in err for path in names.values())
    answer = json.loads(out)
    rows = list(csv.DictReader(names["requests"].read_text("utf-8").splitlines()))
    assert list(rows[0]) == list(REQUESTS)
    assert len(rows) == 24
    mean = sum(float(row["ttft_ms"]) for row in rows) / len(rows)
    assert mean == pytest.approx(answer["metrics"]["ttft_mean_ms"]["estimate"])
    for row in rows:
        times = [
            float(row[f"{n}_s"]) for n in ("sent", "arrived", "scheduled", "first_token", "done")
        ]
        assert times == sorted(times)
    steps = [json.loads(line) for line in names["steps"].read_text("utf-8").splitlines()]
    assert list(steps[0]) == list(STEPS)
    assert sum(s["decoding"] * s["steps"] for s in steps) == 24 * 19
    assert sum(s["prefill_tokens"] for s in steps) == 24 * 300
    check_trace(json.loads(names["trace"].read_bytes()))
    metrics = names["metrics"].read_text("utf-8")
    assert "vllm:time_to_first_token_seconds_bucket{" in metrics
    assert 'vllm:generation_tokens_total{model_name="Llama-3.1-8B",engine="0"} 480.0' in metrics


def test_parquet_is_the_same_table(tmp_path: Path, capsys: Capture) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "r.parquet"
    assert run(f"{SERVE} --rate 8 --requests-out {path}", capsys)[0] == 0
    table = parquet.read_table(path)
    assert table.column_names == list(REQUESTS)
    assert table.num_rows == 24


@pytest.mark.parametrize(
    ("package", "flags"),
    [
        ("pyarrow", "--rate 8 --requests-out {}/a.parquet"),
        ("matplotlib", "--sweep rate=1,2 --plot {}/a.png"),
    ],
)
def test_what_an_extra_draws_or_writes_names_it(
    package: str, flags: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    status, _, err = run(f"{SERVE} {flags.format(tmp_path)}", capsys)
    assert status == 3
    assert f"needs {package}" in err
    assert "pip install 'silicast[" in err
    assert not list(tmp_path.iterdir())


def test_a_sweep_is_a_table_and_a_curve(tmp_path: Path, capsys: Capture) -> None:
    plot = tmp_path / "curve.svg"
    status, out, err = run(f"{SERVE} --sweep concurrency=1,2,4..64 --plot {plot}", capsys)
    assert status == 0
    assert str(plot) in err
    lines = out.splitlines()
    assert lines[2].split()[:5] == ["clients", "TTFT", "p99", "TPOT", "E2E"]
    assert [line.split()[0] for line in lines[4:11]] == ["1", "2", "4", "8", "16", "32", "64"]
    assert "end to end over requests/s answered" in out
    assert "knee" in out
    assert plot.read_text("utf-8").startswith("<?xml")


def test_a_sweep_as_json_holds_every_answer(capsys: Capture) -> None:
    status, out, _ = run(f"{SERVE} --sweep rate=4,8 --json", capsys)
    curve = json.loads(out)
    assert status == 0
    assert [point["rate"] for point in curve["points"]] == [4.0, 8.0]
    alone = json.loads(run(f"{SERVE} --rate 8 --json", capsys)[1])
    assert curve["points"][1]["answer"]["metrics"] == alone["metrics"]


def test_ctrl_c_leaves_what_was_answered(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Simulation._answered

    def interrupted(self: Simulation, request: int, now_ns: int) -> None:
        whole(self, request, now_ns)
        if len(self.records.finished) >= 10:
            raise KeyboardInterrupt

    monkeypatch.setattr(Simulation, "_answered", interrupted)
    path = tmp_path / "r.csv"
    status, out, err = run(f"{SERVE} --rate 200 --requests-out {path}", capsys)
    assert status == 130
    assert "10 of 24 requests were answered" in err
    assert "TTFT" in out
    assert "90 %" not in out
    rows = list(csv.DictReader(path.read_text("utf-8").splitlines()))
    assert sum(bool(row["done_s"]) for row in rows) == 10
    assert len(rows) > 10
    assert "figures are of these, without intervals; files hold what happened of the others" in err


def test_ctrl_c_before_the_first_answer_leaves_nothing(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Served, specs: object = ()) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Served, "simulate", interrupted)
    assert run(f"{SERVE} --rate 8", capsys) == (130, "", "interrupted\n")


def test_ctrl_c_leaves_the_loads_that_were_answered(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[object] = []
    whole = PreparedServing.answer

    def interrupted(self: PreparedServing, *, only_bounds: bool) -> object:
        if len(answers) == 2:
            raise KeyboardInterrupt
        answers.append(whole(self, only_bounds=only_bounds))
        return answers[-1]

    monkeypatch.setattr(PreparedServing, "answer", interrupted)
    status, out, err = run(f"{SERVE} --sweep rate=2..6", capsys)
    assert status == 130
    assert "2 of 5 loads were answered" in err
    assert [line.split()[0] for line in out.splitlines()[4:6]] == ["2", "3"]


def test_limits_of_an_objective_are_fields_of_the_scenario() -> None:
    requested = ServeFlags(model="m", device="d", rate=1.0, slo="ttft_p99=1s,e2e=2s,quantile=0.9")
    slo = serving_scenario(requested, {})["workload"]["slo"]
    assert set(slo) <= set(SloTable.__struct_fields__)


def test_bad_rows_of_a_trace_are_skipped_if_asked(tmp_path: Path, capsys: Capture) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("arrival_s,input_len,output_len\n0,10,3\n1,x,3\n2,10,3\n", "utf-8")
    requested = f"serve --model Llama-3.2-1B --device h100 --trace {trace}"
    status, _, err = run(requested, capsys)
    assert status == 2
    assert "--skip-bad-rows" in err
    status, out, _ = run(f"{requested} --skip-bad-rows", capsys)
    assert status == 0
    assert "1 of 3 rows are left out" in " ".join(out.split())


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--trace {}", "--trace: is a folder, not a file"),
        ("--trace {}/none.csv", "--trace: does not exist"),
        ("--rate 8 --skip-bad-rows", "--skip-bad-rows: goes with --trace"),
    ],
)
def test_a_trace_that_is_none_is_named(
    flags: str, said: str, tmp_path: Path, capsys: Capture
) -> None:
    requested = f"serve --model Llama-3.2-1B --device h100 {flags.format(tmp_path)}"
    status, _, err = run(requested, capsys)
    assert status == 2
    assert said in err
