"""The first screen: every command that it shows runs; metrics are explained by their names."""

from __future__ import annotations

import pytest

from silicast.app.cli import main
from silicast.app.commands.examples import QUESTIONS

SIMULATED = ("serve", "capacity")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(each, marks=pytest.mark.full if each.startswith(SIMULATED) else ())
        for _, each in QUESTIONS
    ],
)
def test_every_example_runs(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command.split()) == 0
    assert "error" not in capsys.readouterr().err


def test_examples_show_ten_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["examples"]) == 0
    assert capsys.readouterr().out.count("  silicast ") == 10


@pytest.mark.parametrize("word", ["ttft_p99", "ttft_p99_ms", "TTFT-p99"])
def test_a_metric_is_explained_by_its_name(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("ttft_p99_ms (ms): from sending a request")
    assert "99 % of the requests" in shown
    assert main(["explain", f"chat.{word}"]) == 0


@pytest.mark.parametrize(("word", "hint"), [("ttft_p98", "did you mean ttft_"), ("zzz", "known: ")])
def test_a_word_that_is_no_metric_gets_the_nearest(
    word: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", word]) == 2
    shown = capsys.readouterr().err
    assert "neither a file nor a metric" in shown
    assert hint in shown


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("goodput", ["that is not lost to failures", "keep every limit of workload.slo"]),
        ("whole batch", ["total_ms (ms): of a batch"]),
        ("knee", ["waiting grows faster"]),
        ("TTFT", ["from sending a request until the client has its first token"]),
        ("users_that_fit", ["that the KV cache or the engine holds at once"]),
    ],
)
def test_words_of_screens_are_explained(
    word: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", word]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert all(each in shown for each in words)
