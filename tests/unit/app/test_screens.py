"""Screens that are narrow, or know no signs."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console

from silicast.app.cli import PREDICT, build_app, main
from silicast.app.console import PLAIN
from silicast.app.misspelt import ELSEWHERE, meant
from silicast.report.drawing.numbers import duration
from silicast.report.drawing.tables import listing

ASKED = "infer --model Llama-3.1-8B --device h100 --batch 8"
TABLE = listing(
    {"": "left", "estimate": "right", "90 % interval": "right"},
    [["each further token", "6.93 ms", "6.52 – 7.37"], ["whole batch", "1.07 s", "1.01 – 1.13"]],
)


def drawn(width: int, table: object = TABLE) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=width).print(table)
    return text.getvalue().splitlines()


@pytest.mark.parametrize("width", [24, 40, 60, 100])
def test_no_number_is_cut_however_narrow(width: int) -> None:
    lines = drawn(width)
    for number in ("6.93 ms", "6.52 – 7.37", "1.07 s", "1.01 – 1.13"):
        assert any(number in line for line in lines)
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", range(30, 110, 7))
def test_no_column_is_pushed_off_the_screen_by_long_names(width: int) -> None:
    columns = {"model": "left", "family": "left", "format": "left", "GB": "right", "kB": "right"}
    names = [("Llama-4-Maverick-17B-128E-Instruct-FP8", "mixture"), ("M", "a family of many words")]
    table = listing(columns, [[*each, "fp8 with experts in int4", "26.0", "819"] for each in names])
    lines = drawn(width, table)
    assert max(map(len, lines)) <= width
    assert sum("819" in line for line in lines) == len(names)


@pytest.mark.parametrize(("width", "heads"), [(94, 1), (60, 1), (58, 2), (40, 2), (34, 3)])
def test_columns_go_on_below_before_rows_are_taken_apart(width: int, heads: int) -> None:
    names = ["GPUs", "TTFT", "TPOT", "tok/s", "USD/M"]
    rows = [[board, *["123.4 ms"] * 5] for board in ("h100 tp=4", "a100 tp=8")]
    lines = drawn(width, listing({"": "tree", **dict.fromkeys(names, "right")}, rows))
    assert max(map(len, lines)) <= width
    assert sum(any(name in line for name in names) for line in lines) == heads
    assert sum(line.startswith("a100 tp=8") for line in lines) == heads


def test_output_is_as_wide_as_the_environment_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "48")
    assert main(["engines"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 48


def test_a_negative_value_reaches_the_command_that_refuses_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["serve", "--model", "x", "--device", "y", "--rate", "1", "--slo", "-4ms"]) == 2
    assert "requires an argument" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("infer", "--model is missing (see `silicast infer --help`)"),
        ("infer --model x --gpu h100", "--device is missing: --gpu is --device here"),
        ("infer --model x --board h100", "--device is missing, and there is no --board"),
        ("infer Qwen3-8B --device h100", "--model is missing: write --model Qwen3-8B"),
        ("serve Qwen3-8B --device h100 --rate 1", "expected options alone: write --model Qwen3-8B"),
        ("infer h100 Qwen3-8B", "--model is missing: write --model Qwen3-8B"),
        ("infer --model Qwen3-8B h100", "--device is missing: write --device h100"),
        ("serve --model x --device y --qps 3", "Unknown option: --qps. It is --rate here."),
        ("compare --model x --device y --rate 3", "--rate. It is of silicast serve,"),
        ("train --model x --device y --task lora", "A scenario states it: workload.task (silicast"),
        ("infer --model x --device y --bacth 3", "Did you mean --batch?"),
        ("kernel gemm m=4 --device x --dtype fp8", "Unknown option: --dtype. Write dtype=fp8 (see"),
        ("kernel gemm --num-heads=8 --device x", "Write num_heads=8"),
        ("kernel gemm --causal --device x", "Write causal=VALUE"),
        ("kernel gemm --devcie x", "Did you mean --device?"),
        ("infer --model", "requires an argument"),
        ("design map", "CHIP is missing"),
    ],
)
def test_what_is_missing_is_named_beside_what_is_unknown(
    asked: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(asked.split()) == 2
    assert said in capsys.readouterr().err


def test_every_word_of_others_stands_for_an_option_of_some_command() -> None:
    app = build_app()
    known = {
        name
        for command in PREDICT
        for argument in app[command].assemble_argument_collection()
        for name in argument.names
    }
    for typed, ours in ELSEWHERE.items():
        assert {f"--{name.replace('_', '-')}" for name in ours} <= known, typed
        assert all(meant(typed, [f"--{name.replace('_', '-')}"]) for name in ours)


def test_a_file_of_many_scenarios_is_for_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cases.jsonl").write_text('{"task": "kernel"}\n{"task": "kernel"}\n')
    assert main(["run", f"{tmp_path}/cases.jsonl"]) == 2
    assert "silicast batch" in capsys.readouterr().err


def test_a_screen_without_signs_gets_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert main(ASKED.split()) == 0
    sys.stdout.flush()
    text = raw.getvalue().decode("ascii")
    assert "----" in text
    assert re.search(r"\d\.\d\d - \d\.\d\d", text)
    assert "?" not in text


def test_every_sign_has_ascii_in_its_place() -> None:
    assert all(str(text).isascii() for text in PLAIN.values())


def test_long_times_are_in_hours_and_days() -> None:
    assert duration(30.0) == "30.0 s"
    assert duration(3 * 3600.0) == "3.00 h"
    assert duration(30 * 86400.0) == "30.0 days"
