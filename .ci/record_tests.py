"""Writes what a full test run gave into a committed text file.

Usage: python .ci/record_tests.py JUNIT_XML OUT_TXT
"""

from __future__ import annotations

import datetime
import platform
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from silicast import __version__


def summary(junit: Path) -> dict[str, float]:
    """Counts and seconds of all suites in a JUnit file.

    Raises:
        OSError: the file is missing: pytest did not get as far as running tests.
    """
    totals = {"tests": 0.0, "failures": 0.0, "errors": 0.0, "skipped": 0.0, "time": 0.0}
    for suite in ET.parse(junit).getroot().iter("testsuite"):  # noqa: S314 - our own file
        for key in totals:
            totals[key] += float(suite.get(key, "0"))
    return totals


def main() -> int:
    """Command line."""
    junit, out = Path(sys.argv[1]), Path(sys.argv[2])
    counts = summary(junit)
    failed = counts["failures"] + counts["errors"]
    passed = counts["tests"] - failed - counts["skipped"]
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    lines = [
        "make test-full",
        f"date      {datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        f"version   silicast {__version__} ({described or 'no git'})",
        f"python    {platform.python_version()} on {platform.system()} {platform.machine()}",
        f"result    {passed:.0f} passed, {failed:.0f} failed, {counts['skipped']:.0f} skipped",
        f"duration  {counts['time']:.0f} s",
    ]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
