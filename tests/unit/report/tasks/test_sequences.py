"""Every screen and page of a model that generates no tokens speaks of sequences."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import silicast
from silicast.app.cli import main

FP16 = "--model bert-base --device a100 --dtype fp16"
OF_TOKENS = re.compile(r"token|TTFT|TPOT|KV cache|\b1 out\b|tok/s", re.IGNORECASE)
SAID_OF_SIZES = re.compile(r"\d+ tokens( in)?\b")
"""What a prompt is long."""


def _words_of_tokens(text: str) -> list[str]:
    return OF_TOKENS.findall(SAID_OF_SIZES.sub("", text).replace("kv cache 0", ""))


@pytest.mark.parametrize(
    "command",
    [
        "infer",
        "explain",
        "compare",
        "serve --rate 20 --requests 50",
        "serve --rate 20 --requests 50 --engine triton-server --price 2",
        "serve --sweep rate=10,20,300 --requests 50",
    ],
)
def test_screens_speak_of_sequences(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), *FP16.split()]) == 0
    shown = capsys.readouterr().out
    assert _words_of_tokens(shown) == [], shown
    assert command == "explain" or "seq" in shown


@pytest.mark.parametrize("command", ["infer", "serve --rate 20 --requests 50", "compare"])
def test_pages_speak_of_sequences(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert main([*command.split(), *FP16.split(), "--html", str(page)]) == 0
    capsys.readouterr()
    body = re.sub(r"<[^>]*>", " ", page.read_text(encoding="utf-8").partition("</style>")[2])
    assert _words_of_tokens(body.partition("What it rests on")[0]) == []
    assert "seq" in body


def test_notebooks_speak_of_sequences() -> None:
    predicted = silicast.infer(model="bert-base", device="a100", dtype="fp16").predicted
    assert _words_of_tokens(predicted._repr_html_()) == []
    assert "sequences_per_s" in predicted._repr_html_()


def test_a_server_counts_sequences_as_requests_and_keeps_every_metric() -> None:
    workload = {"arrival": {"kind": "closed", "concurrency": 4}, "requests": 40, "input_len": 64}
    tree = {"task": "serving", "model": "bert-base", "device": "a100", "workload": workload}
    metrics = silicast.predict(tree).metrics
    assert metrics["sequences_per_s"] == metrics["requests_per_s"]
    assert metrics["energy_per_sequence_j"] == metrics["energy_per_request_j"]
    assert {"ttft_p99_ms", "output_tokens_per_s", "kv_utilisation"} <= set(metrics)


def test_an_engine_of_one_pass_is_asked_for_one_token(capsys: pytest.CaptureFixture[str]) -> None:
    command = "serve --model Llama-3.1-8B --device a100 --rate 1 --requests 20"
    assert main([*command.split(), "--engine", "triton-server"]) == 0
    assert "1 out" in capsys.readouterr().out


def test_a_curve_of_single_tokens_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    sizes = "--sweep rate=1,2 --requests 20 --output-len 1"
    plot = tmp_path / "curve.svg"
    command = f"serve --model Llama-3.1-8B --device a100 {sizes} --plot {plot}"
    assert main(command.split()) == 0
    assert plot.is_file()
    capsys.readouterr()
