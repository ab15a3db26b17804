"""Random cases: the same in every `make test`, fresh ones in `make test-full`; measured tables.

A run that lands or blocks a change must not depend on luck, nor on how busy the machine is;
`make test-full` sets ``SILICAST_FRESH_CASES`` and looks for new counterexamples.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from lab.scorecard.suite import data_folder
from silicast.core.errors import SilicastError

settings.register_profile(
    "repeatable", derandomize=True, print_blob=True, deadline=None, max_examples=40
)
settings.register_profile("fresh", print_blob=True, deadline=None)
os.environ.pop("COLUMNS", None)  # output is as wide as where nothing says how wide
os.environ["SILICAST_CACHE"] = ""  # nothing is kept of what another run computed
settings.load_profile("fresh" if os.environ.get("SILICAST_FRESH_CASES") else "repeatable")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is too long for `make test-full` is too long for `make test`."""
    for item in items:
        if item.get_closest_marker("nightly"):
            item.add_marker("full")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of measured tables; without them the test is skipped, loudly."""
    try:
        return data_folder()
    except SilicastError as error:
        pytest.skip(f"MEASURED DATA ABSENT, accuracy not recomputed: {error}")
