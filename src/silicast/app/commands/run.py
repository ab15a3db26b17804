"""`silicast run`."""

from __future__ import annotations

from pathlib import Path

from silicast.app.flags import Json
from silicast.app.predict import predicted, print_reply, read_scenario


def run(scenario: Path, /, *, json: Json = False) -> int:
    """Predict one scenario file.

    Args:
        scenario: a TOML or JSON file; its fields are in the documentation.
        json: print the answer as JSON instead of a table.
    """
    tree = read_scenario(scenario)
    reply = predicted(tree, scenario)

    from silicast.report.answers import answer_report

    return print_reply(reply, lambda answer: answer_report(tree, answer), json=json, file=scenario)
