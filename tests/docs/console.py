"""Runs the console examples of documentation pages, and rewrites their outputs.

A ``console`` block holds commands after ``$ `` and what they print. Known commands: ``silicast``,
``cat FILE`` (what follows is the file's content, which is written for the commands after it), and
``echo $?`` (the last exit status). ``...`` alone on a line stands for any lines. All blocks of a
page run in one empty folder, in order.

    python -m tests.docs.console        rewrites the outputs in all pages and examples
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.scorecard.accuracy_tables import write_tables
from silicast.app import status
from silicast.app.cli import main
from tests.architecture.source_tree import ROOT
from tests.docs.cli_page import PAGE, page

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """One command of a block, what it should print, and where that stands in the page."""

    command: str
    expected: str
    line: int


def pages() -> list[Path]:
    """The README and every page of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def steps(text: str) -> Iterator[Step]:
    """All commands of a page, in order."""
    for block in BLOCK.finditer(text):
        first = text[: block.start(1)].count("\n") + 1
        command, at = "", first
        expected: list[str] = []
        for number, line in enumerate(block.group(1).splitlines()):
            if line.startswith("$ "):
                if command:
                    yield Step(command, "\n".join(expected), at)
                command, expected, at = line[2:], [], first + number
            elif command.endswith("\\"):
                command = f"{command[:-1]} {line.strip()}"
            else:
                expected.append(line)
        if command:
            yield Step(command, "\n".join(expected), at)


class Shell:
    """Runs steps in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.status = 0

    def run(self, step: Step) -> str:
        """What the command prints, stdout and stderr together, without spaces at line ends."""
        words = shlex.split(step.command)
        if words[0] == "cat":
            (self.folder / words[1]).write_text(step.expected + "\n", encoding="utf-8")
            return step.expected
        if step.command == "echo $?":
            return str(self.status)
        if words[0] != "silicast":
            raise ValueError(f"line {step.line}: cannot run {words[0]!r} in an example")
        out = io.StringIO()
        before = Path.cwd()
        os.chdir(self.folder)
        os.environ.pop("COLUMNS", None)  # a page is as wide as where nothing says how wide
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                self.status = main(words[1:])
        finally:
            os.chdir(before)
        return "\n".join(line.rstrip() for line in out.getvalue().rstrip("\n").split("\n"))


def matches(expected: str, actual: str) -> bool:
    """Whether an output is as the page shows it.

    >>> matches("a\\n...\\nd", "a\\nb\\nc\\nd"), matches("a\\n...", "b")
    (True, False)
    """
    parts = re.split(r"^\.\.\.$\n?", expected, flags=re.MULTILINE)
    pattern = "(?:.*\n)*?".join(re.escape(part) for part in parts)
    return (
        re.fullmatch(pattern + r"[\s\S]*" if expected.endswith("...") else pattern, actual)
        is not None
    )


def shortened(expected: str, actual: str) -> str:
    """An output with its lines left out where the page leaves lines out.

    >>> shortened("a\\n...\\nd", "b\\nc\\nd\\ne")
    'b\\n...\\ne'
    """
    lines = expected.splitlines()
    if "..." not in lines:
        return actual
    if matches(expected, actual):
        return expected
    if lines.count("...") > 1:
        raise ValueError(f"give the new lines by hand around {expected!r}: it prints\n{actual}")
    printed = actual.splitlines()
    head = lines.index("...")
    tail = len(lines) - head - 1
    return "\n".join([*printed[:head], "...", *printed[len(printed) - tail :]])


def _updated(text: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        shell = Shell(Path(folder))

        def replace(block: re.Match[str]) -> str:
            parts: list[str] = []
            for step in steps(block.group()):
                actual = shell.run(step)
                if shell.status == status.INTERNAL:
                    raise RuntimeError(f"$ {step.command}\n{actual}")
                printed = shortened(step.expected, actual)
                parts.append(f"$ {step.command}\n" + (f"{printed}\n" if printed else ""))
            return "```console\n" + "".join(parts) + "```"

        return BLOCK.sub(replace, text)


def _record_examples() -> None:
    for script in sorted((ROOT / "examples").glob("*.py")):
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
        script.with_suffix(".out").write_text(done.stdout, encoding="utf-8")


def _record() -> None:
    write_tables()
    PAGE.write_text(page(), encoding="utf-8")
    for path in pages():
        old = path.read_text(encoding="utf-8")
        new = _updated(old)
        if new != old:
            path.write_text(new, encoding="utf-8")
            print(f"rewrote {path.relative_to(ROOT)}")
    _record_examples()


if __name__ == "__main__":
    _record()
