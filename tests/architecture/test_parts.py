"""`make test-full` runs every test file once."""

from __future__ import annotations

import importlib.util
from collections import Counter
from types import ModuleType

from tests.architecture.source_tree import ROOT


def full_tests() -> ModuleType:
    spec = importlib.util.spec_from_file_location("full_tests", ROOT / ".ci" / "full_tests.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_test_file_belongs_to_one_part() -> None:
    script = full_tests()
    times = Counter(file for files in script.parts().values() for file in files)
    none = [file for file in script.test_files() if not times[file]]
    assert not none, "name their part in tests/parts.toml"
    assert {file: n for file, n in times.items() if n > 1} == {}


def test_long_sweeps_are_found_by_their_mark() -> None:
    files = full_tests().nightly_files()
    assert "tests/property/test_random_designs.py" in files
    assert set(files) <= set(full_tests().test_files())
