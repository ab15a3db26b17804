"""The documentation site builds without a warning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT


@pytest.mark.full
def test_site_builds(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html",
            "-d", str(tmp_path / "doctrees"), str(ROOT / "docs"), str(tmp_path / "html"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "html" / "index.html").stat().st_size > 5000
