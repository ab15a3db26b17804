"""Runs the parts of the full tests, and records each in docs/accuracy/test-full.txt.

Usage: python .ci/full_tests.py [PART ...] | --nightly [FILE ...] | --list

A part is a name or number of tests/parts.toml; without any, all run one after the other. The line
of a part is replaced when it has run; those of other parts stay. `--nightly` runs the tests marked
`nightly`, file by file; where FILE is given, of files with one of these words in their path.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = ROOT / "tests" / "parts.toml"
RECORD = ROOT / "docs" / "accuracy" / "test-full.txt"
JUNIT = ROOT / "build" / "test-full.xml"
HEADER = """The last run of each part of make test-full and of each file of make nightly,
with fresh random cases (.ci/full_tests.py).

part                                     date        commit              passed failed skipped    s
"""
NO_TESTS = 5
"""What pytest exits with where it has none to run."""


def parts() -> dict[str, list[str]]:
    """Name -> test files, relative to the root; each in the first part with a pattern for it."""
    table: dict[str, list[str]] = tomllib.loads(PARTS.read_text(encoding="utf-8"))
    parted: dict[str, list[str]] = {name: [] for name in table}
    for file in test_files():
        for name, patterns in table.items():
            if any(fnmatch(file, pattern) for pattern in patterns):
                parted[name].append(file)
                break
    return parted


def test_files() -> list[str]:
    """All test files; the package stands for its doctests."""
    every = sorted((ROOT / "tests").rglob("test_*.py"))
    return ["src/silicast", *(str(path.relative_to(ROOT)) for path in every)]


def nightly_files() -> list[str]:
    """Test files with a sweep that is marked `nightly`."""
    return [
        file
        for file in test_files()
        if file.endswith(".py") and "mark.nightly" in (ROOT / file).read_text(encoding="utf-8")
    ]


def run(name: str, files: list[str], marked: str) -> int:
    """Runs tests in two processes, and records them; pytest's exit status.

    A process that has no tests left takes some of the other's: single tests take minutes.
    """
    JUNIT.parent.mkdir(exist_ok=True)
    JUNIT.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "worksteal", "-m", marked]
    environment = os.environ | {"SILICAST_FRESH_CASES": "1"}
    command += [f"--junitxml={JUNIT}", *files]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)  # noqa: S603
    status = done.returncode
    if JUNIT.exists() and status != NO_TESTS:
        record(name, counts(JUNIT))
    return 0 if status == NO_TESTS else status


def counts(junit: Path) -> dict[str, float]:
    """Counts and seconds of all suites in a JUnit file."""
    totals = {"tests": 0.0, "failures": 0.0, "errors": 0.0, "skipped": 0.0, "time": 0.0}
    for suite in ET.parse(junit).getroot().iter("testsuite"):  # noqa: S314 - our own file
        for key in totals:
            totals[key] += float(suite.get(key, "0"))
    return totals


def line(name: str, totals: Mapping[str, float]) -> str:
    """What is recorded of a run."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"],  # noqa: S607
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    failed = totals["failures"] + totals["errors"]
    passed = totals["tests"] - failed - totals["skipped"]
    today = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    return (
        f"{name:<40} {today}  {described.stdout.strip() or 'no git':<18} {passed:>7.0f} "
        f"{failed:>6.0f} {totals['skipped']:>7.0f} {totals['time']:>5.0f}"
    )


def record(name: str, totals: Mapping[str, float]) -> None:
    """Replaces the line of one part."""
    lines = recorded() | {name: line(name, totals)}
    names = [*parts(), *nightly_files()]
    body = (lines.get(each, f"{each:<40} not yet run") for each in names)
    RECORD.write_text(HEADER + "\n".join(body) + "\n", encoding="utf-8")
    print(lines[name])


def recorded() -> dict[str, str]:
    """Part -> its line of earlier runs."""
    if not RECORD.exists():
        return {}
    rows = RECORD.read_text(encoding="utf-8").splitlines()
    return {row.split()[0]: row for row in rows if re.search(r"  \d{4}-\d\d-\d\d  ", row)}


def chosen(wanted: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Parts by name or number; all, where none is named.

    Raises:
        SystemExit: there is no such part.
    """
    table = parts()
    for part in wanted or list(table):
        name = list(table)[int(part) - 1] if part in map(str, range(1, len(table) + 1)) else part
        if name not in table:
            sys.exit(f"no part {part!r}: there are 1 to {len(table)}, {', '.join(table)}")
        yield name, table[name]


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", help="names or numbers; default: all")
    parser.add_argument("--list", action="store_true", help="only name the parts")
    parser.add_argument("--nightly", action="store_true", help="the long sweeps")
    options = parser.parse_args()
    if options.list:
        for number, (name, files) in enumerate(parts().items(), 1):
            print(f"{number:2} {name}: {len(files)} files")
        return 0
    if options.nightly:
        words = options.parts
        files = [f for f in nightly_files() if not words or any(word in f for word in words)]
        return max([run(file, [file], "nightly") for file in files], default=0)
    runs = [run(name, files, "not nightly") for name, files in chosen(options.parts) if files]
    return max(runs, default=0)


if __name__ == "__main__":
    sys.exit(main())
