"""The measured tables, for tests that score predictions."""

from __future__ import annotations

from pathlib import Path

import pytest

from silicast.core.errors import SilicastError
from silicast.validation.scorecard.suite import data_folder


@pytest.fixture(scope="session")
def data() -> Path:
    """Their folder; without them the test is skipped, loudly."""
    try:
        return data_folder()
    except SilicastError as error:
        pytest.skip(f"MEASURED DATA ABSENT, accuracy not recomputed: {error}")
