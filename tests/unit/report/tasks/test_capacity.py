"""The table of candidates: what they carry, and what they are judged by."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from silicast.report.tasks.capacity import candidates_table


def test_candidates_show_what_they_are_judged_by_and_whether_they_keep_the_objective() -> None:
    slow: dict[str, Any] = {
        "fields": {"limits.clock_mhz": 990},
        "gpus": 2,
        "output_tokens_per_joule": 2.96,
    }
    kept: dict[str, Any] = {
        "fields": {"limits.clock_mhz": 1200},
        "gpus": 2,
        "output_tokens_per_joule": 2.53,
    }
    console = Console(width=80)
    with console.capture() as captured:
        refused: dict[str, Any] = {"fields": {"limits.clock_mhz": 5}, "refused": "too slow"}
        rows = [{**kept, "reached": True}, {**slow, "reached": False}, refused]
        console.print(candidates_table(rows))
    head, _, *lines = captured.get().splitlines()
    assert head.split() == ["carries", "devices", "tokens/J"]
    assert [line.split()[2:] for line in lines] == [
        ["yes", "2", "2.53"],
        ["no", "2"],
        ["too", "slow"],
    ]
    with console.capture() as captured:
        console.print(
            candidates_table(
                [{"fields": {"a": 1}, "gpus": 3, "max_rate_per_s": 4.5, "reached": True}]
            )
        )
    assert captured.get().splitlines()[0].split() == ["carries", "devices"]
    assert captured.get().split()[-3:] == ["1", "4.50", "3"]
