"""The reference page of the command line, made from the commands themselves."""

from __future__ import annotations

import contextlib
import io
import os
import re

from silicast.app.cli import build_app, main
from tests.architecture.source_tree import ROOT

PAGE = ROOT / "docs" / "reference" / "cli.md"

HEAD = """# Command line

This page is generated from the commands themselves (`make record`).

Results go to stdout and are the same bytes every time; everything else goes to stderr. `--json`
prints the answer as JSON, whose form is the same for every command that predicts.

| exit status | meaning |
|---|---|
| 0 | answered |
| 2 | the input is wrong; one line on stderr says what |
| 3 | some cases failed, or the question is right but cannot be answered yet |
| 70 | a defect of Silicast; `SILICAST_DEBUG=1` shows the traceback |
| 130 | interrupted |
| 141 | nobody reads the answers of a batch any longer |

| environment | meaning |
|---|---|
| `SILICAST_CATALOG` | a folder with further `devices/`, `models/`, `engines/` |
| `SILICAST_CACHE` | a folder for mappings and prices (`silicast cache`); empty: none are kept |
| `SILICAST_CORE` | `off`: no compiled core; `require`: an error where it does not run |
| `SILICAST_DATA` | the measured tables, for `validate` |
| `SILICAST_DEBUG` | show tracebacks |
"""


def commands() -> list[str]:
    """Every command and subcommand, as typed after ``silicast``."""
    app = build_app()
    commands = []
    for name in app:
        if name.startswith("-"):
            continue
        commands.append(name)
        commands += [f"{name} {sub}" for sub in app[name] if not sub.startswith("-")]
    return commands


def help_of(command: str) -> str:
    """The help text of a command, 80 columns wide, without its frames."""
    out = io.StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "80"
    try:
        with contextlib.redirect_stdout(out):
            main([*command.split(), "--help"])
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
    lines = []
    for line in out.getvalue().splitlines():
        title = re.match(r"╭─ (.+?) ─", line)
        inner = re.sub(r"^│ ?|│$|^╰─*╯$", "", line).rstrip()
        lines.append(f"{title.group(1)}:" if title else inner)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def page() -> str:
    """The whole page."""
    parts = [f"## silicast {name}\n\n```text\n{help_of(name)}\n```\n" for name in commands()]
    return "\n".join((HEAD, *parts))
