"""Random cases: the same in every `make test`, fresh ones in `make test-full`; measured tables.

A run that lands or blocks a change must not depend on luck, nor on how busy the machine is;
`make test-full` sets ``SILICAST_FRESH_CASES`` and looks for new counterexamples.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from lab.scorecard.suite import data_folder
from silicast.core import compiled_core
from silicast.core.errors import SilicastError
from silicast.kernels import taped
from silicast.learning import lone_kernels
from silicast.validation import checkout
from tests.sampling import FULL, number

checkout.ROOT = Path(__file__).parents[1]  # an installed package is tested with these suites
settings.register_profile(
    "repeatable", derandomize=True, print_blob=True, deadline=None, max_examples=number(100)
)
settings.register_profile("fresh", print_blob=True, deadline=None)
os.environ.pop("COLUMNS", None)  # output is as wide as where nothing says how wide
os.environ["SILICAST_CACHE"] = ""  # nothing is kept of what another run computed
settings.load_profile("fresh" if FULL else "repeatable")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is too long for `make test-full` is too long for `make test`."""
    for item in items:
        if item.get_closest_marker("nightly"):
            item.add_marker("full")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A test file that cannot be imported is an error: doctests of modules whose extra is missing
    are passed over (``--doctest-ignore-import-errors``), and that option would pass it over too.
    """
    report = yield
    is_test = collector.path.name.startswith("test_")
    if is_test and report.skipped and "unable to import module" in str(report.longrepr):
        report.outcome = "failed"
    return report


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of measured tables; without them the test is skipped, loudly."""
    try:
        return data_folder()
    except SilicastError as error:
        pytest.skip(f"MEASURED DATA ABSENT, accuracy not recomputed: {error}")


@pytest.fixture
def traced_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A formula of a kernel is traced the first time that it is asked; no tape outlives a test."""
    monkeypatch.setattr(compiled_core, "runs", lambda: True)
    monkeypatch.setattr(taped, "REQUESTS", 1)
    for module in (taped, lone_kernels):
        module.forget()
    yield
    for module in (taped, lone_kernels):
        module.forget()
