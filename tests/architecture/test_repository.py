"""The repository's own promises: licence, commands, dependencies."""

from __future__ import annotations

import os
import re
import tomllib

from tests.architecture.source_tree import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def _name(requirement: str) -> str:
    match = re.match(r"[\w-]+", requirement)
    assert match
    return match.group().lower()


def test_the_base_install_is_four_packages() -> None:
    """Each one more is a decision record (design, section 7)."""
    assert sorted(map(_name, PROJECT["project"]["dependencies"])) == [
        "cyclopts", "msgspec", "numpy", "rich",
    ]  # fmt: skip


def test_what_we_test_with_is_pinned() -> None:
    pins = (ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8")
    pinned = {line.partition("==")[0].lower() for line in pins.splitlines() if "==" in line}
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = {
        _name(r) for group in ("data", "train", "plot", "docs", "dev") for r in extras[group]
    } | set(map(_name, PROJECT["project"]["dependencies"]))
    assert wanted - {"silicast"} <= pinned


def test_continuous_integration_runs_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "make --no-print-directory test" in script.read_text(encoding="utf-8")


def test_make_says_what_it_can_do() -> None:
    targets = set(re.findall(r"^#   make ([\w-]+)", MAKEFILE, flags=re.MULTILINE))
    assert {"demo", "test", "test-full", "lint"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", MAKEFILE, flags=re.MULTILINE), target


def test_the_licence_is_apache() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "NOTICE").read_text(encoding="utf-8")


def test_package_and_project_have_one_version() -> None:
    from silicast import __version__

    assert PROJECT["project"]["version"] == __version__
