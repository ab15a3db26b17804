"""Whatever stands on the command line, the answer is a result or one clear line."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from silicast.app import cli

WORDS = (
    "infer", "kernel", "compare", "explain", "run", "batch", "devices", "models", "engines",
    "show", "search", "list", "--model", "--device", "--batch", "--input-len", "--output-len",
    "--tp", "--pp", "--plan", "--dtype", "--kv-dtype", "--engine", "--json", "--depth",
    "--strict", "--power-w", "-o", "Llama-3.1-8B", "Qwen3-0.6B", "h100", "l4", "h100,l4",
    "sglang", "bf16", "fp8", "int4_wo", "tp=2", "gemm", "m=8", "n=64", "k=64", "rmsnorm",
    "tokens=8", "hidden=64", "q_lens=1,2", "causal=true", "0", "-1", "1", "2", "7", "128", "1e9",
    "nan", "inf", "9" * 40, "", " ", "=", ",", "x=", "=x", "None", "[]", "{}", "\N{SNOWMAN}",
    "a" * 5000, "../x.toml", ".", "--", "-", "--no-such", "--help",
)  # fmt: skip
STARTS = (
    ("infer", "--model", "Qwen3-0.6B", "--device", "l4"),
    ("kernel", "gemm", "m=8", "n=64", "k=64", "--device", "l4"),
    ("compare", "--model", "Qwen3-0.6B", "--device", "l4,h100"),
    ("explain", "--model", "Qwen3-0.6B", "--device", "l4"),
    (),
)


def _one(draw: random.Random, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [*draw.choice(STARTS), *draw.choices(WORDS, k=draw.randint(0, 5))]
    status = cli.main(argv)
    out, err = capsys.readouterr()
    assert status in {0, 2, 3}, (argv, err)
    assert "Traceback" not in out + err
    if status != 0 and not out:
        assert err.startswith("error: "), argv
        assert err.count("\n") == 1, argv


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_random_command_lines(capsys: pytest.CaptureFixture[str]) -> None:
    draw = random.Random(0)
    for _ in range(150):
        _one(draw, capsys)


@pytest.mark.full
def test_many_random_command_lines(capsys: pytest.CaptureFixture[str]) -> None:
    draw = random.Random(1)
    for _ in range(10_000):
        _one(draw, capsys)
